"""A model that nobody holds: its shares stay with the servers under a name, and are used there on shared rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..jobs import inference
from ..jobs.infer import UseModel
from ..jobs.kept import erase, owner_name
from ..jobs.loading import as_data
from ..jobs.spec import NEW_COLUMNS, JobSpec
from ..owner import columns as owner_columns
from ..owner import rows as owner_rows
from ..owner.alignment.arrangement import Arranged, arrange
from ..owner.errors import BadColumns
from ..owner.tables.owners import open_columns, open_like
from ..owner.tables.records import Records
from ..protocol import share
from ..receiver.joined import Joined, ids_of
from ..receiver.unsealing import received
from ..receiver.verdicts import check_limits
from .columns import Columns, check_matched, column_data, upload
from .job import Job

Floats = NDArray[np.float64]
FAR = 2.0**36
"""Scales of a model that a rebuilt row may lie from zero; means of 2^38 and more are not told apart (`scales.in_units`)."""

Verdicts = tuple[Floats | None, NDArray[np.bool_] | None]
"""Scores and flags, as far as they were asked for."""


@dataclass
class SharedModel:
    """Inference with a model and rows that are both secret. Results go to the caller, the receiver.

    job: runs the programs, and keeps their account. name: under which the servers keep the model.
    scale: the public exponents of the columns; standardized: whether columns are divided by their joint deviation.
    names: what messages call the columns.

    Coordinates have the signs of the revealed model: the entry of largest magnitude of every component is positive.
    """

    job: Job
    name: str
    scale: NDArray[np.int64]
    standardized: bool
    names: list[str] | None = None

    @property
    def unit(self) -> float:
        """One scaled unit in the units of the data."""
        return 1.0 if self.standardized else float(np.ldexp(1.0, int(self.scale[0])))

    def forget(self) -> None:
        """The servers erase their shares of the model and of its sums."""
        self.job.run(erase, model=self.name)

    # -- rows with all columns -----------------------------------------------------------------------------------------

    def transform(self, rows: Any) -> Floats:
        """Coordinates of the rows of a table: as `PCA.transform`, not whitened.

        Columns are matched by name where the table and the model have names; others are left out.
        """
        return np.vstack(list(self.transform_batches(self._chunks(rows))))

    def transform_batches(self, chunks: Iterable[ArrayLike]) -> Iterator[Floats]:
        """The same for a table in pieces of any length; yields the coordinates piece by piece."""
        done = 0
        for packets in self._shared(chunks):
            found = np.asarray(self.job.run(inference.transform, packets, model=self.name)["coordinates"])
            done += len(found)
            self.job.progress(f"transform, {done:,} rows", None)
            yield found * self.unit

    def inverse_transform(self, coordinates: ArrayLike) -> Floats:
        """Rows rebuilt from coordinates; of a standardised model in standardised units."""
        packets = share(np.asarray(coordinates, np.float64) / self.unit, name="coordinates")
        rows = np.asarray(self.job.run(inference.inverse_transform, packets, model=self.name)["rows"])
        if self.standardized:
            return rows
        far = np.abs(rows).max(axis=0, initial=0.0) >= FAR
        if far.any():
            column = int(far.argmax())
            name = repr(self.names[column]) if self.names else str(column + 1)
            raise ValueError(
                f"column {name} lies 2^36 or more scales of the model from zero, more than rows on shares hold. "
                "Subtract the same offset from the column at all owners and fit again."
            )
        return rows * np.ldexp(1.0, self.scale)

    def score_samples(self, rows: Any) -> Floats:
        """Anomaly scores: squared distance of every row to its projection; all rows beyond 2^45 units have the same score."""
        scores, _ = self.detect_batches(self._chunks(rows), scores=True)
        assert scores is not None
        return scores

    def detect(
        self, rows: Any, *, threshold: float | None = None, contamination: float | None = None
    ) -> NDArray[np.bool_]:
        """Flags of anomalous rows: score above the threshold, or the given fraction of rows with the largest scores."""
        _, flags = self.detect_batches(self._chunks(rows), threshold=threshold, contamination=contamination)
        assert flags is not None
        return flags

    def detect_batches(
        self,
        chunks: Iterable[ArrayLike],
        *,
        threshold: float | None = None,
        contamination: float | None = None,
        scores: bool = False,
    ) -> Verdicts:
        """Scores and flags, as far as they are asked for, of a table in pieces. Scores stay shared until all are there."""
        check_limits(threshold, contamination, scores)
        with self.job.table() as table:
            done = 0
            for packets in self._shared(chunks):
                self.job.run(inference.add_scores, packets, model=self.name, table=table)
                done += packets[0].shape[0]
                self.job.progress(f"detect, {done:,} rows", None)
            limits = self._limits(threshold, contamination, scores)
            return self._verdicts(self.job.run(inference.detect, table=table, **limits))

    def _chunks(self, rows: Any) -> Iterator[Floats]:
        for chunk in open_like(rows, self.names, len(self.scale)).chunks():
            yield chunk.astype(np.float64)

    def _shared(self, chunks: Iterable[ArrayLike]) -> Iterator[list[Any]]:
        return owner_rows.new_rows(chunks, self.scale, self.standardized, self.names)

    def _limits(self, threshold: float | None, contamination: float | None, scores: bool) -> dict[str, Any]:
        """What is asked of scores, in the units of the servers."""
        highest = inference.HIGHEST
        if threshold is not None:  # where all columns were constant, the unit is zero and so are all scores
            threshold = min(float(threshold) / self.unit**2, highest) if self.unit else highest
        return {"threshold": threshold, "contamination": contamination, "scores": scores}

    def _verdicts(self, answer: dict[str, Any]) -> Verdicts:
        """Scores and flags, as far as the servers gave them."""
        found = np.maximum(answer["scores"], 0.0) * self.unit**2 if "scores" in answer else None
        return found, np.asarray(answer["flags"]).astype(bool) if "flags" in answer else None

    # -- rows whose columns belong to several owners -------------------------------------------------------------------

    def transform_columns(self, owners: Any, partition: Columns, receiver: int = 0) -> Joined:
        """Coordinates of new rows, each owner giving its columns, in the order of the fit; the rows that all owners have.

        receiver: the position of the owner that gets the results, with its own ids: only an owner knows whose tags they are.
        """
        arranged = self._arranged(owners, partition, receiver)
        found = self._inferred(arranged, partition, receiver, ["transform"])
        return Joined(_ids(arranged[receiver], found), coordinates=np.asarray(found["coordinates"]) * self.unit)

    def detect_columns(
        self,
        owners: Any,
        partition: Columns,
        receiver: int = 0,
        *,
        threshold: float | None = None,
        contamination: float | None = None,
        scores: bool = False,
    ) -> Joined:
        """Scores and flags of new rows, as far as they are asked for, each owner giving its columns; see `transform_columns`."""
        check_limits(threshold, contamination, scores)
        arranged = self._arranged(owners, partition, receiver)
        flags = threshold is not None or contamination is not None
        parts = [*(["scores"] if scores else []), *(["flags"] if flags else [])]
        answer = self._inferred(arranged, partition, receiver, parts, threshold=threshold, contamination=contamination)
        found, flagged = self._verdicts(answer)
        return Joined(_ids(arranged[receiver], answer), scores=found, flags=flagged)

    def _arranged(self, owners: Any, partition: Columns, receiver: int) -> list[Arranged]:
        """Every owner's rows in the order of the alignment, checked against the model."""
        tables = open_columns(owners, partition.id)
        if not 0 <= receiver < len(tables):
            raise ValueError(f"receiver={receiver}: there are {len(tables)} owners, counted from 0")
        self._check_columns([(table.names, table.n_columns) for table in tables])
        return arrange([Records.of(table) for table in tables], partition.way)

    def _check_columns(self, owners: Sequence[tuple[list[str] | None, int]]) -> None:
        width = sum(count for _, count in owners)
        if width != len(self.scale):
            raise BadColumns(f"the owners have {width} columns, the model {len(self.scale)}. Give the same columns.")
        names: list[str | None] = []
        for own, count in owners:
            names += own or [None] * count
        for at, (name, known) in enumerate(zip(names, self.names or names, strict=True), start=1):
            # A name that two owners use stands in the model with the owner before it.
            if name is not None and known is not None and name != known and not known.endswith(f":{name}"):
                raise BadColumns(
                    f"column {at} is {name!r} here and {known!r} in the model. Give owners and columns in the order of the fit."
                )

    def _inferred(
        self,
        arranged: Sequence[Arranged],
        partition: Columns,
        receiver: int,
        parts: Sequence[str],
        threshold: float | None = None,
        contamination: float | None = None,
    ) -> dict[str, Any]:
        """Shares all rows and has the servers match them and use the model on them; what the receiver gets."""
        scale = tuple(int(exponent) for exponent in self.scale)
        data = column_data(NEW_COLUMNS, arranged, partition, standardize=self.standardized, scales=scale)
        limit = None if threshold is None else float(threshold)
        use = UseModel(model=self.name, threshold=limit, contamination=contamination)
        widths = [rows.values.shape[1] for rows in arranged]
        scales = np.split(self.scale, np.cumsum(widths)[:-1])
        pieces = (
            piece
            for number, (rows, scale) in enumerate(zip(arranged, scales, strict=True))
            for piece in owner_columns.new_rows(number, rows, scale, self.standardized)
        )
        name = owner_name(receiver)
        with self.job.table() as table:
            upload(self.job, table, pieces, sum(len(rows.values) for rows in arranged))
            spec = JobSpec(data=data, analysis=use, receivers={name: tuple(parts)})
            answer = self.job.run(inference.infer_table, table=table, job=as_data(spec))
            check_matched(answer, partition, [rows.table for rows in arranged])
        return received(answer, name)


def _ids(own: Arranged, answer: dict[str, Any]) -> Any:
    """Whose rows they are, as the receiver knows them."""
    return ids_of(own, answer["rows"], answer.get("tags"))
