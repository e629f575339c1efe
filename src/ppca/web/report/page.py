"""`report.html`: one page with the result, how it was computed and everything that was opened. It loads nothing."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import __version__
from ... import html as look
from ...html.formats import angle_error, below_resolution, counted, duration, percent, size
from ...html.labels import labels
from ...jobs.openings import is_unit
from ...receiver import PCAModel
from ...receiver.angles import DETERMINED
from ...receiver.interpret import cautions, correlations, strongest, summary
from ...runtime import Account
from . import charts
from .account import RECEIVERS, OpeningLine, opening_lines, stage_lines
from .biplot import biplot

STRONGEST = 6
"""Components, and columns of each, that are listed by name."""

LISTED = 12
"""Components up to which the table of variances is not folded."""

Floats = NDArray[np.float64]

UNSEEN = {
    False: "Nothing else left the sharing: no row, no single owner's number of rows, mean or covariance, and no intermediate "
    "matrix was seen by any server, any other owner or the receiver.",
    True: "Nothing else left the sharing: no value of a row, no id, and no intermediate matrix was seen by any server, any other "
    "owner or the receiver. Beside this list, the servers saw how many rows every owner uploaded.",
}
"""Values that no server saw, for row owners and for column owners."""

FOOTER = f"<footer>Written by ppca {html.escape(__version__)}. This page is self-contained: it loads nothing.</footer>"
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Browsers are told to load nothing and to run no script, whatever a column may be called."""


def write_report(
    path: Path,
    model: PCAModel,
    run: Account,
    *,
    title: str,
    settings: Mapping[str, Any],
    owners: Sequence[str],
    by_columns: bool = False,
    scores: Mapping[str, Floats] | None = None,
) -> None:
    """Write the page of a fitted model.

    model : what the receiver holds; its audit is the list of openings
    run : the account of the whole job (see `Account.total` if it took several runs)
    settings : what the user chose, by name
    owners : what the owners' tables are called; nothing else about single owners is known here
    by_columns : whether owners hold different columns of the same rows, not different rows of the same columns
    scores : coordinates of rows that are shown as points, by the name of their table
    """
    body = [
        _head(title, model, owners, by_columns),
        _variance(model),
        _columns(model),
        _scores(model, scores or {}),
        _openings(model, len(owners), by_columns),
        _computed(model, settings, owners),
        costs(run),
    ]
    write_page(path, title, body)


def write_page(path: Path, title: str, parts: Iterable[str]) -> None:
    """Write a page of these parts, which loads nothing."""
    style = resources.files(look).joinpath("static", "look.css").read_text(encoding="utf-8") + chart_style()
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in (*parts, FOOTER) if part)
        + "\n</main>\n</body>\n</html>\n"
    )
    path.write_bytes(page.encode("utf-8", "backslashreplace"))  # a file name can contain bytes that are not text


def chart_style() -> str:
    """CSS of the charts, beside the look that all pages have."""
    return resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")


def _head(title: str, model: PCAModel, owners: Sequence[str], by_columns: bool) -> str:
    """The findings in words, what to be careful about, and the sizes."""
    kept, width = model.components.shape
    facts = [
        (str(len(owners)), "owner" if len(owners) == 1 else "owners"),
        (f"{model.rows:,}", "rows, joined" if by_columns else "rows, all owners together"),
        (str(width), "columns, all owners together" if by_columns else "columns"),
        (percent(float(model.explained_variance_ratio.sum())), f"explained by {counted(kept, 'component')}"),
    ]
    cells = "".join(f'<div class="fact"><b>{value}</b><span>{label}</span></div>' for value, label in facts)
    found = cautions(model, len(owners), by_columns=by_columns)
    warnings = "".join(f'<p class="warning"><b>{html.escape(head)}</b> {html.escape(text)}</p>' for head, text in found)
    return (
        f'<h1>{html.escape(title)}</h1>\n<p class="findings">'
        f"{html.escape(summary(model, len(owners), by_columns=by_columns))}</p>\n"
        f'<div class="cautions">{warnings}</div>\n<div class="facts">{cells}</div>'
    )


def _variance(model: PCAModel) -> str:
    ratios = model.explained_variance_ratio
    sums = np.cumsum(ratios)
    lines = []
    for i, (variance, ratio, total) in enumerate(zip(model.explained_variance, ratios, sums, strict=True)):
        width = 100 * min(1.0, max(0.0, float(total)))
        meter = f'<td class="meter"><i style="width:{width:.2f}%"></i></td>'
        digits = (f"{variance:.6g}", percent(float(ratio))) if model.varies[i] else _noise(model)
        error = angle_error(float(model.component_error[i])) if model.resolved[i] else "not determined"
        lines.append(row([i + 1, *digits, percent(float(total)), error], numbers=5, tail=meter))
    heads = '<th class="number">no.</th><th class="number">variance</th><th class="number">ratio</th>'
    heads += '<th class="number">cumulative</th><th class="number">angle error</th><td></td>'
    unit = "of the standardised columns" if model.scale is not None else "in squared units of the data"
    notes = f"Variances {unit}; ratios are fractions of the total variance, {model.total_variance:.6g}. "
    notes += "Angle error: a bound of the angle between a component and the exact one, in radians. "
    notes += f"Above {DETERMINED:g} a component is not determined."
    if len(ratios) < model.components.shape[1]:
        notes += f" The chart and the table have the {counted(len(ratios), 'variance')} that the job revealed, not all."
    if not model.noise_resolved:
        notes += f" The noise variance is below the resolution: {_noise(model)[0]}."
    table = f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
    if len(lines) > LISTED:
        table = f"<details><summary>Table of all {len(lines)} components</summary>{table}</details>"
    return section(
        "Explained variance",
        f'<div class="pair"><div><h3>Each component, and their sum (line), in %</h3>{charts.scree(ratios)}</div>'
        f"<div><h3>Bounds of the components' angles, in radians</h3>{charts.errors(model)}</div></div>"
        f'{table}<p class="note">{notes}</p>',
    )


def _noise(model: PCAModel) -> tuple[str, str]:
    return below_resolution(model.resolution, model.total_variance)


def _columns(model: PCAModel) -> str:
    """Return the section on loadings: circle, strongest columns, and the map of all loadings."""
    names, (kept, width) = model.column_names, model.components.shape
    shown = min(kept, charts.MAP_COMPONENTS)
    which = f"the first {shown} of {kept} components" if shown < kept else "every component"
    short = labels(names, 24)  # what fits beside the bars without a break
    cards = [_strongest(i, component, names, short) for i, component in enumerate(model.components[:STRONGEST])]
    first = f'<div class="strong">{"".join(cards)}</div>'
    if kept > 1:
        exact = correlations(model) is not None
        what = (
            "Each arrow is a column; its tip is at its correlations with components 1 and 2. An arrow that reaches "
            "the circle is explained by these two. Columns in the same direction vary together, in opposite "
            "directions against each other."
            if exact
            else "Each arrow is a column; its length says how much of the variance of components 1 and 2 comes from it "
            "(longest arrow = 1)."
        )
        heading = "Correlation circle" if exact else "Columns in the plane of two components"
        first = (
            f'<div class="pair"><div><h3>{heading}</h3>{charts.circle(model)}<p class="note">{what}</p></div>'
            f'<div><h3>Strongest columns</h3><div class="strong">{"".join(cards[:2])}</div></div></div>'
        )
        if len(cards) > 2:
            first += f'<div class="strong">{"".join(cards[2:])}</div>'
    return section(
        "What the components are made of",
        f'{first}{_cut(kept, width)}<h3 class="apart">Loadings</h3>'
        f'<p class="note">How much each column takes part in {which} (components from left to right). Signs follow '
        "scikit-learn: the entry of largest magnitude of a component is positive.</p>"
        f'<div class="key">{charts.colour_key(model.components)}</div>{charts.loadings(model.components, names)}',
    )


def _cut(kept: int, width: int) -> str:
    """Return what the list of strongest columns leaves out."""
    parts = [f"the first {STRONGEST} of {kept} components"] if kept > STRONGEST else []
    parts += [f"the {STRONGEST} strongest of {width} columns"] if width > STRONGEST else []
    return f'<p class="note">Listed: {" and ".join(parts)}; components.csv has all.</p>' if parts else ""


def _strongest(index: int, component: Floats, names: list[str], short: list[str]) -> str:
    lines = []
    largest = float(np.abs(component).max()) or 1.0
    for j in strongest(component, STRONGEST):
        value = float(component[j])
        kind, sign = ("minus", charts.MINUS) if value < 0 else ("plus", "+")
        bar = f'<i class="{kind}" style="width:{100 * abs(value) / largest:.1f}%"></i>'
        lines.append(
            f'<div class="feature"><span title="{html.escape(names[j])}">{html.escape(short[j])}</span><span>{bar}</span>'
            f'<span class="number">{sign}{abs(value):.3f}</span></div>'
        )
    return f"<div><h3>Component {index + 1}</h3>{''.join(lines)}</div>"


def _scores(model: PCAModel, scores: Mapping[str, Floats]) -> str:
    """Rows as points. They were projected on the machine that wrote the page and were not sent."""
    if not scores:
        return ""
    count = sum(map(len, scores.values()))
    legend = "".join(
        f'<li><svg width="10" height="10" aria-hidden="true"><circle class="g{i % 6}" cx="5" cy="5" r="5"/></svg>'
        f"{html.escape(name)}: {counted(len(points), 'row')}</li>"
        for i, (name, points) in enumerate(scores.items())
    )
    every = -(-count // charts.MAX_POINTS)
    thinned = f" One of {every} rows is shown." if every > 1 else ""
    drawn, arrows = charts.scores(model, scores), ""
    if len(model.components) > 1:
        drawn = (
            f'<div class="pair"><div><h3>Rows</h3>{drawn}</div>'
            f"<div><h3>Biplot: rows and columns</h3>{biplot(model, scores)}</div></div>"
        )
        arrows = (
            " Arrows are columns: rows that lie in the direction of an arrow have large values in that column. "
            "Lengths of arrows compare with each other, not with the points."
        )
    return section(
        "Scores",
        f'{drawn}<ul class="groups">{legend}</ul>'
        '<p class="note">Each point is a row, projected on the machine that wrote this page.'
        f"{thinned}{arrows} Points are values of single rows: do not pass this page on if these rows are private.</p>",
    )


def _openings(model: PCAModel, owners: int, by_columns: bool) -> str:
    caution = ""
    if len(model.components) == model.components.shape[1]:
        caution += " All components were kept: together they determine the joint covariance."
    if by_columns:
        caution += " Means and variances of columns are those of the owner whose columns they are."
    return openings(model.audit, owners, by_columns, caution)


def openings(audit: Sequence[dict[str, Any]], owners: int, by_columns: bool, caution: str) -> str:
    """Return the section of all openings. caution: sentences about what the result tells."""
    lines = opening_lines(audit)
    total = sum(line.count for line in lines)
    if owners == 1:
        caution += " With one owner, the joint numbers are that owner's own."
    if owners == 2 and not by_columns:
        caution += " With two owners, each can take its own part away from the joint result and see the other's sums."
    readers: dict[str, list[OpeningLine]] = {}
    for line in lines:
        readers.setdefault(line.to, []).append(line)
    seen = readers.pop(RECEIVERS["servers"], [])
    groups = [(f"What the {to} got" if to == "receiver" else f"What {to} got", found) for to, found in readers.items()]
    parts = [
        _opened(heading, found) for heading, found in [*groups, *([("What the servers saw", seen)] if seen else [])]
    ]
    return section(
        "What was opened",
        f"<p>This list is complete: {counted(total, 'opening')}. {UNSEEN[by_columns]}</p>{''.join(parts)}"
        f'<p class="note">The result itself tells something about the joint data, as any exact statistic does.{caution}</p>',
    )


def _opened(heading: str, lines: Sequence[OpeningLine]) -> str:
    """Return the openings to one reader; units, which only scale other numbers, are folded."""
    heads = ["what", "shape", "times", "why"]
    tables = []
    for some in ([line for line in lines if not is_unit(line.what)], [line for line in lines if is_unit(line.what)]):
        rows = [row([line.what, line.shape_text, f"{line.count:,}", line.why]) for line in some]
        tables.append(table(heads, rows) if rows else "")
    main, units = tables
    folded = f"<details><summary>Units of these numbers</summary>{units}</details>" if units else ""
    return f'<h3 class="apart">{html.escape(heading)}</h3>{main}{folded}'


def _computed(model: PCAModel, settings: Mapping[str, Any], owners: Sequence[str]) -> str:
    checked = {
        True: "yes: residual and orthogonality were compared with their bounds on shares; one bit was opened",
        False: "failed: the result is less accurate than promised",
        None: "not checked",
    }[model.verified]
    if model.verified:
        checked += f". The tolerance was {model.tolerance:.1g}"
    fell_back = (
        "yes: the first solver's result did not pass the check, another computed it again" if model.fell_back else "no"
    )
    largest = "all eigenpairs were computed"
    if model.certificate is not None:
        factor, chance = model.certificate["factor"], model.certificate["probability"]
        largest = (
            f"checked on shares: no component is missing whose variance is above {factor:.2f} times that of "
            f"the last one and above {model.certificate['floor']:.1g} of the total; such a one is overlooked "
            f"with probability {chance:.0e}"
        )
    facts = {
        "eigensolver": model.solver,
        "iterations": f"{model.iterations:,}",
        "verified on shares": checked,
        "another solver took over": fell_back,
        "are these the largest?": largest,
    }
    tables = "".join(f"<li><code>{html.escape(owner)}</code></li>" for owner in owners)
    return section(
        "How it was computed",
        "<p>Four servers computed on secret shares of the owners' data. No server saw a value of a table.</p>"
        f'<div class="pair"><div><h3>Eigendecomposition</h3>{plain_list(facts)}</div>'
        f"<div><h3>Settings</h3>{plain_list(settings)}<h3>Owners</h3><ol>{tables}</ol></div></div>",
    )


def costs(run: Account) -> str:
    lines = stage_lines(run)
    rows = [
        row([line.name, f"{line.rounds:,}", size(line.sent), duration(line.waited)], numbers=3, skip=1)
        for line in lines
    ]
    waited = sum(line.waited for line in lines)
    total = row(
        ["total", f"{run.rounds:,}", size(max(run.bytes_sent)), duration(waited)], numbers=3, skip=1, kind="total"
    )
    return section(
        "Costs",
        f"<p>{counted(run.rounds, 'communication round')}; {size(max(run.bytes_sent))} sent by the busiest server; "
        f"{duration(run.seconds)} on the servers, computing "
        f"included.</p>{table(['stage', 'rounds', 'sent', 'time in rounds'], [*rows, total], numbers=3, skip=1)}"
        '<p class="note">Sent: by the busiest server. Time in rounds: sending and waiting for peers, mean of the four servers. '
        "Agreeing on keys is 1 round a run.</p>",
    )


def plain_list(values: Mapping[str, Any]) -> str:
    lines = "".join(
        f"<dt>{html.escape(str(name))}</dt><dd>{html.escape(str(value))}</dd>" for name, value in values.items()
    )
    return f'<dl class="plain">{lines}</dl>'


def section(title: str, content: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n{content}\n</section>"


def table(heads: Sequence[str], rows: Iterable[str], numbers: int = 0, skip: int = 0) -> str:
    """`numbers` columns after the first `skip` are aligned to the right."""
    right = range(skip, skip + numbers)
    cells = "".join(f"<th{_number(i in right)}>{html.escape(head)}</th>" for i, head in enumerate(heads))
    head = f"<thead><tr>{cells}</tr></thead>" if heads else ""
    return f'<div class="scroll"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>'


def row(values: Sequence[Any], numbers: int = 0, skip: int = 0, tail: str = "", kind: str = "") -> str:
    right = range(skip, skip + numbers)
    cells = "".join(f"<td{_number(i in right)}>{html.escape(str(value))}</td>" for i, value in enumerate(values))
    return f"<tr{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{cells}{tail}</tr>"


def _number(is_number: bool) -> str:
    return ' class="number"' if is_number else ""
