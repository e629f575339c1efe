"""Find the rows that every owner has, from the tags of their ids. All four servers see the same tags and find the same
rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .spec import MIN_COMMON_IDS


def too_few(rows: int, minimum: int) -> str | None:
    """Return why a job without tags cannot run with this number of common rows, or None."""
    return None if rows >= minimum else f"the owners have {rows:,} rows; this job needs at least {minimum:,} (minimum)"


class MatchError(ValueError):
    """The owners have too few rows in common, or tags are malformed; nothing was computed."""


def match(tags: Sequence[NDArray[np.uint64]], minimum: int = MIN_COMMON_IDS) -> list[NDArray[np.integer[Any]]]:
    """Return, for every owner, the positions of the common rows in its table (sorted by tag), in ascending order of
    tags.

    `tags` is called for one owner at a time, so that they need not all be in memory. The error does not state the
    number of common ids: owners read it, and the number of a few common rows is private.
    """
    common = np.empty((0, 2), np.uint64)
    rows: list[NDArray[np.integer[Any]]] = []
    for position in range(len(tags)):
        part = tags[position]
        if part.ndim != 2 or part.shape[1] != 2 or part.dtype != np.uint64:
            raise MatchError(f"owner {position + 1} sent tags of the wrong form")
        if not ascending(part):
            raise MatchError(f"owner {position + 1} sent tags that are not sorted or not distinct")
        kind = np.int32 if len(part) < 2**31 else np.int64
        if position == 0:
            common, rows = part, [np.arange(len(part), dtype=kind)]
            continue
        found = positions_in(part, common)
        here = found >= 0
        common = common[here]
        rows = [*(at[here] for at in rows), found[here].astype(kind)]
    if len(common) < max(1, minimum):
        raise MatchError(
            f"fewer than {max(1, minimum)} ids are common to all {len(tags)} owners. Check that all use the same ids"
        )
    return rows


def ascending(tags: NDArray[np.uint64]) -> bool:
    """Return whether tags are sorted and distinct."""
    high, low = tags[:, 0], tags[:, 1]
    equal = high[1:] == high[:-1]
    return bool(np.all((high[1:] > high[:-1]) | (equal & (low[1:] > low[:-1]))))


def positions_in(tags: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the position of each wanted tag in a sorted list of tags, or -1 if it is not in the list.

        Binary search compares first halves. Distinct tags with equal first halves (probability below n^2 2^-65) are
        distinguished by
    a linear scan.
    """
    at = np.searchsorted(tags[:, 0], wanted[:, 0])
    result = np.full(len(wanted), -1, np.intp)
    open_rows = np.arange(len(wanted))
    while open_rows.size:
        inside = at[open_rows] < len(tags)
        open_rows = open_rows[inside]
        here = tags[at[open_rows]]
        same_high = here[:, 0] == wanted[open_rows, 0]
        hit = same_high & (here[:, 1] == wanted[open_rows, 1])
        result[open_rows[hit]] = at[open_rows[hit]]
        open_rows = open_rows[same_high & ~hit]
        at[open_rows] += 1
    return result
