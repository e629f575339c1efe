"""Amounts as people read them: the unit changes where the rounded number does, and bounds are rounded upwards."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppca.html.formats import angle_error, below_resolution, counted, duration, percent, shape, size
from ppca.html.labels import spread


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (3.4e-6, "3 µs"),
        (0.0012, "1.2 ms"),
        (0.25, "250 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (119.9, "119.9 s"),
        (120, "2.0 min"),
        (5400, "90.0 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (999.6, "1 kB"), (68e6, "68 MB"), (999.6e6, "0.9996 GB"), (1.4e12, "1400 GB")],
)
def test_sizes(count: float, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.4427, "44.27 %"),
        (1.0, "100.00 %"),
        (0.001, "0.10 %"),
        (0.000031, "0.0031 %"),
        (-0.5, "-50.00 %"),
        (0.0, "0 %"),
        (math.nan, "0 %"),
    ],
)
def test_percentages(fraction: float, text: str) -> None:
    assert percent(fraction) == text


def test_counts_and_shapes() -> None:
    assert [counted(number, "round") for number in (0, 1, 2000)] == ["0 rounds", "1 round", "2,000 rounds"]
    assert [shape(each) for each in ((), (3,), (2, 3))] == ["one number", "3", "2 × 3"]
    assert below_resolution(4e-7, 50.0) == ("< 2e-05", "< 4e-05 %")


@given(st.floats(1e-15, 1.0))
def test_bounds_of_angles_are_rounded_upwards(bound: float) -> None:
    """To one digit, so by less than a factor of two. Both sides are rounded once to the nearest double."""
    assert bound * (1 - 1e-15) <= float(angle_error(bound)) <= 2 * bound * (1 + 1e-15)
    assert angle_error(0.0) == "0e+00"


def test_labels_are_spread_near_their_places() -> None:
    assert spread([], 1, 0, 9) == []
    assert spread([5.0, 1.0], 1, 0, 9) == [5.0, 1.0]
    assert spread([4.0, 4.0, 4.0], 1, 0, 9) == [3.0, 4.0, 5.0]
    crowded = spread([9.0] * 10, 3, 0, 9)
    assert crowded == sorted(crowded)
    assert (min(crowded), max(crowded)) == (0.0, 9.0)
