"""Columns that mark one row are found on shares for any number of rows, and honest columns pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.lockstep import LockstepServers
from ppca.algorithms.dominant_rows import dominant_row_conditions
from ppca.algorithms.second_moments import GRID
from ppca.native import ring
from ppca.protocol import Party, RingType, SecretArray, share_ring
from ppca.receiver.unsealing import unsealed

COLUMNS = 300
LIMIT = 0.75
PIECE = 1000


def passed(entries: NDArray[np.int64], limit: float = LIMIT) -> NDArray[np.bool_]:
    """For every column, as that of an owner of its own, whether servers accept it. entries: in units of the grid."""
    width = entries.shape[1]

    async def program(party: Party, rows: SecretArray) -> Any:
        party.run = "the same coins in every run"
        words = rows.data[..., 0]

        def chunks() -> Iterator[Any]:
            return (words[:, start : start + PIECE] for start in range(0, len(entries), PIECE))

        ranges = await dominant_row_conditions(party, chunks(), len(entries), limit, np.arange(width), width)
        return (await ranges.in_range()).reveal(why="test")

    packets = share_ring(ring.integers(entries, 1), RingType(64, GRID, 1))
    found: NDArray[np.bool_] = np.asarray(unsealed(LockstepServers().run(program, [packets], {}).parts)) > 0
    return found


def with_heavy_rows(shares: list[float], rows: int, columns: int = COLUMNS, mean: float = 0.0) -> NDArray[np.int64]:
    """Normal numbers, and rows that have these parts of the sum of squares of each column, at different places."""
    random = np.random.default_rng(9)
    table = random.standard_normal((rows, columns))
    table /= np.sqrt(np.square(table).sum(0))
    at = np.argsort(random.random((rows, columns)), axis=0)[: len(shares)]
    np.put_along_axis(table, at, 0.0, axis=0)
    table *= np.sqrt((1 - sum(shares)) / np.square(table).sum(0))
    signs = random.choice([-1.0, 1.0], (len(shares), columns))
    np.put_along_axis(table, at, signs * np.sqrt(np.array(shares))[:, None], axis=0)
    return np.rint((table + mean) / (np.abs(table).max() + abs(mean)) * 2**GRID).astype(np.int64)


@pytest.mark.parametrize("rows", [12, 40, 3000])
@pytest.mark.parametrize("part", [0.93, 0.99, 1.0])
def test_a_row_with_most_of_a_column_is_found(rows: int, part: float) -> None:
    assert not passed(with_heavy_rows([part], rows)).any()


def test_a_flag_far_from_zero_and_a_small_flag_are_found() -> None:
    assert not passed(with_heavy_rows([1.0], 500, mean=30.0)).any()
    assert not passed((np.arange(500)[:, None] == np.arange(20)).astype(np.int64) * 40).any()


@pytest.mark.parametrize("shares", [[], [0.5], [0.7], [0.45, 0.45], [0.3, 0.3, 0.3]], ids=str)
@pytest.mark.parametrize("rows", [40, 3000])
def test_honest_columns_pass(shares: list[float], rows: int) -> None:
    """Two rows of 45% are in the same bucket in both draws for one column of 256."""
    assert passed(with_heavy_rows(shares, rows)).sum() >= COLUMNS - 6


def test_columns_without_heavy_rows_pass_the_smallest_limit() -> None:
    assert passed(with_heavy_rows([], 400), limit=1 / 64).all()


def test_a_binary_and_a_constant_column_pass() -> None:
    entries = np.stack([np.arange(40) % 5 == 0, np.zeros(40), np.ones(40)], axis=1).astype(np.int64) << GRID
    assert passed(entries).all()


@pytest.mark.parametrize("bits", [32, 33, 40, 62, 63])
def test_squares_that_overflow_do_not_hide_a_row(bits: int) -> None:
    """With 8,000 rows of about 1, the sum of squares modulo 2^64 does not show one of 2^32 units of the grid."""
    random = np.random.default_rng(3)
    entries = np.rint(random.uniform(0.9, 1.0, (8000, 2)) * random.choice([-1, 1], (8000, 2)) * 2**GRID)
    words = entries.astype(np.int64)
    words[4321, 0] = np.int64(-(2**63)) if bits == 63 else np.int64(2**bits)
    assert passed(words).tolist() == [False, True]


def test_a_sum_that_overflows_is_found() -> None:
    """2^12 rows of 2^52 add up to 2^64: their mean would count as zero."""
    entries = np.zeros((1 << 12, 2), np.int64)
    entries[:, 0] = 1 << 52
    entries[:, 1] = np.random.default_rng(5).integers(-(1 << GRID), 1 << GRID, 1 << 12)
    assert passed(entries).tolist() == [False, True]
