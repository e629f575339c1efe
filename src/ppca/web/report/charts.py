"""Charts of a fitted model as inline SVG: no script, no font and no file from elsewhere; hovering shows the number."""

from __future__ import annotations

import html
import math

import numpy as np
from numpy.typing import NDArray

from ...html.formats import percent
from ...html.labels import labels, width

Floats = NDArray[np.float64]

WIDTH, HEIGHT = 520, 280
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 14, 38
MAP_COMPONENTS = 12
"""Components the loadings map shows: more would not be read."""

HEADS_EVERY, HEAD = 40, 24
"""Rows of the loadings map after which the numbers of components come again, and the height of that line."""

MINUS = "−"

NEGATIVE, NEUTRAL, POSITIVE = (33, 102, 172), (247, 247, 247), (178, 24, 43)
"""Ends and middle of the map's colours (ColorBrewer RdBu): safe for colour-blind readers."""


def scree(ratios: Floats) -> str:
    """Share of the variance that each component explains, as bars."""
    top = _nice_top(float(ratios.max(initial=0.0)))
    step, width = _columns(len(ratios))
    parts = _grid(top)
    for i, ratio in enumerate(ratios.tolist()):
        x = LEFT + i * step + (step - width) / 2
        height = (HEIGHT - TOP - BOTTOM) * min(1.0, ratio / top)
        y = HEIGHT - BOTTOM - height
        text = f"component {i + 1}: {percent(ratio)}"
        box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        parts.append(f'<rect class="bar" {box}><title>{text}</title></rect>')
        if step >= 38:
            parts.append(f'<text class="value" x="{x + width / 2:.1f}" y="{y - 4:.1f}">{_short(ratio)}</text>')
    parts += _component_axis(len(ratios), step)
    return _svg(WIDTH, HEIGHT, parts, "Explained variance ratio by component")


def cumulative(ratios: Floats) -> str:
    """Share of the variance that the first so many components explain together, as a line."""
    step, _ = _columns(len(ratios))
    sums = np.minimum(np.cumsum(ratios), 1.0).tolist()
    parts = _grid(1.0)
    points = [
        (LEFT + (i + 0.5) * step, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value) for i, value in enumerate(sums)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    base = HEIGHT - BOTTOM
    parts.append(f'<polygon class="area" points="{points[0][0]:.1f},{base} {path} {points[-1][0]:.1f},{base}"/>')
    parts.append(f'<polyline class="line" points="{path}"/>')
    radius = 4 if step >= 12 else 2
    for i, ((x, y), value) in enumerate(zip(points, sums, strict=True)):
        text = f"first {i + 1}: {percent(value)}"
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{text}</title></circle>')
        if step >= 38:
            parts.append(
                f'<text class="value" x="{x:.1f}" y="{y - 8 if y > TOP + 16 else y + 17:.1f}">{_short(value)}</text>'
            )
    parts += _component_axis(len(ratios), step)
    return _svg(WIDTH, HEIGHT, parts, "Cumulative explained variance ratio")


def loadings(components: Floats, names: list[str]) -> str:
    """The first components as a map: a row per feature, a column per component, colour and number for the loading."""
    shown = components[:MAP_COMPONENTS]
    k, d = shown.shape
    row, font = (22, 12) if d <= 40 else (17, 11)
    cell = 54 if k <= 8 else 44
    short = labels(names)
    left = round(max(map(width, short)) * font * 0.64) + 14
    largest = float(np.abs(shown).max(initial=0.0)) or 1.0
    parts = [f'<g font-size="{font}">']
    for j in range(d):
        y = 24 + j * row + (j // HEADS_EVERY) * HEAD
        if j % HEADS_EVERY == 0:  # long maps are scrolled: the numbers of components come again
            parts += [
                f'<text class="tick" x="{left + (i + 0.5) * cell:.1f}" y="{y - 8}" text-anchor="middle">{i + 1}</text>'
                for i in range(k)
            ]
        full = html.escape(names[j])
        middle = f"{y + row / 2 + font * 0.36:.1f}"
        parts.append(
            f'<text class="name" x="{left - 8}" y="{middle}">{html.escape(short[j])}<title>{full}</title></text>'
        )
        for i in range(k):
            value = float(shown[i, j])
            colour, ink = _colour(value / largest)
            x = left + i * cell
            text = f"{full}, component {i + 1}: {value:+.4f}"
            box = f'x="{x}" y="{y}" width="{cell - 1}" height="{row - 1}"'
            parts.append(f'<rect {box} fill="{colour}"><title>{text}</title></rect>')
            number = f"{abs(value):.2f}" if value > -0.005 else f"{MINUS}{abs(value):.2f}"
            parts.append(f'<text class="cell" x="{x + cell / 2 - 0.5}" y="{middle}" fill="{ink}">{number}</text>')
    parts.append("</g>")
    height = 28 + d * row + (d - 1) // HEADS_EVERY * HEAD
    return _svg(left + k * cell + 4, height, parts, "Loadings of the first components", fixed=True)


def colour_key(components: Floats) -> str:
    """What the colours of the loadings map mean."""
    largest = float(np.abs(components[:MAP_COMPONENTS]).max(initial=0.0)) or 1.0
    stops = "".join(
        f'<stop offset="{position:.0%}" stop-color="{_colour(2 * position - 1)[0]}"/>'
        for position in (0, 0.25, 0.5, 0.75, 1)
    )
    parts = [
        f'<defs><linearGradient id="loading-colours">{stops}</linearGradient></defs>',
        f'<text class="tick" x="0" y="12">{MINUS}{largest:.2f}</text>',
        '<rect x="42" y="2" width="140" height="12" fill="url(#loading-colours)"/>',
        f'<text class="tick" x="188" y="12">+{largest:.2f}</text>',
    ]
    return _svg(232, 16, parts, "Colours of the loadings", fixed=True)


def _svg(width: float, height: float, parts: list[str], title: str, fixed: bool = False) -> str:
    extent = f' width="{width:.0f}" height="{height:.0f}"' if fixed else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"{extent} role="img" '
        f'aria-label="{title}">{"".join(parts)}</svg>'
    )


def _columns(count: int) -> tuple[float, float]:
    """Distance of columns and width of bars."""
    step = (WIDTH - LEFT - RIGHT) / max(count, 1)
    return step, max(min(step * 0.72, 46.0), min(step, 1.0))


def _nice_top(largest: float) -> float:
    """The end of the axis: the next of 1, 2, 5, 10 times a power of ten above the largest bar and its label."""
    wanted = min(max(largest * 1.08, 1e-12), 1.0)
    power = 10.0 ** math.floor(math.log10(wanted))
    return min(
        1.0, next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= wanted * (1 - 1e-12))
    )


def _grid(top: float) -> list[str]:
    parts = []
    for i in range(5):
        value = top * i / 4
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * i / 4
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{100 * value:.3g} %</text>')
    return parts


def _component_axis(count: int, step: float) -> list[str]:
    every = next(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 10**9) if n * step >= 24)
    wanted = [i for i in range(1, count + 1) if i == 1 or i % every == 0]
    y = HEIGHT - BOTTOM + 15
    parts = [
        f'<text class="tick" x="{LEFT + (i - 0.5) * step:.1f}" y="{y}" text-anchor="middle">{i}</text>' for i in wanted
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [*parts, f'<text class="tick" x="{middle}" y="{HEIGHT - 5}" text-anchor="middle">component</text>']


def _short(ratio: float) -> str:
    percent = 100 * ratio
    return f"{percent:.1f}" if percent >= 0.95 else f"{percent:.1g}"


def _colour(value: float) -> tuple[str, str]:
    """Fill for a loading in [-1, 1], and the ink that is readable on it."""
    end = POSITIVE if value > 0 else NEGATIVE
    weight = min(1.0, abs(value)) ** 0.8
    mixed = [round(a + (b - a) * weight) for a, b in zip(NEUTRAL, end, strict=True)]
    return "#{:02x}{:02x}{:02x}".format(*mixed), "#ffffff" if weight > 0.55 else "#333333"
