"""Ids of the rows of a result: a column owner that receives it finds its own ids from the tags of the rows."""

from __future__ import annotations

from typing import Any

from ..federation.errors import FederationError
from ..jobs.spec import PSI
from ..owner.alignment.arrangement import arrange_rows
from ..owner.tables.options import DEFAULTS, ReadOptions
from ..owner.tables.owners import open_columns
from ..owner.tables.records import Records
from .client import MemberClient
from .fetching import Evidence


def own_ids(
    member: MemberClient, evidence: Evidence, data: Any, id: str | None, options: ReadOptions = DEFAULTS
) -> Any:
    """The ids, as the member wrote them in its own table, of the rows of a result, in their order."""
    job = evidence.job
    if not job.spec.data.by_columns or member.name not in job.proposal.owners:
        raise FederationError(f"{member.name} is not a column owner in {job.name!r}: only owners can link tags to ids.")
    wanted = job.spec.data
    mine = wanted.column_names[wanted.columns_of(member.name)]
    (table,) = open_columns([data], id, columns=mine, options=options)
    assert wanted.align is not None
    values, align = evidence.result().values, wanted.align
    key = member.group_key(job, 0.0) if align.alignment == PSI else b""  # others make no tags of ids
    arranged = arrange_rows(Records.of(table.choose(mine, table.id)), align, key)
    return arranged.ids_of(int(values["rows"]), values.get("tags"))
