"""Signed objects: the messages between members. An object is immutable and named by the SHA-256 of all its bytes.

    ppca-object-1 LF  length of the header in decimal LF  header (JSON) LF  payload  signature (64 bytes)

The signature covers everything before it. Kinds and their authors:

    job            the bytes of a job.toml, by a member of the job or an operator; `job` is the SHA-256 of the file
    offer          the public sealing key of a server or a receiver (of a column owner, with its approval) for one job
    approval, refusal   by an owner of the job (of an infer job, by the owners of the model too)
    group          the key of the tags, sealed by the first column owner to each other one
    envelope       shares, sealed by an owner to one server
    contribution   the digests of all envelopes of an owner, and of the summands they hold: the owner is done
    receipt        by a server: it has all of an owner's envelopes, they open, and they hold what the contribution says
    start          by server 0: it proposes an attempt (`server.scheduler` describes the protocol)
    ready          by a server: it has reserved a place for an attempt and loaded the program and its inputs
    ended          by a server: the outcome of an attempt there: finished, failed or withdrawn; once for each attempt
    resume         by an operator: a job that is held may be attempted again
    result         by a server: its part of a result, sealed to one receiver
    audit          by a server: the list of values that were opened, and to whom
    erased         by a server: it has destroyed its key of the job, or of a kept model
    cancel         by the member that submitted the job, or an owner of it
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
MAX_HEADER = 1 << 14
CHUNK_BYTES = 16 << 20
"""Maximum plain bytes of one envelope. An interrupted upload loses at most this much."""

MAX_PAYLOAD = CHUNK_BYTES + (1 << 16)
MAX_BYTES = MAX_PAYLOAD + MAX_HEADER + 256
MAX_DEPTH = 4

KINDS = frozenset(
    [
        *("job", "offer", "approval", "refusal", "group", "envelope", "contribution", "receipt"),
        *("start", "ready", "ended", "resume", "result", "audit", "erased", "cancel"),
    ]
)
DECIDING = KINDS - {"envelope", "group", "result", "audit"}
"""Kinds that determine the state of a job. They are small."""

RECORDS = frozenset(["receipt", "ready", "ended", "result", "audit", "erased"])
"""Kinds by which servers record what they did. Other kinds request something or agree to something."""

FIELDS = ("kind", "author", "job", "about")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Header:
    """Header of an object. about: small facts that depend on the kind."""

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
        """Make a header from fields received from a peer; raise ObjectRefused if they are invalid."""
        if not isinstance(fields, dict) or set(fields) != set(FIELDS):
            raise ObjectRefused("an object's header does not have exactly the four required fields")
        kind, author, job, about = (fields[name] for name in FIELDS)
        if not isinstance(kind, str) or kind not in KINDS or not isinstance(author, str) or not NAME.fullmatch(author):
            raise ObjectRefused("an object's header has an unknown kind or an invalid author")
        if not is_digest(job):
            raise ObjectRefused("an object's header does not name a job")
        if not isinstance(about, dict) or not _is_small(about, MAX_DEPTH):
            raise ObjectRefused("an object's header has fields that are not small facts")
        if not is_digest(digest) or type(size) is not int:
            raise ObjectRefused("an object does not have a valid digest and size")
        return cls(kind, author, job, about, digest, size)


@dataclass(frozen=True)
class Object:
    """A signed object: header, payload and all bytes."""

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
        """Parse an object; raise ObjectRefused if it is malformed. Does not check the signature, see `check_author`."""
        if len(data) > MAX_BYTES:
            raise ObjectRefused(f"an object of {len(data):,} bytes is too long; at most {MAX_BYTES:,}")
        if not data.startswith(MAGIC):
            raise ObjectRefused(
                "not a signed object: the data do not start with 'ppca-object-1'. They are damaged or of another "
                "format; send the object again"
            )
        end = data.find(b"\n", len(MAGIC), len(MAGIC) + 8)
        number = data[len(MAGIC) : end]
        if end < 0 or not number.isdigit() or int(number) > MAX_HEADER:
            raise ObjectRefused("the length of an object's header is missing or too large")
        start, stop = end + 1, end + 1 + int(number)
        if data[stop : stop + 1] != b"\n" or len(data) < stop + 1 + SIGNATURE_BYTES:
            raise ObjectRefused("an object is cut off")
        try:
            fields = json.loads(data[start:stop], parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            raise ObjectRefused("an object's header is not valid JSON") from None
        return cls(Header.of(fields, sha256(data), len(data)), data[stop + 1 : -SIGNATURE_BYTES], data)

    def check_author(self, signers: Mapping[str, Sequence[bytes]]) -> None:
        """Raise ObjectRefused unless the author signed the object with a present or former key."""
        if self.header.author not in signers:
            raise ObjectRefused(f"{self.header.author} is not a member of this federation")
        if not self.is_signed_by(signers):
            raise ObjectRefused(f"{self.header.author} did not sign this object, or it was changed")

    def is_signed_by(self, signers: Mapping[str, Sequence[bytes]]) -> bool:
        """Return whether the author signed it with one of its keys in `signers`."""
        signature, signed = self.data[-SIGNATURE_BYTES:], self.data[:-SIGNATURE_BYTES]
        return any(signed_by(key, signature, signed) for key in signers.get(self.header.author, ()))

    def json(self) -> Any:
        """Return the payload as JSON, for kinds with a JSON payload."""
        try:
            return json.loads(self.payload)
        except (ValueError, RecursionError):
            raise ObjectRefused(f"the payload of {self.header.kind} {self.digest[:12]} is not valid JSON") from None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not valid JSON")


def _is_small(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        return depth > 0 and all(_is_small(item, depth - 1) for item in value.values())
    if isinstance(value, list):
        return depth > 0 and all(_is_small(item, depth - 1) for item in value)
    return value is None or isinstance(value, bool | int | str | float)
