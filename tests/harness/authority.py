"""Certificates of a small authority, as the operator of a Dask cluster makes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from ppca.transport.pinned import key_usage, private_pem


def dask_certificates(folder: Path) -> tuple[str, str, str]:
    """Write the certificate of an authority, and certificate and key of a cluster; return the three paths."""
    folder.mkdir()
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("authority", "dask")}
    names = {name: x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in keys}
    now = datetime.now(UTC)
    for name, key in keys.items():
        signs = name == "authority"
        certificate = (
            x509.CertificateBuilder()
            .subject_name(names[name])
            .issuer_name(names["authority"])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
            .add_extension(key_usage(signs_certificates=signs), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(keys["authority"].public_key()), critical=False
            )
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .sign(keys["authority"], hashes.SHA256())
        )
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / "dask.key").write_bytes(private_pem(keys["dask"]))
    return str(folder / "authority.pem"), str(folder / "dask.pem"), str(folder / "dask.key")
