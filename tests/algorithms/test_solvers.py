"""Solvers by name: one signature, one unit for limits and for what was done."""

from __future__ import annotations

from functools import partial

import pytest

from harness.spectra import check, finish, matrix, on_plain, on_shares
from ppca.algorithms.decomposition import decompose
from ppca.algorithms.rotations import max_checks as jacobi_checks
from ppca.algorithms.solvers import SOLVERS, eigh, max_convergence_bits, promised_residual
from ppca.protocol import PlainArray

NAMES = ["allpairs", "jacobi", "jacobi-classic", "jacobi-eo", "qr", "power"]


def test_names() -> None:
    assert list(SOLVERS) == NAMES
    A = PlainArray(matrix("wishart", 2))
    with pytest.raises(ValueError, match=r"unknown solver 'lanczos'\. Use one of: allpairs, jacobi"):
        finish(eigh(A, A, solver="lanczos"))


@pytest.mark.parametrize("solver", NAMES)
def test_by_name(solver: str) -> None:
    A = matrix("wishart", 6)
    told: list[str] = []
    solved = on_plain(partial(eigh, solver=solver, progress=lambda stage, part: told.append(stage)), A, "fixed")
    promise = promised_residual(solver, 6, 1e-6)
    check(A, solved, residual=1.02 * promise, eigenvalues=max(1e-6, promise))
    assert told


@pytest.mark.parametrize("solver", NAMES)
@pytest.mark.parametrize("fixed", [1, 3])
def test_fixed_iterations_are_the_iterations_done(solver: str, fixed: int) -> None:
    solved = on_shares(partial(eigh, solver=solver, fixed_iterations=fixed), matrix("wishart", 3))
    assert (solved.iterations, solved.converged, solved.opened) == (fixed, None, [])


@pytest.mark.parametrize("solver", NAMES)
def test_limit(solver: str) -> None:
    assert on_plain(partial(eigh, solver=solver, max_iterations=2), matrix("wishart", 6), "float").iterations == 2


@pytest.mark.parametrize("solver", [name for name in NAMES if name != "jacobi-eo"])
@pytest.mark.parametrize("tol", [1e-4, 1e-8])
def test_tolerance(solver: str, tol: float) -> None:
    A = matrix("wishart", 8)
    check(A, on_plain(partial(eigh, solver=solver, tol=tol), A, "fixed"), residual=max(tol, 3e-8))


@pytest.mark.parametrize("solver", NAMES)
@pytest.mark.parametrize("d", [3, 8, 13])
def test_convergence_bits_that_a_decomposition_opens_at_most(
    solver: str, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every bit says no, so that the solver and the one that takes over use all of their iterations."""
    opened: list[str] = []

    async def refuse(bit: PlainArray, *, what: str, why: str) -> int:
        opened.append(what)
        return 0

    monkeypatch.setattr(PlainArray, "open", refuse)
    finish(decompose(PlainArray(matrix("wishart", d)), run="run", solver=solver))
    most = max_convergence_bits(solver, d)
    assert 0.8 * most <= opened.count("convergence bit") <= most
    assert opened.count("verification bit") == (1 if solver == "jacobi" else 2)


def test_more_convergence_bits_for_more_columns() -> None:
    """QR opens about 2.7 bits per column."""
    assert max_convergence_bits("qr", 400) > 400 * 2.75
    assert max_convergence_bits("qr", 400, max_iterations=50) == 50 + 399 + jacobi_checks(400)
