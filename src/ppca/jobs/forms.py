"""A job on one server: chunks of the owners become a shared table, by the form of the data, and the analysis runs on
it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from ..protocol import Party
from ..protocol.party import DIGEST_BYTES
from . import columns, new_rows, rows, wide_columns, wide_rows
from .errors import NoResult
from .loading import as_data
from .spec import COLUMNS, COORDINATES, NEW_COLUMNS, NEW_ROWS, ROWS, WIDE_COLUMNS, WIDE_ROWS, JobSpec
from .uploads import JobUploads

_ENTER: dict[str, Callable[[Party, JobSpec, JobUploads], Awaitable[Any]]] = {
    ROWS: rows.enter,
    COLUMNS: columns.enter,
    WIDE_ROWS: wide_rows.enter,
    WIDE_COLUMNS: wide_columns.enter,
    NEW_ROWS: new_rows.enter,
    NEW_COLUMNS: new_rows.enter,
    COORDINATES: new_rows.enter,
}


async def compute(party: Party, job: JobSpec, uploads: JobUploads) -> dict[str, Any]:
    """Run a job on what its owners have sent; return the answer, in which revealed values are sealed.

    fit: the name of the run whose shares the result is made of, see `kept.keep`. What was uploaded is closed at the
    end.
    """
    try:
        table = await _ENTER[job.data.form](party, job, uploads)
        run = party.run
        return {"fit": run, **await job.analysis.run(party, table, job)}
    except NoResult as refusal:
        return refusal.answer
    finally:
        uploads.close()


def digest_of(job: JobSpec, uploads: JobUploads) -> bytes:
    """Return a digest of a job and of the shapes of what its owners have sent. Four servers compute only if all have
    the same."""
    text = json.dumps([as_data(job), uploads.shapes], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES, person=b"ppca job").digest()
