"""Files that the workers of a Dask cluster read: as in one pass here, bounded, over TLS; and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from harness.waiting import PATIENCE
from ppca.owner import cluster as clusters
from ppca.owner import dask_moments
from ppca.owner.cluster import QUIET, TlsFiles, cluster
from ppca.owner.errors import BadValue, NoRows, OwnerError, UnreadableData
from ppca.owner.missing_moments import moments_with_missing
from ppca.owner.moments import moments
from ppca.owner.rows import missing_moments_of, sums_of
from ppca.owner.tables import arrow
from ppca.owner.tables.opening import open_table
from ppca.owner.tables.options import ReadOptions
from ppca.owner.tables.owners import open_rows
from ppca.owner.tables.reading import CompleteRows

distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install 'ppca[dask]'")

X = np.random.default_rng(0).normal(size=(9000, 5)) @ np.random.default_rng(1).normal(size=(5, 5)) + np.arange(5)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Two workers that are threads of this process, so that they share its memory:// and what tests put instead of limits."""
    options = {"threads_per_worker": 1, "processes": False, "dashboard_address": None, "memory_limit": 0}
    with distributed.LocalCluster(n_workers=2, **options) as workers, distributed.Client(workers) as one:
        yield one


def write(path: Path, values: Any, groups: int = 300) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    table = pa.table({name: values[:, k] for k, name in enumerate("abcde")})
    pa.parquet.write_table(table, path, row_group_size=groups)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four files, one of them empty."""
    for number, part in enumerate((X[:4000], X[4000:4100], X[:0], X[4100:])):
        write(tmp_path / "north" / f"{number}.parquet", part)
    return tmp_path / "north"


def test_a_folder_as_in_one_pass(client: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "PART_NUMBERS", 5 * 500)
    table = open_table(folder, dask=True, label="north")
    parts = table.independent_parts()
    assert parts is not None
    assert sum(part.rows or 0 for part in parts) == 9000
    assert len(parts) == 7 + 1 + 1 + 9  # two row groups of 300 rows each; the last of a file may be alone
    seen: list[tuple[int, int | None]] = []
    found = sums_of(table, lambda done, rows: seen.append((done, rows)))
    whole = moments(open_table(X))
    assert (found.count, found.label, found.names) == (9000, "north", list("abcde"))
    assert np.abs(found.gram - whole.gram).max() <= 1e-14 * whole.gram.max()
    assert np.allclose(found.mean, whole.mean, rtol=0, atol=1e-14)
    assert len(seen) == 17  # the part without rows is not handed out
    assert seen[-1] == (9000, 9000)
    again = sums_of(table)
    assert (again.gram == found.gram).all()  # whatever order the parts ended in


def test_few_parts_are_under_way(client: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more than the window have been started and not merged, and of merged sums log2 of their number are held."""
    monkeypatch.setattr(arrow, "PART_NUMBERS", 1)
    most = {"running": 0, "held": 0}
    merge = dask_moments._PartScheduler._merge

    def counted(job_state: Any, future: Any) -> None:
        most["running"] = max(most["running"], len(job_state.running) + 1)
        merge(job_state, future)
        most["held"] = max(most["held"], len(job_state.held))

    monkeypatch.setattr(dask_moments._PartScheduler, "_merge", counted)
    sums_of(open_table(folder, dask=True))
    assert most["running"] <= 2 * dask_moments.PARTS_PER_THREAD
    assert most["held"] <= 5  # 14 + 1 + 17 = 32 parts


def test_gaps_and_dropped_rows(client: Any, folder: Path) -> None:
    holes = X.copy()
    holes[np.random.default_rng(3).random(X.shape) < 0.1] = np.nan
    holes[:600, 2] = np.nan  # the first parts have no complete row
    path = write(folder / "holes.parquet", holes)
    found = missing_moments_of(open_table(path, dask=True, missing="mean"))
    wanted = moments_with_missing(open_table(holes, missing="mean"))
    assert found.counts.tolist() == wanted.counts.tolist()
    assert np.abs(found.gram - wanted.gram).max() <= 1e-14 * wanted.gram.max()
    table = open_table(path, dask=True, missing="drop")
    complete = holes[~np.isnan(holes).any(axis=1)]
    sums = sums_of(table)
    assert sums.count == len(complete)
    assert np.abs(sums.gram - moments(open_table(complete)).gram).max() <= 1e-14 * sums.gram.max()
    assert isinstance(table, CompleteRows)
    assert table.dropped == len(holes) - len(complete)
    with pytest.raises(NoRows, match="every row misses a value"):
        sums_of(open_table(write(folder / "gone.parquet", holes[:500]), dask=True, missing="drop"))
    with pytest.raises(BadValue, match=r"holes.parquet: 5 columns have missing values"):
        sums_of(open_table(path, dask=True))


def test_other_kinds_and_stores(client: Any, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    np.save(tmp_path / "x.npy", X)
    header = "a,b,c,d,e"
    np.savetxt(tmp_path / "x.csv", X, "%.17g", ",", header=header, comments="")
    memory = fsspec.filesystem("memory")
    memory.pipe("/bucket/x.csv", (tmp_path / "x.csv").read_bytes())
    wanted = moments(open_table(X)).gram
    for place in (tmp_path / "x.npy", tmp_path / "x.csv", "memory://bucket/x.csv", f"file://{tmp_path / 'x.npy'}"):
        assert (sums_of(open_table(place, dask=True)).gram == wanted).all()
    assert (sums_of(open_table(X, dask=True)).gram == wanted).all()  # rows in memory stay here
    memory.rm("/bucket", recursive=True)


def test_columns_are_matched_before_the_pass(client: Any, folder: Path) -> None:
    other = write(folder.parent / "south.parquet", X)
    turned = pa.parquet.read_table(other).select(list("edcba"))
    pa.parquet.write_table(turned, other)
    tables = open_rows([folder, other], options=ReadOptions(dask=True))
    assert [table.on_dask for table in tables] == [True, True]
    assert np.abs(sums_of(tables[1]).mean - X.mean(axis=0)).max() < 1e-12


def test_files_that_workers_do_not_see(client: Any, folder: Path) -> None:
    table = open_table(folder, dask=True)
    (folder / "0.parquet").unlink()
    with pytest.raises(UnreadableData, match=r"0.parquet: a worker of the Dask cluster does not find the file"):
        sums_of(table)


def test_a_client_is_needed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_moments, "client_in_use", lambda: None)
    with pytest.raises(OwnerError, match=r"no Dask client is in use"):
        sums_of(open_table(folder, dask=True))


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    folder = tmp_path_factory.mktemp("tls")
    made = distributed.Security.temporary()
    (folder / "ca.pem").write_text(made.tls_ca_file)
    (folder / "cert.pem").write_text(made.tls_client_cert)
    (folder / "key.pem").write_text(made.tls_client_key)
    return TlsFiles(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")


def test_an_existing_cluster_over_tls(folder: Path, tls: TlsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    security = distributed.Security(
        require_encryption=True,
        **{f"tls_{role}_{what}": str(file) for role in ("client", "scheduler", "worker")
           for what, file in (("cert", tls.certificate), ("key", tls.key))},
        tls_ca_file=str(tls.authority),
    )  # fmt: skip
    options = {"threads_per_worker": 1, "processes": False, "dashboard_address": None, "memory_limit": 0}
    monkeypatch.setattr(clusters, "PATIENCE", PATIENCE)
    with distributed.LocalCluster(n_workers=1, security=security, protocol="tls://", **options) as workers:
        address = workers.scheduler_address
        with cluster(address, tls):
            assert sums_of(open_table(folder, dask=True)).count == 9000
        with pytest.raises(OwnerError, match=r"yours and your key are needed"), cluster(address):
            pass
        strange = distributed.Security.temporary()
        for name, text in (
            ("ca", strange.tls_ca_file),
            ("cert", strange.tls_client_cert),
            ("key", strange.tls_client_key),
        ):
            (folder / f"{name}.pem").write_text(text)
        other = TlsFiles(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
        with monkeypatch.context() as patch:
            patch.setattr(clusters, "PATIENCE", 1.0)
            with (
                pytest.raises(OwnerError, match=r"no scheduler with a certificate of the given authority"),
                cluster(address, other),
            ):
                pass
        workers.scale(0)
        workers.sync(workers._correct_state)
        wait = distributed.Client.wait_for_workers

        def sooner(client: Any, count: int, timeout: float) -> None:
            wait(client, count, timeout=0.5)

        monkeypatch.setattr(distributed.Client, "wait_for_workers", sooner)
        with pytest.raises(OwnerError, match=r"its scheduler does not have workers"), cluster(address, tls):
            pass


@pytest.mark.processes
def test_workers_of_this_machine(folder: Path) -> None:
    with cluster("local:2") as client:
        assert len(client.nthreads()) == 2
        assert client.scheduler.address.startswith("tls://127.0.0.1")
        assert sums_of(open_table(folder, dask=True)).count == 9000
        assert set(client.run(_quiet).values()) == {True}


def _quiet() -> bool:
    import dask

    return all(dask.config.get(name) == value for name, value in QUIET.items())


def test_a_part_is_decoded_by_the_thread_that_sums_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are as many as their owner wants: Arrow's threads would come on top of them."""
    asked: list[bool] = []
    batches = pa.parquet.ParquetFile.iter_batches

    def watched(file: Any, *arguments: Any, **options: Any) -> Any:
        asked.append(options["use_threads"])
        return batches(file, *arguments, **options)

    monkeypatch.setattr(pa.parquet.ParquetFile, "iter_batches", watched)
    whole = open_table(next(folder.glob("*.parquet")))
    for table in (whole, *(whole.independent_parts() or ())):
        moments(table, threads=1)
    assert asked == [True] + [False] * (len(asked) - 1)
    assert len(asked) > 1


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("scheduler:8786", "write tls://host:port"),
        ("local:0", "write tls://host:port"),
        ("tcp://10.0.0.1:8786", "not be encrypted or authenticated"),
        ("tcp://127.0.0.1:9", r"no scheduler listens at 127.0.0.1, port 9 \(Connection refused\). Start it"),
    ],
)
def test_addresses_of_clusters_that_are_refused(where: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "PATIENCE", 1.0)
    with pytest.raises(OwnerError, match=message), cluster(where):
        pass


def test_tls_files_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(OwnerError, match=r"the TLS file .*none does not exist"):
        TlsFiles(tmp_path / "none", tmp_path / "none", tmp_path / "none")
