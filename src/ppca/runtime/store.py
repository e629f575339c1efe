"""Records that a server keeps between programs: named collections of shares and public facts, on disk if it has a
folder.

A record is one file, written atomically and readable by the server's user only. It holds this server's shares, which
reveal nothing without those of a second server. Loading checks every size and refuses a damaged or foreign file.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import zipfile
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ..jobs.errors import Refusal
from ..protocol import RingType

FORMAT = "ppca-shares-1"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
PART = ".part"
USABLE = "letters, digits, dots, dashes and underscores only"


class StoreError(Refusal):
    """A record is missing, damaged, or has an invalid name."""


Record = dict[str, Any]
"""A record: shares as (data, type) pairs by name, and public facts under "public"."""


LOCAL = "local"
"""Name of the only client of local servers: the process that started them."""


class Store(MutableMapping[str, Record]):
    """Records of one client by name, in memory and, if `folder` is given, in a folder of its own below it.

    A client can reach only its own records.
    """

    def __init__(self, folder: Path | None = None, client: str = LOCAL) -> None:
        if not NAME.fullmatch(client):
            raise StoreError(f"{client!r} is not a usable name of a client: {USABLE}")
        self._folder = None if folder is None else folder / client
        self._records: dict[str, Record] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (folder / client).mkdir(exist_ok=True, mode=0o700)

    def __contains__(self, name: object) -> bool:
        path = self._path(str(name))
        return name in self._records or (path is not None and path.exists())

    def __setitem__(self, name: str, record: Record) -> None:
        self.prepare(name, record)
        self.put(name, record)

    def prepare(self, name: str, record: Record) -> None:
        """Write a record to disk under a temporary name. `put` then cannot fail for lack of space."""
        path = self._path(name)
        if path is not None:
            _write(path.with_suffix(PART), record)

    def put(self, name: str, record: Record) -> None:
        """Give a prepared record its name; it replaces an earlier one."""
        path = self._path(name)
        if path is not None:
            path.with_suffix(PART).replace(path)
        self._records[name] = record

    def discard(self, name: str) -> None:
        """Drop a prepared record."""
        path = self._path(name)
        if path is not None:
            path.with_suffix(PART).unlink(missing_ok=True)

    def __getitem__(self, name: str) -> Record:
        if name not in self._records:
            path = self._path(name)
            if path is None or not path.exists():
                raise StoreError(f"this server does not have a record named {name!r}; fit a model with that name first")
            self._records[name] = _read(path)
        return self._records[name]

    def __delitem__(self, name: str) -> None:
        """Erase a record, if it exists, and temporary files that a killed server may have left."""
        self.discard(name)
        path = self._path(name)
        if path is not None:
            path.unlink(missing_ok=True)
        self._records.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        on_disk = {path.stem for path in self._folder.glob("*.npz")} if self._folder else set()
        return iter(sorted(on_disk | set(self._records)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _path(self, name: str) -> Path | None:
        if not NAME.fullmatch(name):
            raise StoreError(f"{name!r} is not a usable name: {USABLE}")
        return None if self._folder is None else self._folder / f"{name}.npz"


class Staged(MutableMapping[str, Record]):
    """A client's store during one program: changes are staged until all four servers have finished the program.

    Otherwise a failure on one server would leave shares of two different fits under one name.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changes: dict[str, Record | None] = {}

    def __getitem__(self, name: str) -> Record:
        record = self._changes.get(name)
        if record is None and name in self._changes:
            raise StoreError(f"this program has erased {name!r}")
        return self._store[name] if record is None else record

    def __contains__(self, name: object) -> bool:
        return self._changes[str(name)] is not None if name in self._changes else name in self._store

    def __setitem__(self, name: str, record: Record) -> None:
        self._store.prepare(name, record)
        self._changes[name] = record

    def __delitem__(self, name: str) -> None:
        self._changes[name] = None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(name for name in {*self._store, *self._changes} if name in self))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def changed(self) -> bool:
        return bool(self._changes)

    @property
    def changes(self) -> dict[str, Record | None]:
        """Staged records by name; None: to be erased."""
        return dict(self._changes)

    def commit(self) -> None:
        """Make the changes."""
        for name, record in self._changes.items():
            if record is None:
                del self._store[name]
            else:
                self._store.put(name, record)
        self._changes = {}

    def drop(self) -> None:
        """Forget the changes."""
        for name in self._changes:
            self._store.discard(name)
        self._changes = {}


def flat(record: Record) -> dict[str, Any]:
    """A record as plain data and arrays, which can travel."""
    types = _types(record)
    return {"public": record.get("public", {}), "types": types, "arrays": {key: record[key][0] for key in types}}


def record_of(public: Any, types: Any, arrays: Mapping[str, Any]) -> Record:
    """The record of what `flat` made of one; ValueError for anything else."""
    if not isinstance(public, dict) or not isinstance(types, dict) or types.keys() != arrays.keys():
        raise ValueError("its header has the wrong form")
    record: Record = {"public": public}
    for key, kind in types.items():
        if not (isinstance(kind, list) and all(type(n) is int for n in kind)):
            raise ValueError(f"the type of {key!r} has the wrong form")
        data, dtype = arrays[key], RingType(*kind)
        if data.dtype != np.uint64 or data.ndim < 2 or data.shape[0] != 2 or data.shape[-1] != dtype.limbs:
            raise ValueError(f"the shares of {key!r} have the wrong form")
        record[key] = (data, dtype)
    return record


def _types(record: Record) -> dict[str, list[int]]:
    return {key: [v[1].bits, v[1].frac, v[1].span] for key, v in record.items() if key != "public"}


def _write(part: Path, record: Record) -> None:
    types = _types(record)
    header = json.dumps({"format": FORMAT, "types": types, "public": record.get("public", {})})
    arrays: dict[str, Any] = {key: record[key][0] for key in types}
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        np.savez(file, header=np.frombuffer(header.encode(), np.uint8), **arrays)
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> Record:
    try:
        return _record(path)
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise StoreError(f"cannot read the record {path.name}: {error}; fit the model again") from None
    except Exception as error:  # zipfile and the parsers of headers raise their own families for damaged archives
        raise StoreError(f"cannot read the record {path.name}: {type(error).__name__}; fit the model again") from None


def _record(path: Path) -> Record:
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        if sum(part.file_size for part in parts) > path.stat().st_size:  # nothing in a record is compressed
            raise ValueError("its parts are larger than it is")
        arrays = {part.filename.removesuffix(".npy"): _array(archive.read(part)) for part in parts}
    header = json.loads(arrays.pop("header").tobytes())
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError("it is not a record of shares")
    return record_of(header["public"], header["types"], arrays)


def _array(content: bytes) -> NDArray[Any]:
    """Return the array of a part, after comparing its shape with the number of bytes."""
    file = io.BytesIO(content)
    if npy.read_magic(file) != (1, 0):
        raise ValueError("it has a part of another format")
    shape, by_columns, dtype = npy.read_array_header_1_0(file)
    rest = content[file.tell() :]
    if dtype not in (np.uint64, np.uint8) or by_columns or len(rest) != math.prod(shape) * dtype.itemsize:
        raise ValueError("a part has another size or type than it says")
    return np.frombuffer(rest, dtype).reshape(shape).copy()
