"""One owner's table in many files: a folder of them, or those that a pattern finds, read one after the other."""

from __future__ import annotations

import copy
import filecmp
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any, Self, cast
from urllib.parse import unquote

import pyarrow as pa

from ..errors import BadColumns, UnreadableData
from .addresses import Place, ending, is_data
from .arrow import ArrowTable
from .table import ChunkWithRest, Table

TEXT = (".csv", ".tsv")
ENDINGS = (*TEXT, ".parquet", ".arrow", ".feather", ".npy", ".npz")
HEAD_BYTES = 1 << 16
"""Bytes of a file that are compared before all of it is."""


class FilesTable(Table):
    """Files with the same columns, in the order of their names."""

    def __init__(self, label: str, parts: Sequence[Table]) -> None:
        self.label = label
        self.parts = list(parts)
        first = self.parts[0]
        self.held, self.names, self.id = first.held, getattr(first, "names", None), first.id
        self.unnamed = first.unnamed
        self.n_columns, self.chosen = getattr(first, "n_columns", 0), first.chosen
        counts = [part.rows for part in self.parts]
        self.rows = None if None in counts else sum(count for count in counts if count is not None)
        for part in self.parts[1:]:
            if set(part.held or ()) != set(self.held or ()):
                raise BadColumns(
                    f"{part.label} and {first.label} have different columns; files of one owner have the same."
                )

    @property
    def offered(self) -> list[str] | None:
        return self.parts[0].offered

    def choose(self, columns: Sequence[str] | None = None, id: str | None = None) -> Table:
        first = self.parts[0].choose(columns, id)
        others = [part.choose(first.names, id) for part in self.parts[1:]]
        for part in others:
            if part.n_columns != first.n_columns:
                raise BadColumns(f"{part.label} has {part.n_columns} columns, {first.label} {first.n_columns}.")
        return FilesTable(self.label, [first, *others]).read_as(self)

    def check_types(self) -> None:
        for part in self.parts:
            part.check_types()

    def refuse_values(self, *, missing: bool, largest: float = float("inf")) -> None:
        for part in self.parts:
            copy.copy(part).read_as(self).refuse_values(missing=missing, largest=largest)

    def as_given(self, names: Sequence[str]) -> dict[str, Any]:
        parts = [part.as_given(names) for part in self.parts]
        tables = pa.concat_tables([pa.table(part) for part in parts], promote_options="permissive")
        return {name: tables.column(name) for name in names}

    def renamed(self, names: Sequence[str], note: str) -> Table:
        other = FilesTable(self.label, [part.renamed(names, note) for part in self.parts])
        other.notes = (*self.notes, note)
        return other.read_as(self)

    def stream(self, rows: int, ids: list[Any]) -> Iterator[ChunkWithRest]:
        for part in self.parts:
            yield from part.chunks_with_rest(rows, check=False, ids=ids)

    def independent_parts(self) -> list[Table]:
        found = [each for part in self.parts for each in part.independent_parts() or ()]
        return [each.read_as(self) for each in found]


class PartitionFile(ArrowTable):
    """A file of a partitioned data set (Hive, Spark): folders called name=value are columns, taken only if chosen."""

    def __init__(self, file: ArrowTable, values: Mapping[str, Any]) -> None:
        self.file, self.rows = file, file.rows
        self.values = {name: value for name, value in values.items() if name not in file.stored}
        fields = [pa.field(name, value.type) for name, value in self.values.items()]
        schema = pa.schema([*(pa.field(name, file.kind_of(name)) for name in file.stored), *fields])
        index = [name for name in file.stored if name not in file.held]
        super().__init__(file.label, schema, index=[*index, *self.values])

    def stamp(self) -> Any:
        return self.file.stamp()

    def choose(self, columns: Sequence[str] | None = None, id: str | None = None) -> Self:
        other = super().choose(columns, id)
        own = [name for name in other.names if name not in self.values]
        other.file = self.file.choose(own or self.file.stored[:1], None if id in self.values else id)
        return other

    def check_types(self) -> None:
        only = copy.copy(self)
        only.names = only.wanted = [name for name in self.names if name in self.values]
        super(PartitionFile, only).check_types()
        if any(name in self.file.stored for name in self.names):
            self.file.check_types()

    def as_given(self, names: Sequence[str]) -> dict[str, Any]:
        own = self.file.as_given([name for name in names if name not in self.values] or self.file.stored[:1])
        rows = len(next(iter(own.values())))
        return {name: own[name] if name in own else pa.repeat(self.values[name], rows) for name in names}

    def batches(self, rows: int) -> Iterator[list[Any]]:
        for batch in self.file.batches(rows):
            held = dict(zip(self.file.wanted, batch, strict=True))
            constant = {name: pa.repeat(value, len(batch[0])) for name, value in self.values.items()}
            yield [(held | constant)[name] for name in self.wanted]

    def independent_parts(self) -> list[Table]:
        found: list[Table] = []
        for part in self.file.independent_parts() or ():
            other = copy.copy(self)
            other.file, other.rows = cast(ArrowTable, part), part.rows
            found.append(other)
        return found

    def joined_ids(self, id_chunks: list[Any]) -> Any:
        return super().joined_ids(id_chunks) if self.id in self.values else self.file.joined_ids(id_chunks)


def partition_values(folders: Sequence[str]) -> dict[str, Any]:
    """Return the partition values in the names of folders between the owner's folder and a file: numbers, otherwise
    text."""
    values: dict[str, Any] = {}
    for folder in folders:
        name, equals, text = folder.partition("=")
        if equals:
            try:
                whole = text.lstrip("-").isdecimal() and -(1 << 63) <= int(text) < 1 << 63
                values[unquote(name)] = (
                    pa.scalar(int(text), pa.int64()) if whole else pa.scalar(float(text), pa.float64())
                )
            except ValueError:
                values[unquote(name)] = pa.scalar(unquote(text), pa.large_string())
    return values


def refuse_twice(label: str, files: Sequence[Place]) -> None:
    """Refuse the files of one owner if two of a folder are the same table: copies, or one table in two formats."""
    named: dict[tuple[str, str], Place] = {}
    for file in files:
        folder = file.parent if isinstance(file, Path) else file.inside.parent
        first = named.setdefault((str(folder), stem(file.name)), file)
        if first is not file:
            _refuse_pair(label, first, file, "have the same name in two formats")
    for first, other in copies([file for file in files if isinstance(file, Path)]):
        if first.parent == other.parent:
            _refuse_pair(label, first, other, "hold the same bytes")


def _refuse_pair(label: str, first: Place, other: Place, cause: str) -> None:
    raise UnreadableData(
        f"{label}: {first.name} and {other.name} {cause}, so the rows of one table would count twice. Remove one of "
        f"them, or choose the files with a pattern such as '*{''.join(first.suffixes)}'."
    )


def copies(files: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Pairs of files with the same content, at least one row of it; the first file of a pair is the first of its
    kind."""
    alike: dict[tuple[int, bytes], list[Path]] = {}
    sizes = [file.stat().st_size for file in files]
    shared = Counter(sizes)
    for file, size in zip(files, sizes, strict=True):
        if size and shared[size] > 1:
            with file.open("rb") as opened:
                head = opened.read(HEAD_BYTES)
            if len(head) < size or head.strip().count(b"\n") > 0 or ending(PurePosixPath(file.name)) not in TEXT:
                alike.setdefault((size, hashlib.sha256(head).digest()), []).append(file)
    return [
        (group[0], other)
        for group in alike.values()
        for other in group[1:]
        if filecmp.cmp(group[0], other, shallow=False)
    ]


def stem(name: str) -> str:
    """A file's name without the endings that say its format."""
    for end in (".gz", *ENDINGS):
        name = name[: -len(end)] if name.lower().endswith(end) and len(name) > len(end) else name
    return name


def is_pattern(data: str | PathLike[str]) -> bool:
    return any(letter in str(data) for letter in "*?[")


def files_of(data: str | Path, endings: Sequence[str]) -> list[Path] | None:
    """The data files of a folder and the folders below, or of a pattern, in the order of their names; None for a single
    file."""
    path = Path(data)
    if path.is_dir():
        found = (file for file in path.rglob("*") if file.is_file())
        return sorted(file for file in found if is_data(PurePosixPath(file.relative_to(path)), endings))
    if path.exists() or not is_pattern(path):
        return None
    root = Path(path.anchor) if path.is_absolute() else Path()
    return sorted(file for file in root.glob(str(path.relative_to(root))) if file.is_file())
