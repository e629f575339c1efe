"""What one attempt of one job is at one server: everything its process is told, and what comes back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..protocol import InputPacket
from ..runtime.failure import Failure
from ..runtime.programs import Ran
from ..runtime.store import Record
from ..transport import PinnedTls

TABLE = "job"
"""The name of the table that a worker makes of uploaded pieces; a program that works on one is told so as ``table``."""

Piece = tuple[int, InputPacket, NDArray[np.uint64] | None, str | None]
"""Rows of one column owner: its number, this server's packet, the tags of the rows if they are matched by tags, and a keyed
digest of the order of its ids if owners say that their rows are aligned."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """One attempt as one server sees it.

    session: the same on all four servers, another one in every attempt. addresses: of the mesh ports, by server.
    program: an offered one, "ppca.jobs.rows:fit". packets, public: what it takes. pieces: rows for its table; may be a generator.
    openings: all that the job lets leave the sharing, see `protocol.opening.limits`; None: anything.
    kept: records that the program may recall, by name. timeout: seconds of one round; start_timeout: until all servers are there;
    attempt_timeout: of the whole attempt, however the other servers behave.
    input_bytes: most that the packets may take in memory.
    """

    server: int
    session: bytes
    addresses: Mapping[int, tuple[str, int]]
    tls: PinnedTls
    program: str
    packets: list[InputPacket] = field(default_factory=list)
    chunks: Iterable[Piece] = ()
    public: dict[str, Any] = field(default_factory=dict)
    openings: list[dict[str, Any]] | None = None
    kept: Mapping[str, Record] = field(default_factory=dict)
    timeout: float = 60.0
    start_timeout: float = 60.0
    attempt_timeout: float = 43_200.0
    threads: int = 1
    input_bytes: int = 4 << 30

    def told(self) -> dict[str, Any]:
        """What goes to the worker at once; pieces and kept records follow."""
        return {
            "session": self.session.hex(),
            "addresses": {str(server): list(address) for server, address in self.addresses.items()},
            "tls": self.tls.as_data(),
            "program": self.program,
            "packets": self.packets,
            "public": self.public,
            "openings": self.openings,
            "timeout": self.timeout,
            "start_timeout": self.start_timeout,
            "input_bytes": self.input_bytes,
        }


@dataclass(frozen=True)
class Done:
    """What a program returned at this server, and what it wants to keep under a name (None: to erase).

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
