"""Other frameworks side by side: an eigendecomposition of the same matrices by SPU and MP-SPDZ, where they are given."""

from __future__ import annotations

from typing import Any

from benchmarks import peers as environments
from benchmarks.data_sets import MissingData, find
from benchmarks.eigen import file_of
from ppca.report import duration, size

from .peer_runs import REPEATS, TOL, absent, ours, theirs
from .result import Options, Plot, Result, Table, behind, cell
from .style import dimensions, figure, lines, logarithmic


def run(options: Options) -> Result:
    sizes = options.pick(full=(20, 50), quick=(20,), tiny=(4,))
    budget = options.pick(full=60.0, quick=20.0, tiny=1.0)
    if options.spu is not None:
        options.say("preparing SPU's virtual environment")
        environments.ensure_venv(options.spu)
    records = []
    for d in sizes:
        records += compared([*ours(d, options, ("allpairs", "jacobi"), budget), *theirs(d, options, budget)])
    return Result("Peers: the same decomposition", conditions(options, budget), [table(records)], [plot(records)])


def compared(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs of one matrix, the first of which is PPCA's: each with its time relative to that, and with the fastest peer."""
    rivals = [(record["seconds"], record["who"]) for record in records if not record["who"].startswith("PPCA")]
    more = {"fastest": min(rivals, default=None)}
    return [record | more | {"ratio": record["seconds"] / records[0]["seconds"]} for record in records]


def conditions(options: Options, budget: float) -> list[str]:
    try:
        find(options.data, file_of(20))
        source = "Correlation matrices of real data (first columns of MOOCCube), the same for all."
    except MissingData as missing:
        source = f"Synthetic correlation matrices ({missing}), the same for all."
    return [
        source,
        "The packages bring no eigensolver: theirs is a vectorised parallel Jacobi that we wrote (`benchmarks/spu_jacobi.py`, "
        f"`benchmarks/ppca_jacobi.mpc`), with as many steps as our cyclic Jacobi needs in the clear for a tolerance of {TOL:g}.",
        "SPU: ABY3 in its 128-bit ring with default settings (26 fractional bits), three processes. MP-SPDZ: Rep3 and Rep4, "
        "128-bit ring, 26 fractional bits, probabilistic truncation. PPCA: 40 fractional bits, four processes. PPCA and "
        "MP-SPDZ over TLS, SPU without, as they come; all on one machine over loopback, all in this run.",
        "Threat models differ: Rep4 withstands a malicious party, the others do not.",
        f"PPCA: the median of {REPEATS} runs. Peers: one run, after short ones.",
        f"(projected): a run that would take more than {budget:g} s is extended from short ones.",
        *absent(options),
    ]


def time_of(record: dict[str, Any]) -> str:
    shown = duration(record["seconds"]) + (" (projected)" if record["projected"] else "")
    if record["who"].startswith("PPCA") and record["fastest"]:
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
            "who": lambda r: r["who"],
            "parties, threat model": lambda r: r["parties"],
            "d": cell("d"),
            "time here": time_of,
            "time / PPCA all-pairs": cell("ratio", "{:.3g}x"),
            "steps": cell("steps", "{:,}"),
            "rounds": rounds_of,
            "sent per party": lambda r: size(r["bytes"]),
            "residual": cell("residual", "{:.1e}"),
            "eigenvalue error": cell("eigenvalue_error", "{:.1e}"),
        },
        "SPU counts messages, not rounds; a party sends about one a round.",
    )


def _seconds(record: dict[str, Any]) -> float:
    return float(record["seconds"])


def _rounds(record: dict[str, Any]) -> float:
    return float(record["rounds"] or record["messages"])


def _megabytes(record: dict[str, Any]) -> float:
    return float(record["bytes"]) / 1e6


def plot(records: list[dict[str, Any]]) -> Plot:
    drawn, panels = figure("Seconds here", "Rounds (SPU: messages)", "MB sent per party", height=3.2)
    names = list(dict.fromkeys(record["who"] for record in records))
    by_name = [(name, [record for record in records if record["who"] == name]) for name in names]
    for panel, value in zip(panels, (_seconds, _rounds, _megabytes), strict=True):
        lines(panel, [(name, [one["d"] for one in own], [value(one) for one in own]) for name, own in by_name])
        logarithmic(panel)
        dimensions(panel, sorted({record["d"] for record in records}))
    drawn.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8.5
    )
    caption = "One eigendecomposition of the same matrices: seconds, rounds and bytes, by framework and dimension."
    return Plot("cost", caption, drawn)
