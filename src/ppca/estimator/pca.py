"""PCA with scikit-learn's conventions, fitted jointly over several owners' data on four servers.

pca = PCA(n_components=5, standardize=True).fit([hospital_a, hospital_b, "hospital_c.parquet"])
pca.explained_variance_ratio_, pca.components_, pca.transform(new_patients), pca.plot()
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_array, check_is_fitted

from ..algorithms.solvers import AUTO, TOLERANCE
from ..html.formats import counted
from ..jobs.checks import check_switch
from ..jobs.pca import JointPCA
from ..owner.tables.owners import match_names, open_columns, open_rows
from ..owner.tables.table import Table
from ..receiver import PCAModel, SharedFacts
from ..receiver.model import MODEL_FILE
from ..receiver.results import PCAResult
from ..runtime import LocalServers, Servers
from ..runtime.servers import Progress
from .advice import advised, refuse_table, warn_of_accuracy, warn_of_few_rows, with_advice
from .fitting import add_tables, fit_tables
from .job import Job
from .partition import ColumnFit, Columns
from .plain_rows import Detached, check_attached, plain_rows
from .plan import Plan, plain
from .shared_model import SharedModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def _can_add_rows(pca: PCA) -> bool:
    """Return whether `partial_fit` is possible: servers keep the sums of row owners."""
    if isinstance(pca.partition, Columns):
        raise AttributeError("partial_fit is for row owners; fit column owners again with all their rows")
    if pca.servers is None or pca.keep is None:
        raise AttributeError("partial_fit needs servers that keep the sums: pass servers=... and keep='name'")
    return True


class PCA(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Principal component analysis of several owners' joint data. Servers compute on secret shares and do not see the
    data.

    Parameters
    ----------
    n_components : int, float in (0, 1) or None
        Number of components; the fraction of variance to explain (their number is then opened); or all of them.
    standardize : bool
        Analyse the correlation: columns are divided by their (privately computed) joint deviation first.
    whiten : bool
        `transform` divides by the square root of the explained variance.
    solver : str
        "auto" (default): "topk" for few components of many columns, else "allpairs". Or "jacobi", or the paper's
        "jacobi-classic", "jacobi-eo", "qr", "power".
    tol : float
        Off-diagonal Frobenius norm, relative to the matrix, at which the eigensolver stops.
    max_iterations : int or None
        Maximum iterations before falling back to cyclic Jacobi; None: the solver's own limit.
    fixed_iterations : int or None
        Run exactly this many iterations and open no convergence bits, also not in a fallback to cyclic Jacobi.
    columns : list of str or None
        The columns to use of files and frames.
    servers : Servers or None
        Servers that compute; None starts four local processes for this fit.
    keep : str or None
        Name under which the given servers keep model and sums as shares, for `partial_fit` and `shared_model`.
    reveal : bool
        False: the model is not revealed; only the servers keep it, as shares.
    allow : tuple of str, or dict
        Allowed uses of a kept model: "transform", "flags", "scores", "inverse", "partial_fit". Servers refuse the rest.
        As a dict: the allowed receivers of each ("client", "owner-1", ...). See `ppca.jobs.kept`.
    partition : "rows" or Columns Owners hold different rows of the same columns, or (`ppca.Columns(id=...)`) different
        columns of the same individuals.
    svd_solver, random_state : ignored
        Parameters of scikit-learn's PCA, accepted so that code for it runs: the covariance is decomposed by `solver`.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, mean_ : as in scikit-learn
    n_components_, n_features_in_, feature_names_in_, n_samples_, noise_variance_ : as in scikit-learn
    scale_, solver_, n_iter_, verified_, fell_back_ : joint deviations or None; the eigensolver, how it went
    certificate_ : for "topk": size of a missed component that is excluded, and the probability of an error; otherwise
    None
    tolerance_ : the tolerance that was reached and verified; larger than `tol` if the solver did not reach it
    component_error_ : bounds of the angles to the exact components, in radians; above 1e-2 a component is not
    determined
    resolution_ : variances below this fraction of the total are noise
    resolved_ : which components are determined: variance above the resolution, and component_error_ at most 1e-2
    noise_resolved_ : whether noise_variance_ stands above the resolution, or nothing was left out
    openings_ : everything that left the sharing
    rows_of_owners_, bytes_uploaded_, owner_seconds_ : of column owners: rows and bytes that each sent; seconds by step
    loadings_, account_ : of column owners: the columns of components_ of each; rounds, bytes and seconds by stage
    """

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        standardize: bool = False,
        whiten: bool = False,
        solver: str = AUTO,
        tol: float = TOLERANCE,
        fixed_iterations: int | None = None,
        max_iterations: int | None = None,
        columns: Sequence[str] | None = None,
        servers: Servers | None = None,
        keep: str | None = None,
        reveal: bool = True,
        allow: Sequence[str] | Mapping[str, Sequence[str]] = ("transform", "flags", "partial_fit"),
        partition: str | Columns = "rows",
        svd_solver: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.standardize = standardize
        self.whiten = whiten
        self.solver = solver
        self.tol = tol
        self.fixed_iterations = fixed_iterations
        self.max_iterations = max_iterations
        self.columns = columns
        self.servers = servers
        self.keep = keep
        self.reveal = reveal
        self.allow = allow
        self.partition = partition
        self.svd_solver = svd_solver
        self.random_state = random_state

    # -- fitting ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, progress: Progress | None = None) -> Self:
        """Fit the joint model.

        X: one array, frame or path per owner, in a list, or in a dictionary with the owners' names. See `open_table`
        for what a table can be. y: ignored, as in scikit-learn; a value that can be a second owner's table is refused.
        """
        plan = self._checked()
        with advised(), Job(LocalServers() if self.servers is None else self.servers, progress) as job:
            tables = self._opened(X)
            refuse_table(y, tables[0].n_columns, by_columns=self.partition != "rows")
            warn_of_few_rows(tables)
            return self._record(*fit_tables(tables, plan, job))

    @available_if(_can_add_rows)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, *, progress: Progress | None = None) -> Self:
        """Add rows (of a new owner, or new rows of an earlier one) to the kept sums and fit again. Nothing is sent
        twice.

        Needs `servers` and `keep`. A receiver of the number of rows of both fits knows the number of added rows.
        """
        plan = self._checked()
        former: PCAResult | None = getattr(self, "_fitted", None)
        with advised():
            tables = self._opened(X)
            refuse_table(y, tables[0].n_columns, by_columns=self.partition != "rows")
            warn_of_few_rows(tables, joins=True)
            if former is not None:
                tables = match_names(tables, former.names, "the fit")
            return self._record(add_tables(tables, plan, Job(self.servers, progress), former))

    def _checked(self) -> Plan:
        """Return the parameters as a plan; raise for invalid ones."""
        check_attached(self.servers)
        with advised():
            check_switch("whiten", self.whiten)
            names = ("solver", "tol", "fixed_iterations", "max_iterations")
            more = {name: plain(getattr(self, name)) for name in names}
            analysis = JointPCA(components=plain(self.n_components), **more)
            return Plan(analysis, self.standardize, self.keep, self.reveal, self.allow, self.partition)

    def _opened(self, X: Any) -> list[Table]:
        if isinstance(self.partition, Columns):
            return open_columns(X, self.partition.id, columns=self.columns)
        return open_rows(X, columns=self.columns)

    def _record(self, fitted: PCAResult, columns: ColumnFit | None = None) -> Self:
        """Set the fitted attributes and the account. columns: details of a fit of column owners."""
        result, account = fitted.values, fitted.account
        self._fitted, self.allowed_ = fitted, fitted.allowed
        self.scale_exponents_ = fitted.scale
        self.solver_, self.certificate_ = result["solver"], result["certificate"]
        self.n_iter_, self.verified_, self.fell_back_ = result["iterations"], result["verified"], result["fell_back"]
        self.openings_, self.account_ = account.audit, account
        self.tolerance_ = result["tolerance"]
        warn_of_accuracy(result, self.tol)
        if columns is not None:
            self.rows_of_owners_, self.bytes_uploaded_ = columns.rows_of_owners, columns.bytes_sent
            self.owner_seconds_ = columns.seconds
            if columns.doubt is not None:
                warnings.warn(with_advice(columns.doubt), stacklevel=3)
        self._take_shape(fitted.rows, fitted.width, fitted.count, fitted.names)
        if self.reveal:
            self._take(fitted.model)
            if (notice := fitted.model.scale_notice()) is not None:
                warnings.warn(f"{notice}: PCA(standardize=True).", stacklevel=3)
            if columns is not None:
                self.loadings_ = np.split(self.components_, np.cumsum(columns.widths)[:-1], axis=1)
        return self

    def _take_shape(self, rows: int, width: int, count: int, names: Sequence[str] | None) -> None:
        self.n_samples_, self.n_features_in_, self.n_components_ = rows, width, count
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _take(self, model: PCAModel) -> None:
        self.model_ = model
        self.components_ = model.components
        self.explained_variance_ = model.explained_variance
        self.explained_variance_ratio_ = model.explained_variance_ratio
        self.singular_values_ = model.singular_values
        self.mean_ = model.mean
        self.scale_ = model.scale
        self.noise_variance_ = model.noise_variance
        self.resolution_, self.resolved_ = model.resolution, model.resolved
        self.component_error_, self.noise_resolved_ = model.component_error, model.noise_resolved

    def shared_model(self) -> SharedModel:
        """Return the kept model, for inference on secret rows."""
        check_is_fitted(self, "scale_exponents_")
        check_attached(self.servers)
        if self.servers is None or self.keep is None:
            raise ValueError("this model is not kept on servers: fit with servers=... and keep='name'")
        fitted = self._fitted
        return SharedModel(Job(self.servers), self.keep, fitted.scale, self.standardize, fitted.names, fitted.count)

    def shared_facts(self) -> SharedFacts:
        """Return public facts of the kept model, which a later session needs to use it."""
        check_is_fitted(self, "scale_exponents_")
        return self._fitted.facts

    # -- use of the revealed model, in the clear ---------------------------------------------------------------------

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Project plain rows onto the components, on this machine. For secret rows see `shared_model`."""
        self._check_revealed()
        projected = self.model_.project(self._validated(X))
        return projected / np.sqrt(self._whitening()) if self.whiten else projected

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return rows in the units of the data from projected ones."""
        self._check_revealed()
        projected = check_array(X)
        if self.whiten:
            projected = projected * np.sqrt(self._whitening())
        rows = projected @ self.components_
        if self.scale_ is not None:
            rows = rows * self.scale_
        return np.asarray(rows + self.mean_)

    def _check_revealed(self) -> None:
        check_is_fitted(self, "n_components_")
        if not hasattr(self, "components_"):
            raise ValueError(
                "no components: this model was not revealed to anyone (reveal=False). Use "
                "shared_model() to apply it on shares."
            )

    def _whitening(self) -> NDArray[np.float64]:
        """Return the variances to divide by; raise if one is noise."""
        varies = self.model_.varies
        if not varies.all():
            first = int((~varies).argmax()) + 1
            raise ValueError(
                f"whiten: the variance of component {first} lies below the resolution, {self.resolution_:.1g} of the "
                f"total, and is noise. Keep at most {counted(first - 1, 'component')}, or fit with a smaller tol."
            )
        return np.asarray(self.explained_variance_)

    def get_covariance(self) -> NDArray[np.float64]:
        """Return the covariance of the probabilistic PCA model, in the units of the data."""
        self._check_revealed()
        return self.model_.covariance()

    def get_precision(self) -> NDArray[np.float64]:
        """Return the inverse of `get_covariance`; raise if some direction does not vary."""
        self._check_revealed()
        return self.model_.precision()

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Return the log-likelihood of each plain row under the probabilistic PCA model."""
        self._check_revealed()
        return self.model_.log_likelihood(self._validated(X))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-likelihood of plain rows; y is ignored."""
        return float(np.mean(self.score_samples(X)))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the columns that `transform` gives: pca0, pca1, ...; input_features, if given, must be those of the
        fit."""
        check_is_fitted(self, "n_components_")
        if input_features is not None and len(input_features) != self.n_features_in_:
            raise ValueError(f"input_features should have length equal to number of features ({self.n_features_in_})")
        if input_features is not None and list(input_features) != list(
            getattr(self, "feature_names_in_", input_features)
        ):
            raise ValueError("input_features is not equal to feature_names_in_")
        return np.asarray([f"pca{i}" for i in range(self.n_components_)], dtype=object)

    def _validated(self, X: Any) -> NDArray[np.float64]:
        """Return plain rows with the columns of the fit."""
        return plain_rows(self, X, self.model_.feature_names)

    def plot(
        self,
        X: Any = None,
        *,
        kind: str = "summary",
        components: tuple[int, int] = (1, 2),
        groups: Sequence[Any] | None = None,
        ax: Axes | None = None,
    ) -> Figure:
        """Draw the revealed model with Matplotlib (the extra `plot`); `plot().savefig("pca.png")` writes the figure.

        X: rows to show as scores, projected on this machine as in `transform`; groups: a label for each, which is its
        colour.
        kind: "summary" (scree, loadings, circle, and scores or errors), or one picture: "scree", "loadings", "circle"
        (correlations of columns with two components), "biplot", "scores", "errors" (bounds of the components' angles).
        components: the two of circle, biplot and scores, counted from 1. ax: axes to draw one picture into.
        """
        from .plot import draw

        self._check_revealed()
        return draw(self.model_, kind, None if X is None else self.transform(X), groups, components, ax)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle: the revealed model, and a placeholder instead of connections to servers."""
        state = {**super().__getstate__(), "servers": None if self.servers is None else Detached()}
        if "_fitted" in state:
            state["_fitted"] = state["_fitted"].without_parts()
        return state


def load(result: str | Path) -> PCA:
    """Load a fitted `PCA` from the folder that `ppca fit` wrote (or from its model.json), to use it on plain rows."""
    path = Path(result)
    path = path / MODEL_FILE if path.is_dir() else path
    if not path.exists():
        raise ValueError(
            f"there is no {path}. Give the folder of a fit whose model was revealed. Use a model that was not revealed "
            "with `ppca transform` and `ppca detect`."
        )
    model = PCAModel.load(path)
    pca = PCA(len(model.components), standardize=model.scale is not None, solver=model.solver)
    pca._take_shape(model.rows, model.components.shape[1], len(model.components), model.feature_names)
    pca._take(model)
    pca.n_iter_, pca.verified_, pca.fell_back_ = model.iterations, model.verified, model.fell_back
    pca.tolerance_ = model.tolerance
    pca.openings_ = model.audit
    return pca
