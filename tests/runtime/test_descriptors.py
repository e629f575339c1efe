"""Descriptors above 1023, which select() refuses: a server with many connections still starts workers and runs programs."""

from __future__ import annotations

import os
import queue
import resource
import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from harness.four_servers import Servers, exchange, succeed
from harness.waiting import PATIENCE
from ppca.runtime.control import Channel, Message, encode
from ppca.runtime.process import watch
from ppca.transport import Mesh


@pytest.fixture
def high_numbers() -> Iterator[None]:
    """All descriptors below 1100 are taken, as by a flood of connections."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))
    held = [os.open(os.devnull, os.O_RDONLY)]
    while held[-1] < 1100:
        held.append(os.dup(held[0]))
    yield
    for each in held:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))


def test_a_worker_hears_its_server_over_a_high_descriptor(high_numbers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)  # what `watch` does when its server is gone
    here, there = socket.socketpair()
    inbox: queue.Queue[Message] = queue.Queue()
    channel = Channel(there)
    assert channel.fileno() > 1023
    watching = threading.Thread(target=watch, args=(0, os.getppid(), channel, inbox), daemon=True)
    watching.start()
    try:
        for piece in encode("go"):
            here.sendall(piece)
        assert inbox.get(timeout=PATIENCE) == ("go", {})
        assert not ended
    finally:
        here.close()
        watching.join(PATIENCE)
        there.close()
    assert ended == [0]


def test_four_servers_meet_over_high_descriptors(high_numbers: None) -> None:
    servers = Servers()

    def body(mesh: Mesh) -> None:
        other = mesh.seat ^ 1
        exchange(mesh, {other: [np.zeros(4 << 20, np.uint8)]}, {other: 4 << 20})
        mesh.close()

    try:
        succeed(servers.connect(), body)
    finally:
        servers.close()
