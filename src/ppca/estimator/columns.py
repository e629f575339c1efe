"""Server programs for vertically partitioned data: owners hold different columns of the same rows.

upload    rows of one owner, as shares, appended to its table (a spool on this server)
align     which rows all owners have, from their tags (or: all rows, when owners agreed on the order)
fit       second moments over the common rows, in pieces, then the same analysis as for horizontal data
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms.covariance import MEAN_FRAC, sums_over_owners
from ..algorithms.gram import GRID, LONGEST_PIECE, Blocks, central, gram, shrink
from ..align.matching import match
from ..cluster.spool import Spool
from ..protocol import Party, RingType, SecretArray, concatenate, make_type, stack, together
from . import workers
from .programs import Choices, analyse

OFFSETS = RingType(128, MEAN_FRAC, 40)
"""What an owner subtracted from its columns, in their scale: secret, added to the means again."""

OWN = RingType(128, 2 * GRID, 40)
"""An owner's sums of products of its own columns."""


async def largest_exponent(party: Party, *exponents: SecretArray) -> int:
    """Opens the largest scale exponent of all owners' columns."""
    with party.stage("survey"):
        _, largest = await sums_over_owners(exponents[0], stack(exponents))
        assert largest is not None
        opened = await largest.open(what="scale exponents", why="common power-of-two scale of the data")
    return int(opened[0])


async def upload(party: Party, piece: SecretArray, *, table: str, owner: int) -> int:
    """Appends rows to the table of an owner; returns how many it has."""
    name = f"{table}/{owner}"
    spool: Spool = party.tables.setdefault(name, Spool(piece.shape[1]))
    spool.append(piece.data[..., 0])
    return spool.rows


async def align(party: Party, *, table: str, owners: int, tags: list[NDArray[np.uint64]] | None, minimum: int) -> int:
    """Fixes the common rows; returns their number, which is public. The tags are pseudonyms, seen by all servers."""
    spools = [party.tables[f"{table}/{owner}"] for owner in range(owners)]
    if tags is None:
        counts = {spool.rows for spool in spools}
        if len(counts) > 1:
            raise ValueError(f"aligned owners must have the same number of rows, got {sorted(counts)}")
        party.tables[f"{table}/rows"] = None
        return int(spools[0].rows)
    for spool, part in zip(spools, tags, strict=True):
        if len(part) != spool.rows:
            raise ValueError(f"an owner sent {len(part)} tags for {spool.rows} rows")
    rows = match(tags, minimum)
    party.tables[f"{table}/rows"] = rows
    return len(rows[0])


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
    """Joint PCA of the aligned rows. Inputs: the offsets of every owner; with own=True also its own second moments."""
    owners = len(widths)
    starts = (0, *np.cumsum(widths).tolist())
    blocks = Blocks(tuple(int(s) for s in starts), own=not own)
    count = max(pieces or 1, -(-rows // LONGEST_PIECE))
    with party.stage("second moments"), workers.submitter(executor) as (submit, ahead):
        source = _pieces(party, table, owners, rows, count)
        products, columns = await gram(party, source, count, blocks, submit, ahead)
        for owner in range(owners):
            party.tables.pop(f"{table}/{owner}", None)
        packed = _packed(products, blocks, inputs[owners:], widths)
    with party.stage("covariance"):
        centred, means = await central(packed, columns, rows)
        ratio = shrink(rows)
        # Means came out times `ratio`; the exact truncation keeps all their digits.
        wide = (means.astype(MEAN_FRAC) * round(2**40 / ratio)).retype(make_type(128, MEAN_FRAC + 40, 2))
        offset, (true_means,) = concatenate(inputs[:owners]), await together(wide.truncate(40))
        means = (true_means + offset).retype(OFFSETS)
    return await analyse(party, centred, means, rows, owners, Choices(**choices), ratio)


def _pieces(party: Party, table: str, owners: int, rows: int, count: int) -> Iterator[NDArray[np.uint64]]:
    """The common rows of all owners side by side, in `count` pieces of nearly equal length."""
    common = party.tables.pop(f"{table}/rows")
    spools: list[Spool] = [party.tables[f"{table}/{owner}"] for owner in range(owners)]
    cuts = [rows * k // count for k in range(count + 1)]
    for start, stop in pairwise(cuts):
        here = [slice(start, stop) if common is None else common[owner][start:stop] for owner in range(owners)]
        yield np.concatenate([spool.take(at) for spool, at in zip(spools, here, strict=True)], axis=2)


def _packed(products: SecretArray, blocks: Blocks, own: tuple[SecretArray, ...], widths: list[int]) -> SecretArray:
    """The packed upper triangle from the computed entries and, where owners sent them, their own blocks."""
    d = blocks.width
    i, j = blocks.entries()
    upper = i <= j
    place = np.full((d, d), -1, np.intp)
    place[i[upper], j[upper]] = np.flatnonzero(upper)
    source = products
    if own:
        source = concatenate([products, *own])
        start, at = 0, len(i)
        for width in widths:
            a, b = np.triu_indices(width)
            place[start + a, start + b] = at + np.arange(len(a))
            start, at = start + width, at + len(a)
    return source[place[np.triu_indices(d)]]
