"""Why a run failed: what each server reported, told as one error that begins with the cause.

One failure makes three more: when a server raises or dies, its peers lose their links. `explain` puts the cause first, the
peers' views (they know the step) below it, and the traceback of the program last. A traceback shows code, never values;
what an exception raised by a program says is up to the program.
"""

from __future__ import annotations

import traceback
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from ..jobs.errors import Refusal
from ..protocol import InconsistentShares, InputRefused, OpeningRefused
from ..transport import PeerError, TransportError, server_name
from .codec import CodecError

CAUSE, SUSPECT, SILENT, CONSEQUENCE = range(4)
"""How much a failure explains: an exception or a death; a timeout or a wrong frame; no report; a lost peer."""

_HERE = Path(__file__).parent
OWN_FILES = (str(_HERE), str(_HERE.parent / "protocol" / "rounds.py"), "<frozen ")
"""Where a traceback starts before it reaches the program: of no interest to its author."""

FINAL = (InconsistentShares, InputRefused, OpeningRefused)
"""Refusals and disagreements from below this room; `Refusal` and `CodecError` are final as well."""

STOPPED = "All servers were stopped; start new ones to run again."
USABLE = "The servers have new links and can be used again."


class ServersFailed(RuntimeError):
    """A run failed. The message says which server, in which step, why, and what to do next."""


@dataclass(frozen=True)
class Failure:
    """One server's failure. `step` is the number of its round since the servers connected, if known.

    reported: whether the server said so itself, and so is still there.
    final: whether it is a refusal or a disagreement, which running again cannot mend.
    cause, places: what logs may say of it, free of data as well: the type of the exception, or what became of the process, and
    where in the code it arose.
    """

    seat: int
    error: str
    trace: str = ""
    step: int | None = None
    rank: int = CAUSE
    reported: bool = False
    final: bool = False
    cause: str = ""
    places: str = ""

    @classmethod
    def of(cls, seat: int, step: int | None, error: BaseException) -> Failure:
        """The failure behind an exception that ended a server's program."""
        if isinstance(error, TransportError):  # its message names server, peer and step
            found = cls(seat, str(error), "", step, CONSEQUENCE if isinstance(error, PeerError) else SUSPECT)
        elif isinstance(error, CodecError | Refusal | OpeningRefused):  # the message says it all
            found = cls(seat, str(error), "", step, final=True)
        else:
            found = cls(seat, _in_words(error), trace_of(error), step, final=isinstance(error, FINAL))
        return replace(found, cause=type(error).__name__, places=places(error.__traceback__))

    @classmethod
    def from_fields(cls, seat: int, fields: dict[str, Any]) -> Failure:
        """A failure that travelled in a message; the channel it came on says whose it is."""
        step = None if fields["step"] is None else int(fields["step"])
        return cls(
            seat,
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
        """What peers are told; free of data, so without the text of a program's exception, unless it is a refusal."""
        return self.error if self.rank != CAUSE or (self.final and not self.trace) else "the program failed there"


def explain(failures: Sequence[Failure], finished: Collection[int] = (), outlook: str = STOPPED) -> str:
    """The text of the error. `failures` in order of arrival, `finished` are the servers whose program ended well.

    outlook: what became of the servers.
    """
    first = min(failures, key=lambda failure: failure.rank)  # the earliest of the most telling
    same = [failure for failure in failures if (failure.error, failure.rank) == (first.error, CAUSE)]
    step = first.step
    if step is None:  # a dead server cannot tell, but its peers know where they lost it
        step = max((failure.step for failure in failures if failure.step is not None), default=None)
    if first.rank == CAUSE:
        who = "all four servers" if len(same) == 4 else " and ".join(server_name(f.seat) for f in by_seat(same))
        lines = [f"{who} failed{'' if step is None else f' in step {step}'}: {first.error}"]
    else:
        same = [first]
        lines = [first.error if first.rank != SILENT else f"{server_name(first.seat)}: {first.error}"]
    others = {failure.seat: failure.error for failure in failures if failure not in same}
    others |= {seat: "had finished its program" for seat in finished}
    for seat, error in sorted(others.items()):
        lines.append(f"  {error}" if error.startswith(server_name(seat)) else f"  {server_name(seat)}: {error}")
    lines += _traces(failures)
    return "\n".join([*lines, outlook])


def _traces(failures: Sequence[Failure]) -> list[str]:
    """Every different traceback, once."""
    seats: dict[str, list[str]] = {}
    for failure in by_seat(failures):
        if failure.trace:
            seats.setdefault(failure.trace.rstrip(), []).append(server_name(failure.seat))
    if len(seats) == 1:
        return list(seats)
    return [f"--- {' and '.join(names)}\n{trace}" for trace, names in seats.items()]


def by_seat(failures: Sequence[Failure]) -> list[Failure]:
    return sorted(failures, key=lambda failure: failure.seat)


def _in_words(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # a program's exception class may be broken too
        text = "(its text cannot be shown)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def places(frames: TracebackType | None) -> str:
    """Functions and lines of the last frames of a traceback, the last one first: what logs say of where an error arose."""
    return " < ".join(f"{place.name}:{place.lineno}" for place in reversed(traceback.extract_tb(frames)[-6:]))


def trace_of(error: BaseException) -> str:
    """The traceback from the program on. Code only, no values."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(OWN_FILES):
        if frames.tb_next is None and not isinstance(error, ImportError | SyntaxError):
            break  # it arose here: keep the last line
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))
