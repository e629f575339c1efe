"""Doubles to fixed point and back, exactly rounded; the narrow ring in the wide one."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.rings import RNG, ints, ring, rings, samples, signed
from ppca.native import _kernels as kernels


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
@given(value=st.floats(allow_nan=False, allow_infinity=False), frac=st.integers(-200, 200))
def test_encode_any_double(limbs, value, frac):
    check_encode(value, frac, limbs)


@rings
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
