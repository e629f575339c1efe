"""Verdicts on rows whose columns several owners hold, joined to ids again by the one owner that receives them.

Only an owner can tell from tags whose rows they are: it made a tag of each of its ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jobs.matching import positions_in
from ..owner.alignment.arrangement import Arranged

Floats = NDArray[np.float64]


@dataclass
class Joined:
    """A result by rows, and whose rows they are.

    ids: as the receiver wrote them in its own table; None where aligned owners have no ids.
    coordinates, scores, flags: what was asked for, else None.
    """

    ids: Any
    coordinates: Floats | None = None
    scores: Floats | None = None
    flags: NDArray[np.bool_] | None = None


def ids_of(own: Arranged, rows: int, tags: Any) -> Any:
    """The receiver's own ids of the common rows, from the tags that the servers tell it."""
    if own.tags is None:
        return own.ids_at(np.arange(rows))
    return own.ids_at(positions_in(own.tags, np.asarray(tags)))
