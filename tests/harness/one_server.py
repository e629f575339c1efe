"""One server that serves over real TLS, and clients of it that say anything."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

from harness.federation import IDENTITIES, Loop, free_port, job, membership, server_state, story
from harness.waiting import PATIENCE
from ppca.federation.membership import Membership
from ppca.federation.objects import Object
from ppca.member.connections import ServerClient
from ppca.server.server_state import ServerState
from ppca.transport import Leaf, issue_leaf
from ppca.transport.pinned import PinnedTls


class OneServer:
    """One server that serves, and clients of it."""

    def __init__(self, folder: Path, loop: Loop, **tables: Any) -> None:
        self.folder, self.loop = folder, loop
        self.port = free_port()
        self.membership = membership(ports=[self.port, 1, 2, 3])
        self.server_state: ServerState = server_state(folder, self.membership, **tables)
        self.job = job(self.membership)
        self.story = story(self.job)

    def client(self, name: str, leaf: Leaf | None = None, federation: Membership | None = None) -> ServerClient:
        known = federation or self.membership
        identity = IDENTITIES[name]
        tls = PinnedTls(leaf or issue_leaf(name, identity.key), known.keys, known.operators)
        return ServerClient(known, 0, lambda: tls)

    def tell(self, *items: Object) -> None:
        for item in items:
            self.server_state.admit(item, item.header.author)

    def raw(self, name: str | None, leaf: Leaf | None = None) -> ssl.SSLSocket:
        """A connection on which anything can be said. name: None for no certificate."""
        if name is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        else:
            tls = PinnedTls(
                leaf or issue_leaf(name, IDENTITIES[name].key), self.membership.keys | {name: IDENTITIES[name].public}
            )
            context = tls.context(dialing=True)
        sock = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        return context.wrap_socket(sock)


def asked(sock: ssl.SSLSocket, request: bytes) -> bytes:
    """Return what is answered until the other end hangs up or nothing comes any more."""
    sock.settimeout(PATIENCE)
    found = b""
    try:
        sock.sendall(request)
        while data := sock.recv(1 << 16):
            found += data
            if b"\r\n\r\n" in found and b"chunked" not in found:
                break
    except (TimeoutError, ssl.SSLError, OSError):
        pass
    return found


HELLO = b"GET /v1/hello HTTP/1.1\r\nHost: x\r\n\r\n"
