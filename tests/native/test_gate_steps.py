"""What a server does between the messages of a gate and of a reshare: against Python integers and the streams' definition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ppca.native._kernels as k

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


# -- shared random bits ------------------------------------------------------------------------------------------------


def shared_bits(n: int, limbs: int, op: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Runs all four servers; returns their shares and their columns' bits."""
    rows, columns = [k.Key(bytes([1] * 16)), k.Key(bytes([2] * 16))], [k.Key(bytes([3] * 16)), k.Key(bytes([4] * 16))]
    data = [np.zeros((2, n, limbs), np.uint64) for _ in range(4)]
    bits = [np.zeros((n + 7) // 8, np.uint8) for _ in range(4)]
    sizes = [k.bit_messages(n, seat) for seat in range(4)]
    offers = [np.zeros((size[0], limbs), np.uint64) for size in sizes]
    choices = [np.zeros((size[1], limbs), np.uint64) for size in sizes]
    for seat in range(4):
        k.bits_out(data[seat], bits[seat], offers[seat], choices[seat], seat, rows[seat // 2], columns[seat % 2], op)
    for seat in range(4):
        assert sizes[seat][2:] == (len(offers[seat ^ 3]), len(choices[seat ^ 2]))
        k.bits_in(data[seat], bits[seat], offers[seat ^ 3].tobytes(), choices[seat ^ 2].tobytes(), seat)
    return data, bits


@given(n=st.integers(0, 70), limbs=LIMBS, op=st.integers(1, 50))
def test_shared_random_bits(n: int, limbs: int, op: int) -> None:
    data, bits = shared_bits(n, limbs, op)
    modulus = 2 ** (64 * limbs)
    assert np.array_equal(bits[0], bits[2])
    assert np.array_equal(bits[1], bits[3])
    random = np.unpackbits(bits[0] ^ bits[1], bitorder="little")[:n].tolist()
    for split, same, other in ((0, (0, 1), (2, 3)), (1, (0, 2), (1, 3))):
        for line in (same, other):
            assert np.array_equal(data[line[0]][split], data[line[1]][split])
        sums = zip(integers(data[same[0]][split]), integers(data[other[0]][split]), strict=True)
        assert [(a + b) % modulus for a, b in sums] == random


def test_shared_random_bits_are_balanced_and_their_shares_uniform() -> None:
    n = 4096
    data, bits = shared_bits(n, 2, 1)
    near = 6 * np.sqrt(n) / 2
    assert abs(int(np.unpackbits(bits[0] ^ bits[1]).sum()) - n / 2) < near
    for share in (half for seat in data for half in seat):
        ones = np.unpackbits(share.view(np.uint8).reshape(n, 16), axis=1).sum(axis=0).astype(int)
        assert np.abs(ones - n / 2).max() < near


@given(n=st.integers(0, 90), limbs=LIMBS, seed=st.integers(0, 99))
def test_bits_opened_under_random_ones(n: int, limbs: int, seed: int) -> None:
    """mask_bits and unmask_bits: shares of c ^ r out of shares of r, for c opened in two halves of two parts each."""
    data, bits = shared_bits(n, limbs, 1)
    rng = np.random.default_rng(seed)
    half = min(n, -(-n // 16) * 8)
    wanted = rng.integers(0, 2, n)
    random = np.unpackbits(bits[0] ^ bits[1], bitorder="little")[:n]
    public = [np.packbits((wanted ^ random)[part], bitorder="little") for part in (slice(0, half), slice(half, n))]
    noise = [rng.integers(0, 256, len(part), dtype=np.uint8) for part in public]
    for seat in range(4):
        a, b = noise
        k.unmask_bits(data[seat], half, a, (public[0] ^ a).tobytes(), b.tobytes(), public[1] ^ b, seat)
    for split, other in ((0, 2), (1, 1)):
        sums = zip(integers(data[0][split]), integers(data[other][split]), strict=True)
        assert [(a + b) % 2 ** (64 * limbs) for a, b in sums] == wanted.tolist()


def test_mask_bits() -> None:
    shares, own = words(1, 5).view(np.uint8), words(2, 5).view(np.uint8)
    here, there = np.empty_like(shares), np.empty_like(shares)
    k.mask_bits(here, there, shares, own, KEY, 9)
    assert np.array_equal(here, shares ^ own)
    assert np.array_equal(there, here ^ stream(9, 2, 6).view(np.uint8)[: len(here)])
