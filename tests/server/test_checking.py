"""Contributions are opened once, in a process with bounded memory; what is wrong with one is refused by its owner's name."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.federation import IDENTITIES, job, make, server_state, story
from harness.whole import CheckerHere
from ppca.algorithms import second_moments
from ppca.federation.envelopes import MAX_TEXT, Envelopes, blind, envelope_info, messages
from ppca.federation.errors import FederationError, ObjectRefused
from ppca.federation.objects import Object
from ppca.federation.sealing import SealingKey, seal
from ppca.protocol import InputPacket, share
from ppca.runtime.control import ChannelClosed, encode
from ppca.runtime.process import KILLED_FIRST
from ppca.server import checking
from ppca.server.checking import MAX_ENDED_CHECKS, CheckEnded, Checker, CheckFailed
from ppca.server.contributions import MAX_RETRY_DELAY, Contributions
from ppca.server.job_runner import JobRunner
from ppca.server.keys import JOB

OF = job()
STORY = story(OF)
KINDS = [item.header.kind for item in STORY]


@pytest.fixture
def shares(tmp_path: Path) -> Iterator[Contributions]:
    """Those of server 0, which has offered its own key; the owners have approved."""
    of = server_state(tmp_path, policy={"memory": 1 << 26})
    offer = make("alpha", "offer", OF, of.keys.make(JOB, OF.id).public, server=0)
    for item in STORY[: KINDS.index("envelope")]:
        mine = item.header.kind == "offer" and item.header.author == "alpha"
        of.admit(offer if mine else item, item.header.author)
    made = Contributions(of)
    made._checker = CheckerHere(1 << 26)
    yield made
    made.close()
    of.mailbox.close()


def contribute(shares: Contributions, plain: bytes, owner: str = "north") -> str:
    """A contribution whose one envelope for server 0 holds these bytes; its digest."""
    key = shares.server_state.keys.of(JOB, OF.id)
    assert key is not None
    sealed = seal(plain, key.public, **envelope_info(OF.id, owner, 0, 0))
    envelope = Object.make(IDENTITIES[owner], "envelope", OF.id, sealed, to=0, chunk=0)
    content = {"chunks": [[envelope.digest], [], [], []], "summands": {"R0": "0" * 64, "C0": "0" * 64}}
    last = Object.make(IDENTITIES[owner], "contribution", OF.id, json.dumps(content).encode())
    for item in (envelope, last):
        shares.server_state.admit(item, owner)
    return last.digest


def promise(shares: Contributions, owner: str = "north") -> str:
    """A contribution that lists an envelope which never comes; its digest."""
    summands = dict.fromkeys(("R0", "R1", "C0", "C1", "R0-C0"), "0" * 64)
    content = {"chunks": [["1" * 64], [], [], []], "summands": summands}
    last = Object.make(IDENTITIES[owner], "contribution", OF.id, json.dumps(content).encode())
    shares.server_state.admit(last, owner)
    return last.digest


def refusals(shares: Contributions) -> list[str]:
    return [header.about["why"] for header in shares.server_state.mailbox.objects(OF.id).of("refusal")]


def framed(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<I", len(text) if length is None else length) + text


def with_packets(packets: Any, **more: Any) -> bytes:
    return framed(json.dumps({"kind": "packets", "body": {"packets": packets, **more}, "sizes": []}).encode())


MALFORMED = {
    "nothing": b"",
    "noise": os.urandom(1000),
    "half a message": b"".join(encode("packets", packets=[share([1.0])[0]]))[:-3],
    "a text of 64 MB": framed(b"{" * 5, 1 << 26),
    "a text of 65 kB": with_packets([0] * 30_000),
    "deep lists": framed(b"[" * 60_000),
    "many small lists": framed(b"[" + b"[]," * 20_000 + b"[]]"),
    "no packets": framed(b'{"kind": "packets", "body": {}, "sizes": []}'),
    "packets that are none": with_packets([1, 2]),
    "another kind": b"".join(encode("record", packets=[share([1.0])[0]])),
    "buffers of 2^60 bytes": framed(b'{"kind": "packets", "body": {"packets": []}, "sizes": [1152921504606846976]}'),
    "one wrong shape": b"".join(encode("packets", packets=[share(np.ones((5, 5)))[0]])),
    "keys for 2^40 numbers": with_packets(
        [{"$": "packet", "shape": [1 << 20, 1 << 20], "ring": [128, 40, 30], "row": 0, "column": 0}]
    ),
    "tags that are a list": b"".join(encode("rows", packets=[share(np.ones((2, 3)))[0]], tags=[1, 2])),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_contribution_is_opened_once_and_refused_by_name(name: str, shares: Contributions) -> None:
    """It was opened again every second forever, in the process that serves members."""
    digest = contribute(shares, MALFORMED[name])
    shares.check(OF, "north", digest)
    (why,) = refusals(shares)
    assert why.startswith("the shares of north cannot be used: ")
    assert shares.server_state.admission.job_state(OF.id).stage == "refused"


def test_whatever_error_a_contribution_causes_it_is_refused_and_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(**_: Any) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(checking, "examine", fails)
    said = b"".join(checking.answer({}))
    assert b'"kind": "refused"' in said
    assert b"they cannot be opened (ZeroDivisionError)" in said


def test_an_envelope_to_a_key_that_the_disk_has_lost_is_not_the_owners_fault(
    shares: Contributions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is replaced, and the mates are asked for the shares; until they answer the job waits."""
    digest = contribute(shares, b"x")
    shares.server_state.keys.destroy(JOB, OF.id)

    def not_reached(*_: Any, **__: Any) -> bytes:
        raise FederationError("server 1 is not reached")

    monkeypatch.setattr(shares.mates, "get", not_reached)
    with pytest.raises(FederationError, match="not reached"):
        shares.check(OF, "north", digest)
    assert refusals(shares) == []


def test_what_is_no_fault_of_the_owner_is_tried_again_less_and_less_often(
    shares: Contributions, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, asked, now = contribute(shares, b"x"), 0, 1000.0

    def failing(*_: Any, **__: Any) -> int:
        nonlocal asked
        asked += 1
        raise CheckFailed("out of order")

    monkeypatch.setattr(shares._checker, "check", failing)
    monkeypatch.setattr("ppca.server.contributions.time.monotonic", lambda: now)
    for _ in range(3600):
        now += 1.0
        try:
            shares.check(OF, "north", digest)
        except FederationError:
            continue
    assert 10 < asked < 20
    assert refusals(shares) == []


def test_a_contribution_whose_envelopes_do_not_come_is_looked_at_now_and_then(
    shares: Contributions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mates are asked for the shares after a while; until somebody has them, the server does next to nothing."""
    digest, looked, asked, now = promise(shares), 0, 0, 1000.0
    real = shares._check

    def counted(*arguments: Any) -> bool:
        nonlocal looked
        looked += 1
        return real(*arguments)

    def not_reached(*_: Any, **__: Any) -> bytes:
        nonlocal asked
        asked += 1
        raise FederationError("server 1 is not reached")

    monkeypatch.setattr(shares, "_check", counted)
    monkeypatch.setattr(shares.mates, "get", not_reached)
    monkeypatch.setattr("ppca.server.contributions.time.monotonic", lambda: now)
    for _ in range(600):
        now += 1.0
        shares.check(OF, "north", digest)
    assert 35 < looked < 50
    assert asked > 0
    assert refusals(shares) == []


def test_an_owner_whose_envelopes_do_not_come_does_not_keep_a_server_busy(
    shares: Contributions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One signed object of 1 kB made a server check it again some hundred times a second until the job expired."""
    promise(shares)
    runner = JobRunner(shares.server_state, None)  # type: ignore[arg-type]
    looked = 0

    def incomplete(*_: Any) -> bool:
        nonlocal looked
        looked += 1
        return False

    monkeypatch.setattr(runner.shares, "_check", incomplete)

    async def body() -> None:
        for _ in range(50):
            runner.advance(OF.id)
            await asyncio.gather(*runner._tasks)
        await runner.stop()

    asyncio.run(body())
    assert 1 <= looked <= 10


def test_memory_bounds_the_sum_of_what_the_owners_send(shares: Contributions, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner that sent most is named, and not the one that came last."""
    sizes = iter([8 << 20, 50 << 20, 30 << 20])
    monkeypatch.setattr(shares._checker, "check", lambda *_, **__: next(sizes))
    for owner in ("north", "south", "west"):
        shares.check(OF, owner, contribute(shares, b"x", owner))
    assert refusals(shares) == [
        "the shares of all owners so far take 92,274,688 bytes, those of south 52,428,800 of them; this server takes 67,108,864 "
        "for a job ([policy] memory)"
    ]


def test_texts_of_messages_are_bounded_on_both_sides() -> None:
    envelopes = Envelopes(IDENTITIES["north"], OF.id, [b""] * 4, lambda item: None)
    with pytest.raises(ObjectRefused, match="of text, which servers refuse"):
        envelopes.add("packets", [share([1.0])] * 1000)
    with pytest.raises(ObjectRefused, match=f"the limit is {MAX_TEXT}"):
        list(messages([with_packets([0] * 30_000)]))


# -- the process ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    made = Checker(1 << 26)
    yield made
    made.close()


def asked(checker: Checker, **more: Any) -> str:
    request = {"server": 0, "job": OF.data.decode(), "owner": "north", "key": "00" * 32, "files": [], "restored": False}
    try:
        return f"{checker.check(**request, signed={}, **more)} bytes"
    except FederationError as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.processes
def test_the_process_answers_and_is_bounded(checker: Checker) -> None:
    assert asked(checker).startswith("ObjectRefused")
    assert checker._process is not None
    limits = Path(f"/proc/{checker._process.pid}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max address space")]
    assert int(line.split()[3]) < (1 << 28) + checking.AROUND + (4 << 30)
    assert "Max core file size        0" in limits


@pytest.mark.processes
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_dies_or_hangs_is_started_again(
    checker: Checker, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    asked(checker)
    assert checker._process is not None
    before = checker._process
    before.send_signal(how)
    if how == signal.SIGSTOP:
        monkeypatch.setattr(checking, "SECONDS", 0.5)
        monkeypatch.setattr(checking, "BYTES_PER_SECOND", 1 << 40)
        assert asked(checker).startswith("CheckEnded")
        monkeypatch.setattr(checking, "SECONDS", 60.0)
    else:
        before.wait()
    assert asked(checker).startswith("ObjectRefused")
    assert checker._process is not None
    assert checker._process.pid != before.pid
    assert before.poll() is not None


@pytest.mark.processes
def test_memory_of_a_check_does_not_grow_with_the_shape_of_a_key(tmp_path: Path) -> None:
    """An envelope of 2 kB with the keys of 256 MiB took 589 MB. The process may keep one message, and blocks."""
    sole = job(owners=["north"], columns={"north": ["a", "b"]}, align={"alignment": "aligned", "minimum": 2})
    key, memory = SealingKey(), 1 << 28
    rows = memory // (2 * 2 * 8) - 100
    keys = InputPacket((rows, 2), second_moments.ROWS, b"r" * 16, b"c" * 16)
    plain = b"".join([*encode("blind", packets=[blind()[0]]), *encode("rows", packets=[keys])])
    sealed = seal(plain, key.public, **envelope_info(sole.id, "north", 0, 0))
    envelope = Object.make(IDENTITIES["north"], "envelope", sole.id, sealed, to=0, chunk=0)
    file = tmp_path / envelope.digest
    file.write_bytes(envelope.data)
    checker = Checker(memory)
    request = {"server": 0, "job": sole.data.decode(), "owner": "north", "key": key.to_bytes().hex()}
    try:
        with pytest.raises(ObjectRefused, match="its sums are missing"):
            checker.check(**request, files=[str(file)], restored=False, signed={})
        assert checker._process is not None
        status = Path(f"/proc/{checker._process.pid}/status").read_text()
        score = Path(f"/proc/{checker._process.pid}/oom_score_adj").read_text()
    finally:
        checker.close()
    (peak,) = [int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM")]
    assert len(envelope.data) < 3000
    assert peak < 200 << 20
    assert int(score) >= KILLED_FIRST


def test_a_contribution_that_ends_the_process_again_and_again_is_refused(
    shares: Contributions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was checked again forever. The count is on the disk: the server itself may be ended by it."""
    digest, asked, now = contribute(shares, b"x"), 0, 1000.0

    def ending(*_: Any, **__: Any) -> int:
        nonlocal asked
        asked += 1
        raise CheckEnded("ended")

    monkeypatch.setattr(shares._checker, "check", ending)
    monkeypatch.setattr("ppca.server.contributions.time.monotonic", lambda: now)
    while not refusals(shares):
        now += MAX_RETRY_DELAY
        shares._again.clear()  # as after a restart
        with suppress(CheckFailed):
            shares.check(OF, "north", digest)
    assert asked == MAX_ENDED_CHECKS
    assert refusals(shares) == [
        "the shares of north cannot be used: the process that checks contributions ended 4 times while it checked them"
    ]


@pytest.mark.processes
def test_a_process_that_does_not_start_is_not_counted(shares: Contributions, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was, so four failures within seconds, as while a package is replaced, ended an honest owner's job."""
    digest, now = contribute(shares, b"x"), 1000.0
    monkeypatch.setattr("ppca.server.checking.sys.executable", "/bin/false")
    monkeypatch.setattr(shares, "_checker", Checker(1 << 26))
    monkeypatch.setattr("ppca.server.contributions.time.monotonic", lambda: now)
    for _ in range(2 * MAX_ENDED_CHECKS):
        now += MAX_RETRY_DELAY
        shares._again.clear()
        with suppress(CheckFailed):
            shares.check(OF, "north", digest)
    assert refusals(shares) == []


def test_checks_that_are_answered_are_not_counted(shares: Contributions, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = contribute(shares, b"x")

    def failing(*_: Any, **__: Any) -> int:
        raise CheckFailed("a file is damaged")

    monkeypatch.setattr(shares._checker, "check", failing)
    for _ in range(2 * MAX_ENDED_CHECKS):
        shares._again.clear()
        with pytest.raises(CheckFailed):
            shares.check(OF, "north", digest)
    assert refusals(shares) == []


@pytest.mark.processes
def test_the_end_of_the_server_is_not_counted_as_the_end_of_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Checker(1 << 26)

    def closed(*_: Any) -> Any:
        made._closed = True
        raise ChannelClosed("killed")

    monkeypatch.setattr(made, "_ask", closed)
    with pytest.raises(CheckFailed) as found:
        made.check()
    assert type(found.value) is CheckFailed


def test_the_time_of_a_check_follows_from_what_shares_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of 16 bytes stands for any shape. A limit that followed from the bytes of files ended honest checks."""
    made = Checker(8 << 30)
    allowed: list[float] = []

    def ask(seconds: float, request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        allowed.append(seconds)
        return "good", {"bytes": 1}

    monkeypatch.setattr(made, "_ask", ask)
    assert made.check(files=[]) == 1
    assert allowed == [checking.SECONDS + (8 << 30) / checking.BYTES_PER_SECOND]
    assert allowed[0] > 800
