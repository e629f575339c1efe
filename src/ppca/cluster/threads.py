"""Four servers as threads of one process over in-memory links: the same programs, without processes, for tests."""

from __future__ import annotations

import secrets
import threading
import traceback
from dataclasses import dataclass
from typing import Any, Self

from numpy.typing import ArrayLike

from ..protocol import share
from ..transport import Mesh, TransportError, memory_meshes, seat_name
from .local import ClusterError
from .outcome import RunReport, combine
from .programs import Program, Ran, execute, load


@dataclass
class ThreadCluster:
    """The interface of `LocalCluster` in one process. Every run has fresh links: an error does not end the cluster."""

    timeout: float = 60.0
    report: RunReport | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def run(self, program: Program | str, *secret: ArrayLike, **public: Any) -> Any:
        function = load(program) if isinstance(program, str) else program
        packets = [share(values, name=f"input {i}") for i, values in enumerate(secret)]
        return self.run_on(memory_meshes(timeout=self.timeout), function, packets, public)

    def run_on(self, meshes: list[Mesh], function: Program, packets: list[Any], public: dict[str, Any]) -> Any:
        """Runs on given links (in memory, TCP or TLS)."""
        session = secrets.token_bytes(16)
        done: dict[int, Ran] = {}
        failed: dict[int, BaseException] = {}

        def serve(mesh: Mesh) -> None:
            try:
                done[mesh.seat] = execute(mesh, session, function, [packet[mesh.seat] for packet in packets], public)
                mesh.close()
            except BaseException as error:
                failed[mesh.seat] = error
                mesh.abort(
                    str(error) if isinstance(error, TransportError) else f"{type(error).__name__} in the program"
                )

        threads = [threading.Thread(target=serve, args=(mesh,), daemon=True) for mesh in meshes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            own = {seat: error for seat, error in failed.items() if not isinstance(error, TransportError)}
            seat, first = min((own or failed).items())
            texts = [
                f"--- {seat_name(s)}\n{''.join(traceback.format_exception(e))}"
                for s, e in sorted((own or failed).items())
            ]
            raise ClusterError(
                f"{seat_name(seat)} failed: {type(first).__name__}: {first}\n" + "\n".join(texts)
            ) from first
        answers = [
            {"value": ran.value, "seconds": ran.seconds, "stats": ran.stats, "audit": ran.audit}
            for _, ran in sorted(done.items())
        ]
        value, self.report = combine(answers)
        return value
