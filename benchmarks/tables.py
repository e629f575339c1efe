"""Fills the tables of docs/evaluation/benchmarks.md and docs/concepts/column-owners.md from the JSON that the
measurements wrote.

A table whose JSON is not in the folder is left as it is. No figure is typed by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.vertical import chunks
from docs.generate import ROOT, replaced
from ppca.web.report import duration, size

SHOWN_LEVELS = ("avx512ifma", "avx2", "vaes", "aesni", "portable")


def table(heads: list[str], rows: Iterable[list[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def kernels(data: dict[str, Any]) -> str:
    rows = [
        [
            row["kernel"],
            row["size"],
            row["level"],
            row["unit"],
            f"{row['best']:.3g}",
            f"{row['target']:g}" if row["target"] else "",
        ]
        for row in data["rows"]
        if row["level"] in SHOWN_LEVELS
    ]
    return table(["kernel", "size", "level", "unit", "best", "target"], rows)


def ops(data: dict[str, Any]) -> str:
    rows = [
        [
            row["op"],
            f"{row['n']:,}",
            duration(row["seconds"]),
            f"{row['relative']:.3g}",
            str(row["rounds"]),
            size(row["bytes_per_server"]),
            f"{row['max_error']:.1e}",
            f"{row['seconds'] / row['raw_round']:.1f}x" if row["raw_round"] else "",
            f"{row['seconds'] / row['transport_round']:.1f}x" if row.get("transport_round") else "",
        ]
        for row in data["rows"]
    ]
    heads = ["operation", "elements", "time", "vs 10^4 mul", "rounds", "sent per server", "largest error"]
    return table([*heads, "vs bare sockets", "vs empty round"], rows)


def spu(data: dict[str, Any]) -> str:
    rows = [
        [
            row["op"],
            f"{row['n']:,}",
            duration(row["ppca_s"]),
            duration(row["spu_s"]),
            f"{row['ratio']:.1f}x",
            f"{row['kernel_ratio']:.1f}x",
        ]
        for row in data["ratios"]
    ]
    return table(["operation", "elements", "PPCA", "SPU", "SPU / PPCA", "without SPU's parsing"], rows)


def eigen(data: dict[str, Any]) -> str:
    rows = [
        [
            row["solver"] + (" (projected)" if row["projected"] else ""),
            str(row["d"]),
            f"{row['iterations']:,}",
            f"{row['rounds']:,}",
            size(row["bytes_per_server"]),
            *(duration(row[key]) for key in ("seconds", "LAN", "WAN")),
            *(f"{row[key]:.0e}" if row[key] is not None else "" for key in ("residual", "eigenvalue_error")),
        ]
        for row in data["rows"]
    ]
    heads = ["solver", "d", "iterations", "rounds", "sent per server", "here", "LAN", "WAN", "residual", "eigenvalues"]
    return table(heads, rows)


def topk(data: list[dict[str, Any]]) -> str:
    heads = [
        "spectrum",
        "d",
        "K",
        "solver",
        "loops",
        "rounds",
        "sent per server",
        "time",
        "memory",
        "residual",
        "eigenvalues",
        "verified",
    ]
    return table(
        heads,
        (
            [
                row["spectrum"],
                f"{row['d']:,}",
                str(row["k"]),
                row["solver"],
                str(row["loops"]),
                str(row["rounds"]),
                size(row["bytes_per_server"]),
                duration(row["seconds"]),
                size(row["memory"]),
                f"{row['residual']:.0e}",
                f"{row['eigenvalue_error']:.0e}",
                "yes" if row["verified"] else "no",
            ]
            for row in data
        ),
    )


def accuracy(data: dict[str, Any]) -> str:
    rows = [
        [
            f"{row['data']}, {'standardised' if row['standardised'] else 'raw'}",
            f"{row['rows']:,} x {row['columns']}",
            str(row["owners"]),
            str(row["rounds"]),
            size(row["bytes_per_server"]),
            duration(row["seconds"]),
            *(f"{row[key]:.0e}" for key in ("ratio_error", "eigenvalue_error", "residual", "orthogonality")),
        ]
        for row in data["rows"]
    ]
    heads = [
        "data",
        "shape",
        "owners",
        "rounds",
        "sent per server",
        "time",
        "ratios",
        "eigenvalues",
        "residual",
        "orthogonality",
    ]
    return table(heads, rows)


def owner(data: dict[str, Any]) -> str:
    rows = [
        [
            f"owner {row['owner']}",
            f"{row['rows']:,}",
            duration(row["seconds"]),
            f"{row['ratio']:.2f}",
            size(row["memory"]),
        ]
        for row in data["passes"]
    ]
    joint = "\n".join(
        f"Whole joint PCA, {'standardised' if run['standardised'] else 'raw'}: {duration(run['seconds'])}, "
        f"{run['rounds']} rounds, {size(run['bytes_per_server'])} sent per server."
        for run in data["joint"]
    )
    return table(["pass", "rows", "time", "ratio", "peak memory"], rows) + "\n\n" + joint


def vertical_times(data: dict[str, Any]) -> str:
    stages = ["arrange", "upload", "align", "second moments", "covariance", "eigendecomposition"]
    rows = [
        [
            job["data"],
            f"{job['rows']:,}",
            job["alignment"],
            str(chunks(job["chunks"], job["rows"])),
            *(f"{job['seconds'][stage]:.2f}" for stage in stages),
            f"{job['covariance_step']:.2f}",
            f"{job['total']:.2f}",
        ]
        for job in data["jobs"]
    ]
    shown = table(["data", "rows", "alignment", "M", *stages, "covariance step", "whole job"], rows)
    return f"{shown}\n\n{beside_the_paper([job for job in data['jobs'] if job['rows'] == PAPER_ROWS])}"


PAPER_ROWS, PAPER_SECONDS = 195_177, 50.2
"""MOOC-10 of the paper: rows, and seconds of its covariance step."""


def beside_the_paper(jobs: list[dict[str, Any]]) -> str:
    """Return how many times faster the covariance step is than the paper's, of tables as large as its own."""
    faster = [PAPER_SECONDS / job["covariance_step"] for job in jobs]
    return (
        f"The covariance step of {PAPER_ROWS:,} rows is {min(faster):.1f} to {max(faster):.1f} times faster than the "
        f"paper's."
        if faster
        else ""
    )


def vertical_traffic(data: dict[str, Any]) -> str:
    rows = [
        [
            job["data"],
            job["alignment"],
            str(chunks(job["chunks"], job["rows"])),
            size(job["bytes_per_owner"]),
            size(max(job["bytes_received_per_server"])),
            size(max(job["bytes_between_servers"])),
            str(job["rounds"]),
            size(max(job["peak_memory"])),
            *(f"{job['accuracy'][key]:.1e}" for key in ("ratio_error", "eigenvalue_error", "residual")),
        ]
        for job in data["jobs"]
    ]
    sent = ["sent by an owner", "received by a server from owners", "sent by a server"]
    errors = ["EVR error", "eigenvalue error", "residual"]
    return table(["data", "alignment", "M", *sent, "rounds", "peak memory of a server", *errors], rows)


def scale(data: dict[str, Any]) -> str:
    ways = [
        [
            way["way"],
            duration(way["seconds"]),
            f"{way['rows_per_second']:,.0f}",
            duration(way["processor"]),
            size(way["memory"]),
            size(max(way["workers"])) if way["workers"] else "",
        ]
        for way in data["ways"]
    ]
    shape = f"{data['rows']:,} x {data['columns']}, {data['distinct_files']} of {data['files']} files distinct"
    shape += f"; {data['parts']} parts; {data['cores']} cores, load {data['load']:.0f}"
    heads = [shape, "time", "rows/s", "processor seconds", "peak of client", "peak of a worker"]
    return table(heads, ways)


def threads(data: dict[str, Any]) -> str:
    """Speed-up of the largest number of threads over one."""
    rows = []
    for row in data["rows"]:
        seconds = {int(count): value for count, value in row["seconds"].items()}
        most = max(seconds)
        faster = f"{seconds[1] / seconds[most]:.2f}"
        rows.append([row["kernel"], row["size"], duration(seconds[1]), duration(seconds[most]), str(most), faster])
    return table(["kernel", "size", "1 thread", "threads", "number", "speed-up"], rows)


def federation(data: dict[str, Any]) -> str:
    first = data["table"][0]
    rows = [
        [
            row["how"],
            duration(row["seconds"]),
            duration(row["predicted"]) if row["predicted"] else "",
            duration(row["wall"]),
            f"{row['wall'] / first['wall']:.1f}x",
            f"{row['rounds']:,}",
            size(row["bytes_per_server"]),
            size(row["busiest_link"]),
            f"{row['ratio_error']:.1e}",
        ]
        for row in data["table"]
    ]
    heads = ["how", "on the servers", "predicted", "whole wait", "ratio", "rounds", "sent per server", "busiest link"]
    return table([*heads, "EVR error"], rows)


def edges(data: list[dict[str, Any]]) -> str:
    rows = [
        [
            f"{row['data']}, {'standardised' if row['standardised'] else 'raw'}",
            f"{row['ratio_error']:.0e}",
            f"{row['variance_error']:.0e}",
            "yes" if row["verified"] else "NO",
            str(row["below_resolution"]),
            str(row["rounds"]),
            size(row["bytes_per_server"]),
        ]
        for row in data
    ]
    heads = ["data", "ratios", "variances", "verified", "below resolution", "rounds", "sent per server"]
    return table(heads, rows)


def fuzz(data: dict[str, Any]) -> str:
    rows = [
        [
            one["target"],
            *(f"{one[key]:,}" for key in ("inputs", "accepted", "refused")),
            f"{max(one['inputs'] - one['accepted'] - one['refused'], len(one['findings'])):,}",
            size(one["memory"]),
        ]
        for one in data["targets"]
    ]
    return table(["target", "inputs", "accepted", "refused", "findings", "peak memory"], rows)


def psi(data: dict[str, Any]) -> str:
    rows = [
        [
            row["what"],
            f"{row['ids']:,}",
            ", ".join(f"{name} {seconds:.1f}" for name, seconds in row["seconds"].items()),
            f"{row['per_second'] / 1e6:.1f} million",
            size(row["peak_memory"]),
        ]
        for row in data["tags"]
    ]
    return table(
        ["private set intersection, one core", "ids per owner", "seconds", "ids per second", "peak memory"], rows
    )


# Marker of the table: page, JSON, how it is made.
TABLES: dict[str, tuple[str, str, Callable[[Any], str]]] = {
    "kernels": ("evaluation/benchmarks.md", "kernels", kernels),
    "ops": ("evaluation/benchmarks.md", "ops", ops),
    "spu": ("evaluation/benchmarks.md", "spu", spu),
    "eigen": ("evaluation/benchmarks.md", "eigen", eigen),
    "topk": ("evaluation/benchmarks.md", "topk", topk),
    "accuracy": ("evaluation/benchmarks.md", "accuracy", accuracy),
    "edges": ("evaluation/benchmarks.md", "edges", edges),
    "owner": ("evaluation/benchmarks.md", "owner", owner),
    "scale": ("how-to/large-tables.md", "scale", scale),
    "threads": ("how-to/large-tables.md", "threads", threads),
    "federation": ("evaluation/benchmarks.md", "federation", federation),
    "fuzz": ("evaluation/benchmarks.md", "fuzz", fuzz),
    "psi": ("concepts/column-owners.md", "vertical", psi),
    "vertical-times": ("concepts/column-owners.md", "vertical", vertical_times),
    "vertical-traffic": ("concepts/column-owners.md", "vertical", vertical_traffic),
}


def main(folder: Path) -> None:
    for name, (page, source, make) in TABLES.items():
        data = folder / f"{source}.json"
        if not data.exists():
            print(f"{name}: {data} is not there, the table stays as it is")
            continue
        path = ROOT / "docs" / page
        path.write_text(replaced(path.read_text(), f"{name}-table", make(json.loads(data.read_text()))))
        print(f"{name}: written")
