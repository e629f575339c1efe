"""Charts of a fitted model as inline SVG: no script, no style attribute and no file from elsewhere.

Colours are classes of page.css, so charts follow dark mode and print. Hovering shows the number.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...html.formats import angle_error, percent
from ...html.labels import labels, spread
from ...receiver import PCAModel
from ...receiver.angles import DETERMINED
from ...receiver.interpret import arrows, strongest
from ...receiver.regression import RegressionModel

Floats = NDArray[np.float64]

WIDTH, HEIGHT = 440, 270
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 14, 38

MAP_COMPONENTS, BLOCK = 12, 40
"""Components of the loadings map: more would not be read. Columns of one block of it, which is not broken on paper."""

DENSE = 40
"""Columns from which on rows of the map are lower."""

NAMED, LETTERS = 12, 14
"""Arrows with a name, and the length of these names."""

MAX_POINTS = 2000
"""Rows of a scores plot; of more, every second, third, ... is shown."""

MINUS = "−"


def scree(ratios: Floats) -> str:
    """Fraction of the variance that each component explains, as bars, and the cumulative line."""
    step, width = _columns(len(ratios))
    parts = _grid([f"{20 * i} %" for i in range(6)])
    sums = np.minimum(np.cumsum(ratios), 1.0).tolist()
    for i, ratio in enumerate(ratios.tolist()):
        x, y = LEFT + (i + 0.5) * step, _level(min(1.0, ratio))
        box = f'x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{HEIGHT - BOTTOM - y:.1f}"'
        parts.append(f'<rect class="bar" {box}><title>component {i + 1}: {percent(ratio)}</title></rect>')
    points = [(LEFT + (i + 0.5) * step, _level(value)) for i, value in enumerate(sums)]
    parts.append(f'<polyline class="line" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')
    radius = 3.5 if step >= 12 else 1.5
    for i, ((x, y), value) in enumerate(zip(points, sums, strict=True)):
        title = f"first {i + 1}: {percent(value)}"
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{title}</title></circle>')
        if step >= 30:
            away = -8 if y > 30 else 17
            parts.append(
                f'<text class="value" x="{x - 9 * (i == 0 < len(points) - 1):.1f}" y="{y + away:.1f}">{_short(value)}</text>'
            )
            own = float(ratios[i])
            if i and value - own > 0.14:
                top = _level(own) - 4
                parts.append(f'<text class="value soft" x="{x:.1f}" y="{top:.1f}">{_short(own)}</text>')
    parts += _component_axis(len(ratios), step)
    return svg(HEIGHT, parts, "Explained variance ratio: each component as a bar, their sum as a line")


def errors(model: PCAModel) -> str:
    """Bound of the angles between the components and the exact ones, on a logarithmic scale."""
    bounds = np.clip(model.component_error, 1e-16, 1.0)
    low = min(-6, math.floor(math.log10(float(bounds.min(initial=1.0)))))
    step, _ = _columns(len(bounds))
    every = max(1, -low // 6)
    parts = _grid([f"1e{power}" if power else "1" for power in range(low, 1)], every)

    def level(bound: float) -> float:
        return _level(1 - math.log10(bound) / low)

    y = level(DETERMINED)
    parts.append(f'<line class="limit" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
    note = f"above {DETERMINED:g}: not determined"
    parts.append(f'<text class="limited" x="{WIDTH - RIGHT}" y="{y - 5:.1f}">{note}</text>')
    radius = 4 if step >= 12 else 2
    for i, bound in enumerate(bounds.tolist()):
        kind = "dot" if model.resolved[i] else "dot loose"
        title = f"component {i + 1}: {angle_error(float(model.component_error[i]))}"
        place = f'cx="{LEFT + (i + 0.5) * step:.1f}" cy="{level(bound):.1f}"'
        parts.append(f'<circle class="{kind}" {place} r="{radius}"><title>{title}</title></circle>')
    parts += _component_axis(len(bounds), step)
    return svg(HEIGHT, parts, "Bounds of the angles to the exact components, in radians")


def circle(model: PCAModel) -> str:
    """Columns as arrows in the plane of the first two components; inside the unit circle if they are correlations."""
    points, correlated = arrows(model, 0, 1)
    height, radius = 300, 106
    middle, centre = WIDTH / 2, 142.0
    names, full = labels(model.column_names, LETTERS), model.column_names
    parts = cross(middle, centre, radius)
    if correlated:
        parts.append(f'<circle class="circle" cx="{middle}" cy="{centre}" r="{radius}"/>')
    ends = [(middle + radius * x, centre - radius * y) for x, y in points.tolist()]
    named = strongest(np.hypot(*points.T), NAMED)
    for j in [j for j in range(len(ends)) if j not in named] + named[::-1]:
        x, y = ends[j]
        kind = "arrow" if j in named else "arrow faint"
        title = f"{html.escape(full[j])}: {points[j, 0]:+.2f}, {points[j, 1]:+.2f}"
        parts.append(
            f'<g class="{kind}"><title>{title}</title><line x1="{middle}" y1="{centre}" x2="{x:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{3 if j in named else 1.5}"/></g>')
    for side in (-1, 1):
        chosen = [j for j in named if (points[j, 0] >= 0) == (side > 0)]
        edge = middle + side * (radius + 12)
        for j, y in zip(chosen, spread([ends[j][1] for j in chosen], 16, 14, 270), strict=True):
            parts.append(f'<line class="lead" x1="{ends[j][0]:.1f}" y1="{ends[j][1]:.1f}" x2="{edge}" y2="{y:.1f}"/>')
            anchor = "start" if side > 0 else "end"
            title = f"<title>{html.escape(full[j])}</title>"
            parts.append(
                f'<text class="tip" x="{edge + 3 * side}" y="{y + 4:.1f}" text-anchor="{anchor}">'
                f"{html.escape(names[j])}{title}</text>"
            )
    parts += plane_axes(model, height)
    what = "Correlations of columns with" if correlated else "Columns as arrows in the plane of"
    return svg(height, parts, f"{what} components 1 and 2")


def scores(model: PCAModel, rows: Mapping[str, Floats]) -> str:
    """Rows in the plane of the first two components (over the first, if there is one), a colour for each owner."""
    height, count = 300, sum(map(len, rows.values()))
    stride = -(-count // MAX_POINTS)
    second = min(1, len(model.components) - 1)
    shown = [points[::stride][:, [0, second]] for points in rows.values()]
    far = max([float(np.abs(points).max(initial=0.0)) for points in shown], default=0.0) or 1.0
    middle, centre = WIDTH / 2, 142.0
    parts = cross(middle, centre, 122, middle - 12)
    for number, plane in enumerate(shown):
        if second == 0:  # one component: rows in their order
            plane = np.column_stack([plane[:, 0], np.linspace(far, -far, len(plane))])
        across, up = middle + (middle - 16) * plane[:, 0] / far, centre - 122 * plane[:, 1] / far
        parts.append(points(across, up, number))
    parts += plane_axes(model, height)
    return svg(height, parts, "Scores of rows")


def points(across: Floats, up: Floats, number: int) -> str:
    """Rows of one table as dots of the table's colour."""
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in zip(across, up, strict=True))
    return f'<g class="point g{number % 6}">{dots}</g>'


def loadings(components: Floats, names: list[str]) -> str:
    """The first components as a map: a row per column, a cell per component. It fills the width, in blocks of columns.

    Names are text beside the cells, so that they keep their size; cells stretch.
    """
    shown = components[:MAP_COMPONENTS]
    largest = float(np.abs(shown).max(initial=0.0)) or 1.0
    blocks = []
    for start in range(0, shown.shape[1], BLOCK):
        part = shown[:, start : start + BLOCK]
        blocks.append(_block(part, names[start : start + BLOCK], largest, dense=shown.shape[1] > DENSE))
    many = " many" if len(shown) > 6 else ""
    return f'<div class="maps{many}">{"".join(blocks)}</div>'


def _block(part: Floats, names: list[str], largest: float, *, dense: bool) -> str:
    row, head = (18 if dense else 23), 20
    count, width = part.shape
    step = 100 / count
    cells = [f'<text class="tick middle" x="{(i + 0.5) * step:.3f}%" y="13">{i + 1}</text>' for i in range(count)]
    for j in range(width):
        y = head + j * row
        for i in range(count):
            value = float(part[i, j])
            weight = min(1.0, abs(value) / largest) ** 0.8
            kind = "minus" if value < 0 else "plus"
            title = f"{html.escape(names[j])}, component {i + 1}: {value:+.4f}"
            box = f'x="{i * step:.3f}%" y="{y}" width="{step:.3f}%" height="{row}"'
            cells.append(f'<rect class="{kind}" fill-opacity="{weight:.3f}" {box}><title>{title}</title></rect>')
            ink = "cell strong" if weight > 0.55 else "cell"
            number = f"{abs(value):.2f}" if value > -0.005 else f"{MINUS}{abs(value):.2f}"
            cells.append(f'<text class="{ink}" x="{(i + 0.5) * step:.3f}%" y="{y + row / 2 + 4:.1f}">{number}</text>')
    short = labels(names)
    listed = "".join(
        f'<span title="{html.escape(full)}">{html.escape(name)}</span>' for name, full in zip(short, names, strict=True)
    )
    height = head + width * row
    return (
        f'<div class="map{" dense" if dense else ""}"><div class="names">{listed}</div><div class="cells">'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height}" role="img" '
        f'aria-label="Loadings of the first {count} components">{"".join(cells)}</svg></div></div>'
    )


def colour_key(components: Floats) -> str:
    """Return what the colours of the loadings map mean."""
    largest = float(np.abs(components[:MAP_COMPONENTS]).max(initial=0.0)) or 1.0
    steps = np.linspace(-1, 1, 21)
    cells = "".join(
        f'<rect class="{"minus" if value < 0 else "plus"}" fill-opacity="{abs(value) ** 0.8:.3f}" x="{44 + 7 * i}" y="2" '
        'width="7" height="12"/>'
        for i, value in enumerate(steps.tolist())
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="240" height="16" role="img" aria-label="Colours of the loadings">'
        f'<text class="tick" x="0" y="12">{MINUS}{largest:.2f}</text>{cells}'
        f'<text class="tick" x="196" y="12">+{largest:.2f}</text></svg>'
    )


FOREST_ROW, FOREST_NAMES, FOREST_LETTERS = 20, 130, 20
"""Height of a line of the forest plot, width of its names, and the length of these names."""


def forest(model: RegressionModel) -> str:
    """Coefficients in standard errors with their confidence intervals, one line for each; empty without them."""
    intervals, errors = model.intervals(), model.errors
    if intervals is None or errors is None or not (np.isfinite(intervals).all() and (errors > 0).all()):
        return ""
    count = len(model.columns)
    low, high = (intervals[:count] / errors[:count, None]).T
    middle = (low + high) / 2
    left, right = min(0.0, float(low.min())), max(0.0, float(high.max()))
    unit = (WIDTH - FOREST_NAMES - RIGHT) / (right - left)

    def place(value: float) -> float:
        return FOREST_NAMES + (value - left) * unit

    height = TOP + FOREST_ROW * count + 24
    zero = place(0.0)
    parts = [f'<line class="limit" x1="{zero:.1f}" y1="{TOP}" x2="{zero:.1f}" y2="{height - 20:.1f}"/>']
    parts.append(f'<text class="tick middle" x="{zero:.1f}" y="{height - 6:.1f}">0</text>')
    for at, name in enumerate(labels(model.columns)):
        y = TOP + FOREST_ROW * (at + 0.5)
        shown = name if len(name) <= FOREST_LETTERS else f"{name[: FOREST_LETTERS - 1]}…"
        title = f"{name}: {middle[at]:.3g} standard errors, from {low[at]:.3g} to {high[at]:.3g}"
        ends = f'x1="{place(float(low[at])):.1f}" y1="{y:.1f}" x2="{place(float(high[at])):.1f}" y2="{y:.1f}"'
        parts.append(f'<text class="tick" x="0" y="{y + 4:.1f}">{html.escape(shown)}</text>')
        parts.append(f'<line class="line" {ends}/>')
        loose = "" if low[at] > 0 or high[at] < 0 else " loose"
        dot = f'<circle class="dot{loose}" cx="{place(float(middle[at])):.1f}" cy="{y:.1f}" r="3.5">'
        parts.append(f"{dot}<title>{html.escape(title)}</title></circle>")
    return svg(height, parts, "Coefficients in standard errors, with their confidence intervals")


def svg(height: float, parts: list[str], title: str) -> str:
    """Return a chart of the common width."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" class="chart" role="img" '
        f'aria-label="{title}">{"".join(parts)}</svg>'
    )


def _columns(count: int) -> tuple[float, float]:
    """Distance of columns and width of bars."""
    step = (WIDTH - LEFT - RIGHT) / max(count, 1)
    return step, max(min(step * 0.72, 46.0), min(step, 1.0))


def _level(fraction: float) -> float:
    """The height of a fraction of the axis."""
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * fraction


def _grid(ticks: Sequence[str], every: int = 1) -> list[str]:
    """Lines at equal distances with their labels, the lowest first."""
    parts = []
    for i, text in enumerate(ticks):
        if (len(ticks) - 1 - i) % every == 0:
            y = _level(i / (len(ticks) - 1))
            parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
            parts.append(f'<text class="tick" x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    return parts


def cross(middle: float, centre: float, radius: float, across: float | None = None) -> list[str]:
    """Draw the axes through the centre of a plane."""
    reach = radius if across is None else across
    return [
        f'<line class="grid" x1="{middle - reach}" y1="{centre}" x2="{middle + reach}" y2="{centre}"/>',
        f'<line class="grid" x1="{middle}" y1="{centre - radius}" x2="{middle}" y2="{centre + radius}"/>',
    ]


def plane_axes(model: PCAModel, height: float) -> list[str]:
    """Draw the axes of the plane: component 1 to the right, component 2 upwards."""
    ratios = model.explained_variance_ratio
    text = f"across: component 1 ({percent(float(ratios[0]))})"
    if len(ratios) > 1:
        text += f", up: component 2 ({percent(float(ratios[1]))})"
    return [f'<text class="tick middle" x="{WIDTH / 2}" y="{height - 5}">{text}</text>']


def _component_axis(count: int, step: float) -> list[str]:
    every = next(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 10**9) if n * step >= 24)
    wanted = [i for i in range(1, count + 1) if i == 1 or i % every == 0]
    y = HEIGHT - BOTTOM + 15
    parts = [f'<text class="tick middle" x="{LEFT + (i - 0.5) * step:.1f}" y="{y}">{i}</text>' for i in wanted]
    return [*parts, f'<text class="tick middle" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 5}">component</text>']


def _short(ratio: float) -> str:
    percent = 100 * ratio
    return f"{percent:.1f}" if percent >= 0.95 else f"{percent:.1g}"
