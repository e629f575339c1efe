"""Ring arrays and Python integers, for tests of the kernels."""

import numpy as np
import pytest

RNG = np.random.default_rng(20240607)

rings = pytest.mark.parametrize("limbs", [1, 2])


def ring(values, limbs):
    """Python integers to a ring array."""
    values = [int(v) for v in values]
    words = [[(v >> (64 * i)) & (2**64 - 1) for i in range(limbs)] for v in values]
    return np.array(words, dtype=np.uint64).reshape(len(values), limbs)


def ints(array):
    """A ring array to Python integers, unsigned."""
    flat = array.reshape(-1, array.shape[-1]).astype(object)
    return [sum(int(w) << (64 * i) for i, w in enumerate(row)) for row in flat]


def signed(value, limbs):
    return value - (1 << 64 * limbs) if value >> (64 * limbs - 1) else value


def samples(n, limbs):
    """n integers: the extremes of the ring first, then random ones of every magnitude."""
    k = 64 * limbs
    extremes = [0, 1, 2**k - 1, 2 ** (k - 1), 2 ** (k - 1) - 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
    extremes = [v % 2**k for v in extremes]
    words = [int.from_bytes(RNG.bytes(8 * limbs), "little") >> int(RNG.integers(0, k)) for _ in range(n)]
    return (extremes + words)[:n]


def dense(n, limbs):
    """n integers with all limbs full: random words, and now and then all ones."""
    words = RNG.integers(0, 2**64, size=(n, limbs), dtype=np.uint64)
    words[RNG.random(n) < 0.1] = np.uint64(2**64 - 1)
    return words
