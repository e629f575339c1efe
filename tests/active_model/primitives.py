"""Rings, streams, hashes and function secret sharing for the model of security with abort.

Arrays are NumPy arrays of Python integers, so that no sum or product is reduced unless the protocol reduces it.
Everything here is small and slow on purpose: the model checks algebra and checks, not speed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

BITS = 128
MOD = 1 << BITS
P127 = (1 << 127) - 1
"""Modulus of the universal hash of digests."""

Array = Any
"""A NumPy array with dtype object that holds Python integers."""


def array(values: Iterable[int]) -> Array:
    """Return a flat array of Python integers."""
    items = [int(v) for v in values]
    out = np.empty(len(items), dtype=object)
    out[:] = items
    return out


def signed(value: int, bits: int = BITS) -> int:
    """Return the representative of a residue modulo 2^bits in [-2^(bits-1), 2^(bits-1))."""
    value %= 1 << bits
    return value - (1 << bits) if value >> (bits - 1) else value


def sha(*parts: Any) -> bytes:
    """Hash labelled parts to 32 bytes. The encoding is injective, so no two inputs share a preimage."""
    return hashlib.sha256(repr(parts).encode()).digest()


def fingerprint(values: Array) -> bytes:
    """Hash an array of integers to 32 bytes."""
    return sha("array", [int(v) for v in np.ravel(values)])


class Stream:
    """A pseudo-random stream, a function of its key and label."""

    def __init__(self, key: Any, *label: Any) -> None:
        self._hash = hashlib.shake_128(repr((key, label)).encode())

    def integers(self, count: int, bits: int = BITS) -> Array:
        """Return the first `count` integers of the given width."""
        size = (bits + 7) // 8
        raw = self._hash.digest(count * size)
        cut = (1 << bits) - 1
        return array(int.from_bytes(raw[i * size : (i + 1) * size], "little") & cut for i in range(count))

    def residues(self, count: int, prime: int, low: int = 0) -> Array:
        """Return uniform residues low..prime-1, by rejection."""
        found: list[int] = []
        want = 2 * count + 64
        while len(found) < count:
            found = [int(v) for v in self.integers(want, prime.bit_length()) if low <= v < prime]
            want *= 2
        return array(found[:count])


def universal_hash(key: int, pad: int, values: Array) -> int:
    """Return the keyed digest of an array: a polynomial in `key` modulo 2^127 - 1, plus a one-time pad."""
    out = 0
    for v in np.ravel(values):
        for part in (int(v) & ((1 << 64) - 1), int(v) >> 64):
            out = (out * key + part % P127 + 1) % P127
    return (out + pad) % P127


def is_prime(n: int) -> bool:
    """Miller-Rabin with bases that make it exact below 2^64."""
    if n % 2 == 0:
        return n == 2
    d, r = n - 1, 0
    while d % 2 == 0:
        d, r = d // 2, r + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        if n == base:
            return True
        x = pow(base, d, n)
        if x in (1, n - 1):
            continue
        for _ in range(r - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def random_prime(coin: Any, bits: int) -> int:
    """Return the first prime among random odd integers of exactly this width."""
    for candidate in Stream(coin, "prime").integers(4096, bits):
        value = int(candidate) | 1 << (bits - 1) | 1
        if is_prime(value):
            return value
    raise RuntimeError("no prime among 4096 candidates")


# ---- function secret sharing -----------------------------------------------------------------------------------------
def _block(seed: int, level: int, what: bytes) -> int:
    data = b"%d,%d" % (seed, level)
    return int.from_bytes(hashlib.blake2b(data, digest_size=16, person=what).digest(), "little")


class Trees:
    """Comparison and point functions on the correlated tree of Half-Tree (the engine has the same shape with AES)."""

    words = staticmethod(lambda bits, leaf: 2 + bits if leaf else 2 * bits)

    @staticmethod
    def generate(bits: int, alpha: int, random: Sequence[int], leaf: bool, plain: int) -> list[list[int]]:
        """Return the two keys of [y < alpha], or of [y = alpha] if `leaf`. `plain` is not used."""
        first, delta = int(random[0]), int(random[1]) | 1
        seeds, words, payloads = [first, first ^ delta], [], []
        for depth in range(bits):
            bit = alpha >> (bits - 1 - depth) & 1
            control = [s & 1 for s in seeds]
            if not leaf:
                masks = [_block(s, depth, b"pay") for s in seeds]
                payloads.append((control[0] - control[1]) * (bit - masks[0] + masks[1]) % MOD)
            left = [_block(s, depth, b"tree") for s in seeds]
            word = left[0] ^ left[1] ^ (0 if bit else delta)
            words.append(word)
            left = [s ^ (word if t else 0) for s, t in zip(left, control, strict=True)]
            seeds = [s ^ (old if bit else 0) for s, old in zip(left, seeds, strict=True)]
        if leaf:
            control = [s & 1 for s in seeds]
            masks = [_block(s, bits, b"pay") for s in seeds]
            payloads.append((control[0] - control[1]) * (1 - masks[0] + masks[1]) % MOD)
        else:
            words.pop()  # nodes of the last level have no children
        return [[root, *words, *payloads] for root in (first, first ^ delta)]

    @staticmethod
    def less(column: int, key: Sequence[int], bits: int, y: int) -> tuple[int, int]:
        """Return an additive share and an exclusive-or share of [y < alpha]."""
        seed, value, bit = key[0], 0, 0
        for depth in range(bits):
            control = seed & 1
            word = key[1 + depth] if depth < bits - 1 else 0
            left = _block(seed, depth, b"tree") ^ (word if control else 0)
            if y >> (bits - 1 - depth) & 1:
                seed = left ^ seed
            else:
                share = (-1) ** column * (_block(seed, depth, b"pay") + control * key[bits + depth])
                value += share
                bit ^= share
                seed = left
        return value % MOD, bit & 1

    @staticmethod
    def point(column: int, key: Sequence[int], bits: int, y: int) -> int:
        """Return an additive share of [y = alpha]."""
        seed = key[0]
        for depth in range(bits):
            left = _block(seed, depth, b"tree") ^ (key[1 + depth] if seed & 1 else 0)
            seed = left ^ seed if y >> (bits - 1 - depth) & 1 else left
        return (-1) ** column * (_block(seed, bits, b"pay") + (seed & 1) * key[1 + bits]) % MOD


class Ideal:
    """Perfect function secret sharing: one key is a random token, the other one also holds alpha.

    The proof replaces `Trees` by this scheme. The tests of equal views use it, because the liar's key can then be
    the same for two secrets. Column `plain` gets the token alone: it is the liar's column if the liar evaluates.
    """

    words = staticmethod(lambda bits, leaf: 3)

    @staticmethod
    def generate(bits: int, alpha: int, random: Sequence[int], leaf: bool, plain: int) -> list[list[int]]:
        keys = [[int(random[0]), 1, alpha], [int(random[0]), 1, alpha]]
        keys[plain] = [int(random[0]), 0, 0]
        return keys

    @staticmethod
    def _share(key: Sequence[int], y: int, value: int) -> int:
        mask = _block(key[0], y, b"ideal")
        return (value - mask) % MOD if key[1] & 1 else mask

    @staticmethod
    def less(column: int, key: Sequence[int], bits: int, y: int) -> tuple[int, int]:
        value = int(y < key[2])
        bit = _block(key[0], y, b"bit") & 1
        return Ideal._share(key, y, value), bit ^ (value if key[1] & 1 else 0)

    @staticmethod
    def point(column: int, key: Sequence[int], bits: int, y: int) -> int:
        return Ideal._share(key, y, int(y == key[2]))
