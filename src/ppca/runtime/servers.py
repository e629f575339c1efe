"""What a job needs of four servers, wherever they are: processes of this machine, or machines of four organisations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ..jobs.chunks import Chunk
from ..jobs.spec import JobSpec
from .outcome import Outcome

Progress = Callable[[str, float | None, int], None]
"""Called with what is being done, how much of it is done (0 to 1, None if unknown), and the rounds so far."""


class Servers(Protocol):
    """Four servers that run jobs. Shares go in, sealed parts of a result come out."""

    @property
    def member(self) -> str | None:
        """The member of a federation that acts for all owners and receives the result; None for local servers."""

    @property
    def running(self) -> bool:
        """Whether they can run a program now."""

    def start(self) -> Any:
        """Starts them, if that is this side's business; no harm if they run."""

    def stop(self) -> None:
        """The opposite of `start`."""

    def erase(self, model: str) -> None:
        """Erases a kept model and its sums."""

    def run_job(self, job: JobSpec, chunks: Iterable[Chunk], progress: Progress | None = None) -> Outcome:
        """Runs a job on the chunks of its owners. Chunks may be made while others travel.

        Raises
        ------
        ProgramError : nothing was computed; the servers can be used again.
        InconsistentShares : the servers' accounts do not fit together; the result is not used.
        ServersFailed : the run failed; the message says whether the servers were stopped.
        """
