"""Refuse an owner whose shared numbers are out of range, or whose columns mark single rows, before anything else is
opened.

Programs do this if the job says so (`Data.check_inputs`): in federations, for fits of two or more owners and for uses
of a kept model on columns of two or more owners. One bit for each table is opened. It carries no information about an
owner whose client follows the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..algorithms.input_ranges import Ranges
from ..protocol import Party
from .errors import Refusal
from .openings import IN_RANGE, ROW_SHARES


async def check_ranges(party: Party, ranges: Ranges, owners: Sequence[str]) -> None:
    """Open, for every table, whether its numbers are in range. owners: the owner of every table."""
    if wrong := await _failing(
        party, ranges, owners, IN_RANGE, "numbers out of range would make the joint result wrong"
    ):
        raise Refusal(
            f"the contribution of {wrong} holds numbers outside the range that an unmodified client "
            "sends. Nothing else was opened. Propose the job again without this owner, or ask it to "
            "contribute with an unmodified client."
        )


async def check_row_shares(party: Party, ranges: Ranges, owners: Sequence[str], limit: float) -> None:
    """Open, for every table, whether few rows have more than `limit` of the sum of squares of one of its columns."""
    if wrong := await _failing(
        party, ranges, owners, ROW_SHARES, "a column that marks one row would reveal that row of the other owners"
    ):
        raise Refusal(
            f"a column of {wrong} has more than {limit:g} of its sum of squares in few rows: its covariances would "
            "reveal the values of these rows at the other owners. Nothing else was opened. Omit such columns, merge "
            "rare categories, or agree on a larger row_share_at_most."
        )


async def _failing(party: Party, ranges: Ranges, owners: Sequence[str], what: str, why: str) -> str:
    """Open one bit per table; return the names of the owners whose tables fail the condition."""
    found = await (await ranges.in_range()).open(what=what, why=why)
    return " and ".join(sorted({owner for owner, bit in zip(owners, found, strict=True) if not bit}))
