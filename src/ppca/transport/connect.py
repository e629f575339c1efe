"""Connection of four servers, started in any order, with one link per pair.

The lower server of a pair listens. The higher one dials and retries until the timeout, since its peer may start later.
Each connection completes a greeting (``greeting``) before it counts. A listener rejects connections that do not belong
to this session (a port scan, a browser, a server of another run) with a warning and continues to accept.

Threads are used only here, one per dialed peer and per accepted connection, so that a silent connection does not block
the others. If too many connections are greeting, the oldest is closed: silent connections cannot keep a peer out,
however many they are. Threads end when ``connect_mesh`` returns or soon afterwards.

If a connected peer hangs up before all peers are connected, it has REDIAL_SECONDS to dial again. Then the server stops
without waiting for the timeout: the process of the peer has ended.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Lock, Thread
from time import monotonic

from .errors import SERVERS, CertificateError, FrameError, PeerError, PeerTimeout, TransportError, server_name
from .frames import MAX_PAYLOAD
from .greeting import MAX_SESSION, read_hello, send_hello, send_refusal
from .link import Link, TcpLink, TlsLink
from .mesh import Mesh
from .pinned import PinnedTls
from .routes import Listener, preamble
from .tcp import SocketMesh

GREETING_SECONDS = 10.0
"""Seconds in which an accepted connection must complete the greeting."""


REDIAL_SECONDS = 3.0
"""Seconds in which a peer that hung up may dial again: dialers pause for half a second at most."""

_MAX_GREETINGS = 32  # maximum number of connections that greet at the same time
_REFUSAL_SECONDS = 0.5  # seconds for which a refused connection stays open, so that the other end can read the reason

_log = logging.getLogger(__name__)


def connect_mesh(
    seat: int,
    listener: Listener | None,
    addresses: Mapping[int, tuple[str, int]],
    *,
    tls: PinnedTls | None = None,
    session: bytes,
    route: bytes | None = None,
    timeout: float,
    exchange_timeout: float | None = None,
    max_payload: int = MAX_PAYLOAD,
) -> Mesh:
    """Connect this server with its three peers.

    Parameters ---------- listener : listening socket, or `PassedListener`; it stays open and belongs to the caller.
    None is allowed for seat 3, which dials
        all others.
    addresses : seat -> (host, port); only those of lower seats are used.
    tls : None for plain TCP, which protects nothing: for tests and for servers on one machine.
    session : id of this run, the same on all servers, 1 to 64 bytes.
    route : 32 bytes that a dialer sends first if peers have one port for several runs (`routes`); None: not sent.
    timeout : seconds until all peers must be connected.
    exchange_timeout : seconds that an exchange may take later; the same as ``timeout`` unless given.

    Raises
    ------
    PeerTimeout : a peer is missing; the message names what was tried and which connections were rejected.
    PeerError, FrameError, CertificateError : a peer was found, but one of the two refused the other.
    """
    if not 1 <= len(session) <= MAX_SESSION:
        raise ValueError(f"invalid session: {len(session)} bytes. It must have 1 to {MAX_SESSION} bytes.")
    if seat not in SERVERS or not timeout > 0:
        raise ValueError(f"seat must be one of {SERVERS} and timeout positive, got {seat!r} and {timeout!r}")
    if listener is None and seat != SERVERS[-1]:
        raise ValueError(f"{server_name(seat)} needs a listener: higher seats dial it")
    missing = [peer for peer in SERVERS if peer < seat and peer not in addresses]
    if missing:
        raise ValueError(f"{server_name(seat)} needs the address of {' and '.join(map(server_name, missing))}")
    connector = _Connector(seat, session, tls, timeout, route)
    try:
        for peer in range(seat):
            connector.start(connector.dial, peer, addresses[peer])
        links = connector.gather(listener)
    finally:
        connector.end()
    mesh = SocketMesh(seat, links, timeout=max(1.0, connector.deadline - monotonic()), max_payload=max_payload)
    _synchronise(mesh)
    mesh.timeout = exchange_timeout or timeout
    return mesh


def _synchronise(mesh: SocketMesh) -> None:
    """Exchange one byte with each peer, so that all servers are connected before any begins.

    It does not count as a round.
    """
    others = [peer for peer in SERVERS if peer != mesh.seat]
    mesh.exchange([(peer, b"\0") for peer in others], [(peer, 1) for peer in others])
    mesh.stats.reset()
    mesh.step = 0


class _Connector:
    """One server's attempt to get three links.

    Its threads put a link, or the error that ends the attempt, into ``reports``.
    """

    def __init__(
        self, seat: int, session: bytes, tls: PinnedTls | None, timeout: float, route: bytes | None = None
    ) -> None:
        self.seat = seat
        self.session = session
        self.tls = tls
        self.first_words = b"" if route is None else preamble(seat, route)
        self.timeout = timeout
        self.deadline = monotonic() + timeout
        self.over = Event()
        self.reports: SimpleQueue[Link | TransportError] = SimpleQueue()
        self.wakeup, self.wakeup_writer = (
            socket.socketpair()
        )  # written with every report, so that one poll waits for all
        self.causes: dict[int, str] = {}  # dialed peer -> reason of the last failed attempts
        self.refused: list[str] = []
        self.greeting: dict[int, socket.socket] = {}  # by number of arrival: connections that are greeting
        self.arrived = 0
        self.lock = Lock()
        self.dialing = tls.context(dialing=True) if tls else None
        self.listening = tls.context(dialing=False) if tls else None

    def start(self, task: Callable[..., None], *arguments: object) -> None:
        """Run a task in a thread."""
        Thread(target=task, args=arguments, name=f"ppca-connect-{self.seat}", daemon=True).start()

    def gather(self, listener: Listener | None) -> list[Link]:
        """Wait until all links exist and return them."""
        links: dict[int, Link] = {}
        gone: dict[int, float] = {}  # peer that hung up -> time
        try:
            while len(links) < len(SERVERS) - 1:
                if monotonic() > self.deadline:
                    absent = [peer for peer in SERVERS if peer != self.seat and peer not in links and peer not in gone]
                    raise self._timed_out(absent or sorted(gone))  # peers that were connected are not the cause
                for peer, since in gone.items():
                    if monotonic() > since + REDIAL_SECONDS:
                        raise PeerError(
                            f"{server_name(peer)} hung up before all servers were connected", self.seat, peer, 0
                        )
                until = min([self.deadline, *(since + REDIAL_SECONDS for since in gone.values())])
                for link in self._wait_and_accept(listener, links, until):
                    links.pop(link.peer).sock.close()
                    gone[link.peer] = monotonic()
                while not self.reports.empty():
                    report = self.reports.get()
                    if isinstance(report, TransportError):
                        raise report
                    former = links.pop(report.peer, None)
                    if former is not None:  # the peer dialed again and has abandoned the former connection
                        former.sock.close()
                    links[report.peer] = report
                    gone.pop(report.peer, None)
        except BaseException as error:
            reason = str(error) if isinstance(error, TransportError) else type(error).__name__
            for link in links.values():
                link.end(0, reason)
            raise
        return list(links.values())

    def _timed_out(self, missing: list[int]) -> PeerTimeout:
        """Return the error for missing peers."""
        details = [f"{server_name(peer)}: {cause}" for peer, cause in sorted(self.causes.items()) if peer in missing]
        details += [f"turned away {cause}" for cause in self.refused[-3:]]
        return PeerTimeout(
            f"{server_name(self.seat)} had no connection with {' and '.join(map(server_name, missing))} within "
            f"{self.timeout:g} s{' (' + '; '.join(details) + ')' if details else ''}; check that all servers are "
            "started with the same addresses and session",
            self.seat,
            missing[0],
            0,
        )

    # Dialing

    def dial(self, peer: int, address: tuple[str, int]) -> None:
        """Dial a peer until it is connected, refuses, or the time is up."""
        pause = 0.02
        while not self.over.is_set() and monotonic() < self.deadline:
            try:
                sock = socket.create_connection(address, timeout=max(0.01, self.deadline - monotonic()))
                if sock.getsockname() == sock.getpeername():  # TCP can connect a free local port to itself
                    sock.close()
                    raise ConnectionRefusedError("not listening yet")
                sock.sendall(self.first_words)
                if self.dialing is not None and self.tls is not None:
                    name = self.tls.names[peer]
                    sock = self.dialing.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
            except OSError as error:  # not listening yet: retry
                self._note(peer, address, error)
            else:
                try:
                    self._report(self._greet_listener(sock, peer))
                    return
                except TransportError as error:
                    sock.close()
                    self._put(error)
                    return
                except OSError as error:  # listening, but not ready, or another program
                    sock.close()
                    self._note(peer, address, error)
            self.over.wait(pause)
            pause = min(2 * pause, 0.5)

    def _note(self, peer: int, address: tuple[str, int], error: OSError) -> None:
        """Record why a dial failed.

        The last one may be cut short by the timeout; then the previous reason is kept, too.
        """
        cause = error.strerror or str(error)
        former = self.causes.get(peer)
        if former is not None and isinstance(error, TimeoutError):
            self.causes[peer] = f"{former}; then {cause}"
        else:
            self.causes[peer] = f"{address[0]}:{address[1]}: {cause}"

    def _greet_listener(self, sock: socket.socket, peer: int) -> Link:
        """Greet a dialed peer and return the link."""
        try:
            if self.tls is not None and isinstance(sock, ssl.SSLSocket):
                sock.do_handshake()
                self.tls.check_server(sock, self.seat, peer)
            send_hello(sock, self.seat, peer, self.session)
            read_hello(sock, self.seat, peer, self.session, self.deadline)
        except ssl.SSLCertVerificationError as error:
            raise CertificateError(
                f"{server_name(self.seat)} does not trust the certificate of {server_name(peer)}: "
                f"{error.verify_message}; {self._remedy}",
                self.seat,
                peer,
            ) from error
        except ssl.SSLError as error:
            if "ALERT" not in (error.reason or ""):
                raise ConnectionError(f"no TLS there ({error.reason or 'connection closed'})") from error
            raise CertificateError(
                f"{server_name(peer)} refused the certificate of {server_name(self.seat)}: "
                f"{error.reason}; {self._remedy}",
                self.seat,
                peer,
            ) from error
        return self._link(sock, peer)

    @property
    def _remedy(self) -> str:
        return self.tls.remedy if self.tls is not None else "both ends must use TLS, or neither"

    # Accepting

    def _wait_and_accept(self, listener: Listener | None, links: Mapping[int, Link], until: float) -> list[Link]:
        """Wait for a report or a new connection and start its thread. Return links whose peer hung up."""
        poll = select.poll()
        for each in [self.wakeup] if listener is None else [self.wakeup, listener]:
            poll.register(each, select.POLLIN)
        by_fd = {link.fd: link for link in links.values()}
        for descriptor in by_fd:
            poll.register(
                descriptor, select.POLLRDHUP
            )  # not POLLIN: a fast peer may have sent its first message already
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, 1000 * (until - monotonic())))}
        if self.wakeup.fileno() in ready:
            self.wakeup.recv(64)
        if listener is not None and listener.fileno() in ready:
            self._accept(listener)
        return [link for descriptor, link in by_fd.items() if descriptor in ready]

    def _accept(self, listener: Listener) -> None:
        """Accept a new connection and start its thread."""
        listener.settimeout(0)
        try:
            sock, address = listener.accept()
        except OSError:  # closed before it was accepted
            return
        sock.settimeout(GREETING_SECONDS)
        try:
            if self.listening is not None:
                sock = self.listening.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except OSError:
            sock.close()
            return
        self._limit_greetings()
        self.arrived += 1
        with self.lock:
            self.greeting[self.arrived] = sock
        self.start(self._greet, self.arrived, sock, f"{address[0]}:{address[1]}")

    def _limit_greetings(self) -> None:
        """Close the oldest greetings if there are too many; their threads report them.

        A peer among them dials again.
        """
        with self.lock:
            while len(self.greeting) >= _MAX_GREETINGS:
                oldest = self.greeting.pop(next(iter(self.greeting)))
                with suppress(OSError):
                    socket.socket.shutdown(
                        oldest, socket.SHUT_RDWR
                    )  # the plain socket: its thread is using the TLS state

    def _greet(self, number: int, sock: socket.socket, origin: str) -> None:
        """Greet an accepted connection, and report a link or log the rejection."""
        try:
            self._report(self._greet_dialer(number, sock))
        except (OSError, TransportError) as error:
            cause = f"{origin}: {getattr(error, 'reason', None) or error}"
            self.refused.append(cause)
            _log.warning("%s turned away %s", server_name(self.seat), cause)
            self._stop_greeting(number)
            self._linger(sock)

    def _stop_greeting(self, number: int) -> bool:
        """Remove a connection from those that are greeting. Return False if it was closed in the meantime."""
        with self.lock:
            return self.greeting.pop(number, None) is not None

    def _greet_dialer(self, number: int, sock: socket.socket) -> Link:
        """Greet the dialer of an accepted connection and return the link."""
        deadline = min(self.deadline, monotonic() + GREETING_SECONDS)
        if isinstance(sock, ssl.SSLSocket):
            sock.do_handshake()
        try:
            peer = read_hello(sock, self.seat, None, self.session, deadline)
            if self.tls is not None and isinstance(sock, ssl.SSLSocket):
                self.tls.check_server(sock, self.seat, peer)
        except (FrameError, CertificateError) as error:
            if error.peer in SERVERS:
                send_refusal(sock, self.seat, str(error))
            raise
        if not self._stop_greeting(number):  # from here on it is a peer and is not closed for others
            raise ConnectionError("too many connections at once; this one was the oldest")
        send_hello(sock, self.seat, peer, self.session)
        return self._link(sock, peer)

    # Ends

    def end(self) -> None:
        """Stop dialing, and close links that threads still report."""
        self.over.set()
        self.wakeup.close()
        self.wakeup_writer.close()
        while not self.reports.empty():
            late = self.reports.get()
            if isinstance(late, Link):
                late.sock.close()

    def _link(self, sock: socket.socket, peer: int) -> Link:
        return TlsLink(sock, self.seat, peer) if isinstance(sock, ssl.SSLSocket) else TcpLink(sock, self.seat, peer)

    def _report(self, link: Link) -> None:
        if self.over.is_set():
            link.sock.close()
        else:
            self._put(link)

    def _put(self, report: Link | TransportError) -> None:
        self.reports.put(report)
        with suppress(OSError):  # the connector has ended
            self.wakeup_writer.send(b"!")

    @staticmethod
    def _linger(sock: socket.socket) -> None:
        """Close so that the other end can still read the last frame: closing with unread input would discard it."""
        with suppress(OSError):
            sock.settimeout(_REFUSAL_SECONDS)
            sock.shutdown(socket.SHUT_WR)
            end = monotonic() + _REFUSAL_SECONDS
            while sock.recv(4096) and monotonic() < end:
                pass
        sock.close()
