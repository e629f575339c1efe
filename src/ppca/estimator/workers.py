"""Who computes the local products of pieces: this process, worker processes of this server, or a Dask cluster of its own.

A task gets one server's shares of a piece and returns its local product: it sees what the server sees, so workers belong to the
server's operator. The choice changes nothing in the protocol.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from ..algorithms.gram import Submit


@contextmanager
def submitter(executor: dict[str, Any] | None) -> Iterator[tuple[Submit | None, int]]:
    """A function that starts a task, and how many to keep under way. None: in this process.

    executor: {"kind": "processes", "workers": 4} or {"kind": "dask", "scheduler": "tcp://..."} (one address per seat is
    the operator's business: each server names its own).
    """
    if executor is None:
        yield None, 1
    elif executor["kind"] == "processes":
        workers = int(executor["workers"])
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            yield pool.submit, 2 * workers
    elif executor["kind"] == "dask":
        try:
            from distributed import Client
        except ImportError:
            raise ValueError("a Dask executor needs the extra: pip install 'ppca[dask]'") from None
        with Client(executor["scheduler"]) as client:  # type: ignore[no-untyped-call]
            workers = max(1, len(client.scheduler_info()["workers"]))

            def submit(work: Any, *arguments: Any) -> Any:
                return client.submit(work, *arguments, pure=False)

            yield submit, 2 * workers
    else:
        raise ValueError(f"unknown executor {executor['kind']!r}: use 'processes' or 'dask'")
