"""A server asks its mates: again while one is on its way back, and not forever."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from harness.federation import (
    OPERATORS,
    OWNERS,
    RECEIVER,
    SERVER_KEYS,
    Loop,
    job,
    make,
    membership,
    served,
    server_state,
)
from harness.waiting import PATIENCE
from ppca.federation.errors import FederationError, ObjectRefused
from ppca.protocol import RingType, share
from ppca.runtime.control import encode
from ppca.server import mates as module
from ppca.server.contributions import Contributions
from ppca.server.mates import HalfLost, Mates, check_position
from ppca.server.staging import Staging
from ppca.transport import free_ports


@pytest.fixture
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    running.close()


def test_a_mate_that_starts_meanwhile_is_asked_again(
    tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSES", (0.2,) * 500)
    both = membership(ports=free_ports(4))
    asker, asked = (server_state(tmp_path / str(seat), both, seat) for seat in (0, 1))
    found: list[bytes] = []
    asking = threading.Thread(target=lambda: found.append(Mates(asker).get(1, "/v1/inventory")))
    asking.start()
    time.sleep(0.5)
    assert asking.is_alive(), "nobody is there yet"
    with served(asked, loop):
        asking.join(PATIENCE)
    assert len(found) == 1
    assert found[0]


def test_a_mate_that_stays_away_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSES", (0.01, 0.01))
    asker = server_state(tmp_path, membership(ports=free_ports(4)))
    with pytest.raises(FederationError, match=r"server 1 \(beta\) cannot be reached: .* All other servers must run"):
        Mates(asker).get(1, "/v1/inventory")


@pytest.mark.parametrize("path", ["/v1/restore/{job}/{owner}", "/v1/restore-model/{job}"])
def test_an_operator_that_was_another_server_gets_nothing_back(
    tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Alpha was server 3, with R1 and C1, when the shares were made. As server 0 it would get R0 and C0, too."""
    monkeypatch.setattr(module, "PAUSES", ())
    present = membership(ports=free_ports(4))
    asker, asked = (server_state(tmp_path / str(seat), present, seat) for seat in (0, 1))
    earlier = job(present)
    for item in (
        make(RECEIVER, "job", earlier, earlier.data),
        make("alpha", "offer", earlier, SERVER_KEYS[3].public, server=3),
        make("beta", "offer", earlier, SERVER_KEYS[1].public, server=1),
    ):
        asked.mailbox.put(item)
    with served(asked, loop), pytest.raises(FederationError, match=r"alpha was server 3 .* and is server 0 now"):
        Mates(asker).get(1, path.format(job=earlier.id, owner=OWNERS[0]))
    with pytest.raises(FederationError, match="alpha was server 3"):
        check_position(asked.mailbox.objects(earlier.id), present, "0" * 64, "alpha", 0)
    check_position(asked.mailbox.objects(earlier.id), present, present.digest, "beta", 1)


@pytest.mark.parametrize("path", ["/v1/restore/{job}/{owner}", "/v1/restore-model/{job}"])
def test_an_operator_that_withheld_its_offer_gets_nothing_back(
    tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """It showed the offer to owners only, as another server than it is now."""
    monkeypatch.setattr(module, "PAUSES", ())
    present = membership(ports=free_ports(4))
    asker, asked = (server_state(tmp_path / str(seat), present, seat) for seat in (0, 1))
    earlier = job(present)
    asked.mailbox.put(make(RECEIVER, "job", earlier, earlier.data))
    with served(asked, loop), pytest.raises(FederationError, match="alpha has offered no key for this job"):
        Mates(asker).get(1, path.format(job=earlier.id, owner=OWNERS[0]))


def moved(folder: Path, monkeypatch: pytest.MonkeyPatch, *, server: int, asked: int, then: tuple[str, ...]) -> Any:
    """Two servers under revision 2, and a job of revision 1, in which operators had other positions."""
    monkeypatch.setattr(module, "PAUSES", ())
    ports = free_ports(4)
    first, second = membership(operators=then, ports=ports), membership(2, ports=ports)
    both = [server_state(folder / str(number), first, then.index(OPERATORS[number])) for number in (server, asked)]
    for each in both:
        each.mailbox.close()
    servers = [server_state(folder / str(number), second, number) for number in (server, asked)]
    earlier = job(first)
    servers[1].mailbox.put(make(RECEIVER, "job", earlier, earlier.data))
    return *servers, earlier


@pytest.mark.parametrize("path", ["/v1/restore/{job}/{owner}", "/v1/restore-model/{job}"])
def test_an_offer_that_is_made_after_the_move_gives_nothing_back(
    tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Alpha was server 3. It showed the offer of then to owners only, and makes another one as server 0."""
    then = ("delta", "beta", "gamma", "alpha")
    asker, asked, earlier = moved(tmp_path, monkeypatch, server=0, asked=1, then=then)
    asked.admit(make("alpha", "offer", earlier, SERVER_KEYS[0].public, server=0), "alpha")
    asked.admit(make("beta", "offer", earlier, SERVER_KEYS[1].public, server=1), "beta")
    with served(asked, loop), pytest.raises(FederationError, match=r"alpha was server 3 .* and is server 0 now"):
        Mates(asker).get(1, path.format(job=earlier.id, owner=OWNERS[0]))


def test_a_server_that_has_moved_gives_nothing_back(
    tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beta was server 2, with R1: alpha has R0 of the model, and would get R1 from the server that is its row mate now."""
    then = ("alpha", "gamma", "beta", "delta")
    asker, asked, earlier = moved(tmp_path, monkeypatch, server=0, asked=1, then=then)
    asked.mailbox.put(make("alpha", "offer", earlier, SERVER_KEYS[0].public, server=0))
    asked.mailbox.put(make("beta", "offer", earlier, SERVER_KEYS[1].public, server=2))
    kept = np.arange(8, dtype=np.uint64).reshape(2, 2, 2)
    staging = Staging(asked.settings.store, asked.keys)
    staging.keep(earlier.id, {"public": {}, "components": (kept, RingType(128, 40, 16))})
    job_runner = SimpleNamespace(staging=staging)
    use = lambda api: setattr(api, "job_runner", job_runner)  # noqa: E731
    with served(asked, loop, use), pytest.raises(FederationError, match=r"beta was server 2 .* and is server 1 now"):
        Mates(asker).get(1, f"/v1/restore-model/{earlier.id}")


@pytest.mark.parametrize("rows", [0, 2])
def test_mates_that_give_back_different_shares_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """By the type that is caught everywhere: any other one ended the restore of all jobs."""
    asker = Mates(server_state(tmp_path, membership()))
    one = b"".join(encode("packets", packets=[share([1.0])[0]]))
    monkeypatch.setattr(asker, "halves", lambda path: (one, rows * one))
    with pytest.raises(ObjectRefused, match="different shares of north"):
        list(asker.joined(job().id, "north"))


def test_a_mate_that_has_lost_its_key_says_so(tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an answer of its own, not as an error that may pass."""
    monkeypatch.setattr(module, "PAUSES", ())
    present = membership(ports=free_ports(4))
    asker, asked = (server_state(tmp_path / str(seat), present, seat) for seat in (0, 1))
    of = job(present)
    offers = [
        make(name, "offer", of, SERVER_KEYS[seat].public, server=seat) for seat, name in enumerate(("alpha", "beta"))
    ]
    for item in (make(RECEIVER, "job", of, of.data), *offers):
        asked.mailbox.put(item)
    job_runner = SimpleNamespace(shares=Contributions(asked))
    with served(asked, loop, lambda api: setattr(api, "job_runner", job_runner)), pytest.raises(HalfLost, match="beta"):
        Mates(asker).get(1, f"/v1/restore/{of.id}/{OWNERS[0]}")


@pytest.mark.parametrize("lie", ["endless", "slow"])
def test_an_answer_of_a_mate_is_bounded(tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    """A lying mate answered without an end, and the asking server kept all of it in memory."""
    monkeypatch.setattr(module, "PAUSES", ())
    monkeypatch.setattr(module, "BYTES_PER_SECOND", 1 << 40)
    if lie == "slow":
        monkeypatch.setattr(module, "ANSWER_SECONDS", 1.0)
    present = membership(ports=free_ports(4))
    asker = server_state(tmp_path / "0", present, 0, policy={"memory": 1 << 26})
    asked = server_state(tmp_path / "1", present, 1)
    sent = [0]

    async def inventory(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while sent[0] < 1 << 28:
            data = bytes(1 << 20 if lie == "endless" else 1)
            await response.write(data)
            sent[0] += len(data)
            await asyncio.sleep(0.05 if lie == "slow" else 0)  # the end of the connection is noticed meanwhile
        return response

    wanted = "more than 67,108,864 bytes" if lie == "endless" else "beta"
    use = lambda api: setattr(api, "inventory", inventory)  # noqa: E731
    with served(asked, loop, use), pytest.raises(FederationError, match=wanted):
        Mates(asker).get(1, "/v1/inventory")
    assert sent[0] < 1 << 28
