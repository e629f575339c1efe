"""Compare with other frameworks: an eigendecomposition of the same matrices by SPU and MP-SPDZ, if they are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks import mp_spdz
from benchmarks import peers as environments
from ppca.web.report import duration, size

from .peer_runs import CYCLIC, REPEATS, TOL, absent, ours, theirs
from .result import Options, Plot, Result, Table, behind, cell
from .style import dimensions, figure, lines, logarithmic

CHANNELS = (False, True)
"""Plain channels, then TLS."""


def run(options: Options) -> Result:
    sizes = options.pick(full=(11, 50, 115), quick=(11, 50), tiny=(4,))
    budget = options.pick(full=120.0, quick=20.0, tiny=1.0)
    if options.spu is not None:
        options.say("preparing SPU's virtual environment")
        environments.ensure_venv(options.spu)
    records = []
    for d in sizes:
        for tls in CHANNELS:
            mine = ours(d, options, ("allpairs", "jacobi"), budget, tls=tls)
            programs = (mp_spdz.TUNED, mp_spdz.SIMPLE)
            records += compared([*mine, *theirs(d, options, budget, tls=tls, programs=programs)])
    tables = [table(records), like_for_like(records)]
    return Result("Peers: the same decomposition", conditions(options, budget), tables, [plot(records)])


def compared(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run of one matrix and channel, the first of which is PPCA's: each with its time relative to that, and the fastest
    peer."""
    rivals = [(record["seconds"], record["system"]) for record in records if record["system"] != "PPCA"]
    more = {"fastest": min(rivals, default=None)}
    return [record | more | {"ratio": record["seconds"] / records[0]["seconds"]} for record in records]


def conditions(options: Options, budget: float) -> list[str]:
    return [
        "Synthetic correlation matrices whose eigenvalues are well apart (d / 3 factors of falling strength and "
        "noise), the same for all. Peers keep 26 or 32 fractional bits; where eigenvalues lie closer together they "
        "lose digits of the eigenvectors, PPCA does not.",
        f"PPCA: 40 fractional bits, tolerance {TOL:g}, four processes. MP-SPDZ: Rep3 and Rep4 in its 128-bit ring "
        "with probabilistic truncation. SPU: ABY3 in its 128-bit ring with default settings (26 fractional bits), "
        "three processes. All on one machine over loopback, all in this run.",
        "MP-SPDZ and the package of SPU bring no eigensolver (SPU's library sml, which is not in the package, does): "
        "these are parallel cyclic Jacobi programs that we wrote. *tuned* "
        "(`benchmarks/ppca_jacobi_tuned.mpc`) is the best that we know: 32 of 63 bits, one inverse square root per "
        "rotation, one truncation per output, binary circuits on locally split shares. *simple* "
        "(`benchmarks/ppca_jacobi.mpc`, `benchmarks/spu_jacobi.py`) is what a user would write first: 26 of 44 bits "
        "in MP-SPDZ.",
        f"Steps: as many as the rotations need in the clear until the off-diagonal is below {mp_spdz.TUNED.tol:g} "
        f"(tuned) or {mp_spdz.SIMPLE.tol:g} (simple) of the matrix. The residual that is reached stands beside the "
        "time.",
        "Channels: TLS or plain TCP for both sides. MP-SPDZ has plain channels if it is built with -DINSECURE; SPU "
        "is measured with its default, plain channels.",
        "Threat models differ: Rep4 withstands a malicious party, the others do not.",
        f"PPCA: the median of {REPEATS} runs. Peers: one run, after short ones. (projected): a run that would take "
        f"more than {budget:g} s is extended from short ones.",
        *absent(options),
    ]


def time_of(record: dict[str, Any]) -> str:
    shown = duration(record["seconds"]) + (" (projected)" if record["projected"] else "")
    if record["system"] == "PPCA" and record["fastest"]:
        seconds, who = record["fastest"]
        shown += behind(record["seconds"], seconds, who)
    return shown


def rounds_of(record: dict[str, Any]) -> str:
    return f"{record['messages']:,} messages" if record["rounds"] is None else f"{record['rounds']:,}"


def table(records: list[dict[str, Any]]) -> Table:
    return Table.of(
        "One eigendecomposition, all pairs",
        records,
        {
            "system": lambda r: r["system"],
            "method": lambda r: r["method"],
            "parties, threat model": lambda r: r["parties"],
            "channels": lambda r: r["channel"],
            "d": cell("d"),
            "time here": time_of,
            "time / PPCA all-pairs": cell("ratio", "{:.3g}x"),
            "steps": cell("steps", "{:,}"),
            "rounds": rounds_of,
            "sent per party": lambda r: size(r["bytes"]),
            "residual": cell("residual", "{:.1e}"),
            "eigenvalue error": cell("eigenvalue_error", "{:.1e}"),
        },
        "Times are compared on the same kind of channels. SPU counts messages, not rounds; a party sends about one a "
        "round.",
    )


def like_for_like(records: list[dict[str, Any]]) -> Table:
    """The same algorithm on both sides: a cyclic Jacobi, per step; of peers the tuned program."""
    return Table.of(
        "Like for like: cyclic Jacobi on both sides, one step",
        list(_steps(records)),
        {
            "system": lambda r: r["system"],
            "parties, threat model": lambda r: r["parties"],
            "channels": lambda r: r["channel"],
            "d": cell("d"),
            "steps": cell("steps", "{:,}"),
            "time of a step": lambda r: duration(r["step"]),
            "time / PPCA": cell("ratio", "{:.3g}x"),
            "rounds of a step": cell("step_rounds", "{:.1f}"),
            "sent per party and step": lambda r: size(r["step_bytes"]),
            "residual": cell("residual", "{:.1e}"),
        },
        "This compares the protocols apart from the algorithm: what PPCA gains by all-pairs is not in it. Below 1x "
        "a step of the peer is faster. PPCA's cyclic Jacobi takes more steps, because its angles are right to 11 % "
        "only, with fewer rounds and bytes each.",
    )


def _steps(records: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    mine = {(one["channel"], one["d"]): one["seconds"] / one["steps"] for one in records if one["method"] == CYCLIC}
    for record in records:
        if record["method"] == CYCLIC or record["method"].endswith("tuned"):
            step = record["seconds"] / record["steps"]
            yield record | {
                "step": step,
                "step_rounds": record["rounds"] / record["steps"],
                "step_bytes": record["bytes"] / record["steps"],
                "ratio": step / mine[record["channel"], record["d"]],
            }


def _seconds(record: dict[str, Any]) -> float:
    return float(record["seconds"])


def _rounds(record: dict[str, Any]) -> float:
    return float(record["rounds"] or record["messages"])


def _megabytes(record: dict[str, Any]) -> float:
    return float(record["bytes"]) / 1e6


def plot(records: list[dict[str, Any]]) -> Plot:
    """Return the records over plain channels, with the best program of each peer."""
    drawn, panels = figure("Seconds here", "Rounds (SPU: messages)", "MB sent per party", height=3.2)
    shown = [one for one in records if one["channel"] == "plain" and not _beaten(one, records)]
    names = list(dict.fromkeys((record["system"], record["method"]) for record in shown))
    by_name = [
        (f"{who}, {method}", [one for one in shown if (one["system"], one["method"]) == (who, method)])
        for who, method in names
    ]
    for panel, value in zip(panels, (_seconds, _rounds, _megabytes), strict=True):
        lines(panel, [(name, [one["d"] for one in own], [value(one) for one in own]) for name, own in by_name])
        logarithmic(panel)
        dimensions(panel, sorted({record["d"] for record in records}))
    drawn.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=8.5
    )
    caption = "One eigendecomposition over plain channels: seconds, rounds and bytes, by framework and dimension."
    return Plot("cost", caption, drawn)


def _beaten(record: dict[str, Any], records: list[dict[str, Any]]) -> bool:
    """Return whether it is the simple program of a framework that also ran the tuned one."""
    tuned = {one["system"] for one in records if one["method"].endswith("tuned")}
    return bool(record["method"].endswith("simple") and record["system"] in tuned)
