"""Contribute an owner's table to a job: share it, seal the chunks for each server, store them in the outbox, send them.

An interrupted upload continues from the outbox.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..federation.envelopes import Envelopes
from ..federation.errors import FederationError
from ..federation.proposal import ProposedJob
from ..jobs.chunks import Chunk
from ..jobs.spec import ColumnList, Data
from ..owner.contribute import Source, contribution
from ..owner.rows import MIN_ROWS
from ..owner.tables.opening import opened
from ..owner.tables.options import DEFAULTS, ReadOptions
from ..owner.tables.owners import open_columns, open_like, open_rows
from ..owner.tables.table import Table
from .client import MemberClient, Told

PATIENCE = 600.0
"""Timeout in seconds for the key of the first column owner."""


def contribute(
    member: MemberClient,
    job: ProposedJob,
    data: Any,
    *,
    id: str | None = None,
    options: ReadOptions = DEFAULTS,
    min_rows: int = MIN_ROWS,
    patience: float = PATIENCE,
    told: Told | None = None,
) -> int:
    """Share, seal and send an owner's table; return the bytes sent. After an interruption, call it again.

    options: how the table is read; the job says how missing values count. min_rows: the fewest rows with which the
    owner takes part in a fit with other owners, and the fewest that miss a column, or have it, if missing values count
    as the joint mean.
    """
    member.check_may_contribute(job)
    outbox = member.state.outbox(job.id)
    if not outbox.complete:
        outbox.begin()
        digests: list[str] = []

        def put(item: Any) -> None:
            outbox.put(item)
            digests.append(item.digest)

        wanted = job.spec.data
        table = table_of(wanted, member.name, data, id, options, min_rows)
        envelopes = Envelopes(member.identity, job.id, member.server_keys(job), put)
        for chunk in chunks_of(member, job, table, patience, told):
            add(envelopes, chunk, tables=wanted.tables is not None)
        put(envelopes.finish())
        outbox.finish(digests)
    return member.send(job, told)


def table_of(data: Data, owner: str, table: Any, id: str | None, options: ReadOptions, min_rows: int) -> Table:
    """Open an owner's table with the columns that it has in a job."""
    options = replace(options, missing=data.missing)
    own = data.columns[owner] if isinstance(data.columns, Mapping) else data.columns
    if isinstance(own, ColumnList):
        raise FederationError(f"the job gives {own.count:,} columns of {owner} by their digest only.")
    names = list(own)
    if data.by_columns:
        (found,) = open_columns([table], id, columns=names, options=options)
        found = found.choose(names, found.id)
    elif data.uses_model:
        return open_like(table, names, data.width, options)
    else:
        (found,) = open_rows([table], columns=names, options=options)
    new, alone = data.uses_model, len(data.owners) == 1
    found.min_rows = 1 if new or alone else min_rows
    return found


def chunks_of(
    member: MemberClient, job: ProposedJob, table: Table, patience: float = PATIENCE, told: Told | None = None
) -> Iterator[Chunk]:
    """Yield what a member sends for its table: the table 0 of this sender."""
    data = job.spec.data

    def key() -> bytes:
        return member.group_key(job, patience, told)

    def show(done: int, total: int | None) -> None:
        if told is not None:
            told(f"{done:,} {'columns' if data.is_wide else 'rows'} read", done / total if total else None)

    first = data.owners.index(member.name)
    for chunk in contribution(data, first, Source(table), key, show):
        chunk.table -= first
        yield chunk


def add(envelopes: Envelopes, chunk: Chunk, *, tables: bool) -> None:
    """Add a chunk to a contribution. tables: whether the job has several tables of this owner; then each chunk names
    its own."""
    fields: dict[str, Any] = {"part": chunk.table} if tables else {}
    if not chunk.rows:
        envelopes.add("packets", chunk.packets, **fields)
        return
    if chunk.order is not None:
        fields["order"] = chunk.order.hex()
    envelopes.add("rows", chunk.packets, tags=chunk.tags, **fields)


def columns_of(data: Path, options: ReadOptions = DEFAULTS) -> list[str]:
    """The columns that a table has, for a new job."""
    table = opened(data, None, options)
    if table.held is None:
        raise FederationError(f"{data} does not have column names; a job needs them.")
    return list(table.held)
