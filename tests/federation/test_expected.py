"""A sole owner that acts for several tables: its rows go to the table that it names, if the job has that table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.federation import job
from ppca.algorithms import second_moments
from ppca.federation.errors import ObjectRefused
from ppca.federation.expected import checked
from ppca.protocol import share

SOLE = job(
    owners=["north"], columns={"north": ["a", "b", "c"]}, tables=[2, 1], align={"alignment": "aligned", "minimum": 2}
)


def rows(part: Any, width: int) -> tuple[str, dict[str, Any]]:
    return "rows", {"packets": [share(np.ones((4, width)), second_moments.ROWS)[0]], "part": part}


def taken(*messages: tuple[str, dict[str, Any]]) -> int:
    """How many messages of the owner server 0 takes before it refuses one."""
    found: list[Any] = []
    with pytest.raises(ObjectRefused, match="the contribution of north does not fit the job"):
        found.extend(checked(SOLE.spec.data, "north", 0, iter(messages)))
    return len(found)


@pytest.mark.parametrize("part", [2, -1, 1 << 40, True, 0.0, "0", None])
def test_a_table_that_the_job_does_not_have_is_refused(part: Any) -> None:
    assert taken(rows(0, 2), rows(1, 1), rows(part, 1)) == 2


def test_rows_have_the_width_of_their_table() -> None:
    assert taken(rows(0, 2), rows(1, 2)) == 1


def test_no_table_is_left_without_rows() -> None:
    assert taken(rows(0, 2), rows(0, 2)) == 2
