"""TLS by pinned keys: who is let in, and that no one can be somebody else."""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from harness.four_servers import Servers, exchange, succeed
from harness.pinned import OPERATOR_OF, Members, handshake
from ppca.transport import CertificateError, Leaf, Mesh, PinnedTls, issue_leaf
from ppca.transport.pinned import _builder, key_usage, private_pem

UNKNOWN = (
    "unable to get local issuer",
    "self-signed certificate in certificate chain",
)  # OpenSSL sends the own anchor too


def forged(
    key: Ed25519PrivateKey, *, issuer: str, subject: str, names: list[str], above: list[x509.Certificate] | None = None
) -> Leaf:
    """A leaf that says what we like, signed by ``key``."""
    own = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        _builder(subject, issuer, own.public_key(), now - timedelta(hours=1), now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, None)
    )
    chain = b"".join(each.public_bytes(Encoding.PEM) for each in [certificate, *(above or [])])
    return Leaf(chain, private_pem(own))


def meet(members: Members, leaf: Leaf, pins: dict[str, bytes] | None = None) -> tuple[Any, Any]:
    """North listens; whoever holds ``leaf`` dials, trusts the true keys and skips the check of its own leaf."""
    dialing = PinnedTls(members.leaf("south"), members.pins)
    object.__setattr__(dialing, "_check_leaf", lambda: None)
    object.__setattr__(dialing, "leaf", leaf)
    return handshake(dialing.context(dialing=True), members.tls("north", pins=pins).context(dialing=False))


def refused(results: tuple[Any, Any], why: str | tuple[str, ...]) -> None:
    """The listener refused, and the dialer noticed."""
    assert isinstance(results[1], ssl.SSLCertVerificationError), results
    assert any(each in results[1].verify_message for each in (why if isinstance(why, tuple) else (why,)))
    assert isinstance(results[0], OSError)


def test_two_members_know_each_other(members: Members) -> None:
    dialer, listener = meet(members, members.leaf("south"))
    tls = members.tls("north")
    assert tls.member_of(dialer) == "north"
    assert tls.member_of(listener) == "south"


def test_a_leaf_lives_a_day_and_cannot_sign(members: Members) -> None:
    leaf = members.leaf("south")
    certificate = x509.load_pem_x509_certificate(leaf.certificate)
    now = datetime.now(UTC)
    assert timedelta(hours=23) < leaf.expires - now <= timedelta(hours=24)
    assert timedelta(minutes=4) < now - certificate.not_valid_before_utc < timedelta(minutes=6)
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert "PRIVATE" not in repr(leaf)


def test_an_outsider_is_refused(members: Members) -> None:
    refused(meet(members, issue_leaf("stranger", Ed25519PrivateKey.generate())), UNKNOWN)


def test_an_outsider_with_the_name_of_a_member_is_refused(members: Members) -> None:
    """The anchor of that name has another key."""
    refused(meet(members, issue_leaf("south", Ed25519PrivateKey.generate())), UNKNOWN)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"validity": timedelta(seconds=-1)}, "certificate has expired"),
        ({"start": datetime.now(UTC) + timedelta(hours=1)}, "certificate is not yet valid"),
    ],
)
def test_a_leaf_counts_only_in_its_time(members: Members, settings: dict[str, Any], why: str) -> None:
    leaf = members.leaf("south", **settings)
    refused(meet(members, leaf), why)
    with pytest.raises(CertificateError, match="issue a new one, and check the clock"):
        members.tls("south", leaf).context(dialing=True)


def test_a_foreign_issuer_name_is_refused(members: Members) -> None:
    """East signs a leaf that says south in all names: the anchor of south did not sign it."""
    refused(meet(members, issue_leaf("south", members.keys["east"])), UNKNOWN)


def test_a_member_cannot_sign_for_another(members: Members) -> None:
    """East signs, as itself, a leaf for south: its anchor is for its own names only."""
    leaf = forged(members.keys["east"], issuer="east", subject="south", names=["south.ppca"])
    refused(meet(members, leaf), "permitted subtree violation")


@pytest.mark.parametrize(
    ("subject", "names"), [("south", ["east.ppca"]), ("east", ["east.ppca", "east.ppca"]), ("east", ["x.east.ppca"])]
)
def test_all_names_must_agree(members: Members, subject: str, names: list[str]) -> None:
    """What OpenSSL lets pass, ``member_of`` refuses."""
    leaf = forged(members.keys["east"], issuer="east", subject=subject, names=names)
    _, listener = meet(members, leaf)
    assert isinstance(listener, dict), listener
    with pytest.raises(CertificateError, match="does not identify a member of the federation"):
        members.tls("north").member_of(listener)


@pytest.mark.parametrize("self_issued", [False, True])
def test_a_member_cannot_put_another_authority_in_between(members: Members, self_issued: bool) -> None:
    """East signs an authority called south, and that one signs a leaf of south: the path is too long."""
    middle_key = Ed25519PrivateKey.generate()
    now = datetime.now(UTC)
    subject, issuer = ("south", "south") if self_issued else ("south", "east")
    middle = (
        _builder(subject, issuer, middle_key.public_key(), now - timedelta(hours=1), now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(members.keys["east"].public_key()), critical=False
        )
        .sign(members.keys["east"], None)
    )
    leaf = forged(middle_key, issuer="south", subject="south", names=["south.ppca"], above=[middle])
    _, listener = meet(members, leaf)
    assert isinstance(listener, ssl.SSLCertVerificationError)


def test_a_wrong_pin_is_refused_by_both(members: Members) -> None:
    pins = {**members.pins, "south": Ed25519PrivateKey.generate().public_key().public_bytes_raw()}
    refused(meet(members, members.leaf("south"), pins), UNKNOWN)
    with pytest.raises(CertificateError, match="not the one pinned for 'south'; use the identity"):
        members.tls("south", pins=pins).context(dialing=True)


def test_a_removed_member_is_refused(members: Members) -> None:
    pins = {name: pin for name, pin in members.pins.items() if name != "south"}
    refused(meet(members, members.leaf("south"), pins), UNKNOWN)


def test_old_tls_versions_are_refused(members: Members) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    dialer, listener = handshake(old, members.tls("north").context(dialing=False))
    assert isinstance(dialer, ssl.SSLError)
    assert isinstance(listener, ssl.SSLError)
    assert listener.reason == "UNSUPPORTED_PROTOCOL"


def test_who_shows_no_certificate_is_refused(members: Members) -> None:
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname = False
    bare.verify_mode = ssl.CERT_NONE
    _, listener = handshake(bare, members.tls("north").context(dialing=False))
    assert isinstance(listener, ssl.SSLError)
    assert listener.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE"


@pytest.mark.parametrize("name", ["", "North", "a b", "north.ppca", "-a", "a" * 64, "a\n"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(CertificateError, match="is not a valid member name"):
        issue_leaf(name, Ed25519PrivateKey.generate())


def test_bad_pins_are_refused(members: Members) -> None:
    with pytest.raises(CertificateError, match="has 31 bytes instead of 32"):
        PinnedTls(members.leaf("north"), {"south": bytes(31)})
    with pytest.raises(CertificateError, match="each member needs its own key"):
        PinnedTls(members.leaf("north"), {"south": bytes(32), "east": bytes(32)})


def test_contexts_leave_no_descriptor_behind(members: Members) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        members.tls("north").context(dialing=True)
    assert len(os.listdir("/proc/self/fd")) == before


# Meshes


def test_a_mesh_over_pinned_keys(members: Members, grid: Servers) -> None:
    meshes = grid.connect(own=members.own())

    def talk(mesh: Mesh) -> None:
        peers = [seat for seat in OPERATOR_OF if seat != mesh.seat]
        received = exchange(mesh, {peer: [bytes([mesh.seat])] for peer in peers}, dict.fromkeys(peers, 1))
        assert {peer: payload[0] for peer, payload in received.items()} == {peer: peer for peer in peers}
        mesh.close()

    succeed(meshes, talk)


def test_a_refused_mesh_says_what_to_look_at(members: Members, grid: Servers) -> None:
    own = members.own()
    own[3] = {"tls": PinnedTls(issue_leaf("west", Ed25519PrivateKey.generate()), {}, OPERATOR_OF)}
    results = grid.connect(own=own, until=lambda found: found[3].over.is_set())
    assert isinstance(results[3], CertificateError)
    assert "does not trust the certificate of server" in str(results[3])
    assert "both ends need the same membership file, a correct clock" in str(results[3])
