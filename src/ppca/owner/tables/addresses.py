"""Addresses: tables in an object store or on another machine (s3://bucket/folder, gs://..., https://...), through
fsspec.

A store is read in place, one chunk at a time; nothing is copied to this machine first. Keys and passwords come from
where the store's own package takes them (environment, configuration files, machine roles), and are in no message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import UnreadableData

LOCAL = "file://"


@dataclass(frozen=True)
class Address:
    """One file of a store, as far as readers need a path of it. `store`: fsspec's file system; `inside`: the path
    there."""

    store: Any
    inside: PurePosixPath

    def __str__(self) -> str:
        return shown(self.store.unstrip_protocol(str(self.inside)))

    @property
    def name(self) -> str:
        return self.inside.name

    @property
    def suffix(self) -> str:
        return self.inside.suffix

    @property
    def suffixes(self) -> list[str]:
        return self.inside.suffixes

    def exists(self) -> bool:
        return bool(self.store.exists(str(self.inside)))

    def size(self) -> int:
        return int(self.store.size(str(self.inside)) or 0)

    def open(self, mode: str = "rb") -> Any:
        return self.store.open(str(self.inside), mode)


Place = Path | Address
"""Place of a file: a local path, or an address in a store."""


@contextmanager
def source(place: Place) -> Iterator[Any]:
    """Yield what Arrow opens: a local path, or an open file of a store."""
    if isinstance(place, Path):
        yield place
        return
    with place.open() as file:
        yield file


def is_address(data: str | PathLike[str]) -> bool:
    return isinstance(data, str) and "://" in data and not data.startswith(LOCAL)


def local_path(data: str | PathLike[str]) -> Path:
    """The path of data on this machine, which may be written file:///folder/file.parquet."""
    return Path(data.removeprefix(LOCAL) if isinstance(data, str) else data)


def shown(address: str) -> str:
    """An address for messages: without the user and the password that it may hold."""
    return re.sub(r"//[^/@]*@", "//", address)


def found_at(address: str, endings: Sequence[str]) -> tuple[PurePosixPath | None, list[Address]]:
    """Return the folder (None if it is not a folder) and the data files of an address: one, those of a folder and the
    folders below, or those that a pattern finds, in the order of their names."""
    store, inside = _store(address)
    with _asking(address):
        if any(letter in inside for letter in "*?["):
            return None, [Address(store, PurePosixPath(path)) for path in sorted(store.glob(inside))]
        if not store.isdir(inside):
            return None, [Address(store, PurePosixPath(inside))]
        folder = PurePosixPath(inside)
        files = [Address(store, PurePosixPath(path)) for path in sorted(store.find(inside))]
    return folder, [file for file in files if is_data(file.inside.relative_to(folder), endings)]


def is_data(file: PurePosixPath, endings: Sequence[str]) -> bool:
    """Return whether a file of a folder is one of its data files. Names that begin with a dot or an underscore
    (_SUCCESS) are not."""
    return ending(file) in endings and not any(part[0] in "._" for part in file.parts)


def ending(file: PurePosixPath) -> str:
    """.csv also of a file that ends in .csv.gz."""
    suffix = file.suffix.lower()
    inner = file.with_suffix("").suffix.lower()
    return inner if suffix == ".gz" and inner in (".csv", ".tsv") else suffix


def _store(address: str) -> tuple[Any, str]:
    """fsspec's file system for an address, and the path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UnreadableData(f"{shown(address)}: addresses need the extra: pip install 'ppca[store]'.") from None
    with _asking(address):
        try:
            store, inside = url_to_fs(address)
        except ImportError as error:  # fsspec knows which package reaches this store
            raise UnreadableData(
                f"{shown(address)}: the package that reaches this store is not installed ({error})."
            ) from None
        except ValueError as error:
            raise UnreadableData(
                f"{shown(address)}: there is no such kind of address ({error}). Write it like s3://bucket/folder, "
                "gs://bucket/folder or abfs://container/folder; a file of this machine as its path."
            ) from None
    return store, inside


@contextmanager
def _asking(address: str) -> Iterator[None]:
    """Convert the exceptions of packages for stores to `UnreadableData`."""
    try:
        yield
    except UnreadableData:
        raise
    except Exception as error:
        cause = " ".join(str(error).split())[:300].rstrip(".")
        raise UnreadableData(
            f"{shown(address)}: the store does not answer or refuses ({type(error).__name__}: {shown(cause)}). Check "
            "the address, and the keys where its package looks for them."
        ) from error
