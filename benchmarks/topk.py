"""`ppca bench topk`: the K largest eigenpairs of large matrices on shares, beside all-pairs if that is feasible.

Rounds and bytes are exact; seconds are of this machine. Matrices are made: a known spectrum turned by random
reflections, or the correlation of real data. Every size is measured on servers of its own, so that peak memory (VmHWM
of the busiest server) is that of the solver. `--cases` asks another question, of random spectra, in the plaintext
backend with the rounding of shares or (`--on-shares`) on servers: is a wrong result ever accepted?
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from benchmarks import table_console
from benchmarks.data_sets import Folder
from benchmarks.eigen import matrix as real_matrix
from benchmarks.eigen import scaled
from benchmarks.vertical import peak_memory
from ppca.algorithms import certificate
from ppca.algorithms.decomposition import decompose
from ppca.algorithms.topk import eigh_topk
from ppca.estimator.job import Job
from ppca.protocol import FIXED, Party, PlainArray, SecretArray, share
from ppca.protocol.plain import FIXED_POINT, RangeError
from ppca.runtime import LocalServers
from ppca.web.report import duration, size

Floats = NDArray[np.float64]

REFLECTIONS = 3
"""Householder reflections that turn a diagonal matrix: every entry is then filled, for d^2 work."""

MISTAKE = 2.0
"""A result is wrong if its residual is above this multiple of what verification allows, or if an eigenvalue that the
certificate excludes is missing."""


def spectrum(kind: str, d: int, k: int, rng: np.random.Generator) -> Floats:
    """Eigenvalues in descending order. steep and flat are about the border between the K largest and the rest."""
    i = np.arange(1.0, d + 1)
    values = {
        "decaying": 1 / i,
        "steep": np.geomspace(1, 1e-3, d),
        "very steep": np.r_[300.0 ** -np.linspace(0, 1, k), 1e-3 / i[: d - k]],
        "flat": np.where(i <= k, 1.05, 1.0),
        "noisy": (1 + np.sqrt(0.5) * np.cos(np.pi * (i - 0.5) / d)) ** 2 + np.where(i <= k, np.linspace(4, 1, d), 0.0),
        "gene": np.exp(-np.sqrt(i)),
        "halving": 0.5**i,
        "scales": np.where(i <= k / 2, 1.0, 1e-5) / i,
    }
    if kind == "random":
        shape = rng.choice(["power", "geometric", "spiked", "low rank", "clusters", "scales"])
        made = {
            "power": i ** -rng.uniform(0.2, 6),
            "geometric": rng.uniform(0.1, 0.99) ** i,
            "spiked": np.sort(rng.exponential(1, d))[::-1]
            + np.where(i <= rng.integers(0, 2 * k + 1), rng.uniform(0, 20), 0),
            "low rank": np.where(i <= rng.integers(1, 2 * k + 2), rng.uniform(0.1, 1, d), 0.0),
            "clusters": np.repeat(rng.uniform(0, 1, d), rng.integers(1, k + 3))[:d] ** rng.integers(1, 6),
            "scales": np.where(i <= rng.integers(1, k + 2), 1.0, 10 ** -rng.uniform(1, 8)) * rng.exponential(1, d),
        }
        return np.sort(made[str(shape)])[::-1]
    return np.sort(values[kind])[::-1]


def turned(values: Floats, rng: np.random.Generator) -> Floats:
    """A symmetric matrix with these eigenvalues, |A|_F in (1/2, 1], on the grid of shares."""
    A = np.diag(values)
    for _ in range(REFLECTIONS):
        v = rng.standard_normal(len(values))
        v /= np.linalg.norm(v)
        w = A @ v
        A -= 2 * np.outer(v, w)
        A -= 2 * np.outer(A @ v, v)
    A = scaled((A + A.T) / 2) if np.any(values) else A
    return np.asarray(np.round(np.ldexp(A, 40)) * 2.0**-40)


@dataclass
class Row:
    spectrum: str
    d: int
    k: int
    solver: str
    loops: int
    rounds: int
    bytes_per_server: int
    seconds: float
    memory: int
    residual: float
    eigenvalue_error: float
    verified: bool
    fell_back: bool
    reached: float


async def solve(party: Party, A: SecretArray, *, solver: str, k: int, tol: float) -> dict[str, Any]:
    """The server program: one decomposition, verified and revealed."""
    with party.stage("solve"):
        found = await decompose(A.within(1), run=party.run, solver=solver, tol=tol, top=k, progress=party.progress)
    return {
        "values": found.values[:k].reveal(why="benchmark"),
        "vectors": found.vectors[:k].reveal(why="benchmark"),
        "iterations": found.iterations,
        "verified": found.verified,
        "fell_back": found.fell_back,
        "reached": found.tolerance,
    }


def measure(kind: str, A: Floats, exact: Floats, k: int, solver: str, tol: float) -> Row:
    with LocalServers(timeout=1800, developer=True) as servers:
        job = Job(servers)
        answer = job.run(solve, share(A, FIXED), solver=solver, k=k, tol=tol)
        memory = max(peak_memory(pid) for pid in servers.pids)
    stages = [server["stages"]["solve"] for server in job.account.stages]
    values, V = np.asarray(answer["values"]), np.asarray(answer["vectors"]).T
    return Row(
        kind, len(A), k, solver, int(answer["iterations"]), int(stages[0]["rounds"]),
        max(stage["bytes_sent"] for stage in stages), job.account.seconds, memory,
        float(np.linalg.norm(A @ V - V * values) / np.linalg.norm(A)),
        float(np.abs(values - exact[:k]).max() / exact[0]),
        bool(answer["verified"]), bool(answer["fell_back"]), answer["reached"],
    )  # fmt: skip


def main(
    dimensions: list[int], ks: list[int], kinds: list[str], beside: int, tol: float, data: Folder, directory: Path
) -> None:
    console = table_console()
    rows: list[Row] = []
    with console.status("") as status:
        for d in dimensions:
            for kind in kinds:
                for k in ks:
                    rng = np.random.default_rng([d, k])
                    if kind == "real":
                        A, name = real_matrix(d, data)
                        exact = np.asarray(np.linalg.eigvalsh(A)[::-1], np.float64)
                    else:
                        A, name = turned(spectrum(kind, d, k, rng), rng), kind
                        exact = spectrum(kind, d, k, rng)
                        exact = exact * float(np.linalg.norm(A) / np.linalg.norm(exact))
                    for solver in ("topk", *(("allpairs",) if d <= beside else ())):
                        status.update(f"{solver}, {name}, d = {d}, K = {k}")
                        rows.append(measure(name, A, exact, k, solver, tol))
    _print(rows, tol)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "topk.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))


def _print(rows: list[Row], tol: float) -> None:
    table = Table(title=f"The K largest eigenpairs on shares, verified, tolerance {tol:g}")
    for name in ("spectrum", "solver"):
        table.add_column(name)
    for name in ("d", "K", "loops", "rounds", "sent", "time", "memory", "residual", "eigenvalues", "verified"):
        table.add_column(name, justify="right")
    for row in rows:
        verified = ("yes" if row.verified else "no") + (f", to {row.reached:.0e}" if row.reached > tol else "")
        table.add_row(
            row.spectrum, row.solver, f"{row.d:,}", str(row.k), str(row.loops), str(row.rounds), size(row.bytes_per_server),
            duration(row.seconds), size(row.memory), f"{row.residual:.1e}", f"{row.eigenvalue_error:.1e}",
            f"{verified}, after all-pairs" if row.fell_back else verified,
        )  # fmt: skip
    table_console().print(table)
    pairs = {(row.spectrum, row.d, row.k): row for row in rows if row.solver == "allpairs"}
    for row in rows:
        other = pairs.get((row.spectrum, row.d, row.k))
        if row.solver == "topk" and other is not None:
            table_console().print(
                f"{row.spectrum}, d = {row.d}, K = {row.k}: {other.seconds / row.seconds:.1f} times faster than "
                f"all-pairs, {other.bytes_per_server / row.bytes_per_server:.1f} times fewer bytes",
                highlight=False,
            )


def cases(count: int, d: int, tol: float, seed: int, on_shares: bool, directory: Path) -> bool:
    """Random spectra; whether no wrong result was accepted."""
    tally: Counter[str] = Counter()
    with LocalServers(timeout=600, developer=True) if on_shares else nullcontext() as servers:
        for number in range(count):
            rng = np.random.default_rng([seed, number])
            k = int(rng.integers(1, 9))
            A = turned(spectrum("random", d, k, rng), rng)
            found = simulated(A, k, tol, f"{seed} {number}") if servers is None else on_servers(servers, A, k, tol)
            tally["refused" if found is None else verdict(A, k, *found)] += 1
    where = "on shares" if on_shares else "in the plaintext backend"
    told = ", ".join(f"{n:,} {what}" for what, n in tally.most_common())
    table_console().print(f"{count:,} random matrices {where}, d = {d}: {told}")
    directory.mkdir(parents=True, exist_ok=True)
    name = "topk-cases-on-shares.json" if on_shares else "topk-cases.json"
    (directory / name).write_text(json.dumps({"d": d, "seed": seed, **tally}, indent=1))
    return not tally[WRONG]


WRONG = "accepted and WRONG"


def simulated(A: Floats, k: int, tol: float, run: str) -> tuple[Floats, Floats, float] | None:
    """Values, vectors and tolerance that pass the rules of `decompose`, without its fall-back; None if they are
    refused."""
    shared = PlainArray(A, FIXED_POINT)
    try:
        found = _finish(eigh_topk(shared, k, run=run, tol=tol))
        values, V = found.values.values, found.vectors.values.T
        good = np.linalg.norm(A @ V - V * values) < 2 * tol and np.linalg.norm(V.T @ V - np.eye(k)) < 1e-7
        if (
            not good
            or not _finish(certificate.no_eigenvalue_missing(shared, found.values, found.vectors, run, 2 * tol))[
                0
            ].values
        ):
            return None
    except RangeError:  # a promise was broken: on shares the numbers would be wrong, and verification refuses
        return None
    return values, V, tol


def on_servers(servers: LocalServers, A: Floats, k: int, tol: float) -> tuple[Floats, Floats, float] | None:
    """The same on shares, with the fall-back: refused is what is not verified."""
    answer = Job(servers).run(solve, share(A, FIXED), solver="topk", k=k, tol=tol)
    if not answer["verified"]:
        return None
    return np.asarray(answer["values"]), np.asarray(answer["vectors"]).T, float(answer["reached"])


def verdict(A: Floats, k: int, values: Floats, V: Floats, tol: float) -> str:
    """Return whether what was accepted keeps what acceptance promises."""
    missing = np.linalg.eigvalsh(A)[::-1][:k] - values
    far = np.linalg.norm(A @ V - V * values) > MISTAKE * 2 * tol
    lost = np.any(missing > np.maximum(0.12 * values[-1], certificate.max_missing(0, 2 * tol)))
    return WRONG if far or lost else "accepted and right"


def _finish(program: Any) -> Any:
    try:
        program.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the plaintext backend never talks")
