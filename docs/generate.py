"""Generate the parts of pages between markers from their single source in the code.

Costs come from the declarations and from lock-step runs, the protocols of docs/reference/protocols.md from the
docstrings that are the protocols, the index in docs/development/modules.md from the first sentence of every module and
native file. The files of deploy/example are written whole (`examples`).

    python -m docs.generate             writes
    python -m docs.generate --check     writes nothing, exit code 1 if something is out of date
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import textbook
from benchmarks.counting import OPERATIONS as OPERATIONS_COUNTED
from benchmarks.counting import expensive_operations
from ppca.algorithms.allpairs import eigh_allpairs
from ppca.algorithms.eigen import identity_like
from ppca.algorithms.solvers import TOLERANCE
from ppca.native import kernels
from ppca.protocol import Pending, SecretArray, local_parties, run_lockstep, share
from ppca.protocol.cost import PROTOCOLS
from ppca.protocol.dtypes import DEFAULT_FRAC, DEFAULT_SPAN
from ppca.protocol.gates import gate_bytes
from ppca.protocol.signs import sign_bytes

from . import examples, failures

ROOT = Path(__file__).resolve().parent.parent
PROTOCOL = ROOT / "src/ppca/protocol"

PACKAGES = (
    "native",
    "src/ppca/native",
    "src/ppca/transport",
    "src/ppca/protocol",
    "src/ppca/algorithms",
    "src/ppca/jobs",
    "src/ppca/runtime",
    "src/ppca/federation",
    "src/ppca/html",
    "src/ppca/server",
    "src/ppca/owner",
    "src/ppca/receiver",
    "src/ppca/member",
    "src/ppca/estimator",
    "src/ppca/web",
    "src/ppca/cli",
    "benchmarks",
)
"""Folders in the order of the layers, the lowest first. Every package of src/ppca must be here."""

SECTIONS = (
    "party.agree_keys",
    "inputs",
    "multiply",
    "reshare",
    "opening",
    "wrap",
    "gates",
    "signs",
    "compare",
    "normalise",
    "slopes",
    "functions",
    "shuffle",
)
"""The docstrings that are the sections of docs/reference/protocols.md."""

LABEL = re.compile(r"(?:^|(?<=\* )|(?<=\. ))(Operations|Rounds|Sent|Range|Error|Failure|Security|References?): ")

N = 100
"""Elements of every example. A multiple of four, so that the four dealers of a gate have equal parts."""

MANY = 16_000
"""Elements of the averages by width: enough that the rounding of parts to whole bytes does not show."""

COUNTED_COLUMNS = 8
"""Dimension at which the expensive operations of the solvers are counted."""

SERVERS = range(4)
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
    """Rounds, and bytes of the busiest server, of one operation on N elements: four servers in one thread, no
    network."""
    values = np.random.default_rng(0).uniform(0.5, 2.0, (2, N))
    packets = [share(one) for one in values]
    parties = local_parties()

    async def program(server: int) -> None:
        x, y = (SecretArray.from_packet(parties[server], packet[server]) for packet in packets)
        result = operation(x, y)
        if isinstance(result, Pending) or hasattr(result, "__await__"):
            await result

    _, traffic = run_lockstep([program(server) for server in SERVERS])
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
            f"{max(cost.sent(server, N) for server in SERVERS):,}",
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
            key, size = kernels.dpf_key_size(bits, limbs), 8 * limbs
            less = max(sign_bytes(server, MANY, bits, size) for server in SERVERS)
            equal = max(gate_bytes(server, MANY, bits, key, 1, size) for server in SERVERS)
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


def rounds_table() -> str:
    """Iterations and rounds of every solver, from the table of docs/evaluation/benchmarks.md."""
    text = (ROOT / "docs/evaluation/benchmarks.md").read_text()
    lines = (
        text.partition("<!-- eigen-table:begin -->")[2].partition("<!-- eigen-table:end -->")[0].strip().splitlines()
    )
    found: dict[str, dict[str, str]] = {}
    for line in lines[2:]:
        solver, d, iterations, rounds = line.strip("| ").split(" | ")[:4]
        name, _, projected = solver.partition(" ")
        found.setdefault(name, {})[d] = f"{iterations} / {rounds}" + (" " + projected if projected else "")
    rows = [[f"`{name}`", *(own.get(d, "") for d in ROUNDS_AT)] for name, own in found.items()]
    heads = ["iterations / rounds", *(f"d = {d}" for d in ROUNDS_AT)]
    return markdown(heads, rows, set(range(1, len(heads))))


ROUNDS_AT = ("11", "50", "115", "200")
"""Dimensions of that table."""

SPU_BYTES = {"gt": (68, 9), "eq": (39, 8.3)}
"""Bytes per element and messages of a party of SPU 0.9.5 (ABY3, 128-bit ring), measured by `ppca bench spu`."""

NETWORKS = (("0.5 ms", 0.5e-3, "125 MB/s (1 Gbit/s)", 125e6), ("50 ms", 50e-3, "12.5 MB/s (100 Mbit/s)", 12.5e6))
"""Time of a round and bytes per second, in words and numbers."""


def circuits_table() -> str:
    """Bytes of comparisons beside those of bit circuits, and from how many on these win."""
    bits = 2 + DEFAULT_FRAC + DEFAULT_SPAN
    key = kernels.dpf_key_size(bits, 2)
    ours = {
        "gt": max(sign_bytes(server, MANY, bits, 16) for server in SERVERS) / MANY,
        "eq": max(gate_bytes(server, MANY, bits, key, 1, 16) for server in SERVERS) / MANY,
    }
    rows = [
        [name, f"{sent} bytes", f"{messages:g}", f"{ours[name]:.0f} bytes", "2", f"{ours[name] / sent:.0f}"]
        for name, (sent, messages) in SPU_BYTES.items()
    ]
    heads = ["", "SPU, per element", "messages", "PPCA, per element", "rounds", "ratio of bytes"]
    sent, rounds = SPU_BYTES["gt"]
    saved = ours["gt"] - sent
    cases = [
        f"with L = {latency} and B = {rate} from {float(f'{(rounds - 2) * L * B / saved:.2g}'):,.0f} comparisons in one batch"
        for latency, L, rate, B in NETWORKS
    ]
    said = [
        "With L the time of one round, B the bandwidth in bytes per second that one server can send, and r the rounds of the bit",
        "circuit (at most its messages), n comparisons take at least",
        "",
        f"    PPCA            2 L + {ours['gt']:4.0f} n / B",
        f"    bit circuit     r L + {sent:4.0f} n / B",
        "",
        f"So the bit circuit wins, network alone, from about n = (r - 2) L B / {saved:.0f} on: for r = {rounds:g},",
        ", and ".join(cases) + ".",
    ]
    return "\n".join([markdown(heads, rows, set(range(1, len(heads)))), "", *said])


KINDS_COLUMNS, KINDS_ITERATIONS = 50, 17
"""Columns and iterations at which bytes are counted by kind of message."""


def kinds_table() -> str:
    """Bytes of the busiest server in iterations of all-pairs, by kind of message."""
    d = KINDS_COLUMNS
    X = np.random.default_rng(0).standard_normal((4 * d, d))
    A = X.T @ X
    packets, parties = share(A / (1.01 * np.linalg.norm(A))), local_parties()

    async def program(server: int) -> None:
        matrix = SecretArray.from_packet(parties[server], packets[server])
        await eigh_allpairs(matrix, identity_like(matrix), tol=TOLERANCE, fixed_iterations=KINDS_ITERATIONS)

    run_lockstep([program(server) for server in SERVERS])
    sent = max((party.sent for party in parties), key=lambda own: sum(own.values()))
    each = KINDS_ITERATIONS * d * (d - 1) / 2
    kinds = [*sorted(sent.items(), key=lambda item: -item[1]), ("all", sum(sent.values()))]
    rows = [[kind, f"{count / 1e6:,.2f} MB", f"{count / each:,.0f}"] for kind, count in kinds]
    heads = ["kind of message", f"d = {d}, {KINDS_ITERATIONS} iterations", "bytes per pair of columns and iteration"]
    return markdown(heads, rows, {1, 2})


def counts_table() -> str:
    """Expensive operations of one iteration of every solver."""
    counts = expensive_operations(COUNTED_COLUMNS)
    rows = [[f"`{solver}`", *(str(own[kind]) for kind in OPERATIONS_COUNTED)] for solver, own in counts.items()]
    heads = [f"per iteration, d = {COUNTED_COLUMNS}", *OPERATIONS_COUNTED]
    return markdown(heads, rows, set(range(1, len(heads))))


def docstring(source: str) -> str:
    """Name of a module of src/ppca/protocol, or of a function in it: "module.function"."""
    module, _, function = source.partition(".")
    tree = ast.parse((PROTOCOL / f"{module}.py").read_text())
    nodes = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    return ast.get_docstring(nodes[0] if function else tree) or ""


def section(source: str) -> str:
    """A docstring as a section: "Heading: subject.", then its text; lines that begin with a label become a list.

    Its bullets are stars, so that Markdown does not join it to a list of dashes before it.
    """
    title, _, body = docstring(source).partition("\n\n")
    heading, _, subject = title.partition(": ")
    module = f"{source.partition('.')[0]}.py"
    lines = [f"## {heading}", "", f"[`{module}`](../../src/ppca/protocol/{module}): {subject}", ""]
    listing = False
    for line in body.splitlines():
        if LABEL.match(line):
            if not listing and lines[-1]:
                lines.append("")
            listing = True
            line = f"* {line}"
        elif listing:
            listing, line = bool(line), f"  {line}".rstrip()
        if listing:
            line = LABEL.sub(r"**\1:** ", line)
        lines.append(re.sub(r"docs/((?:[\w-]+/)*[\w-]+\.md)", r"[\1](../\1)", line))
    return "\n".join(lines)


def protocol_sections() -> str:
    return "\n\n".join(section(source) for source in SECTIONS)


def first_sentence(text: str) -> str:
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    return re.split(r"(?<=\.)\s+(?=[A-Z`])", paragraph)[0].rstrip(".")


def subject(path: Path) -> str:
    """The first sentence of a Python module's docstring, or of the comment that opens a C++ file."""
    text = path.read_text()
    if path.suffix == ".py":
        return first_sentence(ast.get_docstring(ast.parse(text)) or "")
    opening = re.match(r"(?://.*\n)*", text)
    return first_sentence(re.sub(r"^// ?", "", opening[0], flags=re.MULTILINE)) if opening else ""


def members(folder: Path) -> dict[str, list[Path]]:
    """The files of a package by name; a C++ header and its source are one entry."""
    kinds = {".py", ".cpp", ".hpp"}
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*"), key=lambda p: (p.parent, p.stem, p.suffix == ".cpp")):
        if path.suffix in kinds and path.name not in ("__init__.py", "__main__.py"):
            found.setdefault(str(path.relative_to(folder).with_suffix("")), []).append(path)
    return found


def module_table(folder: str) -> str:
    """The sentence of the package, and a table of its modules."""
    place = ROOT / folder
    about = subject(place / "__init__.py") if (place / "__init__.py").exists() else ""
    rows = []
    for name, files in members(place).items():
        names = [name] if files[0].suffix == ".py" else [str(file.relative_to(place)) for file in files]
        said = [text for text in map(subject, files) if text]
        if not said:
            raise ValueError(f"{files[0].relative_to(ROOT)} does not begin with a sentence that says what it is")
        rows.append([", ".join(f"`{one}`" for one in names), said[0]])
    heading = f"## {folder}\n\n" + (f"{about}.\n\n" if about else "")
    return f"{heading}{markdown(['file' if folder == 'native' else 'module', 'subject'], rows, set())}"


def modules_tables() -> str:
    packages = {f"src/ppca/{init.parent.name}" for init in (ROOT / "src/ppca").glob("*/__init__.py")}
    if missing := packages - set(PACKAGES):
        raise ValueError(f"{sorted(missing)[0]} is not in the list of packages of docs/generate.py")
    return "\n\n".join(module_table(folder) for folder in PACKAGES)


def components_table() -> str:
    """Results of `ppca bench components -o docs`."""
    rows = textbook.load(ROOT / "docs" / "components.json")
    return markdown(list(textbook.HEADINGS), [textbook.cells(row) for row in rows], {1, 3, 4, 5, 6})


WRITTEN: dict[str, tuple[str, Callable[[], str]]] = {
    "operations-table": ("docs/reference/operations.md", operations_table),
    "protocols-table": ("docs/reference/protocols.md", protocols_table),
    "protocol-sections": ("docs/reference/protocols.md", protocol_sections),
    "widths-table": ("docs/reference/protocols.md", widths_table),
    "circuits-table": ("docs/reference/protocols.md", circuits_table),
    "rounds-table": ("docs/concepts/eigensolvers.md", rounds_table),
    "kinds-table": ("docs/concepts/eigensolvers.md", kinds_table),
    "counts-table": ("docs/concepts/eigensolvers.md", counts_table),
    "components-table": ("docs/reference/scikit-learn.md", components_table),
    "failures-table": ("docs/reference/protocols.md", failures.table),
    "modules": ("docs/development/modules.md", modules_tables),
}

SLOW = {"failures-table"}
"""Parts that take some seconds of computing."""


def replaced(text: str, name: str, new: str) -> str:
    """`text` with `new` between the markers of that name."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"markers {begin} ... {end} are missing")
    return f"{before}{begin}\n{new}\n{end}{after}"


def stale(write: bool = False, *, slow: bool = True) -> Iterator[str]:
    """Return the parts that are out of date; with `write`, update them. slow: look at SLOW parts, too."""
    for file, text in examples.files().items():
        path = ROOT / file
        if not path.exists() or path.read_text() != text:
            if write:
                path.write_text(text)
            yield file
    for name, (file, make) in WRITTEN.items():
        if name in SLOW and not slow:
            continue
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
    for part in outdated:
        print(f"{'out of date' if checking else 'written'}: {part}")
    sys.exit(1 if checking and outdated else 0)
