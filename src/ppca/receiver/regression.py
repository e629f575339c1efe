"""The result of a joint regression, in the units of the data: coefficients, errors, tests, and what describes the
fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..jobs.regression import JointRegression
from ..runtime.files import write_whole
from .facts import read_whole

Floats = NDArray[np.float64]

FORMAT = "ppca-regression-1"
REGRESSION_FILE, COEFFICIENTS_FILE, CORRELATION_FILE = "regression.json", "coefficients.csv", "correlation.csv"
LEVEL = 0.95
"""Confidence level unless another is asked for."""

RESOLUTION = 2.0**-26
"""Standard errors are given if a larger share of the variance is unexplained. The covariance errs by about 2^-46 of the
variances, so they then have six digits."""

ARRAYS = ("coefficients", "standard_errors", "correlation", "inflation")


@dataclass
class RegressionModel:
    """Result of a regression for one receiver; None: not revealed to it.

    columns: names of the columns beside the target. standard_errors: of the coefficients, then of the intercept; NaN if
    they are below the resolution, or without a degree of freedom. correlation: of the columns and the target (last).
    """

    target: str
    columns: list[str]
    rows: int
    method: str
    alpha: float
    scaled: bool
    coefficients: Floats | None = None
    intercept: float | None = None
    standard_errors: Floats | None = None
    r2: float | None = None
    residual_sum: float | None = None
    correlation: Floats | None = None
    inflation: Floats | None = None
    audit: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def from_result(
        cls, result: dict[str, Any], analysis: JointRegression, names: Sequence[str], audit: list[dict[str, Any]]
    ) -> Self:
        """Put what was revealed into the units of the data. names: of all columns."""
        columns = list(names)
        target = columns.pop(list(names).index(analysis.target)) if analysis.target in names else analysis.target
        model = cls(target, columns, int(result["rows"]), analysis.method, analysis.alpha, analysis.scaled, audit=audit)
        model.coefficients = _number(result, "coefficients", "scale of the coefficients")
        if (intercept := _number(result, "intercept", "scale of the intercept")) is not None:
            model.intercept = float(intercept.ravel()[0])
        if "unexplained share of the variance" in result:
            model.r2 = 1.0 - float(np.ravel(result["unexplained share of the variance"])[0])
        if (total := _number(result, "residual sum of squares", "scale of the residuals")) is not None:
            model.residual_sum = max(0.0, float(total[0])) / result.get("share", 1.0)
        if (squares := _number(result, "standard errors", "scale of the standard errors")) is not None:
            assert model.r2 is not None
            usable = model.freedom > 0 and 1 - model.r2 > RESOLUTION
            found = np.sqrt(np.maximum(squares, 0.0) / max(model.freedom, 1))
            model.standard_errors = found if usable else np.full_like(found, np.nan)
        if "correlation matrix" in result:
            model.correlation = _unpacked(np.asarray(result["correlation matrix"], np.float64), len(columns) + 1)
        if "variance inflation factors" in result:
            model.inflation = np.asarray(result["variance inflation factors"], np.float64)
        return model

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the residuals: n - p - 1."""
        return self.rows - len(self.columns) - 1

    @property
    def residual_variance(self) -> float | None:
        """The residual sum of squares by degree of freedom."""
        if self.residual_sum is None or self.freedom <= 0 or self.method != "ols":
            return None
        return self.residual_sum / self.freedom

    @property
    def adjusted_r2(self) -> float | None:
        if self.r2 is None or self.freedom <= 0 or self.method != "ols":
            return None
        return 1 - (1 - self.r2) * (self.rows - 1) / self.freedom

    @property
    def f_test(self) -> tuple[float, float] | None:
        """The F statistic of all coefficients together, and its p value."""
        if self.adjusted_r2 is None or self.r2 is None or 1 - self.r2 <= RESOLUTION:
            return None
        from scipy.special import fdtrc

        count = len(self.columns)
        statistic = self.r2 / count / ((1 - self.r2) / self.freedom)
        return statistic, float(fdtrc(count, self.freedom, statistic))

    @property
    def terms(self) -> list[str]:
        """Names of the rows of a coefficient table: the columns, and the intercept if it is known."""
        return [*self.columns, *(["intercept"] if self.intercept is not None else [])]

    @property
    def estimates(self) -> Floats | None:
        """The coefficients, and the intercept if it is known."""
        if self.coefficients is None:
            return None
        return np.append(self.coefficients, [] if self.intercept is None else [self.intercept])

    @property
    def errors(self) -> Floats | None:
        """Standard errors of `estimates`."""
        if self.standard_errors is None or self.coefficients is None:
            return None
        return self.standard_errors[: len(self.terms)]

    @property
    def t_values(self) -> Floats | None:
        if self.estimates is None or self.errors is None:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.estimates / self.errors)

    @property
    def p_values(self) -> Floats | None:
        """p values of the two-sided t tests that a coefficient is zero."""
        if self.t_values is None:
            return None
        from scipy.special import stdtr

        return np.asarray(2 * stdtr(max(self.freedom, 1), -np.abs(self.t_values)))

    def intervals(self, level: float = LEVEL) -> Floats | None:
        """Confidence intervals of `estimates`, shape (terms, 2)."""
        if self.errors is None or self.estimates is None:
            return None
        from scipy.special import stdtrit

        if not 0 < level < 1:
            raise ValueError(f"level={level}: must lie between 0 and 1, such as 0.95.")
        width = float(stdtrit(max(self.freedom, 1), (1 + level) / 2)) * self.errors
        return np.stack([self.estimates - width, self.estimates + width], axis=1)

    def predict(self, rows: Floats) -> Floats:
        """Predict the target of plain rows."""
        if self.coefficients is None or self.intercept is None:
            raise ValueError("predictions need the coefficients and the intercept, and they were not both revealed")
        return np.asarray(rows @ self.coefficients + self.intercept)

    def remarks(self) -> list[str]:
        """Return what a reader must know of the numbers, in sentences."""
        found = []
        if self.standard_errors is not None and self.freedom <= 0:
            found.append(
                f"{self.rows:,} rows and {len(self.terms)} terms leave no degree of freedom: there are no standard errors."
            )
        elif self.standard_errors is not None and np.isnan(self.standard_errors).any():
            found.append("The columns explain the target almost exactly: standard errors are below the resolution.")
        if self.method == "ridge":
            found.append(
                "Coefficients of ridge regression are shrunk towards zero, so there are no standard errors or tests."
            )
        if self.correlation is not None:
            found.append(
                "The correlation matrix tells how strongly any two columns vary together, also columns of different owners. "
                "With a column that marks one person it tells that person's values."
            )
        return found

    def table(self, level: float = LEVEL) -> dict[str, Any]:
        """The coefficient table, by heading, as far as it was revealed."""
        found: dict[str, Any] = {"term": np.asarray(self.terms)}
        columns = {
            "coefficient": self.estimates,
            "standard_error": self.errors if self.estimates is not None else self.standard_errors,
            "t": self.t_values,
            "p": self.p_values,
        }
        if self.estimates is None and self.standard_errors is not None:
            found["term"] = np.asarray([*self.columns, "intercept"])
        elif self.estimates is None:
            found["term"] = np.asarray(self.columns)
        if (intervals := self.intervals(level)) is not None:
            columns |= {"low": intervals[:, 0], "high": intervals[:, 1]}
        if self.inflation is not None:
            columns["vif"] = np.append(self.inflation, [np.nan] * (len(found["term"]) - len(self.columns)))
        return found | {name: values for name, values in columns.items() if values is not None}

    def tables(self) -> dict[str, dict[str, Any]]:
        """Return what was revealed as tables, by the names of their files: columns by their headings."""
        found, names = {COEFFICIENTS_FILE: self.table()}, [*self.columns, self.target]
        if self.correlation is not None:
            found[CORRELATION_FILE] = {"column": np.asarray(names), **dict(zip(names, self.correlation, strict=True))}
        return found

    def save(self, path: Path) -> None:
        """JSON with every digit, written whole or not at all."""
        data = {
            name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in asdict(self).items()
        }
        write_whole(path, (json.dumps({"format": FORMAT, **data}, indent=1) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote."""
        data = read_whole(path, FORMAT)
        try:
            arrays = {name: data[name] if data[name] is None else np.asarray(data[name], np.float64) for name in ARRAYS}
            return cls(**data | arrays)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"cannot read {path}: {error}") from None


def _number(result: dict[str, Any], mantissa: str, exponent: str) -> Floats | None:
    if mantissa not in result:
        return None
    return np.asarray(np.ldexp(np.asarray(result[mantissa], np.float64), np.asarray(result[exponent], np.int64)))


def _unpacked(packed: Floats, d: int) -> Floats:
    matrix = np.zeros((d, d))
    matrix[np.triu_indices(d)] = packed
    return np.asarray(np.triu(matrix) + np.triu(matrix, 1).T)
