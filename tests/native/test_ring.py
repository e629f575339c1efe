"""Ring kernels against Python integers: both rings, element by element; and what they refuse."""

import numpy as np
import pytest

from harness.rings import RNG, ints, ring, rings, samples, signed
from ppca.native import _kernels as kernels


@rings
@pytest.mark.parametrize("n", [0, 1, 7, 100])
def test_element_wise(limbs, n, threads):
    modulus = 1 << 64 * limbs
    x, y = samples(n, limbs), samples(n, limbs)[::-1]
    a, b = ring(x, limbs), ring(y, limbs)
    out = np.empty_like(a)
    for kernel, expected in [
        (kernels.add, [(p + q) % modulus for p, q in zip(x, y, strict=True)]),
        (kernels.sub, [(p - q) % modulus for p, q in zip(x, y, strict=True)]),
        (kernels.mul, [p * q % modulus for p, q in zip(x, y, strict=True)]),
    ]:
        kernel(out, a, b)
        assert ints(out) == expected
    kernels.neg(out, a)
    assert ints(out) == [-p % modulus for p in x]
    lo, hi = 2**64 - 59, 2**63 + 5
    kernels.scale(out, a, lo, hi)
    assert ints(out) == [p * (lo + (hi << 64)) % modulus for p in x]


@rings
def test_output_may_be_an_input(limbs):
    modulus = 1 << 64 * limbs
    x, y = samples(50, limbs), samples(50, limbs)[::-1]
    for kernel, f in [
        (kernels.add, lambda p, q: p + q),
        (kernels.sub, lambda p, q: p - q),
        (kernels.mul, lambda p, q: p * q),
    ]:
        a, b = ring(x, limbs), ring(y, limbs)
        kernel(a, a, b)
        assert ints(a) == [f(p, q) % modulus for p, q in zip(x, y, strict=True)]
        a = ring(x, limbs)
        kernel(b, a, b)
        assert ints(b) == [f(p, q) % modulus for p, q in zip(x, y, strict=True)]
        kernel(a, a, a)
        assert ints(a) == [f(p, p) % modulus for p in x]
    a = ring(x, limbs)
    kernels.neg(a, a)
    kernels.shift_right(a, a, 7, 0)
    kernels.shift_left(a, a, 3)
    kernels.mask_low(a, a, 60)
    assert ints(a) == [((-p % modulus) >> 7 << 3) % modulus % 2**60 for p in x]


@rings
def test_big_arrays_split_over_threads(limbs, threads):
    n = (1 << 19) + 3
    a = RNG.integers(0, 2**64, size=(n, limbs), dtype=np.uint64)
    b = RNG.integers(0, 2**64, size=(n, limbs), dtype=np.uint64)
    out = np.empty_like(a)
    kernels.add(out, a, b)
    low = a[:, 0] + b[:, 0]
    assert np.array_equal(out[:, 0], low)
    if limbs == 2:
        assert np.array_equal(out[:, 1], a[:, 1] + b[:, 1] + (low < a[:, 0]))


@rings
def test_shifts(limbs):
    k = 64 * limbs
    modulus = 1 << k
    x, y = samples(60, limbs), samples(60, limbs)[::-1]
    a, b = ring(x, limbs), ring(y, limbs)
    out = np.empty_like(a)
    modes = [
        lambda v, s: v >> s,
        lambda v, s: -((-v % modulus) >> s) % modulus,
        lambda v, s: (signed(v, limbs) >> s) % modulus,
    ]
    for bits in [0, 1, 31, 32, 40, 63, *([64, 65, 100, 127] if limbs == 2 else [])]:
        for mode, expected in enumerate(modes):
            kernels.shift_right(out, a, bits, mode)
            assert ints(out) == [expected(v, bits) for v in x]
            for other in (0, 1, 2):  # both splits of a product: sums, each shifted in its own mode
                both = np.stack([a, b])
                kernels.combine2(both, b.tobytes(), memoryview(a), bits, mode, other)
                sums = [(v + w) % modulus for v, w in zip(x, y, strict=True)]
                assert ints(both[0]) == [expected(v, bits) for v in sums]
                assert ints(both[1]) == [modes[other](v, bits) for v in sums]
        kernels.shift_left(out, a, bits)
        assert ints(out) == [(v << bits) % modulus for v in x]
        kernels.mask_low(out, a, bits)
        assert ints(out) == [v % (1 << bits) for v in x]
    kernels.mask_low(out, a, k)
    assert ints(out) == x


@rings
def test_two_summands_truncate_to_one_unit(limbs):
    """Shifting the two summands of x in modes 0 and 1 gives x / 2^f up to one unit, as truncation needs."""
    k, f = 64 * limbs, 20
    for x in [0, 1, -1, 5 << 20, -(5 << 20), 2**40 + 12345, -(2**40) - 12345]:
        first = [v % 2 ** (k - 1) + 2 ** (k - 2) for v in samples(40, limbs)]
        second = [(x - v) % 2**k for v in first]
        a, b = ring(first, limbs), ring(second, limbs)
        kernels.shift_right(a, a, f, 0)
        kernels.shift_right(b, b, f, 1)
        kernels.add(a, a, b)
        assert all(abs(signed(v, limbs) * 2**f - x) < 2**f for v in ints(a))


@rings
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 1), (2, 4, 7), (1, 0, 3), (0, 2, 2), (4, 9, 2), (1, 6, 0)])
def test_sum(limbs, shape):
    outer, n, inner = shape
    x = samples(outer * n * inner, limbs)
    out = np.full((outer * inner, limbs), 7, dtype=np.uint64)
    kernels.sum(out, ring(x, limbs), outer, n, inner)
    cube = np.array(x, dtype=object).reshape(shape)
    expected = [int(v) % (1 << 64 * limbs) for v in cube.sum(axis=1, initial=0).reshape(-1)]
    assert ints(out) == expected


# --- bit packing ----------------------------------------------------------------------------------------------------


@rings
@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 21])
def test_pack_bits(limbs, n):
    x = [int.from_bytes(RNG.bytes(8 * limbs), "little") for _ in range(n)]
    a = ring(x, limbs)
    for bits in range(1, 64 * limbs + 1):
        size = (n * bits + 7) // 8
        out = np.full(size + 4, 0xA5, dtype=np.uint8)
        kernels.pack_bits(out[:size], a, bits)
        stream = sum((v % 2**bits) << (i * bits) for i, v in enumerate(x))
        assert out.tobytes() == stream.to_bytes(size, "little") + b"\xa5" * 4
        back = np.empty_like(a)
        kernels.unpack_bits(back, out[:size], bits)
        assert ints(back) == [v % 2**bits for v in x]


# --- the boundary ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda o, a: kernels.add(o, a[:3], a), "a has 6 uint64 items, out has 20"),
        (lambda o, a: kernels.add(o, a, a[:3]), "b has 6 uint64 items, out has 20"),
        (lambda o, a: kernels.neg(o[:2], a), "a has 20 uint64 items, out has 4"),
        (lambda o, a: kernels.neg(o.reshape(4, 5), a), "out must have a last axis of 1 or 2 limbs"),
        (lambda o, a: kernels.neg(o, a[::-1]), "a must be a C-contiguous uint64 array"),
        (lambda o, a: kernels.neg(o, a.astype(np.int64)), "a must be a C-contiguous uint64 array"),
        (lambda o, a: kernels.neg(o, a.astype(">u8")), "a must be a C-contiguous uint64 array"),
        (lambda o, a: kernels.neg(o, [1, 2]), "a must be a C-contiguous uint64 array"),
        (lambda o, a: kernels.neg(np.asfortranarray(o), a), "out must be a writable C-contiguous uint64 array"),
        (lambda o, a: kernels.neg(np.broadcast_to(o, o.shape), a), "out must be a writable"),
        (lambda o, a: kernels.shift_right(o, a, 128, 0), "bits is 128, expected 0 to 127"),
        (lambda o, a: kernels.shift_right(o, a, -1, 0), "bits is -1, expected 0 to 127"),
        (lambda o, a: kernels.shift_right(o, a, 3, 3), "mode is 3, expected 0"),
        (lambda o, a: kernels.shift_left(o, a, 128), "bits is 128, expected 0 to 127"),
        (lambda o, a: kernels.mask_low(o, a, 129), "bits is 129, expected 0 to 128"),
        (lambda o, a: kernels.sum(o, a, 2, 5, 1), "out has 20 uint64 items, expected 2 elements of 2 limbs"),
        (lambda o, a: kernels.sum(o, a, 2, 3, 5), "a has 20 uint64 items, expected 30 elements of 2 limbs"),
        (lambda o, a: kernels.matmul(o, a, a, 1, 2, 4, 5, False, False), "a has 20 uint64 items, expected 8 elements"),
        (lambda o, a: kernels.matmul(o, a, a, 1, 2, 5, 5, False, False), "b has 20 uint64 items, expected 25 elements"),
        (lambda o, a: kernels.matmul(o, a, a, 2, 2, 5, 5, False, False), "out has 20 uint64 items, expected 20"),
        (lambda o, a: kernels.matmul(o, a, a, 1, 2**32, 2**31, 2**32, False, False), "the dimensions are too large"),
        (lambda o, a: kernels.matmul_upper(o, a, a, 4, 2, True), "out has 20 uint64 items, expected 6 elements"),
        (lambda o, a: kernels.encode(o, np.zeros(3), 40), "out has 20 uint64 items, expected 3 elements of 2 limbs"),
        (lambda o, a: kernels.encode(o, np.zeros(10, dtype=np.float32), 40), "values must be a C-contiguous float64"),
        (lambda o, a: kernels.encode(o, np.zeros(10), 900), "frac is 900, expected -800 to 800"),
        (lambda o, a: kernels.decode(np.zeros(3), a, 40), "a has 20 uint64 items, expected 3 elements of 2 limbs"),
        (lambda o, a: kernels.extend(o, a, True), "a must have 1 limb"),
        (lambda o, a: kernels.pack_bits(np.zeros(4, dtype=np.uint8), a, 9), "out has 4 bytes, expected 12 for 10 "),
        (lambda o, a: kernels.unpack_bits(o, np.zeros(4, dtype=np.uint8), 9), "in has 4 bytes, expected 12 for 10 "),
        (lambda o, a: kernels.pack_bits(np.zeros(4, dtype=np.uint8), a, 0), "bits is 0, expected 1 to 128"),
        (lambda o, a: kernels.set_threads(0), "n is 0, expected at least 1"),
    ],
)
def test_wrong_arguments_are_refused(call, message):
    out, a = np.zeros((10, 2), dtype=np.uint64), np.zeros((10, 2), dtype=np.uint64)
    with pytest.raises(ValueError, match=message):
        call(out, a)
