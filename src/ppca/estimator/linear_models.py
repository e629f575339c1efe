"""Linear and ridge regression with scikit-learn's conventions, computed on shares of several owners' data.

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
"""Name of the column that `fit(X, y)` appends for `y` if the columns of X have names."""


class _JointRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of joint regressions: `fit`, `predict` and `conf_int`."""

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
            One array, frame or path per owner, as a list, or as a dictionary from owners' names to tables. See
            `open_table`.
        y : array, or one array per owner
            The values of the target, if the target is not a column of X. For row owners only. If X has column names,
            none of them may be "target".
        target : str or int
            The column of X that is the target: its name, "owner:name", or its position among the columns of all
            owners, counted from 0. Give either y or target.
        progress : callable
            Called with a text, the finished fraction (None: unknown), and the number of communication rounds.

        Returns
        -------
        self : the fitted estimator
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
        """Open the tables of all owners. Return them, and the name or position of the target."""
        if (y is None) == (target is None):
            given = None if y is None else target
            raise SpecError("target", given, "give either y, or target: the column of X that the other columns predict")
        options = ReadOptions(missing=self.missing)
        if isinstance(self.partition, Columns):
            if target is None:
                raise SpecError("target", None, "is needed for column owners: give the name of a column of one owner")
            return open_columns(X, self.partition.id, columns=self._taken(target), options=options), plain(target)
        if target is None:
            return open_rows(_appended(X, y), columns=self._taken(None), options=options), -1
        return open_rows(X, columns=self._taken(target), options=options), plain(target)

    def _taken(self, target: str | int | None) -> list[str] | None:
        """Return the names of the columns to read, including the target; None: all columns."""
        if self.columns is None:
            return None
        named = TARGET if target is None else target
        if not isinstance(named, str):
            raise SpecError("target", target, "must be a name if columns are chosen by name")
        name = named if target is None or named in self.columns else named.rpartition(":")[2]
        return list(dict.fromkeys([*self.columns, name]))

    def _record(self, fitted: FittedRegression) -> Self:
        """Set the fitted attributes and return the estimator."""
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
        """Predict the target for plain rows on this machine. X has the columns of the fit without the target."""
        check_is_fitted(self, "model_")
        names = list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        return self.model_.predict(plain_rows(self, X, names))

    def conf_int(self, level: float = LEVEL) -> Floats:
        """Return confidence intervals: one row (lower limit, upper limit) per coefficient, then one for the intercept.

        level: confidence level, such as 0.95. Shape (n_features + 1, 2), or (n_features, 2) if the intercept was not
        revealed.
        """
        check_is_fitted(self, "model_")
        found = self.model_.intervals(level)
        if found is None:
            raise ValueError(
                "there are no confidence intervals: they need coefficients and standard errors. Ridge regression does not "
                "have standard errors. For least squares, reveal 'coefficients' and 'errors'"
            )
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling. A placeholder replaces the connections to servers."""
        return {**super().__getstate__(), "servers": None if self.servers is None else Detached()}


def _appended(X: Any, y: Any) -> Any:
    """Return the tables of X, each with its targets appended as the last column."""
    if isinstance(X, Mapping):
        targets = y if isinstance(y, Mapping) else dict(zip(X, _each(y, len(X)), strict=True))
        return {name: _with_target(table, targets[name]) for name, table in X.items()}
    if are_several(X):
        return [_with_target(table, target) for table, target in zip(X, _each(y, len(X)), strict=True)]
    return _with_target(X, y)


def _each(y: Any, owners: int) -> list[Any]:
    """Return the arrays of targets in the order of the owners, one per owner."""
    targets = list(y.values()) if isinstance(y, Mapping) else list(y) if isinstance(y, list | tuple) else [y]
    if len(targets) != owners or any(np.ndim(target) == 0 for target in targets):
        raise SpecError("y", type(y).__name__, f"must hold {owners} arrays of targets: one for each owner")
    return targets


def _with_target(table: Any, y: Any) -> Any:
    """Return a table in memory with the values of y as its last column, named `TARGET` if the columns have names."""
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or not hasattr(table, "__len__") or isinstance(table, str) or len(values) != len(table):
        raise SpecError(
            "y", f"array of shape {values.shape}", "must have one number for each row of X, and X must be in memory"
        )
    if TARGET in list(getattr(table, "columns", ())):
        raise SpecError("y", TARGET, f'X has a column {TARGET} already: rename it, or pass target="{TARGET}"')
    if hasattr(table, "assign"):  # pandas
        return table.assign(**{TARGET: values})
    if hasattr(table, "with_columns"):  # polars
        import polars

        return table.with_columns(polars.Series(TARGET, values))
    return np.column_stack([np.asarray(table), values])


class LinearRegression(_JointRegressor):
    """Least squares regression on the joint data of several owners. Servers compute on secret shares of the data.

    Parameters
    ----------
    reveal : str or sequence of str
        The parts of the result that are revealed to you. "result" stands for "coefficients", "intercept", "errors"
        (standard errors), "r2" and "residuals". Two more parts must be named: "correlation" (the correlation matrix of
        all columns) and "vif" (variance inflation factors).
    columns : list of str or None
        Names of the columns of files and frames that are used. The target need not be listed. None: all columns.
    servers : Servers or None
        The servers that compute. None: four local processes, started for this fit.
    partition : "rows" or Columns
        "rows": owners hold different rows of the same columns. `ppca.Columns(id=...)`: owners hold different columns of
        the same individuals.
    missing : str
        Treatment of missing values. "refuse": raise an error. "drop": leave out rows with missing values. "mean": count
        a missing value as the mean of its column. Tables from `open_table` have their own option.

    Attributes
    ----------
    Every attribute of a part that was not revealed is None. p is the number of columns without the target.

    coef_, intercept_ : coefficients, shape (p,), and intercept
    n_features_in_ : p
    feature_names_in_ : names of these p columns; exists only if the tables have column names
    n_samples_ : number of rows of all owners together, n
    standard_errors_, t_values_, p_values_ : one value per coefficient, then one for the intercept
    r2_ : R squared
    residual_variance_ : residual sum of squares divided by n - p - 1; None if n - p - 1 is not positive
    correlation_ : correlation matrix of the p columns and the target, which is last
    vif_ : variance inflation factors, shape (p,)
    model_ : the whole result
    account_ : communication rounds, bytes and seconds of the fit
    openings_ : every value that left the sharing
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
    """Ridge regression on the joint data of several owners: least squares with the penalty alpha |coef|^2.

    Parameters
    ----------
    alpha : float
        Weight of the penalty, above 0, as in scikit-learn. The intercept is not penalised.
    standardize : bool
        True: the penalty applies to coefficients of columns that are divided by their joint deviation. False: it
        applies to coefficients of the columns in their own units. In both cases `coef_` is in the units of the data.
    reveal, columns, servers, partition, missing
        See `LinearRegression`. The parts "errors", "correlation" and "vif" do not exist for ridge regression.

    Attributes
    ----------
    coef_, intercept_, r2_ and others : see `LinearRegression`; attributes that ridge regression does not have are None
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
