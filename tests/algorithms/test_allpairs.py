"""The default solver: accuracy on both backends, nine rounds an iteration, and nothing opened but convergence bits."""

from __future__ import annotations

import itertools

import pytest
from spectra import SPECTRA, check, matrix, on_plain, on_shares

from ppca.algorithms.allpairs import eigh_allpairs


@pytest.mark.parametrize("mode", ["float", "fixed"])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 11, 20, 50])
@pytest.mark.parametrize("name", SPECTRA)
def test_plain(name: str, d: int, mode: str) -> None:
    A = matrix(name, d)
    solved = on_plain(eigh_allpairs, A, mode)
    assert solved.converged
    assert solved.iterations <= 30
    check(A, solved)


@pytest.mark.parametrize(
    ("name", "d"), [*((name, 4) for name in SPECTRA), ("wishart", 1), ("wishart", 2), ("wishart", 11)]
)
def test_shares(name: str, d: int) -> None:
    A = matrix(name, d)
    solved = on_shares(eigh_allpairs, A)
    assert solved.converged
    check(A, solved)
    assert set(solved.opened) <= {"convergence bit"}
    assert len(solved.opened) == (0 if d == 1 else solved.iterations - 6)


def test_nine_rounds_an_iteration() -> None:
    A = matrix("wishart", 5)
    rounds = [on_shares(eigh_allpairs, A, fixed_iterations=n).rounds for n in range(1, 8)]
    assert [later - sooner for sooner, later in itertools.pairwise(rounds)] == [9, 9, 9, 9, 10, 9]


def test_fixed_iterations_open_nothing() -> None:
    A = matrix("wishart", 6)
    solved = on_shares(eigh_allpairs, A, fixed_iterations=12)
    assert solved.opened == []
    assert solved.converged is None
    assert solved.iterations == 12
    check(A, solved)
