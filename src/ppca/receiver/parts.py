"""The parts of a fit that a receiver got, in the units of the data: all of them make a model, some of them are
tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .angles import RIGHT_ANGLE, Bounds, column_error

Floats = NDArray[np.float64]


@dataclass
class Parts:
    """Values revealed to one receiver; None if not revealed. Variances and components as in scikit-learn.

    loadings: what belongs of the components to the receiver's own columns. Means and deviations are then of these, too.
    angles: bounds of the angles of the components, see `angles`. spaces: neighbouring components that only together are
    determined: first, stop and angle.
    """

    rows: int
    standardized: bool
    components: Floats | None
    variances: Floats | None
    total_variance: float | None
    mean: Floats | None
    deviation: Floats | None
    loadings: Floats | None = None
    angles: Floats | None = None
    spaces: list[tuple[int, int, float]] = field(default_factory=list)

    @classmethod
    def of(cls, result: dict[str, Any], scale: NDArray[np.int64]) -> Self:
        """From what the servers returned, joined for one receiver (`unsealing.received`). scale: exponents of its
        columns."""
        rows, grow, standardized = int(result["rows"]), np.ldexp(1.0, scale), bool(result["standardized"])
        # The servers had ratio * C; for row owners it is n / 4^h with 4^h above n, which only the receiver knows.
        ratio = result["ratio"] or rows / 4.0 ** -(-rows.bit_length() // 2)
        components = variances = total = mean = deviation = None
        if "components" in result:
            components = np.asarray(result["components"], np.float64)[:rows]
            if not result.get(
                "oriented"
            ):  # else the signs are those of the kept model and of loadings, also if entries tie
                components = signed(components)
        if "values" in result:
            unit = _variance_unit(result, rows, standardized, ratio, float(grow[0]))
            variances = np.maximum(np.asarray(result["values"], np.float64), 0.0)[:rows] * unit
            total = max(float(result["total"]), 0.0) * unit
        if "mean" in result:
            mean = np.ldexp(np.asarray(result["mean"], np.float64), np.asarray(result["mean_exponents"], np.int64))
        if "inverse" in result:
            inverse = np.asarray(result["inverse"]) * np.asarray(result["power"]) * 2.0**60 * math.sqrt(ratio)
            deviation = np.divide(grow, inverse, out=np.ones_like(grow), where=inverse > 0)
        loadings = None
        if "loadings" in result:  # with the signs that the servers gave to whole components
            loadings = np.asarray(result["loadings"], np.float64)[:rows]
        found = cls(rows, standardized, components, variances, total, mean, deviation, loadings)
        if components is not None and variances is not None and (deviation is not None or not standardized):
            largest = float(variances.max(initial=0.0)) * (rows - 1) / rows
            moved = result["errors"]["rounding"] + column_error(result["errors"], scale, deviation, largest)
            found._bound_angles(result, moved)
        return found

    def _bound_angles(self, result: dict[str, Any], moved: float) -> None:
        """Find `angles` and `spaces`. moved: |A - A'|_2, see `angles`."""
        assert self.components is not None
        count, width = self.components.shape
        values = np.asarray(result["values"], np.float64)
        # Without a bound nothing was left out but directions in which the data do not vary.
        following = float(result.get("following", 0.0 if len(values) < width else -np.inf))
        bounds = Bounds(values, following, result["errors"]["residual"], moved)
        self.angles = bounds.angles()[:count]
        absent = np.linalg.norm(self.components, axis=1) < 0.5  # noise of a table with more columns than rows
        self.angles[absent | (not result["verified"])] = RIGHT_ANGLE
        if result["verified"]:
            self.spaces = [
                space for space in bounds.spaces() if space[1] <= count and not absent[space[0] : space[1]].any()
            ]

    @property
    def missing(self) -> list[str]:
        """Parts that a whole model needs and this receiver did not get."""
        parts = {"components": self.components, "variances": self.variances, "means": self.mean}
        if self.standardized:
            parts["deviations"] = self.deviation
        return [name for name, part in parts.items() if part is None]

    @property
    def variance_ratio(self) -> Floats | None:
        if self.variances is None:
            return None
        return self.variances / self.total_variance if self.total_variance else np.zeros_like(self.variances)

    def tables(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return what there is as tables, by the name of their file: columns by their headings. names: of the
        receiver's columns."""
        found: dict[str, dict[str, Any]] = {}
        for name, vectors in (("components", self.components), ("loadings", self.loadings)):
            if vectors is not None:
                found[f"{name}.csv"] = dict(zip(names, vectors.T, strict=True))
        if self.variances is not None and self.variance_ratio is not None:
            found["explained_variance.csv"] = {
                "component": np.arange(1, len(self.variances) + 1),
                "explained_variance": self.variances,
                "explained_variance_ratio": self.variance_ratio,
                "cumulative_ratio": np.cumsum(self.variance_ratio),
                "singular_value": np.sqrt(self.variances * (self.rows - 1)),
            }
        for name, values in (("mean", self.mean), ("deviation", self.deviation)):
            if values is not None:
                found[f"{name}s.csv"] = {"column": np.asarray(names), name: values}
        return found


def _variance_unit(result: dict[str, Any], rows: int, standardized: bool, ratio: float, grow: float) -> float:
    """One unit of the servers' eigenvalues in the units of the data."""
    factor = float(result["factor"]) * 2.0**100
    # A = C * factor / 2^shift, so C's eigenvalues are A's times 2^shift / factor.
    unit = 2.0 ** result["shift"] / factor if factor else 0.0
    if result.get("summed"):  # eigenvalues of sums over rows, not of means
        unit /= rows
    unbiased = rows / (rows - 1)
    # scikit-learn's StandardScaler divides by the population deviation; PCA then by n - 1.
    return float(unit * unbiased if standardized else unit / ratio * unbiased * grow**2)


def signed(components: Floats) -> Floats:
    """scikit-learn's convention: the entry of largest magnitude of every component is positive."""
    if not components.size:
        return components
    largest = components[np.arange(len(components)), np.argmax(np.abs(components), axis=1)]
    return np.asarray(components * np.where(largest < 0, -1.0, 1.0)[:, None])
