"""The owners' key agreement: all get one key; whoever carries the messages can change, swap or drop them, but gets nothing."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ppca.owner.alignment.agreement import AgreementError, KeyAgreement, agree, public_bytes

NAMES = ["bank", "clinic", "school"]


def owners(job: str = "job", identities: dict[str, Ed25519PrivateKey] | None = None) -> dict[str, KeyAgreement]:
    keys = identities or {name: Ed25519PrivateKey.generate() for name in NAMES}
    public = {name: public_bytes(key.public_key()) for name, key in keys.items()}
    return {name: KeyAgreement(job, name, key, public) for name, key in keys.items()}


def hellos(everybody: dict[str, KeyAgreement]) -> dict[str, bytes]:
    return {name: owner.hello() for name, owner in everybody.items()}


@pytest.mark.parametrize("count", [2, 3, 10])
def test_all_owners_get_one_key(count: int) -> None:
    keys = agree("job", [f"owner {i}" for i in range(count)])
    assert len(keys) == count
    assert len(set(keys.values())) == 1
    assert len(keys["owner 0"]) == 16


def test_keys_differ_between_jobs() -> None:
    assert agree("job", NAMES)["bank"] != agree("job", NAMES)["bank"]


def test_the_key_is_not_in_the_messages() -> None:
    everybody = owners()
    said = hellos(everybody)
    offers, key = everybody["bank"].offers(said)
    assert all(key not in message for message in (*said.values(), *offers.values()))
    assert everybody["school"].accept(said, offers["school"]) == key


@pytest.mark.parametrize("position", [0, 31, 32, 95])
def test_a_changed_hello_is_refused(position: int) -> None:
    everybody = owners()
    said = hellos(everybody)
    changed = bytearray(said["clinic"])
    changed[position] ^= 1
    with pytest.raises(AgreementError, match="clinic"):
        everybody["bank"].offers({**said, "clinic": bytes(changed)})


def test_a_missing_or_short_hello_is_refused() -> None:
    everybody = owners()
    said = hellos(everybody)
    for message in (None, b"", said["clinic"][:-1]):
        rest = {name: text for name, text in said.items() if name != "clinic"}
        with pytest.raises(AgreementError, match="clinic is missing or malformed"):
            everybody["bank"].offers(rest if message is None else {**rest, "clinic": message})


def test_a_hello_of_another_job_or_owner_is_refused() -> None:
    identities = {name: Ed25519PrivateKey.generate() for name in NAMES}
    monday, tuesday = owners("monday", identities), owners("tuesday", identities)
    said = hellos(tuesday)
    with pytest.raises(AgreementError, match="signature of school"):
        tuesday["bank"].offers({**said, "school": monday["school"].hello()})
    with pytest.raises(AgreementError, match="signature of school"):
        tuesday["bank"].offers({**said, "school": said["clinic"]})


def test_a_stranger_is_refused() -> None:
    everybody = owners()
    said = hellos(everybody)
    stranger = owners()["clinic"]
    with pytest.raises(AgreementError, match="signature of clinic"):
        everybody["bank"].offers({**said, "clinic": stranger.hello()})


def test_an_offer_opens_for_its_owner_and_transcript_only() -> None:
    everybody = owners()
    said = hellos(everybody)
    offers, _ = everybody["bank"].offers(said)
    changed = bytearray(offers["school"])
    changed[-1] ^= 1
    for offer in (bytes(changed), offers["clinic"], b""):
        with pytest.raises(AgreementError, match="does not open"):
            everybody["school"].accept(said, offer)
    restarted = {**said, "clinic": owners("job", {n: o.identity for n, o in everybody.items()})["clinic"].hello()}
    with pytest.raises(AgreementError, match="does not open"):
        everybody["school"].accept(restarted, offers["school"])


def test_only_the_first_owner_makes_the_key() -> None:
    everybody = owners()
    with pytest.raises(AgreementError, match="bank makes the group key"):
        everybody["school"].offers(hellos(everybody))


def test_wrong_identities_are_refused_at_once() -> None:
    identities = {name: Ed25519PrivateKey.generate() for name in NAMES}
    public = {name: public_bytes(key.public_key()) for name, key in identities.items()}
    with pytest.raises(AgreementError, match="not among the owners"):
        KeyAgreement("job", "thief", identities["bank"], public)
    with pytest.raises(AgreementError, match="not the one that the job names"):
        KeyAgreement("job", "bank", identities["school"], public)
    everybody = owners("job", identities)
    said = hellos(everybody)
    everybody["bank"].identities = {**public, "school": b"short"}
    with pytest.raises(AgreementError, match="no Ed25519 key"):
        everybody["bank"].offers(said)
