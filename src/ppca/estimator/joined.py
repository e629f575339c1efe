"""The owners' side of inference on rows whose columns belong to several of them: model and rows are both secret.

Each owner shares its columns of the rows it has. The servers find the rows that all owners have, put them side by side as they
did for the fit, and compute on them. The result goes to one owner, the receiver, with the tags of its rows: only an owner can
tell from tags whose rows they are.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..jobs import column_inference, inference
from ..jobs.matching import positions_in
from ..owner.alignment.arrangement import Alignment, Arranged, arrange
from ..owner.columns import read_owners
from ..owner.errors import BadColumns, BadValue
from ..protocol import share
from .partition import UPLOAD_NUMBERS, Floats, Piece, Progress, Uploaded

if TYPE_CHECKING:
    from .shared import SharedModel

REACH = 2.0**20
"""Magnitudes below so many times the scale of a column are taken: its scale is that of its spread, not of its mean."""


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


@dataclass
class JointRows:
    """New rows of several owners for a shared model.

    owners: one frame, path or array each, in the order of the fit. id, alignment: as for the fit.
    receiver: the position of the owner that gets the results.
    """

    model: SharedModel
    owners: Sequence[Any]
    id: str | None = None
    alignment: Any = "psi"
    receiver: int = 0
    progress: Progress | None = None

    def transform(self) -> Joined:
        """Coordinates of the rows that all owners have."""
        arranged = self._arranged()
        job, answer = self._upload(arranged)
        with job.kept():
            found = job.run(
                column_inference.transform,
                table=job.table,
                rows=answer["rows"],
                model=self.model.name,
                standardized=self.model.standardized,
                receiver=arranged[self.receiver].table.label,
            )
        return Joined(self._ids(arranged, answer), coordinates=np.asarray(found["coordinates"]) * self.model.unit)

    def detect(self, *, threshold: float | None, contamination: float | None, scores: bool) -> Joined:
        """Scores and flags, as far as they are asked for, of the rows that all owners have."""
        arranged = self._arranged()
        job, answer = self._upload(arranged)
        table = secrets.token_hex(8)
        with job.kept():
            job.run(
                column_inference.add_scores,
                table=job.table,
                rows=answer["rows"],
                model=self.model.name,
                standardized=self.model.standardized,
                scores=table,
            )
        found, flags = self.model.judge(
            table,
            threshold=threshold,
            contamination=contamination,
            scores=scores,
            receiver=arranged[self.receiver].table.label,
            progress=self.progress,
        )
        return Joined(self._ids(arranged, answer), scores=found, flags=flags)

    def _arranged(self) -> list[Arranged]:
        """Every owner's rows in the order of the alignment, checked against the model."""
        if not 0 <= self.receiver < len(self.owners):
            raise ValueError(f"receiver={self.receiver}: there are {len(self.owners)} owners, counted from 0")
        way = self.alignment if isinstance(self.alignment, Alignment) else Alignment(self.alignment, minimum=1)
        tables = read_owners(self.owners, self.id)
        width = sum(table.values.shape[1] for table in tables)
        if width != len(self.model.scale):
            raise BadColumns(
                f"the owners have {width} columns, the model {len(self.model.scale)}. Give the same columns."
            )
        names: list[str | None] = []
        for table in tables:
            names += table.names or [None] * table.values.shape[1]
        for at, (name, known) in enumerate(zip(names, self.model.names or names, strict=True), start=1):
            # A name that two owners use stands in the model with the owner before it.
            if name is not None and known is not None and name != known and not known.endswith(f":{name}"):
                raise BadColumns(
                    f"column {at} is {name!r} here and {known!r} in the model. Give owners and columns in the order of the fit."
                )
        start = 0
        for table in tables:
            scale = self.model.scale[start : start + table.values.shape[1]]
            bad = ~(np.abs(table.values) < REACH * np.ldexp(1.0, scale))
            if bad.any():
                row, column = (int(i) for i in np.argwhere(bad)[0])
                name = table.names[column] if table.names else str(column + 1)
                raise BadValue(
                    f"{table.label}: column {name} has {table.values[row, column]:g} in row {row + 1:,}, more than {REACH:g} "
                    "times the spread of the fitted data. Remove the row.",
                    column=name,
                    row=row + 1,
                )
            start += table.values.shape[1]
        return arrange(tables, way)

    def _upload(self, arranged: Sequence[Arranged]) -> tuple[Uploaded, dict[str, Any]]:
        """Shares all rows and has the servers match them; their answer."""
        way = self.alignment if isinstance(self.alignment, Alignment) else Alignment(self.alignment, minimum=1)
        job = Uploaded(self.model.servers, self.progress)
        with job.kept():
            job.send(self._pieces(arranged), sum(len(rows.values) for rows in arranged))
            return job, job.align(way.minimum, tell=True)

    def _pieces(self, arranged: Sequence[Arranged]) -> Iterator[Piece]:
        kind = inference.STANDARD if self.model.standardized else inference.RAW
        wide = kind.with_span(20)  # what an owner may send; less the mean, it is what the kind promises
        start = 0
        for number, rows in enumerate(arranged):
            width = rows.values.shape[1]
            shrink = np.ldexp(1.0, -self.model.scale[start : start + width])
            step = max(1, UPLOAD_NUMBERS // width)
            for first in range(0, len(rows.values), step):
                part = rows.values[first : first + step]
                tags = None if rows.tags is None else rows.tags[first : first + step]
                label = rows.table.label
                yield Piece(number, label, len(part), share(part * shrink, wide, label), tags)
            start += width

    def _ids(self, arranged: Sequence[Arranged], answer: dict[str, Any]) -> Any:
        """The receiver's own ids of the common rows: it knows which tag it made of which id."""
        own = arranged[self.receiver]
        if own.tags is None:
            return own.ids_at(np.arange(answer["rows"]))
        return own.ids_at(positions_in(own.tags, np.asarray(answer["tags"])))
