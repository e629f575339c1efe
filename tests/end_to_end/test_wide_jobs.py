"""Tables with more columns than rows over four servers that are processes: from the job's file to a result that can be verified.

Values against scikit-learn on the joint table, as in `tests/estimator/test_wide.py`: 1e-7 for explained-variance ratios,
1e-6 of the largest variance for residuals.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.decomposition import PCA as PlainPCA  # noqa: N811 - scikit-learn's
from sklearn.preprocessing import StandardScaler

import ppca
from benchmarks.field import OPERATORS, Field
from benchmarks.jobs import fit_job
from ppca.cli.fetch import fetch_into
from ppca.federation.proposal import ProposedJob
from ppca.jobs.registry import openings
from ppca.member.contributing import contribute
from ppca.member.fetching import Evidence
from ppca.owner.errors import OwnerError

pytestmark = pytest.mark.processes

Floats = NDArray[np.float64]
OWNERS = ("north", "south", "west")
PATIENCE = 240.0
K = 3
NAMES = [f"g{i}" for i in range(110)]
RANDOM = np.random.default_rng(4)
X: Floats = RANDOM.standard_normal((24, 4)) * [9, 5, 3, 1] @ RANDOM.standard_normal((4, 110)) + 5
X += 0.1 * RANDOM.standard_normal(X.shape)
BY_ROWS = dict(zip(OWNERS, np.split(X, [9, 17]), strict=True))
CUTS = {"north": NAMES[:7], "south": NAMES[7:20], "west": NAMES[20:]}


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    with Field(tmp_path_factory.mktemp("field"), (*OWNERS, "solo"), ("analyst", "solo", *OWNERS)) as found:
        yield found


def write(path: Path, names: Sequence[str], table: Floats, ids: Sequence[str] | None = None) -> Path:
    lines = [",".join([*(["id"] if ids else []), *names])]
    lines += [
        ",".join([*([ids[i]] if ids else []), *(format(value, ".17g") for value in row)]) for i, row in enumerate(table)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def run(field: Field, job: ProposedJob, tables: Mapping[str, Path], id: str | None = None) -> Evidence:
    """A job of the analyst from its submission to its evidence."""
    analyst = field.member("analyst")
    analyst.submit(job)
    for owner in job.proposal.owners:
        field.member(owner).approve(job)
    deadline = time.monotonic() + PATIENCE
    while any(item.what.startswith("offer") for item in analyst.job_state(job).waiting if item.actor in OPERATORS):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for owner, path in tables.items():
        contribute(field.member(owner), job, path, id=id, min_rows=1)
    *_, (job_state, _) = analyst.watch(job, PATIENCE)
    assert job_state.done, job_state.why
    evidence = Evidence.gather(analyst, job)
    evidence.check()
    return evidence


def draft(field: Field, name: str, columns: Any, receivers: Any = None, **fit: Any) -> ProposedJob:
    way = fit.pop("way", "aligned")
    numbers = {"namespace": len(X)} if way == "namespace" else {}
    align = {"alignment": way, **numbers} if isinstance(columns, dict) else None
    return fit_job(
        *(field.member("analyst").membership, name, list(OWNERS), columns, receivers or {"analyst": ["model"]}),
        align=align,
        wide=True,
        rows_at_least=20 if align is None else None,
        **{"components": K, **fit},
    )


def check(evidence: Evidence, standardize: bool) -> None:
    """What scikit-learn says of the joint table, and the audit the approved list."""
    model = evidence.result().model
    scaler = StandardScaler(with_std=standardize).fit(X)
    Z = scaler.transform(X)
    truth = PlainPCA(K, svd_solver="full").fit(Z)
    assert model.verified
    assert model.rows == len(X)
    assert np.abs(model.explained_variance_ratio - truth.explained_variance_ratio_).max() < 1e-7
    V = model.components.T
    residual = Z.T @ (Z @ V) / (len(X) - 1) - V * truth.explained_variance_
    assert np.linalg.norm(residual) < 1e-6 * truth.explained_variance_[0]
    np.testing.assert_allclose(model.mean, X.mean(axis=0), atol=1e-9)
    audit = evidence.account().audit
    opened = {(line["what"], line["to"]) for line in audit}
    assert opened == {(line.what, line.to) for line in openings(evidence.job.spec)}
    assert not model.fell_back
    (ranks,) = [line["shape"] for line in audit if line["what"] == "shuffled ranks"]
    assert ranks[0] < len(NAMES), "products of rows were analysed, not the covariance"


@pytest.mark.parametrize(
    "standardize", [False, pytest.param(True, marks=pytest.mark.release)], ids=["raw", "standardised"]
)
def test_owners_of_rows(field: Field, tmp_path: Path, standardize: bool) -> None:
    job = draft(field, f"wide-rows-{standardize}", NAMES, standardize=standardize)
    assert job.spec.data.form == "wide-rows"
    tables = {owner: write(tmp_path / f"{owner}.csv", NAMES, table) for owner, table in BY_ROWS.items()}
    evidence = run(field, job, tables)
    check(evidence, standardize)
    sizes = [line["shape"] for line in evidence.account().audit if line["what"] == "rounded numbers of rows"]
    assert sizes == [[3]]
    if standardize:
        return
    folder = tmp_path / "result"
    fetch_into(field.member("analyst"), job, folder, replace=False)
    command = [sys.executable, "-m", "ppca.cli.main", "verify", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "computed again from the evidence" in done.stdout


@pytest.mark.parametrize(
    ("way", "standardize"),
    [
        ("psi", True),
        *(
            pytest.param(way, standardize, marks=pytest.mark.release)
            for way, standardize in [
                ("psi", False),
                ("aligned", False),
                ("aligned", True),
                ("namespace", False),
                ("namespace", True),
            ]
        ),
    ],
)
def test_owners_of_columns_and_their_loadings(field: Field, tmp_path: Path, way: str, standardize: bool) -> None:
    receivers = {"analyst": ["model"], **{owner: ["loadings"] for owner in OWNERS}}
    job = draft(field, f"wide-columns-{way}-{standardize}", CUTS, receivers, way=way, standardize=standardize)
    assert job.spec.data.form == "wide-columns"
    pattern = {"psi": "P{:02}", "namespace": "{}"}.get(way)
    ids = [pattern.format(i) for i in range(len(X))] if pattern else None
    tables, start = {}, 0
    for number, (owner, mine) in enumerate(CUTS.items()):
        part = X[:, start : (start := start + len(mine))]
        order = np.random.default_rng(number).permutation(len(X)) if ids else np.arange(len(X))
        named = None if ids is None else [ids[i] for i in order]
        tables[owner] = write(tmp_path / f"{owner}.csv", mine, part[order], named)
    evidence = run(field, job, tables, None if ids is None else "id")
    check(evidence, standardize)
    components = evidence.result().model.components
    start = 0
    for owner, mine in CUTS.items():
        mine_only = Evidence.gather(field.member(owner), job).result().values
        columns = slice(start, start := start + len(mine))
        np.testing.assert_array_equal(mine_only["loadings"], components[:, columns])
        assert not {"components", "mean", "values", "exponents"} & set(mine_only)


def test_rows_that_are_not_fewer_are_refused(field: Field, tmp_path: Path) -> None:
    """By each owner before it sends anything; and by the servers, if the rows of all are too many together."""
    job = draft(field, "tall-alone", NAMES[:20])
    analyst = field.member("analyst")
    analyst.submit(job)
    for owner in OWNERS:
        field.member(owner).approve(job)
    deadline = time.monotonic() + PATIENCE
    while any(item.what.startswith("offer") for item in analyst.job_state(job).waiting if item.actor in OPERATORS):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    table = write(tmp_path / "few.csv", NAMES[:20], BY_ROWS["north"][:, :20])
    with pytest.raises(OwnerError, match="this table has 32, rounded up as they are sent"):
        contribute(field.member("north"), job, table, min_rows=1)
    job = draft(field, "tall-together", NAMES[:96])
    tables = {o: write(tmp_path / f"{o}.csv", NAMES[:96], part[:, :96]) for o, part in BY_ROWS.items()}
    with pytest.raises(AssertionError, match="it has at least as many rows as its 96 columns"):
        run(field, job, tables)


@pytest.mark.release
@pytest.mark.parametrize("way", ["rows", "columns"])
def test_one_person_for_all_owners(field: Field, way: str) -> None:
    folder = field.folder / "solo"
    federation = ppca.Federation.open(folder / "federation.toml", folder / "identity.key", folder / "state")
    partition: Any = "rows" if way == "rows" else ppca.Columns(alignment="aligned")
    parts = list(BY_ROWS.values()) if way == "rows" else np.split(X, [7, 20], axis=1)
    pca = ppca.PCA(K, servers=federation, fixed_iterations=20, partition=partition).fit(parts)
    truth = PlainPCA(K, svd_solver="full").fit(X)
    assert np.abs(pca.explained_variance_ratio_ - truth.explained_variance_ratio_).max() < 1e-7
    assert "verification of components" in [line["what"] for line in pca.openings_]


def test_a_server_may_refuse_it(tmp_path: Path) -> None:
    """An operator lists the forms of data that its server takes."""
    settings = {"policy": {"forms": ["rows", "columns", "new-rows"]}}
    with Field(tmp_path / "old", OWNERS, ("analyst",), settings=settings) as field:
        analyst = field.member("analyst")
        job = draft(field, "wide", NAMES)
        analyst.submit(job)
        *_, (job_state, _) = analyst.watch(job, PATIENCE)
        assert not job_state.done
        assert "this server takes data of the forms rows, columns, new-rows, not wide-rows" in job_state.why
