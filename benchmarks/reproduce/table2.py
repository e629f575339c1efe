"""The paper's Table 2: expensive operations of one iteration, counted by running every solver on arrays that count."""

from __future__ import annotations

from typing import Any

from benchmarks import counts
from benchmarks.counting import expensive_operations
from ppca.runtime import LocalServers
from ppca.web.report import duration, size

from .result import Options, Plot, Result, Table, behind, cell
from .style import CYCLE, figure, legend

# Per iteration, as the paper counts them: comparisons, equalities, square roots, reciprocals; QR's times (d - 1).
PAPER_COUNTS = {
    "qr": ("HR in QR Shift", (1, 0, 2, 1)),
    "jacobi-classic": ("GR in Jacobi", (1, 1, 2, 3)),
    "jacobi-eo": ("Optimized Jacobi", (2, 1, 2, 1)),
}
KINDS = ("comparison", "equality", "sqrt", "rsqrt", "reciprocal", "table")
MEANING = {
    "allpairs": "all-pairs Jacobi (ours)",
    "jacobi": "cyclic Jacobi (ours)",
    "jacobi-classic": "the paper's Jacobi, corrected",
    "jacobi-eo": "the paper's Jacobi with EO-reduction, corrected",
    "qr": "the paper's QR shift, corrected",
    "power": "power iteration",
}


def run(options: Options) -> Result:
    d = options.pick(full=50, quick=50, tiny=4)
    options.say(f"counting, d = {d}")
    records = [beside(name, own, d) for name, own in expensive_operations(d).items()]
    sizes = options.pick(full=[20, 50, 115, 200], quick=[20, 115], tiny=[6])
    options.say("sorts")
    with LocalServers(timeout=600, developer=True) as servers:
        sorts = [vars(counts.measure(servers, name, n)) for n in sizes for name in ("batch_sort", "sort")]
    conditions = [
        f"First table: counted, not timed. One iteration of each solver at d = {d} on arrays that count; a call on "
        "a whole array counts once, as in the paper.",
        "A table look-up is this project's way round square roots and reciprocals; it costs as much as a comparison "
        "(2 rounds).",
        "An iteration is one step of a cyclic Jacobi (d/2 pairs), one of all-pairs (all d(d-1)/2 pairs), one QR "
        "iteration (d - 1 reflections).",
    ]
    return Result(
        "Table 2: expensive operations per iteration",
        conditions,
        [table(records, d), sort_table(sorts)],
        [plot(records)],
    )


def beside(name: str, own: dict[str, int], d: int) -> dict[str, Any]:
    paper_name, paper = PAPER_COUNTS.get(name, ("", None))
    factor = d - 1 if name == "qr" else 1
    record: dict[str, Any] = {"solver": name, "d": d, "paper_name": paper_name} | {
        kind: own.get(kind, 0) for kind in KINDS
    }
    record["all"] = sum(record[kind] for kind in KINDS)
    record["paper"] = None if paper is None else [factor * count for count in paper]
    return record


def table(records: list[dict[str, Any]], d: int) -> Table:
    def paper(record: dict[str, Any]) -> str:
        if record["paper"] is None:
            return ""
        comparison, equality, root, reciprocal = record["paper"]
        return f"{comparison}, {equality}, {root}, {reciprocal} ({record['paper_name']})"

    return Table.of(
        f"Expensive operations of one iteration, d = {d}",
        records,
        {
            "solver": lambda r: MEANING[r["solver"]],
            **{kind: cell(kind) for kind in KINDS},
            "all": lambda r: str(r["all"]) + (behind(r["all"], sum(r["paper"]), "the paper") if r["paper"] else ""),
            "paper: comp, eq, sqrt, reciprocal": paper,
        },
    )


def sort_table(sorts: list[dict[str, Any]]) -> Table:
    return Table.of(
        "Sorting n secret numbers, each with a row of n (eigenvalues with their vectors)",
        sorts,
        {
            "algorithm": lambda r: "the paper's batch_sort, corrected" if r["name"] == "batch_sort" else "sort (ours)",
            "n": lambda r: str(r["n"]),
            "rounds": lambda r: str(r["rounds"]),
            "sent per server": lambda r: size(r["bytes_per_server"]),
            "time here": lambda r: duration(r["seconds"]),
        },
    )


def plot(records: list[dict[str, Any]]) -> Plot:
    """Return the time of one step; of QR, of one reflection (an iteration has d - 1), so that the bars have one
    scale."""
    drawn, (panel,) = figure("Batches of expensive operations", height=3.2)
    records = list(reversed(records))
    many = [record["d"] - 1 if record["solver"] == "qr" else 1 for record in records]
    names = [
        f"{MEANING[record['solver']]},\none of {parts} reflections" if parts > 1 else MEANING[record["solver"]]
        for record, parts in zip(records, many, strict=True)
    ]
    left = [0.0] * len(records)
    for number, kind in enumerate(KINDS):
        counted = [record[kind] / parts for record, parts in zip(records, many, strict=True)]
        if any(counted):
            panel.barh(names, counted, left=left, label=kind, color=CYCLE[number], height=0.6)
            left = [a + b for a, b in zip(left, counted, strict=True)]
    panel.set_xlim(0, 1.25 * max(left))
    panel.grid(False, axis="y")
    panel.set_xlabel("calls on whole arrays in one iteration")
    legend(panel, loc="lower right")
    caption = "Batches of expensive operations of one iteration, by solver and kind; of QR, of one of its reflections."
    return Plot("counts", caption, drawn)
