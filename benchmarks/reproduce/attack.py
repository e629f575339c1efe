"""Show that the covariance must stay secret: rows recovered from an opened one, and the same attacker given only what
PPCA opens.

The attacks themselves are in `recovery`. All rows are real: images of 64 pixels, and customers of an insurance
company if that file is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from benchmarks.data_sets import Floats, MissingData, insurance
from ppca import PCA
from ppca.runtime import LocalServers

from .recovery import Moments, Success, descended, matched, recover, rotated, success, without_own
from .result import Options, Plot, Result, Table, cell
from .style import CYCLE, OURS, TRUTH, figure, legend, lines

SMALL = 12
"""Rows of the job whose covariance is opened in the first tables."""

SHOWN = 8
"""Rows in the picture."""


@dataclass(frozen=True)
class Rows:
    """Rows of whole numbers, no two alike, and the bounds of every column, which the attacker knows."""

    name: str
    values: Floats
    low: Floats
    high: Floats

    def some(self, count: int, random: np.random.Generator) -> Floats:
        """So many of the rows."""
        return self.values[random.permutation(len(self.values))[:count]]


def images() -> Rows:
    from sklearn.datasets import load_digits

    pixels = np.unique(load_digits().data, axis=0)
    return Rows("digits, 64 pixels", pixels, np.zeros(64), np.full(64, 16.0))


def people(options: Options) -> Rows:
    """Customers of an insurance company; bounds as in a code book."""
    values = np.unique(np.vstack(insurance(options.data)), axis=0)
    return Rows("insurance customers, 85 columns", values, values.min(axis=0), values.max(axis=0))


def run(options: Options) -> Result:
    digits = images()
    sets, more = [digits], " And customers of an insurance company (CoIL 2000), 85 columns of codes with known bounds."
    try:
        sets.append(people(options))
    except MissingData as missing:
        more = f" Insurance customers are left out ({missing})."
    iterations = options.pick(full=4_000, quick=2_000, tiny=200)
    with LocalServers(timeout=600) as servers:
        options.say("objectives")
        objectives = by_objective(digits, options.pick(full=10, quick=3, tiny=1), iterations)
        sizes = options.pick(full=(2, 5, 10, 15, 20, 24, 28, 32, 40, 80), quick=(5, 15, 20, 40), tiny=(2, 3))
        trials = options.pick(full=4, quick=2, tiny=1)
        counted = [by_rows(rows, n, trials, iterations, options.say) for rows in sets for n in sizes]
        counts = options.pick(full=(1, 3, 5, 7, 9, 10, 11), quick=(3, 7, 11), tiny=(1, 2))
        small = options.pick(full=SMALL, quick=SMALL, tiny=3)
        given, openings, pictures = by_components(
            servers, digits, small, counts, options.pick(full=2, quick=1, tiny=1), iterations, options.say
        )
        insiders = [
            record
            for few in options.pick(full=(5, 10, 20), quick=(10,), tiny=(2,))
            for record in by_insider(
                servers,
                digits,
                few,
                options.pick(full=(1, 5, 10, 20), quick=(5, 10), tiny=(1,)),
                iterations,
                options.say,
            )
        ]
    conditions = [
        f"Rows are real: scikit-learn's digits ({len(digits.values):,} images of 8 x 8 pixels, whole numbers 0 to "
        f"16).{more}",
        "The covariance of n rows is C = X'X / (n - 1) for centred rows X, so the objective that rows must meet is "
        "|X'X - (n - 1) C|^2. The paper prints (n - 1)^2 C, whose minimum has a covariance n - 1 times too large, "
        "and does not centre X.",
        "Meeting the objective is not enough: every rotation of the centred rows among themselves has the same "
        "covariance. What the attacker knows besides: the number of rows, their mean, and that every value is a "
        "whole number between known bounds. It uses no examples of such rows.",
        "Rows count as exact if every value is right. The error is the root mean square error relative to that of "
        "guessing the mean for every row (1 is a guess), in the order of rows that fits best, as moments tell no "
        "order.",
        f"The attacker searches for {iterations:,} iterations from one start. If it fails, another attack may "
        "succeed; if it succeeds, the rows were compared with the true ones.",
        "What PPCA opens is taken from fits on shares by four local servers, not simulated.",
    ]
    tables = [objective_table(objectives), count_table(counted), component_table(given), insider_table(insiders)]
    tables.append(opening_table(openings))
    return Result(
        "Attack: rows from an opened covariance",
        conditions,
        tables,
        [picture(pictures), curves(counted, given)],
    )


# -- what is measured
# ----------------------------------------------------------------------------------------------------


def by_objective(rows: Rows, trials: int, iterations: int) -> list[dict[str, Any]]:
    """Rows that meet an objective, and nothing else; then with the bounds."""
    found: dict[str, list[tuple[float, Success]]] = {}
    for trial in range(trials):
        random = np.random.default_rng(trial)
        true = rows.some(SMALL, random)
        n, mean, C = SMALL, true.mean(axis=0), np.cov(true, rowvar=False)
        known = Moments.of_covariance(n, mean, C)
        guesses = {
            "as printed: (n - 1)^2 C": mean + descended(C, n, (n - 1.0) ** 2, random),
            "corrected: (n - 1) C": mean + descended(C, n, n - 1.0, random),
            "corrected, solved exactly, a random rotation": rotated(known, random),
            "corrected, and whole numbers between 0 and 16": recover(known, rows.low, rows.high, random, iterations)[0],
        }
        for name, guess in guesses.items():
            off = float(np.linalg.norm(np.cov(guess, rowvar=False) - C) / np.linalg.norm(C))
            found.setdefault(name, []).append((off, success(guess, true)))
    return [
        {
            "objective": name,
            "rows": SMALL,
            "trials": trials,
            "covariance_error": float(np.median([off for off, _ in each])),
            **summary([got for _, got in each], SMALL),
        }
        for name, each in found.items()
    ]


def by_rows(rows: Rows, n: int, trials: int, iterations: int, say: Callable[[str], None]) -> dict[str, Any]:
    """The attack on a covariance of n rows."""
    got, chance, rank = [], [], 0
    for trial in range(trials):
        say(f"covariance of {n} rows of {rows.name}, {trial + 1} of {trials}")
        random = np.random.default_rng(trial)
        true = rows.some(n, random)
        known = Moments.of_covariance(n, true.mean(axis=0), np.cov(true, rowvar=False))
        rank = len(known.factor)
        got.append(success(recover(known, rows.low, rows.high, random, iterations)[0], true))
        chance.append(success(rotated(known, random), true))
    return {
        "data": rows.name,
        "rows": n,
        "rank": rank,
        "trials": trials,
        **summary(got, n),
        "chance": float(np.median([each.error for each in chance])),
    }


def by_components(
    servers: LocalServers,
    rows: Rows,
    n: int,
    counts: Sequence[int],
    trials: int,
    iterations: int,
    say: Callable[[str], None],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Floats]]:
    """The attack on what a receiver gets of a job with n rows of three owners; the openings of a fit; rows for the
    picture."""
    found: dict[int | None, list[Success]] = {count: [] for count in (None, *counts)}
    explained: dict[int, list[float]] = {count: [] for count in counts}
    pictures: dict[str, Floats] = {}
    openings: list[dict[str, Any]] = []
    for trial in range(trials):
        random = np.random.default_rng(trial)
        true = rows.some(n, random)
        known = Moments.of_covariance(n, true.mean(axis=0), np.cov(true, rowvar=False))
        guess = recover(known, rows.low, rows.high, random, iterations)[0]
        found[None].append(success(guess, true))
        if not trial:
            pictures["original"] = true
            pictures["from the covariance\nalone"] = matched(rotated(known, random), true)
            pictures["from the covariance,\npixels 0 to 16"] = matched(guess, true)
        for count in counts:
            say(f"{count} components of {n} rows, {trial + 1} of {trials}")
            pca = PCA(count, servers=servers).fit(np.array_split(true, 3))
            known = Moments.of_components(
                n, pca.mean_, pca.components_, pca.explained_variance_, pca.model_.total_variance
            )
            guess = recover(known, rows.low, rows.high, random, iterations)[0]
            found[count].append(success(guess, true))
            explained[count].append(float(pca.explained_variance_ratio_.sum()))
            openings = pca.openings_ if count == counts[len(counts) // 2] and not trial else openings
            if not trial and count in (3, 7, 9, n - 1):
                pictures[f"from PPCA's result,\n{count} component{'s' if count > 1 else ''}"] = matched(guess, true)
    width = rows.values.shape[1]
    records = [
        {"given": "the covariance, the mean, n", "components": None, "numbers": width * (width + 1) // 2 + width + 1}
        | {"explained": 1.0, "rows": n, "trials": trials, **summary(found[None], n)}
    ]
    records += [
        {"given": f"PPCA's result with {count} component{'s' if count > 1 else ''}", "components": count}
        | {"numbers": count * width + count + 1 + width + 1}
        | {"explained": float(np.median(explained[count])), "rows": n, "trials": trials, **summary(found[count], n)}
        for count in reversed(counts)
    ]
    nothing = {"components": None, "explained": None, "rows": n, "trials": trials, "exact": 0.0, "error": 1.0}
    records.append({"given": "the mean and n: every row guessed as the mean", "numbers": width + 1} | nothing)
    return records, openings, pictures


def by_insider(
    servers: LocalServers,
    rows: Rows,
    few: int,
    counts: Sequence[int],
    iterations: int,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """A receiver that also owns all rows but a few: the others' rows, from the covariance and from PPCA's result."""
    random = np.random.default_rng(few)
    order = random.permutation(len(rows.values))
    others, own = rows.values[order[:few]], rows.values[order[few:]]
    records = []

    def attack(given: str, count: int, mean: Floats, components: Floats, variances: Floats, total: float) -> None:
        say(f"all rows but {few} known, {given}")
        known = without_own(own, len(rows.values), mean, components, variances, total)
        guess, _ = recover(known, rows.low, rows.high, random, iterations)
        result = {"exact": success(guess, others).exact / few, "error": success(guess, others).error}
        records.append({"others": few, "own": len(own), "given": given, "components": count, **result})

    C = np.cov(rows.values, rowvar=False)
    variances, vectors = np.linalg.eigh(C)
    attack("the covariance", len(C), rows.values.mean(axis=0), vectors.T, variances, float(np.trace(C)))
    for count in counts:
        pca = PCA(count, servers=servers).fit([own, others])
        result = (pca.mean_, pca.components_, pca.explained_variance_, pca.model_.total_variance)
        attack("PPCA's result", count, *result)
    return records


def summary(got: Sequence[Success], n: int) -> dict[str, float]:
    """Part of the rows that are exact, over all trials, and the median error."""
    return {
        "exact": sum(each.exact for each in got) / (n * len(got)),
        "error": float(np.median([each.error for each in got])),
    }


# -- how it is shown
# -----------------------------------------------------------------------------------------------------


def _exact(record: dict[str, Any]) -> str:
    return f"{record['exact']:.0%}"


def objective_table(records: list[dict[str, Any]]) -> Table:
    return Table.of(
        f"What an objective gives, {SMALL} images, {records[0]['trials']} trials",
        records,
        {
            "objective": cell("objective"),
            "covariance off by": cell("covariance_error", "{:.1e}"),
            "rows exact": _exact,
            "error of rows": cell("error", "{:.2f}"),
        },
        "Gradient descent on the corrected objective finds rows with nearly the right covariance, and they are not "
        "the true rows. What the attacker knows besides makes the difference.",
    )


def count_table(records: list[dict[str, Any]]) -> Table:
    return Table.of(
        "Rows recovered from an opened covariance, by number of rows",
        records,
        {
            "rows of": cell("data"),
            "n": cell("rows"),
            "rank": cell("rank"),
            "trials": cell("trials"),
            "rows exact": _exact,
            "error of rows": cell("error", "{:.2f}"),
            "error of a random rotation": cell("chance", "{:.2f}"),
        },
        "Given: the covariance, the mean, n and the bounds. Few rows are recovered whole; with more, this search no "
        "longer ends in time. A covariance of many rows is not thereby safe: see the receiver that owns most of "
        "them, below.",
    )


def component_table(records: list[dict[str, Any]]) -> Table:
    n = records[0]["rows"]
    return Table.of(
        f"The same attacker, {n} images of three owners, given what a receiver of PPCA gets",
        records,
        {
            "given": cell("given"),
            "numbers": cell("numbers"),
            "variance explained": cell("explained", "{:.1%}"),
            "rows exact": _exact,
            "error of rows": cell("error", "{:.2f}"),
        },
        f"{n} rows have a covariance of rank {n - 1}: a receiver of {n - 1} components has the whole spectrum, can "
        "rebuild the covariance, and so the rows. PPCA cannot hide what its result itself tells; asking for fewer "
        "components can. With fewer, the error grows step by step: a result that explains most of the variance of "
        "few rows tells most about them. A server gets none of these numbers: see the last table.",
    )


def insider_table(records: list[dict[str, Any]]) -> Table:
    return Table.of(
        "A receiver that owns all rows but a few",
        records,
        {
            "rows of others": cell("others"),
            "own rows": cell("own", "{:,}"),
            "given": cell("given"),
            "components": cell("components"),
            "others' rows exact": _exact,
            "error of rows": cell("error", "{:.2f}"),
        },
        "The attacker subtracts its own rows from the joint result. From K components it then has the others' mean "
        "and, if they have at most K + 1 rows, their whole covariance (unless a component is orthogonal to their "
        "differences by chance). That is so of the result of any PCA, also of PPCA's: an owner that contributes few rows "
        "beside one large owner, or beside several that pool their knowledge, should agree to far fewer "
        "components than it has rows, or to another receiver. Of more rows than K + 1 the opened covariance gives "
        "more away than the result.",
    )


def opening_table(openings: list[dict[str, Any]]) -> Table:
    records = []
    for (to, what), each in groupby(openings, key=lambda line: (line["to"], line["what"])):
        lines_ = list(each)
        shape = "one number" if not lines_[0]["shape"] else " x ".join(map(str, lines_[0]["shape"]))
        to = "receiver" if to == "client" else to
        records.append({"to": to, "what": what, "shape": shape, "times": len(lines_)})
    return Table.of(
        "Everything that left the sharing in one of these fits (its audit)",
        records,
        {"to": cell("to"), "what": cell("what"), "shape": cell("shape"), "times": cell("times")},
        "Servers learn bits about the iteration and a random permutation; the covariance is in neither list.",
    )


def picture(pictures: dict[str, Floats]) -> Plot:
    shown = min(SHOWN, len(pictures["original"]))
    titles = [""] * (shown * len(pictures))
    drawn, panels = figure(*titles, height=0.85 * len(pictures), nrows=len(pictures), ncols=shown)
    for row, (name, each) in enumerate(pictures.items()):
        for column in range(shown):
            panel = panels[row * shown + column]
            panel.imshow(each[column].reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
            panel.set_xticks([])
            panel.set_yticks([])
            panel.grid(False)
            for spine in panel.spines.values():
                spine.set_visible(True)
                spine.set_color("#d0d3d8")
        panels[row * shown].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    caption = (
        f"Rows of one job with {len(pictures['original'])} images (the first {shown}), and what the attacker makes "
        "of what it is given. All components of such a small number of rows are their covariance, and give the rows away like it."
    )
    return Plot("rows", caption, drawn)


def curves(counted: list[dict[str, Any]], given: list[dict[str, Any]]) -> Plot:
    drawn, (many, few) = figure("Opened covariance", f"Given what PPCA opens, {given[0]['rows']} rows", height=3.2)
    names = list(dict.fromkeys(record["data"] for record in counted))
    series = [[record for record in counted if record["data"] == name] for name in names]
    points = [([r["rows"] for r in own], [100 * r["exact"] for r in own]) for own in series]
    lines(many, [(name.partition(",")[0], x, y) for name, (x, y) in zip(names, points, strict=True)])
    many.set_xlabel("rows of the job")
    many.set_ylabel("rows recovered exactly, %")
    legend(many, loc="upper right")
    opened = sorted((r for r in given if r["components"]), key=lambda r: r["components"])
    few.plot(
        [r["components"] for r in opened], [r["error"] for r in opened], color=OURS, marker="o", label="PPCA's result"
    )
    few.axhline(given[0]["error"], color=CYCLE[3], linestyle="--", linewidth=1.2, label="opened covariance")
    few.axhline(1.0, color=TRUTH, linestyle=":", linewidth=1.2, label="guess: the mean")
    few.set_xlabel("components opened")
    few.set_ylabel("error of rows")
    few.set_ylim(bottom=-0.05)
    legend(few, loc="lower left", bbox_to_anchor=(0, 0.08))
    caption = (
        "Left: rows recovered exactly from an opened covariance, by number of rows. Right: error of the rows that "
        "the attacker finds from PPCA's result, by number of components."
    )
    return Plot("success", caption, drawn)
