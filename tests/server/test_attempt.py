"""Attempts of jobs at four servers: results, failures with their cause, several at once on the same ports, and no
process left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.jobs import fit_job, make_plan, use_job
from harness.lockstep import LockstepServers
from harness.processes import assert_gone, running
from harness.real_servers import RealServers, Running
from harness.tables import with_ids
from harness.waiting import PATIENCE
from ppca import PCA
from ppca.estimator.partition import Columns, column_data
from ppca.jobs.chunks import Chunk
from ppca.jobs.loading import as_data, job_of
from ppca.jobs.registry import openings
from ppca.jobs.spec import PSI, Align
from ppca.owner.alignment.arrangement import arrange
from ppca.owner.columns import Centred
from ppca.owner.moments import moments
from ppca.owner.rows import share_sums
from ppca.owner.tables.opening import open_table
from ppca.owner.tables.owners import open_columns
from ppca.owner.tables.records import Records
from ppca.protocol import share
from ppca.receiver import PCAModel
from ppca.receiver.unsealing import received, unsealed
from ppca.runtime import Outcome, conversation
from ppca.server import attempt as attempt_module
from ppca.server.attempt import Attempt
from ppca.server.work import AttemptFailed
from ppca.transport.routes import preamble, route_of

pytestmark = pytest.mark.processes
WAY = Align()
JOB: dict[str, Any] = fit_job(4, 3, fixed_iterations=14)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a loaded machine a worker that has ended, or has no one to connect with, may take more than a second to say so."""
    monkeypatch.setattr(conversation, "GRACE", PATIENCE)
    monkeypatch.setattr(attempt_module, "GRACE", PATIENCE)


@pytest.fixture(scope="module")
def seats() -> Iterator[RealServers]:
    found = RealServers()
    yield found
    found.close()


def data(columns: int = 4, rows: int = 60) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(7)
    return generator.normal(size=(rows, columns)) @ np.diag(np.arange(1.0, columns + 1)) + 5.0


def chunks(values: np.ndarray[Any, Any], owners: int = 3) -> list[Chunk]:
    parts = np.array_split(values, owners)
    return [Chunk(number, share_sums(moments(open_table(part)), owners)) for number, part in enumerate(parts)]


def model_of(run: Running, width: int) -> PCAModel:
    outcome = Outcome.of([done.ran for done in run.done()])  # also compares audits and traffic
    result = received(unsealed(outcome.parts))
    scale = np.broadcast_to(np.asarray(result["exponents"], np.int64), (width,))
    return PCAModel.from_result(result, scale=scale, names=None, audit=outcome.account.audit)


def test_a_fit_of_rows_is_what_local_servers_make_of_it(seats: RealServers) -> None:
    values, told = data(), []
    run = seats.start(JOB, chunks(values), progress=lambda *news: told.append(news))
    found = model_of(run, 4)
    local = PCA(fixed_iterations=14, servers=LockstepServers()).fit(np.array_split(values, 3))
    np.testing.assert_allclose(found.components, local.components_, atol=1e-6)
    np.testing.assert_allclose(found.explained_variance, local.explained_variance_, rtol=1e-6)
    np.testing.assert_allclose(found.mean, values.mean(0), rtol=1e-9)
    assert found.rows == len(values)
    assert [line["what"] for line in found.audit] == [line["what"] for line in local.openings_]
    assert {text for text, _, _ in told} >= {"covariance", "result"}
    assert_gone(run.pids)


def test_two_jobs_at_the_same_time_over_the_same_ports(seats: RealServers) -> None:
    first, second = data(4), data(5, 80)
    jobs = [fit_job(width, 3, fixed_iterations=14) for width in (4, 5)]
    runs = [seats.start(job, chunks(values)) for values, job in zip((first, second), jobs, strict=True)]
    for run, values in zip(runs, (first, second), strict=True):
        found = model_of(run, values.shape[1])
        np.testing.assert_allclose(found.mean, values.mean(0), rtol=1e-9)
        assert found.rows == len(values)
        assert_gone(run.pids)


def test_a_stranger_on_the_mesh_port_disturbs_nobody(seats: RealServers) -> None:
    """Silence, nonsense, and one that knows the route but has no key."""
    session = b"known to the stranger"
    strangers = [socket.create_connection(seats.addresses[0], timeout=PATIENCE) for _ in range(3)]
    strangers[1].sendall(b"GET / HTTP/1.1\r\nHost: localhost.localdomain\r\n\r\n")
    strangers[2].sendall(preamble(3, route_of(session)) + b"no TLS at all, of job_state" * 10)
    values = data()
    run = seats.start(JOB, chunks(values), session=session)
    np.testing.assert_allclose(model_of(run, 4).mean, values.mean(0), rtol=1e-9)
    for sock in strangers:
        sock.close()


class Slow:
    """A job that takes long enough to be disturbed, and an event for when it is under way."""

    def __init__(self, seats: RealServers) -> None:
        self.begun = threading.Event()
        self.run = seats.start(
            fit_job(40, 3, fixed_iterations=4000),
            chunks(data(40, 200)),
            progress=lambda *_: self.begun.set(),
        )
        assert self.begun.wait(PATIENCE)


def test_a_dead_worker_makes_the_others_fail_with_the_cause(seats: RealServers) -> None:
    slow = Slow(seats)
    os.kill(slow.run.pids[1], 9)
    failed = slow.run.failed()
    assert "killed by SIGKILL" in str(failed[1])
    assert "killed by SIGKILL" in failed[1].failure.cause
    assert failed[0].failure.cause == "PeerError"
    for seat in (0, 2, 3):
        assert "server 1" in str(failed[seat])
    assert not any(one.final for one in failed)
    assert_gone(slow.run.pids)


def test_a_job_that_fails_is_named_by_the_type_of_its_exception(seats: RealServers) -> None:
    """What peers and logs may say of it is free of its text."""
    inputs = chunks(data())
    inputs[1].packets.pop()  # the servers check contributions before an attempt; this one was not checked
    failed = seats.start(JOB, inputs).failed()
    own = [one for one in failed if one.failure.trace]  # others may have heard of it from these before
    assert own
    for one in own:
        assert str(one).startswith(f"{one.failure.cause}: ")
        assert one.failure.places.startswith(("enter:", "stack", "concatenate", "_stacked"))
    told = [one.failure.reason + one.failure.cause + one.failure.places for one in failed]
    texts = [str(one).partition(": ")[2] for one in own]
    assert not any(text in each for text in texts for each in told)


def test_an_attempt_that_is_stopped_says_so(seats: RealServers) -> None:
    slow = Slow(seats)
    slow.run.attempts[2].kill()
    failed = slow.run.failed()
    assert str(failed[2]) == "this server stopped the attempt"
    assert "server 2" in str(failed[0])
    assert_gone(slow.run.pids)


@pytest.mark.parametrize(
    ("name", "setting"),
    [("attempt_timeout", "[work] attempt_timeout"), ("run_timeout", "the limit for a job of this size")],
)
def test_an_attempt_has_a_limit_of_its_own(seats: RealServers, name: str, setting: str) -> None:
    """Peers that answer every round in time cannot hold it forever."""
    failed = seats.start(
        fit_job(40, 3, fixed_iterations=4000),
        chunks(data(40, 200)),
        own=lambda seat: {name: 1.0} if seat == 1 else {},
    ).failed()
    assert str(failed[1]) == f"the attempt took longer than 1 s ({setting})"
    assert not failed[1].final
    assert all("server 1" in str(failed[seat]) for seat in (0, 2, 3))


def test_an_attempt_that_was_stopped_before_it_began_starts_no_process(seats: RealServers) -> None:
    attempt = Attempt(seats.work(0, JOB, chunks(data())), seats.routers[0], seats.forks)
    attempt.kill()
    with pytest.raises(AttemptFailed, match="this server stopped the attempt"):
        attempt.run()
    assert attempt._process is None


def test_chunks_that_cannot_be_made_end_the_attempt(seats: RealServers) -> None:
    def made() -> Iterator[Chunk]:
        yield Chunk(0, [share(np.eye(3))], rows=True)
        raise OSError("the envelope is gone")

    attempt = Attempt(seats.work(0, JOB, made()), seats.routers[0], seats.forks)
    with pytest.raises(OSError, match="the envelope is gone"):
        attempt.run()
    assert attempt._process is not None
    assert not running(attempt._process.pid)


def test_a_missing_server_is_named_and_the_attempt_may_be_repeated(seats: RealServers) -> None:
    work = seats.work(0, JOB, chunks(data()), start_timeout=1.0)
    with pytest.raises(AttemptFailed, match=r"no connection with server 1 and server 2 and server 3") as caught:
        Attempt(work, seats.routers[0], seats.forks).run()
    assert not caught.value.final


def test_what_is_no_job_is_final(seats: RealServers) -> None:
    failed = seats.start({**JOB, "analysis": {"name": "os/1"}}).failed()
    for one in failed:
        assert one.final
        assert "choose from infer/1, pca/1" in str(one)


def test_one_server_with_another_job_stops_the_attempt(seats: RealServers) -> None:
    """All servers compare a digest of the job before anything is computed, also those that share no key.

    Another attempt is allowed: one server could claim another job, and no one signs what it says.
    """
    other = fit_job(4, 3, fixed_iterations=15)
    failed = seats.start(JOB, chunks(data()), own=lambda seat: {"job": other} if seat == 2 else {}).failed()
    assert not any(one.final for one in failed)
    assert all("not given the same job: server" in str(one) for one in failed)
    assert any("server 2 has another job" in str(one) for one in failed)


def test_one_server_with_inputs_of_other_shapes_stops_the_attempt(seats: RealServers) -> None:
    own = lambda seat: {"chunks": chunks(data(rows=80), 4)[:3]} if seat == 1 else {}  # noqa: E731
    narrow = lambda seat: {"chunks": chunks(data(3))} if seat == 1 else own(seat)  # noqa: E731
    failed = seats.start(JOB, chunks(data()), own=narrow).failed()
    assert all("not given the same job" in str(one) for one in failed)


def test_inputs_beyond_the_limit_are_final(seats: RealServers) -> None:
    failed = seats.start(JOB, chunks(data()), input_bytes=1000).failed()
    assert all(one.final for one in failed)
    assert all("its operator allows 1,000" in str(one) for one in failed)


def test_what_a_program_keeps_comes_back_and_can_be_recalled(seats: RealServers) -> None:
    values = data()
    job = fit_job(4, 3, fixed_iterations=14, keep="kept", allow=("transform",))
    done = seats.start(job, chunks(values)).done()
    assert [set(one.kept) for one in done] == [{"kept"}] * 4
    assert not np.array_equal(done[0].kept["kept"]["vectors"][0], done[1].kept["kept"]["vectors"][0])  # type: ignore[index]
    result = received(unsealed([one.ran.result for one in done]))
    new = np.ldexp(values[:3], -int(result["exponents"][0]))
    again = seats.start(
        use_job([int(result["exponents"][0])] * 4, ["transform"], model="kept"),
        [Chunk(0, [share(new)], rows=True)],
        own=lambda server: {"kept": done[server].kept},
    ).done()
    found = received(unsealed([one.ran.result for one in again]))["coordinates"]
    coordinates = found * np.ldexp(1.0, int(result["exponents"][0]))
    expected = (values[:3] - values.mean(0)) @ np.asarray(result["components"]).T
    np.testing.assert_allclose(coordinates, expected, atol=1e-6)
    assert [one.kept for one in again] == [{}] * 4


def test_a_job_opens_what_it_lists(seats: RealServers) -> None:
    listed = {line.what for line in openings(job_of(JOB))}
    assert {line["what"] for line in model_of(seats.start(JOB, chunks(data())), 4).audit} == listed


def test_a_refusal_is_final_and_says_why(seats: RealServers) -> None:
    job = use_job([0, 0], ["transform"], model="nothing")
    failed = seats.start(job, [Chunk(0, [share(np.eye(2))], rows=True)]).failed()
    assert any(one.final for one in failed)
    assert any("does not have a record named 'nothing'" in str(one) for one in failed)


# -- column owners, and what is asked of kept models -----------------------------------------------------------------


def columns_job(tables: list[Any], way: Align = WAY) -> tuple[dict[str, Any], list[Chunk]]:
    """A job of column owners, and what they send."""
    arranged = arrange([Records.of(table) for table in open_columns(tables, "id")], way)
    parts, widths = [Centred.of(rows) for rows in arranged], [rows.values.shape[1] for rows in arranged]
    own = way.alignment != PSI
    chunks = []
    for number, part in enumerate(parts):
        chunks.append(Chunk(number, [*part.share_scales(), *([part.share_own()] if own else [])]))
        chunks += part.chunks(number, own)
    partition = Columns("id", way.alignment, minimum=way.minimum)
    job = make_plan(fixed_iterations=14, partition=partition).job(
        column_data("columns", widths, partition), len(tables)
    )
    return as_data(job), chunks


def halves(values: np.ndarray[Any, Any], skip: int = 10) -> list[Any]:
    """Two owners of two columns each, who have all but `skip` individuals in common."""
    ids = np.arange(len(values))
    return [with_ids(values[skip:, :2], ["a", "b"], ids[skip:]), with_ids(values[:, 2:], ["c", "d"], ids)]


def test_a_fit_of_columns_is_one_run(seats: RealServers) -> None:
    """Pieces of both owners are uploaded, matched by tags and analysed by one program."""
    values = data()
    run = seats.start(*columns_job(halves(values)))
    found = model_of(run, 4)
    assert found.rows == len(values) - 10
    np.testing.assert_allclose(found.mean, values[10:].mean(0), rtol=1e-8)
    assert found.audit[0]["what"] == "match pattern of pseudonyms"


def test_too_few_common_rows_are_final(seats: RealServers) -> None:
    failed = seats.start(*columns_job(halves(data(), skip=55))).failed()
    assert any(one.final for one in failed)
    texts = [str(one) for one in failed]
    assert all("fewer than 10 ids are common to all 2 owners" in text for text in texts), texts


def test_too_few_rows_are_final(seats: RealServers) -> None:
    failed = seats.start(fit_job(4, 3, rows_at_least=61), chunks(data())).failed()
    assert any(one.final for one in failed)
    assert all("fewer than 61 rows" in str(one) for one in failed)


def test_nothing_secret_is_on_the_command_line(seats: RealServers) -> None:
    slow = Slow(seats)
    for pid in slow.run.pids:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert slow.run.attempts[0].work.session not in words
        assert b"PRIVATE" not in words
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert [line.split()[4:6] for line in limits.splitlines() if "core file" in line] == [["0", "0"]]
    for attempt in slow.run.attempts:
        attempt.kill()
    slow.run.failed()
    assert_gone(slow.run.pids)


def test_workers_end_with_their_daemon(tmp_path: Path) -> None:
    """A daemon that is killed in the middle of a job takes its workers along."""
    script = """
from harness.real_servers import RealServers
from test_attempt import Slow
slow = Slow(RealServers())
print(*slow.run.pids, flush=True)
slow.run.outcomes()
"""
    tests = os.pathsep.join([str(Path(__file__).parent.parent), str(Path(__file__).parent)])
    daemon = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": tests}
    )
    assert daemon.stdout is not None
    pids = [int(word) for word in daemon.stdout.readline().split()]
    assert all(running(pid) for pid in pids)
    daemon.kill()
    daemon.wait()
    daemon.stdout.close()
    assert_gone(pids, within=PATIENCE)


# -- the process that forks the workers ------------------------------------------------------------------------------------


def fork_server(seats: RealServers) -> int:
    assert seats.forks._process is not None
    return seats.forks._process.pid


def sockets(pid: int) -> set[str]:
    """The sockets that a process holds, besides its standard streams."""
    found = set()
    try:
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since
                found.add(os.readlink(path) if int(path.name) > 2 else "")
    except PermissionError:
        pytest.skip("the descriptors of a process that may not be traced are for root only")
    return {target for target in found if target.startswith("socket:")}


def test_a_worker_holds_no_descriptor_of_another_one(seats: RealServers) -> None:
    slow = Slow(seats)
    held = [sockets(pid) for pid in (*slow.run.pids, fork_server(seats))]
    slow.run.attempts[0].kill()
    slow.run.failed()
    assert all(held)
    assert len(set().union(*held)) == sum(map(len, held))


def test_the_process_that_forks_has_one_thread_and_leaves_no_core(seats: RealServers) -> None:
    """A fork copies the thread that calls it only; locks of others would stay locked forever."""
    seats.start(JOB, chunks(data())).done()
    place = Path(f"/proc/{fork_server(seats)}")
    assert len(list((place / "task").iterdir())) == 1
    limits = (place / "limits").read_text()
    assert [line.split()[4:6] for line in limits.splitlines() if "core file" in line] == [["0", "0"]]


def test_a_killed_fork_server_fails_its_attempts_and_is_replaced(seats: RealServers) -> None:
    slow, former = Slow(seats), fork_server(seats)
    os.kill(former, signal.SIGKILL)
    failed = slow.run.failed()
    assert not any(one.final for one in failed)
    assert any("killed by SIGKILL" in str(one) for one in failed)
    assert_gone(slow.run.pids, within=PATIENCE)
    seats.start(JOB, chunks(data())).done()
    assert fork_server(seats) != former


def test_workers_end_with_the_fork_server(seats: RealServers) -> None:
    slow = Slow(seats)
    seats.forks.close()
    slow.run.failed()
    assert_gone(slow.run.pids, within=PATIENCE)
