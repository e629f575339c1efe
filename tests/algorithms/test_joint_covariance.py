"""Owners' sums in secret scales become one covariance: on shares, against exact arithmetic over all rows.

Error of an entry, relative to the product of two joint deviations: what the owners' doubles carry (2^-46 here) and that of X;
1e-12 = 2^-40 is allowed. Besides, distances are multiples of 2^-80 of the means. What the servers add to the owners' doubles
is tested apart, with sums made by hand, against the bound of `joint_covariance`.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.lockstep import LockstepServers, run
from ppca import Job
from ppca.algorithms import factors
from ppca.algorithms.joint_covariance import OwnerMoments, joint_covariance, spread_exponent
from ppca.algorithms.scales import EXPONENT, GRID, MANTISSA_BITS, floating
from ppca.owner.moments import Moments, moments
from ppca.owner.rows import share_sums
from ppca.owner.tables.opening import open_table
from ppca.protocol import Party, RingType, SecretArray, concatenate, stack
from ppca.protocol.triangles import row_starts

Floats = NDArray[np.float64]
ERROR = 1e-12
RANDOM = np.random.default_rng(0)


async def entered(party: Party, *inputs: SecretArray, width: int, common: bool) -> Any:
    columns = [inputs[k::7] for k in range(7)]
    parts = [concatenate(column) if k < 2 else stack(column) for k, column in enumerate(columns)]
    joint = await joint_covariance(OwnerMoments(*parts), width, common)
    mean, exponent = await floating(joint.mean_mantissa, joint.mean_exponent)
    wide = joint.triangle.retype(RingType(128, 112, 14))
    return [
        one.reveal(why="test")
        for one in (wide, joint.column_exponent, mean, exponent, joint.n_rows, joint.n_rows_scaled)
    ]


def joint(owners: list[Any], common: bool) -> tuple[Floats, Floats, int, int]:
    """Covariance and means in the units of the data, the number of rows, and the rounds."""
    C, mean, rows, rounds, _ = joint_sums([moments(open_table(owner)) for owner in owners], common)
    return C, mean, rows, rounds


def joint_sums(sums: list[Moments], common: bool) -> tuple[Floats, Floats, int, int, Floats]:
    """The same of sums, and the units of the columns, 2^D."""
    d = len(sums[0].mean)
    packets = [packet for one in sums for packet in share_sums(one, len(sums))]
    servers = LockstepServers()
    packed, exponent, mean, mean_exponent, rows, ratio = Job(servers).run(entered, *packets, width=d, common=common)
    half = -(-int(rows).bit_length() // 2)
    assert abs(ratio - rows / 4.0**half) < 2.0**-36
    units = np.broadcast_to(exponent, (d,))
    i, j = np.triu_indices(d)
    C = np.zeros((d, d))
    C[i, j] = np.ldexp(packed / (rows / 4.0**half), units[i] + units[j])
    assert servers.traffic is not None
    assert not [line for line in servers.openings[0] if line.to == "servers"]
    rounds = servers.traffic.rounds - 6
    return np.triu(C) + np.triu(C, 1).T, np.ldexp(mean, mean_exponent), int(rows), rounds, np.ldexp(1.0, units)


def exact(owners: list[Floats]) -> tuple[Floats, Floats]:
    X = np.vstack(owners)
    mean = [sum(map(Fraction, column.tolist())) / len(X) for column in X.T]
    Z = np.array([[float(Fraction(float(x)) - m) for x, m in zip(row, mean, strict=True)] for row in X])
    return Z.T @ Z / len(X), np.array([float(m) for m in mean])


def check(owners: list[Floats], common: bool) -> int:
    C, mean, rows, rounds = joint(owners, common)
    wanted, means = exact(owners)
    deviation = np.sqrt(np.diagonal(wanted))
    size = np.outer(deviation, deviation) if not common else np.full_like(C, (deviation**2).max())
    assert rows == sum(map(len, owners))
    grid = 2.0**-78 * np.abs(means)  # means lie on a grid of 2^-80 of the largest mean of a column
    assert np.all(np.abs(C - wanted) <= ERROR * size + np.outer(grid, deviation) + np.outer(deviation, grid))
    assert np.all(np.abs(mean - means) <= 2.0**-50 * np.abs(means) + ERROR * deviation)
    return rounds


@pytest.mark.parametrize("common", [False, True], ids=["each", "common"])
@pytest.mark.parametrize("apart", [0.0, 1e-3, 1.0, 30.0, 1e6])
@pytest.mark.parametrize("ratio", [0.0, 1e3, 1e6, 1e9, 1e11])
def test_offsets_and_distances_of_any_size(ratio: float, apart: float, common: bool) -> None:
    """mean / deviation, and how many deviations the owners' means are apart."""
    mix = RANDOM.standard_normal((4, 4))
    scale = np.array([1.0, 2.0, 0.5, 3.0] if common else [1.0, 1e7, 1e-8, 3e2])
    owners = [
        (RANDOM.standard_normal((rows, 4)) @ mix + ratio + apart * i) * scale for i, rows in enumerate((40, 25, 60))
    ]
    assert check(owners, common) == (33 if common else 28)


@pytest.mark.parametrize(("entries", "rounds"), [(90, 26), (36, 26), (24, 28), (1, 36)])
def test_factors_in_passes(entries: int, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """1, 4, 5 and 9 passes over triangles of 45 entries: the first four take no round of their own. Blocks of two rows."""
    monkeypatch.setattr(factors, "PASS_ENTRIES", entries)
    monkeypatch.setattr(factors, "BLOCK_ROWS", 2)
    mix = RANDOM.standard_normal((9, 9))
    assert check([RANDOM.standard_normal((rows, 9)) @ mix + i for i, rows in enumerate((40, 25))], False) == rounds


def test_passes_have_all_rows_once() -> None:
    for d, owners in ((1, 1), (50, 3), (5000, 3)):
        found = list(factors.passes(owners, d))
        assert found[0][0] == 0
        assert found[-1][1] == d
        assert all(before[1] == after[0] for before, after in pairwise(found))
        starts = row_starts(d)
        assert all(owners * (starts[b] - starts[a]) <= factors.PASS_ENTRIES for a, b in found)


@pytest.mark.parametrize("owners", [1, 2, 17])
def test_numbers_of_owners(owners: int) -> None:
    check([RANDOM.standard_normal((3 + i, 3)) * 10.0**i + i for i in range(owners)], False)


def test_extreme_columns() -> None:
    """Constant, constant but different at each owner, zero, tiny, huge, integers about 2^53, nanoseconds since 1970."""
    n = 30
    columns = [
        np.full(n, 1e30),
        np.repeat([1.0, 2.0, 3.0], 10),
        np.zeros(n),
        RANDOM.standard_normal(n) * 1e-140,
        RANDOM.standard_normal(n) * 1e140,
        2.0**53 - RANDOM.integers(0, 100, n),
        1.7e18 + RANDOM.integers(0, 10**6, n) * 8.64e10,
        np.where(np.arange(n) == 7, 1e9, RANDOM.standard_normal(n)),
    ]
    X = np.column_stack(columns)
    check(np.split(X, 3), False)


@pytest.mark.parametrize("apart", [0, 1, 1000, 2**40])
@pytest.mark.parametrize("middle", [2**62, 2**63, 2**64 - 2**42], ids=["2^62", "2^63", "2^64"])
def test_integers_whose_deviation_is_below_their_eightieth_bit(middle: int, apart: int) -> None:
    """As integers about zero, far better than means of 80 bits would be: what these leave of them is in the covariance."""
    near = [RANDOM.integers(0, 2, (rows, 2)) + apart * i for i, rows in enumerate((13, 11, 16))]
    owners = [(part.astype(object) + (middle - 1)).astype(np.uint64) for part in near]
    found, *_ = joint(owners, False)
    wanted, _ = exact([part.astype(float) for part in near])
    assert np.abs(found - wanted).max() <= ERROR * wanted.max() + 2.0**-31  # the square of 2^-80 of the mean, and some


def test_owners_of_one_row_and_of_equal_rows() -> None:
    check([np.array([[1.0, 2.0]]), np.array([[1.0, 2.5]]), np.array([[4.0, 2.0]] * 5)], False)


def test_an_owner_of_few_rows_that_varies_most() -> None:
    """Its scale is that of all; the others' variance keeps its digits."""
    owners = [RANDOM.standard_normal((2000, 2)), RANDOM.standard_normal((2, 2)) * 1e5]
    check(owners, False)
    check(owners, True)


def test_singular_sums() -> None:
    x = RANDOM.standard_normal((20, 1))
    check([np.hstack([x, x, 2 * x]), np.hstack([x, x, 2 * x])[:2]], False)


def sums_of(count: int, mean: list[float], deviation: list[float], correlation: float = 0.0) -> Moments:
    size = np.outer(deviation, deviation) * count
    gram = size * (correlation + (1 - correlation) * np.eye(len(mean)))
    return Moments(count, np.array(mean), np.zeros(len(mean)), gram)


def check_sums(sums: list[Moments]) -> None:
    """Against exact arithmetic over the sums: X errs by 2^-(48 + h) and 2^-55, in units of 2^D."""
    C, _, n, _, unit = joint_sums(sums, False)
    d = len(C)
    each = 2.0 ** -(48 + -(-n.bit_length() // 2)) + 2.0**-55
    root = np.sqrt(np.diagonal(C)) / unit
    means = [[Fraction(float(m)) for m in one.mean] for one in sums]
    joint = [sum(one.count * m[j] for one, m in zip(sums, means, strict=True)) / n for j in range(d)]
    for j in range(d):
        for k in range(d):
            within = sum(Fraction(float(one.gram[j, k])) for one in sums)
            between = sum(one.count * (m[j] - joint[j]) * (m[k] - joint[k]) for one, m in zip(sums, means, strict=True))
            wanted = float((within + between) / n)
            allowed = each * (len(sums) * (d + 1)) ** 0.5 * (root[j] + root[k]) / 0.5  # X = root times 1/2 to 1
            rounded = 2.0**-50 * root[j] * root[k]  # doubles, here and at the owners
            assert abs(C[j, k] - wanted) <= (allowed + rounded) * unit[j] * unit[k]


@pytest.mark.parametrize("apart", [39, 43, 44, 45, 46, 50, 56, 70, 79, 80, 81, 200])
def test_distances_far_below_the_deviations(apart: int) -> None:
    """They count in the covariance with a column whose distances are large."""
    deviation = [np.ldexp(0.9, apart), 1e-3]
    check_sums([sums_of(100, [0.9999, 1.0], deviation), sums_of(100, [-0.9999, -1.0], deviation)])


@pytest.mark.parametrize("apart", [30, 39, 41, 45, 50, 57, 80])
@pytest.mark.parametrize("count", [3, 2**10, 2**20, 2**35 - 1])
def test_deviations_far_below_another_owners(count: int, apart: int) -> None:
    """However many rows there are."""
    small = np.ldexp(0.99, -apart)
    check_sums(
        [sums_of(count, [0.0, 0.0], [small, 0.99], 0.99), sums_of(count, [0.0, 0.0], [0.99, small], 0.99)],
    )


@pytest.mark.parametrize("owners", [1, 2, 3])
def test_few_rows(owners: int) -> None:
    check_sums([sums_of(2 + i, [0.1 * i, 7.0], [0.51, 0.99 + i], 0.3) for i in range(owners)])


def test_a_sum_of_distances_is_not_negative() -> None:
    """Distances between two points of the grid may be -1 in one split and 0 in the other: their sum is 1 or 0."""

    async def program(half: Any, largest: Any) -> Any:
        distance = await half.retype(RingType(128, MANTISSA_BITS + 1, 1)).truncate(1)
        return await spread_exponent(distance.retype(GRID), largest)

    found = run(program, np.full((1, 400), -1), np.zeros(400, np.int64), dtypes=(RingType(128, 0, 1), EXPONENT)).value
    assert set(found.tolist()) <= {1 - MANTISSA_BITS + 1, -(MANTISSA_BITS + 4096 - 1)}
