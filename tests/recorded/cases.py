"""Forty jobs whose openings, rounds, bytes and values are recorded: forms of data, options, receivers and kept models.

A case is a function of servers that runs one or several jobs and returns the values that receivers got. Cases use the public
interface (`PCA`, `SharedModel`), so that they do not depend on how jobs are described inside the package. Only jobs with several
receivers, which that interface does not offer, go through `fit_for`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.jobs import fit_job, for_receivers, make_plan, run_inputs
from harness.lockstep import LockstepServers
from harness.tables import with_ids
from ppca import PCA, Columns, LinearRegression, Ridge, open_table
from ppca.estimator.job import Job
from ppca.estimator.partition import fit_columns
from ppca.owner.contribute import Source
from ppca.owner.moments import moments
from ppca.owner.rows import share_sums
from ppca.owner.tables.owners import open_columns

Floats = NDArray[np.float64]
Values = dict[str, Any]
EVERYTHING = ("transform", "flags", "scores", "inverse", "partial_fit")
FIXED = 21
"""Iterations of most cases: their rounds and bytes then do not depend on rounding."""


def table(rows: int = 60, columns: int = 6, seed: int = 7) -> Floats:
    """Numbers with standard deviations from 5 down to 0.5 in a random basis, and means of about 10."""
    random = np.random.default_rng(seed)
    basis = np.linalg.qr(random.standard_normal((columns, columns)))[0]
    spread = np.geomspace(5.0, 0.5, columns)
    return np.asarray(random.standard_normal((rows, columns)) * spread @ basis + random.uniform(5, 15, columns))


def row_owners(rows: int = 60, columns: int = 6, owners: int = 3) -> list[Floats]:
    return np.array_split(table(rows, columns), owners)


def with_missing(owners: list[Floats]) -> list[Any]:
    """The same tables with a twentieth of the values missing, which count as the joint mean."""
    random = np.random.default_rng(11)
    holes = [np.where(random.random(part.shape) < 0.05, np.nan, part) for part in owners]
    return [open_table(part, missing="mean") for part in holes]


def column_owners(rows: int = 60, columns: int = 6, cuts: tuple[int, ...] = (2, 4), overlap: int = 0) -> list[Any]:
    """Columns of the same individuals by owner; owner i lacks the first i * overlap ids and has as many others."""
    X, found = table(rows, columns), []
    ends = (0, *cuts, columns)
    for number, (start, stop) in enumerate(itertools.pairwise(ends)):
        ids = np.arange(rows)
        ids[: number * overlap] += 1000 * (number + 1)
        found.append(with_ids(X[:, start:stop], [f"c{j}" for j in range(start, stop)], ids))
    return found


def by_columns(alignment: str = "psi", **more: Any) -> Columns:
    return Columns("id", alignment, minimum=2, **more)


def values_of(pca: PCA) -> Values:
    """What the receiver of a model got, with signs as the estimator chooses them."""
    found: Values = {
        "variances": pca.explained_variance_,
        "ratios": pca.explained_variance_ratio_,
        "components": pca.components_,
        "mean": pca.mean_,
        "rows": pca.n_samples_,
        "solver": pca.solver_,
        "iterations": pca.n_iter_,
        "verified": pca.verified_,
    }
    return found | ({} if pca.scale_ is None else {"scale": pca.scale_})


def fit(data: Callable[[], Any], n_components: Any = 2, **options: Any) -> Callable[[LockstepServers], Values]:
    """A fit that reveals the model to the client."""
    options = {"fixed_iterations": FIXED} | options
    return lambda servers: values_of(PCA(n_components, servers=servers, **options).fit(data()))


def hidden(data: Callable[[], Any], **options: Any) -> Callable[[LockstepServers], Values]:
    """A fit whose model stays on the servers."""

    def run(servers: LockstepServers) -> Values:
        pca = PCA(2, servers=servers, fixed_iterations=FIXED, keep="m", reveal=False, **options).fit(data())
        return {"rows": pca.n_samples_, "exponents": pca.scale_exponents_, "verified": pca.verified_}

    return run


def use(operation: str, **options: Any) -> Callable[[LockstepServers], Values]:
    """The use of a kept model of row owners on new rows. Coordinates have unknown signs, so their magnitudes count."""

    def run(servers: LockstepServers) -> Values:
        pca = PCA(2, servers=servers, fixed_iterations=FIXED, keep="m", allow=EVERYTHING, **options).fit(row_owners())
        model, new = pca.shared_model(), table(9, seed=8)
        if operation == "inverse":
            return {"rows": model.inverse_transform(np.zeros((3, 2)))}
        if operation == "transform":
            return {"coordinates": np.abs(model.transform(new))}
        if operation == "scores":
            return {"scores": model.score_samples(new)}
        limit = {"threshold": 2.0} if operation == "threshold" else {"contamination": 0.3}
        return {"flags": model.detect(new, **limit)}

    return run


def use_columns(operation: str, alignment: str, **more: Any) -> Callable[[LockstepServers], Values]:
    """The use of a kept model of column owners on new rows; the second owner receives the result."""

    def run(servers: LockstepServers) -> Values:
        partition = by_columns(alignment)
        options = {"fixed_iterations": FIXED, "keep": "m", "allow": EVERYTHING[:4], "partition": partition} | more
        model = PCA(2, servers=servers, **options).fit(column_owners()).shared_model()
        new = column_owners(12)
        if operation == "transform":
            found = model.transform_columns(new, partition, receiver=1)
            return {"coordinates": np.abs(found.coordinates)[np.argsort(found.ids)]}
        found = model.detect_columns(new, partition, receiver=1, threshold=2.0, scores=True)
        return {"scores": found.scores, "flags": found.flags}

    return run


def added(**options: Any) -> Callable[[LockstepServers], Values]:
    """A fit of two owners, to which a third is added."""

    def run(servers: LockstepServers) -> Values:
        first, second, third = row_owners()
        pca = PCA(2, servers=servers, fixed_iterations=FIXED, keep="m", allow=EVERYTHING, **options)
        return values_of(pca.fit([first, second]).partial_fit([third]))

    return run


def fit_for(receivers: dict[str, list[str]], **options: Any) -> Callable[[LockstepServers], Values]:
    """A fit of row owners with several receivers. Components have arbitrary signs, so magnitudes count."""

    def run(servers: LockstepServers) -> Values:
        job = fit_job(6, 3, receivers, n_components=2, fixed_iterations=FIXED, **options)
        packets = [packet for part in row_owners() for packet in share_sums(moments(open_table(part)), 3)]
        found = run_inputs(servers, job, *packets)
        return {
            f"{name}: {part}": np.abs(value) for name, parts in found["to"].items() for part, value in parts.items()
        }

    return run


def loadings(alignment: str, columns: int = 6, rows: int = 60, **options: Any) -> Callable[[LockstepServers], Values]:
    """A fit of column owners of which each receives the loadings of its own columns."""

    def run(servers: LockstepServers) -> Values:
        partition = by_columns(alignment)
        owners = column_owners(rows, columns)
        receivers = {
            "client": [],
            "owner-1": ["loadings"],
            "owner-2": ["loadings", "variances"],
            "owner-3": ["loadings", "means"],
        }
        plan = make_plan(2, fixed_iterations=FIXED, partition=partition, **options)
        found: Values = {}

        class Recording(Job):
            def run_job(self, spec: Any, chunks: Any) -> Any:
                answer = super().run_job(spec, chunks)
                found.update((f"{n}: {p}", v) for n, parts in answer["to"].items() for p, v in parts.items())
                return answer

        sources = [Source(each) for each in open_columns(owners, "id")]
        make = lambda data: for_receivers(plan.job(data, 3), receivers)  # noqa: E731
        fit_columns(Recording(servers), sources, partition, make, lambda rows: None)
        return found

    return run


def regression(
    data: Callable[[], Any], target: Any, make: Callable[..., Any] = LinearRegression, **options: Any
) -> Callable[[LockstepServers], Values]:
    """A regression whose result the client receives."""

    def run(servers: LockstepServers) -> Values:
        model = make(servers=servers, **options).fit(data(), target=target)
        found = {"coefficients": model.coef_, "intercept": model.intercept_, "errors": model.standard_errors_}
        more = {"rows": model.n_samples_, "r2": model.r2_, "correlation": model.correlation_, "vif": model.vif_}
        return {name: value for name, value in (found | more).items() if value is not None}

    return run


EVERY_PART = ("result", "correlation", "vif")
WIDE = {"rows": 20, "columns": 110}

CASES: dict[str, Callable[[LockstepServers], Values]] = {
    "rows": fit(row_owners),
    "rows, until converged": fit(row_owners, fixed_iterations=None),
    "rows, until converged, all components": fit(row_owners, None, fixed_iterations=None),
    "rows, one owner": fit(lambda: row_owners(owners=1)),
    "rows, seven owners": fit(lambda: row_owners(140, owners=7)),
    "rows, one column": fit(lambda: row_owners(columns=1), 1),
    "rows, all components": fit(row_owners, None),
    "rows, fraction of variance": fit(row_owners, 0.8),
    "rows, standardised": fit(row_owners, standardize=True),
    "rows, too few iterations": fit(row_owners, fixed_iterations=1),
    "rows, loose tolerance": fit(row_owners, fixed_iterations=None, tol=1e-4),
    "rows, missing values": fit(lambda: with_missing(row_owners())),
    "rows, missing values, standardised": fit(lambda: with_missing(row_owners()), standardize=True),
    "rows, jacobi": fit(row_owners, fixed_iterations=None, solver="jacobi"),
    "rows, jacobi-classic": fit(row_owners, fixed_iterations=None, solver="jacobi-classic"),
    "rows, jacobi-eo": fit(row_owners, fixed_iterations=None, solver="jacobi-eo"),
    "rows, qr": fit(lambda: row_owners(columns=4), fixed_iterations=None, solver="qr"),
    "rows, power": fit(lambda: row_owners(columns=4), fixed_iterations=None, solver="power", tol=1e-4),
    "rows, topk": fit(lambda: row_owners(200, 60), 3, fixed_iterations=2, solver="topk"),
    "rows, several receivers": fit_for({"a": ["components", "variances"], "b": ["means"], "c": []}),
    "rows, several receivers, standardised": fit_for(
        {"a": ["components", "variances", "means", "deviations"], "b": ["deviations"]}, standardize=True
    ),
    "rows, kept": fit(row_owners, keep="m"),
    "rows, not revealed": hidden(row_owners),
    "rows, not revealed, standardised": hidden(row_owners, standardize=True),
    "rows, partial fit": added(),
    "rows, partial fit, standardised": added(standardize=True),
    "wide rows": fit(lambda: row_owners(**WIDE, owners=2)),
    "wide rows, standardised": fit(lambda: row_owners(**WIDE, owners=2), standardize=True),
    "columns, psi": fit(lambda: column_owners(overlap=3), partition=by_columns()),
    "columns, psi, standardised": fit(lambda: column_owners(overlap=3), standardize=True, partition=by_columns()),
    "columns, aligned": fit(column_owners, partition=by_columns("aligned")),
    "columns, namespace": fit(column_owners, partition=by_columns("namespace", namespace=60)),
    "columns, chunks": fit(column_owners, partition=by_columns("aligned", chunks=3)),
    "columns, loadings": loadings("psi"),
    "wide columns, aligned": fit(lambda: column_owners(**WIDE), partition=by_columns("aligned")),
    "wide columns, psi, standardised": fit(lambda: column_owners(**WIDE), standardize=True, partition=by_columns()),
    "regression, rows": regression(row_owners, 2),
    "regression, rows, every part": regression(row_owners, 2, reveal=EVERY_PART),
    "regression, rows, missing values": regression(lambda: with_missing(row_owners()), 2),
    "regression, rows, ridge": regression(row_owners, 2, Ridge, alpha=3.0),
    "regression, rows, ridge, standardised": regression(row_owners, 2, Ridge, alpha=3.0, standardize=True),
    "regression, columns, psi": regression(lambda: column_owners(overlap=3), "c2", partition=by_columns()),
    "regression, columns, aligned, every part": regression(
        column_owners, "c5", partition=by_columns("aligned"), reveal=EVERY_PART
    ),
    "use, transform": use("transform"),
    "use, transform, standardised": use("transform", standardize=True),
    "use, scores": use("scores"),
    "use, threshold, standardised": use("threshold", standardize=True),
    "use, contamination": use("contamination"),
    "use, inverse": use("inverse"),
    "use, columns, transform": use_columns("transform", "psi"),
    "use, columns, scores, standardised": use_columns("scores", "aligned", standardize=True),
}
