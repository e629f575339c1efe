"""Whole jobs over slow networks, measured through delaying and rate-limiting proxies, beside what rounds and bytes
predict."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.accuracy import accuracy_beside
from benchmarks.data_sets import DATA_SETS, Floats, Folder, MissingData
from benchmarks.eigen import NETWORKS
from benchmarks.federation import busiest, predicted
from benchmarks.peers import PeerError
from benchmarks.slow import SlowServers
from ppca import PCA
from ppca.runtime import LocalServers
from ppca.web.report import duration, size

from .paper_sets import correlation
from .peer_runs import absent, ours, theirs
from .peers import compared, rounds_of, time_of
from .result import Options, Plot, Result, Table, cell
from .style import OURS, TRUTH, bars, figure, logarithmic

PROXIES = "proxies alone"


@dataclass(frozen=True)
class Workload:
    """A joint PCA: a number of components of a table with d columns."""

    name: str
    d: int
    components: int | None
    solver: str
    data: str | None
    """Name of the real data set, None if there is none of that shape."""


def works(options: Options) -> list[Workload]:
    few = Workload("d = 50, all components", 50, None, "allpairs", "MOOCCube, 50 columns")
    many = Workload("d = 115, all components", 115, None, "allpairs", "N-BaIoT")
    wide = Workload("d = 1,000, ten largest", 1000, 10, options.solver, None)
    tiny = [
        Workload("d = 6, all components", 6, None, "allpairs", None),
        Workload("d = 12, two largest", 12, 2, options.solver, None),
    ]
    return options.pick(full=[few, many, wide], quick=[few, many], tiny=tiny)


def rows_of(work: Workload, data: Folder) -> tuple[Floats, str]:
    """Real rows, or synthetic ones: forty factors of falling strength and noise, as tables of many columns are."""
    if work.data is not None:
        try:
            return np.vstack(DATA_SETS[work.data](data))[:20_000], f"{work.data}, real rows"
        except MissingData:
            pass
    random = np.random.default_rng(work.d)
    count, rows = min(40, work.d), max(2000, 6 * work.d)
    factors = random.standard_normal((rows, count)) * np.geomspace(1, 0.1, count)
    X: Floats = factors @ random.standard_normal((count, work.d)) + 0.3 * random.standard_normal((rows, work.d))
    return X, "synthetic"


def run(options: Options) -> Result:
    networks = options.pick(full=NETWORKS, quick=NETWORKS, tiny={"fast": (0.0002, 1e9)})
    records, sources = [], []
    for work in works(options):
        X, source = rows_of(work, options.data)
        owners = np.array_split(X, 3)
        C = correlation(owners)
        variances = np.asarray(np.linalg.eigvalsh(C)[::-1], np.float64)
        for name, link in {"loopback": None, PROXIES: (0.0, 0.0), **networks}.items():
            options.say(f"{work.name}, {name}")
            pca, record = measure(servers_behind(link), work, owners)
            record["ratio_error"] = accuracy_beside(pca, C, variances).ratio_error
            if name == PROXIES:
                base = record["seconds"]
            expected = predicted(base, pca.account_, *link) if link and name != PROXIES else None
            records.append({"work": work.name, "network": name, "predicted": expected} | record)
        sources.append(f"{work.name}: {source}, {len(X):,} rows, three owners, solver {record['solver']}.")
    tables = [table(records)]
    without = absent(options)
    if options.spu is not None or options.mp_spdz is not None:
        try:
            tables.append(peer_table(options, networks))
        except PeerError as failed:  # what was measured of PPCA is kept
            without = [f"Peers failed: {str(failed).splitlines()[0]}"]
    described = "; ".join(
        f"{name}: {1e3 * delay:g} ms one way, {rate / 1e6:g} Mbit/s" for name, (delay, rate) in networks.items()
    )
    conditions = [
        *sources,
        f"{described}; in each direction of each of the six links between servers, by proxies in user space. All on "
        f"one machine.",
        f"{PROXIES[0].upper()}{PROXIES[1:]}: they neither delay nor limit; what they cost a machine that also runs "
        f"the servers.",
        f"Predicted: the time with {PROXIES} in the same run, one delay a round, and the bytes of the busiest link at "
        f"its rate.",
        f"Standardised columns, tolerance {PCA().tol:g}; from the first share to the result, owners' own passes left "
        f"out.",
        "EVR error: the largest difference of an explained-variance ratio to that of the correlation in float64.",
        *without,
    ]
    return Result("Slow networks: whole jobs, measured", conditions, tables, [plot(records)])


def servers_behind(link: tuple[float, float] | None) -> LocalServers:
    """Four local servers, with proxies of this delay and rate between them, or none."""
    return LocalServers(timeout=600) if link is None else SlowServers(timeout=600, delay=link[0], rate=link[1])


def measure(local: LocalServers, work: Workload, owners: list[Floats]) -> tuple[PCA, dict[str, Any]]:
    """A fit, and what it took."""
    with local as servers:
        began = time.perf_counter()
        pca = PCA(work.components, standardize=True, solver=work.solver, servers=servers).fit(owners)
        wall = time.perf_counter() - began
    account = pca.account_
    return pca, {
        "solver": pca.solver_,
        "seconds": account.seconds,
        "wall": wall,
        "rounds": account.rounds,
        "bytes_per_server": max(account.bytes_sent),
        "busiest_link": busiest(account),
    }


def table(records: list[dict[str, Any]]) -> Table:
    return Table.of(
        "Whole joint PCA, seconds on the servers",
        records,
        {
            "job": lambda r: r["work"],
            "network": lambda r: r["network"],
            "measured": lambda r: duration(r["seconds"]),
            "predicted": lambda r: "" if r["predicted"] is None else duration(r["predicted"]),
            "measured / predicted": lambda r: "" if r["predicted"] is None else f"{r['seconds'] / r['predicted']:.2f}",
            "rounds": cell("rounds", "{:,}"),
            "sent per server": lambda r: size(r["bytes_per_server"]),
            "busiest link": lambda r: size(r["busiest_link"]),
            "EVR error": cell("ratio_error", "{:.1e}"),
        },
    )


def peer_table(options: Options, networks: dict[str, tuple[float, float]]) -> Table:
    """One decomposition by PPCA and the peers through the same proxies; what takes long is projected."""
    d, budget = options.pick(full=20, quick=20, tiny=4), options.pick(full=20.0, quick=10.0, tiny=1.0)
    records = []
    for name, (delay, rate) in networks.items():
        runs = [
            *ours(d, options, ("allpairs",), budget, delay=delay, rate=rate),
            *theirs(d, options, budget, delay=delay, rate=rate),
        ]
        records += [{"network": name} | record for record in compared(runs)]
    return Table.of(
        f"Peers through the same proxies: one eigendecomposition, d = {d}",
        records,
        {
            "system": lambda r: f"{r['system']}, {r['method']}",
            "channels": lambda r: r["channel"],
            "network": lambda r: r["network"],
            "time": time_of,
            "time / PPCA": cell("ratio", "{:.3g}x"),
            "rounds": rounds_of,
            "sent per party": lambda r: size(r["bytes"]),
        },
        "Conditions of the peers: see above, at the table without slow links. (projected): a run that would take "
        f"more than {budget:g} s is extended from short ones.",
    )


def plot(records: list[dict[str, Any]]) -> Plot:
    jobs = list(dict.fromkeys(record["work"] for record in records))
    drawn, panels = figure(*jobs, sharey=True, height=3.4)
    for job, panel in zip(jobs, panels, strict=True):
        own = [record for record in records if record["work"] == job]
        measured, expected = ([record[key] for record in own] for key in ("seconds", "predicted"))
        names = [record["network"].removesuffix(" alone") for record in own]
        bars(panel, names, [("measured", OURS, measured), ("predicted from rounds and bytes", TRUTH, expected)])
        logarithmic(panel)
        panel.tick_params("x", labelsize=8)
    panels[0].set_ylabel("seconds on the servers")
    drawn.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=8.5
    )
    return Plot(
        "time",
        "Seconds of a joint PCA by network: measured through proxies, and predicted from rounds and bytes.",
        drawn,
    )
