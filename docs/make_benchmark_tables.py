"""Fills the tables of docs/benchmarks.md from the JSON that `ppca bench ...` wrote.

    python docs/make_benchmark_tables.py bench-results

A table whose JSON is not in the folder is left as it is. No figure is typed by hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ppca.report import duration, size

PAGE = Path(__file__).parent / "benchmarks.md"
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


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "kernels": kernels,
    "ops": ops,
    "spu": spu,
    "eigen": eigen,
    "accuracy": accuracy,
    "owner": owner,
}


def main(folder: Path) -> None:
    page = PAGE.read_text()
    for name, make in TABLES.items():
        source = folder / f"{name}.json"
        if not source.exists():
            print(f"{name}: {source} is not there, the table stays as it is")
            continue
        begin, end = f"<!-- {name}-table -->", f"<!-- end of {name}-table -->"
        before, found, after = page.partition(begin)
        if not found:
            print(f"{name}: no marker in the page")
            continue
        rest = after.partition(end)[2] if end in after else after
        page = f"{before}{begin}\n{make(json.loads(source.read_text()))}\n{end}{rest}"
        print(f"{name}: written")
    PAGE.write_text(page)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("bench-results"))
