"""Objects: what members tell each other. Immutable, signed by the author, named by the SHA-256 of all its bytes.

    ppca-object-1 LF  length of the header in decimal LF  header (JSON) LF  payload  signature (64 bytes)

The signature covers everything before it. Kinds and who may write them:

    job            a job.toml as it stands, by a member that has a part in it, or an operator; `job` is the SHA-256 of the file
    offer          the public sealing key of a server or a receiver (of an owner of columns, with its approval) for one job
    approval, refusal   by an owner of the job (of an infer job, by the owners of the model too)
    group          the key of the tags, sealed by the first owner of columns to each other one
    envelope       shares, sealed by an owner to one server
    contribution   the digests of all envelopes of an owner, and of the summands they hold: the owner is done
    receipt        by a server: it has all of an owner's envelopes, they open, and they hold what the contribution says
    start          by server 0: it proposes an attempt (`seat.scheduler` describes the protocol)
    ready          by a server: it has reserved a place for an attempt and loaded the program and its inputs
    ended          by a server: what became of an attempt there: finished, failed or withdrawn; said once for each attempt
    resume         by an operator: a job that is held may be attempted again
    result         by a server: its part of a result, sealed to one receiver
    audit          by a server: what was opened, to whom
    erased         by a server: it has destroyed its key of the job, or of a kept model
    cancel         by who submitted the job, or an owner of it
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ..jobs.checks import NAME, is_digest
from .errors import ObjectRefused
from .identity import Identity, signed_by

MAGIC = b"ppca-object-1\n"
SIGNATURE_BYTES = 64
MOST_HEADER = 1 << 14
PIECE_BYTES = 16 << 20
"""Plain bytes of one envelope: what is lost when an upload is cut."""

MOST_PAYLOAD = PIECE_BYTES + (1 << 16)
MOST_BYTES = MOST_PAYLOAD + MOST_HEADER + 256
MOST_DEPTH = 4

KINDS = frozenset(
    [
        *("job", "offer", "approval", "refusal", "group", "envelope", "contribution", "receipt"),
        *("start", "ready", "ended", "resume", "result", "audit", "erased", "cancel"),
    ]
)
DECIDING = KINDS - {"envelope", "group", "result", "audit"}
"""Kinds from which follows where a job stands. They are small."""

RECORDS = frozenset(["receipt", "ready", "ended", "result", "audit", "erased"])
"""Kinds by which servers record what they did. Everything else asks for something, or agrees to something."""

FIELDS = ("kind", "author", "job", "about")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Header:
    """What an object says of itself. about: small facts that depend on the kind."""

    kind: str
    author: str
    job: str
    about: dict[str, Any]
    digest: str
    size: int

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def of(cls, fields: Any, digest: Any, size: Any) -> Self:
        """A header of what somebody says of an object; refused if no object can have it."""
        if not isinstance(fields, dict) or set(fields) != set(FIELDS):
            raise ObjectRefused("an object's header has not the four fields it must have")
        kind, author, job, about = (fields[name] for name in FIELDS)
        if not isinstance(kind, str) or kind not in KINDS or not isinstance(author, str) or not NAME.fullmatch(author):
            raise ObjectRefused("an object's header names no kind or author that there is")
        if not is_digest(job):
            raise ObjectRefused("an object's header names no job")
        if not isinstance(about, dict) or not _is_small(about, MOST_DEPTH):
            raise ObjectRefused("an object's header holds something else than small facts")
        if not is_digest(digest) or type(size) is not int:
            raise ObjectRefused("an object has no digest or size")
        return cls(kind, author, job, about, digest, size)


@dataclass(frozen=True)
class Object:
    """A header, the payload, and all the bytes."""

    header: Header
    payload: bytes
    data: bytes

    @property
    def digest(self) -> str:
        return self.header.digest

    @classmethod
    def make(cls, identity: Identity, kind: str, job: str, payload: bytes = b"", **about: Any) -> Self:
        text = json.dumps({"kind": kind, "author": identity.name, "job": job, "about": about}, sort_keys=True).encode()
        signed = b"%s%d\n%s\n%s" % (MAGIC, len(text), text, payload)
        return cls.parse(signed + identity.sign(signed))

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The object, if it is well formed. Who signed it is for `check_author` to say."""
        if len(data) > MOST_BYTES:
            raise ObjectRefused(f"an object of {len(data):,} bytes is too long; at most {MOST_BYTES:,}")
        if not data.startswith(MAGIC):
            raise ObjectRefused("these bytes are no object")
        end = data.find(b"\n", len(MAGIC), len(MAGIC) + 8)
        number = data[len(MAGIC) : end]
        if end < 0 or not number.isdigit() or int(number) > MOST_HEADER:
            raise ObjectRefused("an object's header has no or too great a length")
        start, stop = end + 1, end + 1 + int(number)
        if data[stop : stop + 1] != b"\n" or len(data) < stop + 1 + SIGNATURE_BYTES:
            raise ObjectRefused("an object is cut off")
        try:
            fields = json.loads(data[start:stop], parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            raise ObjectRefused("an object's header is no JSON") from None
        return cls(Header.of(fields, sha256(data), len(data)), data[stop + 1 : -SIGNATURE_BYTES], data)

    def check_author(self, signers: Mapping[str, Sequence[bytes]]) -> None:
        """Refuses an object that its author did not sign with a key that is, or was, pinned for it."""
        if self.header.author not in signers:
            raise ObjectRefused(f"{self.header.author} is no member of this federation")
        if not self.is_signed_by(signers):
            raise ObjectRefused(f"{self.header.author} did not sign this object, or it was changed")

    def is_signed_by(self, signers: Mapping[str, Sequence[bytes]]) -> bool:
        """Return whether the author signed it with one of the keys that it has there."""
        signature, signed = self.data[-SIGNATURE_BYTES:], self.data[:-SIGNATURE_BYTES]
        return any(signed_by(key, signature, signed) for key in signers.get(self.header.author, ()))

    def json(self) -> Any:
        """The payload of kinds whose payload is JSON."""
        try:
            return json.loads(self.payload)
        except (ValueError, RecursionError):
            raise ObjectRefused(f"the payload of {self.header.kind} {self.digest[:12]} is no JSON") from None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _is_small(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        return depth > 0 and all(_is_small(item, depth - 1) for item in value.values())
    if isinstance(value, list):
        return depth > 0 and all(_is_small(item, depth - 1) for item in value)
    return value is None or isinstance(value, bool | int | str | float)
