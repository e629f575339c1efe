"""The API port of a server: renewing it loses no connection, the current pins count, and failures leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from harness.empty_records import EmptyRecords
from harness.federation import IDENTITIES, MEMBERSHIP, free_port, membership
from harness.waiting import PATIENCE, eventually, until
from ppca.federation.membership import Membership
from ppca.server import api_port as module
from ppca.server.api_port import ApiPort
from ppca.transport.pinned import PinnedTls, issue_leaf


class Greeting(asyncio.Protocol):
    """Says a word to who is let in."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"welcome")
        transport.close()


def tls(name: str, federation: Membership = MEMBERSHIP) -> PinnedTls:
    leaf = issue_leaf(name, IDENTITIES[name].key, timedelta(hours=1))
    return PinnedTls(leaf, federation.keys, federation.operators)


def greeted(port: int, context: ssl.SSLContext) -> bytes:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock, context.wrap_socket(sock) as inside:
        return inside.recv(100)


class Silence(asyncio.Protocol):
    """Keeps the connection and says nothing."""


def at_door(
    body: Callable[[ApiPort, int], Awaitable[None]], protocol: Callable[[], asyncio.Protocol] = Greeting
) -> None:
    async def whole() -> None:
        mine = tls("alpha")
        port, api_port = free_port(), ApiPort(protocol, mine.context(dialing=False), mine.member_of)
        await api_port.open("127.0.0.1", port)
        try:
            await body(api_port, port)
        finally:
            await api_port.close()

    asyncio.run(whole())


def test_nobody_who_knocks_while_it_is_renewed_is_sent_away() -> None:
    dialing, over = tls("north").context(dialing=True), threading.Event()

    times = [0] * 4

    def knock(port: int, who: int) -> None:
        while not over.is_set():
            assert greeted(port, dialing) == b"welcome"
            times[who] += 1

    async def body(api_port: ApiPort, port: int) -> None:
        visitors = [asyncio.create_task(asyncio.to_thread(knock, port, who)) for who in range(4)]
        renewals = 0
        try:
            while (renewals < 100 or min(times) < 5) and not any(visitor.done() for visitor in visitors):
                api_port.context = tls("alpha").context(dialing=False)
                renewals += 1
                await asyncio.sleep(0.005)
        finally:
            over.set()
        await asyncio.gather(*visitors)
        assert min(times) >= 5

    at_door(body)


def test_the_pins_of_the_moment_count() -> None:
    async def body(api_port: ApiPort, port: int) -> None:
        visitor = tls("visitor").context(dialing=True)
        assert await asyncio.to_thread(greeted, port, visitor) == b"welcome"
        api_port.context = tls("alpha", membership(2, left_out=["visitor"])).context(dialing=False)
        said = b""
        with contextlib.suppress(OSError):  # an alert, or only the end, as the alert comes in time or not
            said = await asyncio.to_thread(greeted, port, visitor)
        assert said == b""
        assert await asyncio.to_thread(greeted, port, tls("north").context(dialing=True)) == b"welcome"

    at_door(body)


def test_who_says_nothing_or_nonsense_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HANDSHAKE_SECONDS", 2 * PATIENCE)

    async def body(api_port: ApiPort, port: int) -> None:
        silent, loud = connections(port, 20), connections(port, 20)
        for sock in loud:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert await asyncio.to_thread(greeted, port, tls("north").context(dialing=True)) == b"welcome"
        for sock in silent:
            sock.close()
        monkeypatch.setattr(module, "HANDSHAKE_SECONDS", 0.2)
        for sock in (*connections(port, 20), *loud):
            with contextlib.suppress(ConnectionResetError):
                while await asyncio.to_thread(sock.recv, 100):
                    pass  # an alert; then it is closed from the other side
            sock.close()
        await eventually(lambda: not api_port._entering)

    at_door(body)


def test_idle_connections_are_bounded_and_keep_no_member_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger opens connections and says nothing: the oldest are closed, memory stays, members are served."""
    monkeypatch.setattr(module, "HANDSHAKE_SECONDS", 100 * PATIENCE)  # none is closed for its silence

    async def body(api_port: ApiPort, port: int) -> None:
        before = rss()
        idle = await asyncio.to_thread(connections, port, 3 * module.MAX_HANDSHAKES)
        assert await asyncio.to_thread(greeted, port, tls("north").context(dialing=True)) == b"welcome"
        assert len(api_port._entering) <= module.MAX_PER_ADDRESS
        assert rss() - before < 32 << 20
        assert await asyncio.to_thread(idle[0].recv, 1) == b"", "the oldest is closed"
        for sock in idle:
            sock.close()

    at_door(body)


def test_half_a_handshake_is_bounded_too() -> None:
    """Connections that begin TLS and stop hold its buffers: there are never more than the bound."""

    async def body(api_port: ApiPort, port: int) -> None:
        begun = await asyncio.to_thread(connections, port, 2 * module.MAX_HANDSHAKES)
        for sock in begun:
            with contextlib.suppress(OSError):
                sock.sendall(b"\x16\x03\x01\x02\x00\x01")  # the head of a ClientHello of 512 bytes
        await asyncio.sleep(0.2)
        assert len(api_port._entering) <= module.MAX_PER_ADDRESS
        assert await asyncio.to_thread(greeted, port, tls("north").context(dialing=True)) == b"welcome"
        for sock in begun:
            sock.close()

    at_door(body)


def connections(port: int, count: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port), PATIENCE) for _ in range(count)]


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_taken_port_is_said() -> None:
    async def body(api_port: ApiPort, port: int) -> None:
        with pytest.raises(OSError, match="in use"):
            await ApiPort(Greeting, api_port.context, api_port._member).open("127.0.0.1", port)

    at_door(body)


def test_a_machine_without_room_goes_on(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """No file descriptor is left for a moment: it is logged, and the next one is let in."""
    monkeypatch.setattr(module, "PAUSE", 0.05)

    async def body(api_port: ApiPort, port: int) -> None:
        loop = asyncio.get_running_loop()
        accept, failures = loop.sock_accept, iter([OSError(24, "Too many open files")] * 2)

        async def poor(listening: socket.socket) -> tuple[socket.socket, object]:
            found = await accept(listening)
            if (failure := next(failures, None)) is None:
                return found
            found[0].close()
            raise failure

        monkeypatch.setattr(loop, "sock_accept", poor)
        dialing = tls("north").context(dialing=True)
        welcome = 0
        for _ in range(5):
            with contextlib.suppress(OSError):
                welcome += await asyncio.to_thread(greeted, port, dialing) == b"welcome"
        assert welcome >= 2
        assert "a connection is not accepted" in caplog.text

    at_door(body)


def test_a_member_has_a_bounded_number_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other members, and its own next ones once it has closed some, are let in."""
    monkeypatch.setattr(module, "MAX_PER_MEMBER", 3)

    def enter(port: int, name: str) -> ssl.SSLSocket:
        sock = socket.create_connection(("127.0.0.1", port), PATIENCE)
        return tls(name).context(dialing=True).wrap_socket(sock)

    def is_open(sock: ssl.SSLSocket, seconds: float) -> bool:
        sock.settimeout(seconds)
        try:
            sock.recv(1)
        except TimeoutError:
            return True
        except OSError:
            return False
        return False

    def knock(port: int) -> None:
        with contextlib.ExitStack() as stack:
            first = [stack.enter_context(enter(port, "north")) for _ in range(3)]
            assert not is_open(stack.enter_context(enter(port, "north")), PATIENCE)
            assert is_open(stack.enter_context(enter(port, "south")), 0.3)
            assert all(is_open(sock, 0.1) for sock in first)
            first[0].close()
            until(lambda: is_open(stack.enter_context(enter(port, "north")), 0.3))

    async def body(api_port: ApiPort, port: int) -> None:
        await asyncio.to_thread(knock, port)

    at_door(body, Silence)


def test_empty_tls_records_end_a_connection_and_keep_no_member_out(tmp_path: Path) -> None:
    """A member completes the handshake and sends records without content, which cost the server work and are no data."""

    def knock(port: int) -> None:
        context = tls("north").context(dialing=True)
        context.keylog_filename = str(tmp_path / "keys")
        sock = socket.create_connection(("127.0.0.1", port), PATIENCE)
        with context.wrap_socket(sock) as inside:
            inside.settimeout(PATIENCE)
            empty = EmptyRecords(inside, tmp_path / "keys")
            assert any(not empty.send() for _ in range(100_000)), "it was never closed"
            empty.close()
        sock = socket.create_connection(("127.0.0.1", port), PATIENCE)
        with tls("south").context(dialing=True).wrap_socket(sock) as other:
            other.settimeout(0.3)
            with pytest.raises(TimeoutError):
                other.recv(1)

    async def body(api_port: ApiPort, port: int) -> None:
        await asyncio.to_thread(knock, port)

    at_door(body, Silence)
