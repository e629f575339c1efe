"""A receiver's result: the four servers' parts, opened and compared, and the evidence that anybody can check again
without a server.

The evidence is the signed objects as they are: the job, approvals, contributions, what each server said of the attempt,
audits, sealed parts, the federation's file with the operators' signatures, and the key that opens the parts. From it
the result is computed again, digit by digit.
"""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from ..federation.envelopes import message_of, result_info
from ..federation.errors import FederationError, ObjectRefused
from ..federation.membership import SERVERS, Membership, read_signatures, write_signatures
from ..federation.objects import MAX_BYTES, Header, Object
from ..federation.proposal import ProposedJob
from ..federation.sealing import SealingKey
from ..federation.state import DONE, Objects, job_state_of, missing
from ..federation.text import plain
from ..jobs.checks import is_digest
from ..jobs.registry import openings
from ..receiver.results import NoReader, Received, result_of
from ..receiver.unsealing import received, unsealed
from ..runtime import Account
from ..runtime.files import write_whole
from .client import MemberClient

EVIDENCE = "evidence"
KINDS = ("job", "offer", "approval", "contribution", "receipt", "start", "ended")
"""Kinds that show that a job is done. Their signatures were checked when they were listed."""

KEY = "result.key"
OBJECTS = "objects"
CONTENTS = "contents"
MAX_FILES = 100_000
"""Files of an evidence folder."""


@dataclass
class Evidence:
    """Everything about a finished job that its receiver has."""

    membership: Membership
    job: ProposedJob
    receiver: str
    key: SealingKey
    objects: list[Object]

    @classmethod
    def gather(cls, member: MemberClient, job: ProposedJob, patience: float = 30.0) -> Self:
        """From the servers; raises if the job is not done. Servers publish their parts a moment after the last has
        finished."""
        if member.name not in job.spec.receivers:
            raise FederationError(f"{member.name} is not a receiver of {job.name!r}.")
        deadline = time.monotonic() + patience
        while True:
            headers = member.servers.headers(job.id)
            job_state = member.job_state(job, headers)
            if job_state.ended == DONE:
                raise FederationError(
                    f"the servers have erased {job.name!r}; it was there for {job.proposal.erase_after}."
                )
            if job_state.stage != DONE:
                waiting = "; ".join(f"waiting for {item.actor} to {item.what}" for item in job_state.waiting)
                raise FederationError(f"{job.name!r} is {job_state.stage}. {job_state.why}{waiting}.")
            key = member.state.key(job.id)
            if key is None:
                raise FederationError(f"the key of {member.name} for {job.name!r} is not in {member.state.folder}.")
            then = member.membership.of_job(job.proposal.federation)
            parts, lacking = _parts(member, then, headers, job_state.attempt)
            if not lacking:
                decided = (member.first([header]) for header in headers if header.kind in KINDS)
                return cls(then, job, member.name, key, [*(item for item in decided if item), *parts])
            if time.monotonic() > deadline:
                raise FederationError(
                    f"the part of the result of {_listed(lacking)} is not there; fetch again when all servers are up."
                )
            time.sleep(0.3)

    # -- checking ----------------------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Check every signature and that all of it fits together; say what was checked. Raises at the first fault."""
        try:
            return self._checked()
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise FederationError(f"an audit does not say what it must ({type(error).__name__}: {error}).") from None

    def _checked(self) -> list[str]:
        faults = self.membership.faults()
        if faults:
            raise FederationError(f"the federation's file: {'; '.join(faults)}.")
        for item in self.objects:
            item.check_author(self.membership.signers_for(self.job.proposal.federation))
            if item.header.job != self.job.id:
                raise ObjectRefused(f"{item.header.kind} {item.digest[:12]} belongs to another job")
        attempt = self.attempt
        self._check_audits()
        return [
            f"federation {self.membership.name}, revision {self.membership.revision}: signed by all four operators",
            f"job {self.job.name!r}: the file that {' and '.join(self.job.proposal.approvers)} approved",
            f"{len(self.objects)} objects: every signature is that of a pinned key",
            f"attempt {attempt}: all four servers finished it, and their accounts agree",
            "the audits list what the job allows to be opened, and nothing else",
        ]

    @property
    def attempt(self) -> int:
        """The attempt that counts; raises unless the job is done by these objects."""
        headers = Objects([item.header for item in self.objects])
        # The time does not matter: what is finished has not expired.
        job_state = job_state_of(
            self.job.proposal,
            headers.headers,
            self.membership,
            datetime.fromtimestamp(0, self.job.proposal.expires.tzinfo),
        )
        if job_state.stage != DONE:
            raise FederationError(f"by these objects the job is {job_state.stage}. {job_state.why}".rstrip())
        lacking = [f"{item.actor} did not {item.what}" for item in missing(self.job.proposal, headers, self.membership)]
        if lacking or not any(headers.of("job")):
            raise FederationError(f"by these objects {_listed(lacking) or 'nobody submitted the job'}.")
        return job_state.attempt

    def _of_servers(self, kind: str) -> list[Object]:
        """The object of every server for the attempt that counts."""
        attempt = self.attempt
        found = []
        for server in SERVERS:
            author = self.membership.operators[server]
            mine = [
                item
                for item in self.objects
                if (item.header.kind, item.header.author, item.header.about.get("attempt")) == (kind, author, attempt)
                and item.header.about.get("receiver", self.receiver) == self.receiver
            ]
            if not mine:
                raise FederationError(f"the {kind} of server {server} ({author}) is missing.")
            found.append(mine[0])
        return found

    def _check_audits(self) -> None:
        allowed = {(line.what, line.to): line.most for line in openings(self.job.spec)}
        self._chunks()
        said = {item.digest: item for item in self.objects if item.header.kind == "contribution"}
        for server, audit in zip(SERVERS, self.audits(), strict=True):
            used = {owner: said[digest].header.author for owner, digest in audit["contributions"].items()}
            if audit["server"] != server or used != {owner: owner for owner in self.job.proposal.owners}:
                raise FederationError(f"server {server} signed an audit of other contributions.")
            if audit["contributions"] != self.audits()[0]["contributions"]:
                raise FederationError(f"servers 0 and {server} worked on different contributions.")
            seen: dict[tuple[str, str], int] = {}
            for line in audit["audit"]:
                place = (line["what"], line["to"])
                seen[place] = seen.get(place, 0) + 1
                if seen[place] > allowed.get(place, 0):
                    raise FederationError(
                        f"server {audit['server']} opened {line['what']!r} to {line['to']}, which the job does not "
                        "allow."
                    )

    def audits(self) -> list[dict[str, Any]]:
        return [item.json() for item in self._of_servers("audit")]

    # -- the result --------------------------------------------------------------------------------------------------

    def parts(self) -> list[dict[str, Any]]:
        """Return each server's result for this receiver, as shares."""
        attempt, parts = self.attempt, []
        for server, items in zip(SERVERS, self._chunks(), strict=True):
            plain = b""
            for chunk, item in enumerate(items):
                info = result_info(self.job.id, self.receiver, server, attempt, chunk, len(items))
                plain += self.key.open(item.payload, **info)
            parts.append(message_of(plain, "result")["result"])
        return parts

    def _chunks(self) -> list[list[Object]]:
        """By server the pieces of its part of the result that its audit names."""
        attempt, found = self.attempt, []
        known = {item.digest: item for item in self.objects}
        for server, audit in zip(SERVERS, self._of_servers("audit"), strict=True):
            author = self.membership.operators[server]
            items = [known.get(digest) for digest in _named(audit, self.receiver)]
            wanted = ("result", author, attempt)
            mine = [i for i in items if i and (i.header.kind, i.header.author, i.header.about.get("attempt")) == wanted]
            if not mine or len(mine) < len(items):
                raise FederationError(f"the result of server {server} ({author}) that its audit names is missing.")
            found.append(mine)
        return found

    def result(self) -> Any:
        """Return the servers' result for this receiver, as the reader of its analysis gives it (`receiver.results`).

        Raises if their parts do not fit together, or if no data can have this result.
        """
        spec = self.job.spec
        try:
            values, kept = received(unsealed(self.parts()), self.receiver), f"model-{self.job.id[:32]}"
            return result_of(
                Received(
                    spec,
                    self.receiver,
                    values,
                    self.account(),
                    spec.data.column_names,
                    None if spec.keep is None else kept,
                )
            )
        except (FederationError, NoReader):
            raise
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError) as error:
            raise FederationError(
                f"the result of {self.job.name!r} is not used: {error}. An owner or a server did not follow the "
                "program, or the computation failed; show the audits (ppca audit) to the operators."
            ) from None

    def account(self) -> Account:
        """Rounds, bytes and openings, from the four audits."""
        audits = self.audits()
        return Account(
            seconds=max(audit["seconds"] for audit in audits),
            rounds=audits[0]["stats"]["total"]["rounds"],
            bytes_sent=[audit["stats"]["total"]["bytes_sent"] for audit in audits],
            stages=[audit["stats"] for audit in audits],
            audit=audits[0]["audit"],
        )

    # -- files -------------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Everything needed to check it again, in a folder of its own."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / OBJECTS).mkdir()
        (folder / "federation.toml").write_bytes(self.membership.data)
        write_signatures(folder / "federation.sigs", self.membership.signatures)
        (folder / "job.toml").write_bytes(self.job.data)
        write_whole(folder / KEY, self.key.to_bytes(), 0o600)
        (folder / "receiver").write_text(self.receiver + "\n", encoding="utf-8")
        for item in self.objects:
            (folder / OBJECTS / f"{item.header.kind}-{item.header.author}-{item.digest[:16]}").write_bytes(item.data)
        (folder / CONTENTS).write_text("".join(f"{digest}\n" for digest in sorted(i.digest for i in self.objects)))
        for server, audit in zip(SERVERS, self.audits(), strict=True):
            (folder / f"audit-{server}.json").write_text(json.dumps(audit, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a folder that `save` has written, or that somebody else says is one."""
        try:
            _check_regular(folder)
            membership = Membership(
                (folder / "federation.toml").read_bytes(), read_signatures(folder / "federation.sigs")
            )
            items = [Object.parse(path.read_bytes()) for path in sorted((folder / OBJECTS).iterdir())]
            listed = (folder / CONTENTS).read_bytes().decode(errors="replace").splitlines()
            if listed != sorted(item.digest for item in items):
                raise FederationError(f"{folder / OBJECTS} does not hold the objects that {CONTENTS} lists, each once.")
            return cls(
                membership,
                ProposedJob((folder / "job.toml").read_bytes()),
                (folder / "receiver").read_bytes().decode(errors="replace").strip(),
                SealingKey.from_bytes((folder / KEY).read_bytes()),
                items,
            )
        except OSError as error:
            raise FederationError(
                f"{folder} holds no whole evidence of a job: {error.strerror} ({error.filename})."
            ) from None


def _parts(
    member: MemberClient, membership: Membership, headers: list[Header], attempt: int
) -> tuple[list[Object], list[str]]:
    """The audits and the parts of the result that servers sealed to this member, and the operators of which one is not
    there.

    Lists of servers may contain forged headers of audits and parts. Those that no server has do not count, and of the
    parts those count that the signed audits name.
    """
    found: list[Object] = []
    lacking = []
    mine_of = {
        operator: [h for h in headers if h.author == operator and h.about.get("attempt") == attempt]
        for operator in membership.operators.values()
    }
    audits = {name: member.first(h for h in mine if h.kind == "audit") for name, mine in mine_of.items()}
    named = {name: [] if audit is None else _named(audit, member.name) for name, audit in audits.items()}
    _check_counts(named)
    for operator, mine in mine_of.items():
        audit, digests = audits[operator], named[operator]
        listed: dict[str, list[Header]] = {digest: [] for digest in digests}
        for header in mine:
            if header.kind == "result" and header.digest in listed:
                listed[header.digest].append(header)
        chunks = [member.first(candidates) for candidates in listed.values()] if all(listed.values()) else [None]
        found += [item for item in (audit, *chunks) if item is not None]
        if not chunks or None in chunks:
            lacking.append(operator)
    return found, lacking


def _check_counts(named: Mapping[str, Sequence[str]]) -> None:
    """Refuse an audit that names many more pieces than those of the others: parts of a result have the same size."""
    most = sorted(map(len, named.values()))[-2] + 1
    for operator, digests in named.items():
        if len(digests) > most:
            raise FederationError(
                f"the audit of {operator} names {len(digests):,} chunks of the result, those of the others at most {most - 1:,}. "
                "They are not fetched; show the audits (ppca audit) to the operators."
            )


def _named(audit: Object, receiver: str) -> list[str]:
    """The digests of the pieces of a receiver's part, in their order, as an audit names them."""
    try:
        content = audit.json()
    except ObjectRefused:
        return []
    results = content.get("results") if isinstance(content, dict) else None
    digests = results.get(receiver) if isinstance(results, dict) else None
    return digests if isinstance(digests, list) and all(map(is_digest, digests)) else []


def _check_regular(folder: Path) -> None:
    """Refuse anything but files of bounded size: a pipe would never end, and a device or a sparse file takes all
    memory."""
    for number, path in enumerate(folder.rglob("*")):
        found = path.lstat()
        fits = stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_size <= MAX_BYTES)
        if not fits or number >= MAX_FILES:
            raise FederationError(
                f"{plain(str(path))[:500]} does not belong to evidence: it has at most {MAX_FILES:,} files, of at most "
                f"{MAX_BYTES:,} bytes each."
            )


def check_files(folder: Path, expected: Mapping[str, bytes]) -> None:
    """Refuse a folder in which a file is not byte by byte what it must be, is missing, or is too many."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    for name, data in expected.items():
        if name not in found:
            raise FederationError(f"{name} is missing.")
        if found[name].stat().st_size != len(data) or found[name].read_bytes() != data:
            raise FederationError(f"{name} was changed: it is not what the evidence gives.")
    extra = sorted(set(found) - set(expected))
    if extra:
        raise FederationError(f"{_listed(extra)} does not belong to this result.")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" and more" if len(names) > 3 else "")
