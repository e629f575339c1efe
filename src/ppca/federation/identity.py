"""A member's identity: one Ed25519 key, pinned in the membership file. It signs objects and TLS leaf certificates.

The key is stored in one file of mode 0600. `words` encodes 80 bits of the hash of a public key, so that two people can
compare keys over the telephone.
"""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from ..jobs.checks import NAME
from ..protocol.opening import SERVERS
from .errors import FileRefused

KEY_FILE = "identity.key"
PREFIX = "ed25519:"
TITLE = "ppca identity of "
PUBLIC_BYTES = 32
WORDS = 5

_CONSONANTS, _VOWELS = "bdfghjklmnprstvz", "aiou"


@dataclass(frozen=True)
class Identity:
    """A member's name and private key."""

    name: str
    key: Ed25519PrivateKey

    @classmethod
    def create(cls, name: str, path: Path) -> Self:
        """Create a key in a new file. Never overwrites an existing file."""
        check_name(name)
        key = Ed25519PrivateKey.generate()
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise FileRefused(f"{path} exists, and a key is never overwritten. Choose another path with -o.") from None
        with os.fdopen(descriptor, "wb") as file:
            file.write(f"{TITLE}{name}\n".encode() + pem)
            file.flush()
            os.fsync(file.fileno())
        return cls(name, key)

    @classmethod
    def load(cls, path: Path) -> Self:
        path = path / KEY_FILE if path.is_dir() else path
        try:
            text = path.read_bytes()
        except OSError as error:
            raise FileRefused(
                f"cannot read the identity {path}: {error.strerror}. Make one with ppca keygen."
            ) from None
        if _exposed(path):
            raise FileRefused(f"{path} can be read by others: chmod 600 {path}")
        title, _, pem = text.partition(b"\n")
        try:
            name = title.decode("ascii").removeprefix(TITLE)
            key = load_pem_private_key(pem, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise FileRefused(f"{path} is not a private key that ppca keygen wrote.") from None
        if not isinstance(key, Ed25519PrivateKey) or not NAME.fullmatch(name) or title != f"{TITLE}{name}".encode():
            raise FileRefused(f"{path} is not a private key that ppca keygen wrote.")
        return cls(name, key)

    @property
    def public(self) -> bytes:
        return self.key.public_key().public_bytes_raw()

    def sign(self, statement: bytes) -> bytes:
        return self.key.sign(statement)


def _exposed(path: Path) -> bool:
    """Return whether other users can read the key.

    For a systemd credential, in a folder that only its service can enter, group bits belong to the service's own access
    entry.
    """
    place = os.environ.get("CREDENTIALS_DIRECTORY")
    credential = place is not None and path.resolve().parent == Path(place).resolve()
    return bool(path.stat().st_mode & (0o007 if credential else 0o077))


def is_name(text: str) -> bool:
    """Return whether a member can have this name. `servers` stands for the four servers in lists of openings."""
    return NAME.fullmatch(text) is not None and text != SERVERS


def check_name(name: str) -> str:
    if not is_name(name):
        raise FileRefused(
            f"{name!r} is not a valid member name: use at most 31 lower-case letters, digits and "
            f"dashes, and not {SERVERS!r}."
        )
    return name


def key_text(public: bytes) -> str:
    """Return a public key as text for federation.toml."""
    return PREFIX + base64.urlsafe_b64encode(public).decode().rstrip("=")


def key_of(text: str) -> bytes:
    """The inverse of `key_text`."""
    body = text.removeprefix(PREFIX)
    try:
        found = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except ValueError:
        found = b""
    if len(found) != PUBLIC_BYTES or key_text(found) != text:
        raise FileRefused(f"{text[:60]!r} is not a public key: copy the line that ppca keygen printed.")
    return found


def words(public: bytes) -> str:
    """Return five words that encode 80 bits of the key's hash, 16 bits each (proquints), to compare keys by
    telephone."""
    digest = hashlib.sha256(b"ppca words\0" + public).digest()
    numbers = [int.from_bytes(digest[2 * i : 2 * i + 2], "big") for i in range(WORDS)]
    return " ".join(_word(number) for number in numbers)


def _word(number: int) -> str:
    letters = []
    for width, table in ((4, _CONSONANTS), (2, _VOWELS), (4, _CONSONANTS), (2, _VOWELS), (4, _CONSONANTS)):
        letters.append(table[number & ((1 << width) - 1)])
        number >>= width
    return "".join(reversed(letters))


def signed_by(public: bytes, signature: bytes, statement: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True
