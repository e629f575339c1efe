"""Three processes of SecretFlow SPU on loopback that run compiled programs and time them. Runs in the peer's virtual
environment.

What is timed. The parent compiles each program once and shares the inputs; three processes, one per party, load their
shares and then run the compiled program `repeats` times after warm-up runs. Before each run the parties meet at a
barrier; each takes the wall time around `Runtime.run`, and the slowest party counts. Compilation, process start,
connection and input sharing are outside.
"""

from __future__ import annotations

import multiprocessing
import re
import socket
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from benchmarks.proxy import Proxy

PARTIES = 3
#: Seconds without an answer from a party before the benchmark gives up.
PATIENCE = 600.0

#: One party's answer to one task: wall times, profiled runs, shares of the results.
Answer = dict[str, Any]


def compile_program(function: Callable[..., Any], arrays: list[Any]) -> bytes:
    """Compile a function for operands of these shapes, all secret, with SPU's default compiler options."""
    from spu import libspu  # type: ignore[import-not-found]
    from spu.utils import frontend  # type: ignore[import-not-found]

    executable, _ = frontend.compile(
        frontend.Kind.JAX,
        function,
        arrays,
        {},
        [f"in{i}" for i in range(len(arrays))],
        [libspu.Visibility.VIS_SECRET] * len(arrays),
        lambda outputs: [f"out{i}" for i in range(len(outputs))],
    )
    return bytes(executable.SerializeToString())


class PeerError(RuntimeError):
    """A party failed or stopped answering."""


def runtime_config(options: dict[str, bool]) -> Any:
    from spu import libspu

    config = libspu.RuntimeConfig(protocol=libspu.ProtocolKind.ABY3, field=libspu.FieldType.FM128)
    for name, value in options.items():
        setattr(config, name, value)
    return config


# ---------------------------------------------------------------------------------------------------------------------
# One party


def party(rank: int, addresses: list[str], log: str, barrier: Barrier, parent: Connection) -> None:
    """Serve tasks from the parent until it sends None. Runs in a process of its own."""
    try:
        serve(rank, addresses, Path(log), barrier, parent)
    except EOFError:  # the parent is gone
        barrier.abort()
    except Exception as error:
        barrier.abort()
        parent.send(PeerError(f"party {rank}: {type(error).__name__}: {error}"))


def serve(rank: int, addresses: list[str], log: Path, barrier: Barrier, parent: Connection) -> None:
    from spu import Runtime, libspu

    options = libspu.logging.LogOptions()
    options.enable_console_logger = False
    options.system_log_path = str(log)
    libspu.logging.setup_logging(options)

    description = libspu.link.Desc()
    for i, address in enumerate(addresses):
        description.add_party(f"party{i}", address)
    link = libspu.link.create_brpc(description, rank)
    parent.send("ready")

    while (task := parent.recv()) is not None:
        executable = libspu.Executable()
        executable.ParseFromString(task["program"])

        def prepared(extra: dict[str, bool], task: dict[str, Any] = task) -> Any:
            runtime = Runtime(link.spawn(), runtime_config(task["options"] | extra))
            for i, share in enumerate(task["shares"]):
                runtime.set_var(f"in{i}", share)
            return runtime

        rounds = task["warm_up"] + task["repeats"]
        runtime = prepared({})
        times = []
        for _ in range(rounds):
            barrier.wait(PATIENCE)
            start = time.perf_counter()
            runtime.run(executable)
            times.append(time.perf_counter() - start)

        profiled = prepared({"enable_pphlo_profile": True})
        offset = log.stat().st_size if log.exists() else 0
        for _ in range(rounds):
            barrier.wait(PATIENCE)
            profiled.run(executable)
        parent.send(
            {
                "times": times[task["warm_up"] :],
                "profile": profiler_figures(log, offset)[task["warm_up"] :],
                "results": [runtime.get_var(name) for name in executable.output_names],
            }
        )


def profiler_figures(log: Path, offset: int) -> list[dict[str, float]]:
    """Return what SPU's profiler wrote to its log from this offset on: kernel seconds, bytes and messages of each
    run."""
    runs: list[dict[str, float]] = []
    kernel = 0.0
    text = log.read_bytes()[offset:].decode(errors="replace") if log.exists() else ""
    for line in text.splitlines():
        if operation := re.search(r"- (pphlo\.\w+), executed \d+ times, duration ([\d.e+-]+)s", line):
            if operation[1] != "pphlo.free":
                kernel += float(operation[2])
        elif total := re.search(r"Link details: total send bytes (\d+), recv bytes \d+, send actions (\d+)", line):
            runs.append({"kernel_s": kernel, "bytes": int(total[1]), "messages": int(total[2])})
            kernel = 0.0
    return runs


# ---------------------------------------------------------------------------------------------------------------------
# The parent


class Parties:
    """Three SPU processes on loopback; leaving the context ends them whatever happened.

    delay, rate: of slow links between them, by a proxy before every party; 0: they talk to each other directly.
    """

    def __init__(self, directory: Path, delay: float = 0.0, rate: float = 0.0) -> None:
        context = multiprocessing.get_context("spawn")
        self.barrier = context.Barrier(PARTIES)  # kept: its semaphores disappear with it, before the parties start
        ports = free_ports(PARTIES)
        slow = delay > 0 or rate > 0
        self.links = [Proxy(("127.0.0.1", port), delay=delay, rate=rate) for port in ports if slow]
        dialled = [link.port for link in self.links] or ports
        self.processes: list[BaseProcess] = []
        self.connections: list[Connection] = []
        for rank in range(PARTIES):
            ours, theirs = context.Pipe()
            addresses = [f"127.0.0.1:{(ports if i == rank else dialled)[i]}" for i in range(PARTIES)]
            arguments = (rank, addresses, str(directory / f"party{rank}.log"), self.barrier, theirs)
            process = context.Process(target=party, args=arguments, name=f"spu-party-{rank}", daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)
            self.connections.append(ours)

    def __enter__(self) -> Parties:
        return self

    def __exit__(self, *_: object) -> None:
        for process, connection in zip(self.processes, self.connections, strict=True):
            if process.is_alive():
                process.terminate()
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
            connection.close()
        for link in self.links:
            link.close()

    def answers(self) -> list[Any]:
        """One message from each party, by rank; the first failure, whichever party reports it, is raised."""
        received: dict[int, Any] = {}
        deadline = time.monotonic() + PATIENCE
        while waiting := {self.connections[rank]: rank for rank in range(PARTIES) if rank not in received}:
            answered = wait(list(waiting), max(0.0, deadline - time.monotonic()))
            if not answered:
                raise PeerError(f"no answer within {PATIENCE:.0f} seconds from parties {sorted(waiting.values())}")
            for connection, rank in waiting.items():
                if connection in answered:
                    try:
                        received[rank] = connection.recv()
                    except EOFError:
                        raise PeerError(f"party {rank} ended without an answer") from None
                    if isinstance(received[rank], PeerError):
                        raise received[rank]
        return [received[rank] for rank in range(PARTIES)]

    def run(
        self,
        function: Callable[..., Any],
        arrays: list[Any],
        io: Any,
        options: dict[str, bool],
        repeats: int,
        warm_up: int,
    ) -> list[Answer]:
        """The answers of all parties to one program on these arrays, all secret."""
        from spu import libspu

        program = compile_program(function, arrays)
        shares = [io.make_shares(array, libspu.Visibility.VIS_SECRET) for array in arrays]
        task = {"program": program, "options": options, "repeats": repeats, "warm_up": warm_up}
        for rank, connection in enumerate(self.connections):
            connection.send(task | {"shares": [share[rank] for share in shares]})
        return self.answers()


def free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
