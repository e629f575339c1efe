"""Run the same decomposition by PPCA and by every peer that is given: time, rounds, bytes and accuracy, in one form."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import eigen, mp_spdz, peers
from benchmarks.data_sets import Floats
from benchmarks.slow import SlowServers
from ppca.runtime import LocalServers

from .result import Options

TOL = 1e-7
"""Tolerance asked of PPCA: about the residual that MP-SPDZ's tuned program reaches with its 32 fractional bits."""

REPEATS = 3
"""Number of runs of PPCA, which are short: the median counts. Peers take longer, and have short runs before that warm
them up."""

PROBE = (1, 3)
"""Steps of the short runs that a projection is made of."""

CYCLIC = "cyclic Jacobi"
PARTIES = "4, semi-honest, one of four"

Record = dict[str, Any]
Runs = Callable[[Sequence[int]], list[Record]]
"""Runs of a peer, one for each number of steps."""


def ours(
    d: int,
    options: Options,
    solvers: Sequence[str],
    budget: float,
    *,
    tls: bool = True,
    delay: float = 0,
    rate: float = 0,
) -> Iterator[Record]:
    """PPCA's solvers on the matrix of dimension d."""
    slow = SlowServers(timeout=600, developer=True, tls=tls, delay=delay, rate=rate) if delay or rate else None
    with slow or LocalServers(timeout=600, developer=True, tls=tls) as running:
        for solver in solvers:
            options.say(f"PPCA, {solver}, d = {d}")
            measured = partial(eigen.measure_matrix, running, separated(d), "synthetic", solver, TOL, budget)
            found = [measured() for _ in range(REPEATS)]
            row = asdict(sorted(found, key=lambda one: one.seconds)[REPEATS // 2])
            yield {
                "system": "PPCA",
                "method": "all-pairs" if solver == "allpairs" else CYCLIC,
                "parties": PARTIES,
                "channel": channel(tls),
                "d": d,
                "steps": row["iterations"],
                "messages": None,
                **{key: row[key] for key in ("projected", "seconds", "rounds", "residual", "eigenvalue_error")},
                "bytes": row["bytes_per_server"],
            }


def separated(d: int) -> Floats:
    """A correlation matrix whose eigenvalues are well apart: d / 3 factors of falling strength and noise.

    The peers' programs have 26 or 32 fractional bits. If two eigenvalues agree to half of them, as in MOOCCube and
    N-BaIoT, the square of their distance is lost and so are digits of the eigenvectors. Here every program reaches what
    its bits allow.
    """
    random = np.random.default_rng(1)
    count = max(3, d // 3)
    strength = (0.7 ** np.arange(count))[:, None]
    X = random.standard_normal((20 * d, count)) @ (random.standard_normal((count, d)) * strength)
    return eigen.scaled(np.asarray(np.corrcoef((X + 0.35 * random.standard_normal(X.shape)).T), np.float64))


def channel(tls: bool) -> str:
    return "TLS" if tls else "plain"


def theirs(
    d: int,
    options: Options,
    budget: float,
    *,
    tls: bool = True,
    programs: Sequence[mp_spdz.Program] = (mp_spdz.TUNED,),
    delay: float = 0,
    rate: float = 0,
) -> Iterator[Record]:
    """Every peer that has this kind of channel, on the same matrix. SPU has plain ones only."""
    A = separated(d)

    def finished(who: str, program: mp_spdz.Program, parties: str, kind: str, runs: Runs) -> Record:
        method = f"{CYCLIC}, {program.name}"
        options.say(f"{who}, {method}, {kind} channels, d = {d}")
        steps = steps_of(d, program)
        named = {"system": who, "method": method, "parties": parties, "channel": kind, "d": d, "steps": steps}
        return named | whole(A, steps, budget, runs)

    tree = options.mp_spdz if tls else options.mp_spdz_plain
    if tree is not None:
        for protocol, program in itertools.product(mp_spdz.PROTOCOLS, programs):

            def runs(
                many: Sequence[int], protocol: mp_spdz.Protocol = protocol, program: mp_spdz.Program = program
            ) -> list[Record]:
                measured = partial(mp_spdz.measure, tree, protocol, program, A, tls=tls, delay=delay, rate=rate)
                return [measured(one) for one in many]

            parties = f"{protocol.parties}, {protocol.threat}"
            yield finished(protocol.name, program, parties, channel(tls), runs)
    if options.spu is not None and (not tls or delay or rate):
        venv = options.spu

        def in_spu(many: Sequence[int]) -> list[Record]:
            return _spu(venv, A, many, delay, rate)

        yield finished("SPU", mp_spdz.SIMPLE, "3, semi-honest, one of three", channel(False), in_spu)


def exact_steps(A: Floats, tol: float) -> int:
    """Steps of a cyclic Jacobi with exact rotations, in the order of the peers' programs, until |off-diagonal| < tol
    |A|."""
    A = mp_spdz.padded(A)
    d, norm = len(A), float(np.linalg.norm(A))
    m = d // 2
    came_from = [0, m, *range(1, m - 1), *range(m + 1, d), m - 1] if m > 1 else [0, 1]

    def turned(rows: Floats, c: Floats, s: Floats) -> Floats:
        upper, lower = rows[:m], rows[m:]
        both: Floats = np.concatenate([c * upper - s * lower, s * upper + c * lower])[came_from]
        return both

    steps = 0
    while np.linalg.norm(A - np.diag(np.diag(A))) >= tol * norm:
        a, h = np.diag(A[:m, m:]), np.diag(A)[m:] - np.diag(A)[:m]
        angle = 0.5 * np.arctan2(2 * a * np.where(h < 0, -1, 1), np.abs(h))[:, None]
        c, s = np.cos(angle), np.sin(angle)
        A = turned(turned(A, c, s).T, c, s)
        steps += 1
    return steps


@lru_cache
def steps_of(d: int, program: mp_spdz.Program) -> int:
    """Steps of a program on the matrix of dimension d. Approximate angles take as many as our own, which are right to
    11 %."""
    A = separated(d)
    return exact_steps(A, program.tol) if program.exact else eigen.plain_iterations(A, "jacobi", program.tol)


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
    """Residual and eigenvalue error as of `ppca bench eigen`; the pair that padding to even dimension added is left
    out."""
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
    """Return what is not measured because it was not given, and how to give it."""
    said = [] if options.spu else ["SPU was not given: name a virtual environment for it with --spu (made if missing)."]
    if options.mp_spdz is None:
        said += [
            "MP-SPDZ with TLS was not given: name a built tree with --mp-spdz (make replicated-ring-party.x "
            "rep4-ring-party.x)."
        ]
    if options.mp_spdz_plain is None:
        said += [
            "MP-SPDZ with plain channels was not given: name a tree built with -DINSECURE with --mp-spdz-plain (see "
            "its README)."
        ]
    return said
