"""Keys of a job that servers lose: they are repaired as long as every half of the shares can be opened by one server.

Servers 0 and 1, and 2 and 3, hold the same R; servers 0 and 2, and 1 and 3, the same C.
"""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from harness.federation import OPERATORS
from harness.job_runners import Federation
from ppca.federation.errors import FederationError
from ppca.federation.membership import ServerEntry
from ppca.federation.proposal import ProposedJob
from ppca.server.keys import JOB
from ppca.server.mates import HalfLost, Mates, split_for


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Federation:
    found = Federation(tmp_path, monkeypatch, attempts=40)

    def ask(self: Mates, peer: ServerEntry, path: str) -> tuple[int, bytes]:
        """What the API of the asked server does, without the network."""
        *_, job, owner = path.split("/")
        asked = found.job_runners[OPERATORS.index(peer.member)]
        known, split = (
            asked.server_state.admission.job(job),
            split_for(self.server_state.server, asked.server_state.server),
        )
        try:
            return 200, b"".join(asked.shares.give_back(known, owner, split))
        except HalfLost as error:
            return 410, str(error).encode()
        except FederationError as error:
            return 409, str(error).encode()

    monkeypatch.setattr(Mates, "_ask", ask)
    return found


def lose_key(federation: Federation, of: ProposedJob, seat: int, way: str) -> None:
    path = federation.server_states[seat].settings.keys / f"{JOB}-{of.id}.key"
    path.unlink() if way == "missing" else path.write_bytes(b"")


async def failed_once(federation: Federation) -> ProposedJob:
    """A job for which everything is there, and whose first attempt has failed."""
    federation.hall.failing = lambda seat: "the machine has no memory left"
    of = await federation.submit("first")
    await federation.until(lambda: bool(federation.server_states[0].mailbox.objects(of.id).ended(1)))
    return of


@pytest.mark.parametrize("way", ["missing", "empty"])
@pytest.mark.parametrize("seats", [(0,), (0, 3), (1, 2)])
def test_keys_that_one_server_or_a_diagonal_loses_are_repaired(
    federation: Federation, seats: tuple[int, ...], way: str
) -> None:
    async def body() -> None:
        of = await failed_once(federation)
        for seat in seats:
            lose_key(federation, of, seat, way)
        federation.hall.failing = lambda seat: None
        await federation.until(lambda: federation.stages(of) == ["done"])

    federation.run(body)


@pytest.mark.parametrize("seats", [(0, 1), (1, 3), (0, 1, 2, 3)])
def test_a_job_of_which_both_holders_of_a_half_lose_their_keys_ends_and_says_why(
    federation: Federation, seats: tuple[int, ...]
) -> None:
    """It was attempted again and again, forever; in the end servers said that others were not reached."""

    async def body() -> None:
        of = await failed_once(federation)
        for number, seat in enumerate(seats):
            lose_key(federation, of, seat, ["missing", "empty"][number % 2])
        federation.hall.failing = lambda seat: None
        await federation.until(
            lambda: (
                {each.admission.job_state(of.id).stage for each in federation.server_states} <= {"refused", "erased"}
            )
        )
        for each in federation.server_states:
            why = each.admission.job_state(of.id).why
            assert "one half of the shares is lost" in why
            assert why.endswith("Propose the job again.")

    federation.run(body)


def test_shares_that_came_back_and_are_damaged_at_both_holders_end_the_job(federation: Federation) -> None:
    async def body() -> None:
        of = await failed_once(federation)
        federation.job_runners[0].scheduler.proposes = False
        places = []
        for seat in (0, 1):
            lose_key(federation, of, seat, "empty")
            shares = federation.job_runners[seat].shares
            await asyncio.to_thread(shares.mend, of)
            assert shares._is_restored(of, "spare")
            places.append(shares._place(of.id, "spare"))
        for place in places:
            (place / "0").write_bytes(b"damaged")
        with pytest.raises(FederationError, match="beta has lost its key of this job, too"):
            await asyncio.to_thread(federation.job_runners[0].shares.mend, of)
        await federation.until(lambda: federation.stages(of)[0] in ("refused", "erased"))
        assert "one half of the shares is lost" in federation.server_states[0].admission.job_state(of.id).why

    federation.run(body)


def test_a_damaged_key_is_repaired_when_the_server_starts(federation: Federation) -> None:
    """Before the next attempt: until then a mate might lose its key, too."""

    async def before() -> None:
        of = await failed_once(federation)
        lose_key(federation, of, 0, "empty")
        job_runner = federation.job_runners[0]
        for each in federation.job_runners:
            each.scheduler.proposes = False
        job_runner._note_earlier_attempts()  # as at the start of the process
        job_runner._advance_or_log(of.id)
        await federation.until(lambda: of.id not in job_runner._unchecked_keys)
        offer = federation.server_states[0].mailbox.objects(of.id).offer("alpha", of_server=True)
        assert offer is not None
        assert offer.about["again"] == 1
        assert job_runner.shares._is_restored(of, "spare")

    federation.run(before)


def test_a_key_that_cannot_be_read_now_is_not_destroyed(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        of = await failed_once(federation)
        keys, shares = federation.server_states[0].keys, federation.job_runners[0].shares
        path, before = keys._path(JOB, of.id), keys._path(JOB, of.id).read_bytes()

        def no_descriptors(*_: Any) -> Any:
            raise OSError(errno.EMFILE, "too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(keys, "of", no_descriptors)
            with pytest.raises(OSError, match="too many open files"):
                shares.ensure_key(of)
        assert path.read_bytes() == before

    federation.run(body)
