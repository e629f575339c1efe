"""The adversary of `ppca bench chaos`: its files are refused, its damages damage, and it tells what was not refused."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import adversary, lying
from benchmarks.adversary import EXPENSIVE, LIE, SKEW, STORED, WAYS, Adversary, altered_servers
from harness.four_servers import Rogue, exchange
from ppca.federation.errors import FederationError
from ppca.federation.proposal import ProposedJob
from ppca.transport import TransportError
from ppca.transport.frames import DATA, pack_header


def attacker(**field: Any) -> Adversary:
    return Adversary(SimpleNamespace(**field), random.Random(1), threading.Event())  # type: ignore[arg-type]


@pytest.mark.parametrize("text", EXPENSIVE, ids=lambda text: text[:12])
def test_expensive_files_are_refused_at_once(text: str) -> None:
    began = time.thread_time()
    with pytest.raises(FederationError):
        ProposedJob(text.encode())
    assert time.thread_time() - began < 5


@pytest.mark.parametrize("way", WAYS)
def test_files_are_damaged_in_every_way(tmp_path: Path, way: str) -> None:
    path, mallory = tmp_path / "file", attacker()
    path.write_bytes(b"first content")
    mallory._spoil(path, "old copy")
    assert path.read_bytes() == b"first content"
    path.write_bytes(b"second content")
    mallory._spoil(path, way)
    found = path.read_bytes() if path.exists() else None
    assert found != b"second content"
    assert found == {"missing": None, "empty": b"", "cut": b"second ", "old copy": b"first content"}.get(way, found)


def test_what_was_not_refused_is_told() -> None:
    """A server that takes what it must refuse, and a lying owner's job that is done, are findings."""
    item = SimpleNamespace(digest="0" * 64, data=b"", header="a header")
    client = SimpleNamespace(request=lambda *_: (201, b""))
    done = SimpleNamespace(done=True, over=True)
    member = SimpleNamespace(job_state=lambda job: done, close=lambda: None)
    mallory = attacker(member=lambda name: member)
    assert mallory._refused(SimpleNamespace(clients=[client] * 4), item, "an object")  # type: ignore[arg-type]
    mallory._lying.append(SimpleNamespace(name="lie-1"))  # type: ignore[arg-type]
    assert mallory.verdicts(5) == ["an object was taken: a header", "lie-1: a lying owner's job is done"]


def test_every_kind_of_file_of_a_store_is_damaged() -> None:
    names = [name for _, name, _ in attacker().actions()]
    assert all(any(what in name for name in names) for what in STORED)


@pytest.mark.parametrize("way", lying.WAYS)
def test_a_wrong_frame_is_refused_by_the_name_of_its_sender(way: str) -> None:
    for seed in range(5):
        rogue = Rogue(timeout=0.2)
        frame = pack_header(DATA, 2, 0, 8) + bytes(8)
        rogue.peers[2].sendall(lying.altered(frame, way, random.Random(seed)))
        if way == "cut":
            rogue.peers[2].close()
        with pytest.raises(TransportError) as caught:
            exchange(rogue.mesh, {}, {2: 8})
        assert (caught.value.peer, caught.value.step) == (2, 0)
        rogue.close()


@pytest.mark.processes
def test_a_server_process_lies_as_its_file_says(tmp_path: Path) -> None:
    place = adversary.lie_file(tmp_path)
    place.write_text("step")
    program = (
        "import ssl, socket\n"
        "from benchmarks import lying\n"
        "from ppca.transport.link import TlsLink\n"
        "lying.PART, sent = 1.0, []\n"
        "link = object.__new__(TlsLink)\n"
        "link._tls = type('Tls', (), {'send': lambda self, part: sent.append(bytes(part)) or len(part)})()\n"
        "print(link.sendmsg((bytes(24), b'payload')), sent)\n"
    )
    environment = altered_servers(tmp_path) | {LIE: str(place)}
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    length, _, sent = told.stdout.partition(" ")
    assert (length, "payload" in sent, str(bytes(24))[2:-1] in sent) == ("31", True, False)
    assert lying.counts_of(place).read_bytes() == b"."


@pytest.mark.processes
def test_a_clock_can_be_wrong(tmp_path: Path) -> None:
    environment = altered_servers(tmp_path) | {SKEW: str(tmp_path / "skew")}
    (tmp_path / "skew").write_text("172800")
    command = [sys.executable, "-c", "import time; print(time.time())"]
    told = float(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    assert 172_000 < told - time.time() < 173_000
    assert adversary.peak_memory(0) == 0
