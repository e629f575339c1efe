"""PCA with scikit-learn's conventions, fitted jointly over several owners' data on four servers.

pca = PCA(n_components=5, standardize=True).fit([hospital_a, hospital_b, "hospital_c.parquet"])
pca.explained_variance_ratio_, pca.components_, pca.transform(new_patients)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from ..jobs import rows as programs
from ..owner import encoding
from ..owner.columns import ColumnTable, joint_names, read_owners
from ..owner.moments import Moments, moments
from ..owner.tables.sources import Source, check_compatible, open_source
from ..receiver.model import PCAModel
from ..servers import Account, LocalServers
from ..servers.outcome import combined
from .partition import Alignment, fit_columns
from .shared import SharedFacts, SharedModel

Progress = Callable[[str, float | None, int], None]


class PCA(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Principal component analysis of the union of several owners' rows; no owner's data are seen by anyone.

    Parameters
    ----------
    n_components : int, float in (0, 1) or None
        Number of components; the share of variance to explain (their number is then opened); or all of them.
    standardize : bool
        Analyse the correlation: columns are divided by their (privately computed) joint deviation first.
    whiten : bool
        `transform` divides by the square root of the explained variance.
    solver : str
        "allpairs" (default), "jacobi", or the paper's "jacobi-classic", "jacobi-eo", "qr", "power".
    tol : float
        Off-diagonal Frobenius norm, relative to the matrix, at which the eigensolver stops.
    bounds : "auto", float or array of shape (n_features,)
        |x| <= bounds, public. "auto" opens the smallest power of two that holds for all owners.
    fixed_iterations : int or None
        Run so many iterations and open no convergence bits.
    columns : list of str or None
        The columns to use of files and frames.
    servers : LocalServers or None
        Running servers; None starts four of them for this fit.
    keep : str or None
        The name under which model and sums stay shared with the (given) servers: for `partial_fit` and `shared_model`.
    reveal : bool
        False: nobody receives the model, it only stays with the servers.
    partition : "rows" or "columns"
        Owners hold different rows of the same columns (horizontal), or different columns of the same individuals (vertical).
    id : str or None
        partition="columns": the name of the id column in every owner's table.
    alignment : "psi", "aligned", "namespace" or Alignment
        partition="columns": how rows are brought together, see `ppca.estimator.partition`.
    pieces : int or None
        partition="columns": row pieces of the second moments; None: as few as the ring allows.
    executor : dict or None
        partition="columns": who computes the pieces, see `ppca.jobs.workers`.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, mean_, scale_, n_components_,
    n_features_in_, feature_names_in_, n_samples_, noise_variance_ : as in scikit-learn (scale_: the deviations, or None)
    n_iter_, verified_, fell_back_ : how the eigensolver went; whether Jacobi had to take over
    openings_ : everything that left the sharing
    bytes_uploaded_, owner_seconds_ : partition="columns": what each owner sent; seconds by step, seen from the owners
    report_ : rounds, bytes and seconds by stage
    """

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        standardize: bool = False,
        whiten: bool = False,
        solver: str = "allpairs",
        tol: float = 1e-6,
        bounds: Any = "auto",
        fixed_iterations: int | None = None,
        max_iterations: int | None = None,
        columns: Sequence[str] | None = None,
        servers: LocalServers | None = None,
        keep: str | None = None,
        reveal: bool = True,
        partition: str = "rows",
        id: str | None = None,
        alignment: Any = "psi",
        pieces: int | None = None,
        executor: dict[str, Any] | None = None,
    ) -> None:
        self.n_components = n_components
        self.standardize = standardize
        self.whiten = whiten
        self.solver = solver
        self.tol = tol
        self.bounds = bounds
        self.fixed_iterations = fixed_iterations
        self.max_iterations = max_iterations
        self.columns = columns
        self.servers = servers
        self.keep = keep
        self.reveal = reveal
        self.partition = partition
        self.id = id
        self.alignment = alignment
        self.pieces = pieces
        self.executor = executor

    # -- fitting ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, progress: Progress | None = None) -> Self:
        """Fits the joint model. X: a list with one entry per owner (array, frame or path); y is ignored."""
        if self.partition == "columns":
            return self.fit_tables(read_owners(X, self.id, columns=self.columns), progress=progress)
        if self.partition != "rows":
            raise ValueError(f"partition={self.partition!r} is unknown; choose 'rows' or 'columns'")
        sources = open_owners(X, self.columns)
        return self.fit_moments([moments(source) for source in sources], progress=progress)

    def fit_moments(self, owners: Sequence[Moments], *, progress: Progress | None = None) -> Self:
        """Fits from the owners' sums, which is all that leaves an owner (as shares)."""
        return self._fit(owners, None, progress)

    def fit_tables(self, tables: Sequence[ColumnTable], *, progress: Progress | None = None) -> Self:
        """Fits owners of different columns of the same individuals."""
        alignment = self.alignment if isinstance(self.alignment, Alignment) else Alignment(self.alignment)
        self.check_parameters(sum(table.values.shape[1] for table in tables))
        names = joint_names(tables)
        with _running(self.servers) as servers:
            found = fit_columns(
                servers,
                tables,
                alignment,
                bounds=self.bounds,
                choices=self._choices(),
                check_rows=self._check_rows,
                pieces=self.pieces,
                executor=self.executor,
                progress=progress,
            )
        self.bytes_uploaded_, self.owner_seconds_ = found.bytes_sent, found.seconds
        self._record(found.result, found.report, found.scale, names)
        return self

    def _choices(self) -> dict[str, Any]:
        """The public parameters of the analysis on the servers."""
        return {
            "components": self.n_components,
            "standardize": self.standardize,
            "solver": self.solver,
            "tol": self.tol,
            "fixed_iterations": self.fixed_iterations,
            "max_iterations": self.max_iterations,
            "keep": self.keep,
            "reveal_model": self.reveal,
        }

    def partial_fit(self, X: Any, y: Any = None, *, progress: Progress | None = None) -> Self:
        """Adds rows (a new owner's, or new ones of an old owner) to the kept sums and fits again; nothing is sent twice.

        Needs `servers` and `keep`. The row count of the addition becomes known, as the difference of two joint counts.
        """
        if self.partition != "rows":
            raise ValueError("partial_fit is for owners of rows; fit owners of columns again with all their rows")
        if self.servers is None or self.keep is None:
            raise ValueError("partial_fit needs servers that keep the sums: pass servers=... and keep='name'")
        owners = [moments(source) for source in open_owners(X, self.columns)]
        return self._fit(owners, getattr(self, "scale_exponents_", None), progress)

    def _fit(self, owners: Sequence[Moments], former: NDArray[np.int64] | None, progress: Progress | None) -> Self:
        """One joint fit; `former`: the scale of kept sums to which these owners are added."""
        width = len(owners[0].mean)
        self.check_parameters(width)
        if former is not None and len(former) != width:
            raise ValueError(
                f"X has {width} features, but {type(self).__name__} is expecting {len(former)} features as input"
            )
        bounds = self.bounds if former is None else np.ldexp(1.0, former - 1)
        with _running(self.servers) as servers:
            rows, scale, first = survey(servers, owners, bounds, self.standardize, progress)
            self._check_rows(rows if former is None else rows + self.n_samples_, width)
            packets = [packet for owner in owners for packet in encoding.share_moments(owner, rows, scale)]
            result = servers.run(
                programs.fit,
                *packets,
                progress=progress,
                rows=rows,
                add_to=None if former is None else self.keep,
                choices=self._choices(),
            )
            assert servers.report is not None
            report = combined([first, servers.report])
        self._record(result, report, scale, owners[0].names)
        return self

    def _record(
        self,
        result: dict[str, Any],
        report: Account,
        scale: NDArray[np.int64],
        names: list[str] | None,
    ) -> None:
        """Takes over what the servers returned, and the account of it."""
        openings = report.audit
        self.scale_exponents_ = scale
        self.n_samples_: int = result["rows"]
        self.n_features_in_ = len(scale)
        self.n_iter_, self.verified_, self.fell_back_ = result["iterations"], result["verified"], result["fell_back"]
        self.openings_, self.report_ = openings, report
        self.n_components_ = result["count"]
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        if self.reveal:
            self._take(PCAModel.from_result(result, rows=result["rows"], scale=scale, names=names, audit=openings))

    def shared_model(self) -> SharedModel:
        """The model as the servers keep it, for inference on secret rows."""
        check_is_fitted(self, "scale_exponents_")
        if self.servers is None or self.keep is None:
            raise ValueError("no servers keep this model: fit with servers=... and keep='name'")
        names = getattr(self, "feature_names_in_", None)
        labels = None if names is None else [str(name) for name in names]
        return SharedModel(self.servers, self.keep, self.scale_exponents_, self.standardize, labels)

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
        )

    def check_parameters(self, width: int) -> None:
        """Refuses parameters that cannot work for so many columns, before anything is read or sent."""
        from ..algorithms.solvers import SOLVERS

        k = self.n_components
        if self.solver not in SOLVERS:
            raise ValueError(f"solver={self.solver!r} is unknown; choose from {', '.join(SOLVERS)}")
        if isinstance(k, float) and not 0 < k < 1:
            raise ValueError(f"n_components={k} must lie strictly between 0 and 1 to mean a share of variance")
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
        """Variances to divide by; vanishing ones are lifted, as scikit-learn does."""
        smallest = np.finfo(np.float64).eps
        return np.maximum(self.explained_variance_, smallest)

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


def open_owners(X: Any, columns: Sequence[str] | None) -> list[Source]:
    """One source per owner, with equal columns; a single table counts as one owner."""
    several = isinstance(X, list | tuple) and not (X and np.isscalar(X[0]))
    owners = list(X) if several else [X]
    if not owners:
        raise ValueError("no owners: pass a list with one array, frame or path per owner")
    named = [open_source(owner, columns=columns) for owner in owners]
    return check_compatible(named)


def survey(
    servers: LocalServers, owners: Sequence[Moments], bounds: Any, per_column: bool, progress: Progress | None
) -> tuple[int, NDArray[np.int64], Account]:
    """The joint number of rows, the public scale exponents, and the account of how they were found."""
    width = len(owners[0].mean)
    shared = [encoding.share_survey(owner.count, owner.largest, per_column) for owner in owners]
    if isinstance(bounds, str):
        if bounds != "auto":
            raise ValueError(f"bounds={bounds!r}: use 'auto', a number, or one number per column")
        answer = servers.run(programs.survey, *[packet for pair in shared for packet in pair], progress=progress)
        rows, scale = answer["rows"], encoding.joint_scale(answer["exponents"], width)
    else:
        scale = encoding.declared_scale(bounds, width, per_column)
        for owner in owners:
            beyond = np.flatnonzero(owner.largest > np.ldexp(1.0, scale))
            if beyond.size:
                at = int(beyond[0])
                name = owner.names[at] if owner.names else f"column {at}"
                raise ValueError(f"{owner.label}: {name} reaches {owner.largest[at]:g}, beyond its declared bound")
        rows = servers.run(programs.count_rows, *[pair[0] for pair in shared], progress=progress)
    assert servers.report is not None
    return rows, scale, servers.report


@contextmanager
def _running(servers: LocalServers | None) -> Iterator[LocalServers]:
    if servers is not None:
        yield servers
    else:
        with LocalServers() as own:
            yield own
