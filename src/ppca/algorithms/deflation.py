"""Powers of what the first columns of a block leave of A, whitened in a secret scale of their own: for steep spectra.

Whitening keeps directions down to 2^-10 of the largest. In a steep spectrum the columns after these are random ones still, and
whatever is done to all columns at once loses them again. So the columns that are eigenvectors already, |A y - theta y| <
theta / 16, are set apart: S holds them, and zeros in place of the others (which they are is secret). The others, F, go through
powers of their own:

    1. weights of 0 and 1; S and A S                                                        3 rounds
    2. three times Z = (I - S S') A F, times a secret power of two that makes it of size one;
       F = Z whitened. The first product is there already                                   19 + 21 + 27
    3. F without what rounding has left in the places of S, and of S itself; S + F          3

Nothing is subtracted from A itself: (I - S S') A F = A F - (S (A S)') F is a round more, and no product of size d x d. The 40
fractional bits of A are an absolute error of 2^-40 sqrt(d), far below any tolerance in units of A, so what is left of A needs no
more of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..protocol import Held, together
from .whitening import FINE_STEPS, ROUGH_STEPS, whiten_any

CONVERGED_FACTOR = 2**8
"""Columns with CONVERGED_FACTOR |A y - theta y|^2 < theta^2 are eigenvectors already. A whole number: products with it are
exact."""

POWERS = 3
"""Of what is left of A."""

MIN_NORM_BITS = -27
"""log2 of the smallest size that is scaled to one: what is smaller is rounding."""


async def deflated_powers(A: Any, Y: Any, AY: Any, squares: Any, rest: Any) -> Any:
    """The columns that are eigenvectors already, and powers of the others: whitened, not yet filled and orthonormal.

    Y: Ritz vectors; AY: A Y; squares: of their Ritz values; rest: |A y - theta y|^2 of every column.
    """
    good = await (rest * CONVERGED_FACTOR - squares).within(2.0 * CONVERGED_FACTOR).negative()
    S, AS = (part.within(1.5) for part in await together(*(P.mul(good, within=1.5, narrow=True) for P in (Y, AY))))

    async def left(P: Any) -> Any:
        """(I - S S') A P."""
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
    # Where all columns are set apart, the others are rounding made large.
    F = (F - await F.mul(good, within=4, narrow=True)).within(4)
    inside = await S.T.matmul(F, within=4, narrow=True, only=Held.RIGHT)
    return (S + F - await S.matmul(inside.within(4), within=4, narrow=True)).within(4)


async def _unit(Z: Any) -> Any:
    """A power of two that makes |Z|_F lie in (1/2, 1]: three rounds."""
    size = await Z.inner(Z, frac=80)
    octaves = np.arange(MIN_NORM_BITS, 5)
    found = await size.within(4.0**5).lookup(4.0**octaves, 2.0 ** -np.append(octaves, 5), 5)
    return found.within(2.0**-MIN_NORM_BITS)
