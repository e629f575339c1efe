"""Sealing of bytes to one reader: HPKE (RFC 9180) with the hybrid of ML-KEM-768 and X25519.

An attacker must break both to read sealed bytes. Servers and receivers make a key for every job and publish its public
half in their offer. Sealed bytes are bound to their purpose by `info` and cannot be opened for another purpose.
Destroying the private key makes everything sealed to it unreadable, including copies.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

from .errors import ObjectRefused

SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
LATTICE_PUBLIC, LATTICE_PRIVATE, CURVE = 1184, 64, 32
PUBLIC_BYTES = LATTICE_PUBLIC + CURVE
PRIVATE_BYTES = 32


@dataclass(frozen=True)
class SealingKey:
    """A key pair for one job, derived from one seed as in X-Wing (draft-connolly-cfrg-xwing-kem)."""

    seed: bytes = field(default_factory=lambda: secrets.token_bytes(PRIVATE_BYTES), repr=False)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        if len(raw) != PRIVATE_BYTES:
            raise ObjectRefused(f"a sealing key has {PRIVATE_BYTES} bytes, got {len(raw)}")
        return cls(raw)

    def to_bytes(self) -> bytes:
        return self.seed

    @cached_property
    def _pair(self) -> tuple[MLKEM768PrivateKey, X25519PrivateKey]:
        long = hashlib.shake_256(self.seed).digest(LATTICE_PRIVATE + CURVE)
        lattice = MLKEM768PrivateKey.from_seed_bytes(long[:LATTICE_PRIVATE])
        return lattice, X25519PrivateKey.from_private_bytes(long[LATTICE_PRIVATE:])

    @property
    def public(self) -> bytes:
        lattice, curve = self._pair
        return lattice.public_key().public_bytes_raw() + curve.public_key().public_bytes_raw()

    def open(self, sealed: bytes, **info: Any) -> bytes:
        """Decrypt bytes that were sealed to this key for exactly this purpose; otherwise raise ObjectRefused."""
        try:
            found: bytes = SUITE.decrypt(sealed, MLKEM768X25519PrivateKey(*self._pair), _info(info))
        except (InvalidTag, ValueError):
            raise ObjectRefused(
                "cannot open a sealed object: it was made for another reader, job or position"
            ) from None
        return found


def seal(plain: bytes, public: bytes, **info: Any) -> bytes:
    """Seal bytes to a public key. info: the purpose, which must be the same to open them."""
    if len(public) != PUBLIC_BYTES:
        raise ObjectRefused(f"a public sealing key has {PUBLIC_BYTES} bytes, got {len(public)}")
    try:
        lattice = MLKEM768PublicKey.from_public_bytes(public[:LATTICE_PUBLIC])
        curve = X25519PublicKey.from_public_bytes(public[LATTICE_PUBLIC:])
        sealed: bytes = SUITE.encrypt(plain, MLKEM768X25519PublicKey(lattice, curve), _info(info))
    except ValueError:
        raise ObjectRefused("the key in an offer is invalid; its author must offer again") from None
    return sealed


def is_usable(public: bytes) -> bool:
    """Return whether these bytes are a public half to which something can be sealed."""
    try:
        seal(b"", public, what="test")
    except ObjectRefused:
        return False
    return True


def _info(info: dict[str, Any]) -> bytes:
    return b"ppca seal 1\0" + json.dumps(info, sort_keys=True, separators=(",", ":")).encode()
