"""Who computes the local products of pieces: this process, worker processes of this server, or a Dask cluster of its own.

A task gets one server's shares of a piece and returns its local product: it sees what the server sees, so workers belong to the
server's operator, and two servers never share them. The choice changes nothing in the protocol or in the result.

    {"kind": "processes", "workers": 4}              four worker processes of every server
    {"kind": "dask", "schedulers": [a, b, c, d]}     Dask schedulers (tcp://host:port), one per seat
    {"kind": "dask"}                                 every server takes the scheduler its operator named in PPCA_DASK_SCHEDULER
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

from ..algorithms.gram import Submit

SCHEDULER_VARIABLE = "PPCA_DASK_SCHEDULER"
KINDS = ("processes", "dask")


def check_executor(executor: dict[str, Any] | None) -> None:
    """Refuses an executor that no server could use, before anything is sent."""
    if executor is None:
        return
    if executor.get("kind") not in KINDS:
        raise ValueError(f"unknown executor {executor.get('kind')!r}: use {' or '.join(map(repr, KINDS))}")
    workers = executor.get("workers", 1)
    if executor["kind"] == "processes" and not (isinstance(workers, int) and workers >= 1):
        raise ValueError(f"workers={workers!r}: an executor of processes needs at least 1")
    schedulers = executor.get("schedulers")
    if schedulers is not None and (len(schedulers) != 4 or len(set(schedulers)) != 4):
        raise ValueError(
            "a Dask executor needs four different schedulers, one per seat: workers of two servers see all data"
        )


@contextmanager
def submitter(executor: dict[str, Any] | None, seat: int) -> Iterator[tuple[Submit | None, int]]:
    """A function that starts a task, and how many to keep under way. None: in this process."""
    check_executor(executor)
    if executor is None:
        yield None, 1
    elif executor["kind"] == "processes":
        workers = int(executor.get("workers", 1))
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent) as pool:
            yield pool.submit, 2 * workers
    else:
        with _dask_client(executor, seat) as client:
            workers = max(1, len(client.scheduler_info()["workers"]))

            def submit(work: Any, *arguments: Any) -> Any:
                return client.submit(work, *arguments, pure=False)

            yield submit, 2 * workers


def _dask_client(executor: dict[str, Any], seat: int) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise ValueError("a Dask executor needs the extra: pip install 'ppca[dask]'") from None
    schedulers = executor.get("schedulers")
    address = schedulers[seat] if schedulers is not None else os.environ.get(SCHEDULER_VARIABLE)
    if not address:
        raise ValueError(f"name this server's Dask scheduler in {SCHEDULER_VARIABLE}, or in the job")
    try:
        return Client(address, timeout=30)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise ValueError(f"no Dask scheduler answers at {address}: {error}") from None


def _end_with_parent() -> None:
    """A worker ends when its server does, also when the server is killed: a pool alone would leave it waiting forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
