"""Rules for objects of each kind: required content and allowed authors, given the job and earlier objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..federation.errors import NotNow, ObjectRefused
from ..federation.membership import SERVERS
from ..federation.objects import CHUNK_BYTES, Header, Object
from ..federation.proposal import Proposal
from ..federation.sealing import is_usable
from ..federation.state import Objects, times_before
from ..federation.text import is_plain_text
from ..jobs.checks import is_digest
from .mailbox import SMALL

MAX_RESULT_CHUNKS = 1 << 12
"""Pieces of a server's part of the result for one receiver, 16 MiB each."""


def refuse_unless(fits: object, header: Header, why: str) -> None:
    if not fits:
        raise ObjectRefused(f"{header.kind} of {header.author}: {why}")


def _offer(header: Header, payload: bytes, job: Proposal, server: int | None, headers: Objects) -> None:
    of_server = "server" in header.about
    receives = header.author in job.job.receivers or (job.job.data.by_columns and header.author in job.owners)
    fits = (server is not None and _is(header.about["server"], server)) if of_server else receives
    refuse_unless(fits, header, "its author does not need a key for this job")
    refuse_unless(is_usable(payload), header, "it holds no key")
    before = headers.offer(header.author, of_server=of_server)
    again = of_server and before is not None and times_before(header) > times_before(before)  # restored, with new keys
    refuse_unless(before is None or again, header, "it has offered a key already")


def _approval(header: Header, payload: bytes, job: Proposal, server: int | None, headers: Objects) -> None:
    refuse_unless(header.author in job.approvers, header, "its author is not an approver of this job")
    refuse_unless(not payload, header, "it has a payload")


def _refusal(header: Header, payload: bytes, job: Proposal, server: int | None, headers: Objects) -> None:
    fits = server is not None or header.author in job.members
    refuse_unless(fits and not payload, header, "its author is not an approver of this job")
    _text(header, "why")


def _text(header: Header, name: str) -> None:
    fits = is_plain_text(header.about.get(name))
    refuse_unless(fits, header, f"{name} must be a short text without control characters")


def _is(value: object, number: int) -> bool:
    return type(value) is int and value == number


def _owner(header: Header, job: Proposal, headers: Objects) -> None:
    refuse_unless(header.author in job.owners, header, "its author is not an owner of this job")
    refuse_unless(headers.by("approval", header.author) is not None, header, "it has not approved the job")


def _group(header: Header, payload: bytes, job: Proposal, server: int | None, headers: Objects) -> None:
    fits = job.job.data.by_columns and header.author == job.owners[0] and header.about.get("to") in job.owners[1:]
    refuse_unless(fits and len(payload) < SMALL, header, "only the first column owner makes a key for the others")


def _envelope(header: Header, payload: bytes, job: Proposal, server: int | None, headers: Objects) -> None:
    _owner(header, job, headers)
    chunk = header.about.get("chunk")
    to = header.about.get("to")
    refuse_unless(type(to) is int and to in SERVERS, header, "it is addressed to no server")
    refuse_unless(type(chunk) is int and 0 <= chunk < 1 << 16, header, "its chunk number is missing or invalid")
    refuse_unless(len(payload) <= CHUNK_BYTES + 2000, header, "it is too long")
    refuse_unless(headers.by("contribution", header.author) is None, header, "it has finished its contribution")


def _contribution(header: Header, payload: bytes, job: Proposal, server: int | None, headers: Objects) -> None:
    _owner(header, job, headers)


def _of_server(header: Header, payload: bytes, job: Proposal, server: int | None, headers: Objects) -> None:
    refuse_unless(server is not None, header, "only servers write that")


def _receipt(header: Header, payload: bytes, job: Proposal, server: int | None, headers: Objects) -> None:
    _of_server(header, payload, job, server, headers)
    refuse_unless(header.about.get("owner") in job.owners, header, "it is for no owner of this job")


def _start(header: Header, payload: bytes, job: Proposal, server: int | None, headers: Objects) -> None:
    refuse_unless(server == 0, header, "server 0 proposes the start")
    last = max(headers.starts(), default=0)
    refuse_unless(header.about["attempt"] == last + 1, header, f"attempt {last + 1} comes next")


def _ready(header: Header, payload: bytes, job: Proposal, server: int | None, headers: Objects) -> None:
    _of_server(header, payload, job, server, headers)
    number = header.about["attempt"]
    if number not in headers.starts():
        raise NotNow(f"ready of {header.author}: attempt {number} has not been proposed")
    refuse_unless(header.author not in headers.ready(number), header, "it has said so already")


def _resume(header: Header, payload: bytes, job: Proposal, server: int | None, headers: Objects) -> None:
    _of_server(header, payload, job, server, headers)
    refuse_unless(header.about["attempt"] in headers.starts(), header, "there was no such attempt")


def _ended(header: Header, payload: bytes, job: Proposal, server: int | None, headers: Objects) -> None:
    _of_server(header, payload, job, server, headers)
    about = header.about
    if about["attempt"] not in headers.starts():
        raise NotNow(f"ended of {header.author}: there was no such attempt")
    _text(header, "why")


def _result(header: Header, payload: bytes, job: Proposal, server: int | None, headers: Objects) -> None:
    _of_server(header, payload, job, server, headers)
    receiver = header.about.get("receiver")
    fits = isinstance(receiver, str) and receiver in job.job.receivers
    refuse_unless(fits, header, "it is for no receiver of this job")
    _of_attempt(header, headers)
    chunk = header.about.get("chunk")
    refuse_unless(
        type(chunk) is int and 0 <= chunk < MAX_RESULT_CHUNKS, header, "its chunk number is missing or invalid"
    )
    _once(header, headers, "receiver", "attempt", "chunk")


def _audit(header: Header, payload: bytes, job: Proposal, server: int | None, headers: Objects) -> None:
    _of_server(header, payload, job, server, headers)
    _of_attempt(header, headers)
    _once(header, headers, "attempt")


def _erased(header: Header, payload: bytes, job: Proposal, server: int | None, headers: Objects) -> None:
    _of_server(header, payload, job, server, headers)
    refuse_unless(header.about.get("what") in ("job", "model"), header, "it names nothing that can be erased")
    _once(header, headers, "what")


def _of_attempt(header: Header, headers: Objects) -> None:
    attempt = header.about.get("attempt")
    refuse_unless(type(attempt) is int, header, "it names no attempt")
    if attempt not in headers.starts():
        raise NotNow(f"{header.kind} of {header.author}: there was no such attempt")


def _once(header: Header, headers: Objects, *names: str) -> None:
    """Refuse a second object of an author that is about the same things."""
    said = [header.about.get(name) for name in names]
    known = (other for other in headers.of(header.kind) if other.author == header.author)
    again = any([other.about.get(name) for name in names] == said for other in known)
    refuse_unless(not again, header, "it has said so already")


def _cancel(header: Header, payload: bytes, job: Proposal, server: int | None, headers: Objects) -> None:
    submitters = {known.author for known in headers.of("job")}
    fits = header.author in submitters or header.author in job.owners
    refuse_unless(fits, header, "only an owner or the member that submitted the job can cancel it")


WRITERS: dict[str, Callable[[Header, bytes, Proposal, int | None, Objects], Any]] = {
    "offer": _offer,
    "approval": _approval,
    "refusal": _refusal,
    "group": _group,
    "envelope": _envelope,
    "contribution": _contribution,
    "receipt": _receipt,
    "start": _start,
    "ready": _ready,
    "ended": _ended,
    "resume": _resume,
    "result": _result,
    "audit": _audit,
    "erased": _erased,
    "cancel": _cancel,
}


def chunks_of(item: Object) -> list[list[str]]:
    """The digests of an owner's envelopes by server, from its contribution."""
    content = item.json()
    chunks = content.get("chunks") if isinstance(content, dict) else None
    if not (
        isinstance(chunks, list) and len(chunks) == len(SERVERS) and all(isinstance(each, list) for each in chunks)
    ):
        raise ObjectRefused(f"the contribution of {item.header.author} does not list its envelopes")
    if not all(is_digest(digest) for each in chunks for digest in each):
        raise ObjectRefused(f"the contribution of {item.header.author} lists something else than envelopes")
    return chunks


def summands_of(item: Object) -> dict[str, str]:
    """The digests of what an owner sends, by name, from its contribution."""
    content = item.json()
    summands = content.get("summands") if isinstance(content, dict) else None
    if not (isinstance(summands, dict) and all(map(is_digest, summands.values()))):
        raise ObjectRefused(f"the contribution of {item.header.author} does not list the digests of its shares")
    return summands
