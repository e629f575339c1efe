"""One owner's table in many files: a folder of them, or those that a pattern finds, read one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import BadColumns
from .table import Chunk, Table


class FilesTable(Table):
    """Files with the same columns, in the order of their names."""

    def __init__(self, label: str, parts: Sequence[Table]) -> None:
        self.label = label
        self.parts = list(parts)
        first = self.parts[0]
        self.held, self.names, self.id = first.held, getattr(first, "names", None), first.id
        self.integers = first.integers
        self.n_columns, self.chosen = getattr(first, "n_columns", 0), first.chosen
        counts = [part.rows for part in self.parts]
        self.rows = None if None in counts else sum(count for count in counts if count is not None)
        for part in self.parts[1:]:
            if set(part.held or ()) != set(self.held or ()):
                raise BadColumns(
                    f"{part.label} and {first.label} have different columns; files of one owner have the same."
                )

    def choose(self, columns: Sequence[str] | None = None, id: str | None = None) -> Table:
        first = self.parts[0].choose(columns, id)
        others = [part.choose(first.names, id) for part in self.parts[1:]]
        for part in others:
            if part.n_columns != first.n_columns:
                raise BadColumns(f"{part.label} has {part.n_columns} columns, {first.label} {first.n_columns}.")
        return FilesTable(self.label, [first, *others])

    def renamed(self, names: Sequence[str], note: str) -> Table:
        other = FilesTable(self.label, [part.renamed(names, note) for part in self.parts])
        other.notes = (*self.notes, note)
        return other

    def stream(self, rows: int, ids: list[Any]) -> Iterator[Chunk]:
        for part in self.parts:
            yield from part.chunks(rows, check=False, ids=ids)


def is_pattern(data: str | PathLike[str]) -> bool:
    return any(letter in str(data) for letter in "*?[")


def files_of(data: str | Path, endings: Sequence[str]) -> list[Path] | None:
    """The data files of a folder or a pattern, in the order of their names; None if `data` names a single file."""
    path = Path(data)
    if path.is_dir():
        found = [file for file in path.iterdir() if file.is_file() and file.name[0] not in "._"]
        return sorted(file for file in found if file.suffix.lower() in endings)
    if path.exists() or not is_pattern(path):
        return None
    root = Path(path.anchor) if path.is_absolute() else Path()
    return sorted(file for file in root.glob(str(path.relative_to(root))) if file.is_file())
