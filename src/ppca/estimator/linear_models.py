"""Linear regression with scikit-learn's conventions, fitted jointly over several owners' data on four servers.

model = LinearRegression().fit([hospital_a, hospital_b], target="cost")
model.coef_, model.p_values_, model.conf_int(), model.predict(new_patients)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ..jobs.checks import SpecError, check_switch
from ..jobs.regression import OLS, RIDGE, JointRegression
from ..owner.tables.options import ReadOptions
from ..owner.tables.owners import are_several, open_columns, open_rows
from ..owner.tables.table import Table
from ..receiver.regression import LEVEL
from ..runtime import LocalServers, Servers
from ..runtime.servers import Progress
from .advice import advised, warn_of_few_rows
from .job import Job
from .partition import Columns
from .plain_rows import Detached, check_attached, plain_rows
from .plan import plain
from .regression import FIRST, FittedRegression, RegressionPlan, fit_regression

Floats = NDArray[np.float64]
TARGET = "target"
"""Name of the column of a target that is given as `y` beside columns with names."""


class _JointRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Base of all joint regressions."""

    reveal: str | Sequence[str]
    columns: Sequence[str] | None
    servers: Servers | None
    partition: str | Columns
    missing: str

    def _analysis(self) -> JointRegression:
        raise NotImplementedError

    # -- fitting ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, target: str | int | None = None, progress: Progress | None = None) -> Self:
        """Fit the joint regression of one column on all others.

        Parameters
        ----------
        X : tables
            One array, frame or path per owner, in a list, or in a dictionary with the owners' names. See `open_table`.
        y : array, or one array per owner
            The target, if X does not hold it. Row owners only.
        target : str or int
            The target, if X holds it: its name, "owner:name", or its position among all columns, counted from 0.
        progress : callable
            Gets a text, the fraction that is done, and the number of rounds.
        """
        with advised():
            check_attached(self.servers)
            reveal = (self.reveal,) if isinstance(self.reveal, str) else tuple(self.reveal)
            plan = RegressionPlan(self._analysis(), reveal, self.partition)
            tables, place = self._opened(X, y, target)
            warn_of_few_rows(tables)
            servers = LocalServers() if self.servers is None else self.servers
            with Job(servers, progress) as job:
                return self._record(fit_regression(tables, plan, place, job))

    def _opened(self, X: Any, y: Any, target: str | int | None) -> tuple[list[Table], str | int]:
        """Open all owners' tables; return them with the target."""
        if (y is None) == (target is None):
            given = None if y is None else target
            raise SpecError(
                "target", given, "give either y, or target: the column of X that is explained by the others"
            )
        options = ReadOptions(missing=self.missing)
        if isinstance(self.partition, Columns):
            if target is None:
                raise SpecError("target", None, "is needed for column owners: the name of the column of one of them")
            return open_columns(X, self.partition.id, columns=self._taken(target), options=options), plain(target)
        if target is None:
            return open_rows(_appended(X, y), columns=self._taken(None), options=options), -1
        return open_rows(X, columns=self._taken(target), options=options), plain(target)

    def _taken(self, target: str | int | None) -> list[str] | None:
        """Return the columns to use, with the target."""
        if self.columns is None:
            return None
        named = TARGET if target is None else target
        if not isinstance(named, str):
            raise SpecError("target", target, "must be a name if columns are chosen by name")
        name = named if target is None or named in self.columns else named.rpartition(":")[2]
        return list(dict.fromkeys([*self.columns, name]))

    def _record(self, fitted: FittedRegression) -> Self:
        """Set the fitted attributes."""
        model, account = fitted.model, fitted.account
        self.model_, self.account_, self.openings_ = model, account, account.audit
        self.coef_, self.intercept_ = model.coefficients, model.intercept
        self.n_samples_, self.n_features_in_ = model.rows, len(model.columns)
        self.standard_errors_, self.t_values_, self.p_values_ = model.errors, model.t_values, model.p_values
        self.r2_, self.residual_variance_ = model.r2, model.residual_variance
        self.correlation_, self.vif_ = model.correlation, model.inflation
        if fitted.names is not None:
            self.feature_names_in_ = np.asarray(model.columns, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self

    # -- use ---------------------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> Floats:
        """Predict the target of plain rows, on this machine. Columns are those of the fit, without the target."""
        check_is_fitted(self, "model_")
        names = list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        return self.model_.predict(plain_rows(self, X, names))

    def conf_int(self, level: float = LEVEL) -> Floats:
        """Return confidence intervals of the coefficients and of the intercept (last), shape (n_features + 1, 2)."""
        check_is_fitted(self, "model_")
        found = self.model_.intervals(level)
        if found is None:
            raise ValueError(
                "there are no confidence intervals: they need coefficients and standard errors, which ridge regression "
                "does not have, or which were not revealed"
            )
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle, with a placeholder instead of connections to servers."""
        return {**super().__getstate__(), "servers": None if self.servers is None else Detached()}


def _appended(X: Any, y: Any) -> Any:
    """Return the tables with the target as their last column."""
    if isinstance(X, Mapping):
        targets = y if isinstance(y, Mapping) else dict(zip(X, _each(y, len(X)), strict=True))
        return {name: _with_target(table, targets[name]) for name, table in X.items()}
    if are_several(X):
        return [_with_target(table, target) for table, target in zip(X, _each(y, len(X)), strict=True)]
    return _with_target(X, y)


def _each(y: Any, owners: int) -> list[Any]:
    """Return one target per owner."""
    targets = list(y.values()) if isinstance(y, Mapping) else list(y) if isinstance(y, list | tuple) else [y]
    if len(targets) != owners or any(np.ndim(target) == 0 for target in targets):
        raise SpecError("y", type(y).__name__, f"must hold one array of targets for each of {owners} owners")
    return targets


def _with_target(table: Any, y: Any) -> Any:
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or not hasattr(table, "__len__") or isinstance(table, str) or len(values) != len(table):
        raise SpecError(
            "y", f"array of shape {values.shape}", "must have one number for each row of X, and X must be in memory"
        )
    if hasattr(table, "assign"):  # pandas
        return table.assign(**{TARGET: values})
    if hasattr(table, "with_columns"):  # polars
        import polars

        return table.with_columns(polars.Series(TARGET, values))
    return np.column_stack([np.asarray(table), values])


class LinearRegression(_JointRegressor):
    """Least squares regression over several owners' joint data. Servers compute on secret shares, not on the data.

    Parameters
    ----------
    reveal : str or sequence of str
        Parts that are revealed to you: "result" (all usual parts), or some of "coefficients", "intercept", "errors",
        "r2", "residuals"; and "correlation" (the correlation matrix of all columns) and "vif" (variance inflation
        factors), which are never part of "result".
    columns : list of str or None
        The columns to use of files and frames; the target need not be listed.
    servers : Servers or None
        Servers that compute; None starts four local processes for this fit.
    partition : "rows" or Columns
        Owners hold different rows of the same columns, or (`ppca.Columns(id=...)`) different columns of the same
        individuals.
    missing : str
        "refuse" tables with missing values, "drop" their rows, or count missing values as the "mean". Tables from
        `open_table` have an option of their own.

    Attributes
    ----------
    coef_, intercept_, n_features_in_, feature_names_in_ : as in scikit-learn; None if they were not revealed
    standard_errors_, t_values_, p_values_ : of the coefficients, then of the intercept
    r2_, residual_variance_, n_samples_ : R squared, residual variance (n - p - 1 degrees of freedom), number of rows
    correlation_, vif_ : of all columns with the target last, and of the columns without it; None if not revealed
    model_, account_, openings_ : the whole result; rounds, bytes and seconds; everything that left the sharing
    """

    def __init__(
        self,
        *,
        reveal: str | Sequence[str] = ("result",),
        columns: Sequence[str] | None = None,
        servers: Servers | None = None,
        partition: str | Columns = "rows",
        missing: str = "refuse",
    ) -> None:
        self.reveal = reveal
        self.columns = columns
        self.servers = servers
        self.partition = partition
        self.missing = missing

    def _analysis(self) -> JointRegression:
        return JointRegression(target=FIRST, method=OLS)


class Ridge(_JointRegressor):
    """Ridge regression over several owners' joint data: least squares with the penalty alpha |coef|^2.

    Parameters
    ----------
    alpha : float
        The penalty, above 0, as in scikit-learn. The intercept is not penalised.
    standardize : bool
        The penalty is for columns divided by their joint deviation. Coefficients are in the units of the data.
    reveal, columns, servers, partition, missing
        See `LinearRegression`. There are no standard errors, correlations or variance inflation factors.

    Attributes
    ----------
    coef_, intercept_, r2_ and others : see `LinearRegression`; what ridge regression does not have is None
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        standardize: bool = False,
        reveal: str | Sequence[str] = ("result",),
        columns: Sequence[str] | None = None,
        servers: Servers | None = None,
        partition: str | Columns = "rows",
        missing: str = "refuse",
    ) -> None:
        self.alpha = alpha
        self.standardize = standardize
        self.reveal = reveal
        self.columns = columns
        self.servers = servers
        self.partition = partition
        self.missing = missing

    def _analysis(self) -> JointRegression:
        check_switch("standardize", self.standardize)
        alpha = plain(self.alpha)
        alpha = float(alpha) if isinstance(alpha, int) and not isinstance(alpha, bool) else alpha
        return JointRegression(target=FIRST, method=RIDGE, alpha=alpha, scaled=self.standardize)
