"""`report.html` of a joint regression: the coefficient table, a forest plot, how well it fits and what was opened."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...html.formats import counted, percent
from ...html.labels import labels
from ...receiver.regression import RegressionModel
from ...runtime import Account
from . import charts
from .page import costs, openings, plain_list, row, section, table, write_page

HEADS = {
    "term": "term",
    "coefficient": "estimate",
    "standard_error": "std. error",
    "t": "t",
    "p": "p",
    "low": "95 %, from",
    "high": "to",
    "vif": "VIF",
}
"""Headings of the coefficient table."""

MIN_P = 1e-12
"""p values below are shown as smaller than this."""


def write_regression_report(
    path: Path,
    model: RegressionModel,
    run: Account,
    *,
    title: str,
    settings: Mapping[str, Any],
    owners: Sequence[str],
    by_columns: bool = False,
) -> None:
    """Write the page of a regression. The parameters are those of `write_report`."""
    caution = " Coefficients with all their standard errors tell much of the joint covariance."
    body = [
        _head(title, model, len(owners), by_columns),
        _coefficients(model),
        _correlation(model),
        openings(model.audit, len(owners), by_columns, caution),
        _computed(settings, owners),
        costs(run),
    ]
    write_page(path, title, body)


def summary(model: RegressionModel) -> str:
    """Return the result in one paragraph."""
    by = "least squares" if model.method == "ols" else f"ridge regression, alpha = {model.alpha:g}"
    text = f"This is a linear regression of {model.target} on {counted(len(model.columns), 'column')}, by {by}, "
    text += f"of {counted(model.rows, 'row')}."
    if model.r2 is not None:
        text += f" The columns explain {percent(model.r2)} of the variance of {model.target}."
    if model.p_values is not None and not np.isnan(model.p_values).any():
        clear = int(np.sum(model.p_values[: len(model.columns)] < 0.05))
        text += f" {counted(clear, 'coefficient')} of {len(model.columns)} differ from zero with p below 0.05."
    return text


def facts(model: RegressionModel) -> dict[str, str]:
    """Return what describes the whole fit, by name."""
    found: dict[str, str] = {"rows": f"{model.rows:,}"}
    numbers: dict[str, float | None] = {
        "R squared": model.r2,
        "adjusted R squared": model.adjusted_r2,
        "residual variance": model.residual_variance,
    }
    found |= {name: f"{value:.6g}" for name, value in numbers.items() if value is not None}
    if model.adjusted_r2 is not None:
        found["degrees of freedom"] = f"{model.freedom:,}"
    if model.f_test is not None:
        statistic, p = model.f_test
        found["F test of all coefficients"] = f"F = {statistic:.6g}, p {p_text(p)}"
    return found


def p_text(p: float) -> str:
    """Return a p value as text."""
    return "= nan" if np.isnan(p) else f"< {MIN_P:g}" if p < MIN_P else f"= {p:.3g}"


def coefficient_lines(model: RegressionModel, digits: int = 6) -> tuple[list[str], list[list[str]]]:
    """Return headings and lines of the coefficient table, for people."""
    columns = model.table()
    names = labels([str(name) for name in columns.pop("term")])

    def cell(head: str, value: float) -> str:
        if np.isnan(value):
            return ""
        return p_text(value).removeprefix("= ") if head == "p" else f"{value:.{digits}g}"

    lines = [[name, *(cell(head, float(columns[head][at])) for head in columns)] for at, name in enumerate(names)]
    return [HEADS["term"], *(HEADS[head] for head in columns)], lines


def _head(title: str, model: RegressionModel, owners: int, by_columns: bool) -> str:
    sizes = [
        (str(owners), "owner" if owners == 1 else "owners"),
        (f"{model.rows:,}", "rows, joined" if by_columns else "rows, all owners together"),
        (str(len(model.columns)), "columns beside the target"),
        *([] if model.r2 is None else [(percent(model.r2), "of the variance explained (R squared)")]),
    ]
    cells = "".join(f'<div class="fact"><b>{value}</b><span>{label}</span></div>' for value, label in sizes)
    warnings = "".join(f'<p class="warning">{html.escape(text)}</p>' for text in model.remarks())
    return (
        f'<h1>{html.escape(title)}</h1>\n<p class="findings">{html.escape(summary(model))}</p>\n'
        f'<div class="cautions">{warnings}</div>\n<div class="facts">{cells}</div>'
    )


def _coefficients(model: RegressionModel) -> str:
    heads, lines = coefficient_lines(model)
    numbers = len(heads) - 1
    content = table(heads, [row(line, numbers=numbers, skip=1) for line in lines], numbers=numbers, skip=1)
    plot = charts.forest(model)
    if plot:
        content += (
            f"<h3>Confidence intervals</h3>{plot}"
            '<p class="note">Coefficients in standard errors, with their 95 % confidence intervals. An interval that '
            "crosses the line at 0 does not exclude a coefficient of zero.</p>"
        )
    return section("Coefficients", content + f"<h3>The whole fit</h3>{plain_list(facts(model))}")


def _correlation(model: RegressionModel) -> str:
    if model.correlation is None:
        return ""
    names = labels([*model.columns, model.target])
    rows = [
        row([name, *(f"{value:.3f}" for value in line)], numbers=len(names), skip=1)
        for name, line in zip(names, model.correlation.tolist(), strict=True)
    ]
    return section("Correlation", table(["", *names], rows, numbers=len(names), skip=1))


def _computed(settings: Mapping[str, Any], owners: Sequence[str]) -> str:
    tables = "".join(f"<li><code>{html.escape(owner)}</code></li>" for owner in owners)
    return section(
        "How it was computed",
        "<p>Four servers computed on secret shares of the owners' data. No server saw a value of a table. The servers "
        "checked on shares that the columns are far enough from linearly dependent and that the solution is accurate, "
        "and opened one bit for each.</p>"
        f'<div class="pair"><div><h3>Settings</h3>{plain_list(settings)}</div>'
        f'<div><h3>Tables</h3><ul class="opened">{tables}</ul></div></div>',
    )
