"""Arrange an owner's rows in the order that the alignment of the job requires, before they are sent.

aligned     all owners assert the same rows in the same order; keyed digests of their ids must agree
namespace   ids are 0 .. n-1; row i is id i, and ids that an owner does not have are rows of zeros
psi         rows are in the order of their tags (keyed pseudonyms of ids); servers keep rows whose tag every owner has
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...jobs.matching import positions_in
from ...jobs.spec import ALIGNED, NAMESPACE, Align
from ..tables.integers import Rest
from ..tables.records import Records
from .ids import IdError, arrow_ids, integer_ids, normalise_ids
from .tags import BLOCK, Words, make_tags, order_of


@dataclass
class Arranged:
    """An owner's rows in the order in which it sends them.

    order: position of each row in the owner's table (None: row i is id i). tags: pseudonyms of the rows (psi).
    rest: rounding errors of values that are integers beyond 2^53 (None: none).
    """

    table: Records
    values: NDArray[np.float64]
    order: NDArray[np.intp] | None
    tags: Words | None
    rest: Rest | None = None

    def ids_at(self, rows: NDArray[np.intp]) -> Any:
        """The owner's own ids (as it wrote them) of rows that were sent; None without ids."""
        if self.order is None:
            return rows
        if self.table.ids is None:
            return None
        return arrow_ids(self.table.ids, self.table.label).take(self.order[rows]).to_numpy(zero_copy_only=False)

    def ids_of(self, rows: int, tags: Any) -> Any:
        """The owner's own ids of the rows of a result, from the tags that the servers send.

        Only an owner can tell from tags whose rows they are: it made a tag of each of its ids.
        """
        return self.ids_at(np.arange(rows) if self.tags is None else positions_in(self.tags, np.asarray(tags)))


def arrange(tables: Sequence[Records], align: Align) -> list[Arranged]:
    """Arrange the rows of all owners of a local run, with a new key."""
    key = secrets.token_bytes(BLOCK)
    ready = [arrange_rows(table, align, key) for table in tables]
    if align.alignment == ALIGNED:
        check_order(tables, [order_digest(table, align, key) for table in tables])
    return ready


def arrange_rows(table: Records, align: Align, key: bytes) -> Arranged:
    """Arrange the rows of one owner, from its own table and the owners' key."""
    if align.alignment == ALIGNED:
        return Arranged(table, table.values, np.arange(len(table.values)), None, table.rest)
    if table.ids is None:
        raise IdError(f"{table.label}: alignment {align.alignment!r} needs an id column; name it, or use 'aligned'")
    if align.alignment == NAMESPACE:
        return _placed(table, int(align.namespace or 0))
    tags = _tags(table, align, key)
    order = order_of(tags, table.label)
    rest = None if table.rest is None else table.rest[order]
    return Arranged(table, table.values[order], order, tags[order], rest)


def order_digest(table: Records, align: Align, key: bytes) -> bytes | None:
    """Return a keyed digest of an owner's ids in order, None without ids. Equal digests mean equal lists."""
    if table.ids is None:
        return None
    tags = _tags(table, align, key)
    order_of(tags, table.label)  # refuses duplicates
    return hashlib.blake2b(tags.tobytes(), key=key, digest_size=32).digest()


def check_order(tables: Sequence[Records], digests: Sequence[bytes | None]) -> None:
    """Refuse aligned tables with different numbers of rows or, if they have ids, different digests."""
    counts = {table.label: len(table.values) for table in tables}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{label}: {count:,}" for label, count in counts.items())
        raise IdError(
            f"aligned tables must have the same rows, but their numbers differ ({listed}); join by id with 'psi'"
        )
    known = [(table.label, digest) for table, digest in zip(tables, digests, strict=True) if digest is not None]
    for label, digest in known[1:]:
        if digest != known[0][1]:
            raise IdError(f"{known[0][0]} and {label} list different ids or another order; join by id with 'psi'")


def _tags(table: Records, align: Align, key: bytes) -> Words:
    ids = normalise_ids(table.ids, label=table.label, fold_case=align.fold_case)
    if len(ids) != len(table.values):
        raise IdError(f"{table.label}: {len(ids):,} ids for {len(table.values):,} rows")
    return make_tags(ids, key)


def _placed(table: Records, namespace: int) -> Arranged:
    """Place id i in row i; ids that this owner does not have become rows of zeros."""
    ids = integer_ids(table.ids, label=table.label)
    if len(ids) != len(table.values):
        raise IdError(f"{table.label}: {len(ids):,} ids for {len(table.values):,} rows")
    if ids.min() < 0 or ids.max() >= namespace:
        raise IdError(f"{table.label}: ids run from {ids.min()} to {ids.max()}, outside 0..{namespace - 1}")
    twice = len(ids) - len(np.unique(ids))
    if twice:
        raise IdError(f"{table.label}: {twice} ids occur more than once; keep one row per id")
    placed, rest = np.zeros((namespace, table.values.shape[1])), None
    placed[ids] = table.values
    if table.rest is not None:
        rest = np.zeros(placed.shape, np.int16)
        rest[ids] = table.rest
    return Arranged(table, placed, None, None, rest)
