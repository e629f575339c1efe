"""Settings of a server's operator, which jobs cannot change: limits, and the Dask cluster to which the server can send
work.

The operator sets these in the environment of the server process:

    PPCA_WORKERS             maximum number of worker processes of a job; default: the number of cores
    PPCA_INPUT_BYTES         maximum number of bytes of the inputs of one program in memory; default: 4 GiB
    PPCA_DASK_SCHEDULER      the server's own Dask scheduler, tls://host:port
    PPCA_DASK_AUTHORITY, PPCA_DASK_CERTIFICATE, PPCA_DASK_KEY    files for the connection with it (PEM)
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ..transport import server_name
from .errors import Refusal

WORKERS, INPUT_BYTES = "PPCA_WORKERS", "PPCA_INPUT_BYTES"
DASK = {
    "scheduler": "PPCA_DASK_SCHEDULER",
    "authority": "PPCA_DASK_AUTHORITY",
    "certificate": "PPCA_DASK_CERTIFICATE",
    "key": "PPCA_DASK_KEY",
}
ADDRESS = re.compile(r"tls://(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<name>[^\s:/\[\]]+)):(?P<port>\d{1,5})")

THIS_MACHINE = "this machine"


class OperatorError(Refusal):
    """The operator's settings are invalid or do not allow the request."""


@dataclass(frozen=True)
class DaskCluster:
    """One server's own Dask cluster: its workers see what the server sees.

    scheduler: tls://host:port. authority, certificate, key: PEM files; scheduler and workers need certificates of this
    authority.
    """

    scheduler: str
    authority: Path | str
    certificate: Path | str
    key: Path | str

    def __post_init__(self) -> None:
        if not ADDRESS.fullmatch(self.scheduler):
            raise OperatorError(
                f"Dask scheduler {self.scheduler!r}: write tls://host:port. Shares travel to it, "
                "so plain tcp:// is refused."
            )

    def security(self) -> Any:
        """Return TLS settings of Dask: both ends need certificates of the operator's authority."""
        try:
            from distributed import Security
        except ImportError:
            raise OperatorError("workers='dask' needs the extra on every server: pip install 'ppca[dask]'") from None
        return Security(  # type: ignore[no-untyped-call]
            require_encryption=True,
            tls_ca_file=str(self.authority),
            tls_client_cert=str(self.certificate),
            tls_client_key=str(self.key),
        )

    def environment(self) -> dict[str, str]:
        """These settings as the variables that a server reads."""
        return {variable: str(getattr(self, name)) for name, variable in DASK.items()}

    def endpoints(self) -> set[tuple[str, int]]:
        """Return all (host, port) to which the scheduler's name resolves. All names and addresses of this machine are
        one host."""
        found = ADDRESS.fullmatch(self.scheduler)
        assert found is not None
        host, port = found["six"] or found["name"], int(found["port"])
        try:
            places = {str(place[4][0]) for place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        except OSError as error:
            raise OperatorError(f"cannot resolve the host of the Dask scheduler {self.scheduler}: {error}") from None
        return {(THIS_MACHINE if _is_here(place) else place, port) for place in places}


@dataclass(frozen=True)
class Operator:
    """The settings of one server."""

    workers: int
    input_bytes: int
    dask: DaskCluster | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read the settings from environment variables; raise `OperatorError` that names what is missing or wrong."""
        given = {name: environment[variable] for name, variable in DASK.items() if environment.get(variable)}
        missing = [variable for name, variable in DASK.items() if name not in given]
        if given and missing:
            raise OperatorError(f"a Dask cluster of this server needs {' and '.join(missing)} too, see its operator")
        return cls(
            workers=_number(environment, WORKERS, os.cpu_count() or 1),
            input_bytes=_number(environment, INPUT_BYTES, 4 << 30),
            dask=DaskCluster(**given) if given else None,
        )

    def processes(self, asked: int) -> int:
        """Return the number of worker processes that a job asks for; raise `OperatorError` if the operator does not
        allow it."""
        if asked > self.workers:
            raise OperatorError(
                f"the job asks for {asked} worker processes, this server's operator allows {self.workers} ({WORKERS})"
            )
        return asked

    def cluster(self) -> DaskCluster:
        if self.dask is None:
            raise OperatorError(
                f"the job asks for workers='dask', but this server's operator named no Dask cluster "
                f"({DASK['scheduler']})"
            )
        return self.dask


def check_apart(clusters: Sequence[DaskCluster]) -> None:
    """Raise `OperatorError` if two servers' clusters share a scheduler: its workers would hold all data."""
    places = [cluster.endpoints() for cluster in clusters]
    if len(places) != 4:
        raise OperatorError(f"four servers need four Dask clusters, got {len(places)}")
    for server in range(4):
        for other in range(server):
            if places[server] & places[other]:
                raise OperatorError(
                    f"the Dask schedulers of {server_name(other)} and {server_name(server)} are the same host and "
                    "port: workers of two servers would hold all data. Start one cluster for every server."
                )


def _is_here(place: str) -> bool:
    """Return whether an address belongs to this machine, i.e. whether a socket can be bound to it."""
    address = ipaddress.ip_address(place.partition("%")[0])
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((place, 0))
        except OSError:
            return False
    return True


def _number(environment: Mapping[str, str], variable: str, default: int) -> int:
    text = environment.get(variable, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise OperatorError(f"{variable}={text!r} must be a whole number, at least 1")
    return int(text)
