"""Spools: what was appended is read back, from memory, from a file, or from the key of its stream."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppca.jobs import spool as module
from ppca.jobs.spool import Spool
from ppca.protocol.inputs import expand

WIDTH = 3


@pytest.mark.parametrize("memory", [0, 200, 1 << 30])
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6), seed=st.integers(0, 2**32))
def test_rows_come_back(memory: int, lengths: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    layers: list[list[np.ndarray]] = [[], []]
    table = Spool(WIDTH)
    with mock.patch.object(module, "MEMORY", Spool.in_memory + memory):
        for rows in lengths:
            words, key = random.integers(0, 2**64, (rows, WIDTH), dtype=np.uint64), random.bytes(16)
            table.append(rows, [(False, words.tobytes()), (True, key)])
            layers[0].append(words)
            layers[1].append(expand(key, np.empty((rows, WIDTH), np.uint64)))
    whole = np.stack([np.concatenate(parts) for parts in layers])
    assert table.rows == sum(lengths)
    assert np.array_equal(table.take(slice(None)), whole)
    at = np.flatnonzero(random.random(table.rows) < 0.5)
    assert np.array_equal(table.take(at), whole[:, at])
    out = np.zeros((2, len(at), WIDTH + 2), np.uint64)
    table.take(at, out[:, :, 1:-1])
    assert np.array_equal(out[:, :, 1:-1], whole[:, at])
    assert not out[:, :, [0, -1]].any()
    table.close()
    assert table.rows == 0


def test_memory_is_given_back() -> None:
    before = Spool.in_memory
    table = Spool(2)
    table.append(4, [(False, bytes(64))])
    assert Spool.in_memory == before + 64
    table.close()
    table.close()
    assert Spool.in_memory == before


def test_what_does_not_fit_is_refused() -> None:
    table = Spool(2)
    with pytest.raises(ValueError, match="are not 3 rows of a table of 2 columns"):
        table.append(3, [(False, bytes(64))])
    table.append(4, [(False, bytes(64))])
    with pytest.raises(ValueError, match="2 layers"):
        table.append(4, [(False, bytes(64)), (True, bytes(16))])
    for index in ([1, 0], [-1], [4]):
        with pytest.raises(ValueError, match="ascending"):
            table.take(np.array(index))
    table.close()
