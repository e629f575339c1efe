"""A time limit for a whole conversation over a connection; the timeout of a socket restarts with every byte."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def cut_after(sock: socket.socket, seconds: float) -> Iterator[None]:
    """Shut the connection down after some seconds. Reading from it then ends or raises an OSError."""
    timer = threading.Timer(seconds, _shut_down, [sock])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
