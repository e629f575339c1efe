"""Which cores and how many threads a server gets: by the cores that there are and the servers that share them."""

from __future__ import annotations

import pytest

from ppca.runtime import LocalServers, cores
from ppca.runtime.cores import MAX_THREADS, cores_of, threads_for


@pytest.mark.parametrize(("count", "each"), [(1, 1), (2, 1), (4, 1), (8, 2), (15, 3), (64, MAX_THREADS)])
def test_four_servers_share_the_cores(count: int, each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "available", lambda: set(range(count)))
    assert threads_for(4) == LocalServers().threads == each
    assert threads_for(1) == min(count, MAX_THREADS)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 8, 13])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_server_has_cores_for_its_threads(count: int, threads: int) -> None:
    every = set(range(10, 10 + count))
    each = [cores_of(seat, every, threads) for seat in range(4)]
    assert set().union(*each) == every
    for own in each:
        assert len(own) >= min(threads, count)
    if count >= 4 * threads:  # then no one shares
        assert sum(map(len, each)) == count
