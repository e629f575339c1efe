"""Whole jobs over slow networks, measured through delaying and rate-limiting proxies, beside what rounds and bytes predict."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.accuracy import accuracy_of
from benchmarks.data_sets import DATA_SETS, Floats, Folder, MissingData
from benchmarks.eigen import NETWORKS
from benchmarks.federation import busiest, predicted
from benchmarks.slow import SlowServers
from ppca import PCA
from ppca.report import duration, size
from ppca.servers import LocalServers

from .peer_runs import absent, ours, theirs
from .peers import compared, rounds_of, time_of
from .result import Options, Plot, Result, Table, cell
from .style import OURS, TRUTH, bars, figure, legend, logarithmic


@dataclass(frozen=True)
class Work:
    """A joint PCA: of so many components of a table with d columns."""

    name: str
    d: int
    components: int | None
    solver: str
    data: str | None
    """Name of the real data set, None if there is none of that shape."""


def works(options: Options) -> list[Work]:
    few = Work("d = 50, all components", 50, None, "allpairs", "MOOCCube, 50 columns")
    many = Work("d = 115, all components", 115, None, "allpairs", "N-BaIoT")
    wide = Work("d = 1,000, ten largest", 1000, 10, options.solver, None)
    tiny = [
        Work("d = 6, all components", 6, None, "allpairs", None),
        Work("d = 12, two largest", 12, 2, options.solver, None),
    ]
    return options.pick(full=[few, many, wide], quick=[few, many], tiny=tiny)


def rows_of(work: Work, data: Folder) -> tuple[Floats, str]:
    """Real rows, or synthetic ones: forty factors of falling strength and noise, as tables of many columns are."""
    if work.data is not None:
        try:
            return np.vstack(DATA_SETS[work.data](data))[:20_000], f"{work.data}, real rows"
        except MissingData:
            pass
    random = np.random.default_rng(work.d)
    count = min(40, work.d)
    factors = random.standard_normal((2000, count)) * np.geomspace(1, 0.1, count)
    X: Floats = factors @ random.standard_normal((count, work.d)) + 0.3 * random.standard_normal((2000, work.d))
    return X, "synthetic"


def run(options: Options) -> Result:
    networks = options.pick(full=NETWORKS, quick=NETWORKS, tiny={"fast": (0.0002, 1e9)})
    records, sources = [], []
    for work in works(options):
        X, source = rows_of(work, options.data)
        owners = np.array_split(X, 3)
        sources.append(f"{work.name}: {source}, {len(X):,} rows, three owners, solver {work.solver}.")
        options.say(f"{work.name}, loopback")
        with LocalServers(timeout=600) as servers:
            here = measure(servers, work, owners)
        records.append({"work": work.name, "network": "loopback", "predicted": None} | here[0])
        for name, (delay, rate) in networks.items():
            options.say(f"{work.name}, {name}")
            with SlowServers(timeout=600, delay=delay, rate=rate) as slow:
                record, account = measure(slow, work, owners)
            expected = predicted(here[0]["seconds"], account, delay, rate)
            records.append({"work": work.name, "network": name, "predicted": expected} | record)
    tables = [table(records)]
    if options.spu is not None or options.mp_spdz is not None:
        tables.append(peer_table(options, networks))
    described = "; ".join(
        f"{name}: {1e3 * delay:g} ms one way, {rate / 1e6:g} Mbit/s" for name, (delay, rate) in networks.items()
    )
    conditions = [
        *sources,
        f"{described}; in each direction of each of the six links between servers, by proxies in user space. All on one machine.",
        "Predicted: the time on loopback in the same run, one delay a round, and the bytes of the busiest link at its rate.",
        "Standardised columns, tolerance 1e-6; from the first share to the result, owners' own passes left out.",
        *absent(options),
    ]
    return Result("Slow networks: whole jobs, measured", conditions, tables, [plot(records)])


def measure(servers: LocalServers, work: Work, owners: list[Floats]) -> tuple[dict[str, Any], Any]:
    began = time.perf_counter()
    pca = PCA(work.components, standardize=True, solver=work.solver, servers=servers).fit(owners)
    wall = time.perf_counter() - began
    account = pca.account_
    record = {
        "seconds": account.seconds,
        "wall": wall,
        "rounds": account.rounds,
        "bytes_per_server": max(account.bytes_sent),
        "busiest_link": busiest(account),
        "ratio_error": accuracy_of(pca, np.vstack(owners)).ratio_error,
    }
    return record, account


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
        runs = [*ours(d, options, ("allpairs",), budget, delay, rate), *theirs(d, options, budget, delay, rate)]
        records += [{"network": name} | record for record in compared(runs)]
    return Table.of(
        f"Peers through the same proxies: one eigendecomposition, d = {d}",
        records,
        {
            "who": lambda r: r["who"],
            "network": lambda r: r["network"],
            "time": time_of,
            "time / PPCA": cell("ratio", "{:.3g}x"),
            "rounds": rounds_of,
            "sent per party": lambda r: size(r["bytes"]),
        },
        "Conditions of the peers: see above, at the table without slow links.",
    )


def plot(records: list[dict[str, Any]]) -> Plot:
    drawn, (panel,) = figure("Joint PCA over slow networks", height=3.2)
    names = [f"{record['work'].partition(',')[0]}\n{record['network']}" for record in records]
    measured, expected = ([record[key] for record in records] for key in ("seconds", "predicted"))
    bars(panel, names, [("measured", OURS, measured), ("predicted from rounds and bytes", TRUTH, expected)])
    logarithmic(panel)
    panel.set_ylabel("seconds on the servers")
    panel.tick_params("x", labelsize=8)
    legend(panel, loc="upper left")
    return Plot(
        "time",
        "Seconds of a joint PCA by network: measured through proxies, and predicted from rounds and bytes.",
        drawn,
    )
