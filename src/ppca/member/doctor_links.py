"""One link to one server, examined step by step: name, connection, TLS by pinned key, answer, clock, speed, silence."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import statistics
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cryptography import x509

from ..federation.membership import ServerEntry, address
from ..transport import CertificateError
from ..transport.pinned import PinnedTls

DIAL_SECONDS = 5.0
ANSWER_SECONDS = 30.0
PINGS = 5
MEASURED_BYTES = 2 << 20
LOST = (OSError, http.client.HTTPException, ValueError)


class Broken(Exception):
    """A step failed: what was found, and what to do."""

    def __init__(self, said: str, remedy: str) -> None:
        super().__init__(said)
        self.said, self.remedy = said, remedy


class Refused(Broken):
    """The server answers, and does not do it."""


@dataclass(frozen=True)
class Hello:
    """A server's answer, and how its clock stands to ours."""

    fields: dict[str, Any]
    skew: float
    seconds: float


def resolved(host: str) -> list[str]:
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except OSError as error:
        raise Broken(
            f"the name {host} is not known here ({error.strerror})",
            "correct the address in federation.toml, or the DNS or /etc/hosts of this machine",
        ) from None


def dialed(place: str, what: str) -> tuple[socket.socket, float]:
    """A connection, and the seconds it took."""
    host, port = address(place)
    resolved(host)
    started = time.monotonic()
    try:
        sock = socket.create_connection((host, port), DIAL_SECONDS)
    except ConnectionRefusedError:
        raise Broken(
            f"no process listens on {place} ({what})",
            "its operator starts the server (systemctl start ppca-server), or corrects [listen] in server.toml",
        ) from None
    except OSError as error:
        cause = "no answer" if isinstance(error, TimeoutError) else error.strerror
        raise Broken(
            f"could not connect to {place} ({what}): {cause}",
            f"open port {port} in the firewalls between here and there, and check that the host is up",
        ) from None
    return sock, time.monotonic() - started


class DoctorConnection:
    """A TLS connection to a server's API."""

    def __init__(self, server: ServerEntry, tls: PinnedTls) -> None:
        self.server = server
        sock, self.dial_seconds = dialed(server.api, "API")
        try:
            sock.settimeout(ANSWER_SECONDS)
            self._sock = tls.context(dialing=True).wrap_socket(sock)
            tls.check_server(self._sock, server.number, server.number)
        except ssl.SSLCertVerificationError as error:
            sock.close()
            raise _untrusted(server, error) from None
        except CertificateError:
            who = tls.member_of(self._peer())
            self._sock.close()
            raise Broken(
                f"{who} answers at {server.api} instead of {server.member}",
                "correct the addresses in federation.toml",
            ) from None
        except OSError as error:
            sock.close()
            raise Broken(
                f"no TLS with {server.api}: {error}",
                "check that this address is the API port of that server, and no proxy opens TLS on the way",
            ) from None
        self._http = http.client.HTTPConnection(*address(server.api))
        self._http.sock = self._sock

    def _peer(self) -> dict[str, Any]:
        found: Any = self._sock.getpeercert() or {}
        return dict(found)

    @property
    def leaf_expires(self) -> datetime:
        return x509.load_der_x509_certificate(self._sock.getpeercert(binary_form=True) or b"").not_valid_after_utc

    def ask(self, method: str, path: str, body: bytes | None = None, patience: float = ANSWER_SECONDS) -> bytes:
        self._sock.settimeout(patience)
        try:
            self._http.request(method, path, body)
            response = self._http.getresponse()
            data = response.read()
        except LOST as error:
            raise _refused(self.server, error) from None
        if response.status != 200:
            raise Refused(f"it answers {response.status}: {_said(data)}", "do what it says, or ask its operator")
        return data

    def hello(self) -> Hello:
        before, started = datetime.now(UTC), time.monotonic()
        data = self.ask("GET", "/v1/hello")
        seconds = time.monotonic() - started
        try:
            fields = dict(json.loads(data))
            theirs = datetime.fromisoformat(str(fields["time"]))
            skew = (theirs - before).total_seconds() - seconds / 2
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Broken("it answers no hello that is understood here", "install the same wheel at both ends") from None
        return Hello(fields, skew, seconds)

    def round_trip(self) -> float:
        """Seconds, the median of a few."""
        times = []
        for _ in range(PINGS):
            started = time.monotonic()
            self.ask("GET", "/v1/echo")
            times.append(time.monotonic() - started)
        return statistics.median(times)

    def bandwidth(self) -> tuple[float, float]:
        """Bytes per second, to the server and from it."""
        started = time.monotonic()
        self.ask("POST", "/v1/echo", bytes(MEASURED_BYTES))
        sent = time.monotonic()
        self.ask("GET", f"/v1/echo?bytes={MEASURED_BYTES}")
        return MEASURED_BYTES / (sent - started), MEASURED_BYTES / (time.monotonic() - sent)

    def silence(self, seconds: int) -> None:
        """Nothing passes for so long; then the server answers on the same connection, or nothing arrives."""
        try:
            self.ask("GET", f"/v1/echo?wait={seconds}", patience=seconds + ANSWER_SECONDS)
        except Broken as broken:
            raise Broken(
                f"a connection that is silent for {seconds} s is lost: {broken.said}",
                "raise the idle timeout of firewalls and address translators on the way",
            ) from None

    def reach(self) -> dict[str, dict[str, Any]]:
        """Return how the server reaches the two ports of this one."""
        found: dict[str, dict[str, Any]] = json.loads(self.ask("GET", "/v1/reach"))
        return found

    def close(self) -> None:
        self._http.close()


def mesh_seconds(server: ServerEntry) -> float:
    sock, seconds = dialed(server.mesh, "mesh")
    with closing(sock):
        return seconds


def _untrusted(server: ServerEntry, error: ssl.SSLCertVerificationError) -> Broken:
    if "expired" in error.verify_message or "not yet valid" in error.verify_message:
        return Broken(
            f"its certificate does not count now ({error.verify_message})",
            "set both clocks (chrony, systemd-timesyncd); then its operator restarts the server",
        )
    return Broken(
        f"the peer does not hold the key pinned for {server.member} ({error.verify_message})",
        "compare the words of that key over the telephone (ppca federation check); until they agree, send nothing",
    )


def _refused(server: ServerEntry, error: Exception) -> Broken:
    alert = isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "")
    if alert or isinstance(error, ConnectionError):  # a server that refuses a certificate may close without an alert
        return Broken(
            "the server rejected the connection: it does not know this key of the member, or the certificate has expired",
            "compare your federation.toml with its operator's, and set the clock of this machine",
        )
    cause = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return Broken(f"the connection was lost: {cause}", f"read the log of {server.member}, and try again")


def _said(data: bytes) -> str:
    try:
        return str(json.loads(data)["error"])[:300]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "no reason given"
