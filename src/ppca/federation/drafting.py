"""New files: job.toml and server.toml with comments, from what is asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..algorithms.solvers import AUTO, chosen
from . import toml
from .build import build
from .disclosure import to_receiver, to_servers
from .job import JobDescription
from .jobfile import COLUMNS, INFER, ROW_SHARE, ROWS, WIDE_COLUMNS, WIDE_ROWS, JobFile, after
from .roster import Roster
from .serverfile import ServerFile

HEAD = """\
# A job of the federation {federation}. Its exact bytes are what owners approve and servers run: after a change it is another job.
"""
LISTS = """\
# Everything that leaves the sharing, to the servers and to each receiver. Servers refuse to open anything else.
"""


@dataclass(frozen=True)
class Lifetime:
    """How long a job lasts. expires: a time, or a span from now on."""

    expires: str | datetime = "7d"
    erase_after: str = "7d"

    def end(self) -> datetime:
        if isinstance(self.expires, datetime):
            return self.expires
        return after(datetime.now(UTC).replace(microsecond=0), self.expires)


WEEK = Lifetime()


def iterations_for(width: int) -> int:
    """Iterations of allpairs that are enough for all matrices that were tried; too few are found by verification."""
    return 12 + 3 * math.ceil(math.log2(max(2, width)))


def draft_fit(
    roster: Roster,
    name: str,
    owners: Sequence[str],
    columns: Sequence[str] | Mapping[str, Sequence[str]],
    receivers: Mapping[str, Sequence[str]],
    *,
    fit: Mapping[str, Any] | None = None,
    align: Mapping[str, Any] | None = None,
    keep: Mapping[str, Any] | None = None,
    tables: Sequence[int] | None = None,
    wide: bool = False,
    rows_at_least: int | None = None,
    lasts: Lifetime = WEEK,
) -> JobDescription:
    """Draft a job that fits a model: of column owners, if columns are given by owner.

    fit: the parameters. With fixed_iterations = None allpairs runs until it has converged; if it is left out, a number that
    follows from the columns. wide: there are fewer rows than columns.
    """
    by_columns = isinstance(columns, Mapping)
    width = sum(map(len, columns.values())) if isinstance(columns, Mapping) else len(columns)
    parameters = dict(fit or {})
    solver = chosen(parameters.get("solver", AUTO), width, parameters.get("components"))
    if solver == "allpairs":
        parameters.setdefault("fixed_iterations", iterations_for(width))
    fields: dict[str, Any] = {
        "program": (WIDE_COLUMNS if wide else COLUMNS) if by_columns else (WIDE_ROWS if wide else ROWS),
        "owners": list(owners),
        "columns": {k: list(v) for k, v in columns.items()} if isinstance(columns, Mapping) else list(columns),
        "tables": None if tables is None else list(tables),
        "rows_at_least": rows_at_least,
        "receivers": {k: list(v) for k, v in receivers.items()},
        "fit": {key: value for key, value in parameters.items() if value is not None},
        "align": _alignment(align or {}, len(owners), wide) if by_columns else None,
        "keep": None if keep is None else dict(keep),
    }
    return _draft(roster, name, fields, lasts)


def _alignment(align: Mapping[str, Any], owners: int, wide: bool) -> dict[str, Any]:
    """The table [align]; several owners of a table that is not wide have their columns checked if nothing else is said."""
    limit = align.get("row_share_at_most", ROW_SHARE)
    checks = owners > 1 and not wide and limit < 1
    found = {key: value for key, value in align.items() if key != "row_share_at_most"}
    return found | ({"row_share_at_most": limit} if checks else {})


def draft_infer(
    roster: Roster,
    name: str,
    owners: Sequence[str],
    receiver: str,
    infer: Mapping[str, Any],
    columns: Sequence[str] | Mapping[str, Sequence[str]],
    *,
    align: Mapping[str, Any] | None = None,
    rows_at_least: int | None = None,
    lasts: Lifetime = WEEK,
) -> JobDescription:
    """A job that uses a kept model on new rows."""
    by_columns = isinstance(columns, Mapping)
    fields: dict[str, Any] = {
        "program": INFER,
        "owners": list(owners),
        "columns": {k: list(v) for k, v in columns.items()} if isinstance(columns, Mapping) else list(columns),
        "rows_at_least": rows_at_least,
        "receivers": {receiver: []},
        "infer": {**infer, "model_columns": "columns" if by_columns else "rows"},
        "align": dict(align or {}) if by_columns else None,
    }
    return _draft(roster, name, fields, lasts)


def _draft(roster: Roster, name: str, fields: dict[str, Any], lasts: Lifetime) -> JobDescription:
    whole = {
        "name": name,
        "federation": roster.digest,
        "build": build(),
        **{key: value for key, value in fields.items() if value is not None},
        "expires": lasts.end(),
        "erase_after": lasts.erase_after,
        "opens": [],
        "reveals": {},
    }
    file = toml.validated(JobFile, whole, "the job")
    whole["opens"] = [line.what for line in to_servers(file)]
    whole["reveals"] = {receiver: [line.what for line in to_receiver(file, receiver)] for receiver in file.receivers}
    return JobDescription(_rendered(roster, whole))


def _rendered(roster: Roster, whole: dict[str, Any]) -> bytes:
    tables = [key for key, value in whole.items() if isinstance(value, dict)]
    plain = {key: value for key, value in whole.items() if key not in tables and key != "opens"}
    text = [HEAD.format(federation=roster.name), toml.lines(plain), LISTS + toml.lines({"opens": whole["opens"]})]
    text += [f"[{key}]\n" + toml.lines(whole[key]) for key in tables]
    return "\n".join(text).encode()


def draft_server(file: ServerFile) -> bytes:
    """server.toml with all settings, so that an operator sees what there is to set."""
    parts = [
        "# One seat of a federation. Paths are seen from this file. Restart the server after a change here;\n"
        "# a new revision of the federation's file is taken over without.\n",
        toml.lines({"seat": file.seat, "federation": file.federation, "identity": file.identity}),
        "[listen]\n# api: members and seats; mesh: the other seats while a job runs; local: this machine only.\n"
        + toml.lines(file.listen.model_dump()),
        "[store]\n# keys: destroying a key erases its job. Leave that folder out of backups. keep: records of old jobs.\n"
        + toml.lines(file.store.model_dump()),
        "[policy]\n# What is computed here, for whom. owners_at_least (fits): with two, each learns the other's sums.\n"
        "# rows_at_least (not set): fits and uses of models must have this many rows; of row owners checked on shares.\n"
        + toml.lines(file.policy.model_dump()),
        "[work]\n# threads of a job (0: the cores of this machine, shared by its seats and the jobs at once);\n"
        "# seconds that a round, finding all peers, and a whole attempt may take.\n"
        + toml.lines(file.work.model_dump()),
    ]
    return "\n".join(parts).encode()
