"""An upload of several pieces over links that are cut at random bytes: it goes on where it was, and every server gets
all of it."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.field import OPERATORS, Field
from benchmarks.jobs import fit_job
from benchmarks.proxy import Proxy
from harness.envelopes import envelopes_of
from ppca.federation.errors import FederationError
from ppca.federation.objects import CHUNK_BYTES
from ppca.member.contributing import contribute

OWNERS = ("north", "south", "west")
COLUMNS = {"north": ["a", "b", "c", "d"], "south": ["e"], "west": ["f"]}
ROWS = 300_000
CUTS = 12
PATIENCE = 240.0


class Scissors(threading.Thread):
    """Cuts all links whenever some more bytes have passed, a given number of times: mostly in the middle of an object."""

    def __init__(self, proxies: list[Proxy], cuts: int) -> None:
        super().__init__(daemon=True)
        self._proxies, self._left = proxies, cuts
        self._random = random.Random(5)
        self.over = threading.Event()
        self.cuts = 0

    def passed(self) -> int:
        return sum(proxy.bytes for proxy in self._proxies)

    def run(self) -> None:
        due = self.passed() + self._random.randrange(1 << 22)
        while self._left and not self.over.wait(0.001):
            if self.passed() >= due:
                for proxy in self._proxies:
                    proxy.cut()
                self._left -= 1
                self.cuts += 1
                due = self.passed() + self._random.randrange(8 << 20)


@pytest.mark.processes
@pytest.mark.release
@pytest.mark.timeout(900)
def test_an_upload_that_is_cut_at_random_bytes(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    values = np.random.default_rng(0).standard_normal((ROWS, 4))
    table = tmp_path / "table.parquet"
    pandas.DataFrame(values, columns=COLUMNS["north"]).assign(id=np.arange(ROWS)).to_parquet(table)
    with Field(tmp_path / "field", OWNERS, ("analyst",), api={}) as field:
        analyst = field.member("analyst")
        job = fit_job(analyst.membership, "cut", OWNERS, COLUMNS, {"analyst": ["components"]}, components=2)
        analyst.submit(job)
        for owner in OWNERS:
            field.member(owner).approve(job)
        north = field.member("north")
        deadline = time.monotonic() + PATIENCE
        while any(item.actor in OPERATORS for item in north.job_state(job).waiting):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        proxies = [proxy for proxy in field.api_proxies if proxy is not None]
        scissors = Scissors(proxies, CUTS)
        before = scissors.passed()
        scissors.start()
        sent, times = 0, 0
        while not sent:
            times += 1
            try:
                sent = contribute(north, job, table, id="id")
            except FederationError as error:
                if "has contributed" in str(error):
                    break
                assert time.monotonic() < deadline + PATIENCE
                table.unlink(missing_ok=True)  # the rest goes out without the data
        scissors.over.set()
        scissors.join()
        envelopes = [digest for chunks in envelopes_of(north, job, "north") for digest in chunks]
        while len({who for who, owner in analyst.objects(job).receipts() if owner == "north"}) < 4:
            assert time.monotonic() < deadline + 2 * PATIENCE
            time.sleep(0.2)
        passed = scissors.passed() - before
    print(f"{sent:,} bytes in {len(envelopes)} envelopes, {passed:,} passed, {scissors.cuts} cuts, said {times} times")
    assert scissors.cuts == CUTS
    assert len(envelopes) > 4  # some servers get several pieces
    # What was whole is not sent again: a cut costs one piece at most, and pieces that went to another server go once more.
    assert sent > 3 * CHUNK_BYTES
    assert passed < 2 * sent + CUTS * CHUNK_BYTES
