"""Server programs for vertically partitioned data: owners hold different columns of the same rows.

upload    rows of one owner, as shares, appended to its table (a spool on this server), with their tags (psi)
align     which rows all owners have, from their tags (or: all rows, when owners agreed on the order)
fit       second moments over the common rows, in pieces, then the same analysis as for horizontal data
forget    drops what was uploaded for a job that will not be finished
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms.covariance import MEAN_FRAC, sums_over_owners
from ..algorithms.gram import GRID, LONGEST_PIECE, SMALL, Blocks, central, gram, rescaled, shrink
from ..protocol import InputPacket, Party, RingType, SecretArray, concatenate, make_type, stack
from ..protocol.inputs import summands
from ..protocol.opening import SERVERS, record
from ..servers.programs import packets_as_they_came
from ..servers.spool import Spool
from . import workers
from .matching import MatchError, match
from .rows import Choices, analyse

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


class Uploads:
    """What the owners of one job have uploaded to this server: their rows, their tags, and the rows they have in common."""

    def __init__(self) -> None:
        self.rows: dict[int, Spool] = {}
        self.tags: dict[int, Spool] = {}
        self.common: list[NDArray[np.integer[Any]]] | None = None

    @classmethod
    def of(cls, party: Party, table: str) -> Uploads:
        found: Uploads = party.tables.setdefault(table, cls())
        return found

    def pieces(self, rows: int, count: int) -> Iterator[NDArray[np.uint64]]:
        """The common rows of all owners side by side, in `count` pieces of nearly equal length: (2, rows, words)."""
        width = sum(spool.width for spool in self.rows.values())
        for start, stop in pairwise(rows * k // count for k in range(count + 1)):
            joint, column = np.empty((2, stop - start, width), np.uint64), 0
            for owner, spool in sorted(self.rows.items()):
                at = slice(start, stop) if self.common is None else self.common[owner][start:stop]
                spool.take(at, joint[:, :, column : column + spool.width])
                column += spool.width
            yield joint

    def close(self) -> None:
        for spool in (*self.rows.values(), *self.tags.values()):
            spool.close()
        self.common = None


@packets_as_they_came
async def upload(
    party: Party, piece: InputPacket, *, table: str, owner: int, tags: NDArray[np.uint64] | None = None
) -> int:
    """Appends rows to the table of an owner; returns how many it has. The tags are pseudonyms, seen by all servers."""
    uploads = Uploads.of(party, table)
    rows, width = piece.shape
    spool = uploads.rows.setdefault(owner, Spool(width * piece.dtype.limbs))
    spool.append(rows, summands(piece, party.row, party.column))
    if tags is not None:
        uploads.tags.setdefault(owner, Spool(2)).append(len(tags), [(False, tags)])
    return spool.rows


async def align(party: Party, *, table: str, minimum: int, tell: bool = False) -> dict[str, Any]:
    """Fixes the common rows; returns their number, which is public, or why the job cannot go on.

    tell: also return their tags, from which an owner, and nobody else, knows whose rows they are.
    A refusal is an answer, not an error: the servers stay up, and keep what they keep for others.
    """
    uploads = Uploads.of(party, table)
    counts = [uploads.rows[owner].rows for owner in sorted(uploads.rows)]
    if not uploads.tags:
        if len(set(counts)) > 1:
            return {"refused": f"aligned owners must have the same number of rows, got {counts}"}
        return {"rows": counts[0]}
    if [uploads.tags[owner].rows for owner in sorted(uploads.tags)] != counts:
        return {"refused": "an owner did not send one tag for every row"}
    tags = _Tags([spool for _, spool in sorted(uploads.tags.items())])
    try:
        uploads.common = match(tags, minimum)
    except MatchError as error:
        return {"refused": str(error)}
    common = len(uploads.common[0])
    told = {"tags": tags[0][uploads.common[0]]} if tell else {}
    for spool in uploads.tags.values():
        spool.close()
    record(party, "match pattern of pseudonyms", (common, len(tags)), SERVERS, "alignment by psi")
    return {"rows": common, **told}


class _Tags(Sequence[Any]):
    """The owners' tags, read when they are asked for."""

    def __init__(self, spools: list[Spool]) -> None:
        self._spools = spools

    def __len__(self) -> int:
        return len(self._spools)

    def __getitem__(self, owner: Any) -> Any:
        return self._spools[owner].take(slice(None))[0]


async def forget(party: Party, *, table: str) -> None:
    """Drops the uploads of a job."""
    uploads = party.tables.pop(table, None)
    if uploads is not None:
        uploads.close()


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
