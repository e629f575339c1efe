"""Input and output of the worker process of one attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..jobs.chunks import ServerChunk
from ..jobs.pools import Workers
from ..runtime.execute import Ran
from ..runtime.failure import Failure
from ..runtime.store import Record
from ..transport import PinnedTls


@dataclass(frozen=True, kw_only=True)
class AttemptInput:
    """One attempt as one server sees it.

    session: the same on all four servers, another one in every attempt. addresses: of the mesh ports, by server.
    job: as plain data, with the names under which servers keep models. chunks: what the owners have sent; may be a
    generator.
    workers: where local products are computed, see `pools`. kept: records that the program may recall, by name.
    timeout: maximum seconds of one round.
    start_timeout: maximum seconds until all servers are connected.
    attempt_timeout: maximum seconds of the whole attempt, whatever the other servers do.
    run_timeout: maximum seconds from the begin of the attempt.
    input_bytes: maximum bytes of the inputs in memory.
    """

    server: int
    session: bytes
    addresses: Mapping[int, tuple[str, int]]
    tls: PinnedTls
    job: dict[str, Any]
    chunks: Iterable[ServerChunk] = ()
    workers: Workers = 0
    kept: Mapping[str, Record] = field(default_factory=dict)
    timeout: float = 60.0
    start_timeout: float = 60.0
    attempt_timeout: float = 43_200.0
    run_timeout: float = 43_200.0
    threads: int = 1
    input_bytes: int = 4 << 30

    def links(self) -> dict[str, Any]:
        """Return what the worker is told to find its peers."""
        return {
            "session": self.session.hex(),
            "addresses": {str(server): list(address) for server, address in self.addresses.items()},
            "tls": self.tls.as_data(),
            "timeout": self.timeout,
            "start_timeout": self.start_timeout,
        }


@dataclass(frozen=True)
class Done:
    """The result of a program on this server, and the records that it keeps by name (None: to be erased).

    Another server may have failed in the last round: both count only when all four are done.
    """

    ran: Ran
    kept: dict[str, Record | None]


class AttemptFailed(RuntimeError):
    """An attempt came to nothing. `final`: a refusal or a disagreement, which another attempt cannot mend."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error)
        self.failure = failure
        self.final = failure.final
