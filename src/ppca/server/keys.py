"""The keys of a server's jobs: one file each. A job, or a kept model, is erased by destroying its key."""

from __future__ import annotations

import os
from pathlib import Path

from ..federation.errors import ObjectRefused
from ..federation.sealing import SealingKey
from .mailbox import write_file

JOB, MODEL = "job", "model"


class Keys:
    """Sealing keys by kind and job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for part in folder.glob("*.part"):
            part.unlink(missing_ok=True)

    def of(self, kind: str, job: str) -> SealingKey | None:
        path = self._path(kind, job)
        return SealingKey.from_bytes(path.read_bytes()) if path.exists() else None

    def make(self, kind: str, job: str) -> SealingKey:
        """A new key; the one that is there, if there is one that can be read."""
        try:
            key = self.of(kind, job)
        except ObjectRefused:
            key = None
        if key is None:
            key = SealingKey()
            write_file(self._path(kind, job), key.to_bytes())
        return key

    def destroy(self, kind: str, job: str) -> bool:
        """Overwrite and delete a key; False if there was none."""
        path = self._path(kind, job)
        if not path.exists():
            return False
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()
        return True

    def _path(self, kind: str, job: str) -> Path:
        return self._folder / f"{kind}-{job}.key"
