"""How owners agree on a key that the servers, who carry their messages, never see.

Every owner has a long-term Ed25519 identity; the public identities of all owners are in the job.
1. Each owner draws an ephemeral X25519 key and publishes it, signed together with the job's name and its own.
2. Everybody checks all signatures. The transcript is the hash of the job, the identities and the ephemeral keys.
3. The first owner draws the group key and sends it to every other owner under ChaCha20-Poly1305 with a key derived (HKDF-SHA256)
   from their X25519 secret and the transcript.
4. The key of the tags is derived from the group key and the transcript.

Security: authenticated key exchange with forward secrecy against whoever carries the messages; owners trust each other with the
key (each of them could read tags anyway). A message that was changed, reordered between jobs or signed by a stranger is refused.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ..errors import OwnerError

KEY_BYTES = 16


class AgreementError(OwnerError):
    """The owners could not agree on a key; no id has left an owner."""


def public_bytes(key: Ed25519PublicKey | X25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


@dataclass
class KeyAgreement:
    """One owner's part in the agreement of one job. Messages are bytes; the caller carries them."""

    job: str
    name: str
    identity: Ed25519PrivateKey
    identities: Mapping[str, bytes]
    _ephemeral: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)

    def __post_init__(self) -> None:
        if self.name not in self.identities:
            raise AgreementError(f"{self.name} is not among the owners of the job {self.job!r}")
        if public_bytes(self.identity.public_key()) != self.identities[self.name]:
            raise AgreementError(f"{self.name}: the identity key is not the one that the job names for this owner")

    @property
    def order(self) -> list[str]:
        return sorted(self.identities)

    def hello(self) -> bytes:
        """Step 1: the signed ephemeral key."""
        key = public_bytes(self._ephemeral.public_key())
        return key + self.identity.sign(self._statement(self.name, key))

    def _statement(self, name: str, key: bytes) -> bytes:
        return b"ppca owner key\0" + _framed(self.job.encode(), name.encode(), key)

    def _transcript(self, hellos: Mapping[str, bytes]) -> tuple[bytes, dict[str, X25519PublicKey]]:
        """Step 2: all ephemeral keys, checked, and the hash that binds everything."""
        keys: dict[str, X25519PublicKey] = {}
        parts = [self.job.encode()]
        for name in self.order:
            message = hellos.get(name)
            if message is None or len(message) != 32 + 64:
                raise AgreementError(f"the message of {name} is missing or malformed; ask {name} to start again")
            try:
                identity = Ed25519PublicKey.from_public_bytes(self.identities[name])
                identity.verify(message[32:], self._statement(name, message[:32]))
            except ValueError:
                raise AgreementError(f"the identity that the job names for {name} is no Ed25519 key") from None
            except InvalidSignature:
                raise AgreementError(f"the signature of {name} is wrong: somebody else sent that message") from None
            keys[name] = X25519PublicKey.from_public_bytes(message[:32])
            parts += [name.encode(), self.identities[name], message[:32]]
        return hashlib.sha256(_framed(*parts)).digest(), keys

    def offers(self, hellos: Mapping[str, bytes]) -> tuple[dict[str, bytes], bytes]:
        """Step 3, for the first owner: one encrypted group key for every other owner, and the key of the tags."""
        transcript, keys = self._transcript(hellos)
        if self.name != self.order[0]:
            raise AgreementError(f"{self.order[0]} makes the group key, not {self.name}")
        group = secrets.token_bytes(32)
        sealed = {}
        for name in self.order[1:]:
            wrapping = self._wrapping(keys[name], transcript, name)
            sealed[name] = ChaCha20Poly1305(wrapping).encrypt(bytes(12), group, transcript)  # the key is used once
        return sealed, _derive(group, transcript, b"tags")

    def accept(self, hellos: Mapping[str, bytes], offer: bytes) -> bytes:
        """Step 4, for the others: the key of the tags."""
        transcript, keys = self._transcript(hellos)
        wrapping = self._wrapping(keys[self.order[0]], transcript, self.name)
        try:
            group = ChaCha20Poly1305(wrapping).decrypt(bytes(12), offer, transcript)
        except InvalidTag:
            raise AgreementError(
                "the group key does not open: it was made for another job or changed on its way"
            ) from None
        return _derive(group, transcript, b"tags")

    def _wrapping(self, other: X25519PublicKey, transcript: bytes, receiver: str) -> bytes:
        try:
            shared = self._ephemeral.exchange(other)
        except ValueError:
            raise AgreementError("an owner sent a key that no honest owner sends; nothing was agreed") from None
        info = b"ppca wrap\0" + receiver.encode()
        return HKDF(algorithm=hashes.SHA256(), length=32, salt=transcript, info=info).derive(shared)


def _derive(group: bytes, transcript: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=transcript, info=b"ppca " + purpose).derive(group)


def _framed(*parts: bytes) -> bytes:
    """Unambiguous concatenation."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def agree(job: str, names: list[str]) -> dict[str, bytes]:
    """The whole agreement between owners of one process (a local run, tests): the key as every owner has it."""
    identities = {name: Ed25519PrivateKey.generate() for name in names}
    public = {name: public_bytes(key.public_key()) for name, key in identities.items()}
    owners = {name: KeyAgreement(job, name, key, public) for name, key in identities.items()}
    hellos = {name: owner.hello() for name, owner in owners.items()}
    first = sorted(names)[0]
    offers, key = owners[first].offers(hellos)
    return {name: key if name == first else owners[name].accept(hellos, offers[name]) for name in names}
