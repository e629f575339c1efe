"""Listening sockets and free ports of this machine."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from random import SystemRandom

FREE_PORT_RANGE = range(20_000, 32_000)
"""Ports that `free_ports` tries. They are below the range that systems use for outgoing connections."""


def open_listener(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """Return a listening socket for ``connect_mesh``; port 0 takes a free one, see ``getsockname``."""
    return socket.create_server((host, port), backlog=64)


def free_ports(count: int) -> list[int]:
    """Return different ports of this machine that are not in use, for servers that are started later.

    They are below those that the system gives to outgoing connections, which could take a free port a moment later.
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
            first, last = FREE_PORT_RANGE.start, FREE_PORT_RANGE.stop - 1
            raise OSError(f"not enough free ports: {count} needed, {len(found)} of {first} to {last} are free.")
        return found
