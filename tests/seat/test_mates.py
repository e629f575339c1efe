"""A seat asks its mates: again while one is on its way back, and not for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.federation import Loop, office, roster, served
from ppca.federation.errors import FederationError
from ppca.seat import mates as module
from ppca.seat.mates import Mates
from ppca.transport import free_ports


@pytest.fixture
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    running.close()


def test_a_mate_that_starts_meanwhile_is_asked_again(
    tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSES", (0.2,) * 50)
    both = roster(ports=free_ports(4))
    asker, asked = (office(tmp_path / str(seat), both, seat) for seat in (0, 1))
    found: list[bytes] = []
    asking = threading.Thread(target=lambda: found.append(Mates(asker).get(1, "/v1/inventory")))
    asking.start()
    time.sleep(0.5)
    assert asking.is_alive(), "nobody is there yet"
    with served(asked, loop):
        asking.join(20)
    assert len(found) == 1
    assert found[0]


def test_a_mate_that_stays_away_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSES", (0.01, 0.01))
    asker = office(tmp_path, roster(ports=free_ports(4)))
    with pytest.raises(FederationError, match=r"seat 1 \(beta\) is not reached: .* All other seats must run"):
        Mates(asker).get(1, "/v1/inventory")
