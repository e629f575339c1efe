"""Inference on new rows whose columns belong to several owners: model and rows are both secret.

Each owner shares its columns of the rows it has. The servers find the rows that all owners have, put them together as they did
for the fit, and compute on them. The result goes to one owner, the receiver, with the tags of its rows: it alone (and the
other owners, who do not get the result) can tell whose rows they are.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..align.arrangement import Alignment, Arranged, arrange
from ..owner.columns import ColumnTable, joint_names, read_owners
from ..protocol import Party, RingType, SecretArray, concatenate, share
from . import inference
from .columns import Uploads, forget
from .partition import UPLOAD_NUMBERS, Floats, Piece, Progress, Uploaded

if TYPE_CHECKING:
    from .shared import SharedModel

REACH = 2.0**20
"""Values may be so many times larger than the scale of the fitted columns, which is that of their spread, not of their mean."""


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

    def __len__(self) -> int:
        found = (self.coordinates, self.scores, self.flags)
        return len(next(part for part in found if part is not None))


# -- owners and receiver -------------------------------------------------------------------------------------------------


def transform_columns(
    model: SharedModel, owners: Sequence[Any], *, id: str | None, alignment: Any, receiver: int, progress: Progress | None
) -> Joined:
    """Coordinates of the rows that all owners have."""
    with _uploaded(model, owners, id, alignment, receiver, progress) as job:
        answer = job.run(transform, model=model.name, standardized=model.standardized, receiver=job.receiver)
        return Joined(job.ids(), coordinates=np.asarray(answer["coordinates"]) * model.unit())


def detect_columns(
    model: SharedModel,
    owners: Sequence[Any],
    *,
    threshold: float | None,
    contamination: float | None,
    scores: bool,
    id: str | None,
    alignment: Any,
    receiver: int,
    progress: Progress | None,
) -> Joined:
    """Scores and flags, as far as they are asked for, of the rows that all owners have."""
    with _uploaded(model, owners, id, alignment, receiver, progress) as job:
        found = secrets.token_hex(8)
        job.run(add_scores, model=model.name, standardized=model.standardized, scores=found)
        score, flags = model.judge(
            found, threshold=threshold, contamination=contamination, scores=scores, receiver=job.receiver, progress=progress
        )
        return Joined(job.ids(), scores=score, flags=flags)


class _Job:
    """Rows of several owners on the servers, aligned, until the end of the `with` block."""

    def __init__(self, uploaded: Uploaded, tables: Sequence[Arranged], receiver: int, answer: dict[str, Any]) -> None:
        self._uploaded = uploaded
        self._rows = int(answer["rows"])
        self._own = tables[receiver]
        self._tags = answer.get("tags")
        self.receiver = self._own.table.label

    def run(self, program: Any, **public: Any) -> Any:
        return self._uploaded.run(program, table=self._uploaded.table, rows=self._rows, **public)

    def ids(self) -> Any:
        """The receiver finds its own ids by the tags of the common rows, which it sent itself."""
        if self._tags is None:
            return self._own.ids_at(np.arange(self._rows))
        assert self._own.tags is not None
        order = {tag.tobytes(): at for at, tag in enumerate(self._own.tags)}
        return self._own.ids_at(np.asarray([order[tag.tobytes()] for tag in self._tags], np.intp))
