"""The client's side of a vertical fit: scaling, upload of every owner's columns, alignment, and the joint analysis."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..algorithms.gram import GRID, LONGEST_PIECE, ROWS, SMALL, Blocks, local_product
from ..jobs import columns, workers
from ..jobs.matching import MatchError
from ..native import kernels, ring
from ..owner import encoding
from ..owner.alignment.arrangement import Alignment, Arranged, arrange
from ..owner.alignment.tags import Words
from ..owner.columns import ColumnTable
from ..owner.errors import OwnerError
from ..protocol import InputPacket, share, share_ring
from ..servers import Account, LocalServers, ServersFailed
from ..servers.outcome import combined

LARGEST = 2.0**500
"""Magnitudes whose squares, and their sums over any number of rows, are doubles."""

UPLOAD_NUMBERS = 1 << 19
"""Numbers that travel in one run of an upload: 4 MB a split in the 64-bit ring."""

Floats = NDArray[np.float64]
Progress = Callable[[str, float | None, int], None]
T = TypeVar("T")


@dataclass
class Piece:
    """Some rows of an owner on their way: shares, and their tags (psi)."""

    owner: int
    label: str
    rows: int
    packets: list[InputPacket]
    tags: Words | None


@dataclass
class Uploaded:
    """A job's rows on the servers, under a name. `bytes`: what left each owner; `reports`: the account of all runs so far."""

    servers: LocalServers
    progress: Progress | None
    table: str = field(default_factory=lambda: secrets.token_hex(8))
    bytes: dict[int, int] = field(default_factory=dict)
    reports: list[Account] = field(default_factory=list)

    def run(self, program: Any, *packets: list[InputPacket], **public: Any) -> Any:
        """One program of the job; its account is kept."""
        result = self.servers.run(program, *packets, progress=self.progress, **public)
        assert self.servers.report is not None
        self.reports.append(self.servers.report)
        return result

    def send(self, pieces: Iterable[Piece], total: int) -> None:
        """Uploads pieces as they are made; the next one is made while one travels."""
        done = 0
        for piece in _one_ahead(iter(pieces)):
            sent = sum(len(packet.row) + len(packet.column) for packet in piece.packets)
            sent += 0 if piece.tags is None else 4 * piece.tags.nbytes
            self.run(columns.upload, piece.packets, table=self.table, owner=piece.owner, tags=piece.tags)
            self.bytes[piece.owner] = self.bytes.get(piece.owner, 0) + sent
            done += piece.rows
            if self.progress is not None:
                self.progress(f"upload, {piece.label}", done / total, 0)

    def align(self, minimum: int, tell: bool = False) -> dict[str, Any]:
        """The number of common rows (and, if asked for, their tags); raises `MatchError` if the job cannot go on."""
        answer: dict[str, Any] = self.run(columns.align, table=self.table, minimum=minimum, tell=tell)
        if "refused" in answer:
            raise MatchError(answer["refused"])
        return answer

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Servers forget the rows if the job ends early, and keep everything else."""
        try:
            yield
        except ServersFailed:  # the servers have ended, and the rows with them
            raise
        except Exception:
            if self.reports:
                self.servers.run(columns.forget, table=self.table)
            raise


def _one_ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items; each is made in a thread while the caller works with the one before."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


@dataclass
class Centred:
    """An owner's rows and what it subtracts from its columns before it shares them: the mean of its own rows.

    That keeps all digits of columns whose mean is far from zero; the offset itself is shared too, and added to the joint means.
    """

    rows: Arranged
    offset: Floats
    largest: Floats
    """Largest magnitude of each column as it is."""
    spread: Floats
    """Largest magnitude after the offset was subtracted."""
    own: Words
    """Sums of products of the owner's own columns: packed, 128 bits, in units of the grid squared; filled as rows are shared."""

    @classmethod
    def of(cls, rows: Arranged) -> Centred:
        values = rows.values
        low, high = values.min(axis=0), values.max(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            offset = np.where(low == high, low, values.mean(axis=0))
            spread = np.maximum(high - offset, offset - low)
        largest = np.maximum(np.abs(low), np.abs(high))
        if not np.all(largest < LARGEST):
            raise OwnerError(f"{rows.table.label}: values are too large to be squared; scale the columns first.")
        width = values.shape[1]
        return cls(rows, offset, largest, spread, ring.zeros((width * (width + 1) // 2,), 2))

    @property
    def label(self) -> str:
        return self.rows.table.label

    @property
    def width(self) -> int:
        return len(self.offset)

    def pieces(self, owner: int, scale: NDArray[np.int64], own: bool) -> Iterator[Piece]:
        """Shares of the rows on the grid of 2^-24, in pieces."""
        shrink = np.ldexp(1.0, -scale)
        step = max(1, UPLOAD_NUMBERS // self.width)
        for start in range(0, len(self.rows.values), step):
            part = (self.rows.values[start : start + step] - self.offset) * shrink
            encoded, bad = ring.encode(part, GRID, 1)
            if bad >= 0:
                raise OwnerError(f"{self.label}: a value is beyond the scale of its column.")
            if own:
                self._add_own(encoded[..., 0])
            tags = None if self.rows.tags is None else self.rows.tags[start : start + step]
            yield Piece(owner, self.label, len(part), share_ring(encoded, ROWS), tags)

    def share_offset(self, scale: NDArray[np.int64]) -> list[InputPacket]:
        """What was subtracted, in the scale of the columns."""
        return share(self.offset * np.ldexp(1.0, -scale), columns.OFFSETS, f"offset of {self.label}")

    def grid_scale(self, scale: NDArray[np.int64]) -> NDArray[np.int64]:
        """Exponents of the columns as they are shared: their own, as far as a common scale leaves room for them."""
        return np.clip(encoding.exponents(self.spread, True), scale - SMALL, scale)

    def share_powers(self, scale: NDArray[np.int64]) -> list[InputPacket]:
        """By how much the scale of each column is below the common one: secret."""
        return share(1 << (self.grid_scale(scale) - scale + SMALL), columns.POWERS, f"powers of {self.label}")

    def share_own(self) -> list[InputPacket]:
        """The sums of products of the owner's own columns, of the rows as they were sent."""
        return share_ring(self.own, columns.OWN)

    def _add_own(self, grid: Words) -> None:
        """Adds the products of some rows, exactly: 64 bits hold those of a piece, 128 their sum."""
        for start in range(0, len(grid), LONGEST_PIECE):
            piece = grid[start : start + LONGEST_PIECE]
            narrow = local_product(piece, piece, Blocks((0, self.width), own=True))
            wide = ring.empty((len(narrow),), 2)
            kernels.extend(wide, narrow, True)
            self.own = ring.add(self.own, wide)


@dataclass
class ColumnFit:
    """What came out of a vertical fit, and the account of it: `bytes_sent` by owner, `seconds` by step of the client."""

    result: dict[str, Any]
    report: Account
    scale: NDArray[np.int64]
    bytes_sent: list[int]
    seconds: dict[str, float]


class _Clock:
    """Seconds by step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def done(self, step: str) -> None:
        now = time.perf_counter()
        self.seconds[step], self._last = now - self._last, now


def fit_columns(
    servers: LocalServers,
    tables: Sequence[ColumnTable],
    alignment: Alignment,
    *,
    bounds: Any,
    choices: dict[str, Any],
    check_rows: Callable[[int, int], None],
    pieces: int | None = None,
    executor: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> ColumnFit:
    """The whole job: owners arrange and share their rows, servers align and analyse them."""
    workers.check_executor(executor)
    if len(tables) < 2:
        raise ValueError("partition='columns' needs at least two owners; one owner of all columns needs no servers")
    if pieces is not None and pieces < 1:
        raise ValueError(f"pieces={pieces} must be at least 1")
    own = alignment.owners_know_rows
    clock = _Clock()
    owners = [Centred.of(rows) for rows in arrange(tables, alignment)]
    clock.done("arrange")
    width = sum(owner.width for owner in owners)
    if not isinstance(bounds, str):
        check_bounds(owners, bounds)
    elif bounds != "auto":
        raise ValueError(f"bounds={bounds!r}: use 'auto', a number, or one number per column")
    job = Uploaded(servers, progress)
    with job.kept():
        scale = scales(job, owners, bounds, choices["standardize"])
        clock.done("survey")
        parts = np.split(scale, np.cumsum([owner.width for owner in owners])[:-1])
        pairs = list(zip(owners, parts, strict=True))
        common = not choices["standardize"]
        grids = [owner.grid_scale(part) if common else part for owner, part in pairs]
        made = (
            piece
            for number, (owner, grid) in enumerate(zip(owners, grids, strict=True))
            for piece in owner.pieces(number, grid, own)
        )
        job.send(made, sum(len(owner.rows.values) for owner in owners))
        clock.done("upload")
        rows = job.align(alignment.minimum)["rows"]
        clock.done("align")
        check_rows(rows, width)
        packets = [owner.share_offset(part) for owner, part in pairs]
        packets += [owner.share_powers(part) for owner, part in pairs] if common else []
        packets += [owner.share_own() for owner in owners] if own else []
        result = job.run(
            columns.fit,
            *packets,
            table=job.table,
            widths=[owner.width for owner in owners],
            rows=rows,
            pieces=pieces,
            own=own,
            executor=executor,
            choices=choices,
        )
    clock.done("analysis")
    report = combined(job.reports)
    if isinstance(bounds, str) and choices["standardize"]:
        told = {"what": "scale exponents", "shape": [width], "to": "client", "why": "units of the owners' columns"}
        report.audit.append({"number": len(report.audit) + 1, **told})
    return ColumnFit(result, report, scale, [job.bytes[number] for number in range(len(owners))], clock.seconds)


def scales(job: Uploaded, owners: Sequence[Centred], bounds: Any, per_column: bool) -> NDArray[np.int64]:
    """Scale exponents of all columns after their offsets are subtracted.

    From declared bounds; or of each column its own, told to the receiver only (standardised: servers need no common scale);
    or the largest of all, opened by the servers.
    """
    width = sum(owner.width for owner in owners)
    if not isinstance(bounds, str):
        return encoding.declared_scale(bounds, width, per_column) + 1  # |x - mean| may be twice the bound on |x|
    own = [encoding.exponents(owner.spread, True) for owner in owners]
    if per_column:
        found = np.concatenate(own)
        return np.where(found <= encoding.NO_EXPONENT, 0, found)
    packets = [share(part.max(keepdims=True), encoding.EXPONENT, "exponent") for part in own]
    return encoding.joint_scale([job.run(columns.largest_exponent, *packets)], width)


def check_bounds(owners: Sequence[Centred], bounds: Any) -> None:
    """Refuses values beyond their declared bounds, before anything is sent."""
    width = sum(owner.width for owner in owners)
    if np.ndim(bounds) and np.size(bounds) != width:
        raise ValueError(f"bounds has {np.size(bounds)} numbers for {width} columns; give one for each")
    limits = np.ldexp(1.0, encoding.declared_scale(bounds, width, True))
    start = 0
    for owner in owners:
        beyond = np.flatnonzero(owner.largest > limits[start : start + owner.width])
        if beyond.size:
            at = int(beyond[0])
            names = owner.rows.table.names
            name = names[at] if names else f"column {at + 1}"
            raise OwnerError(f"{owner.label}: {name} reaches {owner.largest[at]:g}, beyond its declared bound")
        start += owner.width
