"""An owner's one visit: its table becomes shares, sealed piece by piece for each seat, and goes into the outbox, then out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..federation.errors import FederationError
from ..federation.parcels import Parcels
from ..federation.proposal import ProposedJob
from ..owner import columns as column_owner
from ..owner import rows as row_owner
from ..owner.alignment.arrangement import Alignment, arrange_rows, order_digest
from ..owner.columns import Piece
from ..owner.tables.opening import opened
from ..owner.tables.options import DEFAULTS, ReadOptions
from ..owner.tables.owners import open_columns, open_like, open_rows
from ..owner.tables.records import Records
from ..owner.tables.table import Table
from ..owner.wide import WideColumns, WideRows, padded
from ..protocol import InputPacket
from .desk import Member, Told

PATIENCE = 600.0
"""Seconds to wait for what the first owner of columns must do first."""


def contribute(
    member: Member,
    job: ProposedJob,
    data: Any,
    *,
    id: str | None = None,
    options: ReadOptions = DEFAULTS,
    min_rows: int = row_owner.MIN_ROWS,
    patience: float = PATIENCE,
    told: Told | None = None,
) -> int:
    """Share, seal and send an owner's table; return the bytes sent. After an interruption, call it again.

    min_rows: the fewest rows with which the owner takes part in a fit with other owners.
    """
    member.check_may_contribute(job)
    outbox = member.state.outbox(job.id)
    if not outbox.complete:
        outbox.begin()
        digests: list[str] = []

        def put(item: Any) -> None:
            outbox.put(item)
            digests.append(item.digest)

        parcels = Parcels(member.identity, job.id, member.seat_keys(job), put)
        least = min_rows if not job.spec.data.uses_model and len(job.proposal.owners) > 1 else 1
        _fill(member, job, data, parcels, id, options, least, patience, told)
        contribution = parcels.finish()
        put(contribution)
        outbox.finish(digests)
    return member.send(job, told)


def _fill(
    member: Member,
    job: ProposedJob,
    data: Any,
    parcels: Parcels,
    id: str | None,
    options: ReadOptions,
    min_rows: int,
    patience: float,
    told: Told | None,
) -> None:
    if job.spec.data.by_columns:
        _fill_columns(member, job, data, parcels, id, options, min_rows, patience, told)
    elif job.spec.data.uses_model:
        scale = np.asarray(job.spec.data.scales, np.int64)
        table = open_like(data, list(job.spec.data.column_names), len(scale), options)
        for batch in row_owner.new_rows(table.chunks(), scale, job.spec.data.standardize, table.names):
            parcels.add("packets", [batch])
    else:
        (table,) = open_rows([data], columns=list(job.spec.data.column_names), options=options)
        table.min_rows = min_rows
        if job.spec.data.is_wide:
            _fill_wide_rows(member, job, table, parcels)
            return
        parcels.add("packets", _sums(job, table, _rows_told(told)))


def _sums(job: ProposedJob, table: Table, told: Any) -> list[list[InputPacket]]:
    owners = len(job.spec.data.widths)
    if job.spec.data.missing == "mean":
        return row_owner.share_gap_sums(row_owner.gap_sums_of(table, told), owners)
    return row_owner.share_sums(row_owner.sums_of(table, told), owners)


def _fill_wide_rows(member: Member, job: ProposedJob, table: Table, parcels: Parcels) -> None:
    records = Records.of(table)
    _refuse_tall(job, padded(len(records.values)))
    rows = WideRows.of(records, job.spec.data.standardize)
    for piece in rows.pieces(job.proposal.owners.index(member.name)):
        parcels.add("rows", [piece.packets])
    parcels.add("packets", rows.share_sums())


def _refuse_tall(job: ProposedJob, rows: int) -> None:
    """Refuses rows that are not fewer than the columns of all owners, before any of them leaves."""
    width = len(job.spec.data.column_names)
    if rows >= width:
        raise FederationError(
            f"{job.name!r} is for fewer rows than its {width:,} columns; this table has {rows:,}, rounded up as they are sent. "
            "Have a job proposed without --wide."
        )


def _fill_columns(
    member: Member,
    job: ProposedJob,
    data: Any,
    parcels: Parcels,
    id: str | None,
    options: ReadOptions,
    min_rows: int,
    patience: float,
    told: Told | None,
) -> None:
    assert job.spec.data.align is not None
    align, way = job.spec.data.align, alignment_of(job)
    mine, place = own_columns(job, member.name), job.spec.data.columns_of(member.name)
    (table,) = open_columns([data], id, columns=mine, options=options)
    table = table.choose(mine, table.id)
    table.min_rows = min_rows
    sends = way.in_order and not job.spec.data.uses_model
    records = Records.for_upload(table, in_order=sends, columns=len(job.spec.data.column_names))
    ordered = way.in_order and records.ids is not None
    key = member.group_key(job, patience, told) if way.way == "psi" or ordered else b""
    order = order_digest(records, way, key) if ordered else None
    arranged = arrange_rows(records, way, key)
    number = job.proposal.owners.index(member.name)
    if job.spec.data.uses_model:
        scale = np.asarray(job.spec.data.scales, np.int64)[place]
        _add_rows(parcels, column_owner.new_rows(number, arranged, scale, job.spec.data.standardize), order)
        return
    if job.spec.data.is_wide:
        if way.owners_know_rows:
            _refuse_tall(job, len(arranged.values))
        columns = WideColumns.of(arranged, job.spec.data.standardize, job.spec.data.owners_multiply)
        _add_rows(parcels, columns.pieces(number), order)
        parcels.add("packets", columns.share_sums())
        return
    own = job.spec.data.owners_multiply
    centred = column_owner.Centred.of(arranged)
    _add_rows(parcels, centred.pieces(number, own), order)
    if align.row_share_at_most is not None:
        centred.check_row_shares(align.row_share_at_most)
    parcels.add("packets", [*centred.share_scales(), *([centred.share_own()] if own else [])])


def own_columns(job: ProposedJob, owner: str) -> list[str]:
    """The names of the columns of a column owner."""
    return job.spec.data.column_names[job.spec.data.columns_of(owner)]


def alignment_of(job: ProposedJob) -> Alignment:
    """How the rows of column owners are brought together."""
    align = job.spec.data.align
    assert align is not None
    return Alignment(align.alignment, align.namespace, align.minimum, align.fold_case)


def _add_rows(parcels: Parcels, pieces: Iterable[Piece], order: bytes | None) -> None:
    """Adds rows piece by piece; the keyed digest of the order of ids goes with the first."""
    for number, piece in enumerate(pieces):
        first = {"order": order.hex()} if order is not None and number == 0 else {}
        parcels.add("rows", [piece.packets], tags=piece.tags, **first)


def _rows_told(told: Told | None) -> Any:
    if told is None:
        return None
    return lambda done, total: told(f"{done:,} rows read", done / total if total else None)


def columns_of(data: Path, options: ReadOptions = DEFAULTS) -> list[str]:
    """The columns that a table has, for a new job."""
    table = opened(data, None, options)
    if table.held is None:
        raise FederationError(f"{data} has no column names; a job needs them.")
    return list(table.held)
