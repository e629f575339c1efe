"""Compute local products in this process, in worker processes of this server, or on its operator's Dask cluster.

A task gets one server's shares of a chunk of rows and returns its local product: it sees what the server sees. A job
states only the number of processes, or that the operator's Dask cluster is used. Each operator configures its own
cluster (`ppca.jobs.operator`). The choice affects neither the protocol nor the result.

    0         the server itself
    4         four worker processes of every server, if its operator allows four
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
    """Raise `ValueError` for a value that no server accepts, before anything is sent."""
    number = isinstance(workers, int) and not isinstance(workers, bool) and workers >= 0
    if not number and workers != DASK:
        raise ValueError(f"workers={workers!r}: give a number of processes (0: the server itself) or {DASK!r}")


@contextmanager
def submitter(workers: Workers) -> Iterator[tuple[Submit | None, int]]:
    """Yield a function that starts a task, and the number of tasks to run at a time. None: in this process."""
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
    """End this worker process when its server ends, also if it is killed. A pool alone would leave the worker
    waiting."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
