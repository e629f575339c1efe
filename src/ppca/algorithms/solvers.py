"""Eigensolvers by name, and the choice of the solver for `auto`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from .allpairs import MAX_ITERATIONS, eigh_allpairs
from .baselines.jacobi_classic import eigh_jacobi_classic
from .baselines.jacobi_eo import eigh_jacobi_eo, reachable
from .baselines.power import eigh_power
from .baselines.qr import eigh_qr
from .baselines.qr import max_checks as qr_checks
from .eigen import Eigen
from .jacobi import eigh_jacobi
from .rotations import max_checks as jacobi_checks
from .topk import DEGREES, block_size

Solver = Callable[..., Awaitable[Eigen]]


SOLVERS: dict[str, Solver] = {
    "allpairs": eigh_allpairs,
    "jacobi": eigh_jacobi,
    "jacobi-classic": eigh_jacobi_classic,
    "jacobi-eo": eigh_jacobi_eo,
    "qr": eigh_qr,
    "power": eigh_power,
}
"""All solvers by name, with the arguments (A0, identity, *, tol, max_iterations, fixed_iterations, progress).

The two numbers and the result's `iterations` count the same unit: iterations of all-pairs, steps of a cyclic Jacobi (d
- 1 a sweep, d if d is odd), QR iterations (each on the remaining rows), squarings of the power method.
"""


AUTO, TOPK = "auto", "topk"

TOLERANCE = 1e-9
"""Default tolerance of a joint PCA: bound on |A V - V L|_F, with |A|_F in [1/2, 1)."""

NAMES = (AUTO, TOPK, *SOLVERS)
"""Names that a job may use: `auto` (see `chosen_solver`), `topk` (only the K largest pairs), and all solvers."""

TOPK_MIN_COLUMNS = 200
"""Minimum number of columns for which `auto` uses `topk`, see docs/concepts/eigensolvers.md."""

TOPK_MIN_RATIO = 5
"""Minimum ratio of columns to the block of `topk` for which `auto` uses it."""


def chosen_solver(solver: str, d: int, components: int | float | None, fixed_iterations: int | None = None) -> str:
    """Return the solver that `auto` stands for, from public numbers alone; other names stand for themselves.

    Fixed iterations are iterations of all-pairs. A fraction of the variance, or all components, need all pairs.
    """
    if solver != AUTO:
        return solver
    few = isinstance(components, int) and d >= TOPK_MIN_COLUMNS and TOPK_MIN_RATIO * block_size(components, d) <= d
    return TOPK if few and fixed_iterations is None else "allpairs"


def max_convergence_bits(solver: str, d: int, max_iterations: int | None = None) -> int:
    """Return the maximum number of convergence bits that `decompose` opens with a solver, including those of a
    fallback.

    `topk` calls all-pairs in each of its loops. All-pairs can take over from it, and cyclic Jacobi from every solver.
    """
    own = {
        TOPK: (len(DEGREES) + 2) * MAX_ITERATIONS,
        "allpairs": MAX_ITERATIONS if max_iterations is None else max_iterations,
        "qr": qr_checks(d, max_iterations),
        "power": 0,
    }.get(solver, jacobi_checks(d, max_iterations))
    return own if solver == "jacobi" else own + jacobi_checks(d)


async def eigh(
    A0: Any, identity: Any, *, solver: str = "allpairs", tol: float = TOLERANCE, top: int | None = None, **options: Any
) -> Eigen:
    """Compute eigenvalues and eigenvectors of a shared symmetric matrix with |A0|_F <= 1, with the named solver.

    `power` needs a positive semi-definite matrix. top: number of largest eigenpairs that are wanted; all-pairs then
    stops earlier, the other solvers compute all pairs. tol: bound on |A0 V - V L|_F. max_iterations: maximum number of
    iterations (None: the default of the solver). fixed_iterations: run exactly this many and open nothing. progress:
    called with the progress.
    """
    if solver not in SOLVERS:
        raise ValueError(f"unknown solver {solver!r}. Use one of: {', '.join(SOLVERS)}.")
    if solver == "allpairs":
        options["top"] = top
    return await SOLVERS[solver](A0, identity, tol=promised_residual(solver, len(A0), tol), **options)


def promised_residual(solver: str, d: int, tol: float) -> float:
    """Return the bound on |A0 V - V L|_F of a converged run: tol, or the best that the solver's formula can reach."""
    if solver == "jacobi-classic":  # it does not rotate entries below 2^-30, and stops at half the tolerance
        return max(tol, 2 * d * 2.0**-30)
    return max(tol, reachable(d)) if solver == "jacobi-eo" else tol
