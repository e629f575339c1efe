"""Certificates for the servers of one consortium: an authority of their own and one certificate per seat.

``create_certificates`` writes, with P-256 keys:

    directory/
        authority.pem             the authority's certificate: every server needs it
        <name>.pem, <name>.key    certificate and key (mode 0600): for the server of that name only
        authority/authority.key   the authority's key (mode 0600, in a directory of mode 0700): for no server; keep it
                                  off line, it signs new certificates
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .errors import CertificateError

VALIDITY = timedelta(days=365)
CLOCK_SKEW = timedelta(minutes=5)
_DNS_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def create_certificates(
    directory: Path | str,
    names: Iterable[str],
    *,
    validity: timedelta = VALIDITY,
    authority: Path | str | None = None,
) -> Path:
    """Create one certificate per DNS name, and the authority that signs them; returns the authority's certificate.

    ``authority`` is the directory of an earlier call whose authority shall sign these too, instead of a new one.
    Refuses to overwrite: certificates of a running consortium must not vanish by a repeated command.
    """
    directory = Path(directory)
    names = list(names)
    for name in names:
        if not _DNS_NAME.fullmatch(name):
            raise CertificateError(f"{name!r} is not a DNS name in lower case, such as 'seat-0.ppca'")
    if len(set(names)) != len(names) or "authority" in names:
        raise CertificateError("names of certificates must differ from each other and from 'authority'")
    directory.mkdir(parents=True, exist_ok=True)
    if authority is None:
        authority = directory
        signer, signer_key = _create_authority(directory, validity)
    else:
        authority = Path(authority)
        signer = _load_certificate(authority / "authority.pem")
        signer_key = _load_key(authority / "authority" / "authority.key")

    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key())
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    for name in names:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(distinguished_name(name), signer.subject, key.public_key(), validity)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(identifier, critical=False)
            .sign(signer_key, hashes.SHA256())
        )
        _write(directory / f"{name}.key", private_pem(key), mode=0o600)
        _write(directory / f"{name}.pem", certificate.public_bytes(Encoding.PEM), mode=0o644)
    return authority / "authority.pem"


def _create_authority(directory: Path, validity: timedelta) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = distinguished_name("ppca authority")
    certificate = (
        _builder(subject, subject, key.public_key(), validity)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    (directory / "authority").mkdir(mode=0o700, exist_ok=True)
    _write(directory / "authority" / "authority.key", private_pem(key), mode=0o600)
    _write(directory / "authority.pem", certificate.public_bytes(Encoding.PEM), mode=0o644)
    return certificate, key


def check_certificate(authority: Path | str, certificate: Path | str, key: Path | str) -> None:
    """Raise CertificateError, naming file and remedy, unless the three files fit together and are valid now."""
    authority_found = _load_certificate(authority)
    found = _load_certificate(certificate)
    for path, each in ((authority, authority_found), (certificate, found)):
        now = datetime.now(UTC)
        if now > each.not_valid_after_utc:
            raise CertificateError(f"{path} expired at {each.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; create new ones")
        if now < each.not_valid_before_utc:
            raise CertificateError(
                f"{path} is valid only from {each.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on; check the clock"
            )
    try:
        found.verify_directly_issued_by(authority_found)
    except (InvalidSignature, ValueError, TypeError) as error:
        raise CertificateError(
            f"{certificate} is not signed by the authority in {authority}; take both from the same set"
        ) from error
    private = _load_key(key)
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*form) != found.public_key().public_bytes(*form):
        raise CertificateError(f"the key in {key} does not belong to the certificate in {certificate}")


def _load_certificate(path: Path | str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise CertificateError(f"{path} is not a certificate in PEM format") from error


def _load_key(path: Path | str) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"{path} is not an unencrypted private key in PEM format") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{path} is not a key on an elliptic curve, as create_certificates makes them")
    return key


def _read(path: Path | str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CertificateError(f"cannot read {path}: {error.strerror}; check the path and its permissions") from error


def _write(path: Path, content: bytes, *, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise CertificateError(f"cannot create {path}: {error.strerror}; choose a new directory") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def distinguished_name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, validity: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + validity) - CLOCK_SKEW)
        .not_valid_after(now + validity)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
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
