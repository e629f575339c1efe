"""The K largest eigenpairs of a shared positive semi-definite matrix: block power iteration with a Chebyshev filter.

The method is subspace iteration with Rayleigh-Ritz steps and a Chebyshev filter (Golub and Van Loan, Matrix
Computations, section 8.2; Saad, Numerical Methods for Large Eigenvalue Problems). It suits thousands of columns of
which few components are needed: only a block Y of b columns, slightly more than K, is sent: d b elements per product
instead of the d^2 of all-pairs. What differs from the textbook: orthonormalisation is by whitening (`whitening.py`),
and the Ritz step is an all-pairs Jacobi.

    start   Y = A (A Omega), whitened; Omega is public, so A Omega is free;
            five times Y := A Y, whitened                                                                93 rounds
            lost directions are replaced by public ones (`complete`)                                     15
    ritz    H = Y'AY; all-pairs on H (b x b) until the rows of its K largest have converged;
            Y := Y V, sorted                                              19 + 9 per iteration; 23 + 9 after a filter
    test    |A Y - Y theta| over the K, in factors of four of the tolerance: one small number is opened  7
            0: done. The loop also ends if two late loops together gain less than a factor of four,
            or after eight loops
    filter  Y := T_m(2 A / mu - 1) Y, mu about the smallest Ritz value, every column scaled by its own
            growth                                                                                       3 m + 2
            whitened, completed, made orthonormal again; continue with ritz                              36
    restart once, if the test shows that the K-th Ritz value is below 2^-8 of the first: powers of the
            part of A that the converged columns leave (`deflation.py`), completed, made orthonormal
            again; continue with ritz                                                                    92

Values are accurate to tol^2 / gap, vectors to tol / gap, as the test guarantees. It does not show that these are the
LARGEST eigenvalues; `certificate.py` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..protocol import Held, ready, stack, symmetric, together
from .allpairs import eigh_allpairs
from .deflation import deflated_powers
from .eigen import identity_like, orthogonality_error
from .iteration import Progress, silent
from .whitening import FINE_STEPS, ROUGH_STEPS, complete, gaussian, gram, scale_of, whiten, whiten_any

POWERS = 5
"""Number of whitened powers before the first Ritz step."""

DEGREES = (3, 6, 12, 24, 24, 24, 24, 24)
"""Degrees of the filters, loop by loop: low while Ritz values are inaccurate, high for the flat spectra that need later
loops.
"""

WARM_ITERATIONS = 6
"""Iteration at which the schedule of all-pairs starts after a filter: H is nearly diagonal."""

RITZ_TOLERANCE, RITZ_MARGIN = 0.3, 0.25
"""Tolerance of all-pairs on H relative to `tol`, and its `margin` for the rows of the K largest."""

MAX_ORTHOGONALITY_ERROR = 3e-8
"""Bound on |Y'Y - I|_F that the test requires."""

MAX_LEVEL = 12
"""Maximum convergence level: the residual is reported in factors of four of the tolerance."""

MU_FLOOR = 2.0**-21
"""Added to mu, relative to the largest Ritz value: the part of a column along stronger ones grows by its reciprocal."""

MAX_GROWTH = 64.0
"""Promised bound on columns of the filter.

Columns that are not yet Ritz vectors grow more than their Ritz value implies.
"""

SHRINK_TABLE = (4.0 ** np.arange(1, 9), 2.0 ** -np.r_[0, np.arange(3, 11)])
"""Squares of lengths, and the factor for a column of such a length: above length 2 it becomes less than 1/2 and may
grow again.
"""

WHITENING_RANGE = 2**8
"""Ritz values this factor below the largest are out of reach of whitened powers, which keep 2^-10: their columns are
still random.
"""

COMPLETION_STEPS, CAREFUL_COMPLETION_STEPS = 2, 3
"""Steps that make a completed block orthonormal.

For small d many random columns are initially far from it: one more step.
"""

MU_OCTAVES = 24
"""Number of octaves below one in which 1 / mu is looked up."""

MAX_RATIO_BITS = 22.0
"""log2 of the maximum of 2 theta / mu - 1."""


def block_size(k: int, d: int) -> int:
    """Return the number of columns of the block: more than K, so that the first K converge fast."""
    return min(d, k + min(k + 12, 30))


@dataclass
class TopK:
    """The K largest pairs, descending: shared values, vectors as ROWS, and the number of loops.

    residual: the smallest bound on |A V - V L|_F that the last test has shown; None if it was not tested or above all
    bounds. following: the next Ritz value of the block; None if the block has K columns.
    """

    values: Any
    vectors: Any
    iterations: int
    converged: bool | None
    residual: float | None
    following: Any = None


@dataclass
class _Block:
    """Orthonormal columns Y, A Y, and their Ritz values theta in descending order.

    With 80 fractional bits: squares: theta^2. floor: (MU_FLOOR theta_1)^2. rest: |A y - theta y|^2 of every column.
    skew: |Y'Y - I|_F^2 of the first K.
    """

    Y: Any
    AY: Any
    theta: Any
    squares: Any
    floor: Any
    rest: Any
    skew: Any


class _Filter(NamedTuple):
    """Coefficients of the scaled recurrence, one per column: P_(j+1) = a A P_j - b P_j - c P_(j-1)."""

    a: Any
    b: Any
    c: Any


async def eigh_topk(
    A: Any,
    k: int,
    *,
    run: str,
    tol: float = 1e-6,
    max_iterations: int | None = None,
    fixed_iterations: int | None = None,
    progress: Progress = silent,
) -> TopK:
    """Compute the K largest eigenpairs of A, positive semi-definite with |A|_F <= 1 and 40 fractional bits.

    run: a public name from which the public random columns are drawn. tol: bound on the Frobenius norm of A Y - Y theta
    over the K. max_iterations: maximum number of loops, never more than eight. fixed_iterations: run this number of
    loops (at most eight) and open nothing.
    """
    d = len(A)
    A = A.within(1)
    shape = (d, block_size(k, d))
    fill = gaussian(run, "filling", shape, d**-0.5)
    most = min(n for n in (fixed_iterations, max_iterations, len(DEGREES)) if n is not None)
    progress("eigendecomposition, start", 0.0)
    Y = await complete(await _start(A, gaussian(run, "start", shape, 0.25)), fill)
    levels: list[int] = []
    restarted = False
    while True:
        loops = len(levels)
        progress(f"eigendecomposition, loop {loops}", min(0.95, (loops + 1) / 4))
        block = await _ritz(A, Y, k, tol, loops, fixed_iterations is not None)
        (level, below), scaling = await together(
            ready((MAX_LEVEL, 0)) if fixed_iterations is not None else _level(block, k, tol, restarted), _scaling(block)
        )
        levels.append(level)
        if level == 0 or loops == most or (fixed_iterations is None and has_stalled(levels[restarted:])):
            break
        if below == 2:
            restarted = True
            Y = await deflated_powers(A, block.Y, block.AY, block.squares, block.rest)
        else:
            if below:  # columns of the block are still random: each contains about b / d of the omitted part
                scaling = await _scaling(block, -(-d // shape[1]))
            degree = DEGREES[min(loops - restarted, len(DEGREES) - 1)]
            Y = (await whiten_any(await _filtered(A, block, scaling, degree))).within(2)
        Y = await complete(Y, fill, CAREFUL_COMPLETION_STEPS if below or restarted else COMPLETION_STEPS)
    converged = None if fixed_iterations is not None else level == 0
    residual = tol * 4.0**level if level < MAX_LEVEL else None
    following = block.theta[k] if shape[1] > k else None
    return TopK(block.theta[:k], block.Y[:, :k].T, loops, converged, residual, following)


def has_stalled(levels: list[int]) -> bool:
    """Return whether two loops of a high degree together gained less than a factor of four."""
    return len(levels) > 5 and levels[-1] >= levels[-3]


async def _start(A: Any, omega: Any) -> Any:
    """Return whitened powers of A on public random columns: 93 rounds."""
    Z = (await A.matmul((A @ omega).within(4), within=2, narrow=True)).within(2)
    Y = (await whiten_any(Z, only=Held.RIGHT)).within(2)
    Z = await A.matmul(Y, within=2, narrow=True)
    _, root = await scale_of(await gram(Z))
    half = root * 0.5  # |A Y half|_2 <= 1, also if three steps leave singular values up to 2
    Z = (await Z.mul(half, frac=40, within=2, narrow=True)).within(2)
    for _ in range(POWERS - 1):
        P = (await whiten(Z, ROUGH_STEPS, half, only=Held.RIGHT)).within(2.0**9)
        Z = (await A.matmul(P, frac=40, within=2, narrow=True)).within(2)
    return (await whiten(Z, FINE_STEPS)).within(2)


async def _ritz(A: Any, Y: Any, k: int, tol: float, loops: int, silently: bool) -> _Block:
    """Return Ritz vectors in descending order of their values, and their accuracy: 10 rounds and those of all-pairs on
    H = Y'AY.
    """
    b = Y.shape[1]
    AY = (await A.matmul(Y, within=1.5, narrow=True)).within(1.5)
    H = symmetric(await Y.T.matmul_upper(AY, within=1.5), b)
    enough = (16 if loops else 30) if silently else None
    warm = WARM_ITERATIONS if loops else 0
    found = await eigh_allpairs(
        H, identity_like(H), tol=RITZ_TOLERANCE * tol, top=k, margin=RITZ_MARGIN, warm=warm, fixed_iterations=enough
    )
    theta, rows = await found.values.within(2).sort(found.vectors.T, descending=True)
    V = rows.T.within(1.5)
    Y, AY = await together(Y.matmul(V, within=1.5, narrow=True), AY.matmul(V, within=1.5, narrow=True))
    Y, AY, theta = Y.within(1.5), AY.within(1.5), theta.within(1.5)
    flattest = theta[0] * MU_FLOOR
    scaled, squares, floor, off = await together(
        Y.mul(theta, within=1.5, narrow=True),
        theta.mul(theta, frac=80),
        flattest.mul(flattest, frac=80),
        orthogonality_error(Y[:, :k]),
    )
    left = AY - scaled
    rest, skew = await together(left.inner(left, axis=0, frac=80), off.inner(off, frac=80))
    return _Block(Y, AY, theta, squares, floor, rest, skew)


async def _level(block: _Block, k: int, tol: float, restarted: bool) -> tuple[int, int]:
    """Open the convergence level. Return it, and how many of the K-th and the last Ritz value are below theta_1 /
    WHITENING_RANGE.

    The second number is 0 after a restart. Four rounds. The level is 0 if |A Y - Y theta|_F < tol over the K, 1 if < 4
    tol, ...; MAX_LEVEL if Y is not orthonormal. The opened number is level + (MAX_LEVEL + 1) (skewed + 2 below), with
    `below` only if the level is not 0.
    """
    limits, counts = (tol * 4.0 ** np.arange(MAX_LEVEL)) ** 2, np.arange(MAX_LEVEL + 1)
    found, skewed, small = await together(
        block.rest[:k].sum().within(8).classify(limits, [counts, np.minimum(counts, 1)], 0),
        block.skew.within(k * k + 1.0).lookup([MAX_ORTHOGONALITY_ERROR**2], [0, 1], 0),
        ready(None)
        if restarted
        else (block.squares[[k - 1, -1]] * WHITENING_RANGE**2 - block.squares[0])
        .within(2.0 * WHITENING_RANGE**2)
        .negative(),
    )
    told = found[..., 0] + skewed * (MAX_LEVEL + 1)
    if small is not None:
        told = told + await (small.sum() * found[..., 1]) * (2 * (MAX_LEVEL + 1))
    opened = await told.open(what="convergence level", why="stop the iteration, choose how to go on, or give up")
    below, rest = divmod(int(opened), 2 * (MAX_LEVEL + 1))
    return min(rest, MAX_LEVEL), below


async def _scaling(block: _Block, weight: int = 1) -> _Filter:
    """Return the recurrence of T_j(2 A / mu - 1) with every column divided by g^-j, its growth at its own Ritz value:
    seven rounds.

    mu^2 = theta_b^2 + a small part of theta_1^2 + weight |A Y - Y theta|_F^2: while the block still has directions that
    are not eigenvectors, the last Ritz value is less than the largest omitted eigenvalue. e = 1 / mu, x = 2 theta e - 1
    and g = 1 / (x + sqrt(x^2 - 1)); any other g would be correct, too.
    """
    squares, theta = block.squares, block.theta
    mu2 = squares[-1] + block.floor + block.rest.sum() * weight
    octaves = np.arange(-32 * MU_OCTAVES, 32) / 16
    e = await mu2.within(4).lookup(2.0**octaves, 2.0 ** (-np.append(-2 * MU_OCTAVES, octaves) / 2), 24)
    e = e.within(2.0**MU_OCTAVES)
    x = (await theta.mul(e, within=2.0**MAX_RATIO_BITS)) * 2 - 1
    t = np.arange(1, 32 * 16) / 32  # x is below cosh(16)
    g = np.exp(-np.append(0, t))
    found = await x.within(2.0**MAX_RATIO_BITS * 2).classify(np.cosh(t), [2 * g, g * g], 40)
    b, c = found[..., 0].within(2), found[..., 1].within(1)
    a = await b.mul(e, frac=40, within=2.0**MU_OCTAVES)
    return _Filter((a * 2).within(2.0 ** (MU_OCTAVES + 1)), b, c)


async def _filtered(A: Any, block: _Block, by: _Filter, degree: int) -> Any:
    """Apply the filter of this degree to every column, divided by MAX_GROWTH: 3 degree rounds.

        r1   Z = A P | M = Y'P, its part along stronger columns | |P|^2
        r2   Z - AY M | P - Y M
        r3   a Z - b P - c P_before, the next P;  r2-3: a factor for the next but one, from |P|^2

    Columns are sorted. The part of a column along stronger ones (rounding, and its amplification) is removed in each
    step. Columns that grow nevertheless, because they are not yet Ritz vectors, are divided by powers of two.
    """
    Y, AY = block.Y, block.AY
    stronger = np.triu(np.ones((Y.shape[1], Y.shape[1]), np.int64), 1)

    async def combined(factors: list[Any], columns: list[Any]) -> Any:
        row = [factor.reshape(1, len(factor)) for factor in factors]
        return (await stack(columns).inner(stack(row), axis=0, frac=40, within=MAX_GROWTH, narrow=True)).within(
            MAX_GROWTH
        )

    async def corrected(Z: Any, now: Any, M: Any) -> tuple[Any, Any]:
        taken = await together(*(part.matmul(M, within=MAX_GROWTH, narrow=True, only=Held.LEFT) for part in (AY, Y)))
        return Z - taken[0], now - taken[1]

    async def following(Z: Any, now: Any, M: Any, before: Any, factors: Any) -> tuple[Any, Any]:
        Z, now = await corrected(Z, now, M)
        return now, await combined(list(factors), [Z, -now, -before])

    before, now = Y, await combined([by.a, by.b], [AY * 0.5, Y * -0.5])
    factors, last, shrink = [by.a, by.b, by.c], by.c, None
    for _ in range(1, degree):
        # P_before was not divided by the factor of P, so c takes both factors.
        scaled = ready(None) if shrink is None else stack([*by, last]).mul(shrink, within=2.0**MU_OCTAVES)
        Z, M, lengths, new = await together(
            A.matmul(now, within=MAX_GROWTH, narrow=True, only=Held.LEFT),
            Y.T.matmul(now, within=MAX_GROWTH, narrow=True, only=Held.RIGHT),
            now.inner(now, axis=0, within=MAX_GROWTH**3),
            scaled,
        )
        if new is not None:
            factors, last = [new[0], new[1], new[3]], new[2]
        step = following(Z, now, (M * stronger).within(MAX_GROWTH), before, factors)
        (before, now), shrink = await together(step, lengths.within(MAX_GROWTH**3).lookup(*SHRINK_TABLE, 20))
    M = (await Y.T.matmul(now, within=MAX_GROWTH, narrow=True, only=Held.RIGHT)) * stronger
    return ((now - await Y.matmul(M.within(MAX_GROWTH), within=MAX_GROWTH, narrow=True)) * (1 / MAX_GROWTH)).within(1)
