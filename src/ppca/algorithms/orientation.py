"""Signs of components on shares: the entry of largest magnitude of each becomes positive (the first one of equals).

This is scikit-learn's convention. A receiver of whole components could apply it itself; one that gets only some entries
of each cannot. So that all receivers agree, signs are computed before anything is revealed, and the position of the
largest entry stays secret.

    negative = [v < 0], magnitude = |v|                                     3 rounds
    of two neighbours the larger magnitude is kept, with its sign           3 rounds for every halving of the d entries
    v times the sign that remains                                           1 round

Comparisons take 2 rounds for each 65,536 of them; there are about 2 k d, of 43 bits.
"""

from __future__ import annotations

from typing import Any

from ..protocol import concatenate, together

MAX_ENTRY = 1.5
"""Promised bound on entries of vectors of norm 1, with a margin."""


async def oriented(vectors: Any) -> Any:
    """Return the rows of a (k, d) array times 1 or -1: 4 + 3 ceil(log2 d) rounds for 2^16 entries, no opening."""
    entries = vectors.within(MAX_ENTRY)
    negative = await entries.negative()
    flipped = await (negative * entries)
    magnitude = (entries - 2 * flipped).retype(entries.dtype).T
    sign = negative.T
    while len(sign) > 1:
        even = len(sign) // 2 * 2
        first, second = slice(0, even, 2), slice(1, even, 2)
        larger = await (magnitude[first] < magnitude[second])
        magnitude, sign = await together(_chosen(larger, magnitude, even), _chosen(larger, sign, even))
    turned = await (sign * vectors.T)
    return (vectors - 2 * turned.T).retype(vectors.dtype)


async def _chosen(second: Any, values: Any, even: int) -> Any:
    """Return one of each two neighbours, selected by the bits, and an entry without a neighbour."""
    kept = await second.where(values[1:even:2], values[0:even:2])
    return concatenate([kept.retype(values.dtype), values[even:]])
