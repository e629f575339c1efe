"""Where a job stands: the same for all who have the same objects, whatever order they came in, and never done too early."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.federation import (
    MEMBERSHIP,
    OPERATORS,
    OWNERS,
    RECEIVER,
    contribution,
    ended,
    headers,
    job,
    make,
    membership,
    offers,
    story,
)
from ppca.federation.headers import is_well_formed
from ppca.federation.objects import Object
from ppca.federation.state import (
    CANCELLED,
    DONE,
    ENDS,
    ERASED,
    EXPIRED,
    FAILED,
    GATHERING,
    HELD,
    PROPOSED,
    READY,
    REFUSED,
    RUNNING,
    Attempts,
    JobState,
    Objects,
    job_state_of,
    may_become_done,
)

JOB = job()
NOW = datetime.now(UTC)
STORY = story(JOB)
FINISHED = STORY[-4:]
MORE = [
    make("north", "refusal", JOB, why="no"),
    make("gamma", "refusal", JOB, why="policy"),
    make(RECEIVER, "cancel", JOB),
    make("alpha", "start", JOB, attempt=2),
    *(make(name, "ready", JOB, attempt=2) for name in OPERATORS),
    make("alpha", "resume", JOB, attempt=1),
    ended(JOB, "gamma", 2, "withdrawn", why="not in time"),
    *(ended(JOB, name, 1, "failed", why="lost") for name in OPERATORS),
    *(ended(JOB, name, 2) for name in OPERATORS),
    ended(JOB, "beta", 2, "failed", why="bug", final=True),
    ended(JOB, "beta", 1, audit="b"),
    ended(JOB, "beta", 1, sent=[1, 1, 1, 1]),
    *(make(name, "erased", JOB, what="job") for name in OPERATORS),
    make("beta", "receipt", JOB, owner="south", contribution="0" * 64),
]
ODD = [
    make("alpha", "start", JOB),
    make("alpha", "start", JOB, attempt="1"),
    make("alpha", "start", JOB, attempt=True),
    make("beta", "ended", JOB, attempt=1),
    make("beta", "ended", JOB, attempt=[1], outcome="finished", final=False, why=""),
    make("beta", "ended", JOB, attempt=1, outcome=["finished"], final=False, why=""),
    make("beta", "receipt", JOB, owner=["north"]),
    make("visitor", "refusal", JOB, why="no part in it"),
    make("visitor", "cancel", JOB),
    make("visitor", "ended", JOB, attempt=1, outcome="failed", final=True, why="no server"),
    make("visitor", "receipt", JOB, owner="north", contribution="1" * 64),
    make("visitor", "ready", JOB, attempt=1),
    make("visitor", "resume", JOB, attempt=9),
    make("beta", "ready", JOB, attempt="1"),
    make("beta", "resume", JOB),
]
ANY = st.lists(st.sampled_from([*STORY, *MORE, *ODD]), unique_by=lambda item: item.digest, max_size=60)


def job_state(items: Sequence[Object], now: datetime = NOW) -> JobState:
    return job_state_of(JOB.proposal, headers(items), MEMBERSHIP, now)


def test_the_stages_of_a_job_that_goes_well() -> None:
    seen = [job_state(STORY[:count]).stage for count in range(len(STORY) + 1)]
    steps = [stage for n, stage in enumerate(seen) if n == 0 or seen[n - 1] != stage]
    assert steps == [PROPOSED, GATHERING, READY, RUNNING, DONE]


def test_every_stage_says_who_is_waited_for() -> None:
    for count in range(len(STORY)):
        found = job_state(STORY[:count])
        assert found.waiting, found
        assert {item.actor for item in found.waiting} <= {*OPERATORS, *OWNERS, RECEIVER}
        assert all(item.what for item in found.waiting)
    first = {item.actor: item.what for item in job_state([]).waiting}
    assert first["gamma"] == "offer a key (its server, server 2, does it)"
    assert first["south"] == "approve (ppca approve)"
    assert first[RECEIVER] == "offer a key (ppca approve)"


@given(items=ANY, draw=st.data())
def test_the_order_of_objects_does_not_matter(items: list[Object], draw: st.DataObject) -> None:
    assert job_state(items) == job_state(draw.draw(st.permutations(items)))


@given(items=ANY)
def test_never_done_without_four_words_that_agree(items: list[Object]) -> None:
    found = job_state(items)
    if not found.done:
        return
    said = [
        item.header.about
        for item in items
        if item.header.kind == "ended"
        and (item.header.about.get("attempt"), item.header.about.get("outcome")) == (found.attempt, "finished")
    ]
    authors = {i.header.author for i in items if i.header.kind == "ended" and i.header.about in said}
    assert authors >= set(OPERATORS)
    assert sum(about["audit"] == "a" for about in said) >= 3


@given(items=ANY, more=ANY)
def test_what_is_done_stays_done(items: list[Object], more: list[Object]) -> None:
    """Also if a server contradicts itself later."""
    assert job_state(list({item.digest: item for item in [*STORY, *items, *more]}.values())).done


@given(items=ANY, more=ANY)
def test_an_end_stays_an_end(items: list[Object], more: list[Object]) -> None:
    """A bad end can still become a good one, if all four servers had finished; nothing else comes after an end."""
    whole = list({item.digest: item for item in [*items, *more]}.values())
    if job_state(items).over:
        assert job_state(whole).over


@given(items=ANY)
def test_time_only_ends_what_was_not_over(items: list[Object]) -> None:
    now, late = job_state(items), job_state(items, JOB.proposal.expires)
    assert late.stage in ENDS
    assert late == now if now.over else late.stage in (EXPIRED, ERASED)


def test_every_object_is_needed() -> None:
    """Without any one of the objects before the start, the job is not ready."""
    before = [item for item in STORY if item.header.kind not in ("start", "ready", "ended")]
    assert job_state(before).stage == READY
    for item in before:
        if item.header.kind not in ("job", "envelope"):
            assert job_state([each for each in before if each is not item]).stage in (PROPOSED, GATHERING), item.header


def test_bad_ends() -> None:
    assert job_state([*STORY[:5], MORE[0]]) == JobState(REFUSED, why="north: no")
    assert job_state([*STORY[:5], MORE[2]]).stage == CANCELLED
    assert job_state([*STORY[:-1], ended(JOB, "delta", 1, "failed", why="bug", final=True)]) == JobState(
        FAILED, 1, why="delta: bug"
    )
    again = job_state([*STORY[:-1], ended(JOB, "delta", 1, "failed", why="lost")])
    assert (again.stage, again.attempt) == (READY, 1)
    assert "delta: lost" in again.waiting[0].what


BEFORE = [item for item in STORY if item.header.kind not in ("start", "ready", "ended")]


def tried(number: int, outcome: str = "failed", ready: Sequence[str] = OPERATORS, **more: object) -> list[Object]:
    """An attempt that gamma ended."""
    begun = [make("alpha", "start", JOB, attempt=number), *(make(n, "ready", JOB, attempt=number) for n in ready)]
    return [*begun, ended(JOB, "gamma", number, outcome, why="lost", **more)]


def test_an_attempt_runs_when_all_four_servers_are_ready() -> None:
    start = [*BEFORE, make("alpha", "start", JOB, attempt=1)]
    ready = [make(name, "ready", JOB, attempt=1) for name in OPERATORS]
    for count in range(4):
        found = job_state([*start, *ready[:count]])
        assert (found.stage, found.attempt) == (READY, 1)
        assert [item.actor for item in found.waiting] == list(OPERATORS[count:])
        assert found.waiting[0].what == "be ready for attempt 1 (its server does it)"
    assert job_state([*start, *ready]).stage == RUNNING
    other = [make(name, "ready", JOB, attempt=2) for name in OPERATORS]
    assert job_state([*start, *other]).stage == READY, "of another attempt"


def test_an_attempt_that_did_not_begin_says_so_and_does_not_count() -> None:
    found = job_state([*BEFORE, *tried(1, "withdrawn", ready=OPERATORS[:2])])
    assert (found.stage, found.attempt) == (READY, 1)
    assert found.waiting[0].what == (
        "start attempt 2 (its server does it) after attempt 1 did not begin on all servers (gamma: lost)"
    )
    told = [*BEFORE, *(item for number in range(1, 9) for item in tried(number, "withdrawn"))]
    assert job_state(told).stage == READY
    assert (
        Attempts.of(Objects(headers(told)), MEMBERSHIP).failures,
        Attempts.of(Objects(headers(told)), MEMBERSHIP).idle,
    ) == (
        0,
        8,
    )


def test_a_job_is_held_and_not_lost_after_its_last_failure() -> None:
    """Contributions stay, the state says that an operator must act, and one operator's word lets it go on."""
    told = [*BEFORE, *tried(1), *tried(2, hold=True)]
    held = job_state(told)
    assert (held.stage, held.over, held.attempt) == (HELD, False, 2)
    assert held.why == "needs an operator: gamma: lost"
    assert held.waiting[0].actor == "an operator"
    assert "ppca job resume" in held.waiting[0].what
    for who, number, stage in (("visitor", 2, HELD), ("north", 2, HELD), ("beta", 1, HELD), ("beta", 2, READY)):
        assert job_state([*told, make(who, "resume", JOB, attempt=number)]).stage == stage
    again = [*told, make("beta", "resume", JOB, attempt=2), *tried(3)]
    assert job_state(again).stage == READY
    assert Attempts.of(Objects(headers(again)), MEMBERSHIP).failures == 1, "counted anew"
    assert Attempts.of(Objects(headers(told)), MEMBERSHIP).failures == 2, "the first attempt counts, too"
    assert job_state(again, JOB.proposal.expires).stage == EXPIRED


def test_a_result_that_servers_disagree_about_can_be_computed_again() -> None:
    told = [*STORY[:-1], ended(JOB, "delta", audit="b")]
    assert job_state(told).stage == HELD
    told.append(make("beta", "resume", JOB, attempt=1))
    assert job_state(told).stage == READY
    told += [make("alpha", "start", JOB, attempt=2), *(make(name, "ready", JOB, attempt=2) for name in OPERATORS)]
    assert job_state([*told, *(ended(JOB, name, 2) for name in OPERATORS)]) == JobState(DONE, 2)


def test_what_an_author_has_stated_of_an_attempt_is_compared_with_the_same_attempt() -> None:
    first, other, second = ended(JOB, "beta", 1), ended(JOB, "beta", 1, audit="b"), ended(JOB, "beta", 2)
    objects = Objects(headers([*STORY[:-4], first, second, ended(JOB, "gamma", 1)]))
    assert objects.alike(other.header) == [first.header]
    assert objects.alike(second.header) == [second.header]
    assert objects.tells_more(other.header), "two proofs of one contradiction"
    objects.add(other.header)
    assert {header.digest for header in objects.alike(first.header)} == {first.digest, other.digest}
    assert not objects.tells_more(ended(JOB, "beta", 1, audit="c").header), "a third one proves nothing more"


GOOD_END = {"attempt": 1, "outcome": "finished", "final": False, "why": ""}


@pytest.mark.parametrize(
    ("kind", "about", "good"),
    [
        ("ended", GOOD_END, True),
        ("ended", GOOD_END | {"outcome": "lost"}, False),
        ("ended", GOOD_END | {"final": 0}, False),
        ("ended", GOOD_END | {"why": None}, False),
        ("ended", GOOD_END | {"outcome": "lost", "final": 0}, False),
        ("ended", GOOD_END | {"attempt": 0}, False),
        ("ended", GOOD_END | {"attempt": (1 << 20) - 1}, True),
        ("ended", GOOD_END | {"attempt": 1 << 20}, False),
        ("ended", GOOD_END | {"attempt": -1}, False),
        ("ended", GOOD_END | {"attempt": True}, False),
        ("offer", {"again": 0, "place": 0}, True),
        ("offer", {"again": -1}, False),
        ("offer", {"again": 1 << 20}, False),
        ("offer", {"place": (1 << 53) - 1}, True),
        ("offer", {"place": 1 << 53}, False),
        ("offer", {"place": 1.0}, False),
        ("start", {"attempt": 1, "turn": 1 << 53}, False),
        ("start", {"attempt": 1, "turn": 0}, True),
        ("start", {}, False),
        ("receipt", {"owner": "north", "contribution": "0" * 64}, True),
        ("receipt", {"owner": 7, "contribution": "0" * 64}, False),
        ("receipt", {"owner": "north", "contribution": "0" * 63}, False),
    ],
)
def test_what_an_object_must_say(kind: str, about: dict[str, object], good: bool) -> None:
    """Numbers are bounded: a server writes them again, plus one."""
    assert is_well_formed(make("alpha", kind, JOB, **about).header) == good


def test_accounts_that_contradict_each_other_are_no_result() -> None:
    for odd, words in (({"audit": "b"}, "audits of"), ({"rounds": 8}, "audits of"), ({"sent": [5, 5, 6, 5]}, "sent")):
        found = job_state([*STORY[:-1], ended(JOB, "delta", **odd)])
        assert found.stage == HELD
        assert words in found.why
        assert "delta" in found.why
    missing = job_state([*STORY[:-4], *(ended(JOB, name, received=None) for name in OPERATORS)])
    assert missing.stage == HELD


def test_an_owner_that_sends_different_servers_different_things_is_found_out() -> None:
    """Two contributions that it signed are the proof; receipts prove nothing against it."""
    other = contribution(JOB, "south")[-1]
    found = job_state([*BEFORE, other])
    assert (found.stage, found.why) == (REFUSED, "south has signed different contributions for different servers")


def test_one_server_cannot_blame_an_owner_with_an_invented_receipt() -> None:
    lie = make("delta", "receipt", JOB, owner="south", contribution="0" * 64)
    assert job_state([*BEFORE, lie]).stage == READY
    honest = [h for h in BEFORE if (h.header.kind, h.header.author) != ("receipt", "delta")]
    found = job_state([*honest, lie])
    assert (found.stage, {item.actor for item in found.waiting}) == (GATHERING, {"delta"}), "its own receipt is missing"
    swapped = make("delta", "receipt", JOB, owner="south", contribution=contribution_of("north"))
    assert "delta" in {item.actor for item in job_state([*honest, swapped]).waiting}, "of another owner"


def contribution_of(owner: str) -> str:
    return next(i.digest for i in BEFORE if (i.header.kind, i.header.author) == ("contribution", owner))


LIES = [
    ended(JOB, "delta"),
    ended(JOB, "delta", audit="b"),
    ended(JOB, "delta", sent=[1, 1, 1, 1]),
    ended(JOB, "delta", 1, "failed", why="disk", final=True),
    ended(JOB, "delta", 1, "failed", why="bug", final=True),
    ended(JOB, "delta", 1, "failed", why="lost"),
    ended(JOB, "delta", 1, "failed", why="lost", hold=True),
    ended(JOB, "delta", 1, "withdrawn", why="busy"),
]
"""What one server can sign about one attempt."""


class Receiving:
    """An honest server: takes in objects as `Admission` does, and passes them on."""

    def __init__(self, objects: Sequence[Object]) -> None:
        self.objects = Objects(headers(objects))
        self.sent: list[Object] = []

    def take(self, item: Object, *, from_author: bool) -> None:
        known = {header.digest for header in self.objects.headers}
        new = not self.objects.alike(item.header) or (not from_author and self.objects.tells_more(item.header))
        if item.digest not in known and new:
            self.objects.add(item.header)
            self.sent.append(item)


@pytest.mark.parametrize("others", [3, 2], ids=["all others finished", "gamma withdrew"])
@given(lies=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(LIES)), max_size=12), draw=st.data())
def test_honest_servers_agree_whatever_one_server_signs_for_which_of_them(
    others: int, lies: list[tuple[int, Object]], draw: st.DataObject
) -> None:
    """Objects of delta reach the three others in any order, directly and from each other; then all have the same state."""
    told = [*STORY[:-4], *FINISHED[:others]]
    told += [ended(JOB, "gamma", 1, "withdrawn", why="not in time")] * (others == 2)
    three = [Receiving(told) for _ in range(3)]
    for number, lie in lies:
        three[number].take(lie, from_author=True)
    passed: set[tuple[int, int, str]] = set()
    while True:
        left = [
            (a, b, item)
            for a, one in enumerate(three)
            for item in one.sent
            for b in range(3)
            if a != b and (a, b, item.digest) not in passed
        ]
        if not left:
            break
        a, b, item = draw.draw(st.sampled_from(left))
        passed.add((a, b, item.digest))
        three[b].take(item, from_author=False)
        going_on: bool = draw.draw(st.booleans())
        if lies and going_on:  # the liar goes on meanwhile
            number, lie = draw.draw(st.sampled_from(lies))
            three[number].take(lie, from_author=True)
    states = [job_state_of(JOB.proposal, each.objects, MEMBERSHIP, NOW) for each in three]
    assert states[0] == states[1] == states[2]
    assert all(len(each.objects.alike(LIES[0].header)) <= 4 for each in three)
    if others == 3 and LIES[0] in three[0].sent:
        assert states[0].stage == DONE, "delta did finish"


def test_a_server_that_contradicts_itself_delays_a_job_and_does_not_lose_it() -> None:
    three = [*STORY[:-4], *FINISHED[:3]]
    for lie in LIES[1:]:
        assert job_state([*three, LIES[0], lie]) == JobState(DONE, 1), lie.header
    found = job_state([*three, LIES[5], LIES[7]])
    assert (found.stage, found.why) == (
        HELD,
        "needs an operator: delta: its server has signed contradicting objects about this attempt",
    )
    assert job_state([*three, LIES[3], LIES[7]]).stage == FAILED, "by its own name, as by a refusal"


@pytest.mark.parametrize("first", ["failed", "finished"])
def test_a_server_cannot_make_an_earlier_attempt_the_one_that_counts(first: str) -> None:
    """It said that attempt 1 failed, or that it had opened something else; attempt 2 went well. Then it signs something new."""
    said = {"failed": {"outcome": "failed", "why": "lost"}, "finished": {"audit": "b"}}[first]
    three = [*STORY[:-4], *FINISHED[:3], ended(JOB, "delta", **said)]
    assert job_state(three).stage != DONE
    second = [make("alpha", "start", JOB, attempt=2), *(make(name, "ready", JOB, attempt=2) for name in OPERATORS)]
    second += [ended(JOB, name, 2) for name in OPERATORS]
    assert job_state([*three, *second]) == JobState(DONE, 2)
    for lie in LIES:
        assert job_state([*three, *second, lie]) == JobState(DONE, 2), lie.header


def test_a_server_that_erases_a_job_too_early_ends_it_for_nobody_else() -> None:
    for items in (STORY[:5], BEFORE, STORY[:-1]):
        found = job_state([*items, make("delta", "erased", JOB, what="job")])
        assert (found.stage, found.over) == (HELD, False)
        assert found.attempt == (1 if items == STORY[:-1] else 0)
        assert found.why == "delta: the server says that it has erased its shares before the job ended"
        assert found.waiting[0].actor == "an owner"
    assert job_state([*BEFORE, make("delta", "erased", JOB, what="job")], JOB.proposal.expires).stage == EXPIRED
    assert job_state([*STORY, make("delta", "erased", JOB, what="job")]).stage == DONE


@pytest.mark.parametrize("order", [("alpha", "beta", "visitor", "delta"), ("beta", "alpha", "gamma", "delta")])
def test_a_later_revision_with_other_operators_undoes_no_result(order: tuple[str, ...], tmp_path: Path) -> None:
    """One operator is replaced, or two of them swap their numbers."""
    sent = [[0, 10, 11, 12], [20, 0, 21, 22], [30, 31, 0, 32], [40, 41, 42, 0]]
    received = [list(each) for each in zip(*sent, strict=True)]
    accounts = [ended(JOB, name, sent=sent[n], received=received[n]) for n, name in enumerate(OPERATORS)]
    told = headers([*STORY[:-4], *accounts, make("alpha", "refusal", JOB, why="policy")])
    later = membership(2, operators=order)
    MEMBERSHIP.remember(tmp_path)
    later.remember(tmp_path)
    assert job_state_of(JOB.proposal, told, later, NOW) == JobState(DONE, 1)
    assert later.of_job(JOB.proposal.federation).digest == MEMBERSHIP.digest
    assert later.of_job("0" * 64) is later
    third = membership(3, operators=order)
    third.remember(tmp_path)
    assert third.of_job(later.digest) is third


def test_a_job_waits_for_its_time() -> None:
    early = job(name="later")
    data = early.data.replace(
        b"expires = ", f"not_before = {NOW + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}\nexpires = ".encode()
    )
    later = type(early)(data)
    told = [item for item in story(later) if item.header.kind not in ("start", "ready", "ended")]
    found = job_state_of(later.proposal, headers(told), MEMBERSHIP, NOW)
    assert (found.stage, found.waiting[0].actor) == (READY, "the clock")
    assert job_state_of(later.proposal, headers(told), MEMBERSHIP, NOW + timedelta(hours=2)).waiting[0].actor == "alpha"


def test_erased_says_how_it_ended() -> None:
    gone = [make(name, "erased", JOB, what="job") for name in OPERATORS]
    assert job_state([*STORY, *gone]) == JobState(ERASED, 1, ended=DONE)
    assert job_state([*STORY, *gone[:3]]).stage == DONE
    assert job_state(gone) == JobState(ERASED, why=job_state(gone).why, ended=EXPIRED), (
        "nothing is left to compute with"
    )
    models = [make(name, "erased", JOB, what="model") for name in OPERATORS]
    assert job_state([*STORY, *models]).stage == DONE


def test_an_operator_who_receives_offers_two_keys() -> None:
    """One as a server and one as receiver; none stands for the other."""
    of = job(receivers={"alpha": ["model"]}, federation=MEMBERSHIP)
    as_server, *_ = offers(of)
    objects = Objects(headers([as_server]))
    assert objects.offer("alpha", of_server=True) == as_server.header
    assert objects.offer("alpha", of_server=False) is None
    waited = [
        item.what
        for item in job_state_of(of.proposal, headers(offers(of)[:4]), MEMBERSHIP, NOW).waiting
        if item.actor == "alpha"
    ]
    assert waited == ["offer a key (ppca approve)"]


def test_the_latest_offer_of_a_restored_server_counts() -> None:
    made = [make("beta", "offer", JOB, b"k", server=1, **({"again": n} if n else {})) for n in range(4)]
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]):
        assert Objects(headers([made[n] for n in order])).offer("beta", of_server=True) == made[3].header


def test_a_server_that_has_finished_keeps_its_part_whatever_the_others_say() -> None:
    running = STORY[:-4]
    assert not may_become_done(Objects(headers(running)), "alpha")
    three = Objects(headers([*running, *FINISHED[:3]]))
    assert [may_become_done(three, name) for name in OPERATORS] == [True, True, True, False]
    lie = ended(JOB, "delta", 1, "failed", why="lost", final=True)
    later = make("alpha", "start", JOB, attempt=2)
    assert may_become_done(Objects(headers([*running, *FINISHED[:3], lie, later])), "gamma")
