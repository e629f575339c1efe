"""Run a job on servers that run programs: upload rows in chunks, then run the program of the form of data."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ..jobs import spec
from ..jobs.chunks import Chunk
from ..jobs.loading import as_data
from ..jobs.pools import Workers
from ..jobs.spec import JobSpec
from ..protocol import InputPacket
from .outcome import Account, Outcome
from .servers import Progress

PROGRAMS = {
    spec.ROWS: "ppca.jobs.rows:fit",
    spec.COLUMNS: "ppca.jobs.columns:fit",
    spec.WIDE_ROWS: "ppca.jobs.wide_rows:fit",
    spec.WIDE_COLUMNS: "ppca.jobs.wide_columns:fit",
    spec.NEW_ROWS: "ppca.jobs.inference:infer",
    spec.NEW_COLUMNS: "ppca.jobs.inference:infer",
    spec.COORDINATES: "ppca.jobs.inference:infer",
}
"""Program of each form of data, by name, so that clients do not import the programs."""

UPLOAD, FORGET = "ppca.jobs.uploads:upload", "ppca.jobs.uploads:forget"


@runtime_checkable
class RunsPrograms(Protocol):
    """Servers that run programs by name."""

    @property
    def running(self) -> bool: ...

    def run(
        self,
        program: Any,
        inputs: Sequence[list[InputPacket]],
        public: Mapping[str, Any],
        progress: Progress | None = None,
    ) -> Outcome: ...


def public_of(job: JobSpec, table: str, workers: Workers = 0) -> dict[str, Any]:
    """Return the public parameters of the program of a job. table: name of the table with the uploaded rows."""
    public: dict[str, Any] = {"job": as_data(job)}
    if job.data.form != spec.ROWS:
        public["table"] = table
    if job.data.form == spec.COLUMNS and workers:
        public["workers"] = workers
    return public


def run_job(
    servers: RunsPrograms,
    job: JobSpec,
    chunks: Iterable[Chunk],
    progress: Progress | None = None,
    workers: Workers = 0,
) -> Outcome:
    """Run a job; return its outcome with the account of the uploads. If it fails or is refused, its rows are
    forgotten."""
    table = secrets.token_hex(8)
    accounts: list[Account] = []
    inputs: list[list[InputPacket]] = []
    uploaded = False

    def told(text: str, fraction: float | None, rounds: int) -> None:
        if progress is not None:
            progress(text, fraction, rounds + sum(account.rounds for account in accounts))

    try:
        for chunk in chunks:
            if not chunk.rows:
                inputs += chunk.packets
                continue
            order = None if chunk.order is None else chunk.order.hex()
            about = {"table": table, "owner": chunk.table, "tags": chunk.tags, "order": order}
            uploaded = True
            accounts.append(servers.run(UPLOAD, chunk.packets, about, told).account)
        outcome = servers.run(PROGRAMS[job.data.form], inputs, public_of(job, table, workers), told)
        accounts.append(outcome.account)
        refused = isinstance(outcome.parts[0], dict) and "refused" in outcome.parts[0]
    except Exception:
        if uploaded and servers.running:  # otherwise the table has disappeared with the servers
            servers.run(FORGET, [], {"table": table})
        raise
    if uploaded and refused:
        servers.run(FORGET, [], {"table": table})
    return Outcome(outcome.parts, Account.total(accounts))
