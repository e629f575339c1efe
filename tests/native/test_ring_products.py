"""Matrix products in both rings against Python integers, every level forced."""

import numpy as np
import pytest

from harness.rings import RNG, dense, ints, ring, rings
from ppca.native import _kernels as kernels

LEVELS = ["portable", "avx2", "avx512ifma", "emulated-ifma"]


@pytest.fixture(params=LEVELS)
def level(request):
    """Pins the matrix product to one level."""
    if request.param not in kernels.ring_levels():
        pytest.skip(f"level {request.param} is not usable on this machine")
    kernels.force_ring(request.param)
    yield request.param
    kernels.force_ring("auto")


def product(a, b, batch, n, k, m, a_shared, b_shared, limbs):
    """The oracle: Python integers through object arrays."""
    left = np.array(ints(a), dtype=object).reshape((1 if a_shared else batch), n, k)
    right = np.array(ints(b), dtype=object).reshape((1 if b_shared else batch), k, m)
    modulus = 1 << 64 * limbs
    out = []
    for i in range(batch):
        p = left[0 if a_shared else i].dot(right[0 if b_shared else i]) if k else np.zeros((n, m), dtype=object)
        out += [int(v) % modulus for v in p.reshape(-1)]
    return out


SHAPES = [
    (1, 1, 1),
    (1, 9, 1),
    (1, 20, 17),
    (2, 3, 40),
    (3, 3, 3),
    (5, 2, 8),
    (4, 8, 8),
    (7, 33, 9),
    (13, 30, 1),
    (13, 30, 3),
    (12, 16, 10),
    (17, 40, 27),
    (8, 1, 8),
    (9, 20, 15),
    (6, 12, 14),
    (70, 5, 13),
    (33, 150, 21),
    (0, 3, 3),
    (3, 0, 9),
    (9, 4, 0),
]


@rings
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matmul(limbs, shape, level):
    n, k, m = shape
    a, b = dense(n * k, limbs), dense(k * m, limbs)
    out = np.full((n * m, limbs), 7, dtype=np.uint64)
    kernels.matmul(out, a, b, 1, n, k, m, False, False)
    assert ints(out) == product(a, b, 1, n, k, m, False, False, limbs)


@rings
@pytest.mark.parametrize("a_shared", [False, True])
@pytest.mark.parametrize("b_shared", [False, True])
@pytest.mark.parametrize("shape", [(2, 2, 2), (3, 5, 11), (6, 20, 16), (1, 7, 1)], ids=str)
def test_matmul_batch(limbs, a_shared, b_shared, shape, level):
    n, k, m = shape
    batch = 3
    a = dense((1 if a_shared else batch) * n * k, limbs)
    b = dense((1 if b_shared else batch) * k * m, limbs)
    out = np.empty((batch * n * m, limbs), dtype=np.uint64)
    kernels.matmul(out, a, b, batch, n, k, m, a_shared, b_shared)
    assert ints(out) == product(a, b, batch, n, k, m, a_shared, b_shared, limbs)


@rings
@pytest.mark.parametrize("value", [2**128 - 1, 2**127, 2**64 - 1, 2**32 - 1, (2**32 - 1) << 32, 2**52 - 1])
def test_matmul_long_sums_of_extremes(limbs, value, level):
    """Columns of partial products must be folded before they overflow, however long the sum."""
    n, k, m = 9, 2500, 11
    modulus = 1 << 64 * limbs
    a = ring([value % modulus], limbs).repeat(n * k, axis=0)
    b = ring([value % modulus], limbs).repeat(k * m, axis=0)
    out = np.empty((n * m, limbs), dtype=np.uint64)
    kernels.matmul(out, a, b, 1, n, k, m, False, False)
    assert ints(out) == [k * value * value % modulus] * (n * m)


@rings
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("shape", [(0, 3), (1, 4), (2, 2), (5, 0), (7, 9), (8, 8), (19, 31), (40, 6)], ids=str)
def test_matmul_upper(limbs, strict, shape, level):
    n, k = shape
    a, b = dense(n * k, limbs), dense(k * n, limbs)
    full = np.array(product(a, b, 1, n, k, n, False, False, limbs), dtype=object).reshape(n, n)
    expected = [int(full[i, j]) for i in range(n) for j in range(i + strict, n)]
    guard = 3
    out = np.full((len(expected) + guard, limbs), 7, dtype=np.uint64)
    kernels.matmul_upper(out[: len(expected)], a, b, n, k, strict)
    assert ints(out) == expected + [sum(7 << 64 * i for i in range(limbs))] * guard


@rings
def test_matmul_same_in_all_levels_and_threads(limbs, level, threads):
    n = 115
    a, b = dense(2 * n * n, limbs), dense(2 * n * n, limbs)
    out = np.empty_like(a)
    kernels.matmul(out, a, b, 2, n, n, n, False, False)
    upper = np.empty((n * (n + 1) // 2, limbs), dtype=np.uint64)
    kernels.matmul_upper(upper, a[: n * n], b[: n * n], n, n, False)
    kernels.set_threads(1)
    kernels.force_ring("portable")
    expected = np.empty_like(a)
    kernels.matmul(expected, a, b, 2, n, n, n, False, False)
    assert np.array_equal(out, expected)
    i, j = np.triu_indices(n)
    assert np.array_equal(upper, expected.reshape(2, n, n, limbs)[0, i, j])


def test_matmul_of_unaligned_arrays(level):
    """Views into received frames start anywhere."""
    raw = np.frombuffer(RNG.bytes(16 * 200 + 24), dtype=np.uint8)
    for offset in [0, 1, 8]:
        a = raw[offset : offset + 16 * 100].view(np.uint64).reshape(100, 2)
        out = np.empty((100, 2), dtype=np.uint64)
        kernels.matmul(out, a, a, 1, 10, 10, 10, False, False)
        assert ints(out) == product(a, a, 1, 10, 10, 10, False, False, 2)
        kernels.add(out, a, a)
        assert ints(out) == [2 * v % 2**128 for v in ints(a)]


def test_levels():
    assert kernels.ring_levels()[-2:] == ["portable", "emulated-ifma"]
    with pytest.raises(ValueError, match="level mmx is not usable here"):
        kernels.force_ring("mmx")
