"""Who computes the pieces: worker processes or a Dask cluster of each server give what the server itself gives."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA as PlainPCA  # noqa: N811 - scikit-learn's

import harness.programs_on_tables as programs
from harness.tables import with_ids
from ppca import PCA, Columns, Job
from ppca.algorithms.gram import Blocks, local_product
from ppca.estimator.columns import upload
from ppca.jobs.workers import submitter
from ppca.owner.alignment.arrangement import Alignment, arrange
from ppca.owner.columns import Centred
from ppca.owner.tables.opening import open_columns
from ppca.owner.tables.records import Records
from ppca.servers import LocalServers, ServersFailed

X = np.random.default_rng(2).standard_normal((400, 6)) @ np.diag([5.0, 3, 2, 1, 0.5, 0.2])
TABLES = [with_ids(X[:, 2 * k : 2 * k + 2], [f"a{k}", f"b{k}"], np.arange(len(X))) for k in range(3)]


def moments(servers: LocalServers, executor: dict[str, Any] | None) -> list[Any]:
    """The second moments and sums of the uploaded rows, which are integers in units of the grid."""
    records = [Records.of(table) for table in open_columns(TABLES, "id")]
    owners = [Centred.of(rows) for rows in arrange(records, Alignment("aligned"))]
    job = Job(servers)
    with job.table() as table:
        pieces = (piece for i, owner in enumerate(owners) for piece in owner.pieces(i, False))
        upload(job, table, pieces, 3 * len(X))
        found = job.run(programs.moments, table=table, rows=len(X), starts=[0, 2, 4, 6], executor=executor)
    return [(np.asarray(found[key]) * 2.0**48).tolist() for key in ("products", "columns")]


def fit(servers: LocalServers, executor: dict[str, Any]) -> PCA:
    return PCA(partition=Columns("id", pieces=6, executor=executor), servers=servers).fit(TABLES)


def check(servers: LocalServers, executor: dict[str, Any]) -> None:
    """Sums are equal to the last bit, and the whole fit is right."""
    assert moments(servers, executor) == moments(servers, None)
    found, truth = fit(servers, executor), PlainPCA().fit(X)
    assert np.abs(found.explained_variance_ratio_ - truth.explained_variance_ratio_).max() < 1e-6


@pytest.mark.parametrize("own", [False, True])
def test_a_task_is_the_same_everywhere(own: bool) -> None:
    random = np.random.default_rng(3)
    piece, blocks = random.integers(0, 2**64, (2, 50, 6), dtype=np.uint64), Blocks((0, 1, 4, 6), own)
    exact = (piece[0].astype(object).T @ piece[1].astype(object)) % 2**64
    i, j = blocks.entries()
    assert local_product(piece[0], piece[1], blocks)[:, 0].tolist() == exact[i, j].tolist()
    assert len(i) == (21 if own else 11)
    with submitter({"kind": "processes", "workers": 2}, 0) as (submit, ahead):
        assert ahead == 4
        tasks = [submit(local_product, piece[0], piece[1], blocks) for _ in range(3)]
        for task in tasks:
            assert np.array_equal(task.result(), local_product(piece[0], piece[1], blocks))


def test_worker_processes(servers: LocalServers) -> None:
    check(servers, {"kind": "processes", "workers": 2})
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


def test_workers_end_with_a_killed_server() -> None:
    """A server that dies in the middle of a job leaves no process behind."""
    orphans: list[int] = []
    with LocalServers(timeout=20) as servers:

        def kill(text: str, fraction: float | None, rounds: int) -> None:
            if text.startswith("second moments") and not orphans:
                orphans.extend(_children(servers.pids[2]))
                os.kill(servers.pids[2], 9)

        partition = Columns("id", pieces=200, executor={"kind": "processes", "workers": 1})
        with pytest.raises(ServersFailed):
            PCA(partition=partition, servers=servers).fit(TABLES, progress=kill)
    assert orphans
    deadline = time.monotonic() + 10
    while any(map(_alive, orphans)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(_alive, orphans))


def test_dask_clusters_of_worker_processes(servers: LocalServers) -> None:
    """Four schedulers, one per server, with worker processes of their own; the first has two."""
    distributed = pytest.importorskip("distributed", reason="Dask workers need the extra: pip install 'ppca[dask]'")
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "memory_limit": None}
    clusters: list[Any] = []
    try:
        for workers in (2, 1, 1, 1):
            clusters.append(distributed.LocalCluster(n_workers=workers, **options))
        schedulers = [one.scheduler_address for one in clusters]
        check(servers, {"kind": "dask", "schedulers": schedulers})
        for one in clusters:
            with distributed.Client(one.scheduler_address) as client:
                logs = client.run(lambda dask_worker: dask_worker.state.executed_count)
                assert sum(logs.values()) >= 12
    finally:
        for one in clusters:
            one.close()
