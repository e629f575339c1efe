"""PCA with scikit-learn's conventions, fitted jointly over several owners' data on four servers.

pca = PCA(n_components=5, standardize=True).fit([hospital_a, hospital_b, "hospital_c.parquet"])
pca.explained_variance_ratio_, pca.components_, pca.transform(new_patients)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from ..algorithms.solvers import SOLVERS
from ..jobs.kept import allowance
from ..owner.tables.opening import open_columns, open_rows
from ..owner.tables.records import Records, joint_names
from ..receiver import PCAModel, SharedFacts
from ..servers import Account, LocalServers, Servers
from ..servers.interface import Progress
from .columns import Columns, fit_columns
from .job import Job
from .rows import fit_rows
from .shared import SharedModel


class PCA(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Principal component analysis of the union of several owners' rows; no owner's data are seen by anyone.

    Parameters
    ----------
    n_components : int, float in (0, 1) or None
        Number of components; the fraction of variance to explain (their number is then opened); or all of them.
    standardize : bool
        Analyse the correlation: columns are divided by their (privately computed) joint deviation first.
    whiten : bool
        `transform` divides by the square root of the explained variance.
    solver : str
        "allpairs" (default), "jacobi", or the paper's "jacobi-classic", "jacobi-eo", "qr", "power".
    tol : float
        Off-diagonal Frobenius norm, relative to the matrix, at which the eigensolver stops.
    fixed_iterations : int or None
        Run so many iterations and open no convergence bits, in a fall-back to cyclic Jacobi either.
    columns : list of str or None
        The columns to use of files and frames.
    servers : Servers or None
        Where to compute; None starts four local processes for this fit.
    keep : str or None
        The name under which model and sums stay shared with the (given) servers: for `partial_fit` and `shared_model`.
    reveal : bool
        False: nobody receives the model, it only stays with the servers.
    allow : tuple of str, or dict
        What a kept model may be used for: "transform", "flags", "scores", "inverse", "partial_fit". Servers refuse the rest.
        As a dict: for each, who may receive the results ("client", "owner 1", ...). See `ppca.jobs.kept`.
    partition : "rows" or Columns
        Owners hold different rows of the same columns, or (`ppca.Columns(id=...)`) different columns of the same individuals.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, mean_, scale_, n_components_,
    n_features_in_, feature_names_in_, n_samples_, noise_variance_ : as in scikit-learn (scale_: the deviations, or None)
    n_iter_, verified_, fell_back_ : how the eigensolver went; whether Jacobi had to take over
    resolution_, resolved_ : variances below this part of the total are noise; which components stand above it
    openings_ : everything that left the sharing
    bytes_uploaded_, owner_seconds_ : of owners of columns: what each sent; seconds by step, seen from the owners
    account_ : rounds, bytes and seconds by stage
    """

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        standardize: bool = False,
        whiten: bool = False,
        solver: str = "allpairs",
        tol: float = 1e-6,
        fixed_iterations: int | None = None,
        max_iterations: int | None = None,
        columns: Sequence[str] | None = None,
        servers: Servers | None = None,
        keep: str | None = None,
        reveal: bool = True,
        allow: Sequence[str] | Mapping[str, Sequence[str]] = ("transform", "flags", "partial_fit"),
        partition: str | Columns = "rows",
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

    # -- fitting ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, progress: Progress | None = None) -> Self:
        """Fits the joint model; y is ignored.

        X: one array, frame or path per owner, in a list, or in a dictionary with the owners' names. See `open_table` for what
        a table may be.
        """
        with Job(LocalServers() if self.servers is None else self.servers, progress) as job:
            if isinstance(self.partition, Columns):
                return self._fit_columns(X, self.partition, job)
            if self.partition != "rows":
                raise ValueError(f"partition={self.partition!r} is unknown; choose 'rows' or ppca.Columns(id=...)")
            return self._fit_rows(X, False, job)

    def partial_fit(self, X: Any, y: Any = None, *, progress: Progress | None = None) -> Self:
        """Adds rows (a new owner's, or new ones of an old owner) to the kept sums and fits again; nothing is sent twice.

        Needs `servers` and `keep`. Whoever receives the number of rows of both fits knows that of the addition.
        """
        if self.partition != "rows":
            raise ValueError("partial_fit is for owners of rows; fit owners of columns again with all their rows")
        if self.servers is None or self.keep is None:
            raise ValueError("partial_fit needs servers that keep the sums: pass servers=... and keep='name'")
        return self._fit_rows(X, hasattr(self, "n_features_in_"), Job(self.servers, progress))

    def _fit_rows(self, X: Any, add: bool, job: Job) -> Self:
        """One joint fit; `add`: these owners are added to those whose sums the servers keep."""
        tables = open_rows(X, columns=self.columns)
        width = tables[0].n_columns
        self._check_parameters(width)
        if add and self.n_features_in_ != width:
            raise ValueError(
                f"X has {width} features, but {type(self).__name__} is expecting {self.n_features_in_} features as input"
            )
        result = fit_rows(job, tables, self._choices(), self.keep if add else None)
        return self._record(result, job.account, width, tables[0].names)

    def _fit_columns(self, X: Any, partition: Columns, job: Job) -> Self:
        tables = open_columns(X, partition.id, columns=self.columns)
        width = sum(table.n_columns for table in tables)
        self._check_parameters(width)
        job.progress("owners, reading", None)
        owners = [Records.of(table) for table in tables]
        choices = self._choices(len(owners))
        found = fit_columns(job, owners, partition, choices, lambda rows: self._check_rows(rows, width))
        self.bytes_uploaded_, self.owner_seconds_ = found.bytes_sent, found.seconds
        return self._record(found.result, job.account, width, joint_names(owners))

    def _choices(self, column_owners: int = 0) -> dict[str, Any]:
        """The public parameters of the analysis on the servers."""
        self.allowed_ = allowance(self.allow, column_owners) if self.keep is not None else {}
        return {
            "components": self.n_components,
            "standardize": self.standardize,
            "solver": self.solver,
            "tol": self.tol,
            "fixed_iterations": self.fixed_iterations,
            "max_iterations": self.max_iterations,
            "keep": self.keep,
            "reveal_model": self.reveal,
            "allow": self.allowed_,
        }

    def _record(self, result: dict[str, Any], account: Account, width: int, names: list[str] | None) -> Self:
        """Takes over what the servers returned, and the account of it."""
        rows = int(result["rows"])
        self._check_rows(rows, width)
        self.scale_exponents_ = np.broadcast_to(np.asarray(result["exponents"], np.int64), (width,)).copy()
        self.n_samples_, self.n_features_in_ = rows, width
        self.n_iter_, self.verified_, self.fell_back_ = result["iterations"], result["verified"], result["fell_back"]
        self.openings_, self.account_ = account.audit, account
        self.n_components_ = min(result["count"], rows)
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        if self.reveal:
            model = PCAModel.from_result(result, scale=self.scale_exponents_, names=names, audit=account.audit)
            self._take(model)
        return self

    def shared_model(self) -> SharedModel:
        """The model as the servers keep it, for inference on secret rows."""
        check_is_fitted(self, "scale_exponents_")
        if self.servers is None or self.keep is None:
            raise ValueError("no servers keep this model: fit with servers=... and keep='name'")
        names = getattr(self, "feature_names_in_", None)
        labels = None if names is None else [str(name) for name in names]
        return SharedModel(Job(self.servers), self.keep, self.scale_exponents_, self.standardize, labels)

    def shared_facts(self) -> SharedFacts:
        """What is public of the model that the servers keep: what a later session needs to use it."""
        check_is_fitted(self, "scale_exponents_")
        if self.keep is None:
            raise ValueError("no servers keep this model: fit with keep='name'")
        names = getattr(self, "feature_names_in_", None)
        return SharedFacts(
            name=self.keep,
            scale_exponents=[int(e) for e in self.scale_exponents_],
            standardized=self.standardize,
            components=int(self.n_components_),
            rows=self.n_samples_,
            feature_names=None if names is None else [str(name) for name in names],
            solver=self.solver,
            iterations=self.n_iter_,
            verified=self.verified_,
            fell_back=self.fell_back_,
            audit=self.openings_,
            allowed=self.allowed_,
        )

    def _check_parameters(self, width: int) -> None:
        """Refuses parameters that cannot work for so many columns, before anything is read or sent."""
        k = self.n_components
        if self.solver not in SOLVERS:
            raise ValueError(f"solver={self.solver!r} is unknown; choose from {', '.join(SOLVERS)}")
        if isinstance(k, float) and not 0 < k < 1:
            raise ValueError(f"n_components={k} must lie strictly between 0 and 1 to mean a fraction of variance")
        if isinstance(k, int | np.integer) and not isinstance(k, bool) and not 1 <= k <= width:
            raise ValueError(f"n_components={k} must be between 1 and {width}, the number of columns")
        if not 1e-9 <= self.tol <= 1e-2:
            raise ValueError(f"tol={self.tol} must lie between 1e-9 and 1e-2")

    def _check_rows(self, rows: int, width: int) -> None:
        if rows < 2:
            raise ValueError(f"all owners together have {rows} row; a covariance needs at least 2")
        k = self.n_components
        if isinstance(k, int | np.integer) and k > min(rows, width):
            raise ValueError(f"n_components={k} must be at most min(rows, columns) = {min(rows, width)}")

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

    # -- use of the revealed model, in the clear ---------------------------------------------------------------------

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Projects plain rows onto the components, on this machine. For secret rows see `shared_model`."""
        check_is_fitted(self, "components_")
        rows = self._validated(X)
        centred = rows - self.mean_
        if self.scale_ is not None:
            centred = centred / self.scale_
        projected: NDArray[np.float64] = centred @ self.components_.T
        return projected / np.sqrt(self._whitening()) if self.whiten else projected

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Rows in the units of the data from projected ones."""
        check_is_fitted(self, "components_")
        projected = check_array(X)
        if self.whiten:
            projected = projected * np.sqrt(self._whitening())
        rows = projected @ self.components_
        if self.scale_ is not None:
            rows = rows * self.scale_
        return np.asarray(rows + self.mean_)

    def _whitening(self) -> NDArray[np.float64]:
        """Variances to divide by; refused where they are noise."""
        if not self.resolved_.all():
            first = int((~self.resolved_).argmax()) + 1
            raise ValueError(
                f"whiten: the variance of component {first} lies below the resolution, {self.resolution_:.1g} of the total, and "
                f"is noise. Keep at most {first - 1} components, or fit with a smaller tol."
            )
        return np.asarray(self.explained_variance_)

    def _validated(self, X: Any) -> NDArray[np.float64]:
        if isinstance(X, list | tuple) and X and not np.isscalar(X[0]) and np.ndim(X[0]) == 2:
            return np.vstack([self._validated(part) for part in X])
        rows = check_array(X, dtype=np.float64)
        if rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features as input"
            )
        return np.asarray(rows)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def __getstate__(self) -> dict[str, Any]:
        """Pickles hold the revealed model, never a connection to servers."""
        return {**super().__getstate__(), "servers": None}
