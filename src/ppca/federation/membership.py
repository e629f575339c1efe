"""federation.toml: the members with their pinned keys and roles, and the addresses of the four servers.

The four operators sign the file (federation.sigs). Its revision number only increases. To remove a member, remove its
lines.
"""

from __future__ import annotations

import base64
import json
import re
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from ..runtime.files import write_whole
from . import toml
from .errors import FederationError, FileRefused
from .identity import Identity, check_name, key_of, key_text, signed_by, words
from .objects import sha256

MEMBERSHIP_FILE, SIGNATURES_FILE = "federation.toml", "federation.sigs"
Role = Literal["owner", "receiver"]
SERVERS = range(4)
_ADDRESS = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9_.-]{1,253})):(?P<port>[0-9]{1,5})", re.ASCII
)
_FEDERATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}", re.ASCII)


def address(text: str) -> tuple[str, int]:
    """Split host:port or [ipv6]:port."""
    found = _ADDRESS.fullmatch(text)
    if found is None or not 0 < int(found["port"]) < 65536:
        raise ValueError(f"{text[:60]!r} is not an address: write host:port")
    return found["ipv6"] or found["host"], int(found["port"])


def _checked_key(value: str) -> str:
    key_of(value)
    return value


def _checked_address(value: str) -> str:
    address(value)
    return value


Name = Annotated[str, AfterValidator(check_name)]
Key = Annotated[str, AfterValidator(_checked_key)]
Address = Annotated[str, AfterValidator(_checked_address)]


class Member(toml.Strict):
    name: Name
    key: Key
    roles: tuple[Role, ...] = Field(strict=False)


class Former(toml.Strict):
    """A key that a member once had, or that of a former member.

    It is accepted for objects of jobs of earlier revisions and does not authorise connections: see
    `Membership.signers_for`.
    """

    name: Name
    key: Key


class ServerEntry(toml.Strict):
    number: int = Field(ge=0, le=3)
    member: Name
    key: Key
    api: Address
    mesh: Address


class MembershipFile(toml.Strict):
    """The content of federation.toml."""

    name: str
    revision: int = Field(ge=1)
    server: tuple[ServerEntry, ...] = Field(default=(), strict=False)
    member: tuple[Member, ...] = Field(default=(), strict=False)
    former: tuple[Former, ...] = Field(default=(), strict=False)

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not _FEDERATION.fullmatch(value):
            raise ValueError(
                f"{value[:70]!r} is not a valid federation name: use at most 60 letters, digits, dots and dashes"
            )
        return value

    @model_validator(mode="after")
    def _apart(self) -> Self:
        keys: dict[str, str] = {}
        for name, key in [(s.member, s.key) for s in self.server] + [(m.name, m.key) for m in self.member]:
            if keys.setdefault(name, key) != key:
                raise ValueError(f"{name} has two keys; a member has one")
        if len(set(keys.values())) < len(keys):
            raise ValueError("two members have the same key; each makes its own with ppca keygen")
        if len({s.number for s in self.server}) < len(self.server) or len({s.member for s in self.server}) < len(
            self.server
        ):
            raise ValueError(
                "every server has its own number and its own operator: two servers of one operator protect nothing"
            )
        if len({m.name for m in self.member}) < len(self.member):
            raise ValueError("a member is listed twice; give all its roles in one entry")
        for former in self.former:
            owner = next((name for name, key in keys.items() if key == former.key), None)
            if owner is not None:
                raise ValueError(f"the former key of {former.name} is the key of {owner} now")
        return self


class Membership:
    """The content of a membership file, with its bytes and the operators' signatures."""

    def __init__(self, data: bytes, signatures: dict[str, bytes], label: str = MEMBERSHIP_FILE) -> None:
        self.file = toml.parse(MembershipFile, data, label)
        self.data = data
        self.signatures = signatures
        self.digest = sha256(data)
        self.earlier: dict[str, Membership] = {}
        """Earlier revisions that were used here, by digest (`remember`)."""

    @classmethod
    def load(cls, path: Path) -> Self:
        """Load from a folder or a file, with federation.sigs of the same folder. Does not check signatures."""
        path = path / MEMBERSHIP_FILE if path.is_dir() else path
        return cls(toml.read(path), read_signatures(path.with_name(SIGNATURES_FILE)), str(path))

    @classmethod
    def trusted(cls, path: Path) -> Self:
        """Load a file and raise `FileRefused` unless it is complete and signed by all four operators."""
        membership = cls.load(path)
        lacking = membership.faults()
        if lacking:
            raise FileRefused(f"{path}: {'; '.join(lacking)}.")
        return membership

    def faults(self) -> list[str]:
        """Return what is missing until members can use the file."""
        found = []
        if sorted(self.servers) != list(SERVERS):
            found.append(f"four servers are needed, there are {len(self.servers)}: ppca federation add --server")
        if self.revision == 1 and self.file.former:
            whose = " and ".join(sorted({former.name for former in self.file.former}))
            found.append(f"revision 1 lists former keys of {whose}: a first revision has none, remove them")
        unsigned = [server.member for server in self.servers.values() if not self.is_signed_by(server.member)]
        if unsigned:
            whose = " and ".join(unsigned)
            found.append(
                f"revision {self.file.revision} is not signed by {whose}: each operator runs ppca federation sign"
            )
        return found

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def revision(self) -> int:
        return self.file.revision

    @cached_property
    def servers(self) -> dict[int, ServerEntry]:
        return {server.number: server for server in self.file.server}

    @cached_property
    def keys(self) -> dict[str, bytes]:
        """Pinned key of every member."""
        found = {server.member: key_of(server.key) for server in self.file.server}
        return found | {member.name: key_of(member.key) for member in self.file.member}

    @cached_property
    def signers(self) -> dict[str, list[bytes]]:
        """All keys whose signatures can count for a member: its present and its former keys."""
        found = {name: [key] for name, key in self.keys.items()}
        for former in self.file.former:
            found.setdefault(former.name, []).append(key_of(former.key))
        return found

    @cached_property
    def present(self) -> dict[str, list[bytes]]:
        """Present key of every member."""
        return {name: [key] for name, key in self.keys.items()}

    def signers_for(self, federation: str) -> dict[str, list[bytes]]:
        """Return the keys that count for objects of a job. federation: the digest of the revision that the job is for.

        For a job of this revision these are the present keys: a key that was replaced because it was stolen must not
        sign for new jobs. Objects of jobs of earlier revisions can have been signed with former keys.
        """
        return self.present if federation == self.digest else self.signers

    def remember(self, folder: Path) -> None:
        """Store this revision in a folder, and read the earlier ones there. A damaged file counts as missing."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{self.digest}.toml"
        if not path.exists():
            write_signatures(path.with_suffix(".sigs"), self.signatures, 0o600)
            write_whole(path, self.data, 0o600)
        for each in folder.glob("*.toml"):
            with suppress(OSError, FederationError):
                found = Membership(toml.read(each), read_signatures(each.with_suffix(".sigs")), str(each))
                if found.digest == each.stem and found.revision < self.revision and not found.faults():
                    self.earlier[found.digest] = found

    def of_job(self, federation: str) -> Membership:
        """The latest revision with the operators of the revision in which a job was proposed; this one if that is not
        known."""
        then = self.earlier.get(federation)
        same = [
            each for each in (self, *self.earlier.values()) if then is not None and each.operators == then.operators
        ]
        return max(same, key=lambda each: each.revision, default=self)

    @cached_property
    def operators(self) -> dict[int, str]:
        """Name of the operator of each server."""
        return {server.number: server.member for server in self.file.server}

    def server_of(self, member: str) -> int | None:
        return next((number for number, name in self.operators.items() if name == member), None)

    def roles(self, member: str) -> tuple[str, ...]:
        own = next((m.roles for m in self.file.member if m.name == member), ())
        return (*own, "operator") if self.server_of(member) is not None else own

    def is_signed_by(self, member: str) -> bool:
        return self.is_signed_with(self.keys[member], member)

    def is_signed_with(self, key: bytes, member: str) -> bool:
        """Return whether a member has signed the file with this key."""
        return signed_by(key, self.signatures.get(member, b""), statement(self.data))

    def vouches_for(self, other: Membership) -> bool:
        """Return whether this revision's operators signed another revision, with a present or former key."""
        theirs = [(server.member, key_of(server.key)) for server in other.file.server]
        ours = set(self.operators.values())
        known = all(name in ours and key in self.signers[name] for name, key in theirs)
        return self.digest == other.digest or (self.name == other.name and known and not other.faults())

    def unknown_former_keys(self, before: Membership) -> list[str]:
        """Return the members with a former key that the previous revision does not list for them, as present or
        former."""
        known = before.signers
        return sorted({f.name for f in self.file.former if key_of(f.key) not in known.get(f.name, [])})

    def check_identity(self, identity: Identity) -> None:
        """Raise `FederationError` if this file does not list the identity."""
        pinned = self.keys.get(identity.name)
        if pinned is None:
            raise FileRefused(f"{identity.name} is not a member of {self.name}, revision {self.revision}.")
        if pinned != identity.public:
            raise FileRefused(
                f"the key of {identity.name} is not the one that {self.name}, revision {self.revision}, pins "
                f"({words(pinned)}); this one is {words(identity.public)}."
            )


def statement(data: bytes) -> bytes:
    """Return the bytes that operators sign."""
    return b"ppca federation 1\0" + bytes.fromhex(sha256(data))


def read_signatures(path: Path) -> dict[str, bytes]:
    if not path.exists():
        return {}
    try:
        found = json.loads(toml.read(path))
        return {str(name): base64.b64decode(text, validate=True) for name, text in dict(found).items()}
    except (ValueError, TypeError, RecursionError):
        raise FileRefused(f"{path} is not a file of signatures; sign again with ppca federation sign.") from None


def write_signatures(path: Path, signatures: dict[str, bytes], mode: int = 0o644) -> None:
    whole = {name: base64.b64encode(value).decode() for name, value in sorted(signatures.items())}
    write_whole(path, (json.dumps(whole, indent=1) + "\n").encode(), mode)


def render(file: MembershipFile) -> bytes:
    """Return the text of federation.toml."""
    text = [
        "# Members of a federation and their pinned keys. Signed by the four operators in federation.sigs.\n"
        "# After every change: increase the revision; all four operators sign again (ppca federation sign).\n",
        toml.lines({"name": file.name, "revision": file.revision}),
    ]
    text += [
        "[[server]]\n" + toml.lines(server.model_dump())
        for server in sorted(file.server, key=lambda server: server.number)
    ]
    text += ["[[member]]\n" + toml.lines(member.model_dump()) for member in file.member]
    text += ["[[former]]\n" + toml.lines(former.model_dump()) for former in file.former]
    return "\n".join(text).encode()


def line_of(identity: Identity) -> str:
    """Return the line that `ppca keygen` prints for federation.toml."""
    return f"{identity.name} {key_text(identity.public)}"
