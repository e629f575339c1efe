"""A client's side: what is refused, in which words, and that sharing loses nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ppca.native import ring
from ppca.protocol import FIXED, INTEGER, InputRefused, RingType, make_type, share
from ppca.protocol.inputs import encode, receive
from ppca.protocol.opening import values as decoded


def shared(values: Any, dtype: RingType | None = None) -> tuple[np.ndarray, RingType]:
    """The value that the four packets of `values` add up to, checked to be the same by rows and by columns."""
    packets = share(values, dtype)
    data = [receive(packet, *divmod(seat, 2)) for seat, packet in enumerate(packets)]
    assert np.array_equal(data[0][0], data[1][0])  # row mates hold the same row share
    assert np.array_equal(data[2][0], data[3][0])
    assert np.array_equal(data[0][1], data[2][1])  # column mates the same column share
    assert np.array_equal(data[1][1], data[3][1])
    by_rows, by_columns = ring.add(data[0][0], data[2][0]), ring.add(data[0][1], data[1][1])
    assert np.array_equal(by_rows, by_columns)
    kind = packets[0].dtype
    assert all(packet.dtype == kind and packet.shape == np.shape(values) for packet in packets)
    return decoded(by_rows, kind), kind


@given(
    hnp.arrays(
        np.float64, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0), elements=st.floats(-(2.0**29), 2.0**29)
    )
)
def test_numbers_round_to_the_nearest_multiple(values: np.ndarray) -> None:
    got, kind = shared(values)
    assert kind == FIXED
    assert got.shape == values.shape
    assert np.max(np.abs(got - values), initial=0.0) <= 2.0**-41


@given(st.lists(st.integers(-(2**52), 2**52), min_size=1, max_size=20), st.integers(0, 60))
def test_round_trip_of_representable_numbers_is_exact(multiples: list[int], frac: int) -> None:
    values = np.ldexp(np.array(multiples, np.float64), -frac)
    for bits in (64, 128):
        kind = RingType(bits, frac, bits - 1 - frac)
        assert np.array_equal(shared(values, kind)[0], values)


@given(hnp.arrays(np.int64, hnp.array_shapes(max_dims=2, min_side=0), elements=st.integers(1 - 2**62, 2**62 - 1)))
def test_integers_are_exact(values: np.ndarray) -> None:
    for kind in (None, INTEGER, make_type(64, 0)):
        got, used = shared(values, kind)
        assert used.is_integer
        assert got.dtype == np.int64
        assert np.array_equal(got, values)


@pytest.mark.parametrize(
    ("values", "frac"),
    [
        (3, 0),
        ([1, -2], 0),
        (np.array([True, False]), 0),
        (np.array([200], np.uint8), 0),
        (np.array([2**61], np.uint64), 0),
        (np.array([-5], np.int8), 0),
        (1.5, 40),
        ([1, 2.5], 40),
        (np.array([1.25], np.float32), 40),
        (np.array([1.25], np.float16), 40),
        (np.array([1.25], np.longdouble), 40),
        ([], 40),
        (np.empty((3, 0)), 40),
        (np.empty((0, 2), np.int64), 0),
        ([[0.0, -0.0], [2.0**-41, 2.0**-42]], 40),
    ],
)
def test_types_follow_the_input(values: Any, frac: int) -> None:
    got, kind = shared(values)
    assert kind.frac == frac
    assert got.shape == np.shape(values)
    assert np.max(np.abs(got - np.asarray(values, np.float64)), initial=0.0) <= 2.0**-41


def test_integers_as_fixed_point_and_fractions_as_integers() -> None:
    assert shared([3, -4], FIXED)[0].tolist() == [3.0, -4.0]
    assert shared([3.0, -4.0], INTEGER)[0].tolist() == [3, -4]


@pytest.mark.parametrize("top", [2**62 - 1, 2**62 - 200])
def test_integers_up_to_the_last(top: int) -> None:
    assert shared([top, -top])[0].tolist() == [top, -top]


@pytest.mark.parametrize(
    ("values", "dtype", "place"),
    [
        ([0.0, np.nan], None, r"column\[1\] is nan: fill or drop missing"),
        ([[0.0, 1.0], [np.inf, 2.0]], None, r"column\[1, 0\] is inf"),
        (-np.inf, None, r"column is -inf"),
        ([1.0, 2.0**30], None, r"column\[1\] = 1073741824.0 is outside \|v\| < 2\^30 of fixed128.40: scale the data"),
        ([-(2.0**30)], None, r"column\[0\] = -1073741824.0 is outside"),
        ([1e308], None, r"column\[0\] = 1e\+308"),
        ([2**62], None, r"column\[0\] = 4611686018427387904 is outside \|v\| < 2\^62 of int128"),
        ([0, -(2**62)], None, r"column\[1\] = -4611686018427387904"),
        (np.array([2**63], np.uint64), None, r"column\[0\] = 9223372036854775808"),
        (np.array([2**62 + 1, 5]), None, r"column\[0\]"),
        ([8], RingType(128, 0, 3), r"column\[0\] = 8 is outside \|v\| < 2\^3"),
        ([8.0], RingType(64, 20, 3), r"column\[0\] = 8.0 is outside"),
        ([np.nan], INTEGER, r"column\[0\] is nan"),
        (np.array([np.nan], np.float32), None, r"column\[0\] is nan"),
        (["a"], None, "cannot share values of type <U1"),
        (["1.5"], None, "not numbers"),
        ([b"x"], None, "not numbers"),
        ([None], None, "cannot share values of type object"),
        ([1 + 2j], None, "cannot share values of type complex128"),
        ([2**70], None, "not numbers"),
        (np.array(["2020-01-01"], "datetime64[D]"), None, "not numbers"),
        (np.array([1], "timedelta64[D]"), None, "not numbers"),
    ],
)
def test_refused_inputs(values: Any, dtype: RingType | None, place: str) -> None:
    with pytest.raises(InputRefused, match=place):
        share(values, dtype, name="column")


def test_the_first_bad_value_is_named() -> None:
    values = np.zeros((10, 4))
    values[3, 2], values[7, 1] = np.nan, np.inf
    with pytest.raises(InputRefused, match=r"table\[3, 2\] is nan"):
        share(values, name="table")


def test_values_that_round_up_to_the_span_are_still_in_the_ring() -> None:
    # The largest double below 2^30 keeps its value: it is a multiple of 2^-23.
    top = np.nextafter(2.0**30, 0)
    assert shared([top, -top])[0].tolist() == [top, -top]


def test_packets_are_four_times_the_data() -> None:
    packets = share(np.zeros(1000))
    assert sum(len(packet.row) + len(packet.column) for packet in packets) == 4 * 1000 * 16 + 4 * 16


def test_encoding_is_not_in_place() -> None:
    values = np.array([1.5, -2.5])
    encode(values)
    assert values.tolist() == [1.5, -2.5]
