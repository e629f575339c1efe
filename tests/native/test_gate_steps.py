"""What a server does between the messages of a gate and of a reshare: against Python integers and the streams' definition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import ppca.native._kernels as k
import pytest
from hypothesis import given
from hypothesis import strategies as st

KEY = k.Key(bytes(range(16)))
COUNTS = st.integers(0, 150)
BITS = st.integers(1, 128)
LIMBS = st.sampled_from([1, 2])


def words(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, shape, dtype=np.uint64)


def integers(a: np.ndarray) -> list[int]:
    """Ring elements (last axis = limbs, low first) as Python integers."""
    return [sum(int(w) << (64 * i) for i, w in enumerate(row)) for row in a.reshape(-1, a.shape[-1]).tolist()]


def stream(op: int, purpose: int, *shape: int) -> np.ndarray:
    out = np.empty(shape, np.uint64)
    k.prg(out, KEY, op, purpose)
    return out


def unpacked(packed: np.ndarray, n: int, bits: int) -> list[int]:
    whole = int.from_bytes(packed.tobytes(), "little")
    return [whole >> (i * bits) & (2**bits - 1) for i in range(n)]


def packed(values: list[int], bits: int) -> bytes:
    whole = sum(value << (i * bits) for i, value in enumerate(values))
    return whole.to_bytes((len(values) * bits + 7) // 8, "little")


@given(n=COUNTS, bits=BITS, limbs=LIMBS, seed=st.integers(0, 99))
def test_deal_masks(n: int, bits: int, limbs: int, seed: int) -> None:
    shares = words(seed, n, limbs)
    alpha, seeds = np.empty((n, 2), np.uint64), np.empty((n, 4), np.uint64)
    opened = np.empty((n * bits + 7) // 8, np.uint8)
    k.deal_masks(alpha, seeds, opened, shares, KEY, 7, bits)
    masks = [x % 2**bits for x in integers(stream(7, 0, n, 2))]
    assert integers(alpha) == masks
    assert np.array_equal(seeds, stream(7, 1, n, 4))
    assert unpacked(opened, n, bits) == [(a + x) % 2**bits for a, x in zip(masks, integers(shares), strict=True)]


@given(n=COUNTS, bits=BITS, limbs=LIMBS, seed=st.integers(0, 99), data=st.data())
def test_masked_points(n: int, bits: int, limbs: int, seed: int, data: st.DataObject) -> None:
    firsts = data.draw(st.integers(0, n))
    offset = data.draw(st.integers(0, 2**128 - 1))
    shares = words(seed, n, limbs)
    values = [x % 2**bits for x in integers(words(seed + 1, n, 2))]
    m = np.empty((n, 2), np.uint64)
    # Messages come as any buffer: bytes, bytearray, a view that starts at an odd address.
    first, second = packed(values[:firsts], bits), bytearray(b"x" + packed(values[firsts:], bits))
    k.masked_points(m, first, memoryview(second)[1:], firsts, shares, offset % 2**64, offset >> 64, bits)
    expected = [(v + x + offset) % 2**bits for v, x in zip(values, integers(shares), strict=True)]
    assert integers(m) == expected


@given(own=st.integers(0, 60), theirs=st.integers(0, 60), outputs=st.integers(1, 3), limbs=LIMBS, first=st.booleans())
def test_reshare_makes_both_splits_of_the_sum(own: int, theirs: int, outputs: int, limbs: int, first: bool) -> None:
    n, modulus = own + theirs, 2 ** (64 * limbs)
    start = 0 if first else theirs
    pieces = [words(column, own, outputs, limbs) for column in (0, 1)]
    data = [np.zeros((2, n, outputs, limbs), np.uint64) for _ in (0, 1)]
    messages = [np.empty((2, own, outputs, limbs), np.uint64) for _ in (0, 1)]
    for column in (0, 1):
        k.reshare_out(data[column], start, messages[column], pieces[column], KEY, 5, column)
    here = slice(start, start + own)
    row = [integers(d[0, here]) for d in data]
    assert row[0] == row[1]
    columns = [integers(d[1, here]) for d in data]
    value = [(a + b) % modulus for a, b in zip(integers(pieces[0]), integers(pieces[1]), strict=True)]
    assert [(a + b) % modulus for a, b in zip(*columns, strict=True)] == value
    # Nothing else of data is touched.
    rest = np.delete(data[0], np.arange(n)[here], axis=1)
    assert not rest.any()
    # The other row: the column mate brings the column share and its half, the diagonal the other half.
    if not own:
        return
    other = [np.zeros_like(data[0]) for _ in (0, 1)]
    for column in (0, 1):
        mate, diagonal = messages[column], messages[1 - column]
        k.reshare_in(other[column], start, own, mate.tobytes(), diagonal[1].tobytes())
        assert integers(other[column][1, here]) == columns[column]
        other_row = integers(other[column][0, here])
        assert [(a + b) % modulus for a, b in zip(row[0], other_row, strict=True)] == value


def refused() -> dict[str, tuple[Callable[[], None], str]]:
    two, four = np.zeros((3, 2), np.uint64), np.zeros((3, 4), np.uint64)
    opened, shares = np.zeros(3, np.uint8), np.zeros((3, 2), np.uint64)
    data, message = np.zeros((2, 3, 1, 2), np.uint64), np.zeros((2, 3, 1, 2), np.uint64)
    return {
        "opened too small": (lambda: k.deal_masks(two, four, opened[:2], shares, KEY, 1, 8), "opened has 2"),
        "no bits": (lambda: k.deal_masks(two, four, opened, shares, KEY, 1, 0), "bits is 0"),
        "wrong seeds": (lambda: k.deal_masks(two, two, opened, shares, KEY, 1, 8), "seeds has 6"),
        "short message": (
            lambda: k.masked_points(two, b"a", b"b", 1, shares, 0, 0, 8),
            "second has 1 bytes, expected 2",
        ),
        "too many firsts": (lambda: k.masked_points(two, b"abcd", b"", 4, shares, 0, 0, 8), "more than all"),
        "past the end": (lambda: k.reshare_out(data, 1, message, message[0], KEY, 1, 0), "do not fit"),
        "small message": (lambda: k.reshare_out(data, 0, message[:1], message[0], KEY, 1, 0), "message has 6"),
        "one split": (lambda: k.reshare_out(data[:1], 0, message, message[0], KEY, 1, 0), "two splits"),
        "wrong bytes": (lambda: k.reshare_in(data, 0, 3, bytes(96), bytes(40)), "diagonal has 40 bytes, expected 48"),
        "too many": (lambda: k.reshare_in(data, 0, 4, bytes(128), bytes(64)), "do not fit"),
    }


@pytest.mark.parametrize("case", refused())
def test_wrong_arguments_are_refused(case: str) -> None:
    call, message = refused()[case]
    with pytest.raises(ValueError, match=message):
        call()
