"""Revisions of a federation's file: each one is signed by three of the four operators of the one before."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from harness.federation import IDENTITIES, MEMBERSHIP, OPERATORS, membership, put_membership, server_state
from ppca.federation import toml
from ppca.federation.errors import FileRefused
from ppca.federation.identity import Identity, key_text
from ppca.federation.membership import Membership, MembershipFile, render, statement
from ppca.federation.revisions import Revisions


def with_new_keys(revision: int, *names: str) -> Membership:
    """A revision in which these operators have new keys, signed by the four keys that it lists."""
    identities = IDENTITIES | {name: Identity(name, Ed25519PrivateKey.generate()) for name in names}
    content = MEMBERSHIP.file.model_dump() | {"revision": revision}
    content["server"] = tuple(seat | {"key": key_text(identities[seat["member"]].public)} for seat in content["server"])
    data = render(toml.validated(MembershipFile, content, "the federation"))
    return Membership(data, {name: identities[name].sign(statement(data)) for name in OPERATORS})


def test_one_operator_with_a_new_key(tmp_path: Path) -> None:
    revisions = Revisions(tmp_path)
    revisions.take(MEMBERSHIP)
    later = with_new_keys(2, "gamma")
    revisions.take(later)
    assert revisions.has_used(MEMBERSHIP.digest)
    assert revisions.has_used(later.digest)


@pytest.mark.parametrize("changed", [("gamma", "delta"), OPERATORS])
def test_a_revision_that_the_former_operators_did_not_sign(tmp_path: Path, changed: tuple[str, ...]) -> None:
    """All of its own keys have signed it. Whoever hands it over may have made them."""
    revisions, other = Revisions(tmp_path), with_new_keys(2, *changed)
    assert other.faults() == []
    revisions.take(MEMBERSHIP)
    with pytest.raises(FileRefused, match=f"signed by {4 - len(changed)} of the four operators of revision 1"):
        revisions.take(other)
    assert not revisions.has_used(other.digest)
    revisions.take(membership(2))
    with pytest.raises(FileRefused, match="only grows"):
        revisions.take(other, other.digest)


def test_a_revision_that_a_person_has_compared(tmp_path: Path) -> None:
    revisions, other = Revisions(tmp_path), with_new_keys(2, "gamma", "delta")
    revisions.take(MEMBERSHIP)
    with pytest.raises(FileRefused, match="3 are needed"):
        revisions.take(other, MEMBERSHIP.digest)
    revisions.take(other, other.digest)
    assert revisions.has_used(other.digest)


def test_older_revisions_are_refused_although_the_copy_is_damaged(tmp_path: Path) -> None:
    revisions = Revisions(tmp_path)
    revisions.take(membership(3))
    (tmp_path / f"{membership(3).digest}.toml").write_bytes(b"damaged")
    with pytest.raises(FileRefused, match="revision 3 was in force here, and it only grows"):
        revisions.take(membership(2))
    revisions.take(membership(4))


def test_a_running_server_keeps_its_revision(tmp_path: Path) -> None:
    running = server_state(tmp_path)
    put_membership(tmp_path, with_new_keys(2, "beta", "gamma", "delta"))
    assert not running.renew()
    assert running.membership.revision == 1
    put_membership(tmp_path, membership(2))
    assert running.renew()
    running.mailbox.close()
