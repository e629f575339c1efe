"""Exact counts of what a mesh sends, by stage of the program.

``bytes_*`` are payload bytes, comparable with the declared cost of a protocol; headers are counted separately. A round
is one call of ``exchange``. ``seconds`` is the time inside ``exchange``, nearly all of it waiting for peers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .errors import SERVERS
from .frames import HEADER_SIZE


def _per_seat() -> list[int]:
    return [0, 0, 0, 0]


@dataclass(slots=True)
class StageStats:
    """Counters of one stage. Lists are indexed by the peer's seat; the own entry stays 0."""

    rounds: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    seconds: float = 0.0
    sent_to: list[int] = field(default_factory=_per_seat)
    received_from: list[int] = field(default_factory=_per_seat)

    @property
    def bytes_sent(self) -> int:
        return sum(self.sent_to)

    @property
    def bytes_received(self) -> int:
        return sum(self.received_from)

    @property
    def header_bytes_sent(self) -> int:
        return HEADER_SIZE * self.messages_sent

    @property
    def header_bytes_received(self) -> int:
        return HEADER_SIZE * self.messages_received

    def add(self, other: StageStats) -> None:
        """Add the counts of another stage."""
        self.rounds += other.rounds
        self.messages_sent += other.messages_sent
        self.messages_received += other.messages_received
        self.seconds += other.seconds
        for seat in SERVERS:
            self.sent_to[seat] += other.sent_to[seat]
            self.received_from[seat] += other.received_from[seat]

    def as_dict(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "messages_sent": self.messages_sent,
            "messages_received": self.messages_received,
            "header_bytes_sent": self.header_bytes_sent,
            "header_bytes_received": self.header_bytes_received,
            "seconds": self.seconds,
            "sent_to": list(self.sent_to),
            "received_from": list(self.received_from),
        }


Counts = tuple[int, int, int, float, list[int], list[int]]
"""Rounds, messages sent, messages received, seconds, payload bytes sent to and received from each seat."""


def _no_counts() -> Counts | None:
    return None


class Stats:
    """Counters of a mesh by stage name. Rounds outside any stage are counted under the name ``""``.

    take_counts: returns the counts of the native round since the last call; they belong to the stage that was current.
    """

    def __init__(self, take_counts: Callable[[], Counts | None] = _no_counts) -> None:
        self._take_counts = take_counts
        self.reset()

    def reset(self) -> None:
        """Count from zero, outside any stage."""
        self._take_counts()
        self._current = StageStats()
        self._stages: dict[str, StageStats] = {"": self._current}

    def _update(self) -> None:
        """Add the counts of the native round."""
        counts = self._take_counts()
        if counts is not None:
            self._current.add(StageStats(*counts))

    @property
    def current(self) -> StageStats:
        self._update()
        return self._current

    @property
    def stages(self) -> dict[str, StageStats]:
        self._update()
        return self._stages

    def enter(self, name: str) -> StageStats:
        """Count the following rounds under ``name``, adding to earlier counts of that name.

        Return the previous stage.
        """
        former = self.current
        self._current = self._stages.setdefault(name, StageStats())
        return former

    def leave(self, former: StageStats) -> None:
        """Return to the stage that `enter` returned."""
        self._update()
        self._current = former

    def total(self) -> StageStats:
        """Return the sum over all stages."""
        total = StageStats()
        for stage in self.stages.values():
            total.add(stage)
        return total

    def as_dict(self) -> dict[str, Any]:
        stages = {name: stage.as_dict() for name, stage in self.stages.items() if stage.rounds}
        return {"stages": stages, "total": self.total().as_dict()}
