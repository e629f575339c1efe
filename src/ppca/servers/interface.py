"""What a job needs of four servers, wherever they are: processes of this machine, or machines of four organisations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..protocol import InputPacket
from .outcome import Outcome
from .programs import Program

Progress = Callable[[str, float | None, int], None]
"""Called with what is being done, how much of it is done (0 to 1, None if unknown), and the rounds so far."""


class Servers(Protocol):
    """Four servers that run programs by name. Shares go in, sealed parts of a result come out."""

    @property
    def running(self) -> bool:
        """Whether they can run a program now."""

    def start(self) -> Any:
        """Starts them, if that is this side's business; no harm if they run."""

    def stop(self) -> None:
        """The opposite of `start`."""

    def run(
        self,
        program: Program | str,
        inputs: Sequence[list[InputPacket]],
        public: Mapping[str, Any],
        progress: Progress | None = None,
    ) -> Outcome:
        """Runs a program on the packets (by seat) of its secret inputs and on its public parameters.

        Raises
        ------
        ProgramError : nothing was computed; the servers can be used again.
        InconsistentShares : the servers' accounts do not fit together; the result is not used.
        ServersFailed : the run failed; the message says whether the servers were stopped.
        """
