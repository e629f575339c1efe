"""One look for all figures of the evaluation: size, type, colours by meaning."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from PIL import Image

OURS, PAPER, PEER, TRUTH = "#0b6e4f", "#b0793a", "#7a5195", "#8a8f98"
"""PPCA, the paper's figures, other frameworks, and plaintext: the same colour in every figure."""

CYCLE = ("#0b6e4f", "#2166ac", "#b0793a", "#b2182b", "#7a5195", "#17879c", "#6b6f76", "#d0a215", "#3d3d3d", "#9b4f96")
"""For everything else, in this order; told apart by colour-blind readers together with the markers."""

MARKERS = "osD^vPX<>*"
WIDTH, HEIGHT, DPI = 7.2, 4.0, 110
MAX_BYTES = 100_000
"""Dots per inch of a figure's file: figures are part of the repository."""

COLOURS = 128
"""Colours of a figure's palette: enough for lines and smoothed type, a third of the bytes."""

RULES: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "white",
}


def figure(*titles: str, width: float = WIDTH, height: float = HEIGHT, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure with one panel per title, side by side unless `options` of subplots say otherwise (nrows, ncols,
    sharey)."""
    options = {"nrows": 1, "ncols": len(titles)} | options
    with matplotlib.rc_context(RULES):
        drawn = Figure(figsize=(width, height), layout="constrained")
        panels = list(drawn.subplots(**options, squeeze=False).flat)
        for panel, title in zip(panels, titles, strict=True):
            panel.set_title(title)
    return drawn, panels


def lines(panel: Axes, series: Sequence[tuple[str, Sequence[float], Sequence[float]]], **options: Any) -> None:
    """Named series of points, each with a colour and a marker of its own."""
    for number, (name, x, y) in enumerate(series):
        look = {"color": CYCLE[number % len(CYCLE)], "marker": MARKERS[number % len(MARKERS)]} | options
        panel.plot(x, y, label=name, linewidth=1.6, markersize=4.5, **look)


def bars(panel: Axes, names: Sequence[str], groups: Sequence[tuple[str, str, Sequence[float | None]]]) -> None:
    """Groups of bars: label, colour, a value per name; None leaves a gap."""
    width = 0.8 / len(groups)
    for number, (label, colour, values) in enumerate(groups):
        places = [i + (number - (len(groups) - 1) / 2) * width for i, value in enumerate(values) if value is not None]
        panel.bar(places, [value for value in values if value is not None], width * 0.94, label=label, color=colour)
    panel.set_xticks(range(len(names)), names)
    panel.grid(False, axis="x")


def dimensions(panel: Axes, values: Sequence[int]) -> None:
    """An x axis of the dimensions that were measured, with space beside them."""
    room = 0.1 * (max(values) - min(values)) or 5.0
    panel.set_xticks(values, map(str, values))
    panel.set_xlim(min(values) - room, max(values) + room)
    panel.set_xlabel("dimension d")


def logarithmic(panel: Axes) -> None:
    """A logarithmic y axis with numbers as people write them: powers of ten, and more of each decade if there are
    few."""
    panel.set_yscale("log")
    low, high = panel.get_ylim()
    steps = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if high / low < 5 else (1.0, 2.0, 5.0) if high / low < 200 else (1.0,)
    panel.yaxis.set_major_locator(LogLocator(subs=steps, numticks=20))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:g}"))
    panel.yaxis.set_minor_locator(NullLocator())


def legend(panel: Axes, **options: Any) -> None:
    """The names of what is drawn, without a frame."""
    panel.legend(**{"frameon": False, "fontsize": 8.5} | options)


def save(drawn: Figure, path: Path) -> None:
    """Write a PNG of few colours; refuse one that is too large for the repository."""
    whole = BytesIO()
    with matplotlib.rc_context(RULES):
        drawn.savefig(whole, dpi=DPI)
    Image.open(whole).convert("RGB").quantize(COLOURS).save(path, optimize=True)
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path.name} has {path.stat().st_size:,} bytes, more than {MAX_BYTES:,}: draw fewer points")
