"""Writes the cost tables of README.md and docs/protocols.md from the declared costs and from lock-step runs.

python docs/make_protocol_table.py           writes the tables between their markers
python docs/make_protocol_table.py --check   writes nothing, exit code 1 if a table is out of date
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ppca.native import kernels
from ppca.protocol import Pending, SecretArray, local_parties, run_lockstep, share
from ppca.protocol.cost import PROTOCOLS
from ppca.protocol.gates import gate_bytes
from ppca.protocol.signs import sign_bytes

ROOT = Path(__file__).resolve().parent.parent
N = 100
"""Elements of every example. A multiple of four, so that the four dealers of a gate have equal parts."""

MANY = 16_000
"""Elements of the averages by width: enough that the rounding of parts to whole bytes does not show."""

SEATS = range(4)
WIDTHS = (9, 17, 33, 49, 64, 72, 96, 128)

OPERATIONS: dict[str, Callable[[SecretArray, SecretArray], Any]] = {
    "`x + y`, `3 * x`, `x[i]`, `x.sum()`, `x.T`": lambda x, y: (3 * x + y)[::-1],
    "`x * y`": lambda x, y: x * y,
    "`A @ B` (10 x 10)": lambda x, y: x.reshape(10, 10) @ y.reshape(10, 10),
    "`x.inner(y)`": lambda x, y: x.inner(y, axis=0),
    "`x.open(why=...)`": lambda x, y: x.open(why="table"),
    "`x < y`, `<=`, `>`, `>=`": lambda x, y: x < y,
    "`x == y`, `!=`": lambda x, y: x == y,
    "`x.sign()`": lambda x, y: x.sign(),
    "`x.lookup(thresholds, values)`": lambda x, y: x.lookup([0.5, 1.0, 1.5], [1.0, 2.0, 3.0, 4.0]),
    "`abs(x)`": lambda x, y: abs(x),
    "`where(bit, x, y)`": lambda x, y: SecretArray.constant(x.party, np.arange(N) % 2).where(x, y),
    "`x.rsqrt()`": lambda x, y: x.rsqrt(),
    "`x.sqrt()`": lambda x, y: x.sqrt(),
    "`x.reciprocal()`, x > 0": lambda x, y: x.reciprocal(),
    "`x / y`, y of any sign": lambda x, y: x / y,
    "`x.shuffle()`": lambda x, y: x.shuffle(),
    "`x.sort()`": lambda x, y: x.sort(),
}


def measure(operation: Callable[[SecretArray, SecretArray], Any]) -> tuple[int, int]:
    """Rounds, and bytes of the busiest seat, of one operation on N elements: four servers in one thread, no network."""
    values = np.random.default_rng(0).uniform(0.5, 2.0, (2, N))
    packets = [share(one) for one in values]
    parties = local_parties()

    async def program(seat: int) -> None:
        x, y = (SecretArray.from_packet(parties[seat], packet[seat]) for packet in packets)
        result = operation(x, y)
        if isinstance(result, Pending) or hasattr(result, "__await__"):
            await result

    _, traffic = run_lockstep([program(seat) for seat in SEATS])
    return traffic.rounds, max(traffic.sent)


def markdown(headings: list[str], rows: list[list[str]], right: set[int]) -> str:
    """A table; the columns numbered in `right` are numbers."""
    rule = ["---:" if i in right else "---" for i in range(len(headings))]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [headings, rule, *escaped])


def operations_table() -> str:
    rows = []
    for name, operation in OPERATIONS.items():
        rounds, sent = measure(operation)
        rows.append([name, str(rounds), f"{sent:,}"])
    return markdown(["operation", "rounds", f"bytes sent by the busiest server, {N} elements"], rows, {1, 2})


def protocols_table() -> str:
    rows = [
        [
            f"`{cost.name}`",
            str(cost.rounds(N)),
            f"{max(cost.sent(seat, N) for seat in SEATS):,}",
            cost.bytes_text,
            cost.input_range,
            cost.error,
            cost.failure,
        ]
        for cost in PROTOCOLS.values()
    ]
    headings = [
        "protocol",
        "rounds",
        f"bytes, n = {N}",
        "bytes per server",
        "input range",
        "error",
        "failure probability",
    ]
    return markdown(headings, rows, {1, 2})


def widths_table() -> str:
    """Bytes of one comparison and one equality by the bits of the range they work on."""
    rows = []
    for bits in WIDTHS:
        cells = [str(bits), f"{16 + kernels.sign_words(1, bits):,}"]
        for limbs in (2, 1):
            key, size = kernels.dpf_key_size(bits, limbs, False), 8 * limbs
            less = max(sign_bytes(seat, MANY, bits, size) for seat in SEATS)
            equal = max(gate_bytes(seat, MANY, bits, key, 1, size) for seat in SEATS)
            cells += [f"{sent / MANY:,.0f}" if bits <= 64 * limbs else "" for sent in (less, equal)]
        rows.append(cells)
    headings = [
        "bits of range",
        "one key of lt",
        "lt, 128-bit ring",
        "eq, 128-bit ring",
        "lt, 64-bit ring",
        "eq, 64-bit ring",
    ]
    return markdown(headings, rows, set(range(6)))


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "operations-table": ("README.md", operations_table),
    "protocols-table": ("docs/protocols.md", protocols_table),
    "widths-table": ("docs/protocols.md", widths_table),
}


def replaced(text: str, name: str, table: str) -> str:
    """`text` with `table` between the markers of that name."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"markers {begin} ... {end} are missing")
    return f"{before}{begin}\n{table}\n{end}{after}"


def stale(write: bool = False) -> Iterator[str]:
    """Names of the tables that are out of date; with `write` they are brought up to date."""
    for name, (file, make) in TABLES.items():
        path = ROOT / file
        text = path.read_text()
        new = replaced(text, name, make())
        if new != text:
            if write:
                path.write_text(new)
            yield f"{name} in {file}"


if __name__ == "__main__":
    checking = "--check" in sys.argv[1:]
    outdated = list(stale(write=not checking))
    for table in outdated:
        print(f"{'out of date' if checking else 'written'}: {table}")
    sys.exit(1 if checking and outdated else 0)
