"""A pytest plugin that runs scikit-learn's tests of PCA and IncrementalPCA on `ppca.PCA`.

The four servers run in lock-step in the process of the tests. The adapter changes these things and no others:

- Parameters that only scikit-learn's classes have are accepted and not used.
- A batch of `IncrementalPCA.fit` is the table of one owner. `partial_fit` adds rows to sums that the servers keep.
- Numbers agree if they differ by at most 1e-6 of the largest, or by what the test allows if that is more. Tests of
  scikit-learn expect up to 14 digits of doubles.
- Errors are compared by type. Their messages are not those of scikit-learn.
- Tests that differ in an ignored parameter only (`svd_solver`) make the same jobs. The servers run the jobs of one test
  and remember their results for the others; every fit within one test is a job of its own.

`NOT_APPLICABLE` names the tests that do not apply. They run all the same, and the run fails if one passes.
"""

from __future__ import annotations

import importlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Self

import numpy as np
import pytest
import sklearn.decomposition
from sklearn.utils import estimator_checks, gen_batches

import ppca
from harness.lockstep import LockstepServers
from ppca.jobs.chunks import Chunk
from ppca.jobs.loading import as_data
from ppca.jobs.spec import JobSpec
from ppca.native import ring
from ppca.protocol import InputPacket
from ppca.protocol.inputs import receive
from ppca.runtime import Outcome


@dataclass(frozen=True)
class Reason:
    """Why tests do not apply. pattern: of their names, from the name of the module on. run: False if they take minutes
    or their outcome is random."""

    pattern: str
    why: str
    run: bool = True


NOT_APPLICABLE = (
    Reason(
        r"test_pca::test_pca_(mle_)?array_api_compliance\[.*-(array_api_strict|cupy|dpnp|torch)-\w+-\w+\]"
        r"|test_pca::test_array_api_error_and_warnings_on_unsupported_params",
        "Tables are NumPy arrays, frames and files. Arrays of torch, cupy and other array API libraries are not read.",
        run=False,
    ),
    Reason(
        r"test_pca::(test_n_components_mle\[.*|test_pca_dim|test_mle_.*|test_pca_mle_array_api_compliance\[.*-numpy-None-None\])",
        'There is no n_components="mle": it would need all variances of the joint data before their number is chosen.',
    ),
    Reason(r"test_pca::test_pca_score3", "The number of components is at least 1."),
    Reason(
        r"test_pca::test_pca_svd_solver_auto\[.*",
        "The test reads a private attribute that says which solver of scikit-learn ran.",
        run=False,
    ),
    Reason(
        r"test_pca::(test_pca_validation\[arpack-.*|test_n_components_none\[data.-arpack-3\])",
        "ARPACK cannot compute the last component. The solvers here can.",
    ),
    Reason(
        r"test_pca::test_sparse_pca_solver_error\[.*",
        "In scikit-learn two solvers refuse sparse tables. Here all solvers take them.",
    ),
    Reason(
        r"test_pca::(test_pca_dtype_preservation\[.*|test_pca_solver_equivalence\[\d+-float32-.*)",
        "float32 is read exactly and computed in fixed point. Results are float64.",
    ),
    Reason(
        r"test_pca::test_pca_solver_equivalence\[\d+-float64-False-True-tall-(arpack|covariance_eigh)\]",
        "The test compares components of variance zero: it takes variances above 1e-12 for determined. Here variances "
        "below "
        "`resolution_`, about 4e-9 of the total, are noise.",
    ),
    Reason(
        r"test_pca::(test_pca_solver_equivalence\[\d+-float64-True-(True-(tall|wide)-(arpack|covariance_eigh)"
        r"|False-wide-covariance_eigh)\])|test_incremental_pca::test_whitening\[.*",
        "Whitening divides by variances that are zero or nearly zero. That is refused here.",
    ),
    Reason(
        r"test_pca::test_pca_score\[.*",
        "In scikit-learn `whiten` changes the covariance of the model and lowers the score. Here it changes "
        "`transform` only, so "
        "the two scores that the test compares are equal up to rounding.",
        run=False,
    ),
    Reason(
        r"test_pca::test_pca_n_components_mostly_explained_variance_ratio",
        "The test asks for a fraction of the variance that equals a cumulative sum of another fit. Which side of it "
        "the sum of a "
        "second fit lies on is decided by rounding, which is random here.",
        run=False,
    ),
    Reason(
        r"test_pca::test_pca_zero_noise_variance_edge_cases\[.*",
        "The test scores rows under a model with variance zero in most directions. That is refused here.",
    ),
    Reason(
        r"test_incremental_pca::test_incremental_pca_sparse\[.*",
        "IncrementalPCA.partial_fit refuses sparse tables. Here they are taken.",
    ),
    Reason(
        r"test_incremental_pca::test_n_components_none",
        "Rows cannot be added to a fit with more columns than rows: servers keep no sums of it.",
    ),
    Reason(
        r"test_incremental_pca::test_incremental_pca_set_params",
        "IncrementalPCA.partial_fit refuses another number of components. Here it fits any number from the sums.",
    ),
    Reason(
        r"test_incremental_pca::test_incremental_pca_feature_names_out",
        "The columns that `transform` gives are called pca0, pca1, ... and not after IncrementalPCA.",
    ),
)


class RememberingServers(LockstepServers):
    """Servers that run a job once for all tests whose owners send the same numbers with the same parameters."""

    results: ClassVar[dict[tuple[Any, ...], Outcome]] = {}
    used: ClassVar[Counter[tuple[Any, ...]]] = Counter()

    def run_job(self, job: JobSpec, chunks: Iterable[Chunk], progress: Any = None) -> Outcome:
        """See `Servers.run_job`."""
        made = list(chunks)
        numbers = [(chunk.table, chunk.rows, *map(_numbers, chunk.packets)) for chunk in made]
        same = (json.dumps(as_data(job), sort_keys=True), *numbers)
        self.used[same] += 1
        key = (*same, self.used[same])
        if key not in self.results:
            self.results[key] = super().run_job(job, made, progress)
        return self.results[key]


def _numbers(packets: list[InputPacket]) -> tuple[Any, ...]:
    """Return the shape, the type and the numbers that an owner shared in packets for the four servers."""
    values = ring.add(receive(packets[0], 0, 0)[0], receive(packets[2], 1, 0)[0])
    return packets[0].shape, packets[0].dtype, values.tobytes()


class Adapted(ppca.PCA):
    """`ppca.PCA` with the parameters of scikit-learn's PCA. A single table has one owner."""

    def __init__(
        self,
        n_components: Any = None,
        *,
        copy: bool = True,
        whiten: bool = False,
        svd_solver: str = "auto",
        tol: float = 1e-9,
        iterated_power: Any = "auto",
        n_oversamples: int = 10,
        power_iteration_normalizer: str = "auto",
        random_state: Any = None,
    ) -> None:
        super().__init__(n_components, whiten=whiten, tol=tol, svd_solver=svd_solver, random_state=random_state)
        self.copy = copy
        self.iterated_power = iterated_power
        self.n_oversamples = n_oversamples
        self.power_iteration_normalizer = power_iteration_normalizer

    def fit(self, X: Any, y: Any = None) -> Self:
        self.servers = RememberingServers()
        return super().fit(X, y)


class AdaptedIncremental(ppca.PCA):
    """`ppca.PCA` with the parameters of IncrementalPCA."""

    def __init__(
        self, n_components: Any = None, *, whiten: bool = False, copy: bool = True, batch_size: int | None = None
    ) -> None:
        super().__init__(n_components, whiten=whiten, servers=LockstepServers(), keep="model")
        self.copy = copy
        self.batch_size = batch_size

    def fit(self, X: Any, y: Any = None) -> Self:
        rows, width = X.shape
        self.batch_size_ = self.batch_size or 5 * width
        batches = gen_batches(rows, self.batch_size_, min_batch_size=self.n_components or 0)
        return super().fit([X[batch] for batch in batches], y)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        super().partial_fit(X, y) if hasattr(self, "n_components_") else super().fit(X, y)
        self.n_samples_seen_ = self.n_samples_
        return self


CLOSE = 1e-6
"""Two fits with a tolerance of 1e-9 can differ by about 1e-9 over the gap between two variances: up to 2e-7 in these
tests."""

_numpy_close, _pytest_raises = np.testing.assert_allclose, pytest.raises


def _close(actual: Any, desired: Any, rtol: float = 0.0, atol: float = 0.0, **options: Any) -> None:
    actual, desired = np.asarray(actual), np.asarray(desired)
    largest = float(np.abs(desired.astype(np.float64)).max(initial=0.0))
    _numpy_close(actual, desired, rtol=max(rtol, CLOSE), atol=max(atol, CLOSE * largest), **options)


def _close_decimals(actual: Any, desired: Any, decimal: int = 7, **options: Any) -> None:
    _close(actual, desired, 0.0, 1.5 * 10.0**-decimal, **options)


def _raises(kind: Any, *arguments: Any, match: str | None = None, **options: Any) -> Any:
    return _pytest_raises(kind, *arguments, **options)


REPLACED = {
    "_atol_for_type": lambda kind: max(CLOSE, 100 * float(np.finfo(kind or np.float64).eps)),
    "assert_allclose": _close,
    "assert_almost_equal": _close_decimals,
    "assert_array_almost_equal": _close_decimals,
    "assert_allclose_dense_sparse": _close,
    "raises": _raises,
}
"""Functions that compare, by their names in NumPy, pytest and scikit-learn."""


def adapt() -> None:
    """Import scikit-learn's tests with the adapted classes and comparisons. The whole process is changed."""
    for module in (np.testing, pytest, estimator_checks):
        _replace(module)
    for name, adapted in (
        ("test_pca", {"PCA": Adapted}),
        ("test_incremental_pca", {"IncrementalPCA": AdaptedIncremental}),
    ):
        with pytest.MonkeyPatch.context() as patch:
            for key, value in adapted.items():
                patch.setattr(sklearn.decomposition, key, value)
            _replace(importlib.import_module(f"sklearn.decomposition.tests.{name}"))


def _replace(module: ModuleType) -> None:
    vars(module).update({key: value for key, value in REPLACED.items() if key in vars(module)})


# -- the plugin: pytest -p harness.sklearn_suite
# -------------------------------------------------------------------------


class Outcomes:
    """Collects the outcome of every test and why it did not pass."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        outcome, why = report.outcome, ""
        if report.skipped and hasattr(report, "wasxfail"):
            outcome, why = "not applicable", report.wasxfail.removeprefix("[NOTRUN] ")
        file, _, name = report.location
        self.found[f"{Path(file).stem}::{name}"] = (outcome, why)


OUTCOMES = pytest.StashKey[Outcomes]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--counts", type=Path, help="file for the outcomes, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    adapt()
    config.stash[OUTCOMES] = Outcomes()
    config.pluginmanager.register(config.stash[OUTCOMES])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = f"{item.path.stem}::{item.name}"
        reasons = [reason for reason in NOT_APPLICABLE if re.fullmatch(reason.pattern, name)]
        if len(reasons) > 1:
            raise pytest.UsageError(f"{name} does not apply for {len(reasons)} reasons; give one")
        for reason in reasons:
            item.add_marker(pytest.mark.xfail(reason=reason.why, run=reason.run, strict=True))


@pytest.fixture(autouse=True)
def _own_jobs() -> None:
    """Every fit within a test is a job of its own."""
    RememberingServers.used.clear()


def pytest_sessionfinish(session: pytest.Session) -> None:
    where = session.config.getoption("--counts")
    if where is not None:
        where.write_text(json.dumps(session.config.stash[OUTCOMES].found, indent=1))
