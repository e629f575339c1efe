"""Certificates: what is written, with which permissions, and that unfit files are named with the remedy."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from ppca.transport import CertificateError, create_certificates
from ppca.transport.certificates import check_certificate

NAMES = ["seat-0.ppca", "seat-1.ppca"]


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("issued")
    assert create_certificates(directory, NAMES) == directory / "authority.pem"
    return directory


def check(directory: Path, certificate: str = "seat-0.ppca.pem", key: str = "seat-0.ppca.key") -> None:
    check_certificate(directory / "authority.pem", directory / certificate, directory / key)


def test_files_and_permissions(issued: Path) -> None:
    found = {str(path.relative_to(issued)): path.stat().st_mode & 0o777 for path in issued.rglob("*")}
    assert found == {
        "authority": 0o700,
        "authority/authority.key": 0o600,
        "authority.pem": 0o644,
        "seat-0.ppca.pem": 0o644,
        "seat-0.ppca.key": 0o600,
        "seat-1.ppca.pem": 0o644,
        "seat-1.ppca.key": 0o600,
    }
    check(issued)


def test_a_certificate_names_its_seat_and_cannot_sign(issued: Path) -> None:
    certificate = x509.load_pem_x509_certificate((issued / "seat-1.ppca.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["seat-1.ppca"]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_nothing_is_overwritten(issued: Path) -> None:
    before = (issued / "authority.pem").read_bytes()
    with pytest.raises(CertificateError, match="choose a new directory"):
        create_certificates(issued, NAMES)
    assert (issued / "authority.pem").read_bytes() == before


@pytest.mark.parametrize(
    "names", [["Seat-0"], ["../escape"], ["a b"], [""], ["x", "x"], ["authority"], ["-a"], ["a" * 300]]
)
def test_bad_names_are_refused(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(CertificateError, match="name"):
        create_certificates(tmp_path / "new", names)
    assert not (tmp_path / "new").exists()


def test_an_existing_authority_signs_more(issued: Path, tmp_path: Path) -> None:
    create_certificates(tmp_path, ["owner-bank.ppca"], authority=issued)
    check_certificate(issued / "authority.pem", tmp_path / "owner-bank.ppca.pem", tmp_path / "owner-bank.ppca.key")
    assert not (tmp_path / "authority").exists()


def test_unfit_files_are_named(issued: Path, tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"cannot read .*missing.pem: No such file"):
        check(issued, "missing.pem")
    with pytest.raises(CertificateError, match=r"the key in .*seat-1.ppca.key does not belong to .*seat-0.ppca.pem"):
        check(issued, key="seat-1.ppca.key")
    with pytest.raises(CertificateError, match="is not a certificate in PEM format"):
        check(issued, certificate="seat-0.ppca.key")
    with pytest.raises(CertificateError, match="is not an unencrypted private key in PEM format"):
        check(issued, key="seat-0.ppca.pem")
    create_certificates(tmp_path, NAMES)
    with pytest.raises(CertificateError, match=r"is not signed by the authority in .*authority.pem"):
        check_certificate(issued / "authority.pem", tmp_path / "seat-0.ppca.pem", tmp_path / "seat-0.ppca.key")


def test_an_expired_certificate_is_refused_at_loading(issued: Path, tmp_path: Path) -> None:
    create_certificates(tmp_path, ["old.ppca"], validity=timedelta(seconds=-1), authority=issued)
    with pytest.raises(CertificateError, match=r"old.ppca.pem expired at .* UTC; create new ones"):
        check_certificate(issued / "authority.pem", tmp_path / "old.ppca.pem", tmp_path / "old.ppca.key")
