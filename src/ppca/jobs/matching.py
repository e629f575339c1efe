"""What servers do with tags: find the rows that every owner has. All four servers see the same tags and find the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .spec import MIN_COMMON_IDS

"""The smallest intersection that is worked on unless the job says otherwise: a covariance of fewer rows says too much of them."""


def too_few(rows: int, minimum: int) -> str | None:
    """Why so few rows, which owners have in common without tags, are not worked on."""
    return None if rows >= minimum else f"the owners have {rows:,} rows; this job needs at least {minimum:,} (minimum)"


class MatchError(ValueError):
    """The owners' rows do not match well enough; nothing was computed."""


def match(tags: Sequence[NDArray[np.uint64]], minimum: int = MIN_COMMON_IDS) -> list[NDArray[np.integer[Any]]]:
    """For every owner the positions of the common rows in its (tag-sorted) table, in the common order of tags: ascending.

    `tags` is asked for one owner at a time, so that they need not all be in memory. The error does not say how many ids are
    common: it reaches the owners, and so few rows are nobody's business.
    """
    common = np.empty((0, 2), np.uint64)
    rows: list[NDArray[np.integer[Any]]] = []
    for position in range(len(tags)):
        part = tags[position]
        if part.ndim != 2 or part.shape[1] != 2 or part.dtype != np.uint64:
            raise MatchError(f"owner {position + 1} sent tags of the wrong form")
        if not _ascending(part):
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


def _ascending(tags: NDArray[np.uint64]) -> bool:
    high, low = tags[:, 0], tags[:, 1]
    equal = high[1:] == high[:-1]
    return bool(np.all((high[1:] > high[:-1]) | (equal & (low[1:] > low[:-1]))))


def positions_in(tags: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Where each wanted tag stands in a sorted list of tags, -1 if it does not.

    First halves are searched; distinct tags with equal first halves (below n^2 2^-65) are told apart by a short walk.
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
