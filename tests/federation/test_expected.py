"""Contributions begin with random elements. A sole owner of several tables names one of them for its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.federation import job
from ppca.algorithms import second_moments
from ppca.federation.envelopes import blind
from ppca.federation.errors import ObjectRefused
from ppca.federation.expected import checked
from ppca.protocol import share

SOLE = job(
    owners=["north"], columns={"north": ["a", "b", "c"]}, tables=[2, 1], align={"alignment": "aligned", "minimum": 2}
)


def rows(part: Any, width: int) -> tuple[str, dict[str, Any]]:
    return "rows", {"packets": [share(np.ones((4, width)), second_moments.ROWS)[0]], "part": part}


def first() -> tuple[str, dict[str, Any]]:
    return "blind", {"packets": [blind()[0]]}


def taken(*messages: tuple[str, dict[str, Any]]) -> int:
    """Return how many messages after the first one server 0 takes from the owner before it refuses one."""
    return accepted(first(), *messages) - 1


def accepted(*messages: tuple[str, dict[str, Any]]) -> int:
    found: list[Any] = []
    with pytest.raises(ObjectRefused, match="the contribution of north does not fit the job"):
        found.extend(checked(SOLE.spec.data, "north", 0, iter(messages)))
    return len(found)


def test_random_elements_come_first_and_once() -> None:
    other = "blind", {"packets": [share(np.ones(2))[0]]}
    twice = "blind", {"packets": [blind()[0]] * 2}
    more = "blind", {"packets": [blind()[0]], "part": 0}
    assert accepted(rows(0, 2)) == accepted(other) == accepted(twice) == accepted(more) == 0
    assert accepted(first(), first()) == 1
    assert accepted(first(), rows(0, 2), first()) == 2


@pytest.mark.parametrize("part", [2, -1, 1 << 40, True, 0.0, "0", None])
def test_a_table_that_the_job_does_not_have_is_refused(part: Any) -> None:
    assert taken(rows(0, 2), rows(1, 1), rows(part, 1)) == 2


def test_rows_have_the_width_of_their_table() -> None:
    assert taken(rows(0, 2), rows(1, 2)) == 1


def test_no_table_is_left_without_rows() -> None:
    assert taken(rows(0, 2), rows(0, 2)) == 2


PSI = job(columns={"north": ["a", "b"], "south": ["c", "d"], "west": ["e"]}, align={"alignment": "psi", "minimum": 2})


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([[(0, 1), (0, 2)], [(0, 3), (1, 0)]], 2),
        ([[(0, 1), (0, 2)], [(0, 2), (1, 0)]], 1),
        ([[(0, 1), (3, 2)], [(2, 9), (4, 0)]], 1),
        ([[(0, 2), (0, 1)]], 0),
        ([[(5, 1), (5, 1)]], 0),
    ],
)
def test_tags_ascend_also_from_message_to_message(chunks: list[list[tuple[int, int]]], expected: int) -> None:
    packets = [share(np.ones((2, 2)), second_moments.ROWS)[0]]
    found = [("rows", {"packets": packets, "tags": np.array(tags, np.uint64)}) for tags in chunks]
    taken: list[Any] = []
    with pytest.raises(ObjectRefused, match=r"not sorted|sums are missing"):
        taken.extend(checked(PSI.spec.data, "north", 0, iter([first(), *found])))
    assert len(taken) - 1 == expected
