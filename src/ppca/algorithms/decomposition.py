"""From a normalised shared matrix to its sorted spectrum: solve, verify on shares, fall back if needed, sort.

Openings: the solver's convergence bits (of `topk` also its convergence levels; none of them with `fixed_iterations`, in a
fall-back either), one verification bit and shuffled ranks (more of both after a fall-back, and of ranks with every loop of
`topk`); with a fraction of variance as the number of components, that number.
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
"""What verification promises of |V'V - I|_F."""

FALLBACK_ITERATIONS = 45
"""Iterations of all-pairs after `topk` in jobs that open no convergence bits."""

RANGE_CHECK_FRAC = 10
"""Fractional bits that are enough to see whether an element is far off."""

FALLBACK_MAX_COLUMNS = 600
"""Largest number of columns for which all-pairs takes over if `topk` fails: more would take hours and gigabytes."""

MAX_TOLERANCE, MAX_WIDE_TOLERANCE = 1e-6, 1e-3
"""Largest tolerance with which a result of `topk` that did not reach the requested one is verified and delivered: up to
FALLBACK_MAX_COLUMNS columns, where all-pairs can take over, and above."""

MAX_RESIDUAL = 8.0
"""Bound of a residual that is too large to matter: no eigenvalue exceeds 1."""

RESIDUAL_SQUARES = 2.0 ** np.arange(-66, 5)
"""Squares of residuals between which the bound of the pairs that were not asked for has its steps."""


def residual_bound(d: int, count: int, tolerance: float, units: int = 2) -> float:
    """What |A V - V L|_F is below if verification passed with a tolerance: over `count` pairs of vectors of length d.

    Verification compares with twice the tolerance. What it compares was computed on shares: units of 2^-40 by which every entry
    of A V - V L may be off, one for each of the two products.
    """
    return 2 * tolerance + units * 2.0**-40 * math.sqrt(d * count)


def rounding(d: int) -> float:
    """|A - A'|_F if A' is the matrix of the data without rounding, whose columns are off as
    `joint_covariance.JointCovariance.error` says.

    A is rounded twice: its d^2 entries are off by 2^-40, and by 2^-48 before they are multiplied by up to 2 sqrt(d); together by
    less than 2^-39. Doubles of owners: sums over the rows of a piece are off by at most 2^-40 of the product of two deviations,
    their factors by d 2^-50; and the trace of A is at most sqrt(d). All of that is below d 2^-38.
    """
    return d * 2.0**-38


def resolution(d: int, tolerance: float, certified: bool = False) -> float:
    """Variances below this fraction of the total are noise: what verification allows an eigenvalue to be off.

    |A V - V L|_F < 2 tolerance means that sorted eigenvalues are off by at most that (Weyl); A itself is rounded to 40 bits,
    which moves them by d 2^-40; and the trace of A is at least |A|_F >= 1/2. If the certificate of `topk` stands for the pairs
    that were left out, eigenvalues below its floor may be missing.
    """
    residual = 2 * tolerance
    off = residual + d * 2.0**-40
    return 2 * (max(off, certificate.max_missing(0, residual)) if certified else off)


@dataclass
class Spectrum:
    """Shared eigenvalues in descending order, eigenvectors as ROWS in the same order, and the public course of events.

    solver: the solver that was asked first; fell_back: whether another one had to take over.
    tolerance: |A V - V L|_F was verified to be below twice this. It is the requested tolerance, or the one that the solver can
    reach or has reached.
    certified: whether only the largest pairs were computed, and the certificate says that no larger one is missing.
    following: with a certificate, a shared bound of every eigenvalue that was left out.
    others: a shared bound of |A V - V L|_F over the pairs that were not asked for; None: these were verified, too.
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
        """A shared bound of every eigenvalue but the first `count`; None if there is no other.

        For z orthogonal to the first vectors, z'Az <= (next value + |A V - V L|_F over the others) z'z: see
        docs/eigensolvers.md#how-far-a-component-can-be-off.
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
    """Sorted spectrum of a shared symmetric matrix with |A|_F <= 1.

    run: a public name of this run, from which `topk` draws public random numbers. top: how many of the largest pairs are wanted
    (None: all); `topk` gives only these. max_iterations, fixed_iterations: see `eigh`.
    If `topk` stops before the requested tolerance, its result is verified with the tolerance that it has reached, if that is at
    most MAX_TOLERANCE (MAX_WIDE_TOLERANCE above FALLBACK_MAX_COLUMNS columns). If verification says no, all-pairs takes over
    from `topk` up to FALLBACK_MAX_COLUMNS
    columns, and cyclic Jacobi from the other solvers: until it has converged, or with `fixed_iterations` for a fixed number of
    steps.
    """
    d = len(A)
    name = chosen_solver(solver, d, top, fixed_iterations)
    limits = {"max_iterations": max_iterations, "fixed_iterations": fixed_iterations}
    if name == TOPK:
        if top is None:
            raise ValueError("topk finds a given number of the largest pairs: say how many")
        largest = await eigh_topk(A, top, run=run, tol=tol, progress=progress, **limits)
        tolerance = tol
        if largest.residual is not None and tol < largest.residual <= (
            MAX_WIDE_TOLERANCE if d > FALLBACK_MAX_COLUMNS else MAX_TOLERANCE
        ):
            tolerance = largest.residual
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
    """Values in descending order, the vectors as rows, and what `is_accurate` says of them.

    Only an opened convergence bit says that the first `top` pairs are the largest. Without it all pairs are verified.
    """
    bounded, (values, vectors) = await together(is_bounded(found.values, found.vectors), _sorted(found, progress))
    return values, vectors, await is_accurate(A, values, vectors, bounded, tol, top if found.converged else None)


async def _sorted(found: Eigen, progress: Progress) -> tuple[Any, Any]:
    """Values in descending order and the vectors as rows."""
    progress("sort", 0.97)
    if len(found.values) == 1:
        return found.values, found.vectors
    values, vectors = await found.values.within(2).sort(found.vectors.T, descending=True)
    return values, vectors


async def is_bounded(values: Any, vectors: Any) -> Any:
    """A shared bit: no entry of the vectors and no value is far off, as a failed truncation leaves it: four rounds.

    Off by 2^82 or more in the ring, such an element can be invisible modulo 2^128 to products with whole numbers, as in a V with
    unit vectors. So all of them are shortened to 10 fractional bits, exactly, and the sum of their squares, one for every
    vector and at most 1 where all is well, is looked at in the whole ring: one that is off adds 2^104 or more.
    """
    short = await concatenate([vectors.ravel(), values]).truncate(40 - RANGE_CHECK_FRAC)
    size = await short.inner(short, frac=2 * RANGE_CHECK_FRAC)
    return await is_below(size, 4.0 * len(values) + 4)


async def is_accurate(
    A: Any, values: Any, vectors: Any, bounded: Any, tol: float, top: int | None = None
) -> tuple[bool, Any]:
    """Whether |A V - V L|_F < tol for the first `top` pairs, |V'V - I|_F < 1e-7, and the bit of `is_bounded`: one bit is opened.

    Also a shared bound of |A V - V L|_F over the other pairs, a power of sqrt(2); None if there are none.
    The sums of squares are looked at in the whole ring: a V or L that a failed truncation has thrown far off makes sums that
    wrap around; these look negative as often as not, but hardly small.
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
    square = square + (1 - bounded) * 2**20  # not below any tolerance
    *bits, others = await together(
        is_below(square, tol**2),
        is_below(orthogonal, MAX_ORTHOGONALITY_ERROR**2),
        ready(None) if other is None else _root_above(other),
    )
    both = await (bits[0] * bits[1])
    opened = await both.open(what="verification bit", why="is the decomposition as accurate as promised")
    return bool(opened), others


async def _root_above(square: Any) -> Any:
    """A shared power of sqrt(2) above the root of a sum of squares, MAX_RESIDUAL for a negative one: two rounds."""
    whole = square.within(2.0 ** (126 - square.dtype.frac))
    roots = np.r_[MAX_RESIDUAL, np.sqrt(RESIDUAL_SQUARES), MAX_RESIDUAL]
    return await whole.lookup(np.r_[-RESIDUAL_SQUARES[0], RESIDUAL_SQUARES], roots, 40)


async def components_for(values: Any, fraction: float) -> int:
    """The smallest number of components whose variance exceeds the fraction of the total; that number is opened.

    values: shared, in descending order.
    """
    d = len(values)
    sums = np.tril(np.ones((d, d), np.int64)) @ values
    total = values.sum()
    short = await (sums - total * fraction).within(4 * d).negative()
    count = short.sum() + 1
    opened = await count.open(what="number of components", why=f"components that explain {fraction:g} of the variance")
    return min(int(opened), d)
