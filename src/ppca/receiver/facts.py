"""Public facts of a kept model, and atomic reading and writing of JSON files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from ..runtime.files import write_whole

MAX_EXPONENT = 1100
"""Maximum magnitude of a scale exponent: scales are powers of two around the doubles of the data."""


@dataclass
class SharedFacts:
    """Public facts of a model whose shares stay on the servers. They are sufficient to use it and do not reveal it.

    allowed: the operations that the servers agree to, each with its receivers (`ppca.jobs.kept`). tolerance: as in
    `PCAModel`.
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
    tolerance: float
    audit: list[dict[str, Any]] = field(default_factory=list)

    FORMAT = "ppca-shared-2"

    def save(self, path: Path) -> None:
        write_whole(path, (json.dumps({"format": self.FORMAT, **asdict(self)}, indent=1) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            facts = cls(**read_whole(path, cls.FORMAT))
        except TypeError as error:
            raise ValueError(f"cannot read {path}: {error}") from None
        wrong = [name for name, good in facts._checks().items() if not good]
        if wrong:
            raise ValueError(
                f"cannot read {path}: {' and '.join(wrong)} cannot be of a model. Put the file back as `ppca fit` "
                "wrote it, or fit again."
            )
        return facts

    def _checks(self) -> dict[str, bool]:
        """Return whether each field is of its type, and of a model's size."""
        exponents, names = self.scale_exponents, self.feature_names
        scaled = _all(exponents, _small) and exponents != []
        width = len(exponents) if scaled else None
        return {
            "name": isinstance(self.name, str) and self.name != "",
            "scale_exponents": scaled,
            "standardized": isinstance(self.standardized, bool),
            "components": _whole(self.components) and 1 <= self.components <= (width or self.components),
            "rows": _whole(self.rows) and self.rows >= 1,
            "feature_names": names is None or (_all(names, _text) and width in (None, len(names))),
            "solver": isinstance(self.solver, str),
            "iterations": _whole(self.iterations) and self.iterations >= 0,
            "verified": isinstance(self.verified, bool),
            "fell_back": isinstance(self.fell_back, bool),
            "tolerance": type(self.tolerance) is float and 0 < self.tolerance < 1,
            "allowed": isinstance(self.allowed, dict) and all(_all(to, _text) for to in self.allowed.values()),
            "audit": _all(self.audit, _opening),
        }


def _all(values: Any, good: Callable[[Any], bool]) -> bool:
    return isinstance(values, list) and all(map(good, values))


def _whole(value: Any) -> bool:
    return type(value) is int and value < 1 << 63  # a bool is an int to isinstance


def _small(value: Any) -> bool:
    return _whole(value) and abs(value) <= MAX_EXPONENT


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _opening(line: Any) -> bool:
    """A line of the audit: what, its shape, to whom, why."""
    return (
        isinstance(line, dict)
        and all(_text(line.get(key)) for key in ("what", "to", "why"))
        and _all(line.get("shape"), _whole)
    )


def read_whole(path: Path, form: str) -> dict[str, Any]:
    """Read a file of this format; raise for anything else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or data.pop("format", None) != form:
            raise ValueError(f"it is not in the format {form}")
        return data
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
