"""The revealed model: what the receiver of a joint PCA holds. Plain NumPy, scikit-learn's names, JSON on disk."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..runtime.files import write_whole
from .angles import DETERMINED
from .facts import read_whole
from .parts import Parts

FORMAT = "ppca-model-2"

MODEL_FILE = "model.json"
"""The name of a model in the folder of a result."""

ROUNDED = 2.0**-10
"""Part of a deviation from which on rounding of the means is not taken in silence."""

ONE_COLUMN = 0.9
"""Smallest squared loading with which a component is said to be almost only one column. Raw wine quality has 0.945."""

Floats = NDArray[np.float64]


@dataclass
class PCAModel:
    """Components and variances in the units of the data, as scikit-learn has them.

    resolution: a variance below this part of the total is noise of the computation, and so is its component.
    tolerance: the tolerance that was reached: the result was verified with it. A solver may reach less than was asked
    for.
    component_error: for every component a bound of its angle to the exact one, in radians (see `angles`).
    spaces: neighbouring components that are determined only together, by the space they span: the first and the last,
    counted from 1, and a bound of the angle of that space.
    certificate: of a solver that looked for the largest components only, what is excluded that it missed: a variance of
    `factor` times the last one that it found (and above `floor` of the total), but with `probability`.
    """

    components: Floats
    explained_variance: Floats
    explained_variance_ratio: Floats
    total_variance: float
    mean: Floats
    scale: Floats | None
    rows: int
    feature_names: list[str] | None
    solver: str
    iterations: int
    verified: bool
    fell_back: bool
    resolution: float
    tolerance: float
    component_error: Floats
    spaces: list[dict[str, Any]] = field(default_factory=list)
    certificate: dict[str, float] | None = None
    audit: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def from_result(
        cls,
        result: dict[str, Any],
        *,
        scale: NDArray[np.int64],
        names: list[str] | None,
        audit: list[dict[str, Any]],
    ) -> Self:
        """Put the revealed parts of a fit into the units of the data, with deterministic signs."""
        parts = Parts.of(result, scale)
        if parts.missing or parts.components is None or parts.variances is None or parts.mean is None:
            raise ValueError(
                f"this receiver did not get the {' and the '.join(parts.missing)} of the fit, so it does not have a "
                "whole model; what it got can be had as tables"
            )
        return cls(
            components=parts.components,
            explained_variance=parts.variances,
            explained_variance_ratio=np.asarray(parts.variance_ratio),
            total_variance=float(parts.total_variance or 0.0),
            mean=parts.mean,
            scale=parts.deviation,
            rows=parts.rows,
            feature_names=names,
            solver=result["solver"],
            iterations=result["iterations"],
            verified=result["verified"],
            fell_back=result["fell_back"],
            resolution=result["resolution"],
            tolerance=result["tolerance"],
            component_error=np.asarray(parts.angles),
            spaces=[{"first": at + 1, "last": stop, "error": angle} for at, stop, angle in parts.spaces],
            certificate=result["certificate"],
            audit=audit,
        )

    @property
    def column_names(self) -> list[str]:
        """Names of the columns; numbered from 1 if the data have none."""
        return list(self.feature_names or (f"column {j + 1}" for j in range(self.components.shape[1])))

    @property
    def varies(self) -> NDArray[np.bool_]:
        """Return, for each component, whether its variance exceeds the noise of the computation."""
        return np.asarray(self.explained_variance_ratio > self.resolution)

    @property
    def resolved(self) -> NDArray[np.bool_]:
        """Return, for each component, whether it is determined: variance above the noise, angle error below 1e-2."""
        return self.varies & (self.component_error <= DETERMINED)

    @property
    def noise_variance(self) -> float:
        """Mean of the variances left out, as in probabilistic PCA."""
        left = min(self.components.shape[1], self.rows) - len(self.components)
        return max(0.0, self.total_variance - float(self.explained_variance.sum())) / left if left else 0.0

    @property
    def noise_resolved(self) -> bool:
        """Return whether `noise_variance` stands above the noise of the computation, or is zero because nothing was
        left out."""
        left = min(self.components.shape[1], self.rows) - len(self.components)
        floor = self.resolution * self.total_variance * (len(self.components) + 1)
        return bool(left == 0 or self.noise_variance * left > floor)

    def remarks(self) -> list[str]:
        """Return what a reader must know of components that are not determined one by one, in sentences."""
        found = []
        spanned = np.zeros(len(self.components), bool)
        for space in self.spaces:
            first, last = space["first"], space["last"]
            spanned[first - 1 : last] = True
            what = "plane" if last == first + 1 else f"space of {last - first + 1} dimensions"
            which = f"{first} and {last}" if last == first + 1 else f"{first} to {last}"
            alike = (
                "(nearly) equal variances" if self.varies[first - 1 : last].all() else "variances below the resolution"
            )
            found.append(
                f"Components {which} have {alike}: only the {what} that they span is determined, "
                f"to an angle of {space['error']:.0e}."
            )
        loose = np.flatnonzero(self.varies & (self.component_error > DETERMINED) & ~spanned) + 1
        if len(loose):
            which = f"Component {loose[0]} is" if len(loose) == 1 else f"Components {_ranges(loose)} are"
            found.append(
                f"{which} not determined to this accuracy: variances are so close that the angle error "
                f"may exceed {DETERMINED:g}."
            )
        return found

    def scale_notice(self) -> str | None:
        """Return what a reader should know if one column is nearly all of the first component: then scales decide, not
        correlation."""
        if self.scale is not None or self.components.shape[1] == 1:
            return None
        weights, ratio = self.components[0] ** 2, float(self.explained_variance_ratio[0])
        column = int(np.argmax(weights))
        if weights[column] < ONE_COLUMN or ratio < 0.8:
            return None
        name = repr(self.feature_names[column]) if self.feature_names else str(column + 1)
        return (
            f"component 1 explains {100 * ratio:.2f} % of the variance and is almost only column {name} (loading "
            f"{abs(self.components[0, column]):.4f}): that column has the largest scale. If columns have different "
            "units, standardise them"
        )

    @property
    def singular_values(self) -> Floats:
        return np.asarray(np.sqrt(self.explained_variance * (self.rows - 1)))

    def project(self, rows: Floats) -> Floats:
        """Coordinates of plain rows."""
        self.refuse_rounded()
        return self._centred(rows) @ self.components.T

    def scores(self, rows: Floats) -> Floats:
        """Squared distance of plain rows to their projection; of a standardised model in standardised units."""
        count, width = self.components.shape
        if count == width:
            raise ValueError(
                f"the model keeps all {width} components, which describe every row exactly, so no row can "
                "stand out. Fit with fewer."
            )
        self.refuse_rounded(outside=True)
        centred = self._centred(rows)
        rest = centred - centred @ self.components.T @ self.components
        return np.asarray(np.einsum("ij,ij->i", rest, rest))

    def covariance(self) -> Floats:
        """Return the covariance of probabilistic PCA (Tipping and Bishop): kept variances, and the mean of the others
        elsewhere."""
        return self._spread(self.explained_variance, self.noise_variance, self._units)

    def precision(self) -> Floats:
        """The inverse of `covariance`; raises if that has none."""
        self._refuse_flat("no inverse")
        noise = 1 / self.noise_variance if self._left_out else 0.0
        return self._spread(1 / self.explained_variance, noise, 1 / self._units)

    def log_likelihood(self, rows: Floats) -> Floats:
        """Return the log-likelihood of plain rows under a normal distribution with the model's mean and covariance."""
        self._refuse_flat("no density")
        self.refuse_rounded(outside=True)
        centred = self._centred(rows)
        projected = centred @ self.components.T
        distance = np.sum(projected**2 / self.explained_variance, axis=1)
        log_det = np.sum(np.log(self.explained_variance)) + 2 * np.sum(np.log(self._units))
        if self._left_out:
            distance += self.scores(rows) / self.noise_variance
            log_det += self._left_out * np.log(self.noise_variance)
        return np.asarray(-0.5 * (distance + log_det + len(self.mean) * np.log(2 * np.pi)))

    @property
    def _left_out(self) -> int:
        """Directions without a component."""
        return len(self.mean) - len(self.components)

    @property
    def _units(self) -> Floats:
        return np.ones_like(self.mean) if self.scale is None else self.scale

    def _spread(self, kept: Floats, rest: float, units: Floats) -> Floats:
        """A matrix with these eigenvalues along the components, and `rest` in all other directions."""
        width = len(self.mean)
        matrix = (self.components.T * (kept - rest)) @ self.components + rest * np.eye(width)
        return np.asarray(matrix * np.outer(units, units))

    def _refuse_flat(self, what: str) -> None:
        """Refuse a model in which some direction does not vary: its covariance is singular."""
        least = self.noise_variance if self._left_out else np.inf
        if min(least, float(self.explained_variance.min(initial=np.inf))) <= self.resolution * self.total_variance:
            raise ValueError(
                f"the covariance of this model is singular, so it has {what}: a variance lies below the "
                f"resolution, {self.resolution:.1g} of the total. Fit with fewer components, or without "
                "constant and dependent columns."
            )

    def refuse_rounded(self, *, outside: bool = False) -> None:
        """Refuse rows in the clear if doubles, which rows and means are then, are too coarse for a component.

        outside: also if they are too coarse for what the components leave out.
        """
        rounding = np.spacing(np.abs(self.mean)) / self._units
        moved, variance = np.abs(self.components[self.varies]) * rounding, self.explained_variance[self.varies]
        if outside and self._left_out:
            noise = max(self.noise_variance, self.resolution * self.total_variance)
            moved, variance = np.vstack([moved, rounding]), np.append(variance, noise)
        bad = moved.max(axis=1, initial=0.0) > ROUNDED * np.sqrt(variance)
        if self.total_variance > 0 and bad.any():
            column = int(moved[bad.argmax()].argmax())
            name, mean = self.feature_names[column] if self.feature_names else str(column + 1), self.mean[column]
            raise ValueError(
                f"column {name!r} has a mean of {mean:.3g}, where doubles are {np.spacing(abs(mean)):.2g} apart: too "
                "far for rows in the clear under this model. Subtract the same offset from the column at all "
                "owners, and fit again."
            )

    def _centred(self, rows: Floats) -> Floats:
        centred = rows - self.mean
        return centred if self.scale is None else centred / self.scale

    def save(self, path: Path) -> None:
        """JSON with every digit, written whole or not at all."""
        data = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in asdict(self).items()}
        write_whole(path, (json.dumps({"format": FORMAT, **data}, indent=1) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> Self:
        data = read_whole(path, FORMAT)
        try:
            for key in (
                "components",
                "explained_variance",
                "explained_variance_ratio",
                "mean",
                "scale",
                "component_error",
            ):
                data[key] = None if data[key] is None else np.asarray(data[key], np.float64)
            return cls(**data)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"cannot read {path}: {error}") from None


def _ranges(numbers: NDArray[np.intp]) -> str:
    """Ascending numbers as "2, 5 to 7 and 9"."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    texts = [f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
