"""Compare an owner's contribution with the job, which determines number, shapes and types of its packets.

An owner sends messages of two kinds. "rows" brings some rows of one of its tables (columns, if there are more columns
than rows). "packets" brings the other inputs: those of a table in one message, after its rows. A job that uses a kept
model has none. The first message of all is "blind" (see `envelopes`). `checked` refuses everything else by the owner's
name, before a server uses any of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms import gram_matrix, joint_covariance, scales, second_moments, wide_table
from ..jobs.checks import is_digest
from ..jobs.input_types import INVERSE, OWN, row_type
from ..jobs.matching import ascending
from ..jobs.openings import ROWS_TOGETHER
from ..jobs.spec import ALIGNED, PSI, Data
from ..protocol import InputPacket, InputRefused, RingType
from ..protocol.inputs import summands
from ..runtime.control import Message
from .envelopes import BLIND
from .errors import ObjectRefused

Input = tuple[tuple[int, ...], RingType]
"""Shape and type of one packet."""


def checked(data: Data, owner: str, server: int, messages: Iterator[Message]) -> Iterator[Message]:
    """Yield an owner's messages for a server; raise ObjectRefused at the first message that does not fit the job."""
    check = _Check(data, owner, server)
    for kind, fields in messages:
        check.take(kind, fields)
        yield kind, fields
        del fields  # before the next message is read
    check.end()


class _Check:
    """Compare one owner's messages with the job as they arrive."""

    def __init__(self, data: Data, owner: str, server: int) -> None:
        self.data = data
        self.owner = owner
        self.server = server
        self.widths = data.widths_of(owner)
        self.sends_rows = data.by_columns or data.is_wide or data.uses_model
        self.rows = [0] * len(self.widths)
        """Number of rows of every table so far; of columns, if columns are sent one below the other."""
        self.lengths: list[int | None] = [None] * len(self.widths)
        """Length of the columns of every table, if columns are sent."""
        self.last_tags: list[NDArray[np.uint64] | None] = [None] * len(self.widths)
        """Last tag of every table so far: tags ascend from message to message."""
        self.blinded = False
        """True once the first message has arrived."""
        self.inputs = 0
        """Number of messages with inputs so far: one for each table, in the order of the tables."""

    def take(self, kind: str, fields: dict[str, Any]) -> None:
        packets: list[InputPacket] = fields["packets"]
        for packet in packets:
            try:
                summands(packet, *divmod(self.server, 2))
            except InputRefused as error:
                self._refuse(str(error))
        if not self.blinded or kind == "blind":
            self._blind(kind, fields)
            return
        known = {"packets", "part"} | ({"tags", "order"} if kind == "rows" else set())
        if more := sorted(set(fields) - known):
            self._refuse(f"a message {kind!r} has the unknown fields {', '.join(more)[:200]}")
        if kind == "rows" and not self.sends_rows:
            self._refuse("it sends rows; owners of this job send sums")
        table = self._table(fields.get("part"))
        if table < self.inputs:
            self._refuse("a message follows after the last one of the last table")
        if kind == "rows":
            self._rows(packets, fields, table)
        else:
            self._inputs(packets, table)

    def _blind(self, kind: str, fields: dict[str, Any]) -> None:
        """Check that the random elements come first, once, with nothing else."""
        fits = [(packet.shape, packet.dtype) for packet in fields["packets"]] == [BLIND] and set(fields) == {"packets"}
        if kind != "blind" or self.blinded or not fits:
            self._refuse("its first message must be the random elements that blind its digests, and only the first")
        self.blinded = True

    def end(self) -> None:
        """Check, after the last message, that nothing is missing."""
        if self.sends_rows and not all(self.rows):
            self._refuse("it sends no rows" if not any(self.rows) else "one of its tables is empty")
        namespace = None if self.data.align is None else self.data.align.namespace
        if self.data.is_wide and self.rows != self.widths:
            self._refuse(f"it sends {self.rows} columns; its tables have {self.widths}")
        if namespace is not None and set(self.lengths if self.data.is_wide else self.rows) != {namespace}:
            self._refuse(f"its tables do not have one row for each of the {namespace:,} ids of the namespace")
        if self.inputs < len(self.widths) and not self.data.uses_model:
            self._refuse("its sums are missing")

    def _rows(self, packets: list[InputPacket], fields: dict[str, Any], table: int) -> None:
        if len(packets) != 1:
            self._refuse(f"a message with rows has {len(packets)} packets; it has one")
        (packet,) = packets
        found, width = packet.shape, self.widths[table]
        if self.data.is_wide:
            length = self.lengths[table] or (found[1] if len(found) == 2 else 0)
            fits = found == (found[0], length) and length > 0 and 0 < found[0] <= width - self.rows[table]
            fits &= self.data.by_columns or length % ROWS_TOGETHER == 0
            expected, kind = f"(columns, {length or 'rows'})", wide_table.ENTRIES
            self.lengths[table], tagged = length, length if self.rows[table] == 0 else 0
        else:
            fits = len(found) == 2 and found[0] > 0 and found[1] == width
            expected, tagged = f"(rows, {width})", found[0] if found else 0
            kind = second_moments.ROWS if not self.data.uses_model else row_type(self.data.standardize)
        if not fits or packet.dtype != kind:
            self._refuse(
                f"rows of shape {found} and type {packet.dtype}; shape {expected} and type {kind} were expected"
            )
        self._tags(fields.get("tags"), tagged, table)
        self._order(fields.get("order"), first=self.rows[table] == 0)
        self.rows[table] += found[0]

    def _table(self, part: Any) -> int:
        """Return the table of a message. The field `part` is allowed only if the job says that the owner acts for
        several tables."""
        if self.data.tables is None:
            if part is not None:
                self._refuse("it names a table (`part`); the job does not say that it acts for several tables")
            return 0
        if type(part) is not int or not 0 <= part < len(self.widths):
            self._refuse(f"it names table {part!r}; it has tables 0 to {len(self.widths) - 1}")
        return int(part)

    def _tags(self, tags: Any, rows: int, table: int) -> None:
        wanted = self.data.align is not None and self.data.align.alignment == PSI and rows > 0
        fits = isinstance(tags, np.ndarray) and tags.dtype == np.uint64 and tags.shape == (rows, 2)
        if wanted and not fits:
            self._refuse(f"tags of {rows:,} rows were expected, two words each")
        if not wanted and tags is not None:
            self._refuse("it sends tags; this job does not match rows by tags")
        if wanted:
            before = self.last_tags[table]
            if not ascending(tags) or not (before is None or ascending(np.stack([before, tags[0]]))):
                self._refuse("its tags are not sorted or not distinct")
            self.last_tags[table] = tags[-1].copy()  # not a view, which would keep the message

    def _order(self, order: Any, *, first: bool) -> None:
        """Check the keyed digest of an owner's ids in order, which comes with its first rows, if it has ids."""
        aligned = self.data.align is not None and self.data.align.alignment == ALIGNED
        if order is not None and not (aligned and first and is_digest(order)):
            self._refuse("it sends a digest of the order of its ids where none is expected, or not a digest")

    def _inputs(self, packets: list[InputPacket], table: int) -> None:
        found = [(packet.shape, packet.dtype) for packet in packets]
        if self.data.uses_model:
            self._refuse(f"a job that uses a kept model has rows only; it sends {_text(found)}")
        if table > self.inputs:
            self._refuse("the inputs of its tables are not in the order of the tables")
        self.inputs += 1
        expected = self._of_table(table)
        if found != expected:
            self._refuse(f"{len(expected)} inputs were expected, {_text(expected)}; it sends {_text(found)}")

    def _of_table(self, table: int) -> list[Input]:
        """Return shapes and types of the inputs of one table, in order.

        See `OwnerMoments`, `OwnerMomentsMissing` and `WideOwnerMoments`, and the programs `columns.fit` and
        `wide_columns.fit`.
        """
        data, w = self.data, self.widths[table]
        numbers: list[Input] = [((w,), scales.EXPONENT), ((w,), scales.MANTISSA), ((w,), scales.UPPER_HALF)]
        unit: Input = ((w if data.standardize else 1,), scales.EXPONENT)
        count: list[Input] = [((1,), joint_covariance.COUNT), ((1,), joint_covariance.ROOT)]
        if not self.sends_rows:
            missing = data.missing == "mean"
            entries = w * (2 * w + 1) if missing else w * (w + 1) // 2 + w
            counts: Input = ((w,), joint_covariance.COUNT) if missing else count[1]
            return [count[0], counts, *numbers, ((w,), scales.EXPONENT), ((entries,), joint_covariance.ROOT)]
        if not data.by_columns:
            return [*count, *numbers, unit, *([((w,), joint_covariance.ROOT)] if data.standardize else [])]
        if not data.is_wide:
            own: list[Input] = [((w * (w + 1) // 2,), OWN)] if data.owners_multiply else []
            return [((w,), scales.EXPONENT), *numbers, *own]
        if not data.owners_multiply:
            return [*numbers, unit]
        rows = self.lengths[table] or 0
        products: Input = ((rows * (rows + 1) // 2,), gram_matrix.SUMS)
        return [*numbers, unit, products, *([((w,), INVERSE)] if data.standardize else [])]

    def _refuse(self, why: str) -> None:
        raise ObjectRefused(f"the contribution of {self.owner} does not fit the job: {why}")


def _text(inputs: list[Input]) -> str:
    """Return shapes and types for an error message, the first few only."""
    shown = ", ".join(f"{shape} {dtype}" for shape, dtype in inputs[:8])
    return f"{shown}, ... ({len(inputs)} in all)" if len(inputs) > 8 else shown or "none"
