"""Output of an attempt, staged until all four servers have finished: sealed parts of the result, the audit, a kept
model.

It is on the disk, twice and read back, before the server says that it has finished: a damaged file does not lose a
result that the others count as done. Everything is sealed or public; a kept model is sealed to a key of its own.
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..federation.envelopes import message_of
from ..federation.errors import ObjectRefused
from ..federation.objects import Object, sha256
from ..federation.sealing import seal
from ..protocol import RingType
from ..runtime.control import encode
from .keys import MODEL, Keys
from .mailbox import write_file

Record = dict[str, Any]
COPIES = ("first", "second")
"""Folders of the copies of what is staged."""


class Staging:
    """Staged attempts by job and number, and the models that are kept."""

    def __init__(self, folder: Path, keys: Keys) -> None:
        self._staged, self._models, self._keys = folder / "staged", folder / "models", keys
        for each in (self._staged, self._models):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)

    def put(self, job: str, attempt: int, items: list[Object], record: Record | None) -> None:
        """Store what an attempt produced. OSError if the disk does not give back what was written."""
        place = self._place(job, attempt)
        shutil.rmtree(place, ignore_errors=True)
        files = {f"{item.digest}.object": item.data for item in items}
        if record is not None:
            key = self._keys.make(MODEL, job)
            sealed = seal(record_bytes(record), key.public, what="model", job=job)
            files[f"{sha256(sealed)}.model"] = sealed
        for copy in COPIES:
            for name, data in files.items():
                write_file(place / copy / name, data)
        lost = [name for name, data in files.items() if self._read(place, name) != data]
        if lost:
            raise OSError(errno.EIO, f"{len(lost)} of {len(files)} files were not written as they are")

    def keep(self, job: str, record: Record) -> None:
        """A model that counts at once: one that came back from this server's mates."""
        key = self._keys.make(MODEL, job)
        write_file(self._models / job, seal(record_bytes(record), key.public, what="model", job=job))

    def staged(self, job: str, attempt: int) -> list[str]:
        """The digests of the objects of an attempt."""
        return [name.removesuffix(".object") for name in self._names(self._place(job, attempt), ".object")]

    def item(self, job: str, attempt: int, digest: str) -> Object | None:
        """An object of an attempt; None if no copy of it is whole."""
        data = self._read(self._place(job, attempt), f"{digest}.object")
        return None if data is None else Object.parse(data)

    def commit(self, job: str, attempt: int) -> None:
        """The model counts from here on; what was staged is gone."""
        place = self._place(job, attempt)
        for name in self._names(place, ".model"):
            data = self._read(place, name)
            if data is not None:
                write_file(self._models / job, data)
        shutil.rmtree(place, ignore_errors=True)

    @staticmethod
    def _names(place: Path, ending: str) -> list[str]:
        return sorted({path.name for copy in COPIES for path in (place / copy).glob(f"*{ending}")})

    @staticmethod
    def _read(place: Path, name: str) -> bytes | None:
        """A file whose name is its digest, from the first copy that is whole."""
        for copy in COPIES:
            with suppress(OSError):
                data = (place / copy / name).read_bytes()
                if sha256(data) == name.partition(".")[0]:
                    return data
        return None

    def drop(self, job: str) -> None:
        """Forget all staged attempts of a job."""
        for place in self._staged.glob(f"{job}-*"):
            shutil.rmtree(place, ignore_errors=True)

    def model(self, job: str) -> Record | None:
        """The kept model of a job."""
        key, path = self._keys.of(MODEL, job), self._models / job
        if key is None or not path.exists():
            return None
        return record_of(key.open(path.read_bytes(), what="model", job=job))

    def has_model(self, job: str) -> bool:
        return (self._models / job).exists()

    def models(self) -> list[str]:
        return sorted(path.name for path in self._models.iterdir() if not path.name.endswith(".part"))

    def erase_model(self, job: str) -> bool:
        found = self._keys.destroy(MODEL, job)
        (self._models / job).unlink(missing_ok=True)
        return found

    def _place(self, job: str, attempt: int) -> Path:
        return self._staged / f"{job}-{attempt}"


def record_bytes(record: Record) -> bytes:
    """A record of shares as one message."""
    arrays = {
        name: {"data": data, "ring": [kind.bits, kind.frac, kind.span]}
        for name, (data, kind) in ((n, v) for n, v in record.items() if n != "public")
    }
    return b"".join(encode("record", public=record.get("public", {}), arrays=arrays))


def record_of(data: bytes) -> Record:
    """The inverse of `record_bytes`."""
    fields = message_of(data, "record")
    try:
        arrays = {name: (_shares(value["data"]), RingType(*value["ring"])) for name, value in fields["arrays"].items()}
        return {"public": dict(fields["public"]), **arrays}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ObjectRefused("not a valid record of shares") from None


def _shares(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype != np.uint64:
        raise TypeError
    return value


def audit_digest(audit: list[dict[str, Any]]) -> str:
    """The same on all servers whose audits are equal."""
    return hashlib.sha256(json.dumps(audit, sort_keys=True).encode()).hexdigest()
