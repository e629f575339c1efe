"""`ppca bench fuzz`: malformed inputs of servers, owners and a federation. Each is refused by name, or is good.

An input is made from a good one by cutting, flipping, repeating and joining bytes or, if it has a structure, by
putting wrong values into it (a number where a list was, 10^20, -1). It depends on its number only, so a finding can be
repeated. Every target runs in a process of its own with bounded memory; what is neither accepted nor refused with the
error it is meant to raise is a finding, and so is a crash, or an input that takes longer than `PATIENCE`.
"""

from __future__ import annotations

import faulthandler
import io
import json
import multiprocessing
import resource
import socket
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from rich.table import Table

from benchmarks import table_console
from benchmarks.fuzz_federation import TARGETS as FEDERATION
from benchmarks.malformed import Refusals, Target, made
from ppca.jobs.chunks import Chunk
from ppca.jobs.uploads import JobUploads
from ppca.owner.errors import OwnerError
from ppca.owner.tables.opening import open_table
from ppca.protocol import FIXED, Sealed, share
from ppca.protocol.inputs import receive
from ppca.receiver import SharedFacts
from ppca.runtime import CodecError, PerServer
from ppca.runtime.control import ChannelClosed, MessageReader, encode
from ppca.runtime.messages import fields_of, part_of
from ppca.runtime.store import Store, StoreError
from ppca.transport import TransportError
from ppca.transport.frames import HELLO, pack_header
from ppca.transport.greeting import read_hello
from ppca.web.report import duration, size
from ppca.web.report.account import opening_lines

PATIENCE = 10.0
"""Seconds that one input may take."""

TOGETHER = 100
"""Inputs that must be through before the process is ended by force: few enough for a machine with much else to do."""

MEMORY = 1 << 30
"""Bytes of address space that a target may take beyond what it has when it starts."""

MAX_INPUT = 1 << 20
"""Bytes of inputs that the simulated operator allows."""


@dataclass
class Tally:
    """Outcomes of the inputs of a target."""

    target: str
    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    slowest: float = 0.0
    seconds: float = 0.0
    memory: int = 0
    findings: list[str] = field(default_factory=list)


# -- targets
# -------------------------------------------------------------------------------------------------------------


class Bytes:
    """A connection whose other end has sent these bytes and hung up."""

    def __init__(self, content: bytes) -> None:
        self._file = io.BytesIO(content)

    def recv_into(self, buffer: Any) -> int:
        return self._file.readinto(buffer)


def read_message(content: bytes) -> tuple[str, dict[str, Any]]:
    reader, connection = MessageReader(longest=4 * MAX_INPUT), Bytes(content)
    while (message := reader.read(connection)) is None:  # type: ignore[arg-type]
        pass
    return message


def feed_chunk(content: bytes, number: int, folder: Path) -> None:
    """As a server takes a chunk: message, packets, sizes, then shares."""
    uploads = JobUploads(number % 4, MAX_INPUT)
    try:
        uploads.add(part_of(read_message(content)[1]))
        for packet in uploads._packets:
            receive(packet, *divmod(number % 4, 2))
        for spool in uploads.rows.values():
            spool.take(slice(None))
    finally:
        uploads.close()


def chunk_seeds() -> list[bytes]:
    """Two per server, in their order: those of server 0 have keys only, which stand for any shape."""
    inputs = Chunk(0, [share(np.ones((3, 2))), share(np.arange(4)), share(np.ones((30, 20)))])
    rows = Chunk(1, [share(np.ones((30, 4)))], rows=True, tags=np.arange(60, dtype=np.uint64).reshape(30, 2))
    return [
        b"".join(encode("chunk", **fields_of(chunk.part(server)))) for chunk in (inputs, rows) for server in range(4)
    ]


def feed_message(content: bytes, number: int, folder: Path) -> None:
    read_message(content)


def message_seeds() -> list[bytes]:
    sealed = Sealed("client", (2,), FIXED, bytes(32))
    result = {"a": sealed, "b": PerServer([1.5]), "c": np.eye(2), "d": ["text", None, True, {"e": np.array(["x"])}]}
    stats = {"total": {"rounds": 3, "sent_to": [1, 2, 3, 4]}, "stages": {}}
    made = [
        encode(
            "connect", session="00" * 16, addresses={"0": ["127.0.0.1", 9]}, tls=None, timeout=1.0, start_timeout=1.0
        ),
        encode("done", result=result, seconds=0.1, stats=stats, audit=[{"number": 1, "what": "x", "shape": [2]}]),
        encode("failed", server=1, error="no", trace="", step=3, rank=0),
        encode("progress", text="half", fraction=0.5, rounds=7),
    ]
    return [b"".join(pieces) for pieces in made]


def feed_greeting(content: bytes, number: int, folder: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(content[: 1 << 16])
        read_hello(ours, 0, None, b"session", time.monotonic() + 1.0)


def greeting_seeds() -> list[bytes]:
    return [pack_header(HELLO, server, 0, 8) + b"\0session" for server in (1, 2, 3)]


def feed_store(content: bytes, number: int, folder: Path) -> None:
    (folder / "local").mkdir(exist_ok=True)
    (folder / "local" / "m.npz").write_bytes(content)
    Store(folder)["m"]


def store_seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        store = Store(Path(name))
        store["m"] = {
            "public": {"rows": 3, "allowed": {"flags": ["client"]}},
            "mean": (np.ones((2, 3, 2), np.uint64), FIXED),
        }
        store["n"] = {"public": {}}
        return [path.read_bytes() for path in sorted(Path(name).glob("*/*.npz"))]


def feed_facts(content: bytes, number: int, folder: Path) -> None:
    (folder / "shared.json").write_bytes(content)
    """Check that accepted inputs can be used as the commands use them."""
    facts = SharedFacts.load(folder / "shared.json")
    np.ldexp(1.0, np.asarray(facts.scale_exponents, np.int64))
    opening_lines(facts.audit)
    f"{facts.rows:,} {facts.components:,} {facts.solver.lower()} {facts.name.lower()} "
    f"{''.join(facts.feature_names or ())}"
    for receivers in facts.allowed.values():
        " and ".join(receivers)


def facts_seeds() -> list[bytes]:
    audit = [{"what": "means", "shape": [2], "to": "receiver", "why": "the result"}]
    facts = SharedFacts(
        "m", [1, 2], False, 2, 10, ["a", "b"], "allpairs", 9, True, False, {"flags": ["client"]}, 1e-9, audit
    )
    with tempfile.TemporaryDirectory() as name:
        facts.save(Path(name) / "f.json")
        return [(Path(name) / "f.json").read_bytes()]


ENDINGS = ("csv", "tsv", "csv.gz", "parquet", "arrow", "npy", "npz")


def feed_table(content: bytes, number: int, folder: Path) -> None:
    path = folder / f"table.{ENDINGS[number % len(ENDINGS)]}"
    path.write_bytes(content)
    for _ in open_table(path).chunks():
        pass


def table_seeds() -> list[bytes]:
    """One per ending, in their order."""
    import gzip

    values = np.arange(24.0).reshape(8, 3) / 7
    frame = pa.table({name: values[:, i] for i, name in enumerate("abc")})
    text = "a,b,c\n" + "\n".join(",".join(map(str, row)) for row in values.tolist()) + "\n"
    npy, npz, parquet, arrow = io.BytesIO(), io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(npy, values)
    np.savez(npz, X=values)
    pa.parquet.write_table(frame, parquet)
    pa.feather.write_feather(frame, arrow, compression="uncompressed")
    files = [parquet, arrow, npy, npz]
    gz = gzip.compress(text.encode(), mtime=0)
    return [text.encode(), text.replace(",", "\t").encode(), gz, *(file.getvalue() for file in files)]


CODEC: Refusals = (CodecError, ChannelClosed)
TARGETS: dict[str, Target] = {
    "chunks": Target(chunk_seeds, feed_chunk, (*CODEC, ValueError), 14, structured=True),
    "control messages": Target(message_seeds, feed_message, CODEC, 12, structured=True),
    "greetings": Target(greeting_seeds, feed_greeting, (TransportError, OSError), 4),
    "stores": Target(store_seeds, feed_store, (StoreError,), 4),
    "shared facts": Target(facts_seeds, feed_facts, (ValueError,), 4, structured=True),
    "tables": Target(table_seeds, feed_table, (OwnerError,), 4),
    **FEDERATION,
}
"""The number beside each is its part of all inputs, in hundredths."""


# -- runs
# ----------------------------------------------------------------------------------------------------------------


def run_target(name: str, first: int, count: int, most: int = 5) -> Tally:
    """Feed inputs of a target; keep a limited number of findings."""
    target, tally = TARGETS[name], Tally(name)
    seeds = target.seeds()
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ppca-fuzz-") as place:
        for number in range(first, first + count):
            content = made(seeds, number, target.structured)
            start = time.perf_counter()
            try:
                target.feed(content, number, Path(place))
                tally.accepted += 1
            except target.refusals:
                tally.refused += 1
            except Exception as error:
                if len(tally.findings) < most:
                    tally.findings.append(f"input {number}: {type(error).__name__}: {str(error)[:120]}")
            spent = time.perf_counter() - start
            tally.slowest = max(tally.slowest, spent)
            if spent > PATIENCE and len(tally.findings) < most:
                tally.findings.append(f"input {number}: took {spent:.0f} s")
            tally.inputs += 1
    tally.seconds = time.perf_counter() - begin
    return tally


def _in_bounds(name: str, first: int, count: int, answer: Any) -> None:
    """A target in this process, with bounded memory, ended by force if one input never ends."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    done = Tally(name)
    for start in range(first, first + count, TOGETHER):
        faulthandler.dump_traceback_later(60 + 2 * PATIENCE, exit=True)
        part = run_target(name, start, min(TOGETHER, first + count - start))
        for key in ("inputs", "accepted", "refused", "seconds"):
            setattr(done, key, getattr(done, key) + getattr(part, key))
        done.slowest = max(done.slowest, part.slowest)
        done.findings += part.findings
        done.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        answer.send(done)


def in_own_process(name: str, first: int, count: int) -> Tally:
    """The same in a process of its own; if it dies, the tally so far says so."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_in_bounds, args=(name, first, count, theirs))
    process.start()
    theirs.close()
    tally = Tally(name)
    try:
        while True:
            tally = ours.recv()
    except EOFError:
        process.join()
    if process.exitcode != 0:
        tally.findings.append(f"the process ended with {process.exitcode} after input {first + tally.inputs}")
    return tally


def main(inputs: int, first: int, output: Path) -> bool:
    """All targets, a table, and JSON; whether there were no findings."""
    output.mkdir(parents=True, exist_ok=True)
    console = table_console()
    tallies = []
    with console.status("") as status:
        for name, target in TARGETS.items():
            status.update(f"{name}: {inputs * target.share // 100:,} inputs")
            tallies.append(in_own_process(name, first, inputs * target.share // 100))
            content = {"first": first, "targets": [asdict(one) for one in tallies]}
            (output / "fuzz.json").write_text(json.dumps(content, indent=1))  # also if the rest is interrupted
    table = Table("target", title="Malformed inputs", title_justify="left")
    for heading in ("inputs", "accepted", "refused", "findings", "slowest", "peak memory", "time"):
        table.add_column(heading, justify="right")
    for one in tallies:
        found = one.inputs - one.accepted - one.refused
        figures = (one.inputs, one.accepted, one.refused, max(found, len(one.findings)))
        table.add_row(
            one.target, *(f"{n:,}" for n in figures), duration(one.slowest), size(one.memory), duration(one.seconds)
        )
    console.print(table)
    for one in tallies:
        for finding in one.findings[:5]:
            console.print(f"{one.target}: {finding}", markup=False, highlight=False, soft_wrap=True)
    return not any(one.findings for one in tallies)
