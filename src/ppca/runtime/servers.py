"""The interface of four servers that run jobs: processes of this machine, or a federation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ..jobs.chunks import Chunk
from ..jobs.spec import JobSpec
from ..protocol import InputPacket
from .outcome import Outcome

Progress = Callable[[str, float | None, int], None]
"""Progress callback: called with the current step, the fraction done (None if unknown), and the rounds so far."""


class Servers(Protocol):
    """Four servers that run jobs. Shares go in, sealed parts of a result come out."""

    @property
    def member(self) -> str | None:
        """The member of a federation that acts for all owners and receives the result; None for local servers."""

    @property
    def running(self) -> bool:
        """True if the servers can run a program."""

    def start(self) -> Any:
        """Start the servers if this side controls them. Does nothing if they run."""

    def stop(self) -> None:
        """Stop the servers if this side controls them."""

    def erase(self, model: str) -> None:
        """Erase a kept model and its sums."""

    def run_job(self, job: JobSpec, chunks: Iterable[Chunk], progress: Progress | None = None) -> Outcome:
        """Run a job on the chunks of its owners. Chunks can be made while others are being sent.

        Raises
        ------
        ProgramError : nothing was computed; the servers can be used again.
        InconsistentShares : the servers' accounts do not fit together; the result is not used.
        ServersFailed : the run failed; the message says whether the servers were stopped.
        """


@runtime_checkable
class RunsPrograms(Protocol):
    """Servers of developers: they also run programs by name."""

    def run(
        self,
        program: Any,
        inputs: Sequence[list[InputPacket]],
        public: Mapping[str, Any],
        progress: Progress | None = None,
    ) -> Outcome:
        """Run a program on the packets (by server) of its secret inputs and on its public parameters."""
