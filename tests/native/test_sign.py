"""Keys for the sign of a masked number: brute force over small domains, every level, layouts of keys, uniform views."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ppca.native._kernels as k

Keys = tuple[np.ndarray, np.ndarray]  # roots by evaluator, words
TREE = k.TreeKey(bytes(range(32)))
NONE = np.zeros(0, np.uint8)
NO_KEYS: Keys = (np.zeros((2, 0), np.uint8), NONE)


@pytest.fixture(params=k.fss_levels())
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    k.force_fss(request.param)
    yield request.param
    k.force_fss("auto")


def pairs(values: Sequence[int]) -> np.ndarray:
    """128-bit integers as pairs of words."""
    return np.array([[v & (2**64 - 1), v >> 64] for v in values], np.uint64).reshape(len(values), 2)


def random_words(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, shape, dtype=np.uint64)


def generate(alpha: np.ndarray, bits: int, seed: int = 0) -> Keys:
    n = len(alpha)
    roots, words = np.zeros((2, 16 * n), np.uint8), np.zeros(k.sign_words(n, bits), np.uint8)
    k.sign_gen(roots[0], roots[1], words, TREE, np.ascontiguousarray(alpha), bits, random_words(seed, n, 4))
    return roots, words


def shares(keys: Keys, m: np.ndarray, bits: int, more: Keys = NO_KEYS) -> list[np.ndarray]:
    """Both evaluators' bits."""
    result = []
    for party in (0, 1):
        out = np.full((len(m) + 7) // 8, 0xAA, np.uint8)
        k.sign_eval(out, TREE, party, keys[0][party], keys[1], more[0][party], more[1], m, bits)
        unpacked = np.unpackbits(out, bitorder="little")
        assert not unpacked[len(m) :].any()  # padding
        result.append(unpacked[: len(m)])
    return result


def signs(alpha: Sequence[int], m: Sequence[int], bits: int) -> np.ndarray:
    return np.array([(y - x) % 2**bits >> (bits - 1) for x, y in zip(alpha, m, strict=True)])


@pytest.mark.parametrize("bits", range(1, 7))
def test_all_points_of_small_domains(level: str, bits: int) -> None:
    alpha, m = zip(*itertools.product(range(2**bits), repeat=2), strict=True)
    a, b = shares(generate(pairs(alpha), bits), pairs(m), bits)
    assert np.array_equal(a ^ b, signs(alpha, m, bits))


@given(
    bits=st.integers(1, 128), first=st.integers(0, 60), second=st.integers(0, 60), near=st.booleans(), seed=st.integers(0, 99)
)  # fmt: skip
def test_two_dealers_any_width(bits: int, first: int, second: int, near: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = first + second
    alpha = [int.from_bytes(rng.bytes(16), "little") % 2**bits for _ in range(n)]
    m = [int.from_bytes(rng.bytes(16), "little") % 2**bits for _ in range(n)]
    if near:  # on both sides of the boundaries 0 and 2^(bits-1)
        m = [(x + int(d) + (int(h) << (bits - 1))) % 2**bits for x, d, h in
             zip(alpha, rng.integers(-2, 3, n), rng.integers(0, 2, n), strict=True)]  # fmt: skip
    words = pairs(alpha)
    keys, more = generate(words[:first], bits, seed), generate(words[first:], bits, seed + 1)
    a, b = shares(keys, pairs(m), bits, more)
    assert np.array_equal(a ^ b, signs(alpha, m, bits))


@pytest.mark.parametrize("bits", [2, 5, 72])
def test_levels_and_threads_make_the_same_keys(bits: int) -> None:
    # Pieces of a large batch go to threads, groups of lanes differ by level: neither may show in the bytes.
    n = 20_003 if bits < 72 else 2_003
    alpha, m = random_words(3, n, 2), random_words(4, n, 2)
    results = []
    for name, threads in itertools.product(k.fss_levels(), (1, 2)):
        k.force_fss(name)
        k.set_threads(threads)
        keys = generate(alpha, bits)
        results.append([*keys, *shares(keys, m, bits)])
    k.force_fss("auto")
    k.set_threads(2)
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))
    mask = (1 << bits) - 1
    numbers = [[(int(x[0]) | int(x[1]) << 64) & mask for x in values] for values in (alpha, m)]
    assert np.array_equal(results[0][2] ^ results[0][3], signs(*numbers, bits))


@pytest.mark.parametrize("alpha", [0, 1, 2**20 - 1, 2**19])
def test_the_view_of_one_evaluator_is_uniform(alpha: int) -> None:
    """Every bit of the root and of the words is balanced over 4,096 keys of one secret (6 sigma), and so is the share."""
    bits, n = 20, 4096
    roots, words = generate(pairs([alpha] * n), bits, seed=alpha)
    m = pairs([777] * n)
    near = 6 * np.sqrt(n) / 2
    for party in (0, 1):
        ones = np.unpackbits(roots[party].reshape(n, 16), axis=1).sum(axis=0).astype(int)
        assert np.abs(ones - n / 2).max() < near
    by_key = np.unpackbits(words.reshape(-1, 16), axis=1).sum(axis=0).astype(int)  # all levels together
    assert np.abs(by_key - n * (bits - 2) / 2).max() < 6 * np.sqrt(n * (bits - 2)) / 2
    for share in shares((roots, words), m, bits):
        assert abs(int(share.sum()) - n / 2) < near


def test_wrong_sizes_are_refused() -> None:
    roots, words = generate(pairs([1, 2, 3]), 8)
    m, out = pairs([1, 2, 3]), np.zeros(1, np.uint8)
    with pytest.raises(ValueError, match="words has"):
        k.sign_eval(out, TREE, 0, roots[0], words[:-16], NONE, NONE, m, 8)
    with pytest.raises(ValueError, match="roots for 3 points"):
        k.sign_eval(out, TREE, 0, roots[0][:32], words[: k.sign_words(2, 8)], NONE, NONE, m, 8)
    with pytest.raises(ValueError, match="roots has 17 bytes"):
        k.sign_eval(out, TREE, 0, roots[0][:17], words, NONE, NONE, m, 8)
    with pytest.raises(ValueError, match="party is 2"):
        k.sign_eval(out, TREE, 2, roots[0], words, NONE, NONE, m, 8)
    with pytest.raises(ValueError, match="bits is 129"):
        k.sign_gen(roots[0], roots[1], words, TREE, m, 129, random_words(0, 3, 4))
    with pytest.raises(ValueError, match="out has 1"):
        k.sign_eval(out, TREE, 0, roots[0], words, NONE, NONE, pairs([1] * 9), 8)
