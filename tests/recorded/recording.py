"""Record the jobs of `cases`: what each opens, its rounds and bytes, and the values that receivers get.

    python -m recorded.recording        (from tests/) write recorded.json again and list what changed

Openings, rounds and bytes are exact. Values differ by rounding from run to run and are compared within a tolerance.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.lockstep import LockstepServers
from recorded.cases import CASES, Values

PATH = Path(__file__).with_name("recorded.json")
DIGITS = 9
"""Significant digits of recorded values. Rounding of the protocols changes later ones from run to run."""


@dataclass(eq=False)
class CountingServers(LockstepServers):
    """Lock-step servers that add up rounds and bytes of all their runs."""

    rounds: int = 0
    sent: list[int] = field(default_factory=lambda: [0, 0, 0, 0])

    def _run(self, *args: Any) -> Any:
        outcome = super()._run(*args)
        self.rounds += outcome.account.rounds
        self.sent = [a + b for a, b in zip(self.sent, outcome.account.bytes_sent, strict=True)]
        return outcome


def record(case: Callable[[LockstepServers], Values]) -> dict[str, Any]:
    """Run one case and return its record."""
    servers = CountingServers()
    values = case(servers)
    audit = [
        [f"{line['what']} {tuple(line['shape'])} to {line['to']}" for line in run[0]]
        for run in servers.audits
        if run[0]
    ]
    return {
        "openings": audit,
        "rounds": servers.rounds,
        "bytes": servers.sent,
        "values": {name: _plain(value) for name, value in values.items()},
    }


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return array.tolist()
    return json.loads(json.dumps(array.tolist()), parse_float=lambda text: float(f"{float(text):.{DIGITS}g}"))


def differences(old: dict[str, Any], new: dict[str, Any], tolerance: float) -> list[str]:
    """What differs between two records: exactly, except for values, of which the largest magnitude sets the scale."""
    found = [
        f"{what}: {old[what]} -> {new[what]}" for what in ("openings", "rounds", "bytes") if old[what] != new[what]
    ]
    if old["values"].keys() != new["values"].keys():
        return [*found, f"values: {sorted(old['values'])} -> {sorted(new['values'])}"]
    for name, value in old["values"].items():
        before, after = np.asarray(value), np.asarray(new["values"][name])
        if before.dtype.kind != "f" or before.shape != after.shape:
            same = before.shape == after.shape and bool((before == after).all())
        else:
            scale = max(1e-300, float(np.abs(before).max(initial=0.0)))
            same = bool((np.abs(after - before) <= tolerance * scale).all())
        if not same:
            found.append(f"{name}: {value} -> {new['values'][name]}")
    return found


def main() -> None:
    old = json.loads(PATH.read_text()) if PATH.exists() else {}
    new = {name: record(case) for name, case in CASES.items()}
    PATH.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in new.items()) + "\n}\n")
    for name in old.keys() | new.keys():
        if name not in old or name not in new:
            print(f"{name}: {'added' if name in new else 'removed'}")
            continue
        for line in differences(old[name], new[name], 1e-6):
            print(f"{name}: {line}")


if __name__ == "__main__":
    sys.exit(main())
