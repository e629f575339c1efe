"""An eigendecomposition in MP-SPDZ, from built trees that the user names: Rep3 (semi-honest) and Rep4 (malicious),
128-bit ring.

Two programs: `ppca_jacobi.mpc` is what a user that knows the framework would write first, `ppca_jacobi_tuned.mpc` the
best that we know. A program is compiled and run in a folder of its own; the tree is only read. Time, rounds and bytes
are those of MP-SPDZ's own timer around the decomposition, of the slowest party. Channels are TLS; a tree that was built
with -DINSECURE also has plain ones (its option -u).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data_sets import Floats
from benchmarks.peers import RUN_TIMEOUT, PeerError, checked
from benchmarks.proxy import Proxy
from ppca.transport import free_ports


@dataclass(frozen=True)
class Protocol:
    """parties: also what `split` takes: the number of summands that a share is split into locally."""

    name: str
    machine: str
    parties: int
    threat: str


PROTOCOLS = (
    Protocol("MP-SPDZ Rep3", "replicated-ring-party.x", 3, "semi-honest, one of three"),
    Protocol("MP-SPDZ Rep4", "rep4-ring-party.x", 4, "malicious, one of four"),
)


@dataclass(frozen=True)
class Program:
    """One of our two programs and how it is compiled.

    tol: what the off-diagonal is to be relative to the matrix: as small as its fractional bits allow. exact: its
    rotations make an entry zero; others have approximate angles and need more steps. largest: the largest eigenvalue of
    the matrix is scaled to this, where the fractional bits are used best. options: of the compiler. arguments: behind
    dimension and steps, `{parties}` filled in.
    """

    name: str
    file: str
    tol: float
    exact: bool
    largest: float
    options: tuple[str, ...]
    arguments: tuple[str, ...]


SIMPLE = Program("simple", "ppca_jacobi", 1e-6, False, 32.0, ("-R", "128"), ("26", "44"))
"""26 fractional bits as in SPU's 128-bit ring, and 44 bits in all: enough for squares of such a matrix."""

TUNED = Program(
    "tuned",
    "ppca_jacobi_tuned",
    1e-8,
    True,
    8.0,
    ("-O", "-b", "10000000", "-R", "128"),
    ("f32", "k63", "trunc_pr", "split{parties}"),
)


def measure(
    tree: Path,
    protocol: Protocol,
    program: Program,
    A: Floats,
    steps: int,
    *,
    tls: bool = True,
    delay: float = 0.0,
    rate: float = 0.0,
) -> dict[str, Any]:
    """One decomposition: seconds, rounds, bytes of a party, values and vectors. delay, rate: of slow links between
    parties."""
    machine = tree.resolve() / protocol.machine
    if not machine.exists():
        raise PeerError(f"no {protocol.machine} in {tree}; build it there: make {protocol.machine}")
    scale = program.largest / float(np.linalg.eigvalsh(A)[-1])
    matrix = padded(A * scale)
    with tempfile.TemporaryDirectory(prefix="ppca-mp-spdz-") as scratch:
        folder = Path(scratch)
        arguments = [str(len(matrix)), str(steps)]
        arguments += [one.format(parties=protocol.parties) for one in program.arguments]
        _compile(tree.resolve(), folder, program, arguments)
        if tls:
            certify = [str(tree.resolve() / "Scripts" / "setup-ssl.sh"), str(protocol.parties)]
            checked(certify, RUN_TIMEOUT, "making certificates for MP-SPDZ's parties", folder)
        np.savetxt(folder / "Player-Data" / "Input-P0-0", matrix.reshape(1, -1), fmt="%.17g")
        name = "-".join([program.file, *arguments])
        said = _run(machine, folder, name, protocol.parties, [] if tls else ["-u"], delay, rate)
        found = np.fromfile(folder / "Player-Data" / "Binary-Output-P0-0", np.float64)
    timers = [re.search(r"Time1 = ([\d.e+-]+) seconds \(([\d.e+-]+) MB, (\d+) rounds\)", text) for text in said]
    if None in timers or len(found) != len(matrix) * (len(matrix) + 1):
        raise PeerError(f"{protocol.name} gave no result; it said:\n{said[0][-2000:]}")
    figures = [timer.groups() for timer in timers if timer is not None]
    return {
        "seconds": max(float(seconds) for seconds, _, _ in figures),
        "bytes_per_party": max(1e6 * float(sent) for _, sent, _ in figures),
        "rounds": max(int(rounds) for _, _, rounds in figures),
        "values": (found[: len(matrix)] / scale).tolist(),
        "vectors": found[len(matrix) :].reshape(matrix.shape).T.tolist(),
    }


def padded(A: Floats) -> Floats:
    """The matrix with an even dimension; what is added is an eigenvalue far from all others, so that nothing mixes with
    it."""
    d = len(A)
    matrix = np.pad(A, (0, d % 2))
    if d % 2:
        matrix[d, d] = -0.5 * np.trace(A) / d
    return matrix


def _compile(tree: Path, folder: Path, program: Program, arguments: list[str]) -> None:
    for name in ("Programs/Source", "Programs/Schedules", "Programs/Bytecode", "Programs/Public-Input", "Player-Data"):
        (folder / name).mkdir(parents=True)
    with as_file(files("benchmarks") / f"{program.file}.mpc") as source:
        shutil.copyfile(source, folder / "Programs/Source" / f"{program.file}.mpc")
    command = [sys.executable, str(tree / "compile.py"), *program.options, program.file, *arguments]
    checked(command, RUN_TIMEOUT, "MP-SPDZ's compiler", folder)


TRIES = 3
"""Ports are free when they are chosen, and may be taken when a party listens."""


def _run(
    machine: Path, folder: Path, program: str, parties: int, options: list[str], delay: float, rate: float
) -> list[str]:
    """Return what the parties said, by number."""
    for _ in range(TRIES - 1):
        try:
            return _run_once(machine, folder, program, parties, options, delay, rate)
        except PeerError as failed:
            if "waiting for peer" not in str(failed):
                raise
    return _run_once(machine, folder, program, parties, options, delay, rate)


def _run_once(
    machine: Path, folder: Path, program: str, parties: int, options: list[str], delay: float, rate: float
) -> list[str]:
    ports = free_ports(parties)
    with ExitStack() as stack:
        dialled = ports
        if delay or rate:
            links = [Proxy(("127.0.0.1", port), delay=delay, rate=rate) for port in ports]
            for link in links:
                stack.callback(link.close)
            dialled = [link.port for link in links]
        running = []
        for number in range(parties):
            hosts = [f"127.0.0.1:{(ports if i == number else dialled)[i]}" for i in range(parties)]
            (folder / f"hosts-{number}").write_text("\n".join(hosts) + "\n")
            command = [str(machine), "-p", str(number), "--ip-file-name", f"hosts-{number}", *options, program]
            party = subprocess.Popen(  # noqa: S603 - the user's own tree
                command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            )
            stack.callback(party.wait)
            stack.callback(party.kill)
            running.append(party)
        said = [party.communicate(timeout=RUN_TIMEOUT)[0] for party in running]
    for number, party in enumerate(running):
        if party.returncode:
            raise PeerError(
                f"party {number} of {machine.name} ended with {party.returncode}; it said:\n{said[number][-2000:]}"
            )
    return said
