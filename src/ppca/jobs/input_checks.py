"""Refuse an owner whose shared numbers are out of range, before anything else is computed or opened.

Programs do this if they are told the names of the owners of their tables, as servers of a federation do for jobs of two owners or
more. One bit for each table is opened; for an owner whose client follows the protocol it says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..algorithms.input_ranges import Ranges
from ..protocol import Party
from ..servers.failure import Refusal

IN_RANGE = "inputs in range"


async def check_ranges(party: Party, ranges: Ranges, owners: Sequence[str]) -> None:
    """Open, for every table, whether its numbers are in range. owners: the owner of every table."""
    found = await (await ranges.in_range()).open(
        what=IN_RANGE, why="numbers out of range would falsify the joint result"
    )
    wrong = sorted({owner for owner, bit in zip(owners, found, strict=True) if not bit})
    if wrong:
        raise Refusal(
            f"the contribution of {' and '.join(wrong)} holds numbers outside the range that an unmodified client sends. Nothing "
            "else was opened. Propose the job again without this owner, or ask it to contribute with an unmodified client."
        )
