"""federation.toml: four operators sign exactly these bytes; no one is listed twice; unknown keys are errors."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from harness.federation import IDENTITIES, MEMBERSHIP, OPERATORS, membership, put_membership
from ppca.federation import toml
from ppca.federation.errors import FederationError, FileRefused
from ppca.federation.identity import Identity, key_text
from ppca.federation.membership import Membership, MembershipFile, address, read_signatures, render, statement

NEW_KEY = key_text(Ed25519PrivateKey.generate().public_key().public_bytes_raw())


def changed(old: str, new: str, count: int = 1) -> bytes:
    text = MEMBERSHIP.data.decode()
    assert old in text
    return text.replace(old, new, count).encode()


def test_a_signed_file_is_trusted(tmp_path: Path) -> None:
    put_membership(tmp_path, MEMBERSHIP)
    found = Membership.trusted(tmp_path)
    assert (found.digest, found.operators) == (MEMBERSHIP.digest, dict(enumerate(OPERATORS)))
    assert Membership.trusted(tmp_path / "federation.toml").digest == MEMBERSHIP.digest
    assert found.roles("north") == ("owner",)
    assert found.roles("alpha") == ("operator",)
    assert found.roles("nobody") == ()


@pytest.mark.parametrize("missing", OPERATORS)
def test_every_operator_must_sign(missing: str, tmp_path: Path) -> None:
    signatures = {name: value for name, value in MEMBERSHIP.signatures.items() if name != missing}
    put_membership(tmp_path, Membership(MEMBERSHIP.data, signatures))
    with pytest.raises(FileRefused, match=f"not signed by {missing}"):
        Membership.trusted(tmp_path)


def test_a_signature_of_another_revision_or_member_does_not_count(tmp_path: Path) -> None:
    second = membership(2)
    put_membership(tmp_path, Membership(second.data, MEMBERSHIP.signatures))
    with pytest.raises(FileRefused, match="alpha and beta and gamma and delta"):
        Membership.trusted(tmp_path)
    borrowed = MEMBERSHIP.signatures | {"delta": MEMBERSHIP.signatures["alpha"]}
    assert Membership(MEMBERSHIP.data, borrowed).faults()
    outsider = MEMBERSHIP.signatures | {"delta": IDENTITIES["nobody"].sign(statement(MEMBERSHIP.data))}
    assert Membership(MEMBERSHIP.data, outsider).faults()


@given(place=st.integers(0, len(MEMBERSHIP.data) - 1), bit=st.integers(0, 7))
def test_any_changed_bit_undoes_the_signatures(place: int, bit: int) -> None:
    data = bytearray(MEMBERSHIP.data)
    data[place] ^= 1 << bit
    with contextlib.suppress(FileRefused):
        assert Membership(bytes(data), MEMBERSHIP.signatures).faults()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("revision = 1", "revision = 0", "revision"),
        ("revision = 1", "revision = 1.0", "revision"),
        ("revision = 1", 'revision = "1"', "revision"),
        ("revision = 1", "revision = 1\nother = 2", "other"),
        ("number = 0", "number = 4", "number"),
        ("number = 1", "number = 0", "own number"),
        ("number = 0", "number = 0\nport = 2", "port"),
        ('member = "beta"', 'member = "Beta"', "not a valid member name"),
        ('member = "beta"', 'member = "../beta"', "not a valid member name"),
        ('name = "north"', 'name = "south"', "two keys"),
        ('roles = ["owner"]', 'roles = ["operator"]', "roles"),
        ('roles = ["owner"]', 'roles = ["owner"]\nadmin = true', "admin"),
        ('name = "test"', 'name = "../test"', "not a valid federation name"),
        ('name = "test"', 'name = "te/st"', "not a valid federation name"),
        ('name = "test"', 'name = ""', "not a valid federation name"),
        ("127.0.0.1:7001", "127.0.0.1", "not an address"),
        ("127.0.0.1:7001", "127.0.0.1:0", "not an address"),
        ("127.0.0.1:7001", "127.0.0.1:70000", "not an address"),
        ("127.0.0.1:7001", "user@127.0.0.1:7001", "not an address"),
        ("127.0.0.1:7001", "127.0.0.1/x:7001", "not an address"),
        ("127.0.0.1:7001", "a b:7001", "not an address"),
    ],
)
def test_what_is_refused(old: str, new: str, words: str) -> None:
    with pytest.raises(FileRefused, match=words):
        Membership(changed(old, new), {})


def test_nobody_is_there_twice() -> None:
    same_key = changed(key_text(IDENTITIES["south"].public), key_text(IDENTITIES["north"].public))
    with pytest.raises(FileRefused, match="same key"):
        Membership(same_key, {})
    again = (
        MEMBERSHIP.data
        + f'\n[[member]]\nname = "north"\nkey = "{key_text(IDENTITIES["north"].public)}"\nroles = []\n'.encode()
    )
    with pytest.raises(FileRefused, match="listed twice"):
        Membership(again, {})
    text = MEMBERSHIP.data.decode().replace('member = "beta"', 'member = "alpha"')
    text = text.replace(key_text(IDENTITIES["beta"].public), key_text(IDENTITIES["alpha"].public))
    with pytest.raises(FileRefused, match="two servers of one operator"):
        Membership(text.encode(), {})


def test_an_operator_may_have_other_roles_with_the_same_key_only() -> None:
    line = '\n[[member]]\nname = "alpha"\nkey = "{}"\nroles = ["receiver"]\n'
    both = Membership(MEMBERSHIP.data + line.format(key_text(IDENTITIES["alpha"].public)).encode(), {})
    assert both.roles("alpha") == ("receiver", "operator")
    with pytest.raises(FileRefused, match="two keys"):
        Membership(MEMBERSHIP.data + line.format(NEW_KEY).encode(), {})


def test_a_former_key_signs_but_is_nobodys_present_one() -> None:
    former = '\n[[former]]\nname = "north"\nkey = "{}"\n'
    found = Membership(MEMBERSHIP.data + former.format(NEW_KEY).encode(), {})
    assert len(found.signers["north"]) == 2
    assert found.keys["north"] == IDENTITIES["north"].public
    with pytest.raises(FileRefused, match="is the key of south now"):
        Membership(MEMBERSHIP.data + former.format(key_text(IDENTITIES["south"].public)).encode(), {})


def test_a_former_key_counts_for_jobs_of_earlier_revisions_only() -> None:
    old = IDENTITIES["nobody"].public
    later = membership(2, former=({"name": "north", "key": key_text(old)},))
    assert later.signers_for(MEMBERSHIP.digest)["north"] == [IDENTITIES["north"].public, old]
    assert later.signers_for(later.digest)["north"] == [IDENTITIES["north"].public]
    assert later.unknown_former_keys(MEMBERSHIP) == ["north"]
    assert (
        membership(
            2, left_out=("north",), former=({"name": "north", "key": key_text(IDENTITIES["north"].public)},)
        ).unknown_former_keys(MEMBERSHIP)
        == []
    )


def test_a_first_revision_has_no_former_keys() -> None:
    """Operators compare what they are shown; a hidden key would sign for another operator."""
    first = membership(1, former=({"name": "gamma", "key": NEW_KEY},))
    assert first.faults() == ["revision 1 lists former keys of gamma: a first revision has none, remove them"]


def test_nobody_is_called_servers() -> None:
    with pytest.raises(FileRefused, match="is not a valid member name"):
        Membership(MEMBERSHIP.data.replace(b'name = "north"', b'name = "servers"'), {})


def test_three_servers_are_no_federation(tmp_path: Path) -> None:
    text = MEMBERSHIP.data.decode()
    cut = text[: text.index("number = 3") - len("[[server]]\n")] + text[text.index("[[member]]") :]
    data = cut.encode()
    put_membership(tmp_path, Membership(data, {n: IDENTITIES[n].sign(statement(data)) for n in OPERATORS}))
    with pytest.raises(FileRefused, match="four servers are needed, there are 3"):
        Membership.trusted(tmp_path)


def test_an_identity_that_is_not_pinned() -> None:
    MEMBERSHIP.check_identity(IDENTITIES["north"])
    with pytest.raises(FileRefused, match="not a member of test"):
        MEMBERSHIP.check_identity(IDENTITIES["nobody"])
    with pytest.raises(FileRefused, match="is not the one that test, revision 1, pins"):
        MEMBERSHIP.check_identity(Identity("north", IDENTITIES["nobody"].key))


@pytest.mark.parametrize(
    "text", ["", "[1]", "1", '{"alpha": 1}', '{"alpha": "*"}', '{"alpha"', "null", '"a"', "[" * 100000]
)
def test_signatures_that_are_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "federation.sigs").write_text(text)
    with pytest.raises(FileRefused, match="ppca federation sign"):
        read_signatures(tmp_path / "federation.sigs")


def test_a_federation_that_nobody_has_signed(tmp_path: Path) -> None:
    assert read_signatures(tmp_path / "federation.sigs") == {}


def test_a_file_that_is_too_long_or_missing(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_bytes(b"#" * (5 << 20))
    with pytest.raises(FileRefused, match="not a file of a federation"):
        Membership.load(tmp_path)
    with pytest.raises(FileRefused, match="cannot read"):
        Membership.load(tmp_path / "none")


@pytest.mark.parametrize(
    "data", [b"\xff", b"a = ", b"a = " + b"9" * 5000, b"a = " + b"[" * 5000, b"[a]\n[a]", b"a = 1979-13-01"]
)
def test_what_is_no_toml(data: bytes) -> None:
    with pytest.raises(FederationError, match="not valid TOML"):
        Membership(data, {})


@pytest.mark.parametrize(
    ("text", "found"),
    [("a.example:1", ("a.example", 1)), ("[::1]:65535", ("::1", 65535)), ("10.0.0.1:443", ("10.0.0.1", 443))],
)
def test_addresses(text: str, found: tuple[str, int]) -> None:
    assert address(text) == found


@given(text=st.text(max_size=40))
def test_any_text_is_an_address_or_a_valueerror(text: str) -> None:
    try:
        host, port = address(text)
    except ValueError:
        return
    assert host
    assert 0 < port < 65536


def test_a_removed_member_is_none() -> None:
    second = membership(2, left_out=("north",))
    assert "north" not in second.keys
    assert second.roles("north") == ()
    assert second.digest != MEMBERSHIP.digest


def servers_of(names: Sequence[str], identities: Mapping[str, Identity]) -> tuple[dict[str, object], ...]:
    place = {"api": "127.0.0.1:7443", "mesh": "127.0.0.1:7444"}
    return tuple(
        {"number": seat, "member": name, "key": key_text(identities[name].public), **place}
        for seat, name in enumerate(names)
    )


def signed(content: dict[str, object], names: Sequence[str], identities: Mapping[str, Identity]) -> Membership:
    data = render(toml.validated(MembershipFile, content, "the federation"))
    return Membership(data, {name: identities[name].sign(statement(data)) for name in names})


def test_operators_vouch_for_what_they_signed_before_also_with_a_former_key() -> None:
    assert MEMBERSHIP.vouches_for(MEMBERSHIP)
    assert membership(3, left_out=("north",)).vouches_for(MEMBERSHIP)
    anew = Identity("gamma", Ed25519PrivateKey.generate())
    former = ({"name": "gamma", "key": key_text(IDENTITIES["gamma"].public)},)
    later = {"name": "test", "revision": 2, "server": servers_of(OPERATORS, IDENTITIES | {"gamma": anew})}
    assert signed({**later, "former": former}, OPERATORS, IDENTITIES | {"gamma": anew}).vouches_for(MEMBERSHIP)
    assert not signed(later, OPERATORS, IDENTITIES | {"gamma": anew}).vouches_for(MEMBERSHIP)


def test_nobody_vouches_for_keys_of_others_or_for_what_is_not_signed() -> None:
    others = {name: Identity(name, Ed25519PrivateKey.generate()) for name in OPERATORS}
    forged = {"name": "test", "revision": 1, "server": servers_of(OPERATORS, others)}
    assert not MEMBERSHIP.vouches_for(signed(forged, OPERATORS, others))
    owners = ("north", "south", "west", "spare")
    taken = {"name": "test", "revision": 1, "server": servers_of(owners, IDENTITIES)}
    assert not MEMBERSHIP.vouches_for(signed(taken, owners, IDENTITIES))  # members, but no operators
    second = membership(2)
    assert not MEMBERSHIP.vouches_for(Membership(second.data, MEMBERSHIP.signatures))
    other = {"name": "other", "revision": 1, "server": servers_of(OPERATORS, IDENTITIES)}
    assert not MEMBERSHIP.vouches_for(signed(other, OPERATORS, IDENTITIES))


def test_a_build_covers_the_compiled_kernels_with_all_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers with different kernels had the same build, of 64 bits."""
    from ppca.federation import build as module

    version, _, digest = module.build().partition("+")
    assert len(digest) == 64
    other = tmp_path / "kernels.so"
    other.write_bytes(Path(str(module.kernels.__file__)).read_bytes() + b"\0")
    monkeypatch.setattr(module.kernels, "__file__", str(other))
    assert module.build.__wrapped__() != f"{version}+{digest}"


def test_a_damaged_file_of_an_earlier_revision_counts_as_missing(tmp_path: Path) -> None:
    first, later = membership(), membership(2)
    first.remember(tmp_path)
    later.remember(tmp_path)
    assert list(later.earlier) == [first.digest]
    (tmp_path / f"{first.digest}.toml").write_bytes(first.data + b"# x")
    third = membership(3)
    third.remember(tmp_path)
    assert list(third.earlier) == [later.digest]
