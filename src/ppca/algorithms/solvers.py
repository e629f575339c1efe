"""Eigensolvers by name, the check of their result, and the way out when the check fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from ..protocol import symmetric, together
from .allpairs import Eigen, Progress, eigh_allpairs
from .jacobi import eigh_jacobi

ORTHOGONALITY = 1e-7
"""Promised |V'V - I|_F."""

Solver = Callable[..., Awaitable[Eigen]]


async def _allpairs(A0: Any, identity: Any, limit: int | None, fixed: int | None, **options: Any) -> Eigen:
    return await eigh_allpairs(A0, identity, max_iterations=limit or 60, fixed_iterations=fixed, **options)


async def _jacobi(A0: Any, identity: Any, limit: int | None, fixed: int | None, **options: Any) -> Eigen:
    return await eigh_jacobi(A0, identity, max_sweeps=limit or 30, fixed_sweeps=fixed, **options)


SOLVERS: dict[str, Solver] = {
    "allpairs": _allpairs,
    "jacobi": _jacobi,
}
"""Every solver by name. `limit` and `fixed` count what the solver counts: iterations of all-pairs, sweeps of a cyclic
Jacobi, QR iterations per eigenvalue, squarings per eigenvalue."""


async def eigh(
    A0: Any,
    identity: Any,
    *,
    solver: str = "allpairs",
    tol: float = 1e-6,
    max_iterations: int | None = None,
    fixed_iterations: int | None = None,
    progress: Progress | None = None,
) -> Eigen:
    """Eigenvalues and eigenvectors of a shared symmetric matrix with |A0|_F <= 1, by the named solver.

    max_iterations, fixed_iterations: in the solver's own unit (see `SOLVERS`); None leaves the solver's default.
    """
    if solver not in SOLVERS:
        raise ValueError(f"unknown solver {solver!r}; choose one of: {', '.join(SOLVERS)}")
    return await SOLVERS[solver](A0, identity, max_iterations, fixed_iterations, tol=tol, progress=progress)


async def verified(A0: Any, eigen: Eigen, tol: float = 1e-6) -> bool:
    """Opens one bit: |A0 V - V diag(values)|_F < tol and |V'V - I|_F < 1e-7 (or a little below). Seven rounds.

    The two are added as squares, the second scaled to the first: when the sum passes, each does.
    """
    V, d = eigen.vectors, eigen.vectors.shape[1]
    AV, VL, upper = await together(A0 @ V, V * eigen.values, V.T.matmul_upper(V))
    E = (symmetric(upper, d) - np.eye(d, dtype=np.int64)) * (tol / ORTHOGONALITY)
    R = AV - VL
    residual, departure = await together(R.inner(R, frac=80), E.inner(E, frac=80))
    passed = await ((residual + departure) - tol * tol).within(2.0**30).negative()
    return bool(await passed.open(what="verification bit", why="accept the eigendecomposition"))


async def eigh_verified(
    A0: Any,
    identity: Any,
    *,
    solver: str = "allpairs",
    tol: float = 1e-6,
    max_iterations: int | None = None,
    fixed_iterations: int | None = None,
    progress: Progress | None = None,
) -> tuple[Eigen, list[str]]:
    """`eigh` with its result checked on shares, one bit opened per check; and the solvers used, in order.

    If the check fails, cyclic Jacobi continues from the vectors found; if that fails too (vectors far from orthogonal), it
    starts again from A0. `converged` of the result is the last check's answer.
    """
    options: dict[str, Any] = {"tol": tol, "progress": progress}
    eigen = await eigh(
        A0, identity, solver=solver, max_iterations=max_iterations, fixed_iterations=fixed_iterations, **options
    )
    used = [solver]
    good = await verified(A0, eigen, tol)
    if not good:
        AV = await (A0 @ eigen.vectors)
        A = symmetric(await eigen.vectors.T.matmul_upper(AV), len(A0))
        eigen = await eigh_jacobi(A0, identity, start=(A, eigen.vectors), **options)
        used.append("jacobi, continued")
        good = await verified(A0, eigen, tol)
    if not good:
        eigen = await eigh_jacobi(A0, identity, **options)
        used.append("jacobi, from the start")
        good = await verified(A0, eigen, tol)
    eigen.converged = good
    return eigen, used
