"""Four servers as threads of one process over in-memory links: the same programs, without processes, for tests."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Self

from numpy.typing import ArrayLike

from ..protocol import InputPacket, share
from ..transport import Mesh, memory_meshes
from .codec import pack, unpack
from .conversation import GRACE
from .failure import SILENT, Failure, ServersFailed, explain
from .outcome import Account, combine
from .programs import Program, Ran, check_arguments, check_async, execute, load, name_of


@dataclass
class ThreadCluster:
    """The interface of `LocalServers` in one process. Every run has fresh links: an error does not end the cluster."""

    timeout: float = 60.0
    report: Account | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def run(self, program: Program | str, /, *secret: ArrayLike, **public: Any) -> Any:
        function = load(name_of(program)) if isinstance(program, str) else program
        packets = [share(values, name=f"input {i}") for i, values in enumerate(secret)]
        return self.run_on(memory_meshes(timeout=self.timeout), function, packets, public)

    def run_on(
        self, meshes: list[Mesh], function: Program, packets: list[list[InputPacket]], public: dict[str, Any]
    ) -> Any:
        """Runs on given links (in memory, TCP or TLS)."""
        name = getattr(function, "__name__", str(function))
        check_async(function, name)
        check_arguments(function, name, len(packets), public)
        session = secrets.token_bytes(16)
        reports: queue.SimpleQueue[tuple[int, Ran | BaseException]] = queue.SimpleQueue()

        def serve(mesh: Mesh) -> None:
            try:
                ran = execute(mesh, session, function, [packet[mesh.seat] for packet in packets], public)
                buffers: list[bytes] = []
                ran.result = unpack(pack(ran.result, buffers, "result"), buffers)  # as if it had left a process
            except BaseException as error:
                mesh.abort(Failure.of(mesh.seat, mesh.step, error).reason)
                reports.put((mesh.seat, error))
            else:
                mesh.close()
                reports.put((mesh.seat, ran))

        for mesh in meshes:
            threading.Thread(target=serve, args=(mesh,), name=f"ppca-seat-{mesh.seat}", daemon=True).start()
        done, failed = self._collect(reports)
        if len(done) < 4:
            failures = [Failure.of(seat, meshes[seat].step, error) for seat, error in failed.items()]
            lost = [seat for seat in range(4) if seat not in done and seat not in failed]
            failures += [Failure(seat, "no report: its thread still computes on its own", rank=SILENT) for seat in lost]
            raise ServersFailed(explain(failures, done, ending="")) from next(iter(failed.values()), None)
        result, self.report = combine([done[seat] for seat in range(4)])
        return result

    def _collect(
        self, reports: queue.SimpleQueue[tuple[int, Ran | BaseException]]
    ) -> tuple[dict[int, Ran], dict[int, BaseException]]:
        """Waits for all four reports; after the first failure not longer than its peers need to notice it."""
        done: dict[int, Ran] = {}
        failed: dict[int, BaseException] = {}
        deadline: float | None = None
        while len(done) + len(failed) < 4:
            try:
                seat, report = reports.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if isinstance(report, Ran):
                done[seat] = report
                if deadline is None:
                    deadline = time.monotonic() + self.timeout + GRACE
            else:
                failed[seat] = report
                if len(failed) == 1:
                    deadline = time.monotonic() + GRACE
        return done, failed
