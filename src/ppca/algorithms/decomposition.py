"""Sorted spectrum of a normalised shared matrix: solve, verify on shares, fall back if needed, sort.

Openings: the convergence bits of the solver (with `topk` also its convergence levels; with `fixed_iterations` none of
them, also in a fallback), one verification bit, and shuffled ranks. A fallback opens more bits and ranks, and each loop
of `topk` opens ranks. If the number of components is a fraction of variance, that number is opened.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import concatenate, ready, together
from . import certificate
from .eigen import Eigen, identity_like, is_below, orthogonality_error
from .iteration import Progress, silent
from .jacobi import enough_steps
from .solvers import AUTO, TOLERANCE, TOPK, chosen_solver, eigh, promised_residual
from .topk import eigh_topk

MAX_ORTHOGONALITY_ERROR = 1e-7
"""Bound on |V'V - I|_F that verification guarantees."""

FALLBACK_ITERATIONS = 45
"""Iterations of all-pairs after `topk` in jobs that open no convergence bits."""

RANGE_CHECK_FRAC = 10
"""Fractional bits that are enough to detect elements far outside their range."""

FALLBACK_MAX_COLUMNS = 600
"""Maximum number of columns for which all-pairs takes over if `topk` fails. More would take hours and gigabytes."""

MAX_TOLERANCE, MAX_WIDE_TOLERANCE = 1e-6, 1e-3
"""Maximum tolerance with which a result of `topk` is verified and delivered if it did not reach the requested one.

MAX_TOLERANCE applies up to FALLBACK_MAX_COLUMNS columns, for which all-pairs can take over; MAX_WIDE_TOLERANCE above.
"""

MAX_RESIDUAL = 8.0
"""Bound reported for a residual that is too large to matter: no eigenvalue exceeds 1."""

RESIDUAL_SQUARES = 2.0 ** np.arange(-66, 5)
"""Squares of residuals at which the bound for the pairs that were not requested has its steps."""


def residual_bound(d: int, count: int, tolerance: float, units: int = 2) -> float:
    """Return a bound on |A V - V L|_F if verification passed with this tolerance, over `count` pairs of vectors of
    length d.

    Verification compares with twice the tolerance. It compares values computed on shares: each entry of A V - V L may
    be wrong by `units` times 2^-40, one unit for each of the two products.
    """
    return 2 * tolerance + units * 2.0**-40 * math.sqrt(d * count)


def rounding(d: int) -> float:
    """Return a bound on |A - A'|_F, where A' is the matrix of the data without rounding; column errors are in
    `JointCovariance`.

    A is rounded twice: its d^2 entries are off by 2^-40, and by 2^-48 before they are multiplied by up to 2 sqrt(d);
    together by less than 2^-39. Owners compute with doubles: sums over the rows of a chunk are off by at most 2^-40 of
    the product of two deviations, their factors by d 2^-50; and the trace of A is at most sqrt(d). All of that is below
    d 2^-38.
    """
    return d * 2.0**-38


def resolution(d: int, tolerance: float, certified: bool = False) -> float:
    """Return the fraction of the total variance below which variances are noise: the error of an eigenvalue that
    verification allows.

    |A V - V L|_F < 2 tolerance implies that sorted eigenvalues are off by at most that (Weyl). A itself is rounded to
    40 bits, which moves them by d 2^-40; and the trace of A is at least |A|_F >= 1/2. If omitted pairs are covered by
    the certificate of `topk`, eigenvalues below its minimum may be missing.
    """
    residual = 2 * tolerance
    off = residual + d * 2.0**-40
    return 2 * (max(off, certificate.max_missing(0, residual)) if certified else off)


@dataclass
class Spectrum:
    """Shared eigenvalues in descending order, eigenvectors as ROWS in the same order, and public facts about the
    computation.

    solver: the solver that ran first. fell_back: whether another one took over. tolerance: |A V - V L|_F was verified
    to be below twice this. It is the requested tolerance, or the one that the solver can
        reach or has reached.
    certified: only the largest pairs were computed, and the certificate shows that no larger one is missing.
    following: with a certificate, a shared bound on every omitted eigenvalue.
    others: a shared bound on |A V - V L|_F over the pairs that were not requested; None: these were verified, too.
    """

    values: Any
    vectors: Any
    solver: str
    iterations: int
    verified: bool
    fell_back: bool
    tolerance: float
    certified: bool = False
    following: Any = None
    others: Any = None

    def left_out(self, count: int) -> Any:
        """Return a shared bound on every eigenvalue except the first `count`; None if there is no other.

        For z orthogonal to the first vectors, z'Az <= (next value + |A V - V L|_F over the others) z'z: see
        docs/concepts/eigensolvers.md#how-far-a-component-can-be-off.
        """
        if self.certified or count == len(self.values):
            return self.following
        d = len(self.values)
        if self.others is None:
            return self.values[count] + residual_bound(d, d, self.tolerance)
        return self.values[count] + self.others + residual_bound(d, d, 0.0)


async def decompose(
    A: Any,
    *,
    run: str,
    solver: str = AUTO,
    tol: float = TOLERANCE,
    top: int | None = None,
    max_iterations: int | None = None,
    fixed_iterations: int | None = None,
    progress: Progress = silent,
) -> Spectrum:
    """Compute the sorted spectrum of a shared symmetric matrix with |A|_F <= 1.

    run: a public name of this run, from which `topk` draws public random numbers.
    top: number of largest pairs that are wanted (None: all); `topk` returns only these.
    max_iterations, fixed_iterations: see `eigh`.

    If `topk` stops before the requested tolerance, its result is verified with the tolerance that it has reached, if
    that is at most MAX_TOLERANCE (MAX_WIDE_TOLERANCE above FALLBACK_MAX_COLUMNS columns). If verification fails,
    another solver takes over: all-pairs from `topk` up to FALLBACK_MAX_COLUMNS columns, and cyclic Jacobi from the
    others. It runs until it has converged, or with `fixed_iterations` for a fixed number of steps.
    """
    d = len(A)
    name = chosen_solver(solver, d, top, fixed_iterations)
    limits = {"max_iterations": max_iterations, "fixed_iterations": fixed_iterations}
    if name == TOPK:
        if top is None:
            raise ValueError("solver topk needs the number of components as an integer.")
        largest = await eigh_topk(A, top, run=run, tol=tol, progress=progress, **limits)
        reached, limit = largest.residual, MAX_WIDE_TOLERANCE if d > FALLBACK_MAX_COLUMNS else MAX_TOLERANCE
        tolerance = reached if reached is not None and tol < reached <= limit else tol
        progress("verification", 0.96)
        bounded, (complete, following) = await together(
            is_bounded(largest.values, largest.vectors),
            certificate.no_eigenvalue_missing(
                A, largest.values, largest.vectors, run, 2 * tolerance, following=largest.following
            ),
        )
        passed = await (bounded * complete)
        verified, _ = await is_accurate(A, largest.values, largest.vectors, passed, 2 * tolerance)
        if verified or d > FALLBACK_MAX_COLUMNS:
            left = following if top < d else None
            return Spectrum(
                largest.values, largest.vectors, name, largest.iterations, verified, False, tolerance, True, left
            )
        limits = {"fixed_iterations": None if fixed_iterations is None else FALLBACK_ITERATIONS}
    first = "allpairs" if name == TOPK else name
    few = top if fixed_iterations is None else None
    found = await eigh(A, identity_like(A), solver=first, tol=tol, top=few, progress=progress, **limits)
    tolerance = promised_residual(first, d, tol)
    values, vectors, (verified, others) = await _verified(A, found, 2 * tolerance, top, progress)
    fell_back = name == TOPK
    if not verified and first != "jacobi":
        fell_back, tolerance = True, tol
        steps = None if fixed_iterations is None else enough_steps(d)
        found = await eigh(A, identity_like(A), solver="jacobi", tol=tol, fixed_iterations=steps, progress=progress)
        values, vectors, (verified, others) = await _verified(A, found, 2 * tol, top, progress)
    return Spectrum(values, vectors, name, found.iterations, verified, fell_back, tolerance, others=others)


async def _verified(
    A: Any, found: Eigen, tol: float, top: int | None, progress: Progress
) -> tuple[Any, Any, tuple[bool, Any]]:
    """Return values in descending order, the vectors as rows, and the result of `is_accurate` for them.

    Only an opened convergence bit shows that the first `top` pairs are the largest. Without it all pairs are verified.
    """
    bounded, (values, vectors) = await together(is_bounded(found.values, found.vectors), _sorted(found, progress))
    return values, vectors, await is_accurate(A, values, vectors, bounded, tol, top if found.converged else None)


async def _sorted(found: Eigen, progress: Progress) -> tuple[Any, Any]:
    """Return values in descending order, and the vectors as rows."""
    progress("sort", 0.97)
    if len(found.values) == 1:
        return found.values, found.vectors
    values, vectors = await found.values.within(2).sort(found.vectors.T, descending=True)
    return values, vectors


async def is_bounded(values: Any, vectors: Any) -> Any:
    """Return a shared bit: no entry of the vectors and no value is far outside its range, as after a failed truncation.
    Four rounds.

    Such an element is off by 2^82 or more in the ring. Products with integers, as with unit vectors in V, can hide it
    modulo 2^128. So all elements are truncated to 10 fractional bits, exactly. The sum of their squares, at most 1 for
    each vector if all are correct, is compared in the whole ring; an element that is off adds 2^104 or more.
    """
    short = await concatenate([vectors.ravel(), values]).truncate(40 - RANGE_CHECK_FRAC)
    size = await short.inner(short, frac=2 * RANGE_CHECK_FRAC)
    return await is_below(size, 4.0 * len(values) + 4)


async def is_accurate(
    A: Any, values: Any, vectors: Any, bounded: Any, tol: float, top: int | None = None
) -> tuple[bool, Any]:
    """Return whether the decomposition is as accurate as promised (one bit is opened), and a shared bound on the other
    pairs.

    The bit combines: |A V - V L|_F < tol for the first `top` pairs, |V'V - I|_F < 1e-7, and the bit of `is_bounded`.
    The bound is that of |A V - V L|_F over the other pairs, a power of sqrt(2); None if there are none. Sums of squares
    are compared in the whole ring. If a failed truncation moves V or L far off, the sums wrap around; they may then
    look negative, but hardly small.
    """
    count = len(values) if top is None else min(top, len(values))
    V = vectors.T
    AV, scaled, off = await together(A.matmul(V, within=1.5), V.mul(values, within=1.5), orthogonality_error(V))
    residual = AV - scaled
    first, rest = residual[:, :count], residual[:, count:]
    square, orthogonal, other = await together(
        first.inner(first, frac=80),
        off.inner(off, frac=80),
        rest.inner(rest, frac=80) if count < len(values) else ready(None),
    )
    square = square + (1 - bounded) * 2**20  # above every tolerance
    *bits, others = await together(
        is_below(square, tol**2),
        is_below(orthogonal, MAX_ORTHOGONALITY_ERROR**2),
        ready(None) if other is None else _root_above(other),
    )
    both = await (bits[0] * bits[1])
    opened = await both.open(what="verification bit", why="is the decomposition as accurate as promised")
    return bool(opened), others


async def _root_above(square: Any) -> Any:
    """Return a shared power of sqrt(2) above the root of a sum of squares; MAX_RESIDUAL for a negative sum.

    Two rounds.
    """
    whole = square.within(2.0 ** (126 - square.dtype.frac))
    roots = np.r_[MAX_RESIDUAL, np.sqrt(RESIDUAL_SQUARES), MAX_RESIDUAL]
    return await whole.lookup(np.r_[-RESIDUAL_SQUARES[0], RESIDUAL_SQUARES], roots, 40)


async def components_for(values: Any, fraction: float) -> int:
    """Open the smallest number of components whose variance exceeds this fraction of the total.

    values: shared, in descending order.
    """
    d = len(values)
    sums = np.tril(np.ones((d, d), np.int64)) @ values
    total = values.sum()
    short = await (sums - total * fraction).within(4 * d).negative()
    count = short.sum() + 1
    opened = await count.open(what="number of components", why=f"components that explain {fraction:g} of the variance")
    return min(int(opened), d)
