"""What an owner sends, against exact arithmetic: mantissas and exponents, factors of sums, rows for inference, and refusals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppca.algorithms.joint_covariance import COUNT_BITS, ROOT_FRAC
from ppca.algorithms.scales import HALF_BITS, MANTISSA_BITS, NONE
from ppca.jobs.input_types import RAW
from ppca.native import ring
from ppca.owner.errors import BadValue, OwnerError
from ppca.owner.moments import Moments, moments
from ppca.owner.rows import cut, in_units, new_rows, scaled_factor, share_numbers, share_sums
from ppca.owner.tables.opening import open_table
from ppca.protocol import InputPacket, RingType
from ppca.protocol.inputs import receive


def plain(packets: list[InputPacket]) -> list[int]:
    """What was shared, as signed integers: servers (0,0) and (1,1) together hold both summands of both splits."""
    first, second = receive(packets[0], 0, 0), receive(packets[3], 1, 1)
    both = [ring.add(first[split], second[split]) for split in (0, 1)]
    assert np.array_equal(both[0], both[1])
    whole = [int(low) + (int(high) << 64) for low, high in both[0].reshape(-1, 2)]
    return [value - (1 << 128) if value >> 127 else value for value in whole]


numbers = st.one_of(st.just(0.0), st.floats(1e-300, 1e300), st.floats(1e-300, 1e300).map(lambda x: -x))


@given(value=numbers, part=st.floats(-0.5, 0.5))
def test_numbers_travel_with_eighty_bits(value: float, part: float) -> None:
    """A double and the rest that rounding it left, up to half of its last bit."""
    rest = part * np.spacing(value) if value else 0.0
    exponent, mantissa, upper = (plain(packets)[0] for packets in share_numbers(np.array([value]), np.array([rest])))
    if not value:
        assert (exponent, mantissa, upper) == (NONE, 0, 0)
        return
    exact = (Fraction(value) + Fraction(rest)) / Fraction(2) ** exponent
    assert Fraction(1, 2) <= abs(Fraction(value) / Fraction(2) ** exponent) < 1
    assert abs(Fraction(mantissa, 1 << MANTISSA_BITS) - exact) <= Fraction(1, 1 << MANTISSA_BITS)
    assert abs(Fraction(upper, 1 << HALF_BITS) - exact) <= Fraction(2, 1 << HALF_BITS)


@pytest.mark.parametrize("kind", ["full", "singular", "zero", "singular and zero", "scales apart"])
def test_factors_of_sums(kind: str) -> None:
    """R'R is the sums in units of the deviations' powers of two: to a few last bits of the product of two deviations."""
    x = np.random.default_rng(2).standard_normal((12, 4))
    if kind == "singular":
        x[:, 2] = x[:, 0] - x[:, 1]
    if kind == "zero":
        x[:, 1] = 5
    if kind == "singular and zero":
        x[:, 0], x[:, 3] = 5, x[:, 1] + x[:, 2]
    if kind == "scales apart":
        x *= [1e140, 1e-140, 1, 1e10]
    sums = moments(open_table(x))
    exponent, factor = scaled_factor(sums.gram, sums.count)
    assert (np.tril(factor, -1) == 0).all()
    units = np.where(exponent == NONE, 0, exponent)
    wanted = np.ldexp(np.ldexp(sums.gram, -units), -units[:, None])
    np.testing.assert_allclose(factor.T @ factor, wanted, rtol=0, atol=12 * 2.0**-48)
    deviation = np.sqrt(np.diagonal(sums.gram) / 12)
    moving = deviation > 0
    assert np.all((deviation[moving] < 2.0 ** exponent[moving]) & (deviation[moving] >= 2.0 ** (exponent[moving] - 1)))
    assert (exponent[~moving] == NONE).all()
    assert (factor[:, ~moving] == 0).all()  # not the root of a rounding error


@pytest.mark.parametrize("kind", ["independent", "correlated", "decaying", "few factors", "copies"])
@pytest.mark.parametrize(("rows", "d"), [(2, 40), (60, 150), (149, 150), (400, 150)])
def test_factors_of_columns_that_depend_on_each_other(rows: int, d: int, kind: str) -> None:
    """As those of fewer rows than columns: pivots leave d 2^-51 of the product of two deviations at most; (d + 1) 2^-53 for
    rounding in Cholesky's method and in the rotations each, whose bounds grow with d."""
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, d))
    if kind == "correlated":
        x += 30 * rng.standard_normal((rows, 1))
    if kind == "decaying":
        x *= np.geomspace(1, 1e-6, rows)[:, None]
    if kind == "few factors":
        x = rng.standard_normal((rows, 7)) @ rng.standard_normal((7, d))
    if kind == "copies" or rows > d:
        x[:, d // 2 :] = x[:, : d // 2] * 2.0 ** np.arange(-d // 4, d // 4)
    x[:, 5] = 1.0
    sums = moments(open_table(x))
    exponent, factor = scaled_factor(sums.gram, sums.count)
    assert (np.tril(factor, -1) == 0).all()
    assert not factor[:, 5].any()
    long, units = factor.astype(np.longdouble), np.where(exponent == NONE, 0, exponent)
    wanted = np.ldexp(np.ldexp(sums.gram, -units), -units[:, None])
    deviation = np.sqrt(np.diagonal(wanted))
    error = np.abs(long.T @ long - wanted)
    assert (error <= np.outer(deviation, deviation) * (d * 2.0**-51 + 2 * (d + 1) * 2.0**-53)).all()


def test_a_constant_column_costs_the_others_no_digit() -> None:
    x = np.random.default_rng(4).standard_normal((1000, 150)) + 3 * np.random.default_rng(5).standard_normal((1000, 1))
    x[:, 7] = 5
    sums = moments(open_table(x))
    exponent, found = scaled_factor(sums.gram, sums.count)
    factor = found.astype(np.longdouble)
    assert not factor[:, 7].any()
    assert not factor[7].any()
    moving = np.flatnonzero(exponent != NONE)
    wanted = np.ldexp(np.ldexp(sums.gram, -exponent), -exponent[:, None])
    error = np.abs(factor.T @ factor - wanted) / 1000
    assert error[np.ix_(moving, moving)].max() < 2.0**-49


def test_what_an_owner_sends_has_a_size_of_its_columns_only() -> None:
    few, many = (
        share_sums(moments(open_table(np.random.default_rng(0).standard_normal((rows, 5)))), 3) for rows in (2, 5000)
    )
    assert [packets[0].shape for packets in few] == [packets[0].shape for packets in many]
    assert plain(many[0]) == [5000]
    assert few[-1][0].shape == (15 + 5,)
    huge = Moments(1 << COUNT_BITS, np.zeros(1), np.zeros(1), np.zeros((1, 1)), label="north")
    with pytest.raises(
        OwnerError, match=r"north: too many rows: 68,719,476,736\. With 3 owners the maximum .* is 22,906,492,244"
    ):
        share_sums(huge, 3)


def test_new_rows_come_in_batches_that_share_to_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppca.owner.rows.BATCH", 6)
    rows, scale = np.random.default_rng(1).standard_normal((11, 3)), np.array([3, 0, -2])
    rows *= 2.0**scale
    batches = list(new_rows([rows[:5], rows[5:]], scale, RAW, None))
    assert [packets[0].shape for packets in batches] == [(2, 3), (2, 3), (1, 3)] + [(2, 3)] * 3
    found = np.array([value for packets in batches for value in plain(packets)]).reshape(11, 3) / 2.0**40
    np.testing.assert_allclose(found.astype(float), rows / 2.0**scale, rtol=0, atol=2.0**-40)


def test_rows_beyond_the_model_are_refused() -> None:
    with pytest.raises(
        BadValue, match=r"column 'b' has 2e\+06 in row 13; this model takes magnitudes below 1.04858e\+06"
    ) as caught:
        list(new_rows([np.zeros((12, 2)), np.array([[0, 2e6]])], np.array([0, 0]), RAW, ["a", "b"]))
    assert (caught.value.columns, caught.value.row) == (("b",), 13)
    with pytest.raises(BadValue, match="north: column '2' has nan in row 1"):
        in_units(np.array([[0, np.nan]]), np.zeros(2, np.int64), RingType(128, 40, 20), None, "north: ")
    with pytest.raises(ValueError, match="must have 2 columns"):
        list(new_rows([np.zeros((2, 3))], np.array([0, 0]), RAW, None))


def test_columns_that_were_constant_count_for_nothing() -> None:
    found = in_units(np.array([[6.0, 1e300]]), np.array([1, NONE + 2]), RingType(128, 40, 20), None, "")
    assert found.tolist() == [[3.0, 0.0]]


@given(value=numbers.filter(lambda x: x != 0), part=st.floats(-0.5, 0.5))
def test_what_a_mantissa_leaves_of_a_mean(value: float, part: float) -> None:
    """79 bits and what is left are the mean, exactly: the last of 80 bits is zero, for a shift by one."""
    rest = part * np.spacing(value)
    kept, left = cut(np.array([value]), np.array([rest]))
    assert Fraction(float(kept[0])) + Fraction(float(left[0])) == Fraction(rest)
    exponent, mantissa, _ = (plain(packets)[0] for packets in share_numbers(np.array([value]), kept))
    assert Fraction(mantissa, 1 << MANTISSA_BITS) * Fraction(2) ** exponent == Fraction(value) + Fraction(
        float(kept[0])
    )
    assert mantissa % 2 == 0


def test_what_is_left_travels_in_units_of_the_deviation() -> None:
    x = np.array([[2**62 + k % 2, 2**62, k] for k in range(9)])
    sums = moments(open_table(x))
    factor = [value / 2.0**ROOT_FRAC for value in plain(share_sums(sums, 2)[-1])]
    _, mantissa, _ = share_numbers(sums.mean, cut(sums.mean, sums.rest)[0])
    left = Fraction(2**62) + Fraction(4, 9) - Fraction(plain(mantissa)[0], 1 << (MANTISSA_BITS - 63))
    assert factor[-3] / 3 / 2 == pytest.approx(
        float(left), rel=1e-6
    )  # sqrt(9) rows; a deviation of 0.497, so in units of 1/2
    assert factor[-2:] == [0, 0]
