"""A job as everybody has it: its file, and the exact bytes of the file, whose digest is its id."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from . import toml
from .disclosure import check_lists
from .jobfile import JOB_FILE, JobFile
from .objects import sha256


class JobDescription:
    """A job: its file and the file's bytes."""

    def __init__(self, data: bytes, label: str = JOB_FILE) -> None:
        self.file = toml.parse(JobFile, data, label)
        self.data = data
        self.id = sha256(data)
        check_lists(self.file, label)

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls(toml.read(path / JOB_FILE if path.is_dir() else path), str(path))

    @property
    def name(self) -> str:
        return self.file.name
