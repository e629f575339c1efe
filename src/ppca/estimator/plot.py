"""Draw a fitted model with Matplotlib (the extra `plot`), for `PCA.plot`.

All pictures use the revealed model. The pictures "scores" and "biplot" also use rows of the caller. Drawing does not
use the servers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from ..html.formats import counted, percent
from ..html.labels import labels, spread
from ..receiver import PCAModel
from ..receiver.angles import DETERMINED
from ..receiver.interpret import arrows, strongest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .figure import NotebookFigure

Floats = NDArray[np.float64]

INK, SOFT, ACCENT, BAR, PALE = "#1c2733", "#5b6875", "#1f5f8b", "#4a90bf", "#dde3e9"
GROUPS = ("#1f5f8b", "#d1495b", "#3c8d5a", "#c98a1b", "#7b5ea7", "#4aa6a6", "#8c564b", "#6b7280")
"""Colours of groups of rows. After the last colour the first is used again."""

NAMED = 14
"""Maximum number of arrows with a name. More names would overlap."""

MAP_COMPONENTS, MAP_COLUMNS = 12, 30
"""Maximum number of components in the heat map, and maximum number of table columns in the heat map of the summary."""

NUMBERS = 40
"""The cells of the heat map show numbers if it has at most this number of table columns."""

LETTERS = 22
"""Maximum number of characters of a column name in pictures."""


class MissingMatplotlib(ImportError):
    """Matplotlib is not installed."""


def draw(
    model: PCAModel,
    kind: str,
    scores: Floats | None,
    groups: Sequence[Any] | None,
    components: tuple[int, int],
    ax: Axes | None,
) -> Figure:
    """Draw one picture of a model, or the summary of four pictures. Return the figure.

    kind: "summary" or a key of `PICTURES`. scores: coordinates of the caller's rows; None: no rows. groups: one label
    per row. components: the two components of a plane, counted from 1. ax: axes to draw into; None: a new figure. Raise
    ValueError for parameters that do not fit together.
    """
    figure_type = _matplotlib()
    if kind != "summary" and kind not in PICTURES:
        raise ValueError(f"kind is {kind!r}. It must be 'summary' or one of: {', '.join(PICTURES)}.")
    plane = _plane(model, components)
    if kind == "scores" and scores is None:
        raise ValueError("kind='scores' needs rows: call plot(X, kind='scores'). X is projected on this machine.")
    if groups is not None and (scores is None or len(groups) != len(scores)):
        have = 0 if scores is None else len(scores)
        raise ValueError(f"groups has {len(groups)} labels for {have} rows. Pass one label for each row of X.")
    drawing = Drawing(model, scores, groups, plane)
    if kind == "summary":
        if ax is not None:
            raise ValueError(
                "kind='summary' draws four pictures and does not fit into ax. Choose another kind, or leave ax out."
            )
        return drawing.summary(figure_type)
    size = (7.0, 5.0) if kind in ("scree", "errors") else (7.0, 6.0)
    if kind == "loadings":
        count, width = model.components.shape
        size = (2.6 + 0.62 * min(count, MAP_COMPONENTS), 1.4 + 0.2 * width)
    figure: Figure = figure_type(figsize=size, layout="constrained") if ax is None else cast("Figure", ax.figure)
    PICTURES[kind](drawing, figure.add_subplot() if ax is None else ax)
    return figure


def _matplotlib() -> type[NotebookFigure]:
    """Return the class of figures. Raise `MissingMatplotlib` if Matplotlib is not installed."""
    try:
        from .figure import NotebookFigure
    except ImportError as error:
        raise MissingMatplotlib(
            "pca.plot() needs Matplotlib, which is not installed. Install the extra: pip install 'ppca[plot]'"
        ) from error
    return NotebookFigure


def _plane(model: PCAModel, components: tuple[int, int]) -> tuple[int, int]:
    """Return the two components of a plane, counted from 0: (0, 0) if the model has one component."""
    count = len(model.components)
    if count == 1:
        return 0, 0
    wanted = tuple(components)
    if len(wanted) != 2 or len({*wanted}) != 2 or not all(1 <= number <= count for number in wanted):
        raise ValueError(f"components is {components!r}. It must be two different numbers from 1 to {count}.")
    return wanted[0] - 1, wanted[1] - 1


class Drawing:
    """Draws pictures of one model into axes. Parameters: see `draw`; plane: the two components, counted from 0."""

    def __init__(
        self, model: PCAModel, scores: Floats | None, groups: Sequence[Any] | None, plane: tuple[int, int]
    ) -> None:
        self.model = model
        self.scores_of_rows = scores
        self.groups = groups
        self.plane = plane
        self.names = labels(model.column_names, LETTERS)

    def summary(self, new_figure: Any) -> Figure:
        """Draw four pictures: scree, loadings, circle, and scores. Without rows, errors replace scores."""
        figure: Figure = new_figure(figsize=(13.0, 10.0), layout="constrained")
        places = figure.subplots(2, 2)
        self.scree(places[0, 0])
        self.loadings(places[0, 1], most=MAP_COLUMNS)
        self.circle(places[1, 0])
        if self.scores_of_rows is None:
            self.errors(places[1, 1])
        else:
            self.scores(places[1, 1])
        return figure

    def scree(self, ax: Axes) -> None:
        """Draw the explained variance of every component as bars, and the cumulative sum as a line."""
        ratios = self.model.explained_variance_ratio
        numbers = np.arange(1, len(ratios) + 1)
        ax.bar(numbers, 100 * ratios, color=BAR, width=0.72, label="each component")
        sums = 100 * np.minimum(np.cumsum(ratios), 1.0)
        ax.plot(numbers, sums, "o-", color=ACCENT, markersize=5 if len(ratios) <= 40 else 2, label="cumulative")
        left = self.model.components.shape[1] - len(ratios)
        rest = max(0.0, 1.0 - float(ratios.sum()))
        if left and rest > self.model.resolution:
            mean = 100 * rest / max(1, min(left, self.model.rows - 1 - len(ratios)))
            ax.axhline(mean, color=SOFT, linestyle=":", label=f"mean of the {left} left out")
        for number, (ratio, total) in enumerate(zip(100 * ratios, sums, strict=True), 1):
            if len(ratios) <= 12:
                away, ha = ((-5, 5), "right") if number == 1 < len(ratios) else ((0, 7), "center")
                ax.annotate(f"{total:.1f}", (number, total), away, textcoords="offset points", ha=ha, color=INK)
                if number > 1 and total - ratio > 8:
                    ax.annotate(
                        f"{ratio:.1f}", (number, ratio), (0, 3), textcoords="offset points", ha="center", color=SOFT
                    )
        ax.set(ylabel="explained variance, %", ylim=(0, 108))
        ax.set_title("Explained variance", pad=30)
        ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        _number_axis(ax, len(ratios))
        _tidy(ax)

    def errors(self, ax: Axes) -> None:
        """Draw, for each component, the bound of its angle to the exact component."""
        bounds = np.maximum(self.model.component_error, 1e-17)
        numbers = np.arange(1, len(bounds) + 1)
        colours = [ACCENT if good else GROUPS[1] for good in self.model.resolved]
        ax.scatter(numbers, bounds, color=colours, s=34, zorder=3)
        ax.vlines(numbers, 1e-17, bounds, color=PALE, zorder=1)
        ax.axhline(DETERMINED, color=GROUPS[1], linestyle="--")
        ax.annotate(
            f"above {DETERMINED:g}: not determined",
            (0.99, DETERMINED),
            (0, 4),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            color=GROUPS[1],
        )
        ax.set_yscale("log")
        ax.set_ylim(10 ** np.floor(np.log10(bounds.min()) - 0.5), 10)
        _number_axis(ax, len(bounds))
        ax.set(ylabel="radians", title="Bound of the angle to the exact component")
        _tidy(ax)

    def loadings(self, ax: Axes, most: int | None = None) -> None:
        """Draw the components as a heat map with one row per table column and one column per component.

        most: maximum number of table columns; the strongest are shown. None: all.
        """
        from matplotlib.colors import LinearSegmentedColormap

        shown = self.model.components[:MAP_COMPONENTS]
        width = shown.shape[1]
        chosen = np.arange(width)
        if most is not None and width > most:
            weight = np.max(np.abs(shown) * np.sqrt(self.model.explained_variance_ratio[: len(shown)])[:, None], axis=0)
            chosen = np.sort(np.argsort(-weight, kind="stable")[:most])
        part = shown[:, chosen].T
        largest = float(np.abs(part).max(initial=0.0)) or 1.0
        colours = LinearSegmentedColormap.from_list("loadings", ["#2166ac", "#f7f7f7", "#b2182b"])
        image = ax.imshow(part, cmap=colours, vmin=-largest, vmax=largest, aspect="auto", interpolation="nearest")
        small = 9 if len(chosen) <= 24 else 7
        ax.set_yticks(range(len(chosen)), [self.names[j] for j in chosen], fontsize=small)
        ax.set_xticks(range(len(shown)), [str(i + 1) for i in range(len(shown))])
        if len(chosen) <= NUMBERS:
            for (row, column), value in np.ndenumerate(part):
                ink = "white" if abs(value) > 0.6 * largest else INK
                ax.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=small - 1, color=ink)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        cut = f", {len(chosen)} strongest of {counted(width, 'column')}" if len(chosen) < width else ""
        ax.set(xlabel="component", title=f"Loadings{cut}")
        ax.figure.colorbar(image, ax=ax, shrink=0.6, pad=0.02)

    def circle(self, ax: Axes) -> None:
        """Draw the correlations of the table columns with two components.

        Loadings replace correlations if the model does not determine correlations. With one component, bars replace the
        plane.
        """
        points, correlated = arrows(self.model, *self.plane)
        if self.plane[0] == self.plane[1]:
            self._bars(ax, points[:, 0], correlated)
            return
        if correlated:
            turn = np.linspace(0, 2 * np.pi, 361)
            ax.plot(np.cos(turn), np.sin(turn), color=SOFT, linewidth=1)
        self._arrows(ax, points)
        ax.set(title=_title(correlated), xlim=(-1.75, 1.75), ylim=(-1.2, 1.2))
        ax.set_aspect("equal", adjustable="box")
        self._cross(ax)

    def scores(self, ax: Axes) -> None:
        """Draw rows as points in the plane of two components, coloured by group.

        With one component, the vertical axis is the number of the row.
        """
        assert self.scores_of_rows is not None
        self._points(ax, self.scores_of_rows[:, self.plane])
        ax.set(title=f"Scores of {counted(len(self.scores_of_rows), 'row')}")
        ax.margins(0.06)
        self._cross(ax)

    def biplot(self, ax: Axes) -> None:
        """Draw rows as points and table columns as arrows in one plane.

        Without rows, draw the picture "circle" instead. With rows and one component, draw the picture "scores".
        """
        if self.scores_of_rows is None or self.plane[0] == self.plane[1]:
            (self.circle if self.scores_of_rows is None else self.scores)(ax)
            return
        points = self.scores_of_rows[:, self.plane]
        far = float(np.abs(points).max(initial=0.0)) or 1.0
        self._points(ax, points / far)
        directions = self.model.components[list(self.plane)].T
        longest = float(np.hypot(*directions.T).max(initial=0.0)) or 1.0
        self._arrows(ax, directions / longest)
        ax.set(title="Biplot: rows as points, columns as arrows", xlim=(-1.75, 1.75), ylim=(-1.2, 1.2))
        ax.set_aspect("equal", adjustable="box")
        self._cross(ax)

    def _points(self, ax: Axes, points: Floats) -> None:
        """Draw points, one colour per group. Many points are smaller and more transparent."""
        clear = 0.75 if len(points) <= 500 else 0.4
        size = 26 if len(points) <= 500 else 10
        if self.plane[0] == self.plane[1]:  # one component: the vertical axis is the number of the row
            points = np.column_stack([points[:, 0], np.arange(len(points))])
        if self.groups is None:
            ax.scatter(points[:, 0], points[:, 1], s=size, color=ACCENT, alpha=clear, linewidths=0)
            return
        given = np.asarray([str(group) for group in self.groups])
        for number, name in enumerate(dict.fromkeys(given.tolist())):
            colour = GROUPS[number % len(GROUPS)]
            x, y = points[given == name].T
            ax.scatter(x, y, s=size, color=colour, alpha=clear, linewidths=0, label=name)
        ax.legend(frameon=False)

    def _arrows(self, ax: Axes, points: Floats) -> None:
        """Draw an arrow for every table column. Lines join the longest arrows to their names beside the plane."""
        named = strongest(np.hypot(*points.T), NAMED)
        for j, (x, y) in enumerate(points):
            colour, weight = (ACCENT, 1.5) if j in named else (PALE, 1.0)
            ax.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->", "color": colour, "linewidth": weight})
        for side in (-1, 1):
            chosen = [j for j in named if (points[j, 0] >= 0) == (side > 0)]
            for j, y in zip(chosen, spread([points[j, 1] for j in chosen], 0.13, -1.1, 1.1), strict=True):
                ax.plot([points[j, 0], side * 1.08], [points[j, 1], y], color=SOFT, linewidth=0.5, alpha=0.6)
                ha = "left" if side > 0 else "right"
                ax.text(side * 1.1, y, self.names[j], ha=ha, va="center", fontsize=8.5, color=INK)

    def _bars(self, ax: Axes, values: Floats, correlated: bool) -> None:
        """Draw the strongest table columns as bars, for a model of one component.

        values: one value per table column. correlated: whether the values are correlations.
        """
        chosen = strongest(values, MAP_COLUMNS)[::-1]
        ax.barh(range(len(chosen)), values[chosen], color=[ACCENT if values[j] > 0 else GROUPS[1] for j in chosen])
        ax.set_yticks(range(len(chosen)), [self.names[j] for j in chosen])
        ax.axvline(0, color=SOFT, linewidth=0.8)
        ax.set(title=_title(correlated), xlim=(-1.05, 1.05), xlabel="component 1")
        _tidy(ax, grid=False)

    def _cross(self, ax: Axes) -> None:
        """Draw the axes through zero and label them with components and fractions of the variance."""
        first, second = self.plane
        ratios = self.model.explained_variance_ratio
        ax.axhline(0, color=PALE, linewidth=0.8, zorder=0)
        ax.axvline(0, color=PALE, linewidth=0.8, zorder=0)
        ax.set_xlabel(f"component {first + 1} ({percent(float(ratios[first]))})")
        if first == second:
            ax.set_ylabel("row")
        else:
            ax.set_ylabel(f"component {second + 1} ({percent(float(ratios[second]))})")
        _tidy(ax, grid=False)


def _title(correlated: bool) -> str:
    return "Correlation of columns with components" if correlated else "Loadings of columns (longest = 1)"


def _number_axis(ax: Axes, count: int) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.set_xlim(0.4, count + 0.6)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set_xlabel("component")


def _tidy(ax: Axes, *, grid: bool = True) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    if grid:
        ax.grid(True, axis="y", alpha=0.25)
        ax.set_axisbelow(True)


PICTURES: dict[str, Callable[[Drawing, Any], None]] = {
    "scree": Drawing.scree,
    "loadings": Drawing.loadings,
    "circle": Drawing.circle,
    "biplot": Drawing.biplot,
    "scores": Drawing.scores,
    "errors": Drawing.errors,
}
