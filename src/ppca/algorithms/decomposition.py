"""From a normalised shared matrix to its sorted spectrum: solve, verify on shares, fall back if needed, sort.

Openings: the solver's convergence bits (none with `fixed_iterations`, in the fall-back either), one verification bit and
shuffled ranks (two of each after a fall-back); with a fraction of variance as the number of components, that number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import concatenate, together
from .eigen import Eigen, defect, is_below
from .iteration import Progress, silent
from .jacobi import enough_steps
from .solvers import eigh, promised_residual

ORTHOGONALITY = 1e-7
"""What verification promises of |V'V - I|_F."""

COARSE = 10
"""Fractional bits that are enough to see whether an element is far off."""


def resolution(solver: str, d: int, tol: float) -> float:
    """A variance below this part of the total is noise: what the certificate allows an eigenvalue to be off.

    |A V - V L|_F < 2 promised means that sorted eigenvalues are off by at most so much (Weyl); A itself is rounded to 40 bits,
    which moves them by d 2^-40; and the trace of A is at least |A|_F >= 1/2.
    """
    return 2 * (2 * promised_residual(solver, d, tol) + d * 2.0**-40)


@dataclass
class Spectrum:
    """Shared eigenvalues in descending order, eigenvectors as ROWS in the same order, and the public course of events."""

    values: Any
    vectors: Any
    solver: str
    iterations: int
    verified: bool
    fell_back: bool


async def decompose(
    A: Any,
    identity: Any,
    *,
    solver: str = "allpairs",
    tol: float = 1e-6,
    top: int | None = None,
    max_iterations: int | None = None,
    fixed_iterations: int | None = None,
    progress: Progress = silent,
) -> Spectrum:
    """Sorted spectrum of a shared symmetric matrix with |A|_F <= 1.

    top: how many of its pairs must be accurate (None: all). max_iterations, fixed_iterations: see `eigh`. The fall-back to cyclic
    Jacobi, if verification says no, runs until it has converged; with `fixed_iterations` a fixed number of steps, too.
    """
    limits = {"max_iterations": max_iterations, "fixed_iterations": fixed_iterations}
    found = await eigh(A, identity, solver=solver, tol=tol, top=top, progress=progress, **limits)
    bounded, (values, vectors) = await together(is_bounded(found), _sorted(found, progress))
    verified = await is_accurate(A, values, vectors, bounded, 2 * promised_residual(solver, len(A), tol), top)
    fell_back = not verified and solver != "jacobi"
    if fell_back:
        steps = None if fixed_iterations is None else enough_steps(len(A))
        found = await eigh(A, identity, solver="jacobi", tol=tol, fixed_iterations=steps, progress=progress)
        bounded, (values, vectors) = await together(is_bounded(found), _sorted(found, progress))
        verified = await is_accurate(A, values, vectors, bounded, 2 * tol, top)
    return Spectrum(values, vectors, solver, found.iterations, verified, fell_back)


async def _sorted(found: Eigen, progress: Progress) -> tuple[Any, Any]:
    """Values in descending order and the vectors as rows."""
    progress("sort", 0.97)
    if len(found.values) == 1:
        return found.values, found.vectors
    values, vectors = await found.values.within(2).sort(found.vectors.T, descending=True)
    return values, vectors


async def is_bounded(found: Eigen) -> Any:
    """A shared bit: no entry of the vectors and no value is far off, as a failed truncation leaves it: four rounds.

    Off by 2^87 or 2^88 in the ring, such an element can be invisible modulo 2^128 to products with whole numbers, as in a V with
    unit vectors. So all of them are shortened to 10 fractional bits, exactly, and the sum of their squares, d and at most 1
    where all is well, is looked at in the whole ring: one that is off adds 2^114 or more.
    """
    d = len(found.values)
    short = await concatenate([found.vectors.reshape(d * d), found.values]).truncate(40 - COARSE)
    size = await short.inner(short, frac=2 * COARSE)
    return await is_below(size, 4.0 * d + 4)


async def is_accurate(A: Any, values: Any, vectors: Any, bounded: Any, tol: float, top: int | None = None) -> bool:
    """Whether |A V - V L|_F < tol for the first `top` pairs, |V'V - I|_F < 1e-7, and the bit of `is_bounded`: one bit is opened.

    The sums of squares are looked at in the whole ring: a V or L that a failed truncation has thrown far off makes sums that
    wrap around; these look negative as often as not, but hardly small.
    """
    d = len(A)
    count = d if top is None else min(top, d)
    V = vectors[:count].T
    AV, scaled, off = await together(A.matmul(V, within=1.5), V.mul(values[:count], within=1.5), defect(vectors.T))
    residual = AV - scaled
    square, orthogonal = await together(residual.inner(residual, frac=80), off.inner(off, frac=80))
    square = square + (1 - bounded) * 2**20  # not below any tolerance
    bits = await together(is_below(square, tol**2), is_below(orthogonal, ORTHOGONALITY**2))
    both = await (bits[0] * bits[1])
    opened = await both.open(what="verification bit", why="is the decomposition as accurate as promised")
    return bool(opened)


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
