"""Tags: AES-CMAC against the `cryptography` package, and the order in which rows travel."""

from __future__ import annotations

import secrets
from unittest import mock

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC
from hypothesis import given
from hypothesis import strategies as st

from ppca.owner.alignment import tags as module
from ppca.owner.alignment.ids import IdError, normalise_ids
from ppca.owner.alignment.tags import make_tags, order_of

WORDS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=80)


def cmac(key: bytes, message: bytes) -> bytes:
    reference = CMAC(AES(key))
    reference.update(message)
    return reference.finalize()


@given(st.binary(min_size=16, max_size=16), st.lists(WORDS, min_size=1, max_size=20))
def test_a_tag_is_the_cmac_of_the_id(key: bytes, words: list[str]) -> None:
    """Lengths of one to twenty blocks, whole and padded, beside each other."""
    ids = normalise_ids(words)
    wanted = [cmac(key, ids.data[a:b].tobytes()) for a, b in zip(ids.offsets[:-1], ids.offsets[1:], strict=True)]
    assert [tag.tobytes() for tag in make_tags(ids, key)] == wanted


def test_blocks_of_every_fill() -> None:
    key, words = secrets.token_bytes(16), ["x" * n for n in range(1, 70)]
    assert [tag.tobytes() for tag in make_tags(normalise_ids(words), key)] == [cmac(key, w.encode()) for w in words]


def test_memory_is_bounded_by_passes() -> None:
    """Many ids and one that is long: several passes, the same tags."""
    key, words = secrets.token_bytes(16), ["x" * 4000, *map(str, range(3000))]
    whole = make_tags(normalise_ids(words), key)
    with mock.patch.object(module, "CHUNK_BYTES", 1 << 12):
        assert np.array_equal(make_tags(normalise_ids(words), key), whole)


def test_tags_of_two_jobs_have_nothing_in_common() -> None:
    ids = normalise_ids(np.arange(5000))
    first, second = (make_tags(ids, secrets.token_bytes(16)) for _ in range(2))
    assert not np.isin(first, second).any()


def test_a_key_has_sixteen_bytes() -> None:
    with pytest.raises(ValueError, match="15 bytes"):
        make_tags(normalise_ids([1]), bytes(15))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40))
def test_duplicates_are_counted(numbers: list[int]) -> None:
    extra = len(numbers) - len(set(numbers))
    tags = make_tags(normalise_ids(np.array(numbers)), bytes(16))
    if extra:
        with pytest.raises(IdError, match=f"owner 3: {extra} ids occur more than once"):
            order_of(tags, "owner 3")
    else:
        ranked = [tuple(tag) for tag in tags[order_of(tags, "owner 3")].tolist()]
        assert ranked == sorted(ranked)


def test_ids_equal_after_normalisation_are_duplicates() -> None:
    ids = normalise_ids(["Zoë", "Zoe\u0308 ", "Max"])
    with pytest.raises(IdError, match="1 ids occur more than once"):
        order_of(make_tags(ids, bytes(16)), "school")


def test_equal_first_halves_are_put_in_order() -> None:
    tags = np.array([[5, 9], [5, 1], [2, 7], [5, 4]], np.uint64)
    assert tags[order_of(tags, "x")].tolist() == [[2, 7], [5, 1], [5, 4], [5, 9]]
