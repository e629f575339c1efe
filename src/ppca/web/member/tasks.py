"""Background tasks of a member and their progress: at most one at a time for each job."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from ...jobs.checks import SpecError
from ...owner.errors import BadValue, OwnerError
from ...runtime import ProgramError

REMEDIES = {
    "columns": "the job names the columns it needs",
    "decimal": "choose the decimal comma in the form",
    "encoding": "name another encoding in the form, as latin-1 or utf-16",
    "na_values": "name these texts in the form as values that count as missing",
    "thousands": "name the thousands separator in the form",
    "id": "name the column of the ids in the form",
}
"""Hints on fields of the form for errors about an owner's data."""

Told = Callable[[str, float | None], None]
Body = Callable[[Told], str]


@dataclass
class MemberTask:
    """what: approve, refuse, contribute or fetch. said: what came of it. fault: why nothing came of it."""

    what: str
    text: str = ""
    fraction: float | None = None
    said: str = ""
    fault: str = ""

    @property
    def under_way(self) -> bool:
        return not (self.said or self.fault)


class MemberTasks:
    """changed: called, in any thread, when there is something new to show."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._tasks: dict[str, MemberTask] = {}

    def of(self, job: str) -> MemberTask | None:
        return self._tasks.get(job)

    def start(self, job: str, what: str, body: Body) -> threading.Thread | None:
        """Do it in a thread of its own; None if something else is being done for this job."""
        with self._lock:
            before = self._tasks.get(job)
            if before is not None and before.under_way:
                return None
            task = self._tasks[job] = MemberTask(what)
        thread = threading.Thread(target=self._run, args=(task, body), name=f"{what} {job[:12]}", daemon=True)
        thread.start()
        return thread

    def _run(self, task: MemberTask, body: Body) -> None:
        def told(text: str, fraction: float | None) -> None:
            task.text, task.fraction = text, fraction
            self._changed()

        try:
            task.said = body(told)
        except (ValueError, OSError, ProgramError) as error:
            task.fault = in_words(error)
        except Exception as error:
            task.fault = f"this should not happen: {type(error).__name__}; the terminal of ppca ui says more."
            raise
        finally:
            self._changed()


def in_words(error: Exception) -> str:
    """Return the message with fields of the form instead of parameters."""
    if isinstance(error, SpecError):
        return f"{error.field.rpartition('.')[2]} {error.value}: {error.cause}."
    found = [REMEDIES[name] for name in getattr(error, "options", ()) if name in REMEDIES]
    if not isinstance(error, OwnerError | BadValue) or not found:
        return str(error)
    return f"{error} Here, {'; '.join(found)}."
