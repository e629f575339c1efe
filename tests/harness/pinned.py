"""Members of a federation with pinned keys, and one TLS handshake between two of them."""

from __future__ import annotations

import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from harness.waiting import PATIENCE
from ppca.transport import Leaf, PinnedTls, issue_leaf

OPERATOR_OF = {0: "north", 1: "south", 2: "east", 3: "west"}


class Members:
    """Four operators with a key each, and what each of them needs for TLS."""

    def __init__(self) -> None:
        self.keys = {name: Ed25519PrivateKey.generate() for name in OPERATOR_OF.values()}
        self.pins = {name: key.public_key().public_bytes_raw() for name, key in self.keys.items()}

    def leaf(self, name: str, **settings: Any) -> Leaf:
        return issue_leaf(name, self.keys[name], **settings)

    def tls(self, name: str, leaf: Leaf | None = None, pins: dict[str, bytes] | None = None) -> PinnedTls:
        return PinnedTls(leaf or self.leaf(name), self.pins if pins is None else pins, OPERATOR_OF)

    def own(self) -> dict[int, dict[str, Any]]:
        return {server: {"tls": self.tls(name)} for server, name in OPERATOR_OF.items()}


def handshake(dialing: ssl.SSLContext, listening: ssl.SSLContext) -> tuple[Any, Any]:
    """Return what each side got: the other's certificate, or its error. Both speak once, so that late refusals
    arrive."""

    def side(context: ssl.SSLContext, sock: socket.socket, listens: bool) -> Any:
        sock.settimeout(PATIENCE)
        try:
            with context.wrap_socket(sock, server_side=listens) as tls:
                tls.sendall(b"!")
                tls.recv(1)
                return tls.getpeercert()
        except (ssl.SSLError, OSError) as error:
            return error
        finally:
            with suppress(OSError):
                sock.close()

    here, there = socket.socketpair()
    with ThreadPoolExecutor(2) as pool:
        results = pool.submit(side, dialing, here, False), pool.submit(side, listening, there, True)
        return results[0].result(), results[1].result()
