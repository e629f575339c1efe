"""Joint PCA of owners of different columns against scikit-learn on the joined table, on four processes and in lock-step.

Tolerance of explained-variance ratios: 1e-6, as for row owners. Values lie on a grid of 2^-24 of a column's spread, which
moves a variance by 2^-48 / 12 and a covariance by nothing on average: far below.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA as PlainPCA  # noqa: N811 - scikit-learn's
from sklearn.preprocessing import StandardScaler

from harness.lockstep import LockstepServers
from harness.processes import run
from harness.programs_on_tables import rows_in_memory
from harness.tables import with_ids
from ppca import PCA, Columns, Job
from ppca.estimator.partition import column_data
from ppca.jobs.chunks import Chunk
from ppca.jobs.matching import MatchError
from ppca.jobs.spool import Spool
from ppca.owner.alignment.ids import IdError
from ppca.owner.errors import BadColumns, BadValue, OwnerError
from ppca.protocol import share
from ppca.runtime import LocalServers

TOLERANCE = 1e-6
PSI = Columns("id")

Floats = NDArray[np.float64]


def split(X: Floats, cuts: list[int], rows: list[Any] | None = None, ids: Any = None) -> list[pa.Table]:
    """Columns dealt out to owners at `cuts`; `rows`: which rows each owner has, in which order."""
    ends = [0, *cuts, X.shape[1]]
    everybody = np.arange(len(X)) if ids is None else np.asarray(ids)
    tables = []
    for number, (start, stop) in enumerate(pairwise(ends)):
        at = np.arange(len(X)) if rows is None else np.asarray(rows[number])
        names = [f"c{i}" for i in range(start, stop)]
        tables.append(with_ids(X[at, start:stop], names, everybody[at]))
    return tables


def check(pca: PCA, joined: Floats) -> None:
    """Everything that scikit-learn says of the joined table."""
    scaler = StandardScaler(with_std=pca.standardize).fit(joined)
    truth = PlainPCA(pca.n_components_).fit(scaler.transform(joined))
    assert pca.n_samples_ == len(joined)
    assert np.abs(pca.explained_variance_ratio_ - truth.explained_variance_ratio_).max() < TOLERANCE
    largest = truth.explained_variance_[0]
    assert np.abs(pca.explained_variance_ - truth.explained_variance_).max() < TOLERANCE * largest
    spread, means = np.ptp(joined, axis=0), joined.mean(axis=0)
    assert np.all(np.abs(pca.mean_ - means) <= 2.0**-23 * spread + 1e-12 * np.abs(means))
    if pca.standardize:
        assert pca.scale_ is not None
        assert np.allclose(pca.scale_, scaler.scale_, rtol=1e-6)
    gaps = -np.diff(truth.explained_variance_)
    for i in range(pca.n_components_ - 1):
        if gaps[i] > 0.05 * largest and (i == 0 or gaps[i - 1] > 0.05 * largest):
            assert abs(pca.components_[i] @ truth.components_[i]) > 1 - 1e-9


def sample(n: int, d: int, seed: int = 0) -> Floats:
    random = np.random.default_rng(seed)
    return random.standard_normal((n, d)) @ random.standard_normal((d, d)) * np.geomspace(1, 30, d) + 5


CANCER = load_breast_cancer().data
RANDOM = np.random.default_rng(1)
KNOWN = [RANDOM.permutation(len(CANCER))[:n] for n in (560, 541, 500)]
COMMON = sorted(set.intersection(*[set(rows.tolist()) for rows in KNOWN]))
NUMBERS = np.array([f"P{i:04d}" for i in range(len(CANCER))])


# -- right on real servers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
def test_psi_on_processes(servers: LocalServers, standardize: bool) -> None:
    tables = split(CANCER, [10, 20], KNOWN, NUMBERS)
    pca = PCA(6, standardize=standardize, partition=PSI, servers=servers).fit(tables)
    check(pca, CANCER[COMMON])
    assert pca.verified_
    assert pca.feature_names_in_.tolist() == [f"c{i}" for i in range(30)]
    # Two splits to two servers each, less the keys, and sixteen bytes of tag to four servers.
    for table, sent in zip(tables, pca.bytes_uploaded_, strict=True):
        assert 0 <= sent - (4 * table.num_rows * 10 * 8 + 4 * 16 * table.num_rows) <= 4 * 16


@pytest.mark.parametrize("binary", [False, True], ids=["continuous", "0 and 1"])
def test_precision_is_that_of_the_grid(lockstep_servers: LockstepServers, binary: bool) -> None:
    """As column-owners.md says: means to 2^-25 of a column's scale, variances to about 2^-23 of the range in deviations."""
    X = np.asarray(np.random.default_rng(3).random((20, 6)) < 0.3, float) if binary else sample(20, 6)
    pca = PCA(servers=lockstep_servers, partition=Columns(alignment="aligned")).fit([X[:, :2], X[:, 2:]])
    centred = X - X.mean(axis=0)
    largest, deviation = np.abs(centred).max(axis=0), centred.std(axis=0)
    assert np.all(np.abs(pca.mean_ - X.mean(axis=0)) <= 2.0**-25 * 2 * largest)
    variances, exact = np.diag(pca.get_covariance()), centred.var(axis=0, ddof=1)
    rounding = 4e-9 * exact.sum()  # of the eigensolver
    assert np.all(np.abs(variances - exact) <= 2.0**-23 * largest / deviation * exact + rounding)


def test_files_of_several_kinds(servers: LocalServers, tmp_path: Path) -> None:
    """Ids with leading zeros are text in every file, whatever a reader would guess."""
    ids = [f"{i:05d}" for i in range(len(CANCER))]
    frames = [
        pd.DataFrame(CANCER[rows, 10 * k : 10 * k + 10], columns=[f"c{i}" for i in range(10 * k, 10 * k + 10)]).assign(
            student_id=[ids[row] for row in rows]
        )
        for k, rows in enumerate(KNOWN)
    ]
    frames[0].to_csv(tmp_path / "a.csv", index=False, sep=";")
    frames[1].to_parquet(tmp_path / "b.parquet", index=False)
    frames[2].to_feather(tmp_path / "c.feather")
    paths = [tmp_path / name for name in ("a.csv", "b.parquet", "c.feather")]
    pca = PCA(4, partition=Columns("student_id"), servers=servers).fit(paths)
    check(pca, CANCER[COMMON])
    mixed = PCA(2, partition=Columns("student_id"), servers=servers, columns=["c3", "c12", "c25", "c26"])
    check(mixed.fit([paths[0], frames[1], frames[2]]), CANCER[np.ix_(COMMON, [3, 12, 25, 26])])
    assert mixed.feature_names_in_.tolist() == ["c3", "c12", "c25", "c26"]


def test_a_refused_job_leaves_servers_and_models(servers: LocalServers) -> None:
    """Nothing is lost: the servers run on, keep what they kept, and have forgotten the rows of the refused job."""
    good = split(CANCER[:200], [10, 20])
    kept = PCA(2, partition=PSI, servers=servers, keep="safe").fit(good)
    strangers = split(CANCER[:200], [10, 20], [range(100), range(95, 195), range(200)])
    pids = servers.pids
    with pytest.raises(MatchError, match="fewer than 10 ids are common to all 3 owners"):
        PCA(2, partition=PSI, servers=servers).fit(strangers)
    with pytest.raises(ValueError, match="n_components=30: must be at most"):
        PCA(30, partition=Columns("id", minimum=2), servers=servers).fit(strangers)
    assert servers.pids == pids
    assert kept.shared_model().transform(CANCER[:3]).shape == (3, 2)
    assert run(servers, rows_in_memory) == [0] * 4


# -- right in lock-step ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
@pytest.mark.parametrize("way", ["psi", "aligned", "namespace"])
def test_three_ways(lockstep_servers: LockstepServers, way: str, standardize: bool) -> None:
    X = sample(60, 6)
    partition = Columns("id", way, 60 if way == "namespace" else None)
    pca = PCA(6, standardize=standardize, partition=partition, servers=lockstep_servers)
    check(pca.fit(split(X, [1, 4])), X)


@given(seed=st.integers(0, 2**32), owners=st.sampled_from([3, 5, 10]), standardize=st.booleans())
def test_random_overlaps(seed: int, owners: int, standardize: bool) -> None:
    """The joint PCA is that of the intersection, however rows and columns are dealt out."""
    random = np.random.default_rng(seed)
    X = sample(80, owners + 2, seed)
    rows = [random.permutation(80)[: random.integers(70, 81)] for _ in range(owners)]
    common = sorted(set.intersection(*[set(at.tolist()) for at in rows]))
    cuts = sorted(random.choice(np.arange(1, owners + 2), owners - 1, replace=False).tolist())
    ids = random.permutation(10**6)[:80]
    pca = PCA(3, standardize=standardize, partition=Columns("id", minimum=2), servers=LockstepServers())
    if len(common) < 4:
        return
    check(pca.fit(split(X, cuts, rows, ids)), X[common])


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
def test_namespace_fills_missing_rows_with_zeros(lockstep_servers: LockstepServers, standardize: bool) -> None:
    X = sample(40, 5)
    rows = [np.arange(40), np.arange(5, 40), np.arange(0, 40, 2)]
    filled = np.zeros((50, 5))
    for (start, stop), at in zip([(0, 2), (2, 4), (4, 5)], rows, strict=True):
        filled[at, start:stop] = X[at, start:stop]
    pca = PCA(3, standardize=standardize, partition=Columns("id", "namespace", 50), servers=lockstep_servers).fit(
        split(X, [2, 4], rows)
    )
    check(pca, filled)


@pytest.mark.parametrize("way", ["psi", "aligned"])
def test_pieces_change_nothing(way: str) -> None:
    """Sums are exact integers, so the covariance is the same to the last bit; the rest differs by rounding on shares."""
    X, found = sample(53, 4), []
    for chunks in (None, 1, 7, 53, 500):
        pca = PCA(4, partition=Columns("id", way, chunks=chunks), servers=LockstepServers(), fixed_iterations=12)
        found.append(pca.fit(split(X, [1, 2])))
        check(found[-1], X)
    for other in found[1:]:
        assert np.allclose(other.components_, found[0].components_, atol=1e-8)
        assert np.allclose(other.mean_, found[0].mean_, atol=1e-12)


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
def test_columns_far_from_zero_and_of_all_sizes(lockstep_servers: LockstepServers, standardize: bool) -> None:
    """Offsets keep the digits of columns whose mean is a million times their spread; standardised, sizes do not matter."""
    X = sample(80, 5)
    X = X / X.std(axis=0) * (np.array([1e-6, 1, 1e3, 1e6, 1e-3]) if standardize else np.array([1, 1, 2, 3, 0.5]))
    X[:, 1] += 1e6
    X[:, 3] -= 1e9 if standardize else 1e4
    check(PCA(5, standardize=standardize, partition=PSI, servers=lockstep_servers).fit(split(X, [2, 3])), X)


def test_constant_columns(lockstep_servers: LockstepServers) -> None:
    """Constant everywhere, or only in the rows that all owners have."""
    X = sample(60, 5)
    X[:, 1] = 1234.5
    X[:50, 3] = -7
    pca = PCA(3, standardize=True, partition=PSI, servers=lockstep_servers)
    pca.fit(split(X, [2, 4], [np.arange(60), np.arange(60), np.arange(50)]))
    truth = PlainPCA(3).fit(StandardScaler().fit_transform(X[:50]))
    assert np.abs(pca.explained_variance_ratio_ - truth.explained_variance_ratio_).max() < TOLERANCE
    assert pca.scale_ is not None
    assert pca.scale_[[1, 3]].tolist() == [1, 1]
    assert np.abs(pca.components_[:, [1, 3]]).max() < 1e-9


def test_a_constant_column_of_any_size_costs_nothing(lockstep_servers: LockstepServers) -> None:
    """Its scale is that of nothing, its mean a number of its own."""
    X = sample(60, 4)
    X[:, 3] = 1e30
    pca = PCA(3, partition=PSI, servers=lockstep_servers).fit(split(X, [2]))
    truth = PlainPCA(3).fit(X[:, :3])
    assert np.abs(pca.explained_variance_ratio_ - truth.explained_variance_ratio_).max() < TOLERANCE
    assert pca.mean_[3] == 1e30
    assert not [line for line in pca.openings_ if line["what"] == "scale exponents" and line["to"] == "servers"]


def test_servers_forget_the_rows() -> None:
    lockstep_servers, before = LockstepServers(), Spool.in_memory
    PCA(2, partition=PSI, servers=lockstep_servers).fit(split(sample(40, 4), [2]))
    assert lockstep_servers.held == [0] * 4
    assert Spool.in_memory == before


# -- refused -------------------------------------------------------------------------------------------------------------


class Untouched(LockstepServers):
    """Servers that must not be asked for anything."""

    def run_job(self, *arguments: Any, **options: Any) -> Any:
        raise AssertionError("something was sent")


def frame(ids: Any, width: int = 2, **columns: Any) -> pd.DataFrame:
    values = np.random.default_rng(0).standard_normal((len(ids), width))
    return pd.DataFrame(values, columns=[f"x{i}" for i in range(width)]).assign(id=ids, **columns)


GOOD = frame(np.arange(20))

REFUSED: dict[str, tuple[list[Any], dict[str, Any], type[Exception], str]] = {
    "no id column": ([GOOD, GOOD.drop(columns="id")], {}, BadColumns, "owner 2: there is no id column 'id'"),
    "array without names": ([GOOD, np.ones((3, 2))], {}, BadColumns, "it does not have column names"),
    "id not named": ([GOOD, GOOD], {"id": None, "columns": ["x0", "x1"]}, IdError, "needs an id column"),
    "duplicates": ([GOOD, frame([1, 2, 2, 3, 3, 3])], {}, IdError, "owner 2: 3 ids occur more than once"),
    "missing ids": ([frame(["a", None, "b"]), GOOD], {}, IdError, "owner 1: 1 ids are missing"),
    "float ids": ([GOOD, frame([0.5, 1.5])], {}, IdError, "owner 2: ids of type double are not exact"),
    "text": ([GOOD, frame([1, 2], name=["a", "b"])], {}, BadValue, "owner 2: column 'name' has text 'a' in row 1"),
    "NaN": ([GOOD, frame([1, 2], y=[1.0, np.nan])], {}, BadValue, "owner 2: column 'y' has a missing value .* row 2"),
    "infinity": (
        [GOOD, frame([1, 2], y=[np.inf, 1])],
        {},
        BadValue,
        "owner 2: column 'y' has an infinite value .* row 1",
    ),
    "too large": ([GOOD, frame([1, 2], y=[1.7e308, -1.7e308])], {}, OwnerError, "owner 2: values are too large"),
    "only ids": ([GOOD, GOOD[["id"]]], {}, BadColumns, "owner 2: there are no columns besides the ids 'id'"),
    "no rows": ([GOOD, GOOD[:0]], {}, OwnerError, "owner 2: the table is empty"),
    "one owner": ([GOOD], {}, ValueError, "at least two owners"),
    "unknown column": ([GOOD, GOOD], {"columns": ["x0", "y"]}, BadColumns, "no owner has a column 'y'"),
    "nothing chosen": (
        [GOOD, frame(np.arange(20)).rename(columns={"x0": "z"})],
        {"columns": ["z"]},
        BadColumns,
        "owner 1",
    ),
    "id chosen": ([GOOD, GOOD], {"columns": ["id"]}, BadColumns, "owner 1: none of its columns"),
    "unknown way": ([GOOD, GOOD], {"alignment": "magic"}, ValueError, "choose from psi, aligned, namespace"),
    "namespace without a number": ([GOOD, GOOD], {"alignment": "namespace"}, ValueError, "must be the number of ids"),
    "id outside of the namespace": (
        [GOOD, GOOD],
        {"alignment": "namespace", "namespace": 10},
        IdError,
        "owner 1: ids run from 0 to 19, outside 0..9",
    ),
    "chunks": ([GOOD, GOOD], {"chunks": 0}, ValueError, "chunks=0"),
    "partition": ([GOOD, GOOD], {"partition": "diagonal"}, ValueError, "choose 'rows' or ppca.Columns"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_computed(case: str) -> None:
    owners, options, kind, message = REFUSED[case]
    here = {name: value for name, value in options.items() if name in ("columns", "partition")}
    there = {name: value for name, value in options.items() if name not in here}
    with pytest.raises(kind, match=message):
        PCA(**{"partition": Columns(**{"id": "id", **there}), "servers": Untouched(), **here}).fit(owners)


NOT_ALIGNED = {
    "different row counts": (GOOD[:7], "owner 1: 20, owner 2: 7"),
    "another order": (GOOD[::-1], "owner 1, owner 2 .* different ids or another order"),
    "other ids": (frame(np.arange(1, 21)), "owner 1, owner 2 .* different ids or another order"),
}


@pytest.mark.parametrize("case", NOT_ALIGNED)
def test_servers_refuse_rows_that_are_not_aligned(case: str) -> None:
    """They compare keyed digests of ids, as in a federation. Nothing is opened, and the rows are forgotten."""
    other, message = NOT_ALIGNED[case]
    lockstep_servers = LockstepServers()
    with pytest.raises(IdError, match=message):
        PCA(partition=Columns("id", "aligned"), servers=lockstep_servers).fit([GOOD, other])
    assert lockstep_servers.held == [0] * 4
    assert not any(audit for run in lockstep_servers.audits for audit in run)


def test_a_missing_or_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    for name, message in (("none.csv", "no such file"), ("bad.parquet", "cannot be read")):
        with pytest.raises(OwnerError, match=f"{Path(name).stem}: .*{message}"):
            PCA(partition=PSI, servers=Untouched()).fit([GOOD, tmp_path / name])


def test_partial_fit_is_for_rows() -> None:
    with pytest.raises(AttributeError, match="'partial_fit'") as raised:
        PCA(partition=PSI, servers=Untouched(), keep="m").partial_fit([GOOD, GOOD])
    assert "row owners" in str(raised.value.__cause__)


# -- integers that doubles do not tell apart ---------------------------------------------------------------------------


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
@pytest.mark.parametrize("way", ["psi", "aligned", "namespace"])
@pytest.mark.parametrize("deviation", [0.5, 10, 1e6])
def test_integers_beyond_doubles(deviation: float, way: str, standardize: bool, tmp_path: Path) -> None:
    """Owners subtract before they share: the result is that of the same integers about zero. From memory, CSV and Parquet."""
    near = np.rint(np.random.default_rng(3).standard_normal((60, 4)) @ np.array(MIX) * deviation).astype(np.int64)
    joined = pd.DataFrame(near, columns=list("abcd")).assign(constant=0)
    middle = {"a": 2**62, "b": -(2**63) + 2**24, "c": 2**64 - 2**24, "d": 2**63, "constant": 2**62 + 1}
    far = pd.DataFrame({name: near_to(joined[name], at) for name, at in middle.items()}).assign(id=np.arange(60))
    far[["a", "id"]].to_csv(tmp_path / "a.csv", index=False)
    far[["b", "c", "id"]].to_parquet(tmp_path / "b.parquet")
    partition = Columns("id", alignment=way, namespace=60 if way == "namespace" else None)
    pca = PCA(standardize=standardize, partition=partition, servers=LockstepServers())
    pca.fit([tmp_path / "a.csv", tmp_path / "b.parquet", far[["d", "constant", "id"]]])
    scaler = StandardScaler(with_std=standardize).fit(joined)
    truth = PlainPCA().fit(scaler.transform(joined))
    assert np.abs(pca.explained_variance_ratio_ - truth.explained_variance_ratio_).max() < TOLERANCE
    assert np.abs(pca.explained_variance_ - truth.explained_variance_).max() < TOLERANCE * truth.explained_variance_[0]
    assert pca.mean_.tolist() == pytest.approx([float(at) for at in middle.values()], rel=2.0**-39)


MIX = [[1, 0.7, 0.2, 0], [0, 1, 0.5, 0.1], [0, 0, 1, 0.3], [0, 0, 0, 1]]


def near_to(values: pd.Series, middle: int) -> NDArray[Any]:
    return np.array([int(value) + middle for value in values], np.uint64 if middle > 2**62 + 1 else np.int64)


def test_a_table_whose_first_upload_fails_is_forgotten(lockstep_servers: LockstepServers) -> None:
    job = PCA(2, partition=PSI)._checked().job(column_data("columns", [1, 1], PSI), 2)
    with pytest.raises(ValueError, match="unpack"):
        Job(lockstep_servers).run_job(job, [Chunk(0, [share(np.zeros(3))], rows=True)])
    assert lockstep_servers.held == [0] * 4
