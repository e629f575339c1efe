"""What is public of a model whose shares stay with the servers; and JSON files that are whole or not there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self


@dataclass
class SharedFacts:
    """What is public of a model whose shares stay with the servers: enough to use it, nothing of its content.

    allowed: the operations that the servers agree to, each with its receivers (`ppca.jobs.kept`).
    """

    name: str
    scale_exponents: list[int]
    standardized: bool
    components: int
    rows: int
    feature_names: list[str] | None
    solver: str
    iterations: int
    verified: bool
    fell_back: bool
    allowed: dict[str, list[str]]
    audit: list[dict[str, Any]] = field(default_factory=list)

    FORMAT = "ppca-shared-1"

    def save(self, path: Path) -> None:
        write_whole(path, {"format": self.FORMAT, **asdict(self)})

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            return cls(**read_whole(path, cls.FORMAT))
        except TypeError as error:
            raise ValueError(f"cannot read {path}: {error}") from None


def write_whole(path: Path, data: dict[str, Any]) -> None:
    """JSON with every digit, written whole or not at all."""
    part = path.with_suffix(path.suffix + ".part")
    part.write_text(json.dumps(data, indent=1) + "\n")
    part.replace(path)


def read_whole(path: Path, form: str) -> dict[str, Any]:
    """What was written in this format; anything else is refused."""
    try:
        data = json.loads(path.read_text())
        if not isinstance(data, dict) or data.pop("format", None) != form:
            raise ValueError(f"it is not in the format {form}")
        return data
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
