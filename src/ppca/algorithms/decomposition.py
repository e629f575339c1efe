"""From a normalised shared matrix to its sorted spectrum: solve, verify on shares, fall back if needed, sort.

Openings: the solver's convergence bits (of `topk` also its convergence levels; none of them with `fixed_iterations`, in a
fall-back either), one verification bit and shuffled ranks (more of both after a fall-back, and of ranks with every loop of
`topk`); with a fraction of variance as the number of components, that number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import concatenate, together
from . import certificate
from .eigen import Eigen, defect, identity_like, is_below
from .iteration import Progress, silent
from .jacobi import enough_steps
from .solvers import AUTO, TOPK, chosen, eigh, promised_residual
from .topk import eigh_topk

ORTHOGONALITY = 1e-7
"""What verification promises of |V'V - I|_F."""

ENOUGH_ITERATIONS = 45
"""Of all-pairs after `topk`, in jobs that open no convergence bits."""

COARSE = 10
"""Fractional bits that are enough to see whether an element is far off."""


FALLBACK = 600
"""Up to so many columns all-pairs takes over where `topk` fails: more would take hours and gigabytes."""

LOOSEST = 1e-3
"""Above that many columns, a result of `topk` is verified with the tolerance that it has reached, up to this."""


def resolution(solver: str, d: int, tol: float) -> float:
    """A variance below this part of the total is noise: what the certificate allows an eigenvalue to be off.

    |A V - V L|_F < 2 promised means that sorted eigenvalues are off by at most so much (Weyl); A itself is rounded to 40 bits,
    which moves them by d 2^-40; and the trace of A is at least |A|_F >= 1/2. Of `topk`, eigenvalues below the floor of its
    certificate may be missing.
    """
    residual = 2 * promised_residual(solver, d, tol)
    off = residual + d * 2.0**-40
    return 2 * (max(off, certificate.excluded(0, residual)) if solver == TOPK else off)


@dataclass
class Spectrum:
    """Shared eigenvalues in descending order, eigenvectors as ROWS in the same order, and the public course of events.

    solver: which was asked first; fell_back: whether another had to take over.
    residual: where `topk` has given up and no other solver took over, the tolerance that it has reached: its result was verified
    with that, in place of the one that was asked for.
    """

    values: Any
    vectors: Any
    solver: str
    iterations: int
    verified: bool
    fell_back: bool
    residual: float | None = None


async def decompose(
    A: Any,
    *,
    run: str,
    solver: str = AUTO,
    tol: float = 1e-7,
    top: int | None = None,
    max_iterations: int | None = None,
    fixed_iterations: int | None = None,
    progress: Progress = silent,
) -> Spectrum:
    """Sorted spectrum of a shared symmetric matrix with |A|_F <= 1.

    run: a public name of this run, from which `topk` draws public random numbers. top: how many of the largest pairs are wanted
    (None: all); `topk` gives only these. max_iterations, fixed_iterations: see `eigh`.
    If verification says no: up to FALLBACK columns all-pairs takes over from `topk`, and cyclic Jacobi from the others; that
    runs until it has converged; with `fixed_iterations` a fixed number of steps, too. Of more columns, what `topk` has found
    when it gives up is verified with the tolerance that it says it has reached, see `Spectrum.residual`.
    """
    name = chosen(solver, len(A), top, fixed_iterations)
    limits = {"max_iterations": max_iterations, "fixed_iterations": fixed_iterations}
    if name == TOPK:
        if top is None:
            raise ValueError("topk finds a given number of the largest pairs: say how many")
        largest = await eigh_topk(A, top, run=run, tol=tol, progress=progress, **limits)
        reached = None
        if len(A) > FALLBACK and largest.residual is not None and tol < largest.residual <= LOOSEST:
            reached = largest.residual
        allowed = 2 * (reached or tol)
        progress("verification", 0.96)
        bounded, complete = await together(
            is_bounded(largest.values, largest.vectors),
            certificate.none_is_missing(A, largest.values, largest.vectors, run, allowed),
        )
        verified = await is_accurate(A, largest.values, largest.vectors, await (bounded * complete), allowed)
        if verified or len(A) > FALLBACK:
            return Spectrum(largest.values, largest.vectors, name, largest.iterations, verified, False, reached)
        limits = {"fixed_iterations": None if fixed_iterations is None else ENOUGH_ITERATIONS}
    first = "allpairs" if name == TOPK else name
    few = top if fixed_iterations is None else None
    found = await eigh(A, identity_like(A), solver=first, tol=tol, top=few, progress=progress, **limits)
    values, vectors, verified = await _verified(A, found, 2 * promised_residual(first, len(A), tol), top, progress)
    fell_back = name == TOPK
    if not verified and first != "jacobi":
        fell_back = True
        steps = None if fixed_iterations is None else enough_steps(len(A))
        found = await eigh(A, identity_like(A), solver="jacobi", tol=tol, fixed_iterations=steps, progress=progress)
        values, vectors, verified = await _verified(A, found, 2 * tol, top, progress)
    return Spectrum(values, vectors, name, found.iterations, verified, fell_back)


async def _verified(A: Any, found: Eigen, tol: float, top: int | None, progress: Progress) -> tuple[Any, Any, bool]:
    """Values in descending order, the vectors as rows, and the verification bit.

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
    short = await concatenate([vectors.ravel(), values]).truncate(40 - COARSE)
    size = await short.inner(short, frac=2 * COARSE)
    return await is_below(size, 4.0 * len(values) + 4)


async def is_accurate(A: Any, values: Any, vectors: Any, bounded: Any, tol: float, top: int | None = None) -> bool:
    """Whether |A V - V L|_F < tol for the first `top` pairs, |V'V - I|_F < 1e-7, and the bit of `is_bounded`: one bit is opened.

    The sums of squares are looked at in the whole ring: a V or L that a failed truncation has thrown far off makes sums that
    wrap around; these look negative as often as not, but hardly small.
    """
    count = len(values) if top is None else min(top, len(values))
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
