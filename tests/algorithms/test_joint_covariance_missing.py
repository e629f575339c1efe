"""Missing values count as the joint mean: on shares, against exact arithmetic over the filled table.

In units of the joint scales, an entry of C errs by e_i s_j + e_j s_i, s the joint deviations of its columns and e the error of
a column of X: 2^-46 for the distances of the means, 2^-46 for what the owners' doubles carry, 2^-46 times sqrt(2 d) for the
factors of owners of few rows. Four times their sum is allowed, for d = 8.
"""

from __future__ import annotations

import tracemalloc
from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.lockstep import LockstepServers
from ppca import Job
from ppca.algorithms import factors
from ppca.algorithms.joint_covariance import OwnerMoments, joint_covariance
from ppca.algorithms.joint_covariance_missing import OwnerMomentsMissing, joint_covariance_missing
from ppca.algorithms.scales import NONE, floating
from ppca.owner.missing_moments import moments_with_missing
from ppca.owner.moments import moments
from ppca.owner.rows import share_missing_moments, share_sums
from ppca.owner.tables.opening import open_table
from ppca.protocol import Party, RingType, SecretArray, concatenate, stack

Floats = NDArray[np.float64]
ERROR = 4 * (2.0**-46 + 2.0**-46 + 4 * 2.0**-46)
RANDOM = np.random.default_rng(0)


async def entered(party: Party, *inputs: SecretArray, width: int, common: bool, gaps: bool = True) -> Any:
    kind = OwnerMomentsMissing if gaps else OwnerMoments
    names = [field.name for field in fields(kind)]
    columns = {name: inputs[k :: len(names)] for k, name in enumerate(names)}
    parts = {
        name: concatenate(column) if name in ("count", "root") else stack(column) for name, column in columns.items()
    }
    joint = await (
        joint_covariance_missing(OwnerMomentsMissing(**parts), width, common)
        if gaps
        else joint_covariance(OwnerMoments(**parts), width, common)
    )
    mean, exponent = await floating(joint.mean_mantissa, joint.mean_exponent)
    wide = joint.triangle.retype(RingType(128, 112, 14))
    return [
        one.reveal(why="test")
        for one in (wide, joint.column_exponent, mean, exponent, joint.n_rows, joint.n_rows_scaled)
    ]


def shared(owners: list[Floats]) -> list[Any]:
    sums = [moments_with_missing(open_table(owner, missing="mean")) for owner in owners]
    return [packet for one in sums for packet in share_missing_moments(one, len(owners))]


def filled(owners: list[Floats]) -> tuple[Floats, Floats]:
    """Covariance and means of the filled table, from exact means."""
    X = np.vstack(owners)
    values = [[Fraction(x) for x in column[~np.isnan(column)].tolist()] for column in X.T]
    means = [sum(column, Fraction(0)) / len(column) for column in values]
    Z = np.array(
        [
            [0.0 if np.isnan(x) else float(Fraction(x) - mean) for x, mean in zip(row, means, strict=True)]
            for row in X.tolist()
        ]
    )
    return Z.T @ Z / len(X), np.array([float(mean) for mean in means])


def check(owners: list[Floats], common: bool) -> int:
    """Asserts that covariance, means, rows and scales are right; the number of rounds."""
    d = owners[0].shape[1]
    servers = LockstepServers()
    found = Job(servers).run(entered, *shared(owners), width=d, common=common)
    packed, exponent, mean, mean_exponent, rows, ratio = found
    assert rows == sum(map(len, owners))
    half = -(-int(rows).bit_length() // 2)
    assert abs(ratio - rows / 4.0**half) < 2.0**-36
    wanted, means = filled(owners)
    units = np.broadcast_to(exponent, (d,))
    scale = np.ldexp(1.0, np.where(units > NONE + 100, units, 0))  # a constant column has none
    i, j = np.triu_indices(d)
    C = packed / (rows / 4.0**half)
    truth = wanted / scale / scale[:, None]
    deviation = np.sqrt(np.diagonal(truth))
    # Means lie on a grid of 2^-80 of the largest mean of a column.
    error = ERROR * deviation[i] + (2.0**-78 * np.abs(means) / scale)[i]
    other = ERROR * deviation[j] + (2.0**-78 * np.abs(means) / scale)[j]
    assert np.all(np.abs(C - truth[i, j]) <= error + other)
    assert np.all(C[i == j] < 1 / 4)
    assert np.all(np.abs(np.ldexp(mean, mean_exponent) - means) <= 2.0**-50 * np.abs(means) + ERROR * scale)
    assert not [line for line in servers.openings[0] if line.to == "servers"]
    assert servers.traffic is not None
    return servers.traffic.rounds - 6


def holes(owner: Floats, part: float) -> Floats:
    """The same with this number of its values missing, but not all of a column."""
    found = owner.copy()
    found[RANDOM.random(owner.shape) < part] = np.nan
    found[0] = owner[0]
    return found


@pytest.mark.parametrize("common", [False, True], ids=["each", "common"])
@pytest.mark.parametrize("apart", [0.0, 1.0, 1e3])
@pytest.mark.parametrize("ratio", [0.0, 1e3, 1e7, 1e11])
def test_offsets_and_distances_of_any_size(ratio: float, apart: float, common: bool) -> None:
    """mean / deviation, and how many deviations the owners' means are apart; one owner misses nothing, one nearly all."""
    mix = RANDOM.standard_normal((4, 4))
    scale = np.array([1.0, 2.0, 0.5, 3.0] if common else [1.0, 1e7, 1e-8, 3e2])
    owners = [
        holes((RANDOM.standard_normal((rows, 4)) @ mix + ratio + apart * i) * scale, part)
        for i, (rows, part) in enumerate([(40, 0.3), (25, 0.0), (60, 0.9)])
    ]
    assert check(owners, common) == (33 if common else 28)


@pytest.mark.parametrize(
    ("owners", "entries", "passes"),
    [(1, 55, 1), (1, 20, 3), (1, 1, 5), (2, 110, 1), (2, 60, 2), (2, 40, 4), (2, 1, 10)],
)
def test_factors_in_passes(owners: int, entries: int, passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the ten rows of triangles of 55 entries, with one owner over the five of F1: two rounds for each but the first. Blocks
    of two rows, one of which begins in F1 and ends below it."""
    monkeypatch.setattr(factors, "PASS_ENTRIES", entries)
    monkeypatch.setattr("ppca.algorithms.joint_covariance_missing.BLOCK_ROWS", 2)
    mix = RANDOM.standard_normal((5, 5))
    tables = [holes(RANDOM.standard_normal((rows, 5)) @ mix + i, 0.2) for i, rows in enumerate((40, 25)[:owners])]
    assert check(tables, False) == (20 if owners == 1 else 26) + 2 * (passes - 1)


def test_beside_the_factors_servers_hold_what_a_pass_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond what owners sent, in units of their factors, d (2 d + 1) elements of two words in two splits from each of three: one
    for all of them in one array, 1/12 each for local products, those of a block, and the triangle that comes of them, and
    passes of 1/12. In one pass, X and its parts in several forms would be there at once."""
    d, owners = 64, 3
    packets = shared([holes(RANDOM.standard_normal((100, d)) + i, 0.1) for i in range(owners)])
    factors_size = 32 * owners * d * (2 * d + 1)

    def beyond(entries: int) -> float:
        """What four servers in one process take at most beyond their inputs, for each of them and in units of its factors."""
        monkeypatch.setattr(factors, "PASS_ENTRIES", entries)
        start = []

        async def program(party: Party, *inputs: SecretArray) -> Any:
            if party.seat == 3:
                tracemalloc.reset_peak()
                start.append(tracemalloc.get_traced_memory()[0])
            return await entered(party, *inputs, width=d, common=False)

        tracemalloc.start()
        try:
            Job(LockstepServers()).run(program, *packets)
            return (tracemalloc.get_traced_memory()[1] - start[0]) / 4 / factors_size
        finally:
            tracemalloc.stop()

    assert beyond(1 << 11) < 1.6
    assert beyond(1 << 20) > 5


@pytest.mark.parametrize("owners", [1, 2, 17])
def test_numbers_of_owners(owners: int) -> None:
    check([holes(RANDOM.standard_normal((3 + i, 3)) * 2.0**i + i, 0.3) for i in range(owners)], False)


def test_extreme_columns() -> None:
    """Constant, constant but different at each owner, zero, tiny, huge, one value alone, all values but one."""
    n = 30
    X = np.column_stack(
        [
            np.full(n, 1e30),
            np.repeat([1.0, 2.0, 3.0], 10),
            np.zeros(n),
            RANDOM.standard_normal(n) * 1e-140,
            RANDOM.standard_normal(n) * 1e140,
            RANDOM.standard_normal(n),
            RANDOM.standard_normal(n),
        ]
    )
    owners = [holes(part, 0.2) for part in np.split(X, 3)]
    for owner in owners:
        owner[1:, 5] = np.nan
        owner[1, 6] = np.nan
    check(owners, False)


def test_present_values_of_two_columns_that_never_meet() -> None:
    X = RANDOM.standard_normal((40, 2)) + 5
    X[::2, 0] = np.nan
    X[1::2, 1] = np.nan
    check([X[:10], X[10:] + 3], False)


def test_without_missing_values_it_is_the_entry_of_whole_rows() -> None:
    """The same covariance, means and rounds; only what an owner sends is larger, and that for every owner alike."""
    owners = [RANDOM.standard_normal((n, 3)) + 10.0 * n for n in (9, 14)]
    plain = [packet for owner in owners for packet in share_sums(moments(open_table(owner)), len(owners))]
    servers = LockstepServers()
    wanted = Job(servers).run(entered, *plain, width=3, common=False, gaps=False)
    assert servers.traffic is not None
    before = servers.traffic.rounds
    found = Job(servers).run(entered, *shared(owners), width=3, common=False)
    assert servers.traffic.rounds == before
    for ours, theirs in zip(found, wanted, strict=True):
        assert np.all(np.abs(ours - theirs) <= ERROR)


def test_what_is_sent_does_not_show_what_is_missing() -> None:
    X = RANDOM.standard_normal((50, 3))
    forms = []
    for part in (0.0, 0.3, 0.9):
        packets = shared([holes(X, part)])
        forms.append([[(p.shape, p.dtype, len(p.row), len(p.column)) for p in seats] for seats in packets])
    assert forms[0] == forms[1] == forms[2]
