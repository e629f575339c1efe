"""Deflated power iteration for steep spectra: whitened powers of the part of A that the converged columns of a block
leave.

Whitening keeps directions down to 2^-10 of the largest. In a steep spectrum later columns are still random, and
operations on all columns at once lose them again. So columns y that are eigenvectors already, |A y - theta y| < theta /
16, are separated: S holds them, with zeros instead of the others (which columns they are stays secret). The others, F,
get powers of their own:

    1. weights of 0 and 1; S and A S                                                        3 rounds
    2. three times Z = (I - S S') A F, times a secret power of two that scales it to size one;
       F = whitened Z. The first product exists already                                     19 + 21 + 27
    3. remove what rounding left in the columns of S, and the part along S; return S + F    3

Nothing is subtracted from A itself: (I - S S') A F = A F - (S (A S)') F takes one more round and no product of size d x
d. The 40 fractional bits of A are an absolute error of 2^-40 sqrt(d), far below every tolerance in units of A, so the
deflated A needs no more bits.
Reference: Golub and Van Loan, Matrix Computations (orthogonal iteration and deflation).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..protocol import Held, together
from .whitening import FINE_STEPS, ROUGH_STEPS, whiten_any

CONVERGED_FACTOR = 2**8
"""Columns with CONVERGED_FACTOR |A y - theta y|^2 < theta^2 count as eigenvectors.

An integer: products with it are exact.
"""

POWERS = 3
"""Number of powers of the deflated matrix."""

MIN_NORM_BITS = -27
"""log2 of the smallest norm that is scaled to one. Anything smaller is rounding."""


async def deflated_powers(A: Any, Y: Any, AY: Any, squares: Any, rest: Any) -> Any:
    """Return the columns that are eigenvectors already, and powers of the others: whitened, not yet completed and
    orthonormal.

    Y: Ritz vectors; AY: A Y; squares: of their Ritz values; rest: |A y - theta y|^2 of every column.
    """
    good = await (rest * CONVERGED_FACTOR - squares).within(2.0 * CONVERGED_FACTOR).negative()
    S, AS = (part.within(1.5) for part in await together(*(P.mul(good, within=1.5, narrow=True) for P in (Y, AY))))

    async def left(P: Any) -> Any:
        """Return (I - S S') A P."""
        product, inside = await together(
            A.matmul(P, within=4, narrow=True), AS.T.matmul(P, within=4, narrow=True, only=Held.RIGHT)
        )
        return (product - await S.matmul(inside.within(4), within=4, narrow=True)).within(4)

    F = (Y - S).within(1.5)
    for power in range(POWERS):
        Z = await left(F) if power else (AY - AS).within(1.5)
        Z = (await Z.mul(await _unit(Z), frac=40, within=2, narrow=True)).within(2)
        last = power == POWERS - 1
        F = (await whiten_any(Z, FINE_STEPS if last else ROUGH_STEPS, Held.BOTH if last else Held.RIGHT)).within(4)
    # If all columns are in S, the others are amplified rounding: remove them.
    F = (F - await F.mul(good, within=4, narrow=True)).within(4)
    inside = await S.T.matmul(F, within=4, narrow=True, only=Held.RIGHT)
    return (S + F - await S.matmul(inside.within(4), within=4, narrow=True)).within(4)


async def _unit(Z: Any) -> Any:
    """Return a power of two that brings |Z|_F to (1/2, 1]: three rounds."""
    size = await Z.inner(Z, frac=80)
    octaves = np.arange(MIN_NORM_BITS, 5)
    found = await size.within(4.0**5).lookup(4.0**octaves, 2.0 ** -np.append(octaves, 5), 5)
    return found.within(2.0**-MIN_NORM_BITS)
