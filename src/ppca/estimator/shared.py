"""A model that nobody holds: its shares stay with the servers under a name, and are used there on shared rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..cluster import LocalCluster
from ..protocol import share
from . import inference


@dataclass
class SharedModel:
    """Inference with a model and rows that are both secret. Results go to the caller, the receiver.

    scale: the public exponents of the columns; standardized: whether columns are divided by their joint deviation.
    """

    cluster: LocalCluster
    name: str
    scale: NDArray[np.int64]
    standardized: bool

    def transform(self, rows: ArrayLike) -> NDArray[np.float64]:
        """Coordinates of the rows: as `PCA.transform`, up to the signs of components, which nobody knows."""
        answer = self.cluster.run(inference.transform, self._rows(rows), model=self.name)
        return np.asarray(answer["coordinates"]) * self._unit()

    def inverse_transform(self, coordinates: ArrayLike) -> NDArray[np.float64]:
        """Rows rebuilt from coordinates; of a standardised model in standardised units."""
        packets = share(np.asarray(coordinates, np.float64) / self._unit(), name="coordinates")
        rows = np.asarray(self.cluster.run(inference.inverse_transform, packets, model=self.name)["rows"])
        return rows if self.standardized else rows * np.ldexp(1.0, self.scale)

    def score_samples(self, rows: ArrayLike) -> NDArray[np.float64]:
        """Anomaly scores: squared distance of every row to its projection."""
        answer = self.cluster.run(inference.detect, self._rows(rows), model=self.name, scores=True)
        return np.asarray(answer["scores"]) * self._unit() ** 2

    def detect(
        self, rows: ArrayLike, *, threshold: float | None = None, contamination: float | None = None
    ) -> NDArray[np.bool_]:
        """Flags of anomalous rows: score above the threshold, or the given share of rows with the largest scores."""
        if (threshold is None) == (contamination is None):
            raise ValueError("give either threshold or contamination")
        if contamination is not None and not 0 < contamination <= 0.5:
            raise ValueError(f"contamination={contamination} must lie in (0, 0.5]")
        scaled = None if threshold is None else float(threshold) / self._unit() ** 2
        packets = self._rows(rows)
        answer = self.cluster.run(
            inference.detect, packets, model=self.name, threshold=scaled, contamination=contamination
        )
        return np.asarray(answer["flags"]).astype(bool)

    def _rows(self, rows: ArrayLike) -> list[Any]:
        array = np.asarray(rows, np.float64)
        if array.ndim != 2 or array.shape[1] != len(self.scale):
            raise ValueError(f"rows must have {len(self.scale)} columns, got shape {array.shape}")
        kind = inference.STANDARD if self.standardized else inference.RAW
        return share(array * np.ldexp(1.0, -self.scale), kind, "row")

    def _unit(self) -> float:
        """One scaled unit in the units of the data."""
        return 1.0 if self.standardized else float(np.ldexp(1.0, int(self.scale[0])))
