"""Biplot: rows as points and columns as arrows in the plane of two components."""

from __future__ import annotations

import html
from collections.abc import Mapping

import numpy as np

from ...html.labels import labels, spread
from ...receiver import PCAModel
from ...receiver.interpret import arrows, strongest
from .charts import LETTERS, MAX_POINTS, NAMED, WIDTH, Floats, cross, plane_axes, points, svg

HEIGHT, CENTRE, REACH, ACROSS = 300, 142.0, 122.0, 104.0
"""Heights of the chart and of its centre, and the largest distance of a point upwards and sideways from the centre."""

ARROW = 0.9
"""Length of the longest arrow, as a fraction of REACH. Directions compare with points; lengths do not."""


def biplot(model: PCAModel, rows: Mapping[str, Floats]) -> str:
    """Scores of rows, a colour for each table, and the strongest columns as arrows. Needs two components."""
    middle, stride = WIDTH / 2, -(-sum(map(len, rows.values())) // MAX_POINTS)
    shown = [scores[::stride][:, :2] for scores in rows.values()]
    far = max([float(np.abs(scores).max(initial=0.0)) for scores in shown], default=0.0) or 1.0
    parts = cross(middle, CENTRE, REACH, ACROSS)
    for number, scores in enumerate(shown):
        parts.append(points(middle + ACROSS * scores[:, 0] / far, CENTRE - REACH * scores[:, 1] / far, number))
    ends, _ = arrows(model, 0, 1)
    ends = ends * (ARROW / (float(np.hypot(*ends.T).max(initial=0.0)) or 1.0))
    places = [(middle + ACROSS * x, CENTRE - REACH * y) for x, y in ends.tolist()]
    named = strongest(np.hypot(*ends.T), NAMED)
    names, full = labels(model.column_names, LETTERS), model.column_names
    for j in named[::-1]:
        x, y = places[j]
        parts.append(f'<g class="arrow"><title>{html.escape(full[j])}</title>')
        parts.append(f'<line x1="{middle}" y1="{CENTRE}" x2="{x:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/></g>')
    for side in (-1, 1):
        chosen = [j for j in named if (places[j][0] >= middle) == (side > 0)]
        edge, anchor = middle + side * (ACROSS + 8), "start" if side > 0 else "end"
        for j, y in zip(chosen, spread([places[j][1] for j in chosen], 16, 14, 270), strict=True):
            x, tip = places[j]
            parts.append(f'<line class="lead" x1="{x:.1f}" y1="{tip:.1f}" x2="{edge}" y2="{y:.1f}"/>')
            place = f'x="{edge + 3 * side}" y="{y + 4:.1f}" text-anchor="{anchor}"'
            parts.append(
                f'<text class="tip" {place}>{html.escape(names[j])}<title>{html.escape(full[j])}</title></text>'
            )
    return svg(HEIGHT, [*parts, *plane_axes(model, HEIGHT)], "Biplot: rows as points, columns as arrows")
