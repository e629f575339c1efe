"""The client's side of a vertical fit: alignment, scaling and upload of every owner's columns."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms.gram import GRID, ROWS
from ..align.agreement import agree
from ..align.ids import IdError, Ids, normalise_ids
from ..align.matching import MINIMUM
from ..align.tags import make_tags, order_of
from ..cluster import LocalCluster
from ..native import ring
from ..owner.columns import ColumnTable
from ..protocol import InputPacket, share, share_ring
from . import columns, encoding

ALIGNMENTS = ("psi", "aligned", "namespace")
UPLOAD_ROWS = 1 << 15

Progress = Callable[[str, float | None, int], None]


@dataclass
class Prepared:
    """An owner's columns, ready to be shared: rows in the order that the alignment fixes, scaled to |x| <= 1."""

    label: str
    names: list[str] | None
    values: NDArray[np.float64]
    offset: NDArray[np.float64]
    largest: NDArray[np.float64]
    tags: NDArray[np.uint64] | None


@dataclass
class Alignment:
    """How rows of different owners are brought together. `namespace`: the number of ids, for that way only."""

    way: str = "psi"
    namespace: int | None = None
    minimum: int = MINIMUM
    fold_case: bool = False

    def __post_init__(self) -> None:
        if self.way not in ALIGNMENTS:
            raise ValueError(f"alignment={self.way!r} is unknown; choose from {', '.join(ALIGNMENTS)}")
        if self.way == "namespace" and (self.namespace is None or self.namespace < 2):
            raise ValueError("alignment='namespace' needs namespace=..., the number of ids (they run from 0)")

    @property
    def owners_know_rows(self) -> bool:
        """Whether an owner knows which rows are analysed, and can compute its own block itself."""
        return self.way != "psi"


def prepare(tables: Sequence[ColumnTable], alignment: Alignment) -> list[Prepared]:
    """Every owner's rows in the common order (aligned, namespace) or in the order of its tags (psi)."""
    names = [f"owner {i}" for i in range(len(tables))]
    keys = agree(secrets.token_hex(8), names)
    if alignment.way == "aligned":
        _check_order(tables, keys[names[0]])
    ready = []
    for name, table in zip(names, tables, strict=True):
        values, tags = table.values, None
        if alignment.way == "psi":
            tags, order = _tagged(table, keys[name], alignment.fold_case)
            values, tags = values[order], tags[order]
        elif alignment.way == "namespace":
            values = _placed(table, int(alignment.namespace or 0))
        offset = values.mean(axis=0)
        constant = values.max(axis=0) == values.min(axis=0)
        offset[constant] = values[0, constant]
        ready.append(
            Prepared(table.label, table.names, values - offset, offset, np.abs(values - offset).max(axis=0), tags)
        )
    return ready


def _ids(table: ColumnTable, fold_case: bool) -> Ids:
    if table.ids is None:
        raise IdError(f"{table.label}: this alignment needs an id column; name it, or use alignment='aligned'")
    return normalise_ids(table.ids, label=table.label, fold_case=fold_case)


def _tagged(table: ColumnTable, key: bytes, fold_case: bool) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
    tags = make_tags(_ids(table, fold_case), key)
    return tags, order_of(tags, table.label)


def _check_order(tables: Sequence[ColumnTable], key: bytes) -> None:
    """Owners assert the same rows in the same order: row counts and, where there are ids, keyed digests must agree."""
    counts = {table.label: len(table.values) for table in tables}
    if len(set(counts.values())) > 1:
        raise IdError(f"aligned tables must have the same rows, but have {counts}; use alignment='psi' to join by id")
    digests = {}
    for table in tables:
        if table.ids is not None:
            ids = normalise_ids(table.ids, label=table.label)
            digests[table.label] = hashlib.blake2b(ids.offsets.tobytes() + ids.data.tobytes(), key=key).digest()
    if len(set(digests.values())) > 1:
        first = next(iter(digests))
        other = next(label for label, digest in digests.items() if digest != digests[first])
        raise IdError(f"{first} and {other} list different ids or another order; use alignment='psi' to join by id")


def _placed(table: ColumnTable, namespace: int) -> NDArray[np.float64]:
    """Row i is id i; ids that this owner does not have are rows of zeros."""
    if table.ids is None:
        raise IdError(f"{table.label}: alignment='namespace' needs an id column")
    ids = np.asarray(table.ids)
    if ids.dtype.kind not in "iu":
        raise IdError(f"{table.label}: ids of a namespace are integers, got {ids.dtype}")
    if ids.size and (ids.min() < 0 or ids.max() >= namespace):
        raise IdError(f"{table.label}: ids run from {ids.min()} to {ids.max()}, outside 0..{namespace - 1}")
    distinct = len(np.unique(ids))
    if distinct != len(ids):
        raise IdError(f"{table.label}: {len(ids) - distinct} ids occur more than once; keep one row per id")
    placed = np.zeros((namespace, table.values.shape[1]))
    placed[ids] = table.values
    return placed


def scales(
    cluster: LocalCluster, owners: Sequence[Prepared], per_column: bool, progress: Progress | None
) -> tuple[NDArray[np.int64], list[dict[str, Any]]]:
    """Public scale exponents of all columns: each owner's own (standardised), or the largest of all (opened by the servers)."""
    own = [encoding.exponents(owner.largest, True) for owner in owners]
    widths = [len(part) for part in own]
    if per_column:
        found = np.concatenate(own)
        return np.where(found <= encoding.NO_EXPONENT, 0, found), []
    packets = [share(part.max(keepdims=True), encoding.EXPONENT, "exponent") for part in own]
    answer = cluster.run(columns.largest_exponent, *packets, progress=progress)
    assert cluster.report is not None
    return encoding.joint_scale([answer], sum(widths)), cluster.report.audit


def upload(
    cluster: LocalCluster, table: str, owners: Sequence[Prepared], scale: NDArray[np.int64], progress: Progress | None
) -> int:
    """Sends every owner's rows as shares, piece by piece, once; returns the bytes that left the owners."""
    sent, start = 0, 0
    total = sum(len(owner.values) for owner in owners)
    done = 0
    for number, owner in enumerate(owners):
        shrink = np.ldexp(1.0, -scale[start : start + owner.values.shape[1]])
        for first in range(0, len(owner.values), UPLOAD_ROWS):
            packets = share(owner.values[first : first + UPLOAD_ROWS] * shrink, ROWS, owner.label)
            sent += sum(len(packet.row) + len(packet.column) for packet in packets)
            cluster.run(columns.upload, packets, table=table, owner=number)
            done += len(owner.values[first : first + UPLOAD_ROWS])
            if progress is not None:
                progress(f"upload, {owner.label}", done / total, 0)
        start += owner.values.shape[1]
    return sent


def share_offsets(owners: Sequence[Prepared], scale: NDArray[np.int64]) -> list[list[InputPacket]]:
    """What each owner subtracted, in the scale of its columns."""
    packets, start = [], 0
    for owner in owners:
        stop = start + len(owner.offset)
        packets.append(
            share(owner.offset * np.ldexp(1.0, -scale[start:stop]), columns.OFFSETS, f"offset of {owner.label}")
        )
        start = stop
    return packets


def share_own_blocks(owners: Sequence[Prepared], scale: NDArray[np.int64]) -> list[list[InputPacket]]:
    """Each owner's sums of products of its own columns, of the rows as they were sent (on the grid of 2^-24)."""
    packets, start = [], 0
    for owner in owners:
        stop = start + owner.values.shape[1]
        grid = np.round(owner.values * np.ldexp(1.0, GRID - scale[start:stop]))
        product = grid.T @ grid
        encoded, bad = ring.encode(np.ldexp(product[np.triu_indices(stop - start)], -2 * GRID), 2 * GRID, 2)
        if bad >= 0:
            raise ValueError(f"{owner.label}: sums of products are too large")
        packets.append(share_ring(encoded, columns.OWN))
        start = stop
    return packets
