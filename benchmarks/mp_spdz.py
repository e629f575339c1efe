"""An eigendecomposition in MP-SPDZ, from a built tree that the user names: Rep3 (semi-honest) and Rep4 (malicious), 128-bit ring.

`ppca_jacobi.mpc` is compiled and run in a folder of its own; the tree is only read. Time, rounds and bytes are those of MP-SPDZ's
own timer around the decomposition, of the slowest party. Its channels are encrypted, which it does not let a user turn off.
Tried and left out, because the result was wrong: its compiler's options -Z 3 and -Y (mixed circuits).
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

PROGRAM = "ppca_jacobi"
NORM = 64.0
FRACTION, RANGE = 26, 44
"""Fractional bits as in SPU's 128-bit ring, and bits in all: enough for squares of a matrix of this norm."""


@dataclass(frozen=True)
class Protocol:
    name: str
    machine: str
    parties: int
    threat: str


PROTOCOLS = (
    Protocol("MP-SPDZ Rep3", "replicated-ring-party.x", 3, "semi-honest, one of three"),
    Protocol("MP-SPDZ Rep4", "rep4-ring-party.x", 4, "malicious, one of four"),
)


def measure(
    tree: Path, protocol: Protocol, A: Floats, steps: int, delay: float = 0.0, rate: float = 0.0
) -> dict[str, Any]:
    """One decomposition: seconds, rounds, bytes of a party, values and vectors. delay, rate: of slow links between parties."""
    machine = tree.resolve() / protocol.machine
    if not machine.exists():
        raise PeerError(f"no {protocol.machine} in {tree}; build it there: make {protocol.machine}")
    d, norm = len(A), NORM / float(np.linalg.norm(A))
    padded = np.pad(A * norm, (0, d % 2))
    with tempfile.TemporaryDirectory(prefix="ppca-mp-spdz-") as scratch:
        folder = Path(scratch)
        arguments = [str(len(padded)), str(steps), str(FRACTION), str(RANGE)]
        _compile(tree.resolve(), folder, arguments)
        certify = [str(tree.resolve() / "Scripts" / "setup-ssl.sh"), str(protocol.parties)]
        checked(certify, RUN_TIMEOUT, "making certificates for MP-SPDZ's parties", folder)
        np.savetxt(folder / "Player-Data" / "Input-P0-0", padded.reshape(1, -1), fmt="%.17g")
        said = _run(machine, folder, "-".join([PROGRAM, *arguments]), protocol.parties, delay, rate)
    timers = [re.search(r"Time1 = ([\d.e+-]+) seconds \(([\d.e+-]+) MB, (\d+) rounds\)", text) for text in said]
    values = re.search(r"^values \[(.*)\]$", said[0], re.MULTILINE)
    vectors = re.search(r"^vectors \[(.*)\]$", said[0], re.MULTILINE)
    if None in timers or values is None or vectors is None:
        raise PeerError(f"{protocol.name} printed no result; it said:\n{said[0][-2000:]}")
    figures = [timer.groups() for timer in timers if timer is not None]
    return {
        "seconds": max(float(seconds) for seconds, _, _ in figures),
        "bytes_per_party": max(1e6 * float(sent) for _, sent, _ in figures),
        "rounds": max(int(rounds) for _, _, rounds in figures),
        "values": (np.fromstring(values[1], sep=",") / norm).tolist(),
        "vectors": np.fromstring(vectors[1], sep=",").reshape(padded.shape).T.tolist(),
    }


def _compile(tree: Path, folder: Path, arguments: list[str]) -> None:
    for name in ("Programs/Source", "Programs/Schedules", "Programs/Bytecode", "Programs/Public-Input", "Player-Data"):
        (folder / name).mkdir(parents=True)
    with as_file(files("benchmarks") / f"{PROGRAM}.mpc") as source:
        shutil.copyfile(source, folder / "Programs/Source" / f"{PROGRAM}.mpc")
    command = [sys.executable, str(tree / "compile.py"), "-R", "128", "-M", PROGRAM, *arguments]
    checked(command, RUN_TIMEOUT, "MP-SPDZ's compiler", folder)


TRIES = 3
"""Ports are free when they are chosen, and may be taken when a party listens."""


def _run(machine: Path, folder: Path, program: str, parties: int, delay: float, rate: float) -> list[str]:
    """What the parties said, by number."""
    for _ in range(TRIES - 1):
        try:
            return _run_once(machine, folder, program, parties, delay, rate)
        except PeerError as failed:
            if "waiting for peer" not in str(failed):
                raise
    return _run_once(machine, folder, program, parties, delay, rate)


def _run_once(machine: Path, folder: Path, program: str, parties: int, delay: float, rate: float) -> list[str]:
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
            command = [str(machine), "-p", str(number), "--ip-file-name", f"hosts-{number}", program]
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
