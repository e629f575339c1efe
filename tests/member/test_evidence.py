"""The evidence of a result: any changed byte of any file is noticed, and so is anything that does not fit together."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.federation import (
    MEMBERSHIP,
    OPERATORS,
    RECEIVER,
    RECEIVER_KEY,
    contribution,
    ended,
    job,
    make,
    story,
)
from ppca.cli.fetch import write_fetched
from ppca.federation import envelopes
from ppca.federation.envelopes import chunks_in, result_info
from ppca.federation.errors import FederationError
from ppca.federation.membership import Membership
from ppca.federation.objects import Object
from ppca.federation.sealing import seal
from ppca.jobs.registry import openings
from ppca.member.fetching import Evidence, _check_counts, check_files
from ppca.runtime.control import encode

JOB = job()
FACTS = {"verified": True, "standardized": False, "rows": 10, "count": 3}
STORY = story(JOB)
LINES = [{"what": line.what, "to": line.to} for line in openings(JOB.spec)]
TOTAL = {"total": {"rounds": 7, "bytes_sent": 5, "sent_to": [5] * 4, "received_from": [5] * 4}}


def result(seat: int, answer: int = 7, attempt: int = 1) -> Object:
    return sealed(seat, b"".join(encode("result", result={**FACTS, "answer": answer, "to": {RECEIVER: {}}})), attempt)[
        0
    ]


def sealed(seat: int, plain: bytes, attempt: int = 1) -> list[Object]:
    """A server's part of the result, in chunks."""
    chunks = chunks_in(plain)
    infos = [result_info(JOB.id, RECEIVER, seat, attempt, chunk, len(chunks)) for chunk in range(len(chunks))]
    return [
        make(
            OPERATORS[seat], "result", JOB, seal(data, RECEIVER_KEY.public, **info), receiver=RECEIVER, attempt=attempt
        )
        for data, info in zip(chunks, infos, strict=True)
    ]


def audit(place: int, *of: Object, **change: Any) -> Object:
    sent = {item.header.author: item.digest for item in STORY if item.header.kind == "contribution"}
    content = {
        "attempt": 1,
        "server": place,
        "seconds": 1.0,
        "stats": TOTAL,
        "audit": LINES,
        "results": {RECEIVER: [chunk.digest for chunk in of]},
    }
    content |= {"contributions": sent} | change
    return make(OPERATORS[place], "audit", JOB, json.dumps(content).encode(), attempt=1, server=place)


RESULTS = [result(seat) for seat in range(4)]
AUDITS = [audit(seat, of) for seat, of in enumerate(RESULTS)]
KEPT = [item for item in STORY if item.header.kind != "envelope"]


def evidence(items: list[Object] | None = None, membership: Membership = MEMBERSHIP) -> Evidence:
    return Evidence(membership, JOB, RECEIVER, RECEIVER_KEY, [*KEPT, *RESULTS, *AUDITS] if items is None else items)


def test_good_evidence(tmp_path: Path) -> None:
    made = evidence()
    assert len(made.check()) == 5
    assert made.result().values == {**FACTS, "answer": 7}
    assert made.account().rounds == 7
    made.save(tmp_path / "evidence")
    found = Evidence.load(tmp_path / "evidence")
    assert found.check() == made.check()
    assert found.result().values == {**FACTS, "answer": 7}


def verified(folder: Path, again: Path) -> None:
    """As `ppca verify` does it: everything is checked, then made again and compared."""
    found = Evidence.load(folder)
    found.check()
    found.result()
    found.save(again)
    check_files(folder, {p.relative_to(again).as_posix(): p.read_bytes() for p in again.rglob("*") if p.is_file()})


def test_every_byte_of_every_file_counts(tmp_path: Path) -> None:
    """Some bytes of every file in turn; of short files all."""
    folder = tmp_path / "evidence"
    evidence().save(folder)
    verified(folder, tmp_path / "again")
    number = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        data = path.read_bytes()
        step = 1 if len(data) < 20 else max(1, len(data) // 12)
        for place in {*range(0, len(data), step), len(data) - 1}:
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            number += 1
            with pytest.raises(ValueError):  # noqa: PT011 - which one depends on the byte; all end the command
                verified(folder, tmp_path / f"again {number}")
        path.write_bytes(data)
    assert number > 400
    verified(folder, tmp_path / "at last")


def test_files_missing_or_too_many(tmp_path: Path) -> None:
    folder = tmp_path / "evidence"
    evidence().save(folder)
    for path in [path for path in sorted(folder.rglob("*")) if path.is_file()]:
        data = path.read_bytes()
        path.unlink()
        with pytest.raises(FederationError):
            verified(folder, tmp_path / f"without {path.name}")
        path.write_bytes(data)
    (folder / "note.txt").write_text("more")
    with pytest.raises(FederationError, match=r"note.txt does not belong"):
        verified(folder, tmp_path / "more")


def with_first_audit(**change: Any) -> list[Object]:
    return [*KEPT, *RESULTS, audit(0, RESULTS[0], **change), *AUDITS[1:]]


def without(kind: str, author: str) -> list[Object]:
    return [item for item in KEPT if (item.header.kind, item.header.author) != (kind, author)]


OTHER = contribution(JOB, "north")[-1]
SENT = {item.header.author: item.digest for item in KEPT if item.header.kind == "contribution"}
BROKEN: dict[str, Callable[[], list[Object]]] = {
    "an approval is missing": lambda: [*without("approval", "south"), *RESULTS, *AUDITS],
    "a receipt is missing": lambda: [*without("receipt", "gamma"), *RESULTS, *AUDITS],
    "an offer is missing": lambda: [*without("offer", "delta"), *RESULTS, *AUDITS],
    "nobody submitted it": lambda: [*(i for i in KEPT if i.header.kind != "job"), *RESULTS, *AUDITS],
    "three finished": lambda: [*without("ended", "beta"), *RESULTS, *AUDITS],
    "accounts that differ": lambda: [*without("ended", "beta"), ended(JOB, "beta", audit="b"), *RESULTS, *AUDITS],
    "an audit is missing": lambda: [*KEPT, *RESULTS, *AUDITS[1:]],
    "a result is missing": lambda: [*KEPT, *RESULTS[:3], *AUDITS],
    "another result": lambda: [*KEPT, result(0), *RESULTS[1:], *AUDITS],
    "of another attempt": lambda: [*KEPT, result(0, attempt=2), *RESULTS[1:], *AUDITS],
    "an audit of another server": lambda: with_first_audit(server=1),
    "too much opened": lambda: with_first_audit(audit=[*LINES, *LINES]),
    "opened to somebody else": lambda: with_first_audit(audit=[{"what": "means", "to": "visitor"}]),
    "opened what is not listed": lambda: with_first_audit(audit=[{"what": "rows", "to": "servers"}]),
    "no audit at all": lambda: with_first_audit(audit=None),
    "lines that are none": lambda: with_first_audit(audit=[7]),
    "results that are none": lambda: with_first_audit(results=7),
    "an audit that is a list": lambda: [*KEPT, *RESULTS, make("alpha", "audit", JOB, b"[]", attempt=1), *AUDITS[1:]],
    "an audit that is no JSON": lambda: [*KEPT, *RESULTS, make("alpha", "audit", JOB, b"{", attempt=1), *AUDITS[1:]],
    "other contributions": lambda: [OTHER, *with_first_audit(contributions={**SENT, "north": OTHER.digest})],
    "contributions of another owner": lambda: with_first_audit(contributions={**SENT, "north": SENT["south"]}),
    "contributions of nobody": lambda: with_first_audit(contributions={}),
    "an object of another job": lambda: [*KEPT, make("north", "approval", job(name="other")), *RESULTS, *AUDITS],
    "an object of an outsider": lambda: [*KEPT, make("nobody", "approval", JOB), *RESULTS, *AUDITS],
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_does_not_fit_together(name: str) -> None:
    with pytest.raises(FederationError):
        evidence(BROKEN[name]()).check()


def test_a_result_of_more_than_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object holds 16 MiB. A larger result was computed, could not be sealed, and the job was held."""
    long = "x" * 500
    plain = b"".join(encode("result", result={**FACTS, "answer": long, "to": {RECEIVER: {}}}))
    monkeypatch.setattr(envelopes, "CHUNK_BYTES", len(plain) // 2 + 1)
    parts = [sealed(seat, plain) for seat in range(4)]
    assert all(len(chunks) == 2 for chunks in parts)
    items = [*KEPT, *(chunk for chunks in parts for chunk in chunks)]
    made = evidence([*items, *(audit(seat, *chunks) for seat, chunks in enumerate(parts))])
    made.check()
    assert made.result().values["answer"] == long
    for wrong in (
        [parts[0][0]],
        [parts[0][1], parts[0][0]],
        [*parts[0], parts[0][1]],
    ):  # cut off, turned round, repeated
        other = evidence([*items, audit(0, *wrong), *(audit(seat, *parts[seat]) for seat in (1, 2, 3))])
        with pytest.raises(FederationError):
            other.result()


def test_a_later_start_does_not_hide_a_finished_attempt() -> None:
    """Server 0 alone made a finished result unreachable by signing one more start."""
    made = evidence([*KEPT, *RESULTS, *AUDITS, make("alpha", "start", JOB, attempt=2)])
    made.check()
    assert made.attempt == 1


def test_the_federation_must_be_signed() -> None:
    unsigned = Membership(MEMBERSHIP.data, {name: MEMBERSHIP.signatures[name] for name in OPERATORS[:3]})
    with pytest.raises(FederationError, match="not signed by delta"):
        evidence(membership=unsigned).check()


def test_parts_that_disagree_are_no_result() -> None:
    odd = [*RESULTS[:3], result(3, answer=8)]
    made = evidence([*KEPT, *odd, *(audit(seat, of) for seat, of in enumerate(odd))])
    made.check()
    with pytest.raises(ValueError, match="differs between the servers"):
        made.result()


@pytest.mark.parametrize("name", ["federation.toml", "job.toml", "receiver", "result.key", "objects", "contents"])
def test_a_folder_that_lacks_something(name: str, tmp_path: Path) -> None:
    import shutil

    evidence().save(tmp_path / "e")
    path = tmp_path / "e" / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(FederationError, match="no whole evidence"):
        Evidence.load(tmp_path / "e")


def test_only_the_receiver_can_read_the_key_of_a_result(tmp_path: Path) -> None:
    """Whoever reads result.key has the result; it was readable by everyone."""
    evidence().save(tmp_path / "result" / "evidence")
    assert stat.S_IMODE((tmp_path / "result" / "evidence" / "result.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "result" / "evidence").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"verified": False}, "could not verify the decomposition"),
        ({"rows": 1 << 36}, "the number of rows is 68,719,476,736"),
        ({"rows": "forty"}, "does not hold what a fit reveals"),
    ],
)
def test_an_impossible_result_is_refused_by_name(change: dict[str, Any], why: str) -> None:
    found = []
    for seat in range(4):
        found += sealed(seat, b"".join(encode("result", result={**FACTS, "to": {RECEIVER: {}}} | change)))
    made = evidence([*KEPT, *found, *(audit(seat, of) for seat, of in enumerate(found))])
    made.check()
    with pytest.raises(FederationError, match=f"the result of 'first' is not used: .*{why}"):
        made.result()


@pytest.mark.parametrize("kind", ["pipe", "device", "sparse", "link"])
@pytest.mark.parametrize("name", ["objects/x", "job.toml", "federation.sigs", "result.key"])
def test_a_folder_with_a_file_that_never_ends_is_refused_at_once(kind: str, name: str, tmp_path: Path) -> None:
    """It hung, or took all memory."""
    evidence().save(tmp_path / "e")
    path = tmp_path / "e" / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(60 << 30)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else tmp_path)
    with pytest.raises(FederationError, match="does not belong to evidence"):
        Evidence.load(tmp_path / "e")


def test_a_result_that_lacks_what_the_job_reveals_is_refused_by_name(tmp_path: Path) -> None:
    """Signed by all four servers; the command ended with a traceback."""
    with pytest.raises(FederationError, match="does not hold what the job reveals"):
        write_fetched(tmp_path, evidence())


def test_an_audit_that_names_too_many_pieces_is_refused_before_they_are_fetched() -> None:
    """A lying server could make a receiver fetch 240,000 chunks of 16 MiB for the result of a small matrix."""
    named = {name: ["0" * 64] * 3 for name in OPERATORS}
    _check_counts(named)
    _check_counts(named | {"beta": ["0" * 64] * 4})
    _check_counts(named | {"beta": []})
    with pytest.raises(
        FederationError, match="the audit of beta names 60 chunks of the result, those of the others at most 3"
    ):
        _check_counts(named | {"beta": ["0" * 64] * 60})


def test_names_of_columns_do_not_become_formulas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In means.csv they are values, which a spreadsheet runs as in headings. Who proposes a job chooses them."""
    tables = {"means.csv": {"column": ["=1+1", "age"], "mean": [1.0, 2.0]}}
    monkeypatch.setattr(Evidence, "result", lambda _: SimpleNamespace(tables=lambda: tables))
    write_fetched(tmp_path, evidence())
    lines = (tmp_path / "means.csv").read_text().splitlines()
    assert [line.partition(",")[0].strip('"') for line in lines] == ["column", "'=1+1", "age"]
