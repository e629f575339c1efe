"""What the README shows of the evaluation: one short table and one picture, taken from docs/evaluation/ like the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docs.generate import markdown
from ppca.report import duration, size

from .paper_sets import MOST_IN_MEMORY
from .peers import rounds_of, time_of
from .result import behind, was_busy
from .table3 import STEPS

SHOWN = ("Wine", "IoT-9", "MOOC-10")
HEADINGS = ["", "time", "rounds", "sent per server", "error", "the paper", "in the clear"]
PICTURE = "table3-time.png"


def front(kept: dict[str, dict[str, Any]]) -> str:
    """The table and the picture, from the JSON of the parts."""
    rows = [*_data_sets(kept), *_decomposition(kept), *_wide_network(kept)]
    said = [
        markdown(HEADINGS, rows, {1, 2, 3, 4, 5, 6}),
        "",
        "All servers on one machine (over slow links where it says so); the paper's four had 40 cores each. Error: the largest "
        "difference of an explained-variance ratio to scikit-learn (IoT-9 and slow links: to the correlation in float64; the "
        "decomposition: of an eigenvalue, relative to the largest, to NumPy). In the clear: scikit-learn on pooled rows. Other "
        "frameworks run a Jacobi that we wrote for them; (projected): extended from short runs. More, and how it was measured: "
        "[docs/evaluation.md](docs/evaluation.md)." + _busy(kept),
    ]
    pictures = [plot for plot in kept.get("table3", {}).get("plots", []) if plot["file"] == PICTURE]
    said += [f"\n![{plot['caption']}](docs/evaluation/{plot['file']})" for plot in pictures]
    return "\n".join(said)


def _busy(kept: dict[str, dict[str, Any]]) -> str:
    """What must be said of the times, if the machine had other things to do."""
    machines = [kept[part]["machine"] for part in ("table3", "peers", "wan") if "machine" in kept.get(part, {})]
    if not any(map(was_busy, machines)):
        return ""
    worst = max(machines, key=lambda machine: float(machine["load"]))
    return (
        f" The machine was busy with other things meanwhile (a load of {worst['load']:.0f} on {worst['cores']} cores): a quiet "
        "one is faster."
    )


def _records(kept: dict[str, dict[str, Any]], part: str, table: int = 0) -> list[dict[str, Any]]:
    """The records of a table of a part; none where it was not measured."""
    tables = kept.get(part, {}).get("tables", [])
    return list(tables[table]["records"]) if table < len(tables) else []


def _data_sets(kept: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    for record in _records(kept, "table3"):
        if record["name"] in SHOWN:
            ours, paper = sum(record[step] for step in STEPS), sum(record["paper"].values())
            yield [
                f"joint PCA, {record['name']}: {record['rows']:,} x {record['columns']}, {record['owners']} owners",
                duration(ours) + behind(ours, paper, "the paper"),
                f"{record['rounds']:,}",
                size(record["bytes_per_server"]),
                f"{record['ratio_error']:.0e}",
                f"{paper:.1f} s",
                duration(record["plain"]) if record["rows"] <= MOST_IN_MEMORY else "",
            ]


def _decomposition(kept: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    """All-pairs and each peer on the largest matrix that they were measured with."""
    measured = _records(kept, "peers")
    d = max((record["d"] for record in measured), default=0)
    paper = next((r["paper_best"] for r in _records(kept, "table4") if r["d"] == d), None)
    for record in measured:
        name = record["who"].partition(",")[0]
        ours = record["who"] == "PPCA, all-pairs"
        servers, _, threat = record["parties"].partition(", ")
        if record["d"] == d and (ours or name != "PPCA"):
            yield [
                (f"eigendecomposition alone, d = {d}" if ours else f"the same by {name}")
                + f": {servers} servers, {threat}",
                time_of(record),
                rounds_of(record),
                size(record["bytes"]),
                "" if record["eigenvalue_error"] is None else f"{record['eigenvalue_error']:.0e}",
                f"{paper:.1f} s" if ours and paper is not None else "",
                "",
            ]


def _wide_network(kept: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    for record in _records(kept, "wan"):
        if record["network"] == "WAN":
            yield [
                f"joint PCA over 40 ms, 100 Mbit/s: {record['work']}",
                duration(record["seconds"]),
                f"{record['rounds']:,}",
                size(record["bytes_per_server"]),
                f"{record['ratio_error']:.0e}",
                "",
                "",
            ]
