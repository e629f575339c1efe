"""Components from products of rows: on shares and on plain numbers, against NumPy's eigenvectors of X'X.

Error: X has 48 fractional bits, A and the components 40; residuals are those of the solver (tol 1e-6 is its promise, about 1e-8
what it reaches). The plain backend checks every promised range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.lockstep import LockstepServers, run
from ppca import Job, share
from ppca.algorithms import gram_matrix
from ppca.algorithms.decomposition import decompose, resolution
from ppca.algorithms.scales import EXPONENT
from ppca.algorithms.wide_table import ENTRIES, ONTO, PRODUCTS, WideTable
from ppca.protocol import Party, RingType, SecretArray
from ppca.protocol.plain import PlainArray

Floats = NDArray[np.float64]
K = 5
TOL = 1e-7


async def found(table: Any, shift: Any, by_columns: bool, owners: list[int]) -> tuple[Any, ...]:
    """The whole job_state: rows in units of 2^-shift, or columns, whose products then come by owner."""
    n = table.rows
    i, j = np.triu_indices(n)
    if by_columns:
        packed = await gram_matrix.sum_in_one_unit(table.sums_by_owner, (shift * 2).retype(EXPONENT))
        shift = shift[np.repeat(np.arange(len(owners)), owners)]
    else:
        pairs = (shift[i] + shift[j]).retype(EXPONENT)
        products = await gram_matrix.truncate_products(await table.gram())
        packed = await gram_matrix.scale_to_one_unit(products, pairs, np.arange(len(i)))
    scaled = await gram_matrix.normalised_gram(packed, n)
    unit = await gram_matrix.table_unit(scaled)
    spectrum = await decompose(scaled.matrix, run="dual", top=K, tol=TOL)
    make = gram_matrix.ScaledTable.by_columns if by_columns else gram_matrix.ScaledTable.by_rows
    Y = await make(table, shift + unit.exponent)
    minimum = scaled.matrix.diagonal().sum() * (resolution(n, TOL) / 2)
    values = spectrum.values[:K]
    components = await gram_matrix.components(Y, values, spectrum.vectors[:K], minimum)
    good = await gram_matrix.is_accurate(Y, values, components, unit, (TOL, TOL))
    wrong = await gram_matrix.is_accurate(Y, values * 1.001, components, unit, (TOL, 10 * TOL))
    return components.vectors, values, scaled, good, wrong


async def on_shares(
    party: Party,
    columns: SecretArray,
    shift: SecretArray,
    *sums: SecretArray,
    by_columns: bool,
    owners: list[int],
) -> list[Any]:
    d, n = columns.shape

    def chunks() -> Iterator[Any]:
        return (columns.data[:, start : start + 7] for start in range(0, d, 7))

    table: Any = WideTable(party, chunks, n, d)
    table.sums_by_owner = SecretArray.stack(sums) if sums else None
    V, values, scaled, good, wrong = await found(table, shift, by_columns, owners)
    factor = scaled.factor.retype(RingType(128, 100, 26))
    return [*(array.reveal(why="test") for array in (V, values, factor)), scaled.shift, good, wrong]


@dataclass
class PlainTable:
    """A table in the clear with the interface of `WideTable`."""

    columns_below: Floats
    sums_by_owner: Any = None

    @property
    def rows(self) -> int:
        return self.columns_below.shape[1]

    async def gram(self) -> PlainArray:
        products = (self.columns_below.T @ self.columns_below)[np.triu_indices(self.rows)]
        return PlainArray(products, "fixed", PRODUCTS)

    async def onto_columns(self, vectors: PlainArray) -> PlainArray:
        return PlainArray(self.columns_below @ vectors.values, "fixed", ONTO)

    async def onto_rows(self, vectors: PlainArray) -> PlainArray:
        return PlainArray(self.columns_below.T @ vectors.values, "fixed", ONTO)


def run_plain(coroutine: Any) -> Any:
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    return ended.value.value


SHIFTS = [0, 1, 23, 49, 50, 51, 52, 60, 75, 89, 90, 91, 120, 2000]


@pytest.mark.parametrize("by_owner", [True, False], ids=["columns", "rows"])
def test_products_in_smaller_units_keep_their_digits(by_owner: bool) -> None:
    """Error: two units of 2^-90, and where 40 bits are cut off before, one of 2^(16 - shift). No products vanish above 2^-90."""
    sums = np.random.default_rng(6).uniform(-(2.0**10), 2.0**10, (len(SHIFTS), 3))
    shifts = np.array(SHIFTS)

    async def program(products: Any, shift: Any) -> Any:
        if by_owner:  # one owner at a time: all others send zeros
            chosen = [products * (np.arange(len(SHIFTS)) == k)[:, None] for k in range(len(SHIFTS))]
            return [
                (await gram_matrix.sum_in_one_unit(each.retype(gram_matrix.SUMS), shift)).retype(LARGE)
                for each in chosen
            ]
        place = np.repeat(np.arange(len(SHIFTS)), 3)
        return (await gram_matrix.scale_to_one_unit(products.reshape(-1), shift, place)).retype(LARGE)

    on_shares = np.reshape(run(program, sums, shifts, dtypes=(gram_matrix.SUMS, EXPONENT)).value, (-1, 3))
    exact = np.ldexp(np.rint(np.ldexp(sums, gram_matrix.SUM_FRAC)), -gram_matrix.SUM_FRAC - shifts[:, None])
    allowed = 2.0**-89 + np.where(shifts > gram_matrix.MAX_NEAR_SHIFT, 2.0 ** (-16 - np.minimum(shifts, 1000)), 0)
    allowed = np.where(shifts > 90, 2.0**-80, allowed)[:, None]
    assert (np.abs(np.ldexp(on_shares, -20) - exact) <= allowed).all()
    plain = program(PlainArray(sums, "fixed", gram_matrix.SUMS), PlainArray(shifts, "fixed", EXPONENT))
    fixed = run_plain(plain)
    fixed = np.array([part.values for part in fixed]) if by_owner else fixed.values.reshape(-1, 3)
    assert (np.abs(np.ldexp(fixed, -20) - exact) <= allowed).all()


LARGE = RingType(128, 70, 40)
"""As which results with 90 fractional bits come to the test, so that doubles hold the small ones: times 2^20."""


def case(name: str) -> Floats:
    random = np.random.default_rng(3)
    X = random.standard_normal((14, 40))
    if name == "steep":
        X = random.standard_normal((14, 14)) * np.geomspace(1, 3e-3, 14) @ random.standard_normal((14, 40))
    if name == "twice":
        X[7:] = X[:7]
    if name == "rank 2":
        X = X[:, :2] @ random.standard_normal((2, 40))
    return np.asarray(X - X.mean(axis=0)) / np.abs(X).max() / 2


def check(X: Floats, V: Floats, values: Floats, resolved: int) -> None:
    wanted, vectors = np.linalg.eigh(X.T @ X)
    wanted, vectors = wanted[::-1][:K], vectors[:, ::-1][:, :K]
    assert np.abs(values - wanted).max() < 1e-9 * wanted[0]
    V, kept = V[:, :resolved], wanted[:resolved]
    assert np.abs(V.T @ V - np.eye(resolved)).max() < 1e-10
    assert np.linalg.norm(X.T @ (X @ V) - V * kept) < 1e-7 * wanted[0]


CASES = {"noise": K, "steep": K, "twice": K, "rank 2": 2}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("by_columns", [False, True], ids=["units of rows", "units of columns"])
def test_on_shares(name: str, by_columns: bool) -> None:
    """Owners' units differ by up to 2^9; components below the resolution are zero."""
    X = case(name)
    owners = [11, 29]
    if by_columns:
        shift = np.array([0, 9])
        own = X * 2.0 ** np.repeat(shift, owners)
        parts = np.split(own, [owners[0]], axis=1)
        sums = [share((part @ part.T)[np.triu_indices(len(X))], gram_matrix.SUMS) for part in parts]
    else:
        shift = np.arange(len(X)) % 10
        own, sums = X * 2.0 ** shift[:, None], []
    servers = LockstepServers()
    V, values, factor, halvings, good, wrong = Job(servers).run(
        on_shares, share(own.T, ENTRIES), share(shift, EXPONENT), *sums, by_columns=by_columns, owners=owners
    )
    assert good
    assert not wrong
    check(X, V, values * 2.0**halvings / (factor * 2.0**100), CASES[name])
    assert np.all(V[:, CASES[name] :] == 0)
    opened = [line.what for line in servers.openings[0] if line.to == "servers"]
    assert opened.count("verification of components") == 2


@pytest.mark.parametrize("name", CASES)
def test_on_plain_numbers(name: str) -> None:
    X = case(name)
    shift = PlainArray(np.arange(len(X)) % 10, "fixed", EXPONENT)
    table = PlainTable((X * 2.0 ** shift.values[:, None]).T)
    V, values, scaled, good, wrong = run_plain(found(table, shift, False, []))
    assert good
    assert not wrong
    check(X, V.values, values.values * 2.0**scaled.shift / scaled.factor.values, CASES[name])


async def three_products(party: Party, columns: SecretArray, U: SecretArray, V: SecretArray) -> list[Any]:
    d, n = columns.shape

    def chunks() -> Iterator[Any]:
        return (columns.data[:, start : start + 3] for start in range(0, d, 3))

    table = WideTable(party, chunks, n, d)
    parts = [await table.gram(), await table.onto_columns(U), await table.onto_rows(V)]
    return [part.reveal(why="test") for part in parts]


def test_products_are_exact_and_take_a_round_each() -> None:
    random = np.random.default_rng(0)
    n, d, k = 6, 11, 2
    X = random.integers(-(2**20), 2**20, (n, d)) / 2.0**20
    U, V = (random.integers(-(2**15), 2**15, (size, k)) / 2.0**15 for size in (n, d))
    servers = LockstepServers()
    vectors = RingType(128, 56, 14)
    gram, onto, rows = Job(servers).run(three_products, share(X.T, ENTRIES), share(U, vectors), share(V, vectors))
    assert np.array_equal(gram, (X @ X.T)[np.triu_indices(n)])
    assert np.array_equal(onto, X.T @ U)
    assert np.array_equal(rows, X @ V)
    traffic = servers.traffic
    assert traffic is not None
    assert traffic.rounds == 3
    assert traffic.sent == [2 * 16 * (n * (n + 1) // 2 + d * k + n * k)] * 4
