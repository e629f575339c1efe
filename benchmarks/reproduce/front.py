"""Write the overview of the evaluation: the comparison with peers in the README, the long table of the page.

Both are taken from the JSON in docs/evaluation/, like the rest of the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docs.generate import markdown
from ppca.web.report import duration, size

from .paper_sets import MAX_IN_MEMORY
from .peers import rounds_of, time_of
from .result import behind, was_busy
from .table3 import STEPS, resampled

SHOWN = ("Wine", "IoT-9", "MOOC-10")
HEADINGS = ["", "time", "whole wait", "rounds", "sent per server", "error", "the paper", "in the clear"]
PICTURE = "table3-time.png"
TIMED = {"table3": "the jobs of the paper's data", "peers": "the decompositions", "wan": "the jobs over slow links"}
"""Parts that the table takes times from, and how they are called."""

PAPER = "[the paper](#the-paper)"
ALGORITHM = {True: "built in", False: "written by us"}


def comparison(kept: dict[str, dict[str, Any]]) -> str:
    """The table and the picture of the README: one decomposition by PPCA and by each peer."""
    d = _dimension(kept)
    best = _best(kept, d, "plain")
    parties = [one["parties"].split(", ")[:2] for one in best]
    rows = [
        ["servers", *(servers for servers, _ in parties)],
        ["one server may be", *(_corruption(security) for _, security in parties)],
        ["time, all servers on one machine", *(time_of(one) for one in best)],
        ["communication rounds", *(rounds_of(one) for one in best)],
        ["sent per server", *(size(one["bytes"]) for one in best)],
        ["largest error of an eigenvalue", *(_error(one) for one in best)],
        ["the algorithm is", *(ALGORITHM[one["system"] == "PPCA"] for one in best)],
    ]
    heads = [f"eigendecomposition of a {d} x {d} matrix", *(one["system"] for one in best)]
    said = [markdown(heads, rows, set(range(1, len(heads)))), ""]
    pictures = [plot for plot in kept.get("table3", {}).get("plots", []) if plot["file"] == PICTURE]
    said += [_notes(kept, d), *(f"\n![{plot['caption']}](docs/evaluation/{plot['file']})" for plot in pictures)]
    return "\n".join(said)


def _corruption(security: str) -> str:
    return security if security == "semi-honest" else f"**{security}**"


def _error(record: dict[str, Any]) -> str:
    return "" if record["eigenvalue_error"] is None else f"{record['eigenvalue_error']:.0e}"


def _notes(kept: dict[str, dict[str, Any]], d: int) -> str:
    """Return what a reader of the short table must know: load, dimensions at which a peer is faster, complete jobs."""
    machine = kept.get("peers", {}).get("machine")
    busy = f" with other work on it (load {machine['load']:.0f})" if machine and was_busy(machine) else ""
    said = [f"Channels are not encrypted in this table; two cores{busy}."]
    for other in sorted({one["d"] for one in _records(kept, "peers")} - {d}):
        faster = [one for one in _best(kept, other, "plain") if one["system"] != "PPCA" and one["ratio"] < 1]
        said += [
            f"With {other} columns {one['system']} is faster: {one['ratio']:.2g} of the time of PPCA." for one in faster
        ]
    jobs = [
        f"{one['name']}{resampled(one)} {duration(sum(one[step] for step in STEPS))}, the paper "
        f"{sum(one['paper'].values()):.1f} s"
        for one in _records(kept, "table3")
        if one["name"] in SHOWN
    ]
    if jobs:
        said.append(f"Complete joint PCAs of the paper's data: {'; '.join(jobs)}.")
    return "\n".join([*said, "All tables, conditions and networks: [evaluation](docs/evaluation/paper.md)."])


def front(kept: dict[str, dict[str, Any]]) -> str:
    """The long table of the page, from the JSON of the parts."""
    rows = [*_data_sets(kept), *_decomposition(kept), *_wide_network(kept)]
    projected = any("(projected)" in cell for row in rows for cell in row)
    said = [
        markdown(HEADINGS, rows, set(range(1, len(HEADINGS)))),
        "",
        "- All servers run on one machine (over slow links where the table says so); the four servers of "
        f"{PAPER} had 40 cores each.{_busy(kept)}",
        "- Time: the longest of the owners' own passes, which they make at the same time on their own machines, and the time of "
        "the servers. Whole wait: from the call to the result if one machine plays all owners, one after the other. In the "
        "clear: scikit-learn on pooled rows.",
        "- Error: the largest difference of an explained-variance ratio to scikit-learn (IoT-9 and slow links: to the "
        "correlation in float64; the decomposition: of an eigenvalue, relative to the largest, to NumPy).",
        "- Resampled: the public sample has fewer rows than the paper's table; rows are drawn from it, with noise.",
        "- Other frameworks run the best cyclic Jacobi that we could write for them, in these rows over plain channels, as PPCA"
        + ("; (projected): extended from short runs" if projected else "")
        + f".{_ratios(kept)}",
    ]
    return "\n".join(said)


def _busy(kept: dict[str, dict[str, Any]]) -> str:
    """Return what must be said of the times, if the machine had other things to do: of which rows, and how much."""
    machines = {rows: kept[part]["machine"] for part, rows in TIMED.items() if "machine" in kept.get(part, {})}
    found = [f"{rows} (load {found['load']:.0f})" for rows, found in machines.items() if was_busy(found)]
    if not found:
        return ""
    return f" The machine was busy with other things during {' and '.join(found)}: a quiet one is faster."


def _records(kept: dict[str, dict[str, Any]], part: str, table: int = 0) -> list[dict[str, Any]]:
    """The records of a table of a part; none if it was not measured."""
    tables = kept.get(part, {}).get("tables", [])
    return list(tables[table]["records"]) if table < len(tables) else []


def _data_sets(kept: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    for record in _records(kept, "table3"):
        if record["name"] in SHOWN:
            ours, paper = sum(record[step] for step in STEPS), sum(record["paper"].values())
            yield [
                f"joint PCA, {record['name']}: {record['rows']:,} x {record['columns']}{resampled(record)}, "
                f"{record['owners']} owners",
                duration(ours) + behind(ours, paper, "the paper"),
                duration(record["whole"]),
                f"{record['rounds']:,}",
                size(record["bytes_per_server"]),
                f"{record['ratio_error']:.0e}",
                f"{paper:.1f} s",
                duration(record["plain"]) if record["rows"] <= MAX_IN_MEMORY else "",
            ]


def _best(kept: dict[str, dict[str, Any]], d: int, channel: str) -> list[dict[str, Any]]:
    """All-pairs, and the fastest program of every peer, on one matrix over one kind of channels."""
    measured = [one for one in _records(kept, "peers") if (one["d"], one["channel"]) == (d, channel)]
    names = dict.fromkeys(one["system"] for one in measured)
    return [
        min((one for one in measured if one["system"] == name), key=lambda one: float(one["seconds"])) for name in names
    ]


def _dimension(kept: dict[str, dict[str, Any]]) -> int:
    """The largest matrix that peers decomposed and the paper has a figure for, else the largest."""
    measured = {record["d"] for record in _records(kept, "peers")}
    papers = {record["d"] for record in _records(kept, "table4")}
    return max(measured & papers or measured, default=0)


def _decomposition(kept: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    """All-pairs and each peer on one matrix."""
    papers = {record["d"]: record["paper_best"] for record in _records(kept, "table4")}
    d = _dimension(kept)
    for record in _best(kept, d, "plain"):
        ours = record["system"] == "PPCA"
        servers, _, threat = record["parties"].partition(", ")
        yield [
            (f"eigendecomposition alone, d = {d}" if ours else f"the same by {record['system']}")
            + f": {servers} servers, {threat}",
            time_of(record),
            "",
            rounds_of(record),
            size(record["bytes"]),
            _error(record),
            f"{papers[d]:.1f} s" if ours and papers.get(d) is not None else "",
            "",
        ]


def _ratios(kept: dict[str, dict[str, Any]]) -> str:
    """Return the time of each peer as a multiple of that of PPCA, by dimension, over plain channels and over TLS."""
    found: dict[int, dict[str, list[str]]] = {}
    for d, channel in dict.fromkeys((one["d"], one["channel"]) for one in _records(kept, "peers")):
        for one in _best(kept, d, channel):
            if one["system"] != "PPCA":
                found.setdefault(d, {}).setdefault(one["system"], []).append(f"{one['ratio']:.2g} ({channel})")
    if not found:
        return ""
    each = "; ".join(
        f"d = {d}: " + ", ".join(f"{who} {' and '.join(many)}" for who, many in peers.items())
        for d, peers in sorted(found.items())
    )
    return f" Their time as a multiple of PPCA's (below 1: faster than PPCA), over each kind of channels: {each}."


def _wide_network(kept: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    for record in _records(kept, "wan"):
        if record["network"] == "WAN":
            yield [
                f"joint PCA over 40 ms, 100 Mbit/s: {record['work']}",
                duration(record["seconds"]),
                duration(record["wall"]),
                f"{record['rounds']:,}",
                size(record["bytes_per_server"]),
                f"{record['ratio_error']:.0e}",
                "",
                "",
            ]
