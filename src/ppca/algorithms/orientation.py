"""Signs of components on shares: the entry of largest magnitude of every one becomes positive, the first of equal ones.

That is scikit-learn's convention, and what a receiver of whole components makes of them. Who gets only some entries of each
cannot: so that all agree, signs are found before anything is revealed, and nobody is told where the largest entry is.

    negative = [v < 0], magnitude = |v|                            3 rounds
    of neighbours the larger magnitude stays, with its sign        3 rounds for every halving of the d entries
    v times the sign that is left                                  1 round

Comparisons take 2 rounds for each 65,536 of them; there are about 2 k d, of 43 bits.
"""

from __future__ import annotations

from typing import Any

from ..protocol import concatenate, together

MAX_ENTRY = 1.5
"""Above every entry of a vector of norm 1."""


async def oriented(vectors: Any) -> Any:
    """The same vectors, the rows of a (k, d) array, times 1 or -1: 4 + 3 ceil(log2 d) rounds for 2^16 entries, no opening."""
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
    """Of every two neighbours the one that the bits say, and what has no neighbour."""
    kept = await second.where(values[1:even:2], values[0:even:2])
    return concatenate([kept.retype(values.dtype), values[even:]])
