"""Results that no data can have are refused by the name of what is wrong."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from ppca.receiver.plausible import ImpossibleResult, check_fit, check_uses

GOOD: dict[str, Any] = {
    "verified": True,
    "standardized": False,
    "rows": np.array(40),
    "count": 2,
    "resolution": 4e-7,
    "components": np.eye(2, 3),
    "values": np.array([0.5, -1e-8]),
    "total": np.array(0.6),
    "factor": np.array(1e-22),
    "mean": np.array([1.0, -0.5, 0.0]),
    "mean_exponents": np.array([3, -2000, 1]),
    "exponents": np.array([4]),
}
STANDARD = GOOD | {
    "standardized": True,
    "exponents": np.array([4, 5, -2998]),
    "inverse": np.array([1.0, 1.5, 0.0]),
    "power": np.array([1.0, 2.0, 0.0]),
}


def test_a_possible_result() -> None:
    check_fit(GOOD, 3, standardized=False)
    check_fit(STANDARD, 3, standardized=True)
    check_fit({key: GOOD[key] for key in ("verified", "standardized", "rows", "count")}, 3, standardized=False)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"verified": False}, "could not verify"),
        ({"verified": 1}, "could not verify"),
        ({"standardized": True}, "the job says False"),
        ({"rows": np.array(1 << 36)}, "number of rows is 68,719,476,736"),
        ({"rows": np.array(-40)}, "number of rows is -40"),
        ({"rows": np.array(1)}, "number of rows is 1"),
        ({"values": np.array([0.5, -0.1])}, "a variance is negative"),
        ({"values": np.array([0.7, 0.1])}, "above the total"),
        ({"values": np.array([0.5, 0.1, 0.1])}, "values has shape"),
        ({"total": np.array(-0.5), "values": np.array([0.0, 0.0])}, "total variance"),
        ({"total": np.array(np.nan)}, "total variance"),
        ({"mean": np.array([1.5, 0.0, 0.0])}, "mean has numbers up to 1.5"),
        ({"mean": np.array([np.inf, 0.0, 0.0])}, "mean has numbers"),
        ({"mean_exponents": np.array([16385, 0, 0])}, "mean_exponents run from 0 to 16385"),
        ({"exponents": np.array([16385])}, "exponents run"),
        ({"exponents": np.array([600])}, "deviations above 1e154"),
        ({"exponents": np.array([1, 1, 1])}, "exponents has shape"),
        ({"components": np.eye(3)}, "components has shape"),
        ({"components": 2 * np.eye(2, 3)}, "components has numbers up to 2"),
        ({"components": "text"}, "components has shape"),
        ({"rows": None}, "does not hold what a fit reveals"),
        ({"count": {}}, "does not hold what a fit reveals"),
    ],
)
def test_an_impossible_result(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ImpossibleResult, match=why):
        check_fit(GOOD | change, 3, standardized=False)


def test_negative_deviations() -> None:
    with pytest.raises(ImpossibleResult, match="inverse is negative"):
        check_fit(STANDARD | {"inverse": np.array([-1.0, 1.0, 1.0])}, 3, standardized=True)


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"flags": np.array([0, 2])},
        {"scores": np.array([np.nan])},
        {"scores": np.zeros((2, 2))},
        {"flags": np.array([0, 1]), "scores": np.zeros(3)},
        {"coordinates": np.array(1.0)},
    ],
)
def test_impossible_uses(result: dict[str, Any]) -> None:
    with pytest.raises(ImpossibleResult):
        check_uses(result)


def test_possible_uses() -> None:
    check_uses({"coordinates": np.zeros((4, 2))})
    check_uses({"scores": np.ones(3), "flags": np.array([0, 1, 1])})


JUNK = [
    None,
    "",
    "text",
    {},
    [],
    [[1], [2, 3]],
    -1,
    2**70,
    1e400,
    float("nan"),
    b"",
    np.array(["a"]),
    np.zeros((2, 2, 2)),
    True,
]


@pytest.mark.parametrize("name", STANDARD)
@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_nothing_but_a_refusal_comes_of_junk(name: str, junk: Any) -> None:
    with suppress(ImpossibleResult):
        check_fit(STANDARD | {name: junk}, 3, standardized=True)
        assert np.shape(junk) == np.shape(STANDARD[name])  # only a value of the right form can pass
    with suppress(ImpossibleResult):
        check_uses({"scores": junk})
        assert np.ndim(junk) == 1
