"""Servers that die, stop, raise or fall out of step: a clear error in time, and never an orphan or a left-over file."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from harness.jobs import use_job
from harness.processes import assert_gone, program, run, running
from harness.waiting import PATIENCE
from ppca import PCA
from ppca.estimator.job import Job
from ppca.jobs.chunks import Chunk
from ppca.jobs.loading import job_of
from ppca.protocol import share
from ppca.runtime import LocalServers, ServersFailed, conversation, local
from ppca.runtime.conversation import GRACE
from ppca.runtime.failure import Failure, explain
from ppca.transport import throwaway_keys

pytestmark = pytest.mark.processes
X = np.array([0.5, -0.25])
TIMEOUT = 2 * PATIENCE  # a failure that is noticed after that long was not noticed
SHORT = 2.0  # seconds of waiting for a server that never answers


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a loaded machine the other servers may take more than a second to tell of a failure."""
    monkeypatch.setattr(conversation, "GRACE", PATIENCE)


@pytest.fixture(scope="module")
def enduring() -> Iterator[LocalServers]:
    """Servers for programs that fail: they must survive all of them. Step 0 of their links belongs to `reveal`."""
    with LocalServers(timeout=TIMEOUT, developer=True) as servers:
        pids = servers.pids
        run(servers, program("reveal"), X)
        yield servers
        assert servers.pids == pids
    assert_gone(pids)


def shorten(servers: LocalServers) -> None:
    """Set a short time limit for servers that have started, which takes long on a loaded machine. New links have it."""
    servers.timeout = SHORT
    with patch.object(conversation, "GRACE", PATIENCE), pytest.raises(ServersFailed, match="can be used again"):
        run(servers, program("fail_on"), X, servers=[0])


@contextmanager
def failing_program(servers: LocalServers, grace: float = PATIENCE) -> Iterator[list[str]]:
    """A program that must fail: collects the message; the same processes then run the next program."""
    messages: list[str] = []
    with patch.object(conversation, "GRACE", grace):
        pids = servers.pids
        start = time.monotonic()
        with pytest.raises(ServersFailed) as caught:
            yield messages
        assert time.monotonic() - start < PATIENCE
        messages.append(str(caught.value))
        assert servers.pids == pids
        np.testing.assert_array_equal(run(servers, program("reveal"), X), X)
    assert messages[0].rstrip().endswith("The servers have new links and can be used again.")


@contextmanager
def failing(short: bool = False, tls: bool = False) -> Iterator[tuple[LocalServers, list[str]]]:
    """Servers whose run must fail: collects the message, checks the time and that no process is left."""
    messages: list[str] = []
    with (
        LocalServers(tls=tls, timeout=TIMEOUT, developer=True) as servers,
        patch.object(conversation, "GRACE", GRACE if short else PATIENCE),
    ):
        if short:
            shorten(servers)
        pids = servers.pids
        start = time.monotonic()
        with pytest.raises(ServersFailed) as caught:
            yield servers, messages
        assert time.monotonic() - start < PATIENCE
        assert_gone(pids)
        assert servers.pids == []
        messages.append(str(caught.value))
        with pytest.raises(ServersFailed, match="not running"):
            run(servers, program("reveal"), X)
    assert messages[0].rstrip().endswith("start new ones to run again.")


def test_a_server_killed_between_runs() -> None:
    with failing() as (servers, messages):
        run(servers, program("reveal"), X)
        os.kill(servers.pids[2], signal.SIGKILL)
        run(servers, program("reveal"), X)
    assert messages[0].startswith("server 2 failed")
    assert "killed by SIGKILL" in messages[0]


def test_a_server_killed_while_it_gets_a_large_input() -> None:
    with failing() as (servers, messages):
        os.kill(servers.pids[3], signal.SIGSTOP)  # so that it reads nothing before it dies
        killer = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -KILL {servers.pids[3]}"])
        run(servers, program("reveal"), np.ones(200_000))
    killer.wait()
    assert "server 3 failed" in messages[0]
    assert "killed by SIGKILL" in messages[0]


def test_a_server_killed_during_a_run() -> None:
    with failing() as (servers, messages):
        run(servers, program("signal_on"), X, server=1, name="SIGKILL")
    assert messages[0].startswith("server 1 failed in step 3: the process was killed by SIGKILL")
    assert "lost server 1 in step 3" in messages[0]  # what its mates say; whoever is second may hear it of the first


def test_a_server_killed_after_a_run_and_the_block_left() -> None:
    with LocalServers(developer=True) as servers:
        pids = servers.pids
        run(servers, program("reveal"), X)
        os.kill(pids[0], signal.SIGKILL)
    assert_gone(pids)


def test_a_stopped_server_during_a_run() -> None:
    with failing(short=True) as (servers, messages):
        run(servers, program("signal_on"), X, server=2, name="SIGSTOP")
    assert "waited 2 s in step 3 for a frame from server 2" in messages[0]
    assert "server 2: no report" in messages[0]


def test_a_stopped_server_before_a_run_with_a_large_input() -> None:
    with failing(short=True) as (servers, messages):
        os.kill(servers.pids[3], signal.SIGSTOP)
        run(servers, program("reveal"), np.ones(200_000))  # more than the channel's buffer holds
    assert messages[0].startswith("server 3: no report within")


def test_a_stopped_server_after_its_last_round() -> None:
    with failing(short=True) as (servers, messages):
        run(servers, program("stop_at_the_end"), X)
    assert messages[0].startswith("server 2: no report within 3 s")
    assert "server 0: had finished its program" in messages[0]


def test_an_exception_in_one_server(enduring: LocalServers) -> None:
    with failing_program(enduring) as messages:
        run(enduring, program("fail_on"), X, servers=[2])
    text = messages[0]
    assert text.startswith("server 2 failed in step 3: ZeroDivisionError: a made-up failure\n  server 0: ")
    assert 'raise ZeroDivisionError("a made-up failure")' in text  # the traceback
    assert "ppca/servers" not in text
    assert "server 2 aborted" in text


def test_an_exception_in_all_servers(enduring: LocalServers) -> None:
    with failing_program(enduring) as messages:
        run(enduring, program("fail_on"), X, servers=[0, 1, 2, 3])
    assert "failed in step 3: ZeroDivisionError: a made-up failure" in messages[0].splitlines()[0]
    assert messages[0].count("Traceback") == 1


def test_many_failures_in_a_row_leave_nothing_behind() -> None:
    """Kept shares survive a failing program of another job; links and files of failed runs do not pile up."""
    with LocalServers(timeout=PATIENCE, developer=True, tls=True) as servers:
        pca = PCA(1, servers=servers, keep="model").fit([np.eye(3)])
        before: list[int] = []
        for _ in range(5):
            with pytest.raises(ServersFailed, match="can be used again"):
                run(servers, program("fail_on"), X, servers=[3])
            before.append(sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in servers.pids))
        assert before[0] == before[-1]
        assert pca.shared_model().transform(np.eye(3)).shape == (3, 1)


@pytest.mark.parametrize("on_disk", [False, True])
def test_nothing_is_kept_unless_all_servers_finish(on_disk: bool, tmp_path: Path) -> None:
    """Else shares of two fits would lie under one name, and fit together as little as random numbers."""
    with LocalServers(timeout=PATIENCE, developer=True, state=tmp_path if on_disk else None) as servers:
        with pytest.raises(ServersFailed, match="can be used again"):
            run(servers, program("keep_and_fail"), X, name="new", servers=[3])
        assert run(servers, program("kept_value"), name="new") is None
        assert run(servers, program("keep_and_fail"), X, name="new", servers=[]) == 1
        assert run(servers, program("kept_value"), name="new") == 2
    if on_disk:
        assert len(list(tmp_path.glob("server-*/local/*"))) == 4
        with LocalServers(timeout=PATIENCE, developer=True, state=tmp_path) as servers:
            assert run(servers, program("kept_value"), name="new") == 2


def spooled(pid: int) -> int:
    """Number of files without a name that a process has open."""
    links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    return sum("deleted" in link for link in links)


@pytest.mark.release
def test_rows_are_forgotten_when_a_job_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the job fails on the servers or its chunks cannot be made; the servers serve on."""
    with LocalServers(timeout=PATIENCE, developer=True) as servers:
        job, spec = Job(servers), job_of(use_job([0] * 4, ["transform"]))
        large = Chunk(0, [share(np.ones((1 << 20, 4)))], rows=True)  # does not fit into the memory of spools
        before = [spooled(pid) for pid in servers.pids]
        seen: list[int] = []

        def chunks(fail: bool) -> Iterator[Chunk]:
            for _ in range(14):
                yield large
            seen.extend(map(spooled, servers.pids))
            if fail:
                raise OSError("the file is gone")

        with pytest.raises(OSError, match="the file is gone"):
            job.run_job(spec, chunks(True))
        with pytest.raises(ServersFailed, match="does not have a record named 'm'"):
            job.run_job(spec, chunks(False))
        assert max(seen) > 0
        assert [spooled(pid) for pid in servers.pids] == before


def test_every_different_traceback_is_told_once() -> None:
    ways = [("KeyError: 0", "trace of a"), ("KeyError: 1", "trace of b"), *[("IndexError: row 1", "trace of c")] * 2]
    text = explain([Failure(seat, error, trace, step=1) for seat, (error, trace) in enumerate(ways)])
    assert text.startswith("server 0 failed in step 1: KeyError: 0\n")
    assert text.count("trace of") == 3
    assert "--- server 2 and server 3\ntrace of c" in text
    assert "  server 1: KeyError: 1" in text


def test_a_program_that_exits(enduring: LocalServers) -> None:
    with failing_program(enduring) as messages:
        run(enduring, program("exit_on"), X, server=3)
    assert messages[0].startswith("server 3 failed in step 2: SystemExit: enough")


def test_an_exception_without_words(enduring: LocalServers) -> None:
    with failing_program(enduring) as messages:
        run(enduring, program("fail_without_words"))
    assert "BrokenError: (its text cannot be shown)" in messages[0]


def test_a_secret_that_is_returned_as_it_is(enduring: LocalServers) -> None:
    with failing_program(enduring) as messages:
        run(enduring, program("return_secret"), X)
    first = messages[0].splitlines()[0]
    assert " failed in step 2: result['wrong'][0] is a SecretArray, which never leaves a server as it is" in first
    assert "Traceback" not in messages[0]


def test_a_program_with_one_round_more_on_one_server(enduring: LocalServers) -> None:
    shorten(enduring)
    run(enduring, program("reveal"), X)
    enduring.timeout = TIMEOUT  # of the links after this failure
    with failing_program(enduring, GRACE) as messages:
        run(enduring, program("extra_round"), X)
    assert "server 0 waited 2 s in step 2 for a frame from server " in messages[0]
    assert messages[0].count("had finished its program") == 3


def test_a_program_with_a_message_that_nobody_expects(enduring: LocalServers) -> None:
    with failing_program(enduring) as messages:
        run(enduring, program("extra_message"), X)
    assert messages[0].startswith("server 0 sent 85 bytes to server 1, which expected 80")  # key, nonce and digest


def test_ctrl_c_in_the_client() -> None:
    with LocalServers(developer=True) as servers:
        pids = servers.pids

        def progress(*_: object) -> None:
            signal.raise_signal(signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            run(servers, program("many_rounds"), X, progress=progress)
        assert_gone(pids)


def test_an_exception_in_the_clients_progress_function() -> None:
    with LocalServers(developer=True) as servers:
        pids = servers.pids
        with pytest.raises(ValueError, match="mine"):
            run(servers, program("many_rounds"), X, progress=lambda *_: (_ for _ in ()).throw(ValueError("mine")))
        assert_gone(pids)


def test_garbage_from_the_client() -> None:
    with failing() as (servers, messages):
        servers._servers[1].connection.send(b"\xff" * 64)
        run(servers, program("reveal"), X)
    assert messages[0].startswith("server 1 failed")
    assert "control message" in messages[0]


CLIENT = """
import os, sys, time
from ppca.estimator.job import Job
from ppca.runtime import LocalServers
servers = LocalServers(tls={tls}, developer=True).start()
child = os.fork() if {fork} else os.getpid()
if not child:  # it holds copies of the control channels
    time.sleep(300)
    os._exit(0)
print(child, *servers.pids, flush=True)
Job(servers).run({program!r}, [0.5])
"""


@pytest.mark.parametrize("fork", [False, True])
def test_a_client_that_is_killed(fork: bool, tmp_path: Path) -> None:
    text = CLIENT.format(tls=not fork, fork=fork, program=program("many_rounds"))
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", text]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    assert client.stdout is not None
    child, *pids = [int(pid) for pid in client.stdout.readline().split()]
    assert [running(pid) for pid in pids] == [True] * 4
    time.sleep(0.1)
    client.kill()
    client.wait()
    client.stdout.close()
    try:
        assert_gone(pids, within=PATIENCE)
    finally:
        if fork:
            os.kill(child, signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []


def test_forgotten_servers_are_cleaned_up() -> None:
    servers = LocalServers().start()
    pids = servers.pids
    del servers
    assert_gone(pids)


def test_certificates_are_gone_once_the_servers_are_connected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with LocalServers(tls=True, developer=True) as servers:
        assert list(tmp_path.iterdir()) == []
        np.testing.assert_array_equal(run(servers, program("reveal"), X), X)
    with failing(tls=True) as (servers, messages):
        run(servers, program("signal_on"), X, server=0, name="SIGKILL")
    assert messages[0].startswith("server 0 failed in step 3")


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Process numbers of all servers that tests try to start."""
    pids: list[int] = []
    launch = LocalServers._launch

    def remember(self: LocalServers, seat: int, control: int) -> Any:
        process = launch(self, seat, control)
        pids.append(process.pid)
        return process

    monkeypatch.setattr(LocalServers, "_launch", remember)
    return pids


def test_a_server_that_dies_while_starting(
    monkeypatch: pytest.MonkeyPatch, launched: list[int], tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def killing(names: Any) -> Any:
        os.kill(launched[1], signal.SIGKILL)
        return throwaway_keys(names)

    monkeypatch.setattr(local, "throwaway_keys", killing)  # after listening, before connecting
    monkeypatch.setattr(conversation, "GRACE", GRACE)  # the others wait for the dead one and have nothing to say
    start = time.monotonic()
    with pytest.raises(ServersFailed, match=r"did not connect: server 1 failed.*SIGKILL"):
        LocalServers(tls=True).start()
    assert time.monotonic() - start < PATIENCE
    assert_gone(launched)
    assert list(tmp_path.iterdir()) == []


def test_an_interpreter_that_cannot_start(monkeypatch: pytest.MonkeyPatch, launched: list[int]) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/no/such/python")
        with pytest.raises(ServersFailed, match="cannot start a server process"):
            LocalServers().start()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ServersFailed, match=r"did not start: all four servers failed: .*exit code 1"):
        LocalServers().start()
    assert_gone(launched)


def test_ctrl_c_while_starting(monkeypatch: pytest.MonkeyPatch, launched: list[int]) -> None:
    pair = socket.socketpair
    pairs = []

    def interrupt() -> Any:
        pairs.append(1)
        if len(pairs) == 4:
            raise KeyboardInterrupt
        return pair()

    monkeypatch.setattr(local.socket, "socketpair", interrupt)
    with pytest.raises(KeyboardInterrupt):
        LocalServers().start()
    assert_gone([*launched, 2**22 + 1])  # three were started


def test_a_script_whose_programs_stand_in_the_script(tmp_path: Path) -> None:
    """Functions of __main__ are loaded by file name, from a folder that is not the current one."""
    (tmp_path / "neighbour.py").write_text("async def times_three(party, x):\n    return (x * 3).reveal(why='test')\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import ppca, neighbour\n"
        "async def twice(party, x):\n"
        "    return (x * 2).reveal(why='test')\n"
        "if __name__ == '__main__':\n"
        "    with ppca.Job() as job:\n"
        "        print(job.run(twice, [1, 2]), job.run(neighbour.times_three, [1, 2]))\n"
    )
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd="/", timeout=PATIENCE)
    assert (ran.stdout, ran.stderr) == ("[2 4] [3 6]\n", "")
    module = subprocess.run(
        [sys.executable, "-m", "script"], capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE
    )
    assert (module.stdout, module.stderr) == ("[2 4] [3 6]\n", "")


def test_a_script_that_starts_servers_wherever_it_is_loaded(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import ppca\n"
        "async def twice(party, x):\n"
        "    return (x * 2).reveal(why='test')\n"
        "with ppca.Job() as job:\n"
        "    print(job.run(twice, [1, 2]))\n"
    )
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 1
    assert "put the lines that start them under if __name__ == '__main__':" in ran.stderr
