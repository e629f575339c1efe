"""Admission: every kind of object from the right author, once, in its time, for exactly this job; everything else is refused."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.admission import KINDS, OF, STORY, LocalAdmission, until
from harness.federation import (
    IDENTITIES,
    MEMBERSHIP,
    RECEIVER,
    SERVER_KEYS,
    contribution,
    ended,
    job,
    make,
    membership,
    offers,
)
from ppca.federation.errors import NotNow
from ppca.federation.identity import Identity
from ppca.federation.objects import Object
from ppca.server import object_rules as module
from ppca.server.mailbox import SMALL


def test_a_job_that_goes_well_is_let_in(admission: LocalAdmission) -> None:
    admission.tell(*STORY)
    assert admission.job_state(OF.id).stage == "done"
    for item in STORY:
        assert not admission.admit(item, item.header.author), "an object can be sent again"
    assert len(admission.mailbox.headers(OF.id)) == len(STORY)


WRONG: dict[str, list[tuple[str, dict[str, Any], bytes]]] = {
    "offer": [
        ("visitor", {}, SERVER_KEYS[0].public),
        ("north", {}, SERVER_KEYS[0].public),
        ("visitor", {"server": 0}, SERVER_KEYS[0].public),
    ],
    "approval": [("visitor", {}, b""), (RECEIVER, {}, b""), ("alpha", {}, b"")],
    "refusal": [("visitor", {"why": "no"}, b"")],
    "group": [("north", {"to": "south"}, b""), ("visitor", {"to": "south"}, b"")],
    "envelope": [
        ("visitor", {"to": 0, "chunk": 0}, b"x"),
        (RECEIVER, {"to": 0, "chunk": 0}, b"x"),
        ("alpha", {"to": 0, "chunk": 0}, b"x"),
    ],
    "contribution": [("visitor", {}, b"{}"), (RECEIVER, {}, b"{}"), ("beta", {}, b"{}")],
    "receipt": [
        ("north", {"owner": "north", "contribution": "0" * 64}, b""),
        ("alpha", {"owner": "visitor", "contribution": "0" * 64}, b""),
    ],
    "start": [("beta", {"attempt": 1}, b""), ("north", {"attempt": 1}, b"")],
    "ready": [("north", {"attempt": 1}, b"")],
    "resume": [("north", {"attempt": 1}, b""), ("alpha", {"attempt": 2}, b"")],
    "ended": [("north", {"attempt": 1, "outcome": "finished", "final": False, "why": ""}, b"")],
    "result": [
        ("north", {"receiver": RECEIVER}, b""),
        ("alpha", {"receiver": "visitor"}, b""),
        ("alpha", {"receiver": ["x"]}, b""),
    ],
    "audit": [("north", {}, b""), (RECEIVER, {}, b"")],
    "erased": [("north", {"what": "job"}, b"")],
    "cancel": [("visitor", {}, b""), ("spare", {}, b"")],
}


def test_a_server_cannot_fill_the_store_of_another(tmp_path: Path) -> None:
    """Small objects of operators were taken without a limit, also when the store was full and the job over."""
    admission = LocalAdmission(tmp_path, at_most=1 << 20)
    admission.tell(*STORY)
    long = {"more": "x" * 10_000}
    admission.tell(make("delta", "audit", OF, bytes(60_000), attempt=1))
    admission.refuses(make("delta", "audit", OF, bytes(60_001), attempt=1), "said so already")
    admission.tell(make("delta", "result", OF, b"x", receiver=RECEIVER, attempt=1, chunk=0))
    admission.refuses(make("delta", "result", OF, b"y", receiver=RECEIVER, attempt=1, chunk=0), "said so already")
    admission.refuses(
        make("delta", "result", OF, b"y", receiver=RECEIVER, attempt=1, chunk=1 << 12), "missing or invalid"
    )
    admission.tell(make("delta", "erased", OF, what="job"))
    admission.refuses(make("delta", "erased", OF, what="job", **long), "said so already")
    admission.refuses(make("delta", "erased", OF, what="everything"), "nothing that can be erased")
    for kind, about in (("erased", {"what": "model"}), ("receipt", {"owner": "north", "contribution": "0" * 64})):
        admission.refuses(make("delta", kind, OF, bytes(60_000), **about), "it must not have a payload")
    for kind in ("audit", "result"):
        with pytest.raises(NotNow, match="no such attempt"):
            admission.admit(make("delta", kind, OF, b"x", receiver=RECEIVER, attempt=2, chunk=0), "delta")


def test_small_objects_of_an_operator_have_a_limit_of_bytes(tmp_path: Path) -> None:
    admission = LocalAdmission(tmp_path, at_most=1 << 20, bytes_per_member=1 << 20)
    admission.mailbox.put(make("north", "envelope", OF, bytes(1 << 20)))
    with pytest.raises(NotNow, match="the store of this server is full"):
        admission.check_quota("north", 1)
    for _ in range(17):  # a full store takes them up to that limit
        admission.check_quota("delta", 60_000)
        admission.mailbox.put(make("delta", "audit", OF, secrets.token_bytes(60_000)))
    with pytest.raises(NotNow, match="delta has stored as much"):
        admission.check_quota("delta", 60_000)


def test_results_that_members_ask_for_do_not_silence_a_server(tmp_path: Path) -> None:
    """Two large results of one member used up the bytes of all operators: no server could say anything until they were erased."""
    admission = LocalAdmission(tmp_path, bytes_per_member=1 << 20)
    large = make("alpha", "result", OF, bytes(1 << 20), receiver=RECEIVER, attempt=1, chunk=0)
    admission.mailbox.put(large)
    admission.mailbox.close()
    admission = LocalAdmission(tmp_path, bytes_per_member=1 << 20)  # also after a restart
    with pytest.raises(NotNow, match="alpha has stored as much"):
        admission.check_quota("alpha", SMALL + 1)
    admission.check_quota("alpha", SMALL)
    admission.tell(*STORY)
    admission.mailbox.drop(OF.id, ["result"])
    admission.check_quota("alpha", SMALL + 1)


def test_every_kind_has_its_wrong_authors() -> None:
    assert set(WRONG) == set(module.WRITERS)


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_authors_and_wrong_roles(kind: str, admission: LocalAdmission) -> None:
    admission.tell(*until("ended"))
    for author, about, payload in WRONG[kind]:
        admission.refuses(make(author, kind, OF, payload, **about))


@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_an_outsider_and_a_forger(kind: str, admission: LocalAdmission) -> None:
    """Right in everything but the key."""
    item = next(item for item in STORY if item.header.kind == kind)
    admission.tell(*until(kind))
    author = item.header.author
    forged = Object.make(Identity(author, IDENTITIES["nobody"].key), kind, OF.id, item.payload, **item.header.about)
    admission.refuses(forged, "did not sign")
    admission.refuses(forged, "did not sign", carrier="beta")
    admission.refuses(
        Object.make(IDENTITIES["nobody"], kind, OF.id, item.payload, **item.header.about),
        "not a member",
        carrier="beta",
    )


def test_members_bring_their_own_and_servers_any(admission: LocalAdmission) -> None:
    admission.tell(*until("approval"))
    item = make("north", "approval", OF)
    admission.refuses(item, "A member may send its own objects only", carrier="south")
    admission.refuses(item, "A member may send its own objects only", carrier=RECEIVER)
    assert admission.admit(item, "delta")


AGAIN: dict[str, Callable[[], Object]] = {
    "approval": lambda: make("north", "approval", OF, note="again"),
    "contribution": lambda: contribution(OF, "north", (3.0, 4.0))[-1],
    "offer": lambda: make("alpha", "offer", OF, SERVER_KEYS[1].public, server=0),
    "start": lambda: make("alpha", "start", OF, attempt=1, note="again"),
    "ready": lambda: make("alpha", "ready", OF, attempt=1, note="again"),
    "ended": lambda: ended(OF, "alpha", audit="other"),
    "job": lambda: make(RECEIVER, "job", OF, OF.data, note="again"),
}


@pytest.mark.parametrize("kind", AGAIN)
def test_what_is_said_once(kind: str, admission: LocalAdmission) -> None:
    admission.tell(*(STORY[:-3] if kind == "ended" else [item for item in STORY if item.header.kind != "ended"]))
    admission.refuses(AGAIN[kind](), "already|comes next")


def test_a_duplicate_says_how_often_an_author_may_send_its_kind(admission: LocalAdmission) -> None:
    admission.tell(*STORY[:-3])
    admission.refuses(ended(OF, "alpha", audit="other"), "An author sends one ended per attempt")
    admission.refuses(make("north", "approval", OF, note="again"), "An author sends one approval per job")


def test_another_server_brings_the_proof_that_an_author_contradicts_itself(admission: LocalAdmission) -> None:
    """At most as many objects as the state of the job depends on."""
    admission.tell(*(item for item in STORY if (item.header.kind, item.header.author) != ("ended", "delta")))
    admission.tell(ended(OF, "delta", 1, "failed", why="disk"))
    proofs = [ended(OF, "delta", 1, "withdrawn"), ended(OF, "delta", 1, "failed", why="bug", final=True)]
    for item in (*proofs, ended(OF, "delta")):
        admission.refuses(item, "already")
        assert admission.admit(item, "beta")
    assert admission.job_state(OF.id).stage == "done"
    for item in (ended(OF, "delta", audit="b"), ended(OF, "delta", 1, "failed", why="x", final=True)):
        admission.refuses(item, "already", carrier="beta")


def test_another_server_brings_the_proof_that_an_owner_signed_two_contributions(admission: LocalAdmission) -> None:
    admission.tell(*until("start"))
    second, third = (contribution(OF, "north", values)[-1] for values in ((3.0, 4.0), (5.0, 6.0)))
    admission.refuses(second, "already")
    assert admission.admit(second, "gamma")
    assert "north has signed different contributions" in admission.job_state(OF.id).why
    admission.refuses(third, "already", carrier="gamma")


def test_a_refusal_ends_a_job_and_nothing_comes_after(admission: LocalAdmission) -> None:
    admission.tell(*until("contribution"), make("south", "refusal", OF, why="no"))
    assert admission.job_state(OF.id).stage == "refused"
    for item in (
        make("north", "refusal", OF, why="too"),
        contribution(OF, "north")[-1],
        make("alpha", "start", OF, attempt=1),
    ):
        admission.refuses(item, "is over")
    admission.tell(make("alpha", "erased", OF, what="job"))


def test_a_job_that_is_over_takes_what_servers_still_owe(admission: LocalAdmission) -> None:
    admission.tell(*STORY)
    admission.tell(
        make("alpha", "result", OF, b"x", receiver=RECEIVER, attempt=1, chunk=0),
        make("alpha", "audit", OF, b"{}", attempt=1),
    )
    admission.refuses(make("north", "cancel", OF), "is over")


def test_an_operator_offers_again_only_as_a_restored_server(admission: LocalAdmission) -> None:
    admission.tell(*until("approval"))
    admission.tell(make("alpha", "offer", OF, SERVER_KEYS[1].public, server=0, again=1))
    admission.refuses(make("alpha", "offer", OF, SERVER_KEYS[2].public, server=0, again=1), "already")
    admission.refuses(
        make("alpha", "offer", OF, SERVER_KEYS[2].public, server=1, again=2), "does not need a key for this job"
    )
    admission.refuses(make(RECEIVER, "offer", OF, SERVER_KEYS[2].public, receiver=RECEIVER, again=2), "already")
    admission.refuses(make(RECEIVER, "offer", OF, SERVER_KEYS[2].public, server=0), "does not need a key for this job")


def test_an_operator_who_receives_offers_twice(tmp_path: Path) -> None:
    line = {"name": "alpha", "key": MEMBERSHIP.file.server[0].key, "roles": ("receiver",)}
    members = tuple(member.model_dump() for member in MEMBERSHIP.file.member)
    both = membership(member=(*members, line))
    of = job(both, receivers={"alpha": ["model"]})
    admission = LocalAdmission(tmp_path)
    admission.federation = both
    admission.tell(make("alpha", "job", of, of.data), *offers(of))
    assert not any(item.what.startswith("offer") for item in admission.job_state(of.id).waiting)
    admission.refuses(make("alpha", "offer", of, SERVER_KEYS[3].public, receiver="alpha"), "already")


@pytest.mark.parametrize("public", [b"", b"\xff" * 1216, SERVER_KEYS[0].public[:1184] + bytes(32)])
def test_an_offer_that_is_no_key_is_refused(admission: LocalAdmission, public: bytes) -> None:
    """Servers found out after the computation, in every attempt; the receiver could not offer again."""
    admission.tell(STORY[0])
    admission.refuses(make(RECEIVER, "offer", OF, public, receiver=RECEIVER), "holds no key")
    admission.tell(make(RECEIVER, "offer", OF, SERVER_KEYS[0].public, receiver=RECEIVER))


def test_contributing_needs_an_approval(admission: LocalAdmission) -> None:
    admission.tell(*until("approval"), make("north", "approval", OF))
    for item in contribution(OF, "south"):
        admission.refuses(item, "has not approved")
    admission.tell(*contribution(OF, "north"))
    admission.refuses(make("north", "envelope", OF, b"x", to=0, chunk=9), "has finished")


@pytest.mark.parametrize(
    "about",
    [
        {},
        {"to": 0},
        {"chunk": 0},
        {"to": 4, "chunk": 0},
        {"to": -1, "chunk": 0},
        {"to": True, "chunk": 0},
        {"to": 1.0, "chunk": 0},
        {"to": "0", "chunk": 0},
        {"to": [0], "chunk": 0},
        {"to": 0, "chunk": -1},
        {"to": 0, "chunk": 1 << 16},
        {"to": 0, "chunk": True},
    ],
)
def test_envelopes_to_nowhere(about: dict[str, Any], admission: LocalAdmission) -> None:
    admission.tell(*until("envelope"))
    admission.refuses(make("north", "envelope", OF, b"x", **about), "addressed to no server|missing or invalid")


@pytest.mark.parametrize(
    ("kind", "author", "about"),
    [
        ("start", "alpha", {}),
        ("start", "alpha", {"attempt": 0}),
        ("start", "alpha", {"attempt": 2}),
        ("start", "alpha", {"attempt": "1"}),
        ("start", "alpha", {"attempt": [1]}),
        ("ready", "alpha", {}),
        ("ready", "alpha", {"attempt": "1"}),
        ("resume", "alpha", {"attempt": True}),
        ("receipt", "alpha", {"owner": "north"}),
        ("receipt", "alpha", {"owner": ["north"], "contribution": "0" * 64}),
        ("ended", "alpha", {"attempt": 1}),
        ("ended", "alpha", {"attempt": [1], "outcome": "finished", "final": False, "why": ""}),
        ("ended", "alpha", {"attempt": 1, "outcome": "won", "final": False, "why": ""}),
        ("ended", "alpha", {"attempt": 1, "outcome": ["finished"], "final": False, "why": ""}),
        ("ended", "alpha", {"attempt": 1, "outcome": "failed", "final": 1, "why": ""}),
        ("ended", "alpha", {"attempt": 1, "outcome": "failed", "final": False, "why": "x" * 3000}),
        ("ended", "alpha", {"attempt": 1, "outcome": "failed", "final": False, "why": "\x1b[2J"}),
        ("ended", "alpha", {"attempt": 9, "outcome": "failed", "final": False, "why": ""}),
        ("refusal", "north", {}),
        ("refusal", "north", {"why": 1}),
        ("refusal", "north", {"why": "\x1b]0;owned\x07"}),
        ("refusal", "north", {"why": "x" * 2001}),
        ("approval", "north", {}),
        ("offer", RECEIVER, {"receiver": RECEIVER}),
    ],
)
def test_objects_that_do_not_say_what_they_must(
    kind: str, author: str, about: dict[str, Any], admission: LocalAdmission
) -> None:
    before = until("approval") if kind in ("approval", "refusal") else until("start", 0 if kind == "start" else 1)
    admission.tell(
        *(
            item
            for item in before
            if not (kind == "offer" and item.header.author == RECEIVER and item.header.kind == kind)
        )
    )
    admission.refuses(make(author, kind, OF, b"payload" if kind == "approval" else b"", **about))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"7",
        b"{}",
        b'{"chunks": []}',
        b'{"chunks": [[], [], [], [7]], "summands": {}}',
        b'{"chunks": [[], [], [], []]}',
        b'{"chunks": [[], [], [], []], "summands": []}',
        b'{"chunks": [[], [], [], []], "summands": {"R0": 7}}',
        b"[" * 100_000,
        b"[" + b"{}," * (1 << 19) + b"{}]",
    ],
)
def test_a_contribution_that_lists_nothing_usable_is_refused_by_name(content: bytes, admission: LocalAdmission) -> None:
    admission.tell(*until("contribution"))
    admission.refuses(make("north", "contribution", OF, content), "contribution")


def test_a_header_is_brief(admission: LocalAdmission) -> None:
    """16,384 envelopes with headers of 16 kB each would take 268 MB of a server's memory."""
    admission.tell(*until("envelope"))
    admission.refuses(make("north", "envelope", OF, b"x", to=0, chunk=0, more="x" * 5000), "more than 256 characters")
