"""Tables that are text: comma-, semicolon- or tab-separated, also compressed. Opened once for the schema, once for the rows."""

from __future__ import annotations

import codecs
import copy
import gzip
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ..errors import BadColumns, UnreadableData
from .addresses import Place, source
from .arrow import ArrowTable, is_numeric, not_a_number
from .table import Table

CSV_BLOCK = 8 << 20
"""Bytes of text parsed at a time; a line must fit."""


class CsvTable(ArrowTable):
    """Comma-, semicolon- or tab-separated text with a header line, also gzip-compressed.

    Every chosen column is parsed as float64, save those that hold true / false in the first block, and those that may hold
    integers beyond 2^53 (`large`), which are parsed as the integers they are.
    """

    rows = None

    def __init__(self, label: str, path: Place, decimal: str = ".", encoding: str = "utf-8") -> None:
        self.path, self.decimal, self.encoding = path, decimal, encoding
        head = first_lines(label, path, encoding)
        self.delimiter = delimiter_of(label, path, head, decimal)
        parse = pa.csv.ParseOptions(delimiter=self.delimiter)
        block = head.encode()
        read, convert = pa.csv.ReadOptions(block_size=len(block)), pa.csv.ConvertOptions(decimal_point=decimal)
        with pa.csv.open_csv(pa.BufferReader(block), read, parse, convert) as reader:
            self.inferred = reader.schema
            first = reader.read_all()
        self.large = {name for name, column in zip(first.column_names, first.columns, strict=True) if is_large(column)}
        refuse_headerless(label, list(self.inferred.names))
        super().__init__(label, pa.schema([pa.field(field.name, parsed_as(field.type)) for field in self.inferred]))

    def check_types(self) -> None:
        if not all(is_numeric(self.inferred.field(self.stored.index(name)).type) for name in self.names):
            self._refuse_text()

    @contextmanager
    def _open(self, types: dict[str, Any], *, threads: bool = True, text: bool = False) -> Iterator[Any]:
        read = pa.csv.ReadOptions(block_size=CSV_BLOCK, use_threads=threads, encoding=self.encoding)
        parse = pa.csv.ParseOptions(delimiter=self.delimiter)
        convert = pa.csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            strings_can_be_null=text,
            decimal_point=self.decimal,
        )
        with source(self.path) as opened:
            packed = not isinstance(self.path, Path) and is_gzip(self.path)  # Arrow knows by the ending of a path
            file = pa.CompressedInputStream(opened, "gzip") if packed else opened
            with pa.csv.open_csv(file, read, parse, convert) as reader:
                yield reader

    def portions(self) -> list[Table]:
        return [copy.copy(self)]

    def batches(self, rows: int) -> Iterator[list[Any]]:
        """Ids are text: whether 007 is a number must not depend on the other ids."""
        types = {name: pa.string() if name in self.large else self.kind_of(name) for name in self.names}
        types |= {self.id: pa.large_string()} if self.id else {}
        try:
            with self._open(types) as reader:
                for batch in reader:
                    yield [
                        whole_numbers(column, self.decimal) if name in self.large and name != self.id else column
                        for name, column in zip(types, batch.columns, strict=True)
                    ]
        except UnicodeError:
            raise UnreadableData(
                f"{self.label}: the file is not {self.encoding.upper()} text throughout. Save it as UTF-8.",
                options=("encoding",),
            ) from None
        except pa.ArrowInvalid:
            self._refuse_text()
            raise

    def _refuse_text(self) -> None:
        """Read the file again as text and raise `BadValue` for the first cell that is no number; return if none is."""
        done = 0
        with self._open(dict.fromkeys(self.names, pa.string()), threads=False, text=True) as reader:
            for batch in reader:
                worst: tuple[int, str, str] | None = None
                for name, column in zip(self.names, batch.columns, strict=True):
                    shown = pc.utf8_trim_whitespace(column)
                    plain = pc.replace_substring(shown, ",", ".") if self.decimal == "," else shown
                    row = first_text(plain, self.kind_of(name))
                    if row is not None and (worst is None or row < worst[0]):
                        worst = row, name, column[row].as_py()
                if worst is not None:
                    row, name, text = worst
                    raise not_a_number(self.label, name, done + row + 1, text, pa.string())
                done += batch.num_rows


def parsed_as(inferred: Any) -> Any:
    """Numbers are parsed as float64, true / false as what they are."""
    return inferred if pa.types.is_boolean(inferred) else pa.float64()


def is_large(column: Any) -> bool:
    """Whether the first values allow for integers beyond 2^53 that differ by little.

    They do not if they are all below 2^52: beside one of them, a value beyond 2^53 makes a deviation of at least 2^-20 of it, as
    there are less than 2^36 rows.
    """
    if pa.types.is_null(column.type):
        return True
    if not (pa.types.is_integer(column.type) or pa.types.is_float64(column.type)):
        return False
    low, high = pc.min_max(column).as_py().values()
    if pa.types.is_integer(column.type):
        return bool(high >= 1 << 52 or low <= -(1 << 52))
    return bool(2.0**63 <= high <= 2.0**64)  # uint64, of which Arrow makes doubles


def whole_numbers(text: Any, decimal: str) -> Any:
    """Strings as integers, signed or not; as doubles where some are neither: those are far apart, or no integers."""
    text = pc.utf8_trim_whitespace(text)
    nulls = pa.array(pa.csv.ConvertOptions().null_values)  # here, as `pa.array` imports pandas
    text = pc.if_else(pc.is_in(text, value_set=nulls), pa.scalar(None, text.type), text)
    for kind in (pa.int64(), pa.uint64()):
        if parses(text, kind):
            return pc.cast(text, kind)
    return pc.cast(pc.replace_substring(text, decimal, "."), pa.float64())


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


def is_gzip(path: Place) -> bool:
    return path.suffix.lower() == ".gz"


def delimiter_of(label: str, path: Place, head: str, decimal: str = ".") -> str:
    """Tab for .tsv; else whichever of comma (unless it is the decimal point), semicolon, tab and bar the header has most of."""
    header, _, rest = head.partition("\n")
    if not header.strip():
        raise UnreadableData(f"{label}: the file is empty or starts with an empty line; a header line is needed.")
    if ".tsv" in (suffix.lower() for suffix in path.suffixes[-2:]):
        return "\t"
    found = max(",;\t|".replace(decimal, ""), key=header.count)
    if header.startswith("#") and header.count(found) != rest.partition("\n")[0].count(found):
        raise UnreadableData(
            f"{label}: the file starts with a comment line (#). Remove comment lines: the first line holds the column names."
        )
    return found


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


def refuse_headerless(label: str, names: list[str]) -> None:
    """Refuse a first line of data where the names should be. Names 0, 1, 2, ... or 1, 2, 3, ... are taken as names."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return
    if names and numbers not in (list(range(len(names))), list(range(1, len(names) + 1))):
        raise BadColumns(
            f"{label}: the first line holds numbers ({', '.join(names[:3])}, ...) where column names should be. "
            "Put a line with the names of the columns at the top."
        )
