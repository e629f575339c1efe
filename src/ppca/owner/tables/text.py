"""Tables that are text: comma-, semicolon- or tab-separated, also compressed. Opened once for the schema, once for the
rows."""

from __future__ import annotations

import codecs
import copy
import gzip
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ..errors import BadColumns, UnreadableData
from .addresses import Place, source
from .arrow import ArrowTable
from .bad_cells import MAX_CODES, BadCells, not_numbers
from .columns import flat, is_numeric, view
from .options import DEFAULTS, ReadOptions
from .table import Table, listed, reading
from .text_head import delimiter_of, is_gzip, refuse_headerless, refuse_wide

UNNAMED = "unnamed"
NUMBER = r"^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$|^[+-]?(inf|infinity|nan)$"
"""Pattern of texts that Arrow parses as doubles."""

PUNCTUATION, ESCAPED = re.compile(r"([!-/:-@\[-`{-~])"), r"\\\1"
"""ASCII punctuation, and what stands for it in a regular expression of RE2."""

MIN_COUNTED = 10
"""Rows from which on a column of consecutive integers is taken for a row index."""

MAX_RAGGED = 20
"""Lines with another number of cells than the header that are collected before reading stops."""

CSV_BLOCK = 8 << 20
"""Bytes of text parsed at a time; a line must fit."""

RECENT: deque[Any] = deque(maxlen=64)
"""Parse options of the last readers with a handler of ragged lines, which is a Python function. A thread of Arrow can
be the last to release a reader. If that destroyed the handler while the interpreter exits, the process would be
aborted."""


class CsvTable(ArrowTable):
    """Comma-, semicolon- or tab-separated text with a header line, also gzip-compressed.

    Every chosen column is parsed as float64, except those that hold true / false in the first block. Columns that may
    hold integers beyond 2^53 (`large`) are read as text and parsed as the integers they are; with a separator of
    thousands, all are. Columns without a name are called by their position, "unnamed 1".
    """

    rows = None

    def __init__(self, label: str, path: Place, options: ReadOptions = DEFAULTS) -> None:
        self.path, self.options = path, options
        head = first_lines(label, path, options.encoding)
        self.delimiter = delimiter_of(label, path, head, options.decimal)
        refuse_wide(label, head.partition("\n")[0].count(self.delimiter) + 1)
        self.header: list[str] | None = None
        absent = [*pa.csv.ConvertOptions().null_values, *options.na_values]
        self.absent = f"^(?:{'|'.join(PUNCTUATION.sub(ESCAPED, value) for value in absent)})$"
        block = head.encode()
        with self._reader(
            label, pa.BufferReader(block), pa.csv.ReadOptions(block_size=len(block), use_threads=False)
        ) as reader:
            names = list(reader.schema.names)
            refuse_headerless(label, names)
            first = reader.read_all()
        plain = [name.strip() or f"{UNNAMED} {place}" for place, name in enumerate(names, start=1)]
        self.unnamed = [new for new, name in zip(plain, names, strict=True) if not name.strip()]
        if plain != names:
            names = self.header = plain
        self.kinds = [self._kind(column) for column in first.columns]
        columns = zip(names, first.columns, strict=True)
        self.counting = [name for name, column in columns if counts_rows(column)]
        self.large = {name for name, column in zip(names, first.columns, strict=True) if is_large(column)}
        fields = zip(names, self.kinds, strict=True)
        super().__init__(label, pa.schema([pa.field(name, parsed_as(kind)) for name, kind in fields]))

    def _kind(self, column: Any) -> Any:
        """The type of a column by its first values: numbers, booleans or text."""
        if not pa.types.is_string(column.type):
            return column.type
        return pa.float64() if parses(self._cleaned(column), pa.float64()) else column.type

    def check_types(self) -> None:
        """Read all as text if the first block holds text in a chosen column, and refuse all columns that do."""
        kinds = dict(zip(self.stored, self.kinds, strict=True))
        if not all(is_numeric(kinds[name]) for name in self.names):
            self._refuse_text()

    def choose(self, columns: Sequence[str] | None = None, id: str | None = None) -> Self:
        other = super().choose(columns, id)
        unnamed = [name for name in other.names if columns is None and name in self.unnamed]
        if unnamed:
            which = listed([f"column {name.removeprefix(UNNAMED).strip()}" for name in unnamed], str)
            if 2 * len(unnamed) >= len(self.stored):
                cause = "Is the first line a title? It must hold the names of the columns: remove the lines above them."
            elif unnamed == self.stored[-1:]:
                cause = (
                    "Is there a separator at the end of the lines? Leave the column out, or name it in the first line."
                )
            else:
                cause = "Is it a row index? Leave the column out, or name it in the first line."
            raise BadColumns(
                f"{self.label}: {which} {'has' if len(unnamed) == 1 else 'have'} no name. {cause}",
                options=("drop", "columns") if 2 * len(unnamed) < len(self.stored) else (),
                columns=unnamed,
            )
        other.notes = tuple(
            f"{self.label}: column {name!r} counts the rows; leave it out if it is an index"
            for name in other.names
            if name in self.counting
        )
        return other

    @contextmanager
    def _reader(
        self, label: str, file: Any, read: Any, types: dict[str, Any] | None = None, text: bool = False
    ) -> Iterator[Any]:
        """An open reader of CSV. types: columns to read, and how to parse them; None: all, by what they hold."""
        ragged: list[Any] = []

        def collect(row: Any) -> str:
            ragged.append(row)
            return "error" if len(ragged) > MAX_RAGGED else "skip"

        serial = not read.use_threads
        parse = pa.csv.ParseOptions(
            delimiter=self.delimiter,
            invalid_row_handler=collect if serial else None,
            newlines_in_values=self.header is not None and any("\n" in name for name in self.header),
        )
        if serial:
            RECENT.append(parse)
        convert = pa.csv.ConvertOptions(
            column_types=types,
            include_columns=None if types is None else list(types),
            strings_can_be_null=text,
            decimal_point=self.options.decimal,
            null_values=[*pa.csv.ConvertOptions().null_values, *self.options.na_values],
        )
        try:
            with pa.csv.open_csv(file, read, parse, convert) as reader:
                yield reader
        except pa.ArrowInvalid:
            if not ragged:
                raise
        if ragged:
            refuse_ragged(label, ragged)

    @contextmanager
    def _open(self, types: dict[str, Any], *, threads: bool = True, text: bool = False) -> Iterator[Any]:
        read = pa.csv.ReadOptions(
            block_size=CSV_BLOCK,
            use_threads=threads,
            encoding=self.options.encoding,
            column_names=self.header,
            skip_rows_after_names=0 if self.header is None else 1,
        )
        with source(self.path) as opened:
            packed = not isinstance(self.path, Path) and is_gzip(self.path)  # Arrow knows by the ending of a path
            file = pa.CompressedInputStream(opened, "gzip") if packed else opened
            with self._reader(self.label, file, read, types, text) as reader:
                yield reader

    def independent_parts(self) -> list[Table]:
        return [copy.copy(self)]

    def batches(self, rows: int) -> Iterator[list[Any]]:
        """Ids are text: whether 007 is a number must not depend on the other ids."""
        done = 0
        try:
            for batch in self._batches(all_text=bool(self.options.thousands)):
                yield batch
                done += len(batch[0])
        except UnicodeError:
            raise UnreadableData(
                f"{self.label}: the file is not {self.options.encoding.upper()} text throughout. Save it as UTF-8.",
                options=("encoding",),
            ) from None
        except pa.ArrowInvalid:
            self._refuse_text()
            # All cells are numbers or missing values, but some are written in a way that only the slower parser knows.
            for batch in self._batches(all_text=True):
                skip = min(done, len(batch[0]))
                done -= skip
                if skip < len(batch[0]):
                    yield [column.slice(skip) for column in batch]

    def _batches(self, *, all_text: bool) -> Iterator[list[Any]]:
        as_text = {
            name for name in self.names if name in self.large or (all_text and self.kind_of(name) == pa.float64())
        }
        types = {name: pa.string() if name in as_text else self.kind_of(name) for name in self.names}
        types |= {self.id: pa.large_string()} if self.id else {}
        with self._open(types) as reader:
            for batch in reader:
                yield [
                    self._parsed(column) if name in as_text and name != self.id else column
                    for name, column in zip(types, batch.columns, strict=True)
                ]

    def _cleaned(self, text: Any) -> Any:
        """Texts without spaces around them and separators of thousands, with a decimal point; null where a value is
        missing."""
        text = pc.utf8_trim_whitespace(text)
        # not `pc.is_in`: its list of values is made by `pa.array`, which imports pandas if it is installed
        text = pc.if_else(pc.match_substring_regex(text, self.absent), pa.scalar(None, text.type), text)
        if self.options.grouped is not None:
            number, mark = self.options.grouped
            plain = pc.replace_substring_regex(text, mark, "")
            text = pc.if_else(pc.match_substring_regex(text, number), plain, text)
        if self.options.decimal == ",":  # a point must not pass for the decimal separator
            text = pc.replace_substring(pc.replace_substring(text, ".", ";"), ",", ".")
        return text

    def _parsed(self, text: Any) -> Any:
        """Texts as integers, signed or not; as doubles if some are neither: those are far apart, or no integers."""
        text = self._cleaned(text)
        for kind in (pa.int64(), pa.uint64()):
            if parses(text, kind):
                return pc.cast(text, kind)
        return pc.cast(text, pa.float64())

    def _refuse_text(self) -> None:
        """Read the file again as text and raise `BadValue` with all cells that are not numbers; return if there are
        none."""
        found = {name: BadCells(name, kind=pa.string(), decimal=self.options.decimal) for name in self.names}
        done = 0
        with self._open(dict.fromkeys(self.names, pa.string()), threads=False, text=True) as reader:
            for batch in reader:
                for cells, column in zip(found.values(), batch.columns, strict=True):
                    self._count_text(cells, column, done)
                done += batch.num_rows
        bad = [cells for cells in found.values() if cells.row is not None]
        if bad:
            raise not_numbers(self.label, bad)

    def _count_text(self, cells: BadCells, column: Any, rows_before: int) -> None:
        """Add the cells of a column that are not numbers to those that were found."""
        cleaned, kind = self._cleaned(column), self.kind_of(cells.name)
        cells.cells += len(column)
        first = first_text(cleaned, kind)
        if first is None:
            return
        if cells.row is None:
            cells.row, cells.value = rows_before + first + 1, column[first].as_py()
        numbers = pc.fill_null(pc.match_substring_regex(cleaned, NUMBER, ignore_case=True), True)
        texts = pc.utf8_trim_whitespace(column.filter(pc.invert(numbers)))
        cells.count += max(1, len(texts))
        cells.texts = list(dict.fromkeys([*cells.texts, *texts.unique()[: MAX_CODES + 1].to_pylist()]))[: MAX_CODES + 1]

    def as_given(self, names: Sequence[str]) -> dict[str, Any]:
        """Columns of text files by what all of their cells hold: integers, numbers, dates, or else text."""
        with reading(self.label), self._open(dict.fromkeys(names, pa.string())) as reader:
            table = reader.read_all()
        return {name: self._typed(table.column(name)) for name in names}

    def _typed(self, text: Any) -> Any:
        """A column of text as integers or dates if all are written as these are, or as numbers; text like 007 stays."""
        cleaned = self._cleaned(text)
        if cleaned.null_count == len(cleaned):
            return text
        for kind in (pa.int64(), pa.date32(), pa.timestamp("s")):
            if (
                parses(cleaned, kind)
                and pc.all(pc.equal(pc.cast(pc.cast(cleaned, kind), pa.string()), cleaned)).as_py()
            ):
                return pc.cast(cleaned, kind)
        zeros = pc.match_substring_regex(cleaned, r"^[+-]?0\d")
        return pc.cast(cleaned, pa.float64()) if parses(cleaned, pa.float64()) and not pc.any(zeros).as_py() else text


def parsed_as(inferred: Any) -> Any:
    """Numbers are parsed as float64, true / false as what they are."""
    return inferred if pa.types.is_boolean(inferred) else pa.float64()


def counts_rows(column: Any) -> bool:
    """Return whether a column counts the rows, as an index does that was written with the table."""
    if not pa.types.is_integer(column.type) or len(column) < MIN_COUNTED or column.null_count:
        return False
    values = view(flat(column))
    return bool(values[0] in (0, 1) and (np.diff(values) == 1).all())


def is_large(column: Any) -> bool:
    """Return whether the first values allow for integers beyond 2^53 that differ by little.

    They do not if they are all below 2^52: beside one of them, a value beyond 2^53 makes a deviation of at least 2^-20
    of it, as there are less than 2^36 rows.
    """
    if pa.types.is_null(column.type):
        return True
    if not (pa.types.is_integer(column.type) or pa.types.is_float64(column.type)):
        return False
    low, high = pc.min_max(column).as_py().values()
    if pa.types.is_integer(column.type):
        return bool(high >= 1 << 52 or low <= -(1 << 52))
    return bool(2.0**63 <= high <= 2.0**64)  # uint64, of which Arrow makes doubles


def first_lines(label: str, path: Place, encoding: str) -> str:
    """The first lines of the file, whole ones as far as they fit a block: what the schema is taken from."""
    with path.open("rb") as stored, gzip.open(stored, "rb") if is_gzip(path) else nullcontext(stored) as file:
        head: bytes = file.read(CSV_BLOCK)
    plain = codecs.lookup(encoding).name == "utf-8"
    if plain and (head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in head[:1000]):
        raise UnreadableData(f"{label}: the file is UTF-16 text, not UTF-8. Save it as UTF-8.", options=("encoding",))
    try:
        text = codecs.getincrementaldecoder("utf-8-sig" if plain else encoding)().decode(head)
    except UnicodeError as error:
        start = (
            error.start if isinstance(error, UnicodeDecodeError) else 0
        )  # UTF-16 without its first mark: from the start
        line = head.count(b"\n", 0, start) + 1
        guess = "; it is probably Latin-1 (or Windows-1252)" if plain else ""
        raise UnreadableData(
            f"{label}: the file is not {encoding.upper()} text (line {line}){guess}. Save it as UTF-8.",
            options=("encoding",),
        ) from None
    return text if len(head) < CSV_BLOCK or "\n" not in text else text[: text.rindex("\n") + 1]


def first_text(column: Any, kind: Any) -> int | None:
    """Position of the first string that does not parse as `kind`, by halving; None if all do."""
    if parses(column, kind):
        return None
    start, stop = 0, len(column)
    while stop - start > 1:
        middle = (start + stop) // 2
        if parses(column.slice(start, middle - start), kind):
            start = middle
        else:
            stop = middle
    return start


def parses(column: Any, kind: Any) -> bool:
    try:
        pc.cast(column, kind)
    except pa.ArrowInvalid:
        return False
    return True


def refuse_ragged(label: str, rows: Sequence[Any]) -> None:
    """Refuse lines with another number of cells than the first line has names. Rows count from 1, without the
    header."""
    shown = [f"row {row.number - 1:,} has {row.actual_columns}" for row in rows if row.number is not None]
    more = "at least " if len(rows) > MAX_RAGGED else ""
    raise UnreadableData(
        f"{label}: the first line names {rows[0].expected_columns} columns, but "
        f"{more}{listed(shown, str, most=3)}. Remove lines above the column names and below the table, and put "
        "texts that hold the separator in double quotes."
    )
