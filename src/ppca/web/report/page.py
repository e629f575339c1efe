"""`report.html`: one page with the result, how it was computed and everything that was opened. It loads nothing."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ... import html as look
from ...html.formats import angle_error, below_resolution, counted, duration, percent, size
from ...html.labels import labels
from ...receiver import PCAModel
from ...receiver.angles import DETERMINED
from ...runtime import Account
from . import charts
from .account import opening_lines, stage_lines

STRONGEST = 6
"""Components, and features of each, that are listed by name."""

UNSEEN = {
    False: "Nothing else left the sharing: no row, no single owner's number of rows, mean or covariance, and no intermediate "
    "matrix was seen by any server, any other owner or the receiver.",
    True: "Nothing else left the sharing: no value of a row, no id, and no intermediate matrix was seen by any server, any other "
    "owner or the receiver. Beside this list, the servers saw how many rows every owner uploaded.",
}
"""What nobody saw, by owners of rows and of columns."""

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
) -> None:
    """Writes the page of a fitted model.

    model : what the receiver holds; its audit is the list of openings
    run : the account of the whole job (see `Account.total` if it took several runs)
    settings : what the user chose, by name
    owners : what the owners' tables are called; nothing else about single owners is known here
    by_columns : whether owners hold different columns of the same rows, not different rows of the same columns
    """
    names = model.column_names
    body = [
        _head(title, model, owners, by_columns),
        _facts(model, run, owners, by_columns),
        _warning(model),
        _scales(model),
        _variance(model),
        _loadings(model, names),
        _openings(model, len(owners), by_columns),
        _course(model, run),
        _settings(settings, owners),
        f"<footer>Written by ppca {html.escape(__version__)}. This page is self-contained: it loads nothing.</footer>",
    ]
    style = resources.files(look).joinpath("static", "look.css").read_text(encoding="utf-8") + chart_style()
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )
    path.write_bytes(page.encode("utf-8", "backslashreplace"))  # a file's name may hold bytes that are no text


def chart_style() -> str:
    """CSS of the charts, beside the look that all pages have."""
    return resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")


def _head(title: str, model: PCAModel, owners: Sequence[str], by_columns: bool) -> str:
    what = "correlation (standardised columns)" if model.scale is not None else "covariance"
    whose = f"the rows of {len(owners)} owners together" if len(owners) > 1 else "the rows of one owner"
    whose = f"the columns of {len(owners)} owners, joined row by row" if by_columns else whose
    text = f"Principal components of the {what} of {whose}, computed by four servers on secret shares."
    return f'<h1>{html.escape(title)}</h1>\n<p class="lead">{text}</p>'


def _facts(model: PCAModel, run: Account, owners: Sequence[str], by_columns: bool) -> str:
    kept, width = model.components.shape
    facts = [
        (str(len(owners)), "owner" if len(owners) == 1 else "owners"),
        (f"{model.rows:,}", "rows, joined" if by_columns else "rows, all owners together"),
        (str(width), "columns, all owners together" if by_columns else "columns"),
        (str(kept), "component" if kept == 1 else "components"),
        (percent(float(model.explained_variance_ratio.sum())), "of the variance explained"),
        (f"{run.rounds:,}", "communication rounds"),
        (size(max(run.bytes_sent)), "sent by the busiest server"),
        (duration(run.seconds), "on the servers"),
    ]
    cells = (f'<div class="fact"><b>{value}</b><span>{label}</span></div>' for value, label in facts)
    return f'<div class="facts">{"".join(cells)}</div>'


def _warning(model: PCAModel) -> str:
    if model.verified:
        return ""
    return (
        '<p class="warning"><b>The check on shares failed.</b> The decomposition is not as accurate as the tolerance '
        "promises; fit again with more iterations or a larger tolerance before using it.</p>"
    )


def _scales(model: PCAModel) -> str:
    notice = model.scale_notice()
    if notice is None:
        return ""
    text = notice[0].upper() + notice[1:]
    return f'<p class="warning"><b>Scales.</b> {html.escape(text)} (<code>ppca fit --standardize</code>).</p>'


def _variance(model: PCAModel) -> str:
    ratios = model.explained_variance_ratio
    sums = np.cumsum(ratios)
    lines = []
    for i, (variance, ratio, total) in enumerate(zip(model.explained_variance, ratios, sums, strict=True)):
        width = 100 * min(1.0, max(0.0, float(total)))
        meter = f'<td class="meter"><i style="width:{width:.2f}%"></i></td>'
        digits = (f"{variance:.6g}", percent(float(ratio))) if model.varies[i] else _noise(model)
        error = angle_error(float(model.component_error[i])) if model.resolved[i] else "not determined to this accuracy"
        lines.append(_row([i + 1, *digits, percent(float(total)), error], numbers=5, tail=meter))
    unit = "of the standardised columns" if model.scale is not None else "in squared units of the data"
    heads = '<th class="number">component</th><th class="number">variance</th><th class="number">ratio</th>'
    heads += '<th class="number">cumulative</th><th class="number">angle error</th><th></th>'
    remarks = "".join(f'<p class="note">{html.escape(text)}</p>' for text in model.remarks())
    if not model.noise_resolved:
        remarks += f'<p class="note">The noise variance is below the resolution: {_noise(model)[0]}.</p>'
    return _section(
        "Explained variance",
        f'<p class="note">Variances {unit}; the ratio is the part of the total variance, {model.total_variance:.6g}.</p>'
        f'<div class="pair"><div><h3>Scree plot</h3>{charts.scree(ratios)}</div>'
        f"<div><h3>Cumulative</h3>{charts.cumulative(ratios)}</div></div>"
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
        '<p class="note">Angle error: a bound of the angle between a component and the exact one, in radians, from the verified '
        f"tolerance and the distances between variances. Above {DETERMINED:g} a component is not determined.</p>{remarks}",
    )


def _noise(model: PCAModel) -> tuple[str, str]:
    return below_resolution(model.resolution, model.total_variance)


def _loadings(model: PCAModel, names: list[str]) -> str:
    kept = len(model.components)
    shown = min(kept, charts.MAP_COMPONENTS)
    which = f"the first {shown} of {kept} components" if shown < kept else "every component"
    short = labels(names, 24)  # what fits beside the bars without a break
    more = f" The map is scrolled: it has all {len(names)} columns." if len(names) > charts.HEADS_EVERY else ""
    cards = "".join(_strongest(i, component, names, short) for i, component in enumerate(model.components[:STRONGEST]))
    return _section(
        "Loadings",
        f'<p class="note">How much each column takes part in {which} (the components are in columns). '
        f"Signs follow scikit-learn: the entry of largest magnitude of a component is positive.{more}</p>"
        f'<div class="key">{charts.colour_key(model.components)}</div>'
        f'<div class="scroll">{charts.loadings(model.components, names)}</div>'
        f'<h3 style="margin-top:22px">Strongest columns</h3>{_cut(kept, len(names))}<div class="strong">{cards}</div>',
    )


def _cut(kept: int, width: int) -> str:
    """What the list of strongest columns leaves out."""
    parts = [f"the first {STRONGEST} of {kept} components"] if kept > STRONGEST else []
    parts += [f"the {STRONGEST} strongest of {width} columns"] if width > STRONGEST else []
    return f'<p class="note">Listed: {" and ".join(parts)}; components.csv has all.</p>' if parts else ""


def _strongest(
    index: int, component: np.ndarray[Any, np.dtype[np.float64]], names: list[str], labels: list[str]
) -> str:
    lines = []
    order = np.argsort(-np.abs(component), kind="stable")[:STRONGEST]
    largest = float(np.abs(component).max()) or 1.0
    for j in order.tolist():
        value = float(component[j])
        name = html.escape(labels[j])
        kind, sign = ("minus", charts.MINUS) if value < 0 else ("plus", "+")
        bar = f'<i class="{kind}" style="width:{100 * abs(value) / largest:.1f}%"></i>'
        lines.append(
            f'<div class="feature"><span title="{html.escape(names[j])}">{name}</span><span>{bar}</span>'
            f'<span class="number">{sign}{abs(value):.3f}</span></div>'
        )
    return f"<div><h3>Component {index + 1}</h3>{''.join(lines)}</div>"


def _openings(model: PCAModel, owners: int, by_columns: bool) -> str:
    lines = opening_lines(model.audit)
    rows = [_row([line.what, line.shape_text, f"{line.count:,}", line.to, line.why]) for line in lines]
    total = sum(line.count for line in lines)
    table = _table(["what", "shape", "times", "seen by", "why"], rows)
    caution = ""
    if len(model.components) == model.components.shape[1]:
        caution += " All components were kept: together they determine the joint covariance."
    if by_columns:
        caution += " Means and variances of columns are those of the owner whose columns they are."
    if owners == 1:
        caution += " With one owner, the joint numbers are that owner's own."
    if owners == 2 and not by_columns:
        caution += " With two owners, each can take its own part away from the joint result and see the other's sums."
    return _section(
        "What was opened",
        f"<p>This list is complete: {counted(total, 'opening')}. {UNSEEN[by_columns]}</p>"
        f'{table}<p class="note" style="margin-top:12px">The result itself tells something about the joint data, as any exact '
        f"statistic does.{caution}</p>",
    )


def _course(model: PCAModel, run: Account) -> str:
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
            f"checked on shares: no component is missing whose variance is above {factor:.2f} times that of the last one and "
            f"above {model.certificate['floor']:.1g} of the total; such a one is overlooked with probability {chance:.0e}"
        )
    facts = _table(
        [],
        [
            _row(["eigensolver", model.solver]),
            _row(["iterations", f"{model.iterations:,}"]),
            _row(["verified on shares", checked]),
            _row(["another solver took over", fell_back]),
            _row(["are these the largest?", largest]),
        ],
    )
    lines = stage_lines(run)
    rows = [
        _row([line.name, f"{line.rounds:,}", size(line.sent), duration(line.waited)], numbers=3, skip=1)
        for line in lines
    ]
    waited = sum(line.waited for line in lines)
    total = _row(
        ["total", f"{run.rounds:,}", size(max(run.bytes_sent)), duration(waited)], numbers=3, skip=1, kind="total"
    )
    heads = ["stage", "rounds", "sent", "time in rounds"]
    table = _table(heads, [*rows, total], numbers=3, skip=1)
    return _section(
        "How it was computed",
        f'<div class="pair"><div><h3>Eigendecomposition</h3>{facts}</div><div><h3>Traffic by stage</h3>{table}'
        f'<p class="note" style="margin-top:10px">Sent: by the busiest server. Time in rounds: '
        f"sending and waiting for peers, mean of the four servers; "
        f"the job took {duration(run.seconds)} on the servers, computing included. Agreeing on keys is 1 round a run.</p>"
        "</div></div>",
    )


def _settings(settings: Mapping[str, Any], owners: Sequence[str]) -> str:
    chosen = _table([], [_row([name, value]) for name, value in settings.items()])
    tables = "".join(f"<li><code>{html.escape(owner)}</code></li>" for owner in owners)
    return _section(
        "Settings",
        f'<div class="pair"><div>{chosen}</div><div><h3>Owners</h3><ol>{tables}</ol></div></div>',
    )


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n{content}\n</section>"


def _table(heads: Sequence[str], rows: Iterable[str], numbers: int = 0, skip: int = 0) -> str:
    """`numbers` columns after the first `skip` are aligned to the right."""
    right = range(skip, skip + numbers)
    cells = "".join(f"<th{_number(i in right)}>{html.escape(head)}</th>" for i, head in enumerate(heads))
    head = f"<thead><tr>{cells}</tr></thead>" if heads else ""
    return f'<div class="scroll"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>'


def _row(values: Sequence[Any], numbers: int = 0, skip: int = 0, tail: str = "", kind: str = "") -> str:
    right = range(skip, skip + numbers)
    cells = "".join(f"<td{_number(i in right)}>{html.escape(str(value))}</td>" for i, value in enumerate(values))
    return f"<tr{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{cells}{tail}</tr>"


def _number(is_number: bool) -> str:
    return ' class="number"' if is_number else ""
