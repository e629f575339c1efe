"""Students, the courses they take and the concepts of these (MOOCCube), as tables of ten owners with twenty concepts
each.

The task of the paper: does a student take one of the 400 courses with most of the 200 concepts? A student's row says
how often each concept occurs in the student's courses, so row and answer are functions of the same enrolments. The task
with a course held out asks the same of one of the student's courses, drawn by chance, of which the row does not know.
Made up in the same shape where the files are absent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.data_sets import Floats, Folder, MissingData, find

from .traffic import Bits, Ints

OWNERS, WIDTH, TOP = 10, 20, 400


@dataclass(frozen=True)
class Task:
    """Rows of students, whether the answer is yes, and which rows are equal (the number of a student's combination)."""

    X: Floats
    label: Ints
    combination: Ints

    def at_most(self, count: int | None, seed: int) -> Task:
        """So many students, by chance."""
        if count is None or count >= len(self.X):
            return self
        rows = np.random.default_rng(seed).permutation(len(self.X))[:count]
        return Task(self.X[rows], self.label[rows], self.combination[rows])

    def held_out(self, part: float, seed: int, apart: bool) -> Bits:
        """A test set, by chance: of students, or (`apart`) of combinations, so that no row is on both sides."""
        random = np.random.default_rng(seed)
        if not apart:
            return np.asarray(random.random(len(self.X)) < part)
        chosen = random.random(int(self.combination.max()) + 1) < part
        return np.asarray(chosen[self.combination])

    def known(self, test: Bits) -> float:
        """The part of test rows that also occur in the training set."""
        return float(np.isin(self.combination[test], self.combination[~test]).mean())


@dataclass(frozen=True)
class Enrolments:
    """student and course: one entry per enrolment; concepts: courses x 200, whether the course treats the concept."""

    source: str
    student: Ints
    course: Ints
    concepts: Floats

    @property
    def real(self) -> bool:
        """Return whether rows are real or made up."""
        return self.source.startswith("Real")

    @property
    def top(self) -> Bits:
        """The courses with most of the concepts; ties by number."""
        counts = self.concepts.sum(axis=1)
        order = np.lexsort((np.arange(len(counts)), -counts))
        chosen = np.zeros(len(counts), bool)
        chosen[order[: min(TOP, 2 * len(counts) // 3)]] = True
        return chosen

    def of_the_paper(self) -> Task:
        """Row and answer from all of a student's courses; students without any of the concepts are left out."""
        students, place = np.unique(self.student, return_inverse=True)
        X, label = np.zeros((len(students), self.concepts.shape[1])), np.zeros(len(students), np.int64)
        np.add.at(X, place, self.concepts[self.course])
        np.maximum.at(label, place, self.top[self.course].astype(np.int64))
        some = X.any(axis=1)
        return _task(X[some], label[some])

    def held_out(self) -> Task:
        """Row from all of a student's courses but one, answer from that one; students of two courses and more."""
        order = np.random.default_rng(0).permutation(len(self.student))
        student, course = self.student[order], self.course[order]
        students, first, place, count = np.unique(student, return_index=True, return_inverse=True, return_counts=True)
        rest = np.ones(len(student), bool)
        rest[first] = False
        X = np.zeros((len(students), self.concepts.shape[1]))
        np.add.at(X, place[rest], self.concepts[course[rest]])
        several = count >= 2
        return _task(X[several], self.top[course[first]][several].astype(np.int64))


def _task(X: Floats, label: NDArray[np.int64]) -> Task:
    return Task(X, label, np.unique(X, axis=0, return_inverse=True)[1].ravel())


def enrolments(data: Folder, made: int) -> Enrolments:
    """The real ones, or those of `made` students if there are none."""
    try:
        return _real(data)
    except MissingData as missing:
        source = f"Synthetic enrolments ({missing}): what they show says nothing about real students."
        return _made(made, source)


def _real(data: Folder) -> Enrolments:
    import pyarrow.csv
    import pyarrow.parquet

    taken = pyarrow.parquet.read_table(find(data, "mooccube/enrolments.parquet"))
    treats = pyarrow.parquet.read_table(find(data, "mooccube/course_concept.parquet"))
    listed = pyarrow.csv.read_csv(find(data, "mooccube/concepts.csv"))
    columns = {
        concept: int(name[1:])
        for concept, name in zip(listed["concept"].to_pylist(), listed["column"].to_pylist(), strict=True)
        if name
    }
    student, course = (np.asarray(taken[name].to_numpy(), np.int64) for name in ("student", "course"))
    concepts = np.zeros((int(max(course.max(), max(treats["course"].to_pylist()))) + 1, OWNERS * WIDTH))
    pairs = [
        (at, columns[concept])
        for at, concept in zip(treats["course"].to_pylist(), treats["concept"].to_pylist(), strict=True)
        if concept in columns
    ]
    concepts[tuple(np.transpose(pairs))] = 1.0
    source = (
        "Real rows: MOOCCube, 29 % of its students with 1.5 enrolments each (3.4 in the original), 200 concepts in ten "
        "groups of 20."
    )
    return Enrolments(source, student, course, concepts)


def _made(students: int, source: str) -> Enrolments:
    """Courses treat concepts of a subject, students prefer a subject."""
    random = np.random.default_rng(8)
    courses, subjects = 150, 12
    likely = random.gamma(0.3, 0.3, (subjects, OWNERS * WIDTH))
    of = random.integers(subjects, size=courses)
    concepts = (random.random((courses, OWNERS * WIDTH)) < np.minimum(likely[of], 0.5)).astype(np.float64)
    student = np.repeat(np.arange(students), random.integers(1, 5, students))
    liked = random.integers(subjects, size=students)[student]
    same = random.random((len(student), courses)) * (1 + 3 * (of[None, :] == liked[:, None]))
    return Enrolments(source, student, same.argmax(axis=1), concepts)
