"""A model that nobody holds: its shares stay with the servers under a name, and are used there on shared rows."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..jobs import inference
from ..protocol import share
from ..servers import LocalServers
from .joined import Joined, JointRows

Floats = NDArray[np.float64]
Progress = Callable[[str, float | None, int], None]

BATCH = 1 << 19
"""Numbers that travel to the servers in one run: about 8 MB for each."""

REACH = 2.0**inference.RAW.span
"""Rows may be so many times larger than the scale of the fitted data."""


@dataclass
class SharedFacts:
    """What is public of a model whose shares stay with the servers: enough to use it, nothing of its content."""

    name: str
    scale_exponents: list[int]
    standardized: bool
    components: int
    rows: int
    feature_names: list[str] | None
    solver: str
    iterations: int
    verified: bool | None
    fell_back: bool
    audit: list[dict[str, Any]] = field(default_factory=list)

    FORMAT = "ppca-shared-1"

    def save(self, path: Path) -> None:
        """JSON, written whole or not at all."""
        part = path.with_suffix(path.suffix + ".part")
        part.write_text(json.dumps({"format": self.FORMAT, **asdict(self)}, indent=1) + "\n")
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            data = json.loads(path.read_text())
            if data.pop("format", None) != cls.FORMAT:
                raise ValueError("it does not describe a shared model")
            return cls(**data)
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(f"cannot read {path}: {error}") from None


@dataclass
class SharedModel:
    """Inference with a model and rows that are both secret. Results go to the caller, the receiver.

    scale: the public exponents of the columns; standardized: whether columns are divided by their joint deviation.
    names: what messages call the columns.

    Coordinates come with one unknown sign per component, the same for all rows and all calls: signs are chosen by looking at
    the components, which nobody does here. Scores, flags and distances do not depend on them.
    """

    servers: LocalServers
    name: str
    scale: NDArray[np.int64]
    standardized: bool
    names: list[str] | None = None

    def transform(self, rows: ArrayLike, *, progress: Progress | None = None) -> Floats:
        """Coordinates of the rows: as `PCA.transform`, up to the signs of components, which nobody knows."""
        return np.vstack(list(self.transform_batches([np.asarray(rows)], progress=progress)))

    def transform_batches(self, chunks: Iterable[ArrayLike], *, progress: Progress | None = None) -> Iterator[Floats]:
        """The same for a table in pieces of any length; yields the coordinates piece by piece."""
        for packets in self._shared(chunks):
            answer = self.servers.run(inference.transform, packets, progress=progress, model=self.name)
            yield np.asarray(answer["coordinates"]) * self.unit

    def inverse_transform(self, coordinates: ArrayLike) -> Floats:
        """Rows rebuilt from coordinates; of a standardised model in standardised units."""
        packets = share(np.asarray(coordinates, np.float64) / self.unit, name="coordinates")
        rows = np.asarray(self.servers.run(inference.inverse_transform, packets, model=self.name)["rows"])
        return rows if self.standardized else rows * np.ldexp(1.0, self.scale)

    def score_samples(self, rows: ArrayLike) -> Floats:
        """Anomaly scores: squared distance of every row to its projection."""
        scores, _ = self.detect_batches([np.asarray(rows)], scores=True)
        assert scores is not None
        return scores

    def detect(
        self, rows: ArrayLike, *, threshold: float | None = None, contamination: float | None = None
    ) -> NDArray[np.bool_]:
        """Flags of anomalous rows: score above the threshold, or the given share of rows with the largest scores."""
        if threshold is None and contamination is None:
            raise ValueError("give either threshold or contamination")
        _, flags = self.detect_batches([np.asarray(rows)], threshold=threshold, contamination=contamination)
        assert flags is not None
        return flags

    def detect_batches(
        self,
        chunks: Iterable[ArrayLike],
        *,
        threshold: float | None = None,
        contamination: float | None = None,
        scores: bool = False,
        progress: Progress | None = None,
    ) -> tuple[Floats | None, NDArray[np.bool_] | None]:
        """Scores and flags, as far as they are asked for, of a table in pieces. Scores stay shared until all are there."""
        check_limits(threshold, contamination)
        table = secrets.token_hex(8)
        for packets in self._shared(chunks):
            self.servers.run(inference.add_scores, packets, progress=progress, model=self.name, table=table)
        return self.judge(table, threshold=threshold, contamination=contamination, scores=scores, progress=progress)

    def judge(
        self,
        table: str,
        *,
        threshold: float | None,
        contamination: float | None,
        scores: bool,
        receiver: str = "client",
        progress: Progress | None = None,
    ) -> tuple[Floats | None, NDArray[np.bool_] | None]:
        """Scores and flags, as far as they are asked for, from scores that stayed shared under the name `table`."""
        unit = self.unit**2
        highest = 2.0 ** (inference.SCORE.span - 1)
        answer = self.servers.run(
            inference.detect,
            progress=progress,
            table=table,
            threshold=None if threshold is None else min(float(threshold) / unit, highest),
            contamination=contamination,
            scores=scores,
            receiver=receiver,
        )
        found = np.maximum(answer["scores"], 0.0) * unit if scores else None
        return found, np.asarray(answer["flags"]).astype(bool) if "flags" in answer else None

    # -- rows whose columns belong to several owners -----------------------------------------------------------------

    def transform_columns(
        self,
        owners: Sequence[Any],
        *,
        id: str | None = None,
        alignment: Any = "psi",
        receiver: int = 0,
        progress: Progress | None = None,
    ) -> Joined:
        """Coordinates of new rows, each owner giving its columns; with the ids of the owner that receives them."""
        return JointRows(self, owners, id, alignment, receiver, progress).transform()

    def detect_columns(
        self,
        owners: Sequence[Any],
        *,
        threshold: float | None = None,
        contamination: float | None = None,
        scores: bool = False,
        id: str | None = None,
        alignment: Any = "psi",
        receiver: int = 0,
        progress: Progress | None = None,
    ) -> Joined:
        """Scores and flags of new rows, as far as they are asked for, each owner giving its columns; see `transform_columns`."""
        check_limits(threshold, contamination)
        if threshold is None and contamination is None and not scores:
            raise ValueError("nothing to find: give threshold, contamination or scores=True")
        rows = JointRows(self, owners, id, alignment, receiver, progress)
        return rows.detect(threshold=threshold, contamination=contamination, scores=scores)

    def _shared(self, chunks: Iterable[ArrayLike]) -> Iterator[list[Any]]:
        """Shares of the rows, a batch at a time."""
        kind = inference.STANDARD if self.standardized else inference.RAW
        rows = max(1, BATCH // len(self.scale))
        before = 0
        for chunk in chunks:
            array = np.asarray(chunk, np.float64)
            if array.ndim != 2 or array.shape[1] != len(self.scale):
                raise ValueError(f"rows must have {len(self.scale)} columns, got shape {array.shape}")
            for start in range(0, len(array), rows):
                part = array[start : start + rows]
                self._check(part, before + start)
                yield share(part * np.ldexp(1.0, -self.scale), kind, "row")
            before += len(array)

    def _check(self, rows: Floats, before: int) -> None:
        """Refuses values that do not fit the fixed-point numbers of the model."""
        limits = REACH * np.ldexp(1.0, self.scale)
        bad = ~(np.abs(rows) < limits)
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            name = f"column {self.names[column]!r}" if self.names else f"column {column + 1}"
            raise ValueError(
                f"{name} has {rows[row, column]:g} in row {before + row + 1:,}; this model takes magnitudes below "
                f"{limits[column]:g}, {REACH:g} times the scale of the data it was fitted on. Remove the row, or fit again with "
                "larger bounds."
            )

    @property
    def unit(self) -> float:
        """One scaled unit in the units of the data."""
        return 1.0 if self.standardized else float(np.ldexp(1.0, int(self.scale[0])))


def check_limits(threshold: float | None, contamination: float | None) -> None:
    """Refuses what cannot be a limit between normal and anomalous rows."""
    if threshold is not None and contamination is not None:
        raise ValueError("give either a threshold or a contamination, not both")
    if contamination is not None and not 0 < contamination <= 0.5:
        raise ValueError(f"contamination={contamination} must lie in (0, 0.5]")
    if threshold is not None and not 0 <= threshold < np.inf:
        raise ValueError(f"threshold={threshold} must be a number, at least 0")


def flags_of(scores: Floats, threshold: float | None, contamination: float | None) -> NDArray[np.bool_] | None:
    """What `SharedModel.detect` flags, from plain scores."""
    if threshold is not None:
        return np.asarray(scores > threshold)
    if contamination is None:
        return None
    count = max(1, math.ceil(contamination * len(scores)))
    return np.asarray(scores >= np.sort(scores)[-count])
