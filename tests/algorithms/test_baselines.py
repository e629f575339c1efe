"""The paper's solvers, corrected: right within what their formulas allow, on both backends, at the rounds they state."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from benchmarks.newton import newton_reciprocal, newton_sqrt
from harness.lockstep import run
from harness.spectra import SPECTRA, check, finish, matrix, on_plain, on_shares
from ppca.algorithms.baselines.jacobi_classic import eigh_jacobi_classic
from ppca.algorithms.baselines.jacobi_eo import eigh_jacobi_eo, reachable
from ppca.algorithms.baselines.paper_options import STOP_RULES, modulus_order
from ppca.algorithms.baselines.power import eigh_power, squarings_for
from ppca.algorithms.baselines.qr import eigh_qr, reflection, split_evenly
from ppca.protocol import PlainArray, SecretArray

ACCURATE = [eigh_jacobi_classic, eigh_qr, eigh_power]
DIMENSIONS = [1, 2, 3, 5, 11, 20]


@pytest.mark.parametrize("mode", ["float", "fixed"])
@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("solver", ACCURATE)
def test_plain(solver: Any, name: str, d: int, mode: str) -> None:
    A = matrix(name, d)
    solved = on_plain(solver, A, mode)
    assert solved.converged is (None if solver is eigh_power else True)
    check(A, solved)


@pytest.mark.parametrize("mode", ["float", "fixed"])
@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("name", SPECTRA)
def test_eo_reduced_reaches_three_digits(name: str, d: int, mode: str) -> None:
    A = matrix(name, d)
    solved = on_plain(eigh_jacobi_eo, A, mode)
    assert solved.converged
    largest = max(np.linalg.norm(A, 2), 1e-6)
    check(A, solved, residual=1.02 * reachable(d), eigenvalues=1.02 * reachable(d) / largest)
    if name in ("repeated", "rank_deficient", "wishart") and d <= 11:  # separated: the square of it
        assert np.abs(np.sort(solved.values) - np.linalg.eigvalsh(A)).max() <= 1e-6 * largest


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("solver", ACCURATE)
def test_shares(solver: Any, name: str) -> None:
    A = matrix(name, 3)
    solved = on_shares(solver, A)
    check(A, solved)
    assert set(solved.opened) <= {"convergence bit"}
    assert solver is not eigh_power or not solved.opened


@pytest.mark.parametrize("solver", ACCURATE)
def test_shares_larger(solver: Any) -> None:
    A = matrix("wishart", 5)
    check(A, on_shares(solver, A))


@pytest.mark.parametrize(("name", "d"), [*((name, 3) for name in SPECTRA), ("wishart", 5)])
def test_eo_reduced_shares(name: str, d: int) -> None:
    A = matrix(name, d)
    solved = on_shares(eigh_jacobi_eo, A)
    assert solved.converged
    check(A, solved, residual=1.02 * reachable(d), eigenvalues=1.02 * reachable(d) / max(np.linalg.norm(A, 2), 1e-6))


@pytest.mark.parametrize(
    ("solver", "option", "each"),
    [(eigh_jacobi_classic, "fixed_iterations", 55), (eigh_jacobi_eo, "fixed_iterations", 32)],
)
def test_rounds_a_step(solver: Any, option: str, each: int) -> None:
    A = matrix("wishart", 4)
    few, more = (on_shares(solver, A, **{option: n}) for n in (1, 3))
    assert more.rounds - few.rounds == 2 * each
    assert more.opened == []


def test_rounds_of_qr() -> None:
    d = 4
    counts = [on_shares(eigh_qr, matrix("wishart", d), fixed_iterations=n) for n in range(4)]
    assert counts[0].rounds == 36 * (d - 2) + 4
    assert [b.rounds - a.rounds for a, b in itertools.pairwise(counts)] == [35 * m + 8 for m in (3, 2, 1)]
    assert counts[-1].opened == []


def test_rounds_of_power() -> None:
    A = matrix("wishart", 4)
    assert (
        on_shares(eigh_power, A, fixed_iterations=3).rounds - on_shares(eigh_power, A, fixed_iterations=0).rounds == 12
    )
    one, two = (on_shares(eigh_power, A, fixed_iterations=0, components=k).rounds for k in (1, 2))
    assert two - one == 23


@pytest.mark.parametrize("name", ["wishart", "clustered", "equicorrelated"])
@pytest.mark.parametrize("d", [2, 3, 8])
def test_fixed_qr_iterations(name: str, d: int) -> None:
    A = matrix(name, d)
    solved = on_plain(eigh_qr, A, "fixed", fixed_iterations=4 * d)
    assert (solved.converged, solved.iterations) == (None, 4 * d)
    check(A, solved)


def test_two_equal_columns_need_more_than_the_rayleigh_quotient() -> None:
    """T[1,1] as a shift leaves [[a, b], [b, a]] as it is forever."""
    A = np.array([[0.6, 0.3], [0.3, 0.6]])
    Q, R = np.linalg.qr(A - 0.6 * np.eye(2))
    np.testing.assert_allclose(R @ Q + 0.6 * np.eye(2), A)
    assert on_plain(eigh_qr, A, "fixed").iterations <= 3


def test_giving_up_is_told() -> None:
    A = matrix("wishart", 6)
    assert on_plain(eigh_qr, A, "float", max_iterations=2).converged is False
    assert on_plain(eigh_jacobi_classic, A, "float", max_iterations=6).converged is False


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6, 2.0**-28, 0.0])
def test_reflections_are_orthogonal_however_short_the_vector(scale: float) -> None:
    w = np.array([0.3, -0.5, 0.2, 0.4]) * scale

    async def program(x: SecretArray) -> SecretArray:
        return await reflection(x, SecretArray.constant(x.party, np.eye(5)))

    P = run(program, w).value
    assert np.linalg.norm(P @ P.T - np.eye(5)) < 2e-9
    full = np.concatenate([[0.0], w])
    np.testing.assert_allclose((P @ full)[2:], 0, atol=1e-9 * scale + 4 * 2.0**-40 if scale != 2.0**-28 else 1e-9)
    np.testing.assert_allclose(P[0], np.eye(5)[0], atol=0)


@pytest.mark.parametrize("name", ["wishart", "rank_deficient", "repeated"])
def test_power_top_components(name: str) -> None:
    A = matrix(name, 9)
    found = finish(eigh_power(PlainArray(A, "fixed"), PlainArray(np.eye(9), "fixed"), components=3))
    exact = np.linalg.eigvalsh(A)[::-1]
    V = found.vectors.values
    assert V.shape == (9, 3)
    np.testing.assert_allclose(found.values.values, exact[:3], atol=1e-6 * exact[0])
    assert np.linalg.norm(A @ V - V * found.values.values) < 1e-6
    assert np.linalg.norm(V.T @ V - np.eye(3)) < 1e-7
    with pytest.raises(ValueError, match="between 1 and 9"):
        finish(eigh_power(PlainArray(A), PlainArray(np.eye(9)), components=10))


def test_power_promises_whatever_the_gap() -> None:
    """Gaps of every size down to 1e-9: the residual stays below the promise."""
    gaps = np.cumsum(10.0 ** -np.arange(1.0, 10.0))
    A = np.diag(0.3 - 0.3 * gaps)
    solved = on_plain(eigh_power, A, "fixed", tol=1e-6)
    check(A, solved)


def test_small_helpers() -> None:
    assert split_evenly(7, 3) == [3, 2, 2]
    assert split_evenly(0, 2) == [0, 0]
    assert squarings_for(1e-6) == 20
    assert squarings_for(1e-3) == 10


# -- what the paper prints ---------------------------------------------------------------------------------------------------


def test_order_of_the_papers_example() -> None:
    """The paper numbers the elements of a 7 x 7 matrix by the batch they are rotated in."""
    shown = {1: "05 14 23", 2: "03 12 46", 3: "01 26 35", 4: "06 15 24", 5: "04 13 56", 6: "02 36 45", 7: "16 25 34"}
    found = {at + 1: " ".join(f"{p}{q}" for p, q in pairs) for at, pairs in enumerate(modulus_order(7))}
    assert found == shown


@pytest.mark.parametrize("d", [2, 3, 4, 6, 11])
def test_a_sweep_in_the_papers_order_meets_every_pair_once(d: int) -> None:
    steps = modulus_order(d)
    for pairs in steps:
        assert len(np.unique(pairs)) == pairs.size > 0
    met = sorted(map(tuple, np.concatenate(steps).tolist()))
    assert met == list(itertools.combinations(range(d), 2))


@pytest.mark.parametrize("solver", [eigh_jacobi_classic, eigh_jacobi_eo])
@pytest.mark.parametrize("d", [3, 4, 11])
def test_the_papers_order_gives_the_same_decomposition(solver: Any, d: int) -> None:
    A = matrix("wishart", d)
    solved = on_plain(solver, A, "fixed", order="modulus")
    assert solved.converged
    least = 1.02 * reachable(d) if solver is eigh_jacobi_eo else 1e-6
    check(A, solved, residual=least, eigenvalues=least / np.linalg.norm(A, 2))


def test_the_papers_order_on_shares() -> None:
    A = matrix("wishart", 4)  # two indices rest in every second step
    check(A, on_shares(eigh_jacobi_classic, A, order="modulus"))


@pytest.mark.parametrize("stop", ["mean", "signed mean"])
def test_stop_rules_compare_the_mean_with_the_threshold(stop: str) -> None:
    A = np.full((4, 4), 0.1)
    for tol in (0.099, 0.101):
        assert bool(run(lambda x, tol=tol: STOP_RULES[stop](x, tol), A).value) is (tol > 0.1)


def test_entries_of_both_signs_cancel_in_the_printed_rule() -> None:
    signs = np.array([[1, 1, -1], [1, 1, 1], [-1, 1, 1]])
    A = 0.1 * signs * [[1, 1, 2], [1, 1, 1], [2, 1, 1]]  # off-diagonal 0.1, -0.2, 0.1
    printed, magnitudes = (
        run(lambda x, name=name: STOP_RULES[name](x, 1e-5), A).value for name in ("signed mean", "mean")
    )
    assert (bool(printed), bool(magnitudes)) == (True, False)


def test_the_printed_stop_rule_ends_too_early() -> None:
    """A negative mean stops the iteration at the first check, whatever is left."""
    A = matrix("wishart", 6)
    A = A * np.where(np.eye(6) > 0, 1, np.sign(A) * -1)
    A = (A + A.T) / 2
    early = on_plain(eigh_jacobi_classic, A, "float", stop="signed mean", check_every=1, tol=1e-5)
    right = on_plain(eigh_jacobi_classic, A, "float", stop="mean", check_every=1, tol=1e-5)
    assert early.converged
    assert right.converged
    assert early.iterations < right.iterations / 2
    assert np.linalg.norm(A @ right.vectors - right.vectors * right.values) < 36 * 1e-5


@pytest.mark.parametrize("name", ["wishart", "geometric", "rank_deficient"])
@pytest.mark.parametrize("d", [3, 5, 11])
def test_qr_as_printed(name: str, d: int) -> None:
    A = matrix(name, d)
    solved = on_plain(eigh_qr, A, "fixed", printed=True)
    assert solved.converged
    check(A, solved)


def test_qr_as_printed_on_shares() -> None:
    A = matrix("wishart", 3)
    check(A, on_shares(eigh_qr, A, printed=True))


def test_rounds_of_qr_as_printed() -> None:
    counts = [on_shares(eigh_qr, matrix("wishart", 4), fixed_iterations=n, printed=True) for n in range(4)]
    assert [b.rounds - a.rounds for a, b in itertools.pairwise(counts)] == [35 * m + 2 for m in (3, 2, 1)]


def test_the_papers_shift_never_converges_on_two_equal_columns() -> None:
    A = np.array([[0.6, 0.3], [0.3, 0.6]])
    assert on_plain(eigh_qr, A, "float", printed=True, max_iterations=40).converged is False


NUMBERS = np.concatenate([np.geomspace(1e-6, 9e8, 61), [1.0, 9.999, 10.0, 3.0, 0.5]])


@pytest.mark.parametrize(("newton", "exact"), [(newton_sqrt, np.sqrt), (newton_reciprocal, np.reciprocal)])
def test_newton(newton: Any, exact: Any) -> None:
    """x has 40 fractional bits, so A x and 1 / A are as accurate as x: relative to the larger of the result and 1."""
    found = run(newton, NUMBERS).value
    wanted = exact(np.round(np.ldexp(NUMBERS, 40)) * 2.0**-40)
    unit = 2.0**-40 * (NUMBERS if newton is newton_sqrt else 1.0)
    assert np.all(np.abs(found - wanted) <= 8 * unit + 1e-9 * wanted)


def test_rounds_of_newton() -> None:
    assert [run(newton, np.ones(4)).traffic.rounds for newton in (newton_sqrt, newton_reciprocal)] == [39, 26]
