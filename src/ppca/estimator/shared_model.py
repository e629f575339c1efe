"""Use a kept model: its shares stay on the servers under a name and are applied to shared rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..jobs.checks import SpecError
from ..jobs.infer import UseModel, verdict_parts
from ..jobs.kept import owner_name
from ..jobs.spec import COORDINATES, NEW_COLUMNS, NEW_ROWS, JobSpec
from ..owner.contribute import Source, contribution
from ..owner.errors import BadColumns
from ..owner.tables.owners import open_columns, open_like
from ..receiver.joined import Joined
from ..receiver.results import Received, UseResult, result_of
from ..receiver.unsealing import received
from .job import Job
from .partition import Columns, check_matched, column_data
from .rows import row_data
from .runs import run

Floats = NDArray[np.float64]
FAR = 2.0**36
"""Maximum distance of a rebuilt row from zero, in scales of the model. Means of 2^38 or more saturate
(`scales.in_units`)."""

Verdicts = tuple[Floats | None, NDArray[np.bool_] | None]
"""Scores and flags, None if not requested."""


@dataclass
class SharedModel:
    """Inference with a model and rows that are both secret. Results go to the caller, the receiver.

    job: runs the programs and keeps their account. name: name under which the servers keep the model.
    scale: the public exponents of the columns; standardized: whether columns are divided by their joint deviation.
    names: what messages call the columns. components: their number; servers keep more, without variance, if there are
    fewer rows than columns.

    Coordinates have the signs of the revealed model: the entry of largest magnitude of every component is positive.
    """

    job: Job
    name: str
    scale: NDArray[np.int64]
    standardized: bool
    names: list[str] | None = None
    components: int | None = None

    @property
    def unit(self) -> float:
        """One unit of the servers in the units of the data."""
        return 1.0 if self.standardized else float(np.ldexp(1.0, int(self.scale[0])))

    def forget(self) -> None:
        """Erase the servers' shares of the model and of its sums."""
        self.job.servers.erase(self.name)

    # -- rows with all columns -----------------------------------------------------------------------------------------

    def transform(self, rows: Any) -> Floats:
        """Return coordinates of the rows of a table, as `PCA.transform` without whitening.

        Columns are matched by name where the table and the model have names; others are left out.
        """
        source = Source(open_like(rows, self.names, len(self.scale)))
        spec = self._spec(NEW_ROWS, ["transform"])
        return self._coordinates(self._result(spec, run(self.job, spec, [source]).answer))

    def transform_batches(self, chunks: Iterable[ArrayLike]) -> Iterator[Floats]:
        """Yield the coordinates of a table in chunks of any length, with one job for each batch."""
        spec, done = self._spec(NEW_ROWS, ["transform"]), 0
        for chunk in contribution(spec.data, 0, Source(None, chunks, self.names), _no_key):
            found = self._coordinates(self._result(spec, self.job.run_job(spec, [chunk])))
            done += len(found)
            self.job.progress(f"transform, {done:,} rows", None)
            yield found

    def inverse_transform(self, coordinates: ArrayLike) -> Floats:
        """Return rows rebuilt from coordinates; of a standardised model in standardised units."""
        array = np.asarray(coordinates, np.float64)
        scale = np.full(array.shape[1], 0 if self.standardized else self.scale[0])
        spec = self._spec(COORDINATES, ["inverse"], scale=scale)
        answer = run(self.job, spec, [Source(None, [array])]).answer
        rows = self._result(spec, answer).rebuilt
        assert rows is not None
        if self.standardized:
            return rows
        far = np.abs(rows).max(axis=0, initial=0.0) >= FAR
        if far.any():
            column = int(far.argmax())
            name = repr(self.names[column]) if self.names else str(column + 1)
            raise ValueError(
                f"column {name} is 2^36 or more scales of the model from zero, more than shares can represent. "
                "Subtract the same offset from the column at all owners and fit again."
            )
        return rows * np.ldexp(1.0, self.scale)

    def score_samples(self, rows: Any) -> Floats:
        """Return anomaly scores: the squared distance of every row to its projection. Scores above 2^45 units are
        equal."""
        scores, _ = self.detect_batches(self._chunks(rows), scores=True)
        assert scores is not None
        return scores

    def detect(
        self, rows: Any, *, threshold: float | None = None, contamination: float | None = None
    ) -> NDArray[np.bool_]:
        """Return flags of anomalous rows: score above the threshold, or the given fraction of rows with the largest
        scores."""
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
        """Return the requested scores and flags of a table in chunks. Scores stay shared until all are computed."""
        spec = self._spec(NEW_ROWS, _verdict_parts(threshold, contamination, scores), threshold, contamination)
        found = self._result(spec, run(self.job, spec, [Source(None, chunks, self.names)]).answer)
        return found.scores, found.flags

    def _chunks(self, rows: Any) -> Iterator[Floats]:
        for chunk in open_like(rows, self.names, len(self.scale)).chunks():
            yield chunk.astype(np.float64)

    def _spec(
        self,
        form: str,
        parts: Sequence[str],
        threshold: float | None = None,
        contamination: float | None = None,
        scale: NDArray[np.int64] | None = None,
    ) -> JobSpec:
        """Return a job that uses the model on rows with all columns."""
        exponents = tuple(int(exponent) for exponent in (self.scale if scale is None else scale))
        data = row_data(
            form, 1, len(exponents), self.job.servers.member, standardize=self.standardized, scales=exponents
        )
        return JobSpec(
            data=data,
            analysis=self._use(threshold, contamination),
            receivers={self.job.receiver: tuple(parts)},
        )

    def _use(self, threshold: float | None, contamination: float | None) -> UseModel:
        limits = [None if limit is None else float(limit) for limit in (threshold, contamination)]
        return UseModel(model=self.name, threshold=limits[0], contamination=limits[1])

    def _result(self, spec: JobSpec, answer: dict[str, Any]) -> UseResult:
        """Return the checked result of the one receiver of a job."""
        (receiver,) = spec.receivers
        found: UseResult = result_of(
            Received(spec, receiver, received(answer, receiver), self.job.account, self.names, self.name)
        )
        return found

    def _coordinates(self, found: UseResult) -> Floats:
        """Return coordinates along the components of the model."""
        assert found.coordinates is not None
        return found.coordinates[:, : self.components]

    # -- rows whose columns belong to several owners -------------------------------------------------------------------

    def transform_columns(self, owners: Any, partition: Columns, receiver: int = 0) -> Joined:
        """Return coordinates of the new rows that all column owners have. owners: in the order of the fit.

        receiver: the position of the owner that gets the results, with its own ids: only an owner can link tags to ids.
        """
        sources = self._opened(owners, partition, receiver)
        found = self._inferred(sources, partition, receiver, ["transform"])
        return Joined(_ids(sources[receiver], found.values), coordinates=self._coordinates(found))

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
        """Return the requested scores and flags of new rows of column owners; see `transform_columns`."""
        parts = _verdict_parts(threshold, contamination, scores)
        sources = self._opened(owners, partition, receiver)
        found = self._inferred(sources, partition, receiver, parts, threshold=threshold, contamination=contamination)
        return Joined(_ids(sources[receiver], found.values), scores=found.scores, flags=found.flags)

    def _opened(self, owners: Any, partition: Columns, receiver: int) -> list[Source]:
        """Open every owner's table and check it against the model."""
        tables = open_columns(owners, partition.id)
        if not 0 <= receiver < len(tables):
            raise ValueError(f"receiver={receiver}: there are {len(tables)} owners, counted from 0")
        self._check_columns([(table.names, table.n_columns) for table in tables])
        return [Source(table) for table in tables]

    def _check_columns(self, owners: Sequence[tuple[list[str] | None, int]]) -> None:
        width = sum(count for _, count in owners)
        if width != len(self.scale):
            raise BadColumns(f"the owners have {width} columns, the model {len(self.scale)}. Give the same columns.")
        names: list[str | None] = []
        for own, count in owners:
            names += own or [None] * count
        for at, (name, known) in enumerate(zip(names, self.names or names, strict=True), start=1):
            # The model prefixes a name that two owners use with the owner.
            if name is not None and known is not None and name != known and not known.endswith(f":{name}"):
                raise BadColumns(
                    f"column {at} is {name!r} here and {known!r} in the model. Give owners and "
                    "columns in the order of the fit."
                )

    def _inferred(
        self,
        sources: Sequence[Source],
        partition: Columns,
        receiver: int,
        parts: Sequence[str],
        threshold: float | None = None,
        contamination: float | None = None,
    ) -> UseResult:
        """Share all rows, let the servers match them and use the model on them; return the receiver's result."""
        scale, member = tuple(int(exponent) for exponent in self.scale), self.job.servers.member
        widths = [source.table.n_columns for source in sources]
        data = column_data(NEW_COLUMNS, widths, partition, member, standardize=self.standardized, scales=scale)
        name = self.job.servers.member or owner_name(receiver)
        use = self._use(threshold, contamination)
        spec = JobSpec(data=data, analysis=use, receivers={name: tuple(parts)})
        answer = run(self.job, spec, sources).answer
        check_matched(answer, partition, [source.records() for source in sources])
        return self._result(spec, answer)


def _verdict_parts(threshold: float | None, contamination: float | None, scores: bool) -> list[str]:
    """Return the requested parts of the result; raise if there is none."""
    try:
        parts = verdict_parts(threshold, contamination, scores)
    except SpecError as error:
        raise error.short() from None
    if not parts:
        raise ValueError(
            "nothing to compute: threshold and contamination are None and scores is False. Set one of them."
        )
    return parts


def _no_key() -> bytes:
    """Raise: rows with all columns are not joined by ids."""
    raise AssertionError


def _ids(own: Source, answer: dict[str, Any]) -> Any:
    """Return the receiver's own ids of the rows."""
    assert own.arranged is not None
    return own.arranged.ids_of(answer["rows"], answer.get("tags"))
