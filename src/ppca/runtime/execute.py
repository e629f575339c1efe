"""One run on one server: key agreement, the digest of the job, the enforced list of openings, the account by stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..native import clock
from ..protocol import Party, Pending, agree_keys, drive
from ..protocol.opening import limits
from ..transport import Mesh

KEY_STAGE = "key agreement"
"""The stage under which a run's first round is counted."""


@dataclass
class Ran:
    """One server's account of a run: its result (parts of it still sealed) and what it counted.

    keeps: whether it waits for word that the others have finished too, before it keeps or erases what the program
    wants.
    """

    result: Any
    seconds: float
    stats: dict[str, Any]
    audit: list[dict[str, Any]] = field(default_factory=list)
    keeps: bool = False


@dataclass(frozen=True)
class Task:
    """Program that all four servers run together.

    digest: of the job, or of the program, and of the shapes of its inputs; servers with another one compute nothing.
    body: makes the coroutine. rules: all that may leave the sharing (`protocol.opening.limits`); None: anything, for
    programs of developers.
    """

    digest: bytes
    body: Callable[[Party], Coroutine[Any, Any, Any]]
    rules: list[dict[str, Any]] | None = None


def execute(
    mesh: Mesh,
    session: bytes,
    task: Task,
    progress: Callable[[str, float | None], None] | None = None,
    store: MutableMapping[str, Any] | None = None,
) -> Ran:
    """Run a task on this server: fresh keys, the inputs, the rounds; return its result and the account."""
    allowed = None if task.rules is None else limits(task.rules)
    with mesh.stage(KEY_STAGE):
        party: Party = drive(_awaited(agree_keys(mesh.seat, session, task.digest)), mesh)
    stages = _Stages(mesh, party.sent)
    party.stage, party.openings = stages, allowed
    if progress is not None:
        party.progress = progress
    if store is not None:
        party.store = store
    running = task.body(party)
    start = time.perf_counter()
    result = drive(running, mesh)
    seconds = time.perf_counter() - start
    return Ran(result, seconds, stages.account(), [opening.as_dict() for opening in party.audit])


class _Stages:
    """Names the stages of a program: rounds and bytes are counted by the mesh, elapsed and local time and kinds of
    bytes here.

    Stages follow each other. If one is nested in another, its time counts in both.
    """

    def __init__(self, mesh: Mesh, sent: dict[str, int]) -> None:
        self._mesh = mesh
        self._sent = sent
        self._kinds: dict[str, dict[str, int]] = {}
        self._work: dict[str, dict[str, float]] = {}
        clock.reset()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        before, start, sent = clock.reading(), time.perf_counter(), dict(self._sent)
        with self._mesh.stage(name):
            yield
        spent = {"elapsed": time.perf_counter() - start}
        spent |= {kind: seconds - before[kind] for kind, seconds in clock.reading().items()}
        total = self._work.setdefault(name, dict.fromkeys(spent, 0.0))
        for kind, seconds in spent.items():
            total[kind] += seconds
        kinds = self._kinds.setdefault(name, {})
        for kind, size in self._sent.items():
            kinds[kind] = kinds.get(kind, 0) + size - sent.get(kind, 0)

    def account(self) -> dict[str, Any]:
        """The mesh's counters with the times of each stage beside them."""
        stats = self._mesh.stats.as_dict()
        for name, spent in self._work.items():
            if name in stats["stages"]:
                stats["stages"][name]["work"] = spent
                stats["stages"][name]["kinds"] = self._kinds[name]
        return stats


async def _awaited(step: Any) -> Any:
    return await Pending(step)
