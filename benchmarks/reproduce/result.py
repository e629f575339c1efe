"""Input and output of a part of the evaluation: options in; tables, figures and their conditions out."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from benchmarks.data_sets import Folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale = Literal["full", "quick", "tiny"]
T = TypeVar("T")


@dataclass(frozen=True)
class Options:
    """Options of a part.

    data: folder of the data sets' files, None if the user named none. output: folder for JSON, Markdown and figures.
    scale: full, what the evaluation page shows; quick, all parts together within a quarter of an hour; tiny, for the
    tests, shows that it runs and measures nothing. solver: of jobs that need the largest components only. spu: virtual
    environment of the peer SPU. mp_spdz, mp_spdz_plain: built trees of the peer MP-SPDZ, the second with -DINSECURE,
    which has plain channels. A peer that is not named is not measured, and the result says so.
    """

    output: Path
    data: Folder = None
    scale: Scale = "full"
    solver: str = "auto"
    spu: Path | None = None
    mp_spdz: Path | None = None
    mp_spdz_plain: Path | None = None
    say: Callable[[str], None] = lambda doing: None

    def pick(self, *, full: T, quick: T, tiny: T) -> T:
        """The size that goes with the scale."""
        return {"full": full, "quick": quick, "tiny": tiny}[self.scale]


@dataclass
class Table:
    """Rows as they are shown, and the records with all digits that they were made of.

    note: what a reader must know to read it, one paragraph of Markdown.
    """

    title: str
    columns: list[str]
    rows: list[list[str]]
    records: list[dict[str, Any]]
    note: str = ""

    @classmethod
    def of(
        cls,
        title: str,
        records: Sequence[Mapping[str, Any]],
        columns: Mapping[str, Callable[[Any], str]],
        note: str = "",
    ) -> Table:
        """A table of records: a column is a heading and how a record is shown there."""
        rows = [[show(record) for show in columns.values()] for record in records]
        return cls(title, list(columns), rows, [dict(record) for record in records], note)


@dataclass
class Plot:
    """A figure; its file is <part>-<name>.png. caption: what is to be seen, for readers that see it and that do not."""

    name: str
    caption: str
    figure: Figure


@dataclass
class Result:
    """One part of the evaluation. conditions: on what data, real or made, under which assumptions; a sentence each."""

    title: str
    conditions: list[str]
    tables: list[Table]
    plots: list[Plot] = field(default_factory=list)


def machine() -> dict[str, Any]:
    """Return the processor, the number of cores, the load by other processes and the commit that is measured."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "load": round(load(), 1),
        "commit": commit(),
    }


def load(seconds: float = 2.0, samples: int = 20) -> float:
    """Return the mean number of other processes that run or wait for a core, over the next seconds.

    Processes of the scheduling class SCHED_IDLE do not count: they run only while nothing else needs the core.
    """
    running = 0
    for _ in range(samples):
        time.sleep(seconds / samples)
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # the process has ended
                fields = path.read_text().rpartition(")")[2].split()
                running += (
                    path.parent.name != str(os.getpid()) and fields[0] == "R" and int(fields[38]) == os.SCHED_OTHER
                )
    return running / samples


def was_busy(machine: dict[str, Any]) -> bool:
    """Return whether other processes took a considerable part of the cores before a part began."""
    return float(machine["load"]) > int(machine["cores"]) / 2


def commit() -> str:
    """The version of this software, as git knows it; with a plus sign if files differ from it."""
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=9", "--dirty=+"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=60)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def cell(key: str, form: str = "{}") -> Callable[[Any], str]:
    """A column that shows one field of a record in this form; nothing if it is None."""

    def show(record: Mapping[str, Any]) -> str:
        return "" if record[key] is None else form.format(record[key])

    return show


def behind(ours: float, other: float, than: str) -> str:
    """Return what a cell says where we fall short: nothing if `ours` is at most `other`, else by how much and behind
    whom."""
    if not ours > other:
        return ""
    return f" (behind {than}: {ours / other:.3g}x)" if other > 0 else f" (behind {than})"
