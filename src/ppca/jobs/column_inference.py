"""Server programs: inference on uploaded rows whose columns belong to several owners (see `columns` for upload and alignment)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..protocol import Party, SecretArray, concatenate
from . import inference
from .columns import Uploads, forget

NUMBERS = 1 << 19
"""Numbers worked on at a time, however many rows there are."""


def _joint_rows(party: Party, table: str, rows: int, standardized: bool) -> Iterator[SecretArray]:
    """The common rows with all columns side by side, a batch at a time."""
    kind = inference.STANDARD if standardized else inference.RAW
    uploads = Uploads.of(party, table)
    width = sum(spool.width for spool in uploads.rows.values()) // kind.limbs
    count = max(1, -(-rows * width // NUMBERS))
    for done, words in enumerate(uploads.pieces(rows, count)):
        party.progress(f"joint rows, batch {done + 1} of {count}", done / count)
        yield SecretArray(party, words.reshape(2, -1, width, kind.limbs), kind)


async def transform(
    party: Party, *, table: str, rows: int, model: str, standardized: bool, receiver: str
) -> dict[str, Any]:
    """Coordinates of the common rows under a shared model; the rows are forgotten."""
    arrays, _ = inference.recall(party, model)
    with party.stage("transform"):
        parts = [(await inference.project(batch, arrays))[1] for batch in _joint_rows(party, table, rows, standardized)]
        await forget(party, table=table)
        return {"coordinates": concatenate(parts).reveal(receiver, what="coordinates", why="agreed result")}


async def add_scores(party: Party, *, table: str, rows: int, model: str, standardized: bool, scores: str) -> None:
    """Anomaly scores of the common rows, still shared, in the table `scores` (see `inference.detect`); the rows are forgotten."""
    for batch in _joint_rows(party, table, rows, standardized):
        await inference.add_scores(party, batch, model=model, table=scores)
    await forget(party, table=table)
