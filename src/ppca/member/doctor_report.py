"""Findings of `ppca doctor`: what was looked at, what was found, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Level = Literal["good", "note", "wrong"]


@dataclass(frozen=True)
class Finding:
    """level: "wrong" must be mended before jobs run; "note" should be known."""

    level: Level
    where: str
    said: str
    remedy: str = ""


@dataclass
class Findings:
    """All findings in order, and the figures behind them."""

    items: list[Finding] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def good(self, where: str, said: str) -> None:
        self.items.append(Finding("good", where, said))

    def note(self, where: str, said: str, remedy: str) -> None:
        self.items.append(Finding("note", where, said, remedy))

    def wrong(self, where: str, said: str, remedy: str) -> None:
        self.items.append(Finding("wrong", where, said, remedy))

    @property
    def sound(self) -> bool:
        return all(item.level != "wrong" for item in self.items)

    def report(self) -> dict[str, Any]:
        """For JSON. Names, addresses, digests, times: no key and nothing out of a table is ever a finding."""
        return {"sound": self.sound, "findings": [asdict(item) for item in self.items], "figures": self.figures}
