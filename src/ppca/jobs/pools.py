"""Who computes the local products of pieces: this process, worker processes of this server, or its operator's Dask cluster.

A task gets one server's shares of a piece and returns its local product: it sees what the server sees. So a job says only how
many processes, or that the operator's Dask cluster is to be used; where that is, each operator says (`ppca.jobs.operator`).
The choice changes nothing in the protocol or in the result.

    0         the server itself
    4         four worker processes of every server, if its operator allows so many
    "dask"    the Dask cluster that each server's operator named
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any

from ..algorithms.second_moments import Submit
from .operator import DaskCluster, Operator, OperatorError

DASK = "dask"
Workers = int | str


def check_workers(workers: Workers) -> None:
    """Refuses what no server could use, before anything is sent."""
    number = isinstance(workers, int) and not isinstance(workers, bool) and workers >= 0
    if not number and workers != DASK:
        raise ValueError(f"workers={workers!r}: give a number of processes (0: the server itself) or {DASK!r}")


@contextmanager
def submitter(workers: Workers) -> Iterator[tuple[Submit | None, int]]:
    """A function that starts a task, and how many to keep under way. None: in this process."""
    check_workers(workers)
    if workers == 0:
        yield None, 1
    elif isinstance(workers, int):
        allowed = Operator.of().processes(workers)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(allowed, mp_context=context, initializer=_end_with_parent) as pool:
            yield pool.submit, 2 * allowed
    else:
        with _dask_client(Operator.of().cluster()) as client:
            found = max(1, len(client.scheduler_info()["workers"]))

            def submit(work: Any, *arguments: Any) -> Any:
                return client.submit(work, *arguments, pure=False)

            yield submit, 2 * found


def _dask_client(cluster: DaskCluster) -> Any:
    security = cluster.security()
    from distributed import Client

    try:
        return Client(cluster.scheduler, timeout=30, security=security)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise OperatorError(
            f"no Dask scheduler with a certificate of the operator's authority answers at {cluster.scheduler}: {error}"
        ) from None


def _end_with_parent() -> None:
    """A worker ends when its server does, also when the server is killed: a pool alone would leave it waiting forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
