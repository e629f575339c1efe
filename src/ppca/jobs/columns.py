"""Programs for owners of columns: second moments over the rows that all owners have, in pieces, then the same analysis.

largest_exponent    the scale of all columns, opened (raw data)
fit                 uploaded and aligned rows -> components for the receiver; the model may stay shared under a name
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..algorithms.covariance import MEAN_FRAC, sums_over_owners
from ..algorithms.gram import GRID, LONGEST_PIECE, SMALL, Blocks, central, gram, rescaled, shrink
from ..protocol import Party, RingType, SecretArray, concatenate, make_type, stack
from . import workers
from .analysis import Choices, analyse
from .uploads import Uploads, forget

OFFSETS = RingType(128, MEAN_FRAC, 40)
"""What an owner subtracted from its columns, in their scale: secret, added to the means again."""

OWN = RingType(128, 2 * GRID, 40)
"""An owner's sums of products of its own columns."""

POWERS = RingType(128, 0, SMALL + 1)
"""The scale of a column beside the common one, see `algorithms.gram.rescaled`."""


async def largest_exponent(party: Party, *exponents: SecretArray) -> int:
    """Opens the largest scale exponent of all owners' columns."""
    with party.stage("survey"):
        _, largest = await sums_over_owners(exponents[0], stack(exponents))
        assert largest is not None
        opened = await largest.open(what="scale exponents", why="common power-of-two scale of the data")
    return int(opened[0])


async def fit(
    party: Party,
    *inputs: SecretArray,
    table: str,
    widths: list[int],
    rows: int,
    pieces: int | None = None,
    own: bool = False,
    executor: dict[str, Any] | None = None,
    choices: dict[str, Any],
) -> dict[str, Any]:
    """Joint PCA of the aligned rows.

    Inputs: the offsets of every owner; unless standardised, the powers of every owner; with own=True its own second moments.
    """
    owners, chosen = len(widths), Choices(**choices)
    offsets, powers, own_blocks = inputs[:owners], inputs[owners:], inputs[owners:]
    if not chosen.standardize:
        powers, own_blocks = inputs[owners : 2 * owners], inputs[2 * owners :]
    starts = (0, *np.cumsum(widths).tolist())
    blocks = Blocks(tuple(int(s) for s in starts), own=not own)
    count = min(rows, max(pieces or 1, -(-rows // LONGEST_PIECE)))
    with party.stage("second moments"), workers.submitter(executor, party.seat) as (submit, ahead):
        source = Uploads.of(party, table).pieces(rows, count)
        products, columns = await gram(party, source, count, blocks, submit, ahead)
        await forget(party, table=table)
        packed = _packed(products, blocks, own_blocks, widths)
    with party.stage("covariance"):
        centred, means = await central(packed, columns, rows)
        ratio = shrink(rows)
        # Means came out times `ratio`; the exact truncation keeps all their digits.
        wide = (means.astype(MEAN_FRAC) * round(2**40 / ratio)).retype(make_type(128, MEAN_FRAC + 40, 2))
        means = await wide.truncate(40)
        if not chosen.standardize:
            centred, means = await rescaled(centred, means, concatenate(powers))
        means = (means + concatenate(offsets)).retype(OFFSETS)
    return await analyse(party, centred, means, rows, owners, chosen, ratio)


def _packed(products: SecretArray, blocks: Blocks, own: tuple[SecretArray, ...], widths: list[int]) -> SecretArray:
    """The packed upper triangle from the computed entries and, where owners sent them, their own blocks."""
    d = blocks.width
    if blocks.own:
        return products
    i, j = blocks.entries()
    place = np.empty((d, d), np.intp)
    place[i, j] = np.arange(len(i))
    start, at = 0, len(i)
    for width in widths:
        a, b = np.triu_indices(width)
        place[start + a, start + b] = at + np.arange(len(a))
        start, at = start + width, at + len(a)
    every: SecretArray = concatenate([products, *own])
    return every[place[np.triu_indices(d)]]
