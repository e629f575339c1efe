"""Ring kernels against Python integers: both rings, every level of the matrix product forced."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppca.native import _kernels as kernels

LEVELS = ["portable", "avx2", "avx512ifma", "emulated-ifma"]
RNG = np.random.default_rng(20240607)

rings = pytest.mark.parametrize("limbs", [1, 2])


@pytest.fixture(params=LEVELS)
def level(request):
    """Pins the matrix product to one level."""
    if request.param not in kernels.ring_levels():
        pytest.skip(f"level {request.param} is not usable on this machine")
    kernels.force_ring(request.param)
    yield request.param
    kernels.force_ring("auto")


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = kernels.threads()
    kernels.set_threads(request.param)
    yield request.param
    kernels.set_threads(before)


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


# --- matrix products ------------------------------------------------------------------------------------------------


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


# --- fixed point ----------------------------------------------------------------------------------------------------


def half_even(value):
    floor = value.numerator // value.denominator
    rest = value - floor
    return floor + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and floor % 2 == 1))


def check_encode(value, frac, limbs):
    out = np.empty((1, limbs), dtype=np.uint64)
    code = kernels.encode(out, np.array([value]), frac)
    exact = half_even(Fraction(value) * Fraction(2) ** frac)
    half = 1 << (64 * limbs - 1)
    if -half <= exact < half:
        assert code == -1
        assert signed(ints(out)[0], limbs) == exact
    else:
        assert code == 0


@rings
@settings(max_examples=300, deadline=None)
@given(value=st.floats(allow_nan=False, allow_infinity=False), frac=st.integers(-200, 200))
def test_encode_any_double(limbs, value, frac):
    check_encode(value, frac, limbs)


@rings
@settings(max_examples=300, deadline=None)
@given(value=st.floats(-4, 4), frac=st.integers(0, 130))
def test_encode_usual_range(limbs, value, frac):
    check_encode(value, frac, limbs)


@rings
def test_encode_edges(limbs):
    k = 64 * limbs
    top = 2.0 ** (k - 1)
    for value in [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999999999999994, 5e-324, -5e-324, top, -top,
                  np.nextafter(top, 0), -np.nextafter(top, 2 * top), np.nextafter(-top, 0)]:  # fmt: skip
        check_encode(float(value), 0, limbs)
    out = np.empty((4, limbs), dtype=np.uint64)
    for bad in [np.nan, np.inf, -np.inf, top]:
        assert kernels.encode(out, np.array([1.0, -2.0, bad, bad]), 0) == 2
    assert kernels.encode(out[:0], np.empty(0), 40) == -1
    big = np.zeros(1 << 18)
    big[[200_000, 70_000, 250_000]] = np.nan
    assert kernels.encode(np.empty((1 << 18, limbs), dtype=np.uint64), big, 40) == 70_000


@rings
def test_decode_is_the_nearest_double(limbs):
    k = 64 * limbs
    values = samples(300, limbs)
    ties = [(2**53 + i) << s | 1 << (s - 1) for i in (0, 1, 2, 3) for s in (1, 5, 9)]
    near_ties = [t + e for t in ties for e in (-1, 1)]
    values += [v % 2**k for t in ties + near_ties for v in (t, -t)]
    out = np.empty(len(values))
    for frac in [0, 20, 40, 112, -3]:
        kernels.decode(out, ring(values, limbs), frac)
        expected = [float(Fraction(signed(v, limbs)) / Fraction(2) ** frac) for v in values]
        assert out.tolist() == expected


@rings
def test_encode_decode_round_trip(limbs):
    values = RNG.normal(size=1000)
    a = np.empty((1000, limbs), dtype=np.uint64)
    assert kernels.encode(a, values, 40) == -1
    back = np.empty(1000)
    kernels.decode(back, a, 40)
    assert np.abs(back - values).max() <= 2.0**-41


def test_extend():
    x = samples(40, 1)
    out = np.empty((40, 2), dtype=np.uint64)
    kernels.extend(out, ring(x, 1), False)
    assert ints(out) == x
    kernels.extend(out, ring(x, 1), True)
    assert ints(out) == [signed(v, 1) % 2**128 for v in x]


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
