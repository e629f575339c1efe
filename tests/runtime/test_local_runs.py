"""What running servers do well, and what they refuse without harm: the same four processes for all tests here."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import harness.programs_for_tests as programs_for_tests
from harness.lockstep import run as run_in_lockstep
from harness.processes import program, run
from harness.waiting import PATIENCE
from ppca.estimator.job import Job
from ppca.protocol import FIXED, InconsistentShares, InputPacket, InputRefused, SecretArray, share
from ppca.runtime import CodecError, LocalServers, OperatorError, ProgramError, ServersFailed
from ppca.runtime.execute import KEY_STAGE

ULP = 2.0**-40
X, Y = np.array([1.5, -2.0, 3.25]), np.array([4.0, 0.5, 3.0])


@pytest.fixture
def pids(servers: LocalServers) -> Any:
    """The test must leave these processes running and usable."""
    before = servers.pids
    yield before
    assert servers.pids == before
    np.testing.assert_array_equal(run(servers, program("reveal"), X), X)


def test_all_kinds_of_values_come_back(servers: LocalServers) -> None:
    seen = []
    job = Job(servers, lambda *told: seen.append(told))
    result = job.run(program("several"), X, Y, scale=2.0)
    np.testing.assert_allclose(result["product"], 2 * X * Y, atol=4 * ULP, rtol=0)
    np.testing.assert_array_equal(result["less"], X < Y)
    assert result["public"][:5] == [1, 2.5, "text", None, True]
    assert np.isnan(result["public"][5])
    np.testing.assert_array_equal(result["array"], [1.0, np.nan])
    assert result["pid"] == servers.pids
    assert seen == [("compared", 1.0, 4)]
    assert job.account.rounds == 4  # keys, two for the product and the comparison, the opening
    assert job.account.stages[0]["stages"]["key agreement"]["rounds"] == 1
    assert [line["what"] for line in job.account.audit] == ["x < y", "x * y"]


def test_public_values_of_every_kind_reach_the_program(servers: LocalServers) -> None:
    array = np.arange(6).reshape(2, 3)
    result = run(servers, program("public_only"), a=1, b=[1.5, "x", None], c={"d": array}, e=np.float64(2.0), program=3)
    np.testing.assert_array_equal(result.pop("c")["d"], array)
    assert result == {"a": 1, "b": [1.5, "x", None], "e": 2.0, "program": 3}


def test_many_runs_use_the_same_processes(servers: LocalServers, pids: list[int]) -> None:
    seen: list[int] = []
    for i in range(100):
        np.testing.assert_array_equal(run(servers, program("reveal"), X + i), X + i)
    run(servers, program("many_rounds"), [0.5], rounds=3, progress=lambda text, fraction, rounds: seen.append(rounds))
    assert seen == [2]  # rounds of this run, not of all runs


@pytest.mark.parametrize("shape", [(0,), (3, 0), ()])
def test_empty_and_scalar_inputs(servers: LocalServers, shape: tuple[int, ...]) -> None:
    x = np.ones(shape)
    product = run(servers, program("multiply"), x, x)
    assert product.shape == shape
    np.testing.assert_array_equal(product, x)


def test_inputs_of_more_than_100_megabytes_on_a_channel(servers: LocalServers) -> None:
    x = np.arange(2**22, dtype=np.float64)  # server 3 gets two arrays of 64 MiB
    np.testing.assert_array_equal(run(servers, program("reveal"), x), x)


def test_shared_packets_are_taken_as_they_are(servers: LocalServers) -> None:
    np.testing.assert_array_equal(run(servers, program("reveal"), share([7, 8])), [7, 8])


@pytest.mark.parametrize("shape", [(1 << 35,), (1 << 40, 0, 5), (3,)])
def test_keys_that_stand_for_wrong_shapes(servers: LocalServers, pids: list[int], shape: tuple[int, ...]) -> None:
    """32 bytes are two keys, for server 0 an input of any size: a terabyte is refused before memory is taken."""
    packet = InputPacket(shape, FIXED, bytes(16), bytes(16))
    with pytest.raises(ProgramError, match=r"take 1,099,511,627,776 bytes|has 16 bytes, expected"):
        run(servers, program("reveal"), [packet] * 4)


@pytest.mark.processes
def test_the_operators_limit_of_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PPCA_INPUT_BYTES", "3200")
    with LocalServers(timeout=PATIENCE, developer=True) as servers:
        assert len(run(servers, program("reveal"), np.ones(100))) == 100
        with pytest.raises(ProgramError, match=r"take 3,232 bytes .* allows 3,200 \(PPCA_INPUT_BYTES\)"):
            run(servers, program("reveal"), np.ones(101))
        assert len(run(servers, program("reveal"), np.ones(100))) == 100


def test_wrong_settings_of_the_operator_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PPCA_INPUT_BYTES", "4 GiB")
    with pytest.raises(OperatorError, match="PPCA_INPUT_BYTES='4 GiB' must be a whole number"):
        LocalServers().start()


def test_what_programs_print_does_not_reach_standard_output(
    servers: LocalServers, capfd: pytest.CaptureFixture[str]
) -> None:
    with LocalServers(developer=True) as own:  # started while the descriptors are captured
        run(own, program("chatter"))
    out, err = capfd.readouterr()
    assert out == ""
    assert sorted(err.splitlines()) == sorted(
        f"server {number}: {text}" for number in range(4) for text in ("printed by a program", "no end of line")
    )


@pytest.mark.parametrize(
    ("name", "inputs", "public", "message"),
    [
        ("no_colon", [], {}, "'no_colon' is not a program name: write 'module:function' or 'file.py:function'"),
        ("no_such_file.py:main", [], {}, "file not found: 'no_such_file.py'"),
        ("no_such_module:main", [], {}, "cannot load program 'no_such_module:main': ModuleNotFoundError"),
        (program("nothing"), [], {}, "no function 'nothing'"),
        (program("not_async"), [], {}, "is not an 'async def' function"),
        (program("multiply"), [X], {}, "takes (party, x, y) but was given the party, 1 secret input and no public"),
        (program("multiply"), [X, X], {"z": 1}, "got an unexpected keyword argument 'z'"),
    ],
)
def test_wrong_programs_are_refused(
    servers: LocalServers, pids: list[int], name: str, inputs: list[Any], public: dict[str, Any], message: str
) -> None:
    with pytest.raises(ProgramError) as caught:
        run(servers, name, *inputs, **public)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def broken(:", "SyntaxError"),
        ("value = undefined_name", "value = undefined_name"),  # the traceback shows the line
        ("import sys; sys.exit(3)", "SystemExit"),
        ("from ppca import LocalServers\nLocalServers().start()", "if __name__ == '__main__':"),
    ],
)
def test_files_that_cannot_be_loaded_are_refused(
    servers: LocalServers, pids: list[int], tmp_path: Any, source: str, message: str
) -> None:
    file = tmp_path / "broken.py"
    file.write_text(source)
    with pytest.raises(ProgramError, match="cannot load program") as caught:
        run(servers, f"{file}:main")
    assert message in str(caught.value)
    assert "runpy" not in str(caught.value)


@pytest.mark.processes
def test_servers_run_jobs_only(tmp_path: Any) -> None:
    """A name is never enough to run code, whatever the client sends: the servers themselves take no such message."""
    own = tmp_path / "own.py"
    own.write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\nasync def main(party): ...\n")
    with LocalServers(timeout=PATIENCE) as servers:
        for name in (f"{own}:main", program("reveal"), "asyncio:sleep", "ppca.jobs.analysis:analyse"):
            with pytest.raises(ProgramError, match="these servers run jobs only"):
                run(servers, name)
        servers.developer = True  # a client that does not follow the rules
        with pytest.raises(ServersFailed, match="takes no message 'run' now"):
            run(servers, f"{own}:main")
        assert not (tmp_path / "ran").exists()


def test_functions_that_servers_cannot_find_are_refused(servers: LocalServers, pids: list[int]) -> None:
    async def local(party: Any) -> None:
        return None

    with pytest.raises(ProgramError, match="must stand at the top level of a module"):
        run(servers, local)
    with pytest.raises(ProgramError, match="not an 'async def' function"):
        run(servers, os.getcwd)  # type: ignore[arg-type]


def test_a_relative_file_is_found_where_the_client_is(
    servers: LocalServers, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "neighbour.py").write_text("VALUE = 7")
    (tmp_path / "relative.py").write_text("from neighbour import VALUE\nasync def main(party):\n    return VALUE\n")
    monkeypatch.chdir(tmp_path)
    assert run(servers, "relative.py:main") == 7


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, np.nan], r"input 1\[1\] is nan: fill or drop"),
        ([[1.0], [np.inf]], r"input 1\[1, 0\] is inf"),
        ([1.0, 1e30], r"input 1\[1\] = 1e\+30 is outside"),
        (["a"], "not numbers"),
    ],
)
def test_bad_values_are_refused_with_their_position(
    servers: LocalServers, pids: list[int], values: Any, message: str
) -> None:
    with pytest.raises(InputRefused, match=message):
        run(servers, program("multiply"), X, values)


@pytest.mark.parametrize(
    ("public", "message"),
    [
        ({"a": {1: 2}}, "keys"),
        ({"a": [object()]}, r"public\['a'\]\[0\] is a object, which cannot be sent"),
        ({"a": np.array([None])}, "array of type object"),
        ({"a": "x" * (1 << 26)}, "use NumPy arrays"),
    ],
)
def test_parameters_that_cannot_travel_are_refused(
    servers: LocalServers, pids: list[int], public: dict[str, Any], message: str
) -> None:
    with pytest.raises(CodecError, match=message):
        run(servers, program("public_only"), **public)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_opinion", r"the result\['server'\]\[0\] is a public value that differs between the servers"),
        ("own_form", "the result differs in form between the servers"),
    ],
)
def test_results_that_differ_are_not_used(servers: LocalServers, pids: list[int], name: str, message: str) -> None:
    with pytest.raises(InconsistentShares, match=message):
        run(servers, program(name))


def test_two_threads_wait_for_each_other(servers: LocalServers) -> None:
    """A second run starts when the first has ended; a run inside of the progress of another is refused."""
    started, messages = threading.Event(), []

    def first(*_: object) -> None:
        if not started.is_set():
            try:
                run(servers, program("reveal"), X)
            except ServersFailed as error:
                messages.append(str(error))
            started.set()

    def work() -> Any:
        return run(servers, program("many_rounds"), [0.5], rounds=200, progress=first)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(work)
        assert started.wait(PATIENCE)
        run(servers, program("reveal"), X)
        waiting.result(PATIENCE)
    assert messages == ["the servers are busy with the run that called this: they run one program at a time"]


def test_two_sets_of_servers_at_once(servers: LocalServers, pids: list[int]) -> None:
    with LocalServers(developer=True) as other:
        inside = []

        def progress(*_: object) -> None:
            if not inside:
                inside.append(run(other, program("several"), X, Y)["pid"])

        run(servers, program("many_rounds"), [0.5], rounds=50, progress=progress)
        assert inside == [other.pids]
        assert not {*other.pids} & {*servers.pids}


@pytest.mark.parametrize("settings", [{"timeout": 0}, {"timeout": float("nan")}, {"threads": 0}])
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        LocalServers(**settings)


@pytest.mark.processes
@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
def test_links_carry_exactly_what_lock_step_counts(tls: bool) -> None:
    async def body(x: SecretArray, y: SecretArray) -> Any:
        return await programs_for_tests.meet_in_two_ways(x.party, x, y)

    x, y = np.array([2.0, 1.5, -2.0, 3.25]), np.array([0.1, 4.0, 0.5, 3.0])
    expected = run_in_lockstep(body, x, y)
    with Job(LocalServers(tls=tls, timeout=PATIENCE, developer=True)) as job:
        result = job.run(program("meet_in_two_ways"), x, y)
    np.testing.assert_allclose(result[0], x * y + np.sqrt(x * x + 1), rtol=1e-9)  # promised for sqrt
    np.testing.assert_array_equal(result[1], x < y)
    np.testing.assert_array_equal(result[2], np.sort(x))
    account = job.account
    keys = [seat["stages"][KEY_STAGE] for seat in account.stages]
    assert [stage["bytes_sent"] for stage in keys] == [208, 80, 80, 48]
    assert account.rounds - 1 == expected.traffic.rounds
    sent = [total - stage["bytes_sent"] for total, stage in zip(account.bytes_sent, keys, strict=True)]
    assert sent == expected.traffic.sent
    assert [line["to"] for line in account.audit] == ["servers", "client", "servers", "client"]


@pytest.mark.processes
def test_a_job_starts_servers_with_its_first_program_and_stops_them() -> None:
    servers = LocalServers(developer=True)
    with Job(servers) as job:
        assert not servers.running
        with pytest.raises(InputRefused):
            job.run(program("reveal"), [np.nan])
        assert not servers.running
        job.run(program("reveal"), X)
        pids = servers.pids
        job.run(program("reveal"), X)
        assert servers.pids == pids
        assert job.account.rounds == 2  # two runs, a key agreement each
        with pytest.raises(ValueError, match="has not run a program"):
            _ = Job(servers).account
    assert not servers.running
    with pytest.raises(ServersFailed, match="not running"):
        job.run(program("reveal"), X)


def test_a_job_leaves_running_servers_running(servers: LocalServers, pids: list[int]) -> None:
    with Job(servers) as job:
        np.testing.assert_array_equal(job.run(program("reveal"), X), X)
    assert servers.running
