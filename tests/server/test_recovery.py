"""A server after a kill, with damaged files or a wrong clock: it starts, goes on with all other jobs, and destroys nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.federation import MEMBERSHIP, OWNERS, RECEIVER, job, make, server_state, story
from harness.waiting import eventually
from ppca.federation.errors import FederationError, NotNow, ObjectRefused
from ppca.federation.objects import Object, sha256
from ppca.federation.proposal import ProposedJob
from ppca.federation.state import job_state_of
from ppca.protocol import RingType
from ppca.runtime.control import encode
from ppca.server import job_runner as module
from ppca.server.clock import Clock
from ppca.server.contributions import Contributions
from ppca.server.job_runner import JobRunner
from ppca.server.keys import JOB
from ppca.server.restoring import Restoring
from ppca.server.server_state import ServerState
from ppca.server.staging import COPIES, Staging, record_bytes

OF = job()
STORY = story(OF)
KINDS = [item.header.kind for item in STORY]
REAL_TIME = time.time
DAMAGES = ("flip", "cut", "empty", "missing")


def tell(of: ServerState, items: list[Object]) -> None:
    for item in items:
        of.admit(item, item.header.author)


@contextmanager
def server(folder: Path, **tables: Any) -> Iterator[ServerState]:
    made = server_state(folder, **tables)
    try:
        yield made
    finally:
        made.mailbox.close()


def job_runner(of: ServerState) -> JobRunner:
    return JobRunner(of, None)  # type: ignore[arg-type]


def damage(path: Path, way: str) -> None:
    data = bytearray(path.read_bytes())
    if way == "missing":
        path.unlink()
        return
    data[len(data) // 2] ^= 1
    path.write_bytes({"flip": data, "cut": data[: len(data) // 2], "empty": b""}[way])


def ended(of: ServerState, known: ProposedJob = OF) -> list[str]:
    return [h.about["why"] for h in of.mailbox.objects(known.id).of("ended") if h.author == of.identity.name]


@pytest.mark.parametrize("way", DAMAGES)
def test_a_kill_in_an_attempt_and_a_damaged_job_do_not_stop_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The server never started again; other jobs must go on, and this one when its file has come back."""
    monkeypatch.setattr(module, "POLL_INTERVAL", 0.1)
    other = job(name="other")
    with server(tmp_path) as before:
        tell(before, STORY[: KINDS.index("ended")])
        tell(before, [make(RECEIVER, "job", other, other.data)])
        path = before.mailbox._path(STORY[0].digest)
    damage(path, way)
    with server(tmp_path) as after:

        async def body() -> None:
            after.attend(asyncio.get_running_loop())
            running = asyncio.create_task(job_runner(after).run())
            offered = lambda: after.mailbox.objects(other.id).offer("alpha", of_server=True)  # noqa: E731
            await eventually(lambda: running.done() or offered() is not None, "other jobs do not go on")
            assert not running.done(), running.exception()
            assert ended(after) == []
            assert after.admission.jobs() == ([other.id], [OF.id])
            after.admission.mailbox.put(STORY[0])  # as a peer gives it back
            await eventually(lambda: ended(after))
            running.cancel()

        asyncio.run(body())
        assert ended(after) == ["the server was restarted during the attempt"]


def parts(attempt: int, count: int, size: int = 1) -> list[Object]:
    """A server's part of a result in several pieces, and its audit."""
    about = {"receiver": RECEIVER, "attempt": attempt, "chunks": count}
    found = [make("alpha", "result", OF, bytes(size), chunk=chunk, **about) for chunk in range(count)]
    return [*found, make("alpha", "audit", OF, b"{}", attempt=attempt)]


def test_a_large_result_is_published_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was published in one go: a result of some GiB kept the event loop for longer than the watchdog waits, at every start."""
    monkeypatch.setattr("ppca.server.closing.PUBLISHING", 0.0)
    with server(tmp_path) as of:
        tell(of, STORY)
        at, items = job_runner(of), parts(1, 3)
        at.staging.put(OF.id, 1, items, None)
        for count in range(1, len(items) + 1):
            at.advance(OF.id)
            assert sum(of.mailbox.has(item.digest) for item in items) == count
        at.advance(OF.id)
        assert of.mailbox.note(f"committed {OF.id}") is not None
        assert of.mailbox.noted("missing ") == {}


def test_a_result_that_finds_no_room_is_erased_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server tried to publish it forever, and never destroyed the key of the job."""
    with server(tmp_path, policy={"bytes_per_member": 1 << 20}) as of:
        of.keys.make(JOB, OF.id)
        tell(of, STORY)
        hear(of, 0, 0, 0)
        at = job_runner(of)
        at.staging.put(OF.id, 1, parts(1, 2, 600_000), None)
        with pytest.raises(NotNow, match="alpha has stored as much"):
            at.advance(OF.id)
        ahead(monkeypatch, 8)
        hear(of, 8, 8, 8)
        at.advance(OF.id)
        assert of.keys.of(JOB, OF.id) is None
        assert at.staging.staged(OF.id, 1) == []


@pytest.mark.parametrize("way", DAMAGES)
def test_one_damaged_copy_of_a_staged_result_loses_nothing(tmp_path: Path, way: str) -> None:
    with server(tmp_path) as of:
        staging = Staging(of.settings.store, of.keys)
        item = make("alpha", "result", OF, b"sealed", receiver=RECEIVER, attempt=1)
        staging.put(OF.id, 1, [item], {"public": {"rows": 3}})
        for number, copy in enumerate(COPIES):
            for path in sorted((of.settings.store / "staged").glob(f"*/{copy}/*"))[number::2]:
                damage(path, way)
        assert staging.staged(OF.id, 1) == [item.digest]
        assert staging.item(OF.id, 1, item.digest) == item
        staging.commit(OF.id, 1)
        assert staging.model(OF.id) == {"public": {"rows": 3}}


def test_a_staged_result_of_which_both_copies_are_damaged_is_listed(tmp_path: Path) -> None:
    """The rest is published; the operator sees what is missing."""
    with server(tmp_path) as of:
        tell(of, STORY)
        at = job_runner(of)
        items = [
            make("alpha", "result", OF, b"x", receiver=RECEIVER, attempt=1),
            make("alpha", "audit", OF, b"{}", attempt=1),
        ]
        at.staging.put(OF.id, 1, items, None)
        for path in (of.settings.store / "staged").glob(f"*/*/{items[0].digest}.object"):
            damage(path, "flip")
        at.advance(OF.id)
        assert of.mailbox.has(items[1].digest)
        assert RECEIVER in of.mailbox.noted("missing ")[OF.id]
        at.advance(OF.id)


def test_a_disk_that_does_not_give_back_what_was_staged_fails_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(tmp_path) as of:
        monkeypatch.setattr("ppca.server.staging.write_file", lambda path, data: None)
        with pytest.raises(OSError, match="not written as they are"):
            Staging(of.settings.store, of.keys).put(OF.id, 1, [STORY[-1]], None)


@pytest.mark.parametrize("way", DAMAGES)
def test_a_damaged_key_of_a_job_is_replaced_and_its_shares_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Envelopes did not open any more, and the server refused the job in the name of its owners."""
    with server(tmp_path) as of:
        back: list[str] = []
        key = of.keys.make(JOB, OF.id)
        offer = make("alpha", "offer", OF, key.public, server=0)
        items = STORY[: KINDS.index("receipt")]
        tell(of, [offer if i.header.kind == "offer" and i.header.author == "alpha" else i for i in items])
        shares = Contributions(of)
        monkeypatch.setattr(shares, "bring_back", lambda known, owner: back.append(owner))
        shares.ensure_key(OF)
        assert (back, of.mailbox.objects(OF.id).offer("alpha", of_server=True)) == ([], offer.header)
        damage(of.settings.keys / f"job-{OF.id}.key", way)
        shares.ensure_key(OF)
        found = of.keys.of(JOB, OF.id)
        last = of.mailbox.objects(OF.id).offer("alpha", of_server=True)
        assert found is not None
        assert last is not None
        assert last.about["again"] == 1
        said = of.mailbox.get(last.digest)
        assert said is not None
        assert said.payload == found.public
        assert back == [OWNERS[0]], "the owner that has contributed"


def test_a_restore_goes_on_with_the_rest_and_lists_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job that a peer could not give back kept all others from being restored."""
    jobs = [job(name=name) for name in ("first", "second", "third")]
    with server(tmp_path) as of:
        for each in jobs:
            told = story(each)
            tell(of, told[: [item.header.kind for item in told].index("receipt")])
        restoring = Restoring(of, Contributions(of), Staging(of.settings.store, of.keys), lambda text: None)
        monkeypatch.setattr(restoring, "_copy", lambda seat: (0, []))
        back = []

        def bring_back(known: ProposedJob, owner: str) -> None:
            if known.name == "second":
                raise FederationError("server 1 (beta) answered 500")
            back.append(known.name)

        monkeypatch.setattr(restoring.shares, "bring_back", bring_back)
        assert restoring.run() == ["second, the shares of north: server 1 (beta) answered 500"]
        assert back == ["first", "third"]


def test_a_restore_passes_over_objects_that_it_cannot_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as those of a member that was removed."""
    with server(tmp_path) as of:
        restoring = Restoring(of, Contributions(of), Staging(of.settings.store, of.keys), lambda text: None)
        stranger = make("nobody", "approval", OF)
        answers = {f"/v1/objects/{item.digest}": item.data for item in (STORY[0], stranger, STORY[1])}
        inventory = [STORY[0].digest, stranger.digest, STORY[1].digest, 7, "x"]
        monkeypatch.setattr(restoring.shares.mates, "get", lambda seat, path, missing_ok=False: answers.get(path, b"x"))
        monkeypatch.setattr("ppca.server.restoring.message_of", lambda data, kind: {"digests": inventory})
        new, refused = restoring._copy(1)
        assert new == 2
        assert len(refused) == 1
        assert "is not a member of" in refused[0]


@pytest.mark.parametrize("answer", [FederationError("server 2 (gamma) answered 500"), {}, {"digests": 7}])
def test_one_server_cannot_stop_a_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """Every object is at two other servers, too. With one of them alone, a restore would be that server's word."""
    with server(tmp_path) as of:
        restoring = Restoring(of, Contributions(of), Staging(of.settings.store, of.keys), lambda text: None)
        wrong = {2}

        def get(seat: int, path: str, missing_ok: bool = False) -> Any:
            if path == "/v1/inventory":
                return answer if seat in wrong else {"digests": [STORY[0].digest]}
            return STORY[0].data

        def message_of(found: Any, kind: str) -> Any:
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(restoring.shares.mates, "get", get)
        monkeypatch.setattr("ppca.server.restoring.message_of", message_of)
        (missing,) = restoring.run()
        assert missing.startswith("objects of server 2: ")
        assert of.mailbox.jobs() == [OF.id]
        wrong.add(3)
        with pytest.raises(FederationError):
            restoring.run()


@pytest.mark.parametrize("content", [b"", b"something else"])
def test_a_server_that_lists_what_it_does_not_give_cannot_delay_a_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """Server 1 lists 100,000 objects; each answer takes a minute. The others were asked only after all of them."""
    with server(tmp_path) as of:
        restoring = Restoring(of, Contributions(of), Staging(of.settings.store, of.keys), lambda text: None)
        asked, now = 0, 1000.0
        listed = [sha256(b"%d" % number) for number in range(100_000)] if not content else [sha256(content)] * 100_000

        def get(seat: int, path: str, missing_ok: bool = False) -> Any:
            nonlocal asked, now
            if path == "/v1/inventory":
                return b"".join(encode("inventory", digests=listed if seat == 1 else [STORY[0].digest]))
            if seat == 1:
                asked, now = asked + 1, now + (60.0 if content else 1.0)
            return content if seat == 1 else STORY[0].data

        monkeypatch.setattr(restoring.shares.mates, "get", get)
        monkeypatch.setattr("ppca.server.restoring.time.monotonic", lambda: now)
        (missing,) = restoring.run()
        assert missing.startswith("objects of server 1: it lists objects that it does not have")
        assert of.mailbox.jobs() == [OF.id]
        assert asked <= 101


@pytest.mark.parametrize("change", ["more", "shape", "no array"])
def test_a_mate_that_gives_back_no_half_of_a_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    with server(tmp_path) as of:
        restoring = Restoring(of, Contributions(of), Staging(of.settings.store, of.keys), lambda text: None)
        half = np.zeros((1, 3, 2), np.uint64)
        other = {"more": np.zeros((2, 3, 2), np.uint64), "shape": np.zeros((1, 2, 2), np.uint64)}.get(change)
        kind = RingType(128, 40, 16)
        good = record_bytes({"public": {}, "means": (half, kind)})
        bad = record_bytes({"public": {}} | ({} if other is None else {"means": (other, kind)}))
        for halves in ((good, bad), (bad, good)):
            monkeypatch.setattr(restoring.shares.mates, "halves", lambda path, halves=halves, **_: halves)
            with pytest.raises(ObjectRefused):
                restoring.restore_model(OF)
        monkeypatch.setattr(restoring.shares.mates, "halves", lambda path, **_: (good, good))
        restoring.restore_model(OF)
        assert restoring.staging.model(OF.id)["means"][0].shape == (2, 3, 2)


# -- clocks --------------------------------------------------------------------------------------------------------------


def ahead(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    monkeypatch.setattr(time, "time", lambda: REAL_TIME() + 86400 * days)


def hear(of: ServerState, *days: float) -> None:
    """The clocks of the other servers."""
    for number, away in enumerate(days, 1):
        of.clock.heard(number, (datetime.now(UTC) + timedelta(days=away)).isoformat())


@pytest.mark.parametrize(
    ("own", "others", "erased"),
    [
        (2, (), False),
        (2, (0,), False),
        (2, (0, 0), False),
        (2, (0, 0, 0), False),
        (2, (2, 0, 0), False),
        (0, (2, 0, 0), False),
        (0, (2, 2, 2), True),
        (2, (2, 2, 2), True),
        (2, (2, 2, 0), True),
        (2, (2, 2), True),
        (-2, (2, 2, 2), True),
    ],
)
def test_keys_are_destroyed_on_expiry_only_if_the_clocks_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: float, others: tuple[float, ...], erased: bool
) -> None:
    """A clock two days ahead for half a minute destroyed the keys of jobs that had not expired. Days ahead of the true time."""
    of_a_day = job(expires="1d")
    with server(tmp_path) as of:
        tell(of, [make(RECEIVER, "job", of_a_day, of_a_day.data)])
        at = job_runner(of)
        at.advance(of_a_day.id)
        assert of.keys.of(JOB, of_a_day.id) is not None
        ahead(monkeypatch, own)
        hear(of, *others)
        at.advance(of_a_day.id)
        assert (of.keys.of(JOB, of_a_day.id) is None) == erased
        assert any(of.mailbox.objects(of_a_day.id).of("erased")) == erased, "a server that has erased says so"
        if not erased:
            ahead(monkeypatch, 0)
            at.advance(of_a_day.id)
            assert not of.admission.job_state(of_a_day.id).over, "it goes on when the clock is right again"
            assert of.mailbox.note(f"over {of_a_day.id}") is None


def test_a_result_is_not_erased_early_because_the_own_clock_was_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server starts with a clock ten days behind, sees that the job is done, and then hears of the other clocks."""
    with server(tmp_path) as of:
        of.keys.make(JOB, OF.id)
        tell(of, STORY)
        at = job_runner(of)
        ahead(monkeypatch, -10)
        at.advance(OF.id)
        hear(of, 0, 0, 0)
        at.advance(OF.id)
        assert of.keys.of(JOB, OF.id) is not None
        hear(of, 8, 8, 8)  # erase_after is seven days
        at.advance(OF.id)
        assert of.keys.of(JOB, OF.id) is None


def test_the_file_of_a_job_that_is_over_and_erased_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused jobs with large files kept a server busy for as long as their records stay."""
    with server(tmp_path, store={"keep": "30d"}) as of:
        tell(of, [STORY[0], make(RECEIVER, "refusal", OF, why="no")])
        hear(of, 0, 0, 0)
        at = job_runner(of)
        at.advance(OF.id)
        assert of.mailbox.note(f"erased {OF.id}") is not None
        real = of.admission.job
        monkeypatch.setattr(of.admission, "job", lambda job: pytest.fail("its file was read"))
        at.advance(OF.id)
        assert at._next_check_at[OF.id] > time.monotonic()
        monkeypatch.setattr(of.admission, "job", real)
        ahead(monkeypatch, 31)
        hear(of, 31, 31, 31)
        at.advance(OF.id)
        assert of.mailbox.jobs() == []


@pytest.mark.parametrize("told", [None, 7, "", "tomorrow", [], {}, "9999-99-99", "0001-01-01T00:00:00+14:00"])
def test_times_that_are_none_are_ignored(told: object) -> None:
    clock = Clock()
    for server_ in (1, 2, 3):
        clock.heard(server_, told)
    assert abs(clock.now().timestamp() - time.time()) < 60 or not clock.agreed


def test_a_job_of_which_one_server_has_erased_its_shares_is_held() -> None:
    """It hung: the others waited for a server that had nothing left to compute with."""
    items = [*STORY[: KINDS.index("start")], make("beta", "erased", OF, what="job", server=1)]
    job_state = job_state_of(OF.proposal, [item.header for item in items], MEMBERSHIP, datetime.now(UTC))
    assert job_state.stage == "held"
    assert "beta: the server says that it has erased its shares" in job_state.why
