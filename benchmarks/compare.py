"""`ppca bench spu`: PPCA and SPU in one run on the same machine, and the ratio of their times.

SPU runs its ABY3 protocol (three semi-honest servers) over the 128-bit field with its default settings, each party a
process, linked over loopback TCP. It keeps 26 fractional bits there; PPCA keeps 40. Results of comparisons stay boolean
shares in SPU and are arithmetic shares in PPCA.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks import ops, peers, table_console
from ppca.web.report import duration

OPERATIONS = ["mul", "gt", "eq", "sqrt", "reciprocal"]
SIZES = [1_000, 10_000]


def main(venv: Path, repeats: int, directory: Path) -> None:
    console = table_console()
    with console.status("preparing the peer's virtual environment"):
        peers.ensure_venv(venv)
    ours = ops.run(SIZES, OPERATIONS, repeats, tls=False, console=console)
    with console.status("measuring SPU"):
        theirs = peers.run_spu(venv, SIZES, repeats)
    result: dict[str, Any] = {"ppca": ours, "spu": theirs, "ratios": ratios(ours, theirs)}
    table = Table(title=f"PPCA and SPU {theirs['version']} ({theirs['protocol']}, {theirs['field']})")
    for name in ("operation", "elements", "PPCA", "SPU", "SPU kernels only", "SPU / PPCA", "kernels only / PPCA"):
        table.add_column(name, justify="left" if name == "operation" else "right")
    for row in result["ratios"]:
        table.add_row(
            row["op"],
            f"{row['n']:,}",
            duration(row["ppca_s"]),
            duration(row["spu_s"]),
            duration(row["spu_kernel_s"]),
            f"{row['ratio']:.1f}x",
            f"{row['kernel_ratio']:.1f}x",
        )
    console.print(table)
    console.print("'kernels only' leaves out the parsing of the program text that SPU repeats in every call.")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "spu.json").write_text(json.dumps(result, indent=1) + "\n")
    console.print(f"written: {directory / 'spu.json'}")


def ratios(ours: dict[str, Any], theirs: dict[str, Any]) -> list[dict[str, Any]]:
    """Time of SPU over time of PPCA, by operation and size."""
    seconds = {(row["op"], row["n"]): row["seconds"] for row in ours["rows"]}
    rows = []
    for row in theirs["rows"]:
        mine = seconds.get((row["op"], row["n"]))
        if mine is None or row.get("variant", "default") != "default":
            continue
        kernel = row.get("kernel_median_s", row["median_s"])
        rows.append(
            {
                "op": row["op"],
                "n": row["n"],
                "ppca_s": mine,
                "spu_s": row["median_s"],
                "spu_kernel_s": kernel,
                "ratio": row["median_s"] / mine,
                "kernel_ratio": kernel / mine,
            }
        )
    return rows
