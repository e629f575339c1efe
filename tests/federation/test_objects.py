"""Objects and sealed payloads: the same bytes back, and any changed byte refused."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.federation import IDENTITIES, MEMBERSHIP, job, make, membership
from ppca.federation.errors import FederationError, ObjectRefused
from ppca.federation.identity import Identity
from ppca.federation.objects import KINDS, MAGIC, MAX_BYTES, MAX_HEADER, Header, Object, sha256
from ppca.federation.sealing import PRIVATE_BYTES, PUBLIC_BYTES, SealingKey, seal
from ppca.federation.text import is_plain, plain
from ppca.jobs.checks import SpecError, is_digest
from ppca.jobs.spec import ROWS, Data
from ppca.jobs.text import is_hidden

JOB = job()
FACTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.text(max_size=10)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=3,
)


@given(
    kind=st.sampled_from(sorted(KINDS)),
    payload=st.binary(max_size=300),
    about=st.dictionaries(st.sampled_from(["to", "why", "x", "chunk"]), FACTS, max_size=3),
)
def test_an_object_comes_back(kind: str, payload: bytes, about: dict[str, Any]) -> None:
    item = make("north", kind, JOB, payload, **about)
    found = Object.parse(item.data)
    assert found == item
    assert (found.payload, found.header.about, found.header.kind) == (payload, about, kind)
    assert found.digest == sha256(item.data)
    found.check_author(MEMBERSHIP.signers)


ITEM = make("north", "envelope", JOB, bytes(range(256)), to=1, chunk=0)


def test_any_flipped_bit_is_refused() -> None:
    for place in range(len(ITEM.data)):
        data = bytearray(ITEM.data)
        data[place] ^= 1 << (place % 8)
        with pytest.raises(ObjectRefused):
            Object.parse(bytes(data)).check_author(MEMBERSHIP.signers)


def test_any_cut_and_anything_added_is_refused() -> None:
    for size in range(len(ITEM.data)):
        with pytest.raises(ObjectRefused):
            Object.parse(ITEM.data[:size]).check_author(MEMBERSHIP.signers)
    for more in (b"\0", ITEM.data[-64:], ITEM.data):
        with pytest.raises(ObjectRefused):
            Object.parse(ITEM.data + more).check_author(MEMBERSHIP.signers)


FIELDS_OF_ITEM = {name: ITEM.header.as_dict()[name] for name in ("kind", "author", "job", "about")}


@pytest.mark.parametrize("digest", [None, 7, "", "0" * 63, "g" * 64, "A" * 64])
@pytest.mark.parametrize("size", [3, None, "3", 3.0, True])
def test_a_header_needs_a_digest_and_a_size(digest: Any, size: Any) -> None:
    """A server lists headers of objects that it has: members check what it says."""
    assert Header.of(FIELDS_OF_ITEM, ITEM.digest, 3).size == 3
    with pytest.raises(ObjectRefused, match="not have a valid digest and size"):
        Header.of(FIELDS_OF_ITEM, digest, size)
    if size != 3:
        with pytest.raises(ObjectRefused, match="not have a valid digest and size"):
            Header.of(FIELDS_OF_ITEM, ITEM.digest, size)


@pytest.mark.parametrize("nested", [lambda inner: [inner], lambda inner: {"x": inner}], ids=["lists", "objects"])
def test_facts_are_nested_four_deep_at_most(nested: Callable[[Any], Any]) -> None:
    """The facts of a header are the first level."""
    facts: Any = 1
    for _ in range(3):
        facts = nested(facts)
    assert Header.of(FIELDS_OF_ITEM | {"about": {"x": facts}}, ITEM.digest, 3).about == {"x": facts}
    with pytest.raises(ObjectRefused, match="small facts"):
        Header.of(FIELDS_OF_ITEM | {"about": {"x": nested(facts)}}, ITEM.digest, 3)


def test_only_the_author_signs() -> None:
    forged = Object.make(Identity("north", IDENTITIES["south"].key), "approval", JOB.id)
    with pytest.raises(ObjectRefused, match="north did not sign"):
        forged.check_author(MEMBERSHIP.signers)
    with pytest.raises(ObjectRefused, match="not a member"):
        make("nobody", "approval", JOB).check_author(MEMBERSHIP.signers)
    with pytest.raises(ObjectRefused, match="not a member"):
        make("north", "approval", JOB).check_author(membership(2, left_out=("north",)).signers)


def signed(text: bytes, payload: bytes = b"", length: bytes | None = None) -> bytes:
    body = MAGIC + (str(len(text)).encode() if length is None else length) + b"\n" + text + b"\n" + payload
    return body + IDENTITIES["north"].sign(body)


GOOD = {"kind": "approval", "author": "north", "job": JOB.id, "about": {}}


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "gift"},
        {"kind": ["job"]},
        {"kind": {}},
        {"author": "North"},
        {"author": 7},
        {"author": None},
        {"job": JOB.id.upper()},
        {"job": JOB.id[:-1]},
        {"job": 0},
        {"about": []},
        {"about": None},
        {"about": {"a": {"b": {"c": {"d": {"e": 1}}}}}},
        {"more": 1},
    ],
)
def test_headers_that_are_none(change: dict[str, Any]) -> None:
    with pytest.raises(ObjectRefused):
        Object.parse(signed(json.dumps({**GOOD, **change}).encode()))


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"null", b"1", b"{", b"\xff", b"[" * 9000, b'{"kind": NaN}',
     json.dumps(GOOD).replace("{}", '{"x": NaN}').encode(),
     json.dumps(GOOD).replace("{}", '{"x": Infinity}').encode(), b'{"a": ' + b"9" * 5000 + b"}"],
)  # fmt: skip
def test_headers_that_are_no_json(text: bytes) -> None:
    with pytest.raises(ObjectRefused):
        Object.parse(signed(text))


@pytest.mark.parametrize(
    "length", [b"", b"-1", b"+1", b" 1", b"1e3", b"99999999", b"\xb2", str(MAX_HEADER + 1).encode(), b"0"]
)
def test_lengths_that_are_none(length: bytes) -> None:
    with pytest.raises(ObjectRefused):
        Object.parse(signed(json.dumps(GOOD).encode(), length=length))


def test_too_long() -> None:
    with pytest.raises(ObjectRefused, match="too long"):
        Object.parse(MAGIC + bytes(MAX_BYTES))


@given(data=st.binary(max_size=100))
def test_any_bytes_are_refused_by_name(data: bytes) -> None:
    with pytest.raises(FederationError):
        Object.parse(MAGIC + data)


def test_payloads_that_are_no_json() -> None:
    for payload in (b"", b"{", b"[" * 100_000, b"\xff"):
        with pytest.raises(ObjectRefused, match="not valid JSON"):
            make("north", "contribution", JOB, payload).json()


@given(value=st.text(max_size=70) | st.integers() | st.none() | st.binary())
def test_digests(value: Any) -> None:
    assert is_digest(value) == (isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef"))


# -- sealing -------------------------------------------------------------------------------------------------------------

KEY, OTHER = SealingKey(), SealingKey()
INFO: dict[str, Any] = {"what": "envelope", "job": JOB.id, "owner": "north", "server": 1, "chunk": 0}
SEALED = seal(b"a share", KEY.public, **INFO)


@given(plain=st.binary(max_size=1000))
def test_what_is_sealed_opens_for_its_reader(plain: bytes) -> None:
    assert KEY.open(seal(plain, KEY.public, **INFO), **INFO) == plain


@pytest.mark.parametrize(
    "change",
    [
        {"what": "result"},
        {"job": "0" * 64},
        {"owner": "south"},
        {"server": 2},
        {"chunk": 1},
        {"chunk": "0"},
        {"more": 1},
    ],
)
def test_for_another_purpose_it_does_not_open(change: dict[str, Any]) -> None:
    with pytest.raises(ObjectRefused, match="another reader, job or position"):
        KEY.open(SEALED, **{**INFO, **change})


@pytest.mark.parametrize("left_out", sorted(INFO))
def test_for_half_a_purpose_it_does_not_open(left_out: str) -> None:
    with pytest.raises(ObjectRefused):
        KEY.open(SEALED, **{key: value for key, value in INFO.items() if key != left_out})


def test_for_another_reader_it_does_not_open() -> None:
    with pytest.raises(ObjectRefused):
        OTHER.open(SEALED, **INFO)


def test_the_key_of_the_published_seed() -> None:
    """draft-connolly-cfrg-xwing-kem, first test vector: begin and end of the public key."""
    seed = bytes.fromhex("7f9c2ba4e88f827d616045507605853ed73b8093f6efbc88eb1a6eacfa66ef26")
    public = SealingKey.from_bytes(seed).public.hex()
    assert public.startswith("e2236b35a8c24b39b10aa1323a96a919a2ced88400633a7b07131713fc14b2b5")
    assert public.endswith("859edb06eff389b27dce59844570216223593d4ba32d9abac8cd049040ef6534")
    assert len(SealingKey().to_bytes()) == len(seed)


def test_the_purpose_does_not_depend_on_the_order_of_its_fields() -> None:
    sealed = seal(b"a share", KEY.public, job="j", server=1)
    assert KEY.open(sealed, server=1, job="j") == b"a share"


def test_a_changed_or_cut_seal_does_not_open() -> None:
    for place in range(0, len(SEALED), 7):
        changed = SEALED[:place] + bytes([SEALED[place] ^ 1]) + SEALED[place + 1 :]
        with pytest.raises(ObjectRefused):
            KEY.open(changed, **INFO)
    for size in (0, 1, 31, 32, 1087, 1088, 1119, 1120, 1121, len(SEALED) - 1):
        with pytest.raises(ObjectRefused):
            KEY.open(SEALED[:size], **INFO)
    with pytest.raises(ObjectRefused):
        KEY.open(SEALED + b"\0", **INFO)


def test_nothing_of_the_plain_text_shows_and_no_two_are_alike() -> None:
    assert b"a share" not in SEALED
    assert seal(b"a share", KEY.public, **INFO) != SEALED


@pytest.mark.parametrize("size", [0, 1, PUBLIC_BYTES - 1, PUBLIC_BYTES + 1])
def test_public_keys_that_are_none(size: int) -> None:
    with pytest.raises(ObjectRefused, match="has 1216 bytes"):
        seal(b"", bytes(size), **INFO)


@pytest.mark.parametrize("public", [bytes(PUBLIC_BYTES), b"\xff" * PUBLIC_BYTES])
def test_public_keys_that_cannot_be_used(public: bytes) -> None:
    """Refused, or sealed to a key that no one has: never another error."""
    with contextlib.suppress(ObjectRefused):
        assert b"a share" not in seal(b"a share", public, **INFO)


@pytest.mark.parametrize("size", [0, 1, PRIVATE_BYTES - 1, PRIVATE_BYTES + 1])
def test_private_keys_that_are_none(size: int) -> None:
    with pytest.raises(ObjectRefused):
        SealingKey.from_bytes(bytes(size))


def test_a_key_comes_back_and_shows_in_no_text() -> None:
    raw = KEY.to_bytes()
    assert SealingKey.from_bytes(raw).open(SEALED, **INFO) == b"a share"
    assert raw.hex() not in repr(KEY)
    assert repr(raw[:16])[2:-1] not in repr(KEY)


# -- text ----------------------------------------------------------------------------------------------------------------


HIDDEN = ["\u200b", "\u00ad", "\ufeff", "\u2060", "\U000e0041", "\u3164", "\u115f", "\u2800", "a\u200cb", "\ufe0f"]
"""Characters that are not shown; U+200C is needed after letters of some scripts only."""


@pytest.mark.parametrize(
    "odd", [*HIDDEN, "x" + "\u0489" * 200, *["\x1b[2J", "a\nb", "\x07", "\u202e", "\u2066", "\x9b1m", "\ud800", "\x7f"]]
)
def test_text_that_acts_on_a_terminal(odd: str) -> None:
    assert not is_plain(f"no {odd}")
    assert is_plain(plain(f"no {odd}"))


@pytest.mark.parametrize(
    "text", ["\u0645\u06cc\u200c\u062e", "\u0915\u094d\u200d\u0937", "e\u0301", "m\u00b2", "\u5fc3\u81d3"]
)
def test_letters_of_all_scripts_stay(text: str) -> None:
    assert is_plain(text)


@pytest.mark.parametrize("twin", ["age\u200b", "a\u00adge", "age ", "a\u0301", "age"])
def test_columns_that_look_the_same_are_refused(twin: str) -> None:
    with pytest.raises(SpecError):
        job(columns=("age", "\u00e1", twin))
    with pytest.raises(SpecError):
        Data(form=ROWS, owners=("north",), columns=("age", "\u00e1", twin))


@pytest.mark.parametrize("space", ["\u00a0", "\u2003", "\u3000", "  "])
def test_columns_that_differ_in_a_space_are_refused(space: str) -> None:
    with pytest.raises(SpecError):
        job(columns=("body mass", f"body{space}mass"))


@pytest.mark.parametrize("code", [0x180B, 0x2065, 0xFFF0, 0xFFFC, 0x1107F, 0x16FE4, 0x1D159, 0xE0000, 0xE0FFF, 0xE000])
def test_characters_that_are_not_shown_are_no_text(code: int) -> None:
    assert not is_plain(f"age{chr(code)}")
    assert plain(f"age{chr(code)}") == "age "


@given(text=st.text(alphabet=st.characters(categories=["L", "N", "P", "S", "Zs"]).filter(lambda c: not is_hidden(c))))
def test_ordinary_text_stays(text: str) -> None:
    assert is_plain(text)
    assert plain(text) == text
