"""The K largest pairs: accurate on both backends, never accepted when one is missing, and given up in time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.lockstep import run
from harness.spectra import Matrix, finish
from ppca.algorithms import certificate, decomposition
from ppca.algorithms.decomposition import decompose, resolution
from ppca.algorithms.deflation import deflated_powers
from ppca.algorithms.solvers import chosen_solver
from ppca.algorithms.topk import DEGREES, _Block, _level, block_size, eigh_topk, has_stalled
from ppca.protocol import PlainArray, SecretArray, together

TOL = 1e-7


def spectrum(name: str, d: int) -> Matrix:
    i = np.arange(1, d + 1)
    found = {
        "zipf": 1 / i,
        "steep": 1 / i**2.0,
        "geometric": 0.8**i,
        "halving": 0.5**i,
        "square root": np.exp(-np.sqrt(i)),
        "equal": np.ones(d),
        "border": np.r_[np.linspace(1, 0.5, 2), np.full(4, 0.3), 0.3 * 0.8 ** np.arange(1, d - 5)],
        "low rank": np.where(i <= 2, 1 / i, 0.0),
        "noise": (1 + np.linspace(0.7, -0.7, d)) ** 2,
        "zero": np.zeros(d),
    }
    return found[name]


NAMES = ("zipf", "steep", "geometric", "halving", "square root", "equal", "border", "low rank", "noise")


def rotated(values: Matrix, seed: int = 0, norm: float = 0.8) -> Matrix:
    """A symmetric matrix with these eigenvalues, on the grid of 40 fractional bits, |A|_F = norm (or 0)."""
    d = len(values)
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]
    A = (Q * values) @ Q.T
    return np.round(np.ldexp((A + A.T) / 2 * norm / (np.linalg.norm(A) or 1.0), 40)) * 2.0**-40


def check(A: Matrix, k: int, values: Matrix, vectors: Matrix) -> None:
    """Residual and orthogonality as promised; so eigenvalues are off by at most as much (Weyl)."""
    assert np.linalg.norm(A @ vectors.T - vectors.T * values) <= 2 * TOL
    assert np.linalg.norm(vectors @ vectors.T - np.eye(k)) <= 1e-7
    missed = np.linalg.eigvalsh(A)[::-1][:k] - values
    assert np.abs(missed).max() <= max(2 * TOL, certificate.max_missing(0, 2 * TOL))


@pytest.mark.parametrize("mode", ["float", "fixed"])
@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("name", NAMES)
def test_plain(name: str, k: int, mode: str) -> None:
    A = rotated(spectrum(name, 150), seed=k)
    found = finish(eigh_topk(PlainArray(A, mode), k, run=f"{name} {k} {mode}", tol=TOL))
    assert found.converged
    check(A, k, found.values.values, found.vectors.values)


def steep(name: str, d: int) -> Matrix:
    """Spectra whose tenth eigenvalue is 2^-9 to 2^-30 of the first."""
    i = np.arange(1.0, d + 1)
    found = {
        "halving": 0.5**i,
        "tenths": 0.1**i,
        "sixth powers": i**-6.0,
        "columns 100 times larger": np.where(i <= 3, 1.0, 1e-4) * np.linspace(1, 0.5, d),
        "columns 1000 times larger": np.where(i <= 3, 1.0, 1e-6) * np.linspace(1, 0.5, d),
        "a falling rest": np.where(i <= 4, 1.0, 1e-4) / i,
        "stairs": 2.0 ** np.select([i <= 3, i <= 6, i <= 9], [0, -8, -16], -19) / i,
    }
    return found[name]


STEEP = (
    "halving",
    "tenths",
    "sixth powers",
    "columns 100 times larger",
    "columns 1000 times larger",
    "a falling rest",
    "stairs",
)


@pytest.mark.parametrize("name", STEEP)
def test_steep_spectra(name: str) -> None:
    """All pairs to the tolerance, and accepted: of K = 10 most lie out of reach of the first powers."""
    A = rotated(steep(name, 200), seed=2)
    shared = PlainArray(A, "fixed")
    found = finish(eigh_topk(shared, 10, run=name, tol=TOL))
    assert found.converged
    assert found.iterations <= 5
    check(A, 10, found.values.values, found.vectors.values)
    assert finish(certificate.no_eigenvalue_missing(shared, found.values, found.vectors, name, 2 * TOL))[0].values


def test_powers_of_what_is_left_find_what_the_first_columns_hide() -> None:
    """Six eigenvectors and eight random columns, of halves: the eight become the next ones, 2^-7 to 2^-13 of the first."""
    d, known, b = 80, 6, 14
    A = rotated(0.5 ** np.arange(d), seed=1)
    exact = np.linalg.eigh(A)[1][:, ::-1]
    V = exact[:, :known]
    drawn = np.random.default_rng(0).standard_normal((d, b - known))
    Y = np.hstack([V, np.linalg.qr(drawn - V @ (V.T @ drawn))[0]])
    theta = np.sum(Y * (A @ Y), 0)
    rest = np.sum((A @ Y - Y * theta) ** 2, 0)

    async def program(A: SecretArray, Y: SecretArray, AY: SecretArray, squares: SecretArray, rest: SecretArray) -> Any:
        return await deflated_powers(A.within(1), Y.within(1.5), AY.within(1.5), squares.astype(80), rest.astype(80))

    outcome = run(program, A, Y, A @ Y, theta**2, rest)
    left, strength, _ = np.linalg.svd(outcome.value, full_matrices=False)
    assert np.abs(outcome.value[:, :known] - V).max() < 1e-3  # whitening is that accurate, and the six stay in place
    assert strength[b - 1] > 0.9
    parts = np.linalg.norm(left.T @ exact[:, :b], axis=0)
    assert np.all(parts[: b - 2] > 1 - 1e-4)
    assert outcome.audits[0][:-1] == []


def test_powers_of_nothing_leave_eigenvectors_as_they_are() -> None:
    """Where all columns are set apart, rounding must not take their places."""
    d, b = 40, 6
    A = rotated(0.9 ** np.arange(d), seed=1)
    Y = np.linalg.eigh(A)[1][:, : -b - 1 : -1]
    theta = np.sum(Y * (A @ Y), 0)

    async def program(A: SecretArray, Y: SecretArray, AY: SecretArray, squares: SecretArray) -> Any:
        rest = squares.astype(80) * 0
        return await deflated_powers(A.within(1), Y.within(1.5), AY.within(1.5), squares.astype(80), rest)

    np.testing.assert_allclose(run(program, A, Y, A @ Y, theta**2).value, Y, rtol=0, atol=2.0**-38)


def solve(A: Matrix, k: int, **options: Any) -> tuple[Any, list[str], int]:
    """A decomposition on four servers in lock-step, what they opened, and the rounds."""

    async def program(shared: SecretArray) -> list[Any]:
        found = await decompose(shared.within(1), run=shared.party.run, solver="topk", tol=TOL, top=k, **options)
        return [found.values, found.vectors, int(found.verified), int(found.fell_back), found.iterations]

    outcome = run(program, A)
    return outcome.value, [line.what for line in outcome.audits[0] if line.to != "test"], outcome.traffic.rounds


def test_steep_spectra_on_shares() -> None:
    """What is opened of a restart is that there is one: as many levels and ranks as loops."""
    A = rotated(steep("stairs", 80), seed=5)
    (values, vectors, verified, fell_back, loops), opened, _ = solve(A, 8)
    assert (verified, fell_back) == (1, 0)
    check(A, 8, values, vectors)
    assert set(opened) == {"convergence bit", "convergence level", "verification bit", "shuffled ranks"}
    assert opened.count("convergence level") == loops + 1 == opened.count("shuffled ranks")


def test_what_a_level_tells() -> None:
    """The residual and the columns out of reach, and neither of the latter once all is done or the block was restarted."""
    cases = {  # Ritz values (K = 2 of 3), residual, restarted: level, below
        (0.5, 0.4, 0.3, 5e-8, False): (0, 0),
        (0.5, 0.4, 1e-5, 5e-8, False): (0, 0),
        (0.5, 0.4, 0.3, 2e-7, False): (1, 0),
        (0.5, 0.4, 1e-5, 2e-7, False): (1, 1),
        (0.5, 1e-4, 1e-5, 1e-2, False): (9, 2),
        (0.5, 1e-4, 1e-5, 1e-2, True): (9, 0),
    }
    for (*theta, residual, restarted), expected in cases.items():
        squares, rest = PlainArray(np.square(theta)), PlainArray(np.array([residual**2, 0.0, 0.1]))
        nothing = PlainArray(0.0)
        block = _Block(nothing, nothing, PlainArray(np.array(theta)), squares, nothing, rest, nothing)
        assert finish(_level(block, 2, TOL, restarted)) == expected


@pytest.mark.parametrize("name", ["zipf", "halving", "low rank"])
def test_shares(name: str) -> None:
    A = rotated(spectrum(name, 60), seed=7)
    (values, vectors, verified, fell_back, loops), opened, rounds = solve(A, 3)
    assert (verified, fell_back) == (1, 0)
    check(A, 3, values, vectors)
    assert set(opened) == {"convergence bit", "convergence level", "verification bit", "shuffled ranks"}
    assert opened.count("convergence level") == loops + 1 == opened.count("shuffled ranks")
    assert opened.count("verification bit") == 1
    assert rounds < 106 + 45 + (1 + loops) * (29 + 20 * 9.2) + loops * (3 * 6 + 36)


def test_fixed_loops_open_no_level() -> None:
    A = rotated(spectrum("geometric", 60), seed=7)
    (values, vectors, verified, _, loops), opened, _ = solve(A, 3, fixed_iterations=1)
    assert loops == 1
    assert verified
    check(A, 3, values, vectors)
    assert set(opened) == {"verification bit", "shuffled ranks"}


def test_all_pairs_take_over_where_it_fails() -> None:
    """A pass of no loop cannot solve noise: what it finds is refused, and the whole is computed."""
    A = rotated(spectrum("noise", 40), seed=3)
    (values, vectors, verified, fell_back, _), opened, _ = solve(A, 2, max_iterations=0)
    assert (verified, fell_back) == (1, 1)
    check(A, 2, values[:2], vectors[:2])
    assert opened.count("verification bit") == 2


def test_what_was_reached_is_verified_where_nothing_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The level that is opened says which tolerance was reached: residual, certificate and resolution are that one's."""
    monkeypatch.setattr(decomposition, "FALLBACK_MAX_COLUMNS", 30)
    A = rotated(np.r_[1.0, 0.5, spectrum("noise", 38) / 100], seed=3)

    async def program(shared: SecretArray) -> list[Any]:
        found = await decompose(shared.within(1), run=shared.party.run, solver="topk", tol=TOL, top=4, max_iterations=0)
        return [found.values, found.vectors, int(found.verified), int(found.fell_back), found.tolerance]

    outcome = run(program, A)
    values, vectors, verified, fell_back, residual = outcome.value
    assert (verified, fell_back) == (1, 0)
    assert TOL < residual <= decomposition.MAX_WIDE_TOLERANCE
    assert np.log(residual / TOL) / np.log(4) == pytest.approx(round(np.log(residual / TOL) / np.log(4)))
    assert residual / 4.1 < np.linalg.norm(A @ vectors.T - vectors.T * values) < residual
    exact = np.linalg.eigvalsh(A)[::-1]
    np.testing.assert_allclose(values[:2], exact[:2], atol=2 * TOL)
    assert np.all(values[:2] > resolution(40, residual, certified=True) * np.trace(A))
    assert resolution(40, residual, certified=True) > 64 * residual
    assert [line.what for line in outcome.audits[0]].count("verification bit") == 1


def test_what_is_far_from_any_tolerance_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above MAX_WIDE_TOLERANCE the tolerance asked for is verified, which fails."""
    monkeypatch.setattr(decomposition, "FALLBACK_MAX_COLUMNS", 30)
    monkeypatch.setattr(decomposition, "MAX_WIDE_TOLERANCE", 4 * TOL)  # a pass of no loop leaves more of noise
    (_, _, verified, fell_back, _), _, _ = solve(rotated(spectrum("noise", 40), seed=3), 2, max_iterations=0)
    assert (verified, fell_back) == (0, 0)


@pytest.mark.parametrize("name", [*NAMES, "zero"])
def test_the_certificate_accepts_the_largest_pairs(name: str) -> None:
    for seed in range(5):
        A = rotated(spectrum(name, 80), seed)
        values, vectors = np.linalg.eigh(A)
        top = slice(None, -6, -1)
        parts = (PlainArray(part, "fixed") for part in (A, values[top], vectors.T[top]))
        passed, bound = finish(certificate.no_eigenvalue_missing(*parts, f"{name} {seed}", 2 * TOL))
        assert passed.values
        smallest = max(values[-5], certificate.min_beta(2 * TOL))  # of the pairs found, or what is asked for at least
        certain = smallest + certificate.MARGIN * (smallest + certificate.negative_range(2 * TOL))
        assert certain <= bound.values <= certificate.max_missing(values[-5], 2 * TOL) + 2.0**-23


@pytest.mark.parametrize("name", ["zipf", "steep", "geometric", "halving", "square root"])
def test_the_certificate_refuses_if_one_is_missing(name: str) -> None:
    """On shares: a missing pair can be thousands of times the last one, and then the probes grow past any range; the first
    that grows is what counts. Each case would be overlooked in one of 2^40 tries."""
    A = rotated(spectrum(name, 40), seed=1)
    values, vectors = np.linalg.eigh(A)
    values, rows = values[::-1].copy(), vectors.T[::-1].copy()
    cases = [[0, 1, 2, 3], [1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 11], [20], [0]]

    async def program(A: SecretArray, values: SecretArray, rows: SecretArray) -> Any:
        run = values.party.run
        work = (
            certificate.no_eigenvalue_missing(A.within(1), values[case], rows[case], run, 2 * TOL) for case in cases
        )
        return [bit for bit, _ in await together(*work)]

    found = [int(bit) for bit in run(program, A, values, rows).value]
    excluded = [certificate.max_missing(float(values[case[-1]]), 2 * TOL) for case in cases]
    left = [max(set(values) - set(values[case])) for case in cases]
    assert all(most > bound for most, bound in zip(left[1:-1], excluded[1:-1], strict=True))
    assert found == [1, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("d", [100, 1_000, 5_000])
def test_a_missing_pair_is_overlooked_with_the_stated_probability(d: int) -> None:
    m = certificate.chebyshev_degree(d)
    assert (
        certificate.miss_probability(d, m) <= certificate.MAX_MISS_PROBABILITY < certificate.miss_probability(d, m - 1)
    )
    rng, growth = np.random.default_rng(d), np.cosh(m * np.arccosh(1 + 2 * certificate.MARGIN))
    assert certificate.miss_probability(d, m) == pytest.approx(_bound(d, growth), rel=1e-9)
    parts = rng.chisquare(certificate.PROBES, 200_000)  # of the probes along one eigenvector, times d
    for wanted in (0.5, 0.1, 0.01):  # the bound holds where it can be seen: for a smaller growth
        smaller = growth * next(s for s in np.geomspace(1, 1e-4, 400) if _bound(d, growth * s) >= wanted)
        passed = np.mean(parts * smaller**2 / d <= certificate.PROBES * (1 + certificate.SLACK))
        assert passed <= _bound(d, smaller) + 0.005


def _bound(d: int, growth: float) -> float:
    a = (1 + certificate.SLACK) * d / growth**2
    return 1.0 if a >= 1 else float((a * np.exp(1 - a)) ** (certificate.PROBES / 2))


def test_what_is_below_the_floor_is_not_resolved() -> None:
    assert resolution(1_000, 1e-7, certified=True) >= 2 * certificate.max_missing(0, 2 * TOL)
    off = 2e-7 + 1_000 * 2.0**-40  # twice the tolerance, and the rounding of A; its trace is at least 1/2
    assert resolution(1_000, 1e-7) == pytest.approx(2 * off, rel=1e-12)
    promised = certificate.promise(2 * TOL)
    assert promised["floor"] == resolution(2, TOL, certified=True)
    assert 1 < promised["factor"] < 1.2


def test_it_is_given_up_where_late_loops_bring_nothing() -> None:
    assert not has_stalled([9, 9, 9, 9, 9])
    assert has_stalled([9, 9, 9, 9, 9, 9])
    assert not has_stalled([9, 9, 9, 9, 9, 8])
    assert len(DEGREES) >= 6


@pytest.mark.parametrize(
    ("d", "components", "fixed", "solver"),
    [
        (1_000, 10, None, "topk"),
        (1_000, 10, 24, "allpairs"),
        (1_000, 0.9, None, "allpairs"),
        (1_000, None, None, "allpairs"),
        (1_000, 300, None, "allpairs"),
        (50, 2, None, "allpairs"),
    ],
)
def test_what_auto_means(d: int, components: int | float | None, fixed: int | None, solver: str) -> None:
    assert chosen_solver("auto", d, components, fixed) == solver
    assert chosen_solver("jacobi", d, components, fixed) == "jacobi"


def test_the_block_is_larger_than_what_is_wanted_and_never_larger_than_the_matrix() -> None:
    assert [block_size(k, 1_000) for k in (1, 10, 50)] == [14, 32, 80]
    assert block_size(10, 20) == 20
