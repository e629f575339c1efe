"""Identity files: for one user's eyes, never overwritten, refused when damaged; words that tell keys apart."""

from __future__ import annotations

import contextlib
import hashlib
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from ppca.federation.errors import FederationError, FileRefused
from ppca.federation.identity import (
    KEY_FILE,
    NAME,
    PUBLIC_BYTES,
    WORDS,
    Identity,
    check_name,
    key_of,
    key_text,
    signed_by,
    words,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Identity.create("north", tmp_path / KEY_FILE)
    return tmp_path / KEY_FILE


def test_a_key_is_its_users_alone_and_comes_back(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = Identity.load(path)
    assert found.name == "north"
    assert Identity.load(path.parent).public == found.public, "the folder is as good as the file"
    assert signed_by(found.public, found.sign(b"word"), b"word")


def test_a_key_is_never_overwritten(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(FileRefused, match="never overwritten"):
        Identity.create("north", path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o666, 0o610, 0o777])
def test_a_key_that_others_can_read_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(FileRefused, match="chmod 600"):
        Identity.load(path)


def test_a_credential_of_systemd_may_have_group_bits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd gives its service access by a list, whose mask shows as group bits. Others get nothing."""
    path.chmod(0o440)
    with pytest.raises(FileRefused, match="chmod 600"):
        Identity.load(path)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(path.parent))
    assert Identity.load(path).name == "north"
    for others in (0o1, 0o2, 0o4):
        path.chmod(0o440 | others)
        with pytest.raises(FileRefused, match="chmod 600"):
            Identity.load(path)
    path.chmod(0o440)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(path.parent.parent))
    with pytest.raises(FileRefused, match="chmod 600"):
        Identity.load(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileRefused, match="ppca keygen"):
        Identity.load(tmp_path / "none")


def test_any_cut_of_the_file_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for size in range(len(whole) - len("-----END PRIVATE KEY-----\n")):
        path.write_bytes(whole[:size])
        with pytest.raises(FileRefused, match="not a private key"):
            Identity.load(path)


@given(place=st.integers(0, 200), value=st.integers(0, 255))
def test_a_damaged_file_is_refused_or_is_another_key(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int
) -> None:
    path = tmp_path_factory.mktemp("id") / KEY_FILE
    known = Identity.create("north", path)
    data = bytearray(path.read_bytes())
    data[place % len(data)] = value
    path.write_bytes(bytes(data))
    try:
        found = Identity.load(path)
    except FileRefused:
        return
    assert NAME.fullmatch(found.name)
    assert found.name == "north" or place % len(data) < len("ppca identity of north\n"), "only the title holds the name"
    assert known.name == "north"


def test_another_kind_of_key_is_refused(path: Path) -> None:
    pem = X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(b"ppca identity of north\n" + pem)
    with pytest.raises(FileRefused, match="not a private key"):
        Identity.load(path)


@pytest.mark.parametrize(
    "name", ["", "North", "north ", "-north", "north-", "a" * 32, "nörth", "../north", "a\n", "a.b", "a/b"]
)
def test_names_that_are_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileRefused):
        check_name(name)
    with pytest.raises(FileRefused):
        Identity.create(name, tmp_path / "x")
    assert not (tmp_path / "x").exists()


@given(key=st.binary(min_size=PUBLIC_BYTES, max_size=PUBLIC_BYTES))
def test_a_public_key_as_text(key: bytes) -> None:
    assert key_of(key_text(key)) == key


@given(text=st.text(max_size=60))
def test_any_other_text_is_no_key(text: str) -> None:
    with contextlib.suppress(FederationError):
        assert key_text(key_of(text)) == text


def test_one_key_has_one_text() -> None:
    """No second spelling passes: else two lines could pin the same key."""
    text = key_text(bytes(range(32)))
    for other in (text + "=", text.upper(), text[:-1] + chr(ord(text[-1]) + 1), " " + text, text + "\n", text[8:]):
        with pytest.raises(FileRefused):
            key_of(other)


def test_words_tell_keys_apart() -> None:
    keys = [bytes([n]) * 32 for n in range(200)]
    found = {words(key) for key in keys}
    assert len(found) == len(keys)
    assert all(len(text.split()) == WORDS and set(map(len, text.split())) == {5} for text in found)
    assert words(keys[0]) == words(keys[0])


def test_words_hold_the_first_eighty_bits_of_the_hash() -> None:
    """Two versions of the program show the same words, and each word says 16 other bits: no search for a key is easier."""
    for n in range(50):
        key = bytes([n]) * 32
        bits = "".join(
            f"{'bdfghjklmnprstvz'.index(letter):04b}" if place % 2 == 0 else f"{'aiou'.index(letter):02b}"
            for word in words(key).split()
            for place, letter in enumerate(word)
        )
        assert int(bits, 2).to_bytes(10, "big") == hashlib.sha256(b"ppca words\0" + key).digest()[:10]


def test_a_signature_of_another_or_of_something_else_does_not_count() -> None:
    key, other = (Identity("a", _key()), Identity("b", _key()))
    assert not signed_by(other.public, key.sign(b"x"), b"x")
    assert not signed_by(key.public, key.sign(b"x"), b"y")
    for odd in (b"", b"\0" * 64, key.sign(b"x")[:-1], key.sign(b"x") + b"\0"):
        assert not signed_by(key.public, odd, b"x")
    assert not signed_by(b"short", key.sign(b"x"), b"x")


def _key() -> object:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.generate()


def test_a_private_key_shows_in_no_text(path: Path) -> None:
    found = Identity.load(path)
    secret = found.key.private_bytes_raw()
    assert secret.hex() not in repr(found)
    assert repr(secret) not in repr(found)
