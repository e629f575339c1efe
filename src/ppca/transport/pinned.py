"""TLS with pinned keys: every member of a federation has one Ed25519 key; there is no certificate authority.

A member signs a short-lived leaf certificate (P-256) for itself. The other side builds one trust anchor in memory for
each pinned key: OpenSSL takes an anchor's key and name as they are and does not check its signature. A leaf is accepted
only if the key pinned for a member signed it directly, and issuer, subject and DNS name (``<member>.ppca``) all name
that member.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from .errors import CertificateError, server_name

LEAF_VALIDITY = timedelta(hours=24)
"""Time for which a leaf is valid."""

CLOCK_SKEW = timedelta(minutes=5)
"""Time by which a leaf is valid before it is issued, for clocks that differ."""

_SUFFIX = ".ppca"
_MEMBER = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_ALWAYS = (
    datetime(2000, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, tzinfo=UTC),
)  # a pin is valid until its line is removed
_PURPOSES = [x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CLIENT_AUTH]


@dataclass(frozen=True)
class Leaf:
    """A member's certificate and its key, in PEM format and in memory only."""

    certificate: bytes
    key: bytes = field(repr=False)

    @property
    def expires(self) -> datetime:
        """End of validity."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc


def throwaway_keys(names: Mapping[int, str]) -> list[PinnedTls]:
    """Return the TLS sides of servers on one machine, by seat. The keys that sign their leaves are not kept."""
    keys = {name: Ed25519PrivateKey.generate() for name in names.values()}
    pins = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    return [PinnedTls(issue_leaf(names[seat], keys[names[seat]]), pins, names) for seat in sorted(names)]


def issue_leaf(
    name: str, key: Ed25519PrivateKey, validity: timedelta = LEAF_VALIDITY, *, start: datetime | None = None
) -> Leaf:
    """Issue a leaf for the member ``name``, signed by its pinned key and valid from ``start`` (now) on."""
    _check_name(name)
    start = start or datetime.now(UTC)
    own = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(name, name, own.public_key(), start - CLOCK_SKEW, start + validity)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name + _SUFFIX)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_PURPOSES), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, None)
    )
    return Leaf(certificate.public_bytes(Encoding.PEM), private_pem(own))


@dataclass(frozen=True)
class PinnedTls:
    """One member's side of TLS: its leaf, the pinned raw keys of all members, and the member of each seat.

    Contexts are cheap: make a new one if the leaf was renewed or the pins have changed.
    """

    leaf: Leaf
    pins: Mapping[str, bytes]
    names: Mapping[int, str] = field(default_factory=dict)

    remedy: ClassVar[str] = "both ends need the same membership file, a correct clock and their own keys"

    def __post_init__(self) -> None:
        for name, pin in self.pins.items():
            _check_name(name)
            if len(pin) != 32:
                raise CertificateError(f"the key pinned for {name!r} has {len(pin)} bytes instead of 32; copy it again")
        if len(set(self.pins.values())) != len(self.pins):
            raise CertificateError("two members have the same pinned key; each member needs its own key")

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """Return the object that `as_data` described."""
        return cls(
            Leaf(data["certificate"].encode(), data["key"].encode()),
            {name: bytes.fromhex(pin) for name, pin in data["pins"].items()},
            {int(seat): name for seat, name in data["names"].items()},
        )

    def as_data(self) -> dict[str, Any]:
        """Return plain data for a process that uses this side. They contain the key of the leaf."""
        return {
            "certificate": self.leaf.certificate.decode(),
            "key": self.leaf.key.decode(),
            "pins": {name: pin.hex() for name, pin in self.pins.items()},
            "names": {str(seat): name for seat, name in self.names.items()},
        }

    def context(self, *, dialing: bool) -> ssl.SSLContext:
        """Return the TLS context for the dialing or listening side.

        Raises CertificateError if the own leaf is not valid.
        """
        self._check_leaf()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if dialing else ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = (
            False  # both directions are checked alike, by member_of and check_seat, or `dialing_to`
        )
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        if not dialing:
            context.num_tickets = 0  # sessions are never resumed
        if self.pins:
            context.load_verify_locations(cadata=b"".join(_anchor(name, pin) for name, pin in self.pins.items()))
        _load_leaf(context, self.leaf)
        return context

    def dialing_to(self, member: str) -> tuple[ssl.SSLContext, str]:
        """Return a context that accepts only this member, and the server name to give to TLS with it."""
        context = self.context(dialing=True)
        context.check_hostname = True
        return context, member + _SUFFIX

    def is_current(self, leaf: bytes, member: str) -> bool:
        """Return whether the key pinned for a member signed this leaf (DER), and it is valid now."""
        if member not in self.pins:
            return False
        start, end, signed = _examined(leaf, self.pins[member])
        return signed and start <= datetime.now(UTC) <= end

    def check_server(self, sock: ssl.SSLSocket, seat: int, peer: int) -> None:
        """Raise CertificateError unless the other end is the member with the seat ``peer``."""
        certificate: Any = sock.getpeercert() or {}
        found = self.member_of(certificate)
        if found != self.names.get(peer):
            raise CertificateError(
                f"{server_name(seat)} expected {self.names.get(peer, 'no member')!r} on {server_name(peer)}, but the "
                f"other end is {found!r}; check the addresses and that all servers have the same membership file",
                seat,
                peer,
            )
        leaf = x509.load_der_x509_certificate(sock.getpeercert(binary_form=True) or b"")
        if not _signed(leaf, self.pins[found]):
            raise CertificateError(f"the key pinned for {found!r} did not sign its certificate itself; {self.remedy}")

    def member_of(self, peercert: Mapping[str, Any]) -> str:
        """Return the member whose pinned key signed the verified leaf ``peercert`` (``getpeercert()`` with a context of
        this class).
        """
        issuer, subject = _common_name(peercert.get("issuer")), _common_name(peercert.get("subject"))
        names = peercert.get("subjectAltName", ())
        if issuer is None or issuer not in self.pins or issuer != subject or names != (("DNS", issuer + _SUFFIX),):
            said = ", ".join(f"{kind} {value!r}" for kind, value in names) or "no name"
            raise CertificateError(
                f"a certificate of {subject!r} for {said}, issued by {issuer!r}, does not identify a member of "
                f"the federation; {self.remedy}"
            )
        return issuer

    def _check_leaf(self) -> None:
        """Raise CertificateError if the own leaf is not valid now or not signed by the pinned key."""
        leaf = x509.load_pem_x509_certificate(self.leaf.certificate)
        now = datetime.now(UTC)
        if not leaf.not_valid_before_utc <= now <= leaf.not_valid_after_utc:
            raise CertificateError(
                f"this member's leaf is valid from {leaf.not_valid_before_utc:%Y-%m-%d %H:%M} to "
                f"{leaf.not_valid_after_utc:%Y-%m-%d %H:%M} UTC only; issue a new one, and check the clock"
            )
        name = str(leaf.issuer.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)
        pin = self.pins.get(name)
        if pin is not None and not _signed(leaf, pin):
            raise CertificateError(
                f"the key of this member is not the one pinned for {name!r}; use the identity whose key is in the "
                "membership file, or have the line changed"
            )


def _anchor(name: str, pin: bytes) -> bytes:
    """Return a trust anchor (DER) with a pinned key, for leaves of this member only.

    Its own signing key is discarded.
    """
    public = Ed25519PublicKey.from_public_bytes(pin)
    constraints = x509.NameConstraints(permitted_subtrees=[x509.DNSName(name + _SUFFIX)], excluded_subtrees=None)
    return (
        _builder(name, name, public, *_ALWAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .add_extension(constraints, critical=True)
        .sign(Ed25519PrivateKey.generate(), None)
        .public_bytes(Encoding.DER)
    )


def _builder(
    subject: str, issuer: str, public: ec.EllipticCurvePublicKey | Ed25519PublicKey, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    """Return a certificate builder with the common fields."""
    return (
        x509.CertificateBuilder()
        .subject_name(_distinguished_name(subject))
        .issuer_name(_distinguished_name(issuer))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _load_leaf(context: ssl.SSLContext, leaf: Leaf) -> None:
    """Load a leaf from an anonymous file in memory: Python loads keys from files only."""
    with os.fdopen(os.memfd_create("leaf", os.MFD_CLOEXEC), "wb") as file:
        file.write(leaf.key + leaf.certificate)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


@lru_cache(1024)
def _examined(leaf: bytes, pin: bytes) -> tuple[datetime, datetime, bool]:
    """Return the validity of a leaf (DER), and whether this key signed it. Cached: it is needed for every request."""
    found = x509.load_der_x509_certificate(leaf)
    return found.not_valid_before_utc, found.not_valid_after_utc, _signed(found, pin)


def _signed(leaf: x509.Certificate, pin: bytes) -> bool:
    """Return whether the pinned key signed this certificate."""
    with suppress(InvalidSignature):
        Ed25519PublicKey.from_public_bytes(pin).verify(leaf.signature, leaf.tbs_certificate_bytes)
        return True
    return False


def _common_name(name: Any) -> str | None:
    """Return the common name if it is the only part of a name in the form of ``getpeercert``."""
    match name:
        case ((("commonName", str(value)),),):
            return value
    return None


def _check_name(name: str) -> None:
    """Refuse invalid member names."""
    if not _MEMBER.fullmatch(name):
        raise CertificateError(
            f"{name!r} is not a valid member name; use up to 63 lower-case letters, digits and hyphens, such as 'north'"
        )


def _distinguished_name(common_name: str) -> x509.Name:
    """Return a name with only a common name."""
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key in PEM format."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return the key usage of a leaf or of a trust anchor."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
