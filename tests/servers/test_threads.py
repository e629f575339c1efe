"""Programs on threads: the same rounds and bytes as in lock-step over every kind of link, and readable failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import harness.programs_for_tests as programs
from harness.lockstep import run as run_in_lockstep
from harness.processes import program
from ppca.protocol import Party, SecretArray, share
from ppca.servers import ProgramError, ServersFailed, ThreadCluster
from ppca.servers.conversation import GRACE
from ppca.servers.programs import KEY_STAGE
from ppca.transport import (
    Mesh,
    TlsSettings,
    connect_mesh,
    create_certificates,
    memory_meshes,
    open_listener,
    seat_dns_name,
)

X, Y = np.array([2.0, 1.5, -2.0, 3.25]), np.array([0.1, 4.0, 0.5, 3.0])


def tls_settings(directory: Path, seat: int) -> TlsSettings:
    name = seat_dns_name(seat)
    return TlsSettings(
        authority=directory / "authority.pem", certificate=directory / f"{name}.pem", key=directory / f"{name}.key"
    )


@pytest.fixture(params=["memory", "tcp", "tls"])
def meshes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Mesh]]:
    if request.param == "memory":
        yield memory_meshes(timeout=10)
        return
    if request.param == "tls":
        create_certificates(tmp_path, [seat_dns_name(seat) for seat in range(4)])
    with ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        listeners = [stack.enter_context(open_listener()) for _ in range(4)]
        addresses = {seat: listener.getsockname()[:2] for seat, listener in enumerate(listeners)}

        def join(seat: int) -> Mesh:
            tls = tls_settings(tmp_path, seat) if request.param == "tls" else None
            return connect_mesh(seat, listeners[seat], addresses, tls=tls, session=b"test", timeout=10)

        yield list(pool.map(join, range(4)))


def test_links_carry_exactly_what_lock_step_counts(meshes: list[Mesh]) -> None:
    async def body(x: SecretArray, y: SecretArray) -> Any:
        return await programs.meet_in_two_ways(x.party, x, y)

    expected = run_in_lockstep(body, X, Y)
    servers = ThreadCluster(timeout=10)
    result = servers.run_on(meshes, programs.meet_in_two_ways, [share(X), share(Y)], {})
    np.testing.assert_allclose(result[0], X * Y + np.sqrt(X * X + 1), rtol=1e-9)  # promised for sqrt
    np.testing.assert_array_equal(result[1], X < Y)
    np.testing.assert_array_equal(result[2], np.sort(X))
    report = servers.report
    assert report is not None
    keys = [seat["stages"][KEY_STAGE] for seat in report.stages]
    assert [stage["bytes_sent"] for stage in keys] == [64, 32, 32, 0]
    assert report.rounds - 1 == expected.traffic.rounds
    sent = [total - stage["bytes_sent"] for total, stage in zip(report.bytes_sent, keys, strict=True)]
    assert sent == expected.traffic.sent
    assert [line["to"] for line in report.audit] == ["servers", "client", "servers", "client"]


def test_a_failure_says_who_and_where_and_the_next_run_works() -> None:
    servers = ThreadCluster(timeout=10)
    with pytest.raises(ServersFailed) as caught:
        servers.run(programs.fail_on, X, seats=[1])
    text = str(caught.value)
    assert text.startswith("seat (0,1) failed in step 2: ZeroDivisionError: a made-up failure\n")
    assert 'raise ZeroDivisionError("a made-up failure")' in text
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    np.testing.assert_array_equal(servers.run(program("reveal"), X), X)


MEETING = threading.Barrier(4)


async def fail_each_in_its_way(party: Party) -> None:
    MEETING.wait(10)  # nobody fails before all have their keys
    if party.row == 0:
        raise KeyError(party.seat)
    raise IndexError("row 1")


def test_all_tracebacks_are_collected() -> None:
    with pytest.raises(ServersFailed) as caught:
        ThreadCluster().run(fail_each_in_its_way)
    text = str(caught.value)
    assert text.count("Traceback") == 3
    assert "--- seat (1,0) and seat (1,1)\nTraceback" in text
    assert all(f"KeyError: {seat}" in text for seat in (0, 1))


def test_a_program_with_one_round_more_on_one_server() -> None:
    with pytest.raises(ServersFailed, match=r"has ended its program and closed, seat \(0,0\) still needs it in step 1"):
        ThreadCluster(timeout=10).run(programs.extra_round, X)


async def compute_alone(party: Party, x: SecretArray) -> int:
    if party.seat == 3:
        FREE.wait(60)
    await (x * x)
    return 1


FREE = threading.Event()


def test_a_server_that_computes_alone_for_too_long_does_not_hold_up_the_error() -> None:
    start = time.monotonic()
    with pytest.raises(ServersFailed, match=r"waited 0.2 s in step 1 for a frame from seat \(1,1\)") as caught:
        ThreadCluster(timeout=0.2).run(compute_alone, X)
    assert time.monotonic() - start < 0.2 + GRACE + 2.0
    assert "seat (1,1): no report: its thread still computes on its own" in str(caught.value)
    FREE.set()
    for thread in threading.enumerate():
        if thread.name.startswith("ppca-seat"):
            thread.join(10)


@pytest.mark.parametrize("name", ["return_secret", "return_pending", "return_object"])
def test_secrets_do_not_leave_threads_either(name: str) -> None:
    with pytest.raises(ServersFailed, match=r"failed in step 1: result.* (SecretArray|not awaited|cannot travel)"):
        ThreadCluster().run(getattr(programs, name), X)


def test_wrong_programs_are_refused() -> None:
    with pytest.raises(ProgramError, match="async def"):
        ThreadCluster().run(programs.not_async)  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match=r"takes \(party, x, y\)"):
        ThreadCluster().run(programs.multiply, X)
