"""Links over mutual TLS: both ends prove their seat with a certificate of the consortium's own authority.

Only TLS 1.3, only certificates signed by the given authority, and the certificate must carry the DNS name of the seat
that its owner claims (``seat-0.ppca`` ... by default, compared exactly, no wildcards). So a server that holds the
certificate of one seat cannot take another seat.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from .certificates import check_certificate
from .errors import SEATS, CertificateError, seat_name
from .frames import size_of
from .link import Link

_JOIN = 1 << 16  # up to this size a frame is joined and encrypted as one piece


def seat_dns_name(seat: int) -> str:
    """The DNS name that the certificate of a seat carries, unless the job says otherwise."""
    return f"seat-{seat}.ppca"


class Credentials(Protocol):
    """How one server proves its seat and checks the others': by an authority (``TlsSettings``) or by pinned keys."""

    @property
    def names(self) -> Mapping[int, str]:
        """What the certificate of a seat names."""

    @property
    def remedy(self) -> str:
        """What to look at when a certificate is refused."""

    def context(self, *, dialing: bool) -> ssl.SSLContext: ...

    def check_seat(self, sock: ssl.SSLSocket, seat: int, peer: int) -> None: ...


@dataclass(frozen=True, kw_only=True)
class TlsSettings:
    """Files in PEM format: the authority's certificate, this server's certificate and its key.

    ``names`` says which DNS name proves which seat.
    """

    authority: Path
    certificate: Path
    key: Path
    names: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({s: seat_dns_name(s) for s in SEATS}))

    remedy: ClassVar[str] = "all certificates must be valid and from the same authority"

    def context(self, *, dialing: bool) -> ssl.SSLContext:
        """The TLS context for the dialing or the listening side. Raises CertificateError if the files are unfit."""
        check_certificate(self.authority, self.certificate, self.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if dialing else ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # both directions are checked alike, by check_seat
        context.verify_mode = ssl.CERT_REQUIRED
        if not dialing:
            context.num_tickets = 0  # sessions are never resumed
        context.load_verify_locations(self.authority)
        context.load_cert_chain(self.certificate, self.key)
        return context

    def check_seat(self, sock: ssl.SSLSocket, seat: int, peer: int) -> None:
        """Raise CertificateError unless the certificate of the other end carries the name of ``peer``."""
        certificate: Any = sock.getpeercert() or {}
        found = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
        if self.names[peer] not in found:
            raise CertificateError(
                f"{seat_name(seat)} expected {seat_name(peer)} with a certificate for {self.names[peer]!r}, but "
                f"the other end's certificate is for {', '.join(map(repr, found)) or 'no DNS name'}; give each server "
                "its own certificate and check the addresses",
                seat,
                peer,
            )


class TlsLink(Link):
    """A TLS connection after its handshake, made to behave like a non-blocking socket."""

    def __init__(self, sock: ssl.SSLSocket, seat: int, peer: int) -> None:
        super().__init__(sock, seat, peer)
        sock.setblocking(False)
        self._tls = sock

    def sendmsg(self, parts: Sequence[Any], ancillary: tuple[()] = (), flags: int = socket.MSG_DONTWAIT, /) -> int:
        """Encrypt and send part by part; small frames are joined into one piece, hence one packet."""
        if len(parts) > 1 and sum(map(size_of, parts)) <= _JOIN:
            parts = (b"".join(parts),)
        sent = 0
        for part in parts:
            size = size_of(part)
            if not size:
                continue
            try:
                count = self._tls.send(part)
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError) as blocked:
                if sent:
                    return sent
                raise BlockingIOError from blocked
            except ssl.SSLError as error:
                raise ConnectionError(error.errno, f"TLS: {error.reason}") from error
            sent += count
            if count < size:
                break
        return sent

    def recv_into(self, into: memoryview | bytearray, size: int = 0, flags: int = socket.MSG_DONTWAIT, /) -> int:
        """Decrypt until ``into`` is full or nothing more is there, so that nothing is left where ``poll`` is blind."""
        wanted = size or len(into)
        room = memoryview(into)[:wanted]
        got = 0
        try:
            while got < wanted:
                count = self._tls.recv_into(room[got:])
                if not count:
                    break
                got += count
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as blocked:
            if not got:
                self.buffered = False
                raise BlockingIOError from blocked
        except ssl.SSLError as error:
            if not got:
                raise ConnectionError(error.errno, f"TLS: {error.reason}") from error
        self.buffered = self.gone or self._tls.pending() > 0
        return got
