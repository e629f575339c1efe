"""The same decomposition by PPCA and by every peer that is given: time, rounds, bytes and accuracy, in one form."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import eigen, mp_spdz, peers
from benchmarks.data_sets import Floats
from benchmarks.slow import SlowServers
from ppca.servers import LocalServers

from .result import Options

TOL = 1e-5
"""The paper's threshold; peers make as many Jacobi steps as our cyclic Jacobi needs for it."""

REPEATS = 3
"""Of our runs, which are short: the median counts. Peers take longer, and have short runs before that warm them up."""

PROBE = (1, 3)
"""Steps of the short runs that a projection is made of."""

Record = dict[str, Any]
Runs = Callable[[Sequence[int]], list[Record]]
"""Runs of a peer with so many steps each."""


def ours(
    d: int, options: Options, solvers: Sequence[str], budget: float, delay: float = 0, rate: float = 0
) -> Iterator[Record]:
    """PPCA's solvers on the matrix of dimension d, servers over mutual TLS."""
    servers = SlowServers(timeout=600, developer=True, tls=True, delay=delay, rate=rate) if delay or rate else None
    with servers or LocalServers(timeout=600, developer=True, tls=True) as running:
        for solver in solvers:
            options.say(f"PPCA, {solver}, d = {d}")
            found = [eigen.measure(running, d, options.data, solver, TOL, budget) for _ in range(REPEATS)]
            row = asdict(sorted(found, key=lambda one: one.seconds)[REPEATS // 2])
            yield {
                "who": "PPCA, all-pairs" if solver == "allpairs" else "PPCA, cyclic Jacobi",
                "parties": "4, semi-honest, one of four",
                "d": d,
                "steps": row["iterations"],
                "messages": None,
                **{key: row[key] for key in ("projected", "seconds", "rounds", "residual", "eigenvalue_error")},
                "bytes": row["bytes_per_server"],
            }


def theirs(d: int, options: Options, budget: float, delay: float = 0, rate: float = 0) -> Iterator[Record]:
    """Every peer that is given, on the same matrix."""
    A, _ = eigen.matrix(d, options.data)
    steps = eigen.plain_iterations(A, "jacobi", TOL)

    def finished(who: str, parties: str, runs: Runs) -> Record:
        options.say(f"{who}, d = {d}")
        return {"who": who, "parties": parties, "d": d, "steps": steps, **whole(A, steps, budget, runs)}

    if options.spu is not None:
        venv = options.spu
        yield finished("SPU, Jacobi", "3, semi-honest, one of three", lambda many: _spu(venv, A, many, delay, rate))
    if options.mp_spdz is not None:
        tree = options.mp_spdz
        for protocol in mp_spdz.PROTOCOLS:

            def runs(many: Sequence[int], protocol: mp_spdz.Protocol = protocol) -> list[Record]:
                return [mp_spdz.measure(tree, protocol, A, one, delay, rate) for one in many]

            yield finished(f"{protocol.name}, Jacobi", f"{protocol.parties}, {protocol.threat}", runs)


def whole(A: Floats, steps: int, budget: float, runs: Runs) -> Record:
    """A run of all steps, or its projection from short ones if it would take longer than the budget."""
    short, longer = runs(PROBE)
    each = {key: (longer[key] - short[key]) / (PROBE[1] - PROBE[0]) for key in ("seconds", "bytes_per_party")}
    for key in ("rounds", "messages_per_party"):
        if key in short:
            each[key] = (longer[key] - short[key]) / (PROBE[1] - PROBE[0])
    projected = each["seconds"] * steps > budget
    found = (
        {key: short[key] + (steps - PROBE[0]) * step for key, step in each.items()} if projected else runs([steps])[0]
    )
    record: Record = {
        "projected": projected,
        "seconds": found["seconds"],
        "rounds": round(found["rounds"]) if "rounds" in found else None,
        "messages": round(found["messages_per_party"]) if "messages_per_party" in found else None,
        "bytes": found["bytes_per_party"],
        "residual": None,
        "eigenvalue_error": None,
    }
    return record if projected else record | errors(A, np.asarray(found["values"]), np.asarray(found["vectors"]))


def errors(A: Floats, values: Floats, V: Floats) -> Record:
    """Residual and eigenvalue error as of `ppca bench eigen`; the pair that padding to even dimension added is left out."""
    d = len(A)
    if len(values) > d:
        kept = np.arange(len(values)) != np.abs(V[d]).argmax()
        values, V = values[kept], V[:d, kept]
    exact = np.linalg.eigvalsh(A)
    return {
        "residual": float(np.linalg.norm(A @ V - V * values) / np.linalg.norm(A)),
        "eigenvalue_error": float(np.abs(np.sort(values) - exact).max() / exact[-1]),
    }


def _spu(venv: Path, A: Floats, steps: Sequence[int], delay: float, rate: float) -> list[Record]:
    with tempfile.TemporaryDirectory(prefix="ppca-peer-") as folder:
        np.save(Path(folder) / "matrix.npy", A)
        arguments = ["--matrix", f"{folder}/matrix.npy", "--steps", *map(str, steps)]
        arguments += ["--delay", str(delay), "--rate", str(rate)]
        found: list[Record] = peers.in_venv(venv, "spu_jacobi", arguments)["runs"]
    return found


def absent(options: Options) -> list[str]:
    """What is not measured because it was not given, and how to give it."""
    said = [] if options.spu else ["SPU was not given: name a virtual environment for it with --spu (made if missing)."]
    if options.mp_spdz is None:
        said += [
            "MP-SPDZ was not given: name a built tree with --mp-spdz (make replicated-ring-party.x rep4-ring-party.x)."
        ]
    return said
