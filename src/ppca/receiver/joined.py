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
    """A result by rows, with the ids of the rows.

    ids: as in the receiver's own table; None if aligned owners do not have ids.
    coordinates, scores, flags: the requested parts, otherwise None.
    """

    ids: Any
    coordinates: Floats | None = None
    scores: Floats | None = None
    flags: NDArray[np.bool_] | None = None


def ids_of(own: Arranged, rows: int, tags: Any) -> Any:
    """Return the receiver's own ids of the common rows, from the tags that the servers send."""
    if own.tags is None:
        return own.ids_at(np.arange(rows))
    return own.ids_at(positions_in(own.tags, np.asarray(tags)))
