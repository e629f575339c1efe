"""Connect to an owner's own Dask cluster: a running one over TLS, or temporary workers on this machine.

Workers read the owner's rows in plaintext and return sums, so they must belong to the owner. Connections between
client, scheduler and workers use mutual TLS; plain tcp:// is accepted within this machine only. Needs the extra
`ppca[dask]`.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import OwnerError

SCHEDULER = re.compile(r"(?P<kind>tls|tcp)://(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<name>[^\s:/\[\]]+)):(?P<port>\d{1,5})")
LOCAL = re.compile(r"local(?::(?P<workers>[1-9]\d{0,3}))?")

REACH_SECONDS = 5.0
"""Timeout in seconds for a scheduler to accept a connection."""

PATIENCE = 30.0
"""Timeout in seconds for a scheduler to answer, and to have a worker."""


QUIET = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "500ms"}
"""Settings of Dask for workers on this machine. With the defaults, idle client, scheduler and two workers take a tenth
of a core for profiling (100 samples per second) and for monitoring event loops (50 per second)."""


@dataclass(frozen=True)
class TlsFiles:
    """PEM files for the connection to a scheduler: its CA certificate, and the owner's certificate and private key."""

    authority: Path
    certificate: Path
    key: Path

    def __post_init__(self) -> None:
        for file in (self.authority, self.certificate, self.key):
            if not file.is_file():
                raise OwnerError(
                    f"the TLS file {file} does not exist. Name the files that the Dask scheduler was set up with."
                )


@contextmanager
def cluster(where: str, files: TlsFiles | None = None) -> Iterator[Any]:
    """Connect to a cluster for the duration of the block: "local", "local:4" (workers), or "tls://scheduler:8786".

    files: for an address; None: the files in Dask's configuration (distributed.comm.tls).
    """
    local, address = LOCAL.fullmatch(where), SCHEDULER.fullmatch(where)
    if local is None and address is None:
        raise OwnerError(
            f"Dask cluster {where!r}: write tls://host:port, the address of its scheduler, or 'local', or 'local:4' "
            "for four workers."
        )
    if address is not None and address["kind"] == "tcp" and not _is_here(address["six"] or address["name"]):
        raise OwnerError(
            f"Dask cluster {where}: the connection would not be encrypted or authenticated. Start "
            "the cluster with TLS, and write tls://host:port."
        )
    distributed = needed()
    with losses(f"Dask cluster {where}"):
        if local is not None:
            with _workers_here(distributed, local["workers"]) as client:
                yield client
            return
        assert address is not None
        _reach(where, address["six"] or address["name"], int(address["port"]))
        with _connected(distributed, where, files) as client:
            _check_workers(client, where)
            yield client


def _reach(where: str, host: str, port: int) -> None:
    """Raise `OwnerError` at once if no scheduler listens there. The client of Dask would retry for a long time."""
    try:
        socket.create_connection((host, port), REACH_SECONDS).close()
    except OSError as error:
        cause = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise OwnerError(
            f"Dask cluster {where}: no scheduler listens at {host}, port {port} ({cause}). "
            "Start it, or check the address."
        ) from None


def needed() -> Any:
    """Return the package distributed; raise `OwnerError` if it is not installed."""
    try:
        import distributed
    except ImportError:
        raise OwnerError("a Dask cluster needs the extra: pip install 'ppca[dask]'.") from None
    return distributed


def client_in_use() -> Any:
    """Return the Dask client of this process, or None."""
    try:
        import distributed

        return distributed.get_client()
    except (ImportError, ValueError):
        return None


@contextmanager
def losses(label: str) -> Iterator[None]:
    """Turn the loss of workers or of the scheduler into an `OwnerError`."""
    try:
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError
        from distributed.comm import CommClosedError
    except ImportError:
        yield
        return
    try:
        yield
    except (KilledWorker, CommClosedError, FutureCancelledError) as error:
        raise OwnerError(
            f"{label}: the Dask cluster lost its workers ({error}). See its logs (too little "
            "memory?), restart it and run again."
        ) from error


@contextmanager
def _workers_here(distributed: Any, workers: str | None) -> Iterator[Any]:
    """Start worker processes on this machine with one thread each. Connections need a certificate made for this
    block."""
    import dask

    count = int(workers) if workers else len(os.sched_getaffinity(0))
    options = {"threads_per_worker": 1, "processes": True, "silence_logs": "ERROR"}
    pages = {"dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}  # any port, no dashboard
    with (
        dask.config.set(QUIET),
        distributed.LocalCluster(n_workers=count, host="127.0.0.1", security=True, **options, **pages) as here,
        distributed.Client(here) as client,
    ):
        yield client


def _connected(distributed: Any, where: str, files: TlsFiles | None) -> Any:
    security = distributed.Security()
    if files is not None:
        security = distributed.Security(
            require_encryption=True,
            tls_ca_file=str(files.authority),
            tls_client_cert=str(files.certificate),
            tls_client_key=str(files.key),
        )
    if where.startswith("tls://") and not (
        security.tls_ca_file and security.tls_client_cert and security.tls_client_key
    ):
        raise OwnerError(
            f"Dask cluster {where}: the certificate of its authority, yours and your key are needed. Name the three "
            "files, or set distributed.comm.tls in Dask's configuration.",
            options=("dask_ca",),
        )
    try:
        return distributed.Client(where, timeout=PATIENCE, security=security)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError; ValueError: not PEM files
        cause = " ".join(str(error).split())[:200].rstrip(".")
        raise OwnerError(
            f"Dask cluster {where}: no scheduler with a certificate of the given authority answers ({cause}). Check "
            "the address and the files."
        ) from None


def _check_workers(client: Any, where: str) -> None:
    """Refuse a cluster without workers, or whose workers lack PPCA or have another version."""
    from .. import __version__

    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        raise OwnerError(
            f"Dask cluster {where}: its scheduler does not have workers. Start some, then run again."
        ) from None

    def version_there() -> str | None:  # nested, so that it is pickled by value: a worker may lack PPCA
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("ppca")
        except PackageNotFoundError:
            return None

    found = set(client.run(version_there).values())
    if found != {__version__}:
        others = ", ".join(sorted(str(version or "none") for version in found - {__version__}))
        raise OwnerError(
            f"Dask cluster {where}: workers need PPCA {__version__} as here, some have {others}. Install it where "
            f"they run: pip install 'ppca[dask]=={__version__}'."
        )


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
