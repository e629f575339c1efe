"""Run a job whose owners are in this process: make and send chunks, run the job, unseal the results."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from ..html.formats import counted
from ..jobs.chunks import Chunk
from ..jobs.spec import ROWS, JobSpec
from ..owner.alignment.tags import BLOCK
from ..owner.contribute import Source, contribution
from .job import Job

T = TypeVar("T")


@dataclass
class Run:
    """A job that has run. answer: of the servers, unsealed. sent: bytes of rows by table. seconds: by step."""

    answer: dict[str, Any] = field(default_factory=dict)
    sent: list[int] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


def run(job: Job, spec: JobSpec, sources: Sequence[Source]) -> Run:
    """Run a job whose owners are all here. sources: one for each of its tables."""
    found = Run(sent=[0] * len(sources))
    making = _Making(job, spec, sources, found)
    start = time.perf_counter()
    found.answer = job.run_job(spec, making.sent())
    found.seconds["analysis"] = time.perf_counter() - start - sum(found.seconds.values())
    return found


class _Making:
    """Make the chunks of all tables in order, and count rows, bytes and seconds."""

    def __init__(self, job: Job, spec: JobSpec, sources: Sequence[Source], found: Run) -> None:
        self._job, self._spec, self._sources, self._found = job, spec, sources, found
        self._key = secrets.token_bytes(BLOCK)
        self._told = ("", 0.0)

    def sent(self) -> Iterator[Chunk]:
        """Yield all chunks. Each is made while the previous one is sent; row owners read their tables before they send
        anything."""
        start = time.perf_counter()
        if self._spec.data.form == ROWS:
            yield from self.chunks()
        else:
            for chunk in _one_ahead(self.chunks()):
                yield chunk
                self.show()
        self._found.seconds["upload"] = time.perf_counter() - start - self._found.seconds["arrange"]

    def chunks(self) -> Iterator[Chunk]:
        """Yield all chunks in the order of the tables. Errors that can be found before the first chunk are raised
        then."""
        start = time.perf_counter()
        data = self._spec.data
        made = [
            contribution(data, number, source, lambda: self._key, partial(self._note, number, source.label))
            for number, source in enumerate(self._sources)
        ]
        self._found.seconds["arrange"] = time.perf_counter() - start
        for number, chunks in enumerate(made):
            for chunk in chunks:
                self._found.sent[number] += chunk.size if chunk.rows else 0
                yield chunk

    def _note(self, number: int, label: str, done: int, total: int | None) -> None:
        part, data = done / total if total else 0.0, self._spec.data
        self._told = (
            f"owners, {label}: {counted(done, 'column' if data.is_wide else 'row')}",
            (number + part) / len(self._sources),
        )
        if data.form == ROWS:  # reading takes most of the time, and nothing is sent before it ends
            self.show()

    def show(self) -> None:
        """Report the progress of the owners. Called from the thread of the caller."""
        self._job.progress(*self._told)


def _one_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the same items, each made in a thread while the caller uses the previous one."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item
