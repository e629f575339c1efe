"""Who computes the chunks: worker processes or a Dask cluster of each server give what the server itself gives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA as PlainPCA  # noqa: N811 - scikit-learn's

import harness.programs_on_tables as programs
from harness.authority import dask_certificates
from harness.tables import with_ids
from harness.waiting import until
from ppca import PCA, Columns, Job
from ppca.algorithms.second_moments import Blocks, local_product
from ppca.jobs.operator import Operator
from ppca.jobs.pools import submitter
from ppca.jobs.spec import Align
from ppca.owner.alignment.arrangement import arrange
from ppca.owner.columns import Centred
from ppca.owner.tables.owners import open_columns
from ppca.owner.tables.records import Records
from ppca.runtime import DaskCluster, LocalServers, OperatorError, ServersFailed

X = np.random.default_rng(2).standard_normal((400, 6)) @ np.diag([5.0, 3, 2, 1, 0.5, 0.2])
TABLES = [with_ids(X[:, 2 * k : 2 * k + 2], [f"a{k}", f"b{k}"], np.arange(len(X))) for k in range(3)]


def moments(servers: LocalServers, workers: int | str) -> list[Any]:
    """The second moments and sums of the uploaded rows, which are integers in units of the grid."""
    records = [Records.of(table) for table in open_columns(TABLES, "id")]
    owners = [Centred.of(rows) for rows in arrange(records, Align(alignment="aligned"))]
    chunks = [chunk for i, owner in enumerate(owners) for chunk in owner.chunks(i, False)]
    packets = [packet for chunk in chunks for packet in chunk.packets]
    about = {"tables": [chunk.table for chunk in chunks], "rows": len(X), "starts": [0, 2, 4, 6], "workers": workers}
    found = Job(servers).run(programs.moments, *packets, **about)
    return [(np.asarray(found[key]) * 2.0**48).tolist() for key in ("products", "columns")]


def fit(servers: LocalServers, workers: int | str) -> PCA:
    servers.workers = workers
    try:
        return PCA(partition=Columns("id", chunks=6), servers=servers).fit(TABLES)
    finally:
        servers.workers = 0


def check(servers: LocalServers, workers: int | str) -> None:
    """Sums are equal to the last bit, and the whole fit is right."""
    assert moments(servers, workers) == moments(servers, 0)
    found, truth = fit(servers, workers), PlainPCA().fit(X)
    assert np.abs(found.explained_variance_ratio_ - truth.explained_variance_ratio_).max() < 1e-6


@pytest.mark.processes
@pytest.mark.parametrize("own", [False, True])
def test_a_task_is_the_same_everywhere(own: bool) -> None:
    random = np.random.default_rng(3)
    chunk, blocks = random.integers(0, 2**64, (2, 50, 6), dtype=np.uint64), Blocks((0, 1, 4, 6), own)
    exact = (chunk[0].astype(object).T @ chunk[1].astype(object)) % 2**64
    i, j = blocks.entries()
    assert local_product(chunk[0], chunk[1], blocks)[:, 0].tolist() == exact[i, j].tolist()
    assert len(i) == (21 if own else 11)
    with submitter(2) as (submit, ahead):
        assert ahead == 4
        tasks = [submit(local_product, chunk[0], chunk[1], blocks) for _ in range(3)]
        for task in tasks:
            assert np.array_equal(task.result(), local_product(chunk[0], chunk[1], blocks))


def test_worker_processes(servers: LocalServers) -> None:
    check(servers, 2)
    assert not [child for pid in servers.pids for child in _children(pid)]


def _children(pid: int) -> list[int]:
    """Worker processes of a server; Python's own resource tracker, which ends with it, does not count."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            worker = b"spawn_main" in (status.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == pid and worker:
            found.append(int(status.parent.name))
    return found


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.processes
def test_workers_end_with_a_killed_server() -> None:
    """A server that dies in the middle of a job leaves no process behind."""
    orphans: list[int] = []
    with LocalServers(timeout=60, workers=1) as servers:

        def kill(text: str, fraction: float | None, rounds: int) -> None:
            if text.startswith("second moments") and not orphans:
                orphans.extend(_children(servers.pids[2]))
                os.kill(servers.pids[2], 9)

        partition = Columns("id", chunks=200)
        with pytest.raises(ServersFailed):
            PCA(partition=partition, servers=servers).fit(TABLES, progress=kill)
    assert orphans
    until(lambda: not any(map(_alive, orphans)), "workers are left")


def test_a_job_cannot_say_where_pieces_go(servers: LocalServers) -> None:
    """Neither an address nor more processes than the operator allows; and the servers' own refusal is heard."""
    for place in ({"kind": "dask", "schedulers": ["tcp://127.0.0.1:9"] * 4}, "tls://elsewhere:8786", -1, True):
        with pytest.raises(ValueError, match="give a number of processes"):
            LocalServers(workers=place)  # type: ignore[arg-type]
    with (
        pytest.raises(OperatorError, match=r"operator named no Dask cluster \(PPCA_DASK_SCHEDULER\)"),
        submitter("dask"),
    ):
        pass


def test_the_operators_limit_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PPCA_WORKERS", "2")
    with pytest.raises(OperatorError, match=r"asks for 3 .* allows 2"), submitter(3):
        pass
    monkeypatch.setenv("PPCA_WORKERS", "many")
    with pytest.raises(OperatorError, match="whole number"), submitter(1):
        pass


# -- Dask ----------------------------------------------------------------------------------------------------------------


def cluster_at(*addresses: str) -> list[DaskCluster]:
    return [DaskCluster(address, "a.pem", "c.pem", "c.key") for address in addresses]


def test_shares_never_travel_to_a_scheduler_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("tcp://localhost:8786", "localhost:8786", "inproc://here", "tls://localhost"):
        with pytest.raises(OperatorError, match="plain tcp:// is refused"):
            cluster_at(address)
    monkeypatch.setenv("PPCA_DASK_SCHEDULER", "tls://localhost:8786")
    with pytest.raises(OperatorError, match="PPCA_DASK_AUTHORITY and PPCA_DASK_CERTIFICATE and PPCA_DASK_KEY"):
        Operator.of()
    security = pytest.importorskip("distributed") and cluster_at("tls://localhost:8786")[0].security()
    assert security.require_encryption


@pytest.mark.parametrize("other", ["tls://127.0.0.1:1", "tls://127.9.9.9:1", "tls://[::1]:1", "tls://localhost:1"])
def test_two_names_of_one_scheduler_are_one(other: str) -> None:
    places = ["tls://localhost:1", "tls://localhost:2", "tls://localhost:3", other]
    with pytest.raises(OperatorError, match=r"server 0 and server 3 are the same host and port"):
        LocalServers(dask=cluster_at(*places))
    LocalServers(dask=cluster_at(*places[:3], "tls://127.0.0.1:4"))
    with pytest.raises(OperatorError, match="four Dask clusters, got 3"):
        LocalServers(dask=cluster_at(*places[:3]))


@pytest.mark.release
@pytest.mark.processes
def test_dask_clusters_of_worker_processes(tmp_path: Path) -> None:
    """Four schedulers, one per server, with worker processes of their own; the first has two. All links are encrypted."""
    distributed = pytest.importorskip("distributed", reason="Dask workers need the extra: pip install 'ppca[dask]'")
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "memory_limit": None}
    clusters: list[Any] = []
    found: list[DaskCluster] = []
    try:
        for seat, workers in enumerate((2, 1, 1, 1)):
            files = tmp_path / f"operator-{seat}"
            ca, certificate, key = dask_certificates(files)
            sides = {
                f"tls_{side}_{kind}": path
                for side in ("scheduler", "worker", "client")
                for kind, path in (("cert", certificate), ("key", key))
            }
            security = distributed.Security(tls_ca_file=ca, require_encryption=True, **sides)
            clusters.append(distributed.LocalCluster(n_workers=workers, security=security, protocol="tls", **options))
            found.append(DaskCluster(clusters[-1].scheduler_address, ca, certificate, key))
        with LocalServers(timeout=120, dask=found, developer=True) as servers:
            check(servers, "dask")
        for one in clusters:
            with distributed.Client(one) as client:
                logs = client.run(lambda dask_worker: dask_worker.state.executed_count)
                assert sum(logs.values()) >= 12
    finally:
        for one in clusters:
            one.close()
