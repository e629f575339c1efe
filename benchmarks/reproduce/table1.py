"""The paper's Table 1: what an operation costs on batches of 10^4 to 10^6, relative to 10^4 multiplications."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from typing import Any

from benchmarks import ops
from ppca.runtime import LocalServers
from ppca.web.report import duration, size

from .result import Options, Plot, Result, Table, behind
from .style import OURS, PAPER, bars, figure, legend, logarithmic

OPERATIONS = ("add", "mul", "gt", "eq", "sqrt", "reciprocal")
NEWTON = {"newton_sqrt": "sqrt", "newton_reciprocal": "reciprocal"}
"""Baselines: the paper's Newton iterations (Appendix A, corrected) on this engine, and the operation that they
compute."""

NAMES = {name: f"{plain}, the paper's Newton" for name, plain in NEWTON.items()}
"""Names in the table."""

PAPER_COSTS: dict[int, tuple[float, ...]] = {
    10_000: (1 / 50, 1, 10, 20, 80, 90),
    100_000: (2 / 50, 4, 20, 60, 240, 270),
    1_000_000: (13 / 50, 9, 80, 180, 1600, 1350),
}
"""Its Table 1, by the size of the batch; operations as above."""


def run(options: Options) -> Result:
    sizes = options.pick(full=[10_000, 100_000, 1_000_000], quick=[10_000, 100_000], tiny=[10_000])
    repeats = options.pick(full=7, quick=5, tiny=1)
    every = (*OPERATIONS, *NEWTON)
    operations = list(options.pick(full=every, quick=every, tiny=("mul", "gt", "newton_sqrt")))
    rows = []
    with LocalServers(timeout=600, developer=True) as servers:
        for n in sizes:
            for op in operations:
                options.say(f"{op} of {n:,} elements")
                rows.append(asdict(ops.measure(servers, op, n, repeats)))
    unit = next(row["seconds"] for row in rows if (row["op"], row["n"]) == ("mul", ops.UNIT))
    records = [beside(row, unit) for row in rows]
    conditions = [
        "Synthetic operands, uniform in [0.5, 100]; four server processes of this machine over loopback, plain TCP.",
        f"The unit is the time of 10^4 multiplications in the same run, {duration(unit)} here. The paper's is that "
        "of its own machines: only costs relative to a multiplication compare.",
        "Newton: the iterations of the paper's Appendix A on this engine, seven for sqrt and six for reciprocal; "
        "`sqrt` and `reciprocal` are this project's (a look-up and a polynomial).",
        f"Medians of {repeats} blocks, of fewer where an operation takes more than a second; of the slowest server.",
    ]
    return Result("Table 1: cost of operations", conditions, [table(records)], [plot(records)])


def beside(row: dict[str, Any], unit: float) -> dict[str, Any]:
    """A measured row in units of 10^4 multiplications, and the paper's cost of it."""
    paper = PAPER_COSTS[row["n"]][OPERATIONS.index(NEWTON.get(row["op"], row["op"]))]
    kept = ("op", "n", "seconds", "rounds", "bytes_per_server", "max_error")
    return {key: row[key] for key in kept} | {"relative": row["seconds"] / unit, "paper": paper}


def table(records: list[dict[str, Any]]) -> Table:
    return Table.of(
        "Time relative to 10^4 multiplications",
        records,
        {
            "operation": lambda r: NAMES.get(r["op"], r["op"]),
            "batch": lambda r: f"{r['n']:,}",
            "PPCA": lambda r: f"{r['relative']:.3g}" + behind(r["relative"], r["paper"], "the paper"),
            "paper": lambda r: str(Fraction(r["paper"]).limit_denominator(50)) if r["paper"] < 1 else f"{r['paper']:g}",
            "time here": lambda r: duration(r["seconds"]),
            "rounds": lambda r: str(r["rounds"]),
            "sent per server": lambda r: size(r["bytes_per_server"]),
            "largest error": lambda r: f"{r['max_error']:.1e}" if r["max_error"] else "0",
        },
        "A ratio is small where multiplications are slow, as on a busy machine: compare rounds and bytes, too. "
        "Large batches keep all cores busy: the paper's servers had 40 each, here all four share those of one "
        "machine.",
    )


def plot(records: list[dict[str, Any]]) -> Plot:
    sizes = sorted({record["n"] for record in records})
    drawn, panels = figure(*(f"{n:,} elements" for n in sizes), sharey=True, height=3.4)
    for n, panel in zip(sizes, panels, strict=True):
        rows = [record for record in records if record["n"] == n and record["op"] in OPERATIONS]
        ours, paper = ([row[key] for row in rows] for key in ("relative", "paper"))
        bars(panel, [row["op"] for row in rows], [("PPCA", OURS, ours), ("paper", PAPER, paper)])
        logarithmic(panel)
        panel.tick_params("x", rotation=35)
    panels[0].set_ylabel("time / time of 10^4 multiplications")
    legend(panels[0], loc="upper left")
    caption = "Cost of an operation relative to 10^4 multiplications, by size of the batch: PPCA and the paper."
    return Plot("costs", caption, drawn)
