"""Explain why a run failed: combine the reports of the four servers into one error that begins with the cause.

One failure causes three more: if a server raises or dies, its peers lose their links. `explain` puts the cause first,
the reports of the peers (with the step) below it, and the traceback of the program last. A traceback shows code, never
values. A program is responsible for the text of its own exceptions.
"""

from __future__ import annotations

import traceback
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from ..jobs.errors import Refusal
from ..protocol import DifferentJobs, InconsistentShares, InputRefused, OpeningRefused
from ..transport import PeerError, TransportError, server_name
from .codec import CodecError

CAUSE, SUSPECT, SILENT, CONSEQUENCE = range(4)
"""Ranks of failures, the most informative first: exception or death; timeout or wrong frame; no report; lost peer."""

_HERE = Path(__file__).parent
OWN_FILES = (str(_HERE), str(_HERE.parent / "protocol" / "rounds.py"), "<frozen ")
"""Files whose frames are omitted from the top of a program's traceback."""

FINAL = (InconsistentShares, InputRefused, OpeningRefused)
"""Final exceptions of lower layers: refusals and disagreements. `Refusal` and `CodecError` are also final."""

STOPPED = "All servers were stopped; start new ones to run again."
USABLE = "The servers have new links and can be used again."


class ServersFailed(RuntimeError):
    """A run failed. The message names the server, the step, the cause and the next action."""


@dataclass(frozen=True)
class Failure:
    """The failure of one server. `step` is the number of its round since the servers connected, if known.

    reported: whether the server reported it itself, so that it still runs.
    final: whether it is a refusal or a disagreement, so that another attempt cannot succeed.
    cause, places: text for logs, without data: the type of the exception or the end of the process, and the lines of
    code.
    """

    server: int
    error: str
    trace: str = ""
    step: int | None = None
    rank: int = CAUSE
    reported: bool = False
    final: bool = False
    cause: str = ""
    places: str = ""

    @classmethod
    def of(cls, server: int, step: int | None, error: BaseException) -> Failure:
        """The failure behind an exception that ended a server's program."""
        if isinstance(error, TransportError):  # its message names server, peer and step
            found = cls(server, str(error), "", step, CONSEQUENCE if isinstance(error, PeerError) else SUSPECT)
        elif isinstance(error, DifferentJobs):  # in a federation they have the same one: a server is ill, or lies
            found = cls(server, str(error), "", step, SUSPECT)
        elif isinstance(error, CodecError | Refusal | OpeningRefused):  # the message says it all
            found = cls(server, str(error), "", step, final=True)
        else:
            found = cls(server, _in_words(error), trace_of(error), step, final=isinstance(error, FINAL))
        return replace(found, cause=type(error).__name__, places=places(error.__traceback__))

    @classmethod
    def from_fields(cls, server: int, fields: dict[str, Any]) -> Failure:
        """Return the failure in a message. The channel determines the server."""
        step = None if fields["step"] is None else int(fields["step"])
        return cls(
            server,
            str(fields["error"]),
            str(fields["trace"]),
            step,
            int(fields["rank"]),
            True,
            fields.get("final") is True,
            str(fields.get("cause", "")),
            str(fields.get("places", "")),
        )

    @property
    def reason(self) -> str:
        """Reason that is sent to peers, without data: the text of a program's exception is omitted unless it is a
        refusal."""
        return self.error if self.rank != CAUSE or (self.final and not self.trace) else "the program failed there"


def explain(failures: Sequence[Failure], finished: Collection[int] = (), outlook: str = STOPPED) -> str:
    """Return the text of the error. `failures` in order of arrival; `finished`: servers whose program succeeded.

    outlook: the state of the servers afterwards.
    """
    first = min(failures, key=lambda failure: failure.rank)  # the earliest of the most informative ones
    same = [failure for failure in failures if (failure.error, failure.rank) == (first.error, CAUSE)]
    step = first.step
    if step is None:  # a dead server cannot report its step, but its peers know when they lost it
        step = max((failure.step for failure in failures if failure.step is not None), default=None)
    if first.rank == CAUSE:
        who = "all four servers" if len(same) == 4 else " and ".join(server_name(f.server) for f in by_server(same))
        lines = [f"{who} failed{'' if step is None else f' in step {step}'}: {first.error}"]
    else:
        same = [first]
        lines = [first.error if first.rank != SILENT else f"{server_name(first.server)}: {first.error}"]
    others = {failure.server: failure.error for failure in failures if failure not in same}
    others |= {server: "had finished its program" for server in finished}
    for server, error in sorted(others.items()):
        lines.append(f"  {error}" if error.startswith(server_name(server)) else f"  {server_name(server)}: {error}")
    lines += _traces(failures)
    return "\n".join([*lines, outlook])


def _traces(failures: Sequence[Failure]) -> list[str]:
    """Return every distinct traceback once."""
    servers: dict[str, list[str]] = {}
    for failure in by_server(failures):
        if failure.trace:
            servers.setdefault(failure.trace.rstrip(), []).append(server_name(failure.server))
    if len(servers) == 1:
        return list(servers)
    return [f"--- {' and '.join(names)}\n{trace}" for trace, names in servers.items()]


def by_server(failures: Sequence[Failure]) -> list[Failure]:
    return sorted(failures, key=lambda failure: failure.server)


def _in_words(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # str() of a program's exception can fail too
        text = "(its text cannot be shown)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def places(frames: TracebackType | None) -> str:
    """Return functions and lines of the last frames of a traceback, the last one first, for logs."""
    return " < ".join(f"{place.name}:{place.lineno}" for place in reversed(traceback.extract_tb(frames)[-6:]))


def trace_of(error: BaseException) -> str:
    """Return the traceback from the first frame of the program. It contains code, no values."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(OWN_FILES):
        if frames.tb_next is None and not isinstance(error, ImportError | SyntaxError):
            break  # the error is in this package: keep the last line
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))
