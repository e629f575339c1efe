"""The data of the studies: no row on both sides of a split, and no job_state on both sides of a question."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.reproduce import anomaly
from benchmarks.reproduce.students import Enrolments, enrolments
from benchmarks.reproduce.table5 import judged, rules
from benchmarks.reproduce.traffic import FAMILIES, traffic


def test_rows_of_traffic_occur_once_and_every_device_is_tested() -> None:
    found = traffic(None, 60)
    assert len(np.unique(found.X, axis=0)) == len(found.X)
    test = found.held_out(0.3, 0)
    assert 0.2 < test.mean() < 0.4
    for device in range(9):
        own = found.of([device])
        assert (test & own).any()
        assert (~test & own).any()
    assert found.at_most(~test, 10, 0).sum() == 90
    assert not (found.at_most(~test, 10, 0) & test).any()
    assert not found.real


def test_models_of_benign_traffic_see_no_attack_and_no_tested_row() -> None:
    rows = anomaly.chosen(traffic(None, 60), 2, 10)
    assert not (rows.training & rows.test).any()
    assert (rows.of.label[rows.training] == 0).all()
    assert set(FAMILIES) == {attack.split()[0] for attack in rows.of.attack[rows.test]}


def test_students_with_equal_rows_are_on_one_side() -> None:
    task = enrolments(None, 400).of_the_paper()
    test = task.held_out(0.3, 1, apart=True)
    assert task.known(test) == 0.0
    sides = {tuple(row) for row in task.X[test]} & {tuple(row) for row in task.X[~test]}
    assert not sides
    assert task.known(task.held_out(0.3, 1, apart=False)) > 0.0


def test_a_course_held_out_is_not_in_the_row() -> None:
    """Every job_state has one concept of its own, so a row names the student's job_states."""
    student = np.array([0, 0, 1, 1, 1, 2])
    job_state = np.array([0, 1, 2, 3, 4, 5])
    taken = Enrolments("made", student, job_state, np.eye(6, 200))
    asked = taken.held_out()
    assert sorted(asked.X.sum(axis=1)) == [1.0, 2.0]  # the third student has one job_state only and is left out
    np.testing.assert_array_equal(sorted(taken.of_the_paper().X.sum(axis=1)), [1.0, 2.0, 3.0])
    top = taken.top
    assert top.sum() == 4  # of six job_states the first four, as all have one concept
    row = int(np.argmin(asked.X.sum(axis=1)))
    other = {0: 1, 1: 0}[int(asked.X[row].argmax())]
    assert asked.label[row] == top[other]


@pytest.mark.parametrize("share", [0.6, 0.81])
def test_the_more_frequent_answer_has_this_recall_and_f1(share: float) -> None:
    truth = (np.arange(100) < 100 * share).astype(np.int64)
    found = judged(truth, np.ones(100, np.int64))
    assert found["recall"] == pytest.approx(share)
    assert found["f1"] == pytest.approx(2 * share**2 / (1 + share))


def test_counting_concepts_answers_the_task_of_the_paper() -> None:
    task = enrolments(None, 400).of_the_paper()
    usual, counted = rules(task, task.held_out(0.3, 0, apart=True))
    assert counted["f1"] > usual["f1"]


def test_detection_is_judged_as_it_should_be() -> None:
    attacked = np.arange(200) >= 100
    assert anomaly.judged(np.arange(200.0), attacked) == {"auc": 1.0, "found": 1.0, "found_strict": 1.0}
    assert anomaly.judged(-np.arange(200.0), attacked) == {"auc": 0.0, "found": 0.0, "found_strict": 0.0}
