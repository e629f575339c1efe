"""Whitening of blocks of secret columns: polynomials of the small Gram matrix, and one product with the tall block.

Variables
    Z            the block, a tall matrix of secret columns, with the singular value decomposition Z = U S W'
    G            Gram matrix Z'Z, with one row and one column per column of the block;  G2, G3, G4 are its powers
    Q            the result of whitening: Z Q = U W' for all singular values that are not lost
    c0 to c3     public coefficients of one step (`WHITENING` or `SCHULZ`)
    R            the factor of one step, c0 I + c1 G + c2 G2 + c3 G3

Method
    One step maps every singular value x to x r(x^2). The polynomial r has the coefficients c0 to c3. The steps move the
    singular values towards one. This is a polynomial iteration for the polar factor, such as Newton-Schulz (Bjorck and
    Bowie, 1971; Higham, 2008). Items separated by | run in parallel:

    round 1   G2 = G G
    round 2   G3 = G G2 | G4 = G2 G2
    round 3   Q := Q R | G := R (c0 G + c1 G2 + c2 G3 + c3 G4)

    A step takes three rounds for any number of rows. Singular values below 2^-10 of the largest stay small. Their
    directions are lost, and `complete` replaces them by public random directions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..protocol import Held, ready, symmetric, together
from .eigen import orthogonality_error, orthonormal

WHITENING = (
    (11.77685, -69.54989, 128.80198, -71.01743),
    (5.61986, -7.97794, 3.57968, -0.47902),
    (4.88080, -6.84643, 3.17561, -0.44376),
    (3.12758, -3.96479, 2.08902, -0.35392),
    (2.22532, -2.25878, 1.34146, -0.30871),
)
"""Coefficients c0 to c3 of R for each of five steps.

The five steps map every singular value in [2^-10, 1] into 1 +- 8e-4 (minimax, by linear programming). The first three
alone map it into [0.3, 1.7].
"""

ROUGH_STEPS, FINE_STEPS = 3, 5
"""ROUGH_STEPS: number of steps that keep the columns of a block linearly independent between two powers of a matrix.
FINE_STEPS: number of steps after which all singular values are in 1 +- 8e-4.
"""

SCHULZ = (2.1875, -2.1875, 1.3125, -0.3125)
"""Coefficients c0 to c3 of R for singular values near one: a singular value 1 + e becomes 1 + O(e^4)."""

GRAM_FRAC, SCALE_FRAC, FACTOR_FRAC = 60, 24, 24
"""Fractional bits: of a Gram matrix before it is scaled, of its scale c, and of Q."""

MIN_NORM_BITS, MAX_NORM_BITS = -18, 7
"""log2 of the smallest and of the largest Frobenius norm of a Gram matrix that `scale_of` scales to about one.

A smaller Gram matrix gets the scale of the smallest norm.
"""

MAX_FACTOR = 2.0**20.5
"""Bound on entries of Q; the promise on shares is 2^21.

Five steps multiply a singular value by at most 11.777 * 5.620 * 4.881 * 3.128 * 2.225 < 2^11.2, the product of the
coefficients c0. The factor `out`, the root of the scale, is at most 2^9.
"""

STEPS_PER_OCTAVE = 16
"""Number of entries per octave in the table of scales."""


MAX_SQUARED_SINGULAR_VALUE = 4.0
"""Bound on squared singular values between two steps. After the first step they are at most 1.99^2."""


async def gram(Z: Any, frac: int | None = None, within: float = 4) -> Any:
    """Return Z'Z: one round."""
    return symmetric(await Z.T.matmul_upper(Z, frac=frac, within=within, narrow=True), Z.shape[1])


async def scale_of(G: Any) -> tuple[Any, Any]:
    """Return c and sqrt(c), which scale a Gram matrix G with |G|_F < 2^MAX_NORM_BITS: three rounds.

    The product c |G|_F is
        in (0.97, 1]      if |G|_F is at least 2^-18 and less than 2^6.96;
        in (0.70, 0.73)   in the last interval of the table, up to 2^7;
        2^18 |G|_F        if |G|_F is less than 2^-18: c is then 2^18.
    """
    size = await G.inner(G, frac=80)
    octaves = np.arange(2 * MIN_NORM_BITS * STEPS_PER_OCTAVE, 2 * MAX_NORM_BITS * STEPS_PER_OCTAVE) / STEPS_PER_OCTAVE
    above = 2.0 ** np.append(octaves, octaves[-1] + 1)
    found = await size.within(4.0**MAX_NORM_BITS).classify(2.0**octaves, [above**-0.5, above**-0.25], SCALE_FRAC)
    return found[..., 0].within(2.0**-MIN_NORM_BITS), found[..., 1].within(2.0 ** (-MIN_NORM_BITS / 2))


async def whiten(Z: Any, steps: int, out: Any = None, only: Held = Held.BOTH) -> Any:
    """Return Z Q with singular values near one, for |Z|_2 <= 1: 3 steps + 2 rounds (4 for one step without `out`).

    out: a shared number by which the result is multiplied. only: the side of products on which the result is used.
    """
    Q = await gram_steps(await gram(Z), WHITENING[:steps], out)
    return await Z.matmul(Q, frac=40, within=4, narrow=True, only=only)


async def whiten_any(Z: Any, steps: int = FINE_STEPS, only: Held = Held.BOTH) -> Any:
    """Return Z Q with singular values near one, for columns of length at most 8: 3 steps + 6 rounds."""
    raw = await gram(Z, GRAM_FRAC, within=64)
    c, root = await scale_of(raw.astype(40))
    Q = await gram_steps((await raw.mul(c, frac=40, within=2)).within(2), WHITENING[:steps], root)
    return await Z.matmul(Q, frac=40, within=4, narrow=True, only=only)


async def gram_steps(G: Any, coefficients: Sequence[Sequence[float]], out: Any = None) -> Any:
    """Return out Q, where Q is the result of these steps on G: three rounds per step.

    One step without `out` takes two rounds.

    G: Gram matrix with |G|_2 <= MAX_SQUARED_SINGULAR_VALUE. coefficients: c0 to c3 of every step. out: a shared number;
    None: 1.

    The result can only be the right operand of products. The steps compute with G / MAX_SQUARED_SINGULAR_VALUE. Powers
    of it have a norm of at most one, so their truncations are local.
    """
    b = len(G)
    one = np.eye(b, dtype=np.int64)
    G = (G * (1 / MAX_SQUARED_SINGULAR_VALUE)).within(1)
    Q = None
    for number, plain in enumerate(coefficients):
        c = [factor * MAX_SQUARED_SINGULAR_VALUE**power for power, factor in enumerate(plain)]
        last = number == len(coefficients) - 1
        sides, side = (Held.RIGHT, Held.RIGHT) if last else (Held.BOTH, Held.LEFT)
        G2 = symmetric(await G.matmul_upper(G, within=2, narrow=True, only=sides), b)
        found = await together(
            G.matmul_upper(G2, within=2, narrow=True, only=sides),
            ready(None) if last else G2.matmul_upper(G2, within=2, narrow=True, only=Held.RIGHT),
        )
        G3 = symmetric(found[0], b)
        R = (G * c[1] + G2 * c[2] + G3 * c[3] + one * c[0]).within(16)
        if Q is not None:
            turned = Q.matmul(R, frac=FACTOR_FRAC, within=MAX_FACTOR, narrow=True, only=side)
        elif out is not None:
            turned = R.mul(out, frac=FACTOR_FRAC, within=MAX_FACTOR, narrow=True, only=side)
        else:
            turned = ready(R.astype(FACTOR_FRAC))
        if last:
            return await turned
        new = G * c[0] + G2 * c[1] + G3 * c[2] + symmetric(found[1], b) * c[3]
        Q, upper = await together(turned, R.matmul_upper(new.within(16), within=2, narrow=True))
        G = symmetric(upper, b).within(2)
    raise ValueError("no whitening steps: at least one is needed.")


async def complete(Y: Any, fill: NDArray[np.float64], steps: int = 2) -> Any:
    """Replace lost directions of a whitened block by public random ones, then make it orthonormal: 7 + 4 steps rounds.

    Y: the whitened block. fill: public random columns. steps: number of steps with `SCHULZ`. For G = Y'Y, the matrix
    (I - G)^4 is near the projection on the lost directions.
    """
    D = -await orthogonality_error(Y)
    for _ in range(2):
        D = symmetric(await D.matmul_upper(D, within=4, narrow=True), Y.shape[1])
    M = await (Y.T @ fill).within(4).matmul(D, within=4, narrow=True, only=Held.RIGHT)
    Y = (Y + (D.T @ fill.T).T - await Y.matmul(M, within=4, narrow=True)).within(4)
    for _ in range(steps):
        Y = (await Y.matmul(await gram_steps(await gram(Y), (SCHULZ,)), frac=40, within=4, narrow=True)).within(4)
    return (await orthonormal(Y)).within(2)


def gaussian(run: str, purpose: str, shape: tuple[int, int], deviation: float) -> NDArray[np.float64]:
    """Return public normal random numbers, rounded to multiples of 2^-24.

    run, purpose: texts that determine the numbers. All four servers get the same numbers; every run gets others.
    """
    seed = int.from_bytes(hashlib.sha256(f"ppca {purpose} of run {run}".encode()).digest(), "big")
    values = np.random.default_rng(seed).standard_normal(shape) * deviation
    return np.asarray(np.round(np.ldexp(values, 24)) * 2.0**-24, np.float64)
