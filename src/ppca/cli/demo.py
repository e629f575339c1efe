"""`ppca demo`: three hospitals learn the joint mean and standard deviation of their patients' measurements.

The patients are made with NumPy, so the demo can show the plaintext answer beside the joint one. One client plays all
three hospitals; each hospital's table is shared on its own, and the four server processes see shares only.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from ..cluster import ClusterError, LocalCluster
from ..protocol import Party, SecretArray, concatenate

COLUMNS = ("age", "height cm", "weight kg", "pressure mmHg", "glucose mg/dl")
CENTRES = np.array([54.0, 170.0, 76.0, 131.0, 104.0])
SPREADS = np.array([15.0, 9.5, 13.0, 17.0, 22.0])
PATIENTS = {"North": 160, "Harbour": 95, "Hill": 245}

TOLERANCE = 1e-6
"""Largest accepted difference. The factor 1/n is rounded to 40 bits: a relative error of n 2^-41 in a mean."""


async def joint_statistics(party: Party, *hospitals: SecretArray) -> dict[str, Any]:
    """Mean and standard deviation of every column over all hospitals' rows. Nine rounds; only the results are revealed."""
    rows = concatenate(hospitals)
    mean = rows.mean(axis=0)
    centred = rows - mean
    squares = await centred.inner(centred, axis=0)  # 1 round
    party.progress("standard deviations", 0.2)
    deviation = await (squares / (len(rows) - 1)).sqrt()  # 8 rounds
    why = "result of the demo"
    return {"mean": mean.reveal(what="means", why=why), "std": deviation.reveal(what="standard deviations", why=why)}


def make_patients(seed: int = 0) -> list[NDArray[np.float64]]:
    """One table per hospital: rows are patients. Hospitals differ a little, so that joint and own results differ."""
    rng = np.random.default_rng(seed)
    shifts = rng.normal(0, 0.3, (len(PATIENTS), len(COLUMNS)))
    return [
        CENTRES + SPREADS * (shift + rng.normal(size=(count, len(COLUMNS))))
        for count, shift in zip(PATIENTS.values(), shifts, strict=True)
    ]


def demo(tls: Annotated[bool, typer.Option("--tls", help="mutual TLS between the servers")] = False) -> None:
    """Joint statistics of three hospitals on four local servers, beside the plaintext answer."""
    console = Console()
    tables = make_patients()
    sizes = ", ".join(f"{name} ({count} patients)" for name, count in PATIENTS.items())
    console.print(
        f"Three hospitals: {sizes}. Each table is secret-shared; four server processes compute on the shares."
    )
    try:
        with console.status("starting four servers") as status, LocalCluster(tls=tls) as cluster:
            result = cluster.run(
                joint_statistics, *tables, progress=lambda text, _, rounds: status.update(f"{text} (round {rounds})")
            )
            report = cluster.report
    except ClusterError as error:
        Console(stderr=True).print(f"[red]error:[/] {error}", highlight=False)
        raise typer.Exit(1) from None
    assert report is not None

    together = np.concatenate(tables)
    expected = {"mean": together.mean(axis=0), "std": together.std(axis=0, ddof=1)}
    shown = Table(title="On shares, and NumPy on the pooled plaintext")
    for heading in ("column", "statistic", "joint", "NumPy", "difference"):
        shown.add_column(heading, justify="left" if heading in ("column", "statistic") else "right")
    for i, name in enumerate(COLUMNS):
        for key, plain in expected.items():
            ours, theirs = float(result[key][i]), float(plain[i])
            label = name if key == "mean" else ""
            shown.add_row(label, key, f"{ours:.6f}", f"{theirs:.6f}", f"{abs(ours - theirs):.1e}")
    console.print(shown)
    console.print(
        f"{report.rounds} rounds (one to agree keys), {max(report.bytes_sent):,} bytes sent by the busiest server, "
        f"{report.seconds * 1000:.1f} ms, {'mutual TLS' if tls else 'plain TCP on loopback'}"
    )
    audit = Table("opened", "shape", "to", "why", title="Audit: all that left the sharing")
    for line in report.audit:
        audit.add_row(line["what"], str(tuple(line["shape"])), line["to"], line["why"])
    console.print(audit)
    worst = max(float(np.abs(result[key] - expected[key]).max()) for key in expected)
    if not (math.isfinite(worst) and worst < TOLERANCE):
        Console(stderr=True).print(f"[red]error:[/] the joint result differs from NumPy by {worst:.1e}")
        raise typer.Exit(1)
