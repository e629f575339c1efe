"""What an attempt brought, kept until all four seats have finished: sealed parts of the result, the audit, a kept model.

It is on the disk before the seat says that it has finished: from then on it can always keep its word. Everything is sealed or
public; a model that is kept is sealed to a key of its own.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from ..federation.errors import ObjectRefused
from ..federation.objects import Object
from ..federation.parcels import message_of
from ..federation.sealing import seal
from ..protocol import RingType
from ..servers.control import encode
from .keys import MODEL, Keys
from .mailbox import write_file

Record = dict[str, Any]


class Staging:
    """Staged attempts by job and number, and the models that are kept."""

    def __init__(self, folder: Path, keys: Keys) -> None:
        self._staged, self._models, self._keys = folder / "staged", folder / "models", keys
        for each in (self._staged, self._models):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)

    def put(self, job: str, attempt: int, items: list[Object], record: Record | None) -> None:
        place = self._place(job, attempt)
        shutil.rmtree(place, ignore_errors=True)
        for item in items:
            write_file(place / f"{item.digest}.object", item.data)
        if record is not None:
            key = self._keys.make(MODEL, job)
            write_file(place / "model", seal(record_bytes(record), key.public, what="model", job=job))

    def keep(self, job: str, record: Record) -> None:
        """A model that counts at once: one that came back from this seat's mates."""
        key = self._keys.make(MODEL, job)
        write_file(self._models / job, seal(record_bytes(record), key.public, what="model", job=job))

    def items(self, job: str, attempt: int) -> list[Object]:
        return [Object.parse(path.read_bytes()) for path in sorted(self._place(job, attempt).glob("*.object"))]

    def commit(self, job: str, attempt: int) -> None:
        """The model counts from here on; what was staged is gone."""
        place = self._place(job, attempt)
        if (place / "model").exists():
            (place / "model").replace(self._models / job)
        shutil.rmtree(place, ignore_errors=True)

    def drop(self, job: str) -> None:
        """Forgets all staged attempts of a job."""
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
        raise ObjectRefused("these bytes are no record of shares") from None


def _shares(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype != np.uint64:
        raise TypeError
    return value


def audit_digest(audit: list[dict[str, Any]]) -> str:
    """The same on all seats whose audits are equal."""
    return hashlib.sha256(json.dumps(audit, sort_keys=True).encode()).hexdigest()
