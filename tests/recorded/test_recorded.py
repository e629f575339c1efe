"""Recorded jobs: openings, rounds and bytes are exactly those of recorded.json, values agree within rounding.

A change that alters them on purpose writes the file again (`python -m recorded.recording` in tests/) and lists the changes in
its commit message.
"""

from __future__ import annotations

import json

import pytest

from recorded.cases import CASES
from recorded.recording import PATH, differences, record

RECORDED = json.loads(PATH.read_text())
TOLERANCE = 1e-6
"""Of values, relative to the largest of an array."""

LOOSE = {"rows, loose tolerance": 1e-3, "rows, power": 1e-3, "rows, jacobi-eo": 1e-2}
"""The same for jobs whose eigensolver stops at a larger tolerance: about ten times that tolerance."""

TRIES = 30
"""Runs until a job makes the recorded number of iterations; the probability of that number is above 1/4 in each."""


def test_every_case_is_recorded() -> None:
    assert list(RECORDED) == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_job_is_as_recorded(name: str) -> None:
    """The number of iterations until convergence depends on rounding, so a job that has made another number runs again."""
    expected, iterations = RECORDED[name], RECORDED[name]["values"].get("iterations")
    for _ in range(TRIES):
        found = record(CASES[name])
        if found["values"].get("iterations") == iterations:
            break
    assert differences(expected, found, LOOSE.get(name, TOLERANCE)) == []
