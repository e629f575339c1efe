"""Finding the peers: four servers start in any order and end up with one link per pair.

The lower seat of a pair listens, the higher one dials, again and again until the timeout, since its peer may start
later. Each connection greets (``greeting``) before it counts. A listener drops what is no peer of this session (a port
scan, a browser, a server of another run) with a warning and goes on accepting.

Threads are used here only, one per dialed peer and per accepted connection, so that a stranger that connects and says
nothing holds up nobody. When too many greet at once, the one that has taken longest has to go: silent strangers cannot keep a
peer out, however many they are. Threads are over when ``connect_mesh`` returns or soon after.

A peer that was connected and hangs up before all are there has a moment to dial again; then the server gives up at once, instead
of waiting for the timeout: the process of the peer has ended.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from random import SystemRandom
from threading import Event, Lock, Thread
from time import monotonic

from .errors import SEATS, CertificateError, FrameError, PeerError, PeerTimeout, TransportError, seat_name
from .frames import MAX_PAYLOAD
from .greeting import MAX_SESSION, read_hello, send_hello, send_refusal
from .link import Link, TcpLink, TlsLink
from .mesh import Mesh
from .pinned import PinnedTls
from .routes import Listener, preamble
from .tcp import SocketMesh

GREETING_SECONDS = 10.0
"""How long an accepted connection may take to prove that it is a peer."""

FREE_PORT_RANGE = range(20_000, 32_000)
"""Where `free_ports` looks."""

REDIAL_SECONDS = 3.0
"""How long a peer that hung up may take to dial again: dialers pause for half a second at most."""

_MAX_GREETINGS = 32  # connections that greet at the same time
_REFUSAL_SECONDS = 0.5  # how long a refused connection is kept, so that the other end can read why

_log = logging.getLogger(__name__)


def open_listener(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """A listening socket for ``connect_mesh``; port 0 takes a free one, see ``getsockname``."""
    return socket.create_server((host, port), backlog=64)


def free_ports(count: int) -> list[int]:
    """Different ports of this machine at which nobody listens now, for servers that are started later.

    They are below those that the system gives to outgoing connections: one of these may be in use a moment later.
    """
    with ExitStack() as held:
        found: list[int] = []
        for port in SystemRandom().sample(FREE_PORT_RANGE, len(FREE_PORT_RANGE)):
            if len(found) == count:
                break
            with suppress(OSError):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
                found.append(port)
        if len(found) < count:
            raise OSError(
                f"{count} ports are wanted, and {len(found)} of {FREE_PORT_RANGE.start} to {FREE_PORT_RANGE.stop - 1} are free"
            )
        return found


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

    Parameters
    ----------
    listener : listening socket, or `PassedListener`; stays open and the caller's; may be None for seat 3, which dials everybody.
    addresses : seat -> (host, port); only those of lower seats are used.
    tls : None for plain TCP, which protects nothing: for tests and for servers on one machine.
    session : id of this run, the same on all servers, 1 to 64 bytes.
    route : 32 bytes that a dialer sends first, where peers have one port for several runs (`routes`); None: it does not.
    timeout : seconds until all peers must be connected.
    exchange_timeout : seconds that an exchange may take later; the same as ``timeout`` unless given.

    Raises
    ------
    PeerTimeout : a peer is missing; the message says what was tried and who was turned away.
    PeerError, FrameError, CertificateError : a peer was found but one of the two refused the other.
    """
    if not 1 <= len(session) <= MAX_SESSION:
        raise ValueError(f"session must have 1 to {MAX_SESSION} bytes, got {len(session)}")
    if seat not in SEATS or not timeout > 0:
        raise ValueError(f"seat must be one of {SEATS} and timeout positive, got {seat!r} and {timeout!r}")
    if listener is None and seat != SEATS[-1]:
        raise ValueError(f"{seat_name(seat)} needs a listener: higher seats dial it")
    missing = [peer for peer in SEATS if peer < seat and peer not in addresses]
    if missing:
        raise ValueError(f"{seat_name(seat)} needs the address of {' and '.join(map(seat_name, missing))}")
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
    """Exchange one byte with each peer: nobody begins, or ends, while others still connect. It does not count as a round."""
    others = [peer for peer in SEATS if peer != mesh.seat]
    mesh.exchange([(peer, b"\0") for peer in others], [(peer, 1) for peer in others])
    mesh.stats.reset()
    mesh.step = 0


class _Connector:
    """One server's attempt to get three links. Threads report to ``news``: a link, or the error that ends it all."""

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
        self.wakeup, self.wakeup_writer = socket.socketpair()  # rung with every news, so that waiting is one select
        self.causes: dict[int, str] = {}  # dialed peer -> why the last attempts failed
        self.refused: list[str] = []
        self.greeting: dict[int, socket.socket] = {}  # by number of arrival: who still greets
        self.arrived = 0
        self.lock = Lock()
        self.dialing = tls.context(dialing=True) if tls else None
        self.listening = tls.context(dialing=False) if tls else None

    def start(self, task: Callable[..., None], *arguments: object) -> None:
        Thread(target=task, args=arguments, name=f"ppca-connect-{self.seat}", daemon=True).start()

    def gather(self, listener: Listener | None) -> list[Link]:
        links: dict[int, Link] = {}
        gone: dict[int, float] = {}  # peer that hung up -> when
        try:
            while len(links) < len(SEATS) - 1:
                if monotonic() > self.deadline:
                    absent = [peer for peer in SEATS if peer != self.seat and peer not in links and peer not in gone]
                    raise self._timed_out(absent or sorted(gone))  # who was here and has given up is not the cause
                for peer, since in gone.items():
                    if monotonic() > since + REDIAL_SECONDS:
                        raise PeerError(
                            f"{seat_name(peer)} hung up before all servers were connected", self.seat, peer, 0
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
                    if former is not None:  # the peer dialed again, so it has given up the former connection
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
        details = [f"{seat_name(peer)}: {cause}" for peer, cause in sorted(self.causes.items()) if peer in missing]
        details += [f"turned away {cause}" for cause in self.refused[-3:]]
        return PeerTimeout(
            f"{seat_name(self.seat)} had no connection with {' and '.join(map(seat_name, missing))} within "
            f"{self.timeout:g} s{' (' + '; '.join(details) + ')' if details else ''}; check that all servers are "
            "started with the same addresses and session",
            self.seat,
            missing[0],
            0,
        )

    # Dialing

    def dial(self, peer: int, address: tuple[str, int]) -> None:
        pause = 0.02
        while not self.over.is_set() and monotonic() < self.deadline:
            try:
                sock = socket.create_connection(address, timeout=max(0.01, self.deadline - monotonic()))
                if sock.getsockname() == sock.getpeername():  # TCP can connect a free local port with itself
                    sock.close()
                    raise ConnectionRefusedError("nobody listens there yet")
                sock.sendall(self.first_words)
                if self.dialing is not None and self.tls is not None:
                    name = self.tls.names[peer]
                    sock = self.dialing.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
            except OSError as error:  # not there yet: try again
                self._note(peer, address, error)
            else:
                try:
                    self._report(self._greet_listener(sock, peer))
                    return
                except TransportError as error:
                    sock.close()
                    self._put(error)
                    return
                except OSError as error:  # there, but not ready, or somebody else
                    sock.close()
                    self._note(peer, address, error)
            self.over.wait(pause)
            pause = min(2 * pause, 0.5)

    def _note(self, peer: int, address: tuple[str, int], error: OSError) -> None:
        """Why an attempt failed. One that ran out of time is the last and may be cut short: the one before is told, too."""
        cause = error.strerror or str(error)
        former = self.causes.get(peer)
        if former is not None and isinstance(error, TimeoutError):
            self.causes[peer] = f"{former}; then {cause}"
        else:
            self.causes[peer] = f"{address[0]}:{address[1]}: {cause}"

    def _greet_listener(self, sock: socket.socket, peer: int) -> Link:
        try:
            if self.tls is not None and isinstance(sock, ssl.SSLSocket):
                sock.do_handshake()
                self.tls.check_seat(sock, self.seat, peer)
            send_hello(sock, self.seat, peer, self.session)
            read_hello(sock, self.seat, peer, self.session, self.deadline)
        except ssl.SSLCertVerificationError as error:
            raise CertificateError(
                f"{seat_name(self.seat)} does not trust the certificate of {seat_name(peer)}: {error.verify_message}; "
                f"{self._remedy}",
                self.seat,
                peer,
            ) from error
        except ssl.SSLError as error:
            if "ALERT" not in (error.reason or ""):
                raise ConnectionError(f"no TLS there ({error.reason or 'hung up'})") from error
            raise CertificateError(
                f"{seat_name(peer)} refused the certificate of {seat_name(self.seat)}: {error.reason}; {self._remedy}",
                self.seat,
                peer,
            ) from error
        return self._link(sock, peer)

    @property
    def _remedy(self) -> str:
        return self.tls.remedy if self.tls is not None else "both ends must use TLS, or neither"

    # Accepting

    def _wait_and_accept(self, listener: Listener | None, links: Mapping[int, Link], until: float) -> list[Link]:
        """Wait for news of the threads or a new connection; start a thread for the latter. Return links whose peer hung up."""
        poll = select.poll()
        for each in [self.wakeup] if listener is None else [self.wakeup, listener]:
            poll.register(each, select.POLLIN)
        by_fd = {link.fd: link for link in links.values()}
        for descriptor in by_fd:
            poll.register(descriptor, select.POLLRDHUP)  # a fast peer may have sent its first message already
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, 1000 * (until - monotonic())))}
        if self.wakeup.fileno() in ready:
            self.wakeup.recv(64)
        if listener is not None and listener.fileno() in ready:
            self._accept(listener)
        return [link for descriptor, link in by_fd.items() if descriptor in ready]

    def _accept(self, listener: Listener) -> None:
        """Start a thread for a new connection."""
        listener.settimeout(0)
        try:
            sock, address = listener.accept()
        except OSError:  # gone again before it was accepted
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
        """Hangs up on those who have greeted longest; their threads then turn them away. A peer among them dials again."""
        with self.lock:
            while len(self.greeting) >= _MAX_GREETINGS:
                oldest = self.greeting.pop(next(iter(self.greeting)))
                with suppress(OSError):
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)  # below TLS, whose state its thread is using

    def _greet(self, number: int, sock: socket.socket, origin: str) -> None:
        try:
            self._report(self._greet_dialer(number, sock))
        except (OSError, TransportError) as error:
            cause = f"{origin}: {getattr(error, 'reason', None) or error}"
            self.refused.append(cause)
            _log.warning("%s turned away %s", seat_name(self.seat), cause)
            self._stop_greeting(number)
            self._linger(sock)

    def _stop_greeting(self, number: int) -> bool:
        """Counts this one no longer among those who greet; False if it was hung up on meanwhile."""
        with self.lock:
            return self.greeting.pop(number, None) is not None

    def _greet_dialer(self, number: int, sock: socket.socket) -> Link:
        deadline = min(self.deadline, monotonic() + GREETING_SECONDS)
        if isinstance(sock, ssl.SSLSocket):
            sock.do_handshake()
        try:
            peer = read_hello(sock, self.seat, None, self.session, deadline)
            if self.tls is not None and isinstance(sock, ssl.SSLSocket):
                self.tls.check_seat(sock, self.seat, peer)
        except (FrameError, CertificateError) as error:
            if error.peer in SEATS:
                send_refusal(sock, self.seat, str(error))
            raise
        if not self._stop_greeting(number):  # from here on it is a peer, which nobody hangs up on
            raise ConnectionError("too many connections at once, and this one took longest")
        send_hello(sock, self.seat, peer, self.session)
        return self._link(sock, peer)

    # Ends

    def end(self) -> None:
        """Stop dialing, and drop what the threads still bring."""
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
        with suppress(OSError):  # nobody listens any more
            self.wakeup_writer.send(b"!")

    @staticmethod
    def _linger(sock: socket.socket) -> None:
        """Close so that the other end can still read our last words: closing with unread input would destroy them."""
        with suppress(OSError):
            sock.settimeout(_REFUSAL_SECONDS)
            sock.shutdown(socket.SHUT_WR)
            end = monotonic() + _REFUSAL_SECONDS
            while sock.recv(4096) and monotonic() < end:
                pass
        sock.close()
