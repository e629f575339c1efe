"""The paper's Table 5: does a classifier of principal components do better when more owners join?

N-BaIoT   owners are devices, they hold rows; 20 components, AdaBoost: benign, gafgyt or mirai MOOCCube  owners are
groups of 20 concepts, they hold columns; 7 components, gradient boosting: does a student take a top course

1. Rows are split into training and test before anything is fitted; no row is on both sides.
2. N owners are drawn, and their joint PCA (and its scaling) is fitted on shares of their training rows.
3. Row owners project their rows with the components they received; rows of column owners are projected on
   shares.
4. The classifier is trained on the projected training rows, in the clear, and judged on the projected test rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.data_sets import Floats
from ppca import PCA, Columns
from ppca.runtime import LocalServers

from .result import Options, Plot, Result, Table, cell
from .students import OWNERS, WIDTH, Enrolments, Task, enrolments
from .style import CYCLE, MARKERS, OURS, PAPER, TRUTH, figure, legend
from .traffic import FAMILIES, WITHOUT_MIRAI, Bits, Ints, Traffic, traffic

TEST = 0.3
"""Part of the rows (or of the combinations of courses) that are held out for the test."""

IOT, MOOC = (1, 3, 5, 9), (1, 3, 7, 10)
PAPER_FIGURES = {
    "IoT": {1: (0.79, 0.74, 0.71), 3: (0.80, 0.92, 0.89), 5: (0.99, 0.98, 0.99), 9: (1.0, 1.0, 1.0)},
    "MOOC": {1: (0.74, 0.81, 0.73), 3: (0.79, 0.82, 0.74), 7: (0.80, 0.83, 0.77), 10: (0.87, 0.83, 0.77)},
}
"""Precision, recall and F1, by the number of owners."""

MEASURES = ("precision", "recall", "f1")
TASKS = {
    "random": "as in the paper; students split at random",
    "apart": "as in the paper; no row of 200 on both sides",
    "course": "a course held out; no row of 200 on both sides",
}


def run(options: Options) -> Result:
    rows = traffic(options.data, options.pick(full=2000, quick=600, tiny=120))
    taken = enrolments(options.data, options.pick(full=20_000, quick=4_000, tiny=300))
    most = options.pick(full=1000, quick=300, tiny=60)
    students = options.pick(full=6_000, quick=2_000, tiny=300)
    with LocalServers(timeout=600) as servers:
        devices = by_device(servers, rows, most, options)
        groups = by_group(servers, taken, students, options)
    conditions = [
        f"{rows.source} {rows.dropped:,} rows that occur more than once were dropped.",
        f"{taken.source} Every task has {students:,} students at most, drawn at random.",
        f"Rows are split before anything is fitted, {TEST:.0%} for the test. Scaling, PCA and classifier see "
        f"training rows only (at most {most:,} per device). Test rows of N-BaIoT are those of all nine devices, "
        "whichever owners joined.",
        "Features come of joint PCAs on shares (four local servers), one column owner excepted, which does not need "
        "servers. Projected rows of column owners are computed on shares too. PPCA ends there: the classifier "
        "is trained in the clear by the receiver of the projected rows and their labels.",
        "Precision, recall and F1 are averages over classes weighted by their rows, macro F1 weighs classes "
        "equally; the paper says neither which it took nor how it split rows. ± is the standard deviation over "
        "draws of owners and splits. Classifiers have scikit-learn's defaults.",
        "Rows of one capture of N-BaIoT lie near each other in time, and the sample does not tell their order, so test "
        "rows may resemble training rows of the same capture. Figures for devices outside do not have that weakness.",
    ]
    tables = [device_table(devices), single_table(devices, rows), group_table(groups)]
    return Result("Table 5: the benefit of joining", conditions, tables, [plot(devices, groups)])


# -- row owners
# --------------------------------------------------------------------------------------------------------


def by_device(servers: LocalServers, rows: Traffic, most: int, options: Options) -> list[dict[str, Any]]:
    """One record per draw of devices and split; most: training rows of a device."""
    draws = options.pick(full={1: 9, 3: 12, 5: 12, 9: 6}, quick={1: 4, 3: 2, 5: 2, 9: 1}, tiny={1: 1, 3: 1})
    records = []
    for count, repeats in draws.items():
        for draw in range(repeats):
            options.say(f"N-BaIoT, {count} of 9 devices, draw {draw + 1} of {repeats}")
            chosen = [draw % 9] if count == 1 else np.random.default_rng(draw).permutation(9)[:count].tolist()
            test = rows.held_out(TEST, draw)
            records.append(judge_devices(servers, rows, chosen, rows.at_most(~test, most, draw), test, draw))
    return records


def judge_devices(
    servers: LocalServers, rows: Traffic, chosen: list[int], training: Bits, test: Bits, seed: int
) -> dict[str, Any]:
    """The joint PCA of these devices; a classifier of their rows, and one of all devices' rows in the same features."""
    own = training & rows.of(chosen)
    pca = PCA(20, standardize=True, servers=servers).fit([rows.X[own & (rows.device == one)] for one in chosen])
    Z = pca.transform(rows.X)
    truth, outside = rows.label[test], ~rows.of(chosen)[test]
    found = boosted(Z[own], rows.label[own], seed).predict(Z[test])
    only_pca = boosted(Z[training], rows.label[training], seed).predict(Z[test])
    return {
        "owners": len(chosen),
        "devices": [rows.devices[one] for one in chosen],
        **judged(truth, found),
        "recall_by_class": {name: float((found[truth == at] == at).mean()) for at, name in enumerate(FAMILIES)},
        "outside": judged(truth[outside], found[outside])["f1"] if outside.any() else None,
        "only_pca": judged(truth, only_pca)["f1"],
        "rounds": pca.account_.rounds,
    }


def boosted(Z: Floats, label: Ints, seed: int) -> Any:
    """AdaBoost with scikit-learn's defaults: fifty stumps."""
    from sklearn.ensemble import AdaBoostClassifier

    return AdaBoostClassifier(random_state=seed).fit(Z, label)


# -- column owners
# -----------------------------------------------------------------------------------------------------


def by_group(servers: LocalServers, taken: Enrolments, most: int, options: Options) -> list[dict[str, Any]]:
    """One record per task, draw of groups and split; and two rules that need no owner to join; most: students.

    A random split of the students leaks; it has fewer draws.
    """
    draws = options.pick(full={1: 10, 3: 10, 7: 10, 10: 10}, quick={1: 3, 3: 1, 7: 1, 10: 1}, tiny={1: 1, 3: 1})
    fewer = {count: min(repeats, 4) for count, repeats in draws.items()}
    whole, apart = taken.of_the_paper(), taken.held_out()
    records = []
    for name in TASKS:
        task = (apart if name == "course" else whole).at_most(most, 0)
        for count, repeats in (fewer if name == "random" else draws).items():
            for draw in range(repeats):
                options.say(f"MOOCCube, {TASKS[name]}: {count} of 10 groups, draw {draw + 1} of {repeats}")
                chosen = np.random.default_rng(draw).permutation(OWNERS)[:count].tolist()
                test = task.held_out(TEST, draw, name != "random")
                records.append({"task": name, "owners": count, **judge_groups(servers, task, chosen, test, draw)})
        test = task.held_out(TEST, 0, name != "random")
        records += [{"task": name, "owners": None, **rule} for rule in rules(task, test)]
    return records


def judge_groups(servers: LocalServers, task: Task, chosen: list[int], test: Bits, seed: int) -> dict[str, Any]:
    """The joint PCA of these groups' columns, and a classifier of it."""
    from sklearn.ensemble import GradientBoostingClassifier

    train, new = projected(servers, task.X[~test], task.X[test], chosen)
    fitted = GradientBoostingClassifier(random_state=seed).fit(train, task.label[~test])
    likely = fitted.predict_proba(new)[:, 1]
    return {"rule": None, **judged(task.label[test], fitted.predict(new), likely), "known": task.known(test)}


def projected(servers: LocalServers, train: Floats, new: Floats, chosen: list[int]) -> tuple[Floats, Floats]:
    """Coordinates of training and new rows under the PCA of these groups' training rows, by the first group's owner."""
    if len(chosen) == 1:
        from sklearn import decomposition

        own = slice(WIDTH * chosen[0], WIDTH * (chosen[0] + 1))
        alone = decomposition.PCA(7).fit(train[:, own])
        return alone.transform(train[:, own]), alone.transform(new[:, own])
    partition = Columns(alignment="aligned")

    def owners(X: Floats) -> list[Floats]:
        return [X[:, WIDTH * group : WIDTH * (group + 1)] for group in chosen]

    pca = PCA(7, servers=servers, partition=partition, keep="students", allow={"transform": ["owner-1"]})
    shared = pca.fit(owners(train)).shared_model()
    found = [shared.transform_columns(owners(X), partition).coordinates for X in (train, new)]
    assert found[0] is not None
    assert found[1] is not None
    return found[0], found[1]


def rules(task: Task, test: Bits) -> list[dict[str, Any]]:
    """Return what needs no PCA: the most frequent answer; and whether a row's sum is at least what separates training
    rows best."""
    truth, known = task.label[test], task.known(test)
    frequent = np.full(len(truth), int(task.label[~test].mean() >= 0.5))
    sums = task.X.sum(axis=1)
    limits = np.arange(1, 30)
    right = [float(((sums[~test] >= limit) == task.label[~test]).mean()) for limit in limits]
    counted = (sums[test] >= limits[int(np.argmax(right))]).astype(np.int64)
    return [
        {"rule": "always the more frequent answer", **judged(truth, frequent), "auc": 0.5, "known": known},
        {"rule": "enough concepts in all 200", **judged(truth, counted, sums[test]), "known": known},
    ]


# -- how it is judged and shown
# --------------------------------------------------------------------------------------------


def judged(truth: Ints, found: Ints, likely: Floats | None = None) -> dict[str, Any]:
    """Precision, recall and F1 as weighted averages over classes, macro F1, and AUC if answers come with a
    likelihood."""
    from sklearn.metrics import f1_score, precision_recall_fscore_support, roc_auc_score

    weighted = precision_recall_fscore_support(truth, found, average="weighted", zero_division=0)[:3]
    two = likely is not None and len(np.unique(truth)) == 2
    return {
        **dict(zip(MEASURES, map(float, weighted), strict=True)),
        "macro": float(f1_score(truth, found, average="macro", zero_division=0)),
        "auc": float(roc_auc_score(truth, likely)) if two else None,
    }


def spread(records: Sequence[dict[str, Any]], key: str) -> str:
    """Mean and standard deviation; nothing if there are no figures."""
    values = [record[key] for record in records if record[key] is not None]
    if not values:
        return ""
    return f"{np.mean(values):.2f}" + (f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else "")


def device_table(records: list[dict[str, Any]]) -> Table:
    counts = list(dict.fromkeys(record["owners"] for record in records))

    def of(count: int) -> list[dict[str, Any]]:
        return [record for record in records if record["owners"] == count]

    heads: dict[str, Callable[[int], str]] = {
        "owners": str,
        "draws": lambda n: str(len(of(n))),
        "paper P / R / F1": lambda n: " / ".join(f"{figure:.2f}" for figure in PAPER_FIGURES["IoT"][n]),
        "precision": lambda n: spread(of(n), "precision"),
        "recall": lambda n: spread(of(n), "recall"),
        "F1": lambda n: spread(of(n), "f1") + _short_of(of(n), PAPER_FIGURES["IoT"][n][2]),
        "macro F1": lambda n: spread(of(n), "macro"),
        "F1, devices outside": lambda n: spread(of(n), "outside"),
        "F1, only the PCA is joined": lambda n: spread(of(n), "only_pca"),
    }
    return Table(
        "N-BaIoT by device: 20 components, AdaBoost, three classes",
        list(heads),
        [[show(count) for show in heads.values()] for count in counts],
        records,
        f"From one owner to {counts[-1]}, F1 goes {_way(records, 'f1')}. The last column trains the classifier on "
        "rows of all nine devices, in features of a PCA that only the drawn owners joined: it goes "
        f"{_way(records, 'only_pca')}. So much is due to the PCA, the rest to labelled rows of more devices.",
    )


def _way(records: list[dict[str, Any]], key: str) -> str:
    """From what mean to what mean, of the fewest owners and the most."""
    drawn = [record for record in records if record["owners"]]
    fewest, most = ([r[key] for r in drawn if r["owners"] == drawn[at]["owners"]] for at in (0, -1))
    return f"from {np.mean(fewest):.2f} to {np.mean(most):.2f}"


def _short_of(records: Sequence[dict[str, Any]], paper: float) -> str:
    mean = float(np.mean([record["f1"] for record in records]))
    return "" if mean >= paper - 0.005 else f" (behind the paper: {mean - paper:+.2f})"


def single_table(records: list[dict[str, Any]], rows: Traffic) -> Table:
    alone = [record for record in records if record["owners"] == 1]
    theirs, others = (
        np.mean([r["only_pca"] for r in alone if r["devices"][0].startswith(WITHOUT_MIRAI) is wanted] or [np.nan])
        for wanted in (True, False)
    )
    return Table.of(
        "One device alone, tested on all nine",
        alone,
        {
            "device": lambda r: r["devices"][0],
            "its mirai rows": lambda r: (
                f"{int(((rows.label == 2) & (rows.device == rows.devices.index(r['devices'][0]))).sum()):,}"
            ),
            "F1": cell("f1", "{:.2f}"),
            **{
                f"recall of {name}": lambda r, name=name: f"{r['recall_by_class'][name]:.2f}"  # type: ignore[misc]
                for name in FAMILIES
            },
            "F1, only the PCA is its own": cell("only_pca", "{:.2f}"),
        },
        "The paper says that without Ennio and Samsung the PCA misses what mirai needs. In N-BaIoT these two are "
        "the only devices without mirai: a classifier of their rows cannot know it. With a PCA of one of the two "
        f"alone, and all devices' rows to train the classifier, F1 is {theirs:.2f} on average, beside {others:.2f} "
        "with a PCA of one of the others."
        if rows.real
        else "",
    )


def group_table(records: list[dict[str, Any]]) -> Table:
    rows = []
    for name, meaning in TASKS.items():
        own = [record for record in records if record["task"] == name]
        for count in dict.fromkeys(record["owners"] for record in own if record["owners"]):
            drawn = [record for record in own if record["owners"] == count]
            paper = " / ".join(f"{figure:.2f}" for figure in PAPER_FIGURES["MOOC"][count]) if name != "course" else ""
            rows.append([meaning, str(count), str(len(drawn)), paper, *_figures(drawn)])
        rows += [[meaning, record["rule"], "", "", *_figures([record])] for record in own if record["rule"]]
    known = float(np.mean([record["known"] for record in records if record["task"] == "random"]))
    usual = next(record["f1"] for record in _of(records, "course") if record["rule"])
    heads = ["task", "owners", "draws", "paper P / R / F1", "precision", "recall", "F1", "macro F1", "AUC"]
    return Table(
        "MOOCCube by group of concepts: 7 components, gradient boosting, two classes",
        heads,
        rows,
        records,
        f"In the paper's task the answer is made of the same enrolments as the row. Split at random, {known:.0%} of "
        "test rows also occur in the training set; and the last rule answers without any PCA. More columns tell "
        "more of the answer's own definition, so F1 can grow with the owners, whatever joining is worth: "
        f"{_way(_of(records, 'apart'), 'f1')} with no row of 200 on both sides. Where the course asked about is not "
        f"in the row, F1 goes {_way(_of(records, 'course'), 'f1')} and AUC {_way(_of(records, 'course'), 'auc')}, "
        f"beside F1 {usual:.2f} of the more frequent answer. The paper gives neither the share of its classes nor "
        "this rule; always answering yes has a weighted recall of p and F1 of 2 p^2 / (1 + p) where p say yes: .81 "
        "and .73 for p = .81, the paper's recall and F1 for one owner (its precision, .74, is above the .66 of "
        "this answer).",
    )


def _of(records: list[dict[str, Any]], task: str) -> list[dict[str, Any]]:
    """The draws of a task, then its rules."""
    return [record for record in records if record["task"] == task]


def _figures(records: Sequence[dict[str, Any]]) -> list[str]:
    return [spread(records, key) for key in (*MEASURES, "macro", "auc")]


def plot(devices: list[dict[str, Any]], groups: list[dict[str, Any]]) -> Plot:
    drawn, (left, right) = figure("N-BaIoT, by device", "MOOCCube, by group of concepts", height=3.7)
    for panel, name in ((left, "IoT"), (right, "MOOC")):
        figures = PAPER_FIGURES[name]
        panel.plot(
            list(figures),
            [each[2] for each in figures.values()],
            color=PAPER,
            linestyle="--",
            marker="x",
            label="paper",
        )
        panel.set_xticks(list(figures))
        panel.set_xlabel("owners that join")
        panel.set_ylabel("F1")
        panel.set_ylim(0.3, 1.03)
    _line(left, devices, "f1", "all devices tested", OURS, "o")
    _line(left, devices, "outside", "devices outside", CYCLE[1], "s")
    _line(left, devices, "only_pca", "only the PCA is joined", TRUTH, "D")
    for number, (name, meaning) in enumerate(TASKS.items()):
        own = [record for record in groups if record["task"] == name]
        _line(
            right,
            [record for record in own if record["owners"]],
            "f1",
            meaning,
            (OURS, CYCLE[1], CYCLE[3])[number],
            MARKERS[number],
        )
        if name == "course":
            usual = next(record["f1"] for record in own if record["rule"])
            right.axhline(usual, color=TRUTH, linestyle=":", linewidth=1.2, label="the more frequent answer")
    legend(left, loc="lower right")
    legend(right, loc="lower right", fontsize=7.5)
    caption = (
        "F1 (weighted) by the number of owners that join: mean and standard deviation over draws of owners and splits. "
        "Left: devices hold rows. Right: groups of concepts hold columns."
    )
    return Plot("joining", caption, drawn)


def _line(panel: Any, records: list[dict[str, Any]], key: str, label: str, colour: str, marker: str) -> None:
    counts = [n for n in dict.fromkeys(r["owners"] for r in records)]
    values = [[r[key] for r in records if r["owners"] == n and r[key] is not None] for n in counts]
    shown = [
        (n, np.mean(each), np.std(each, ddof=1) if len(each) > 1 else 0.0)
        for n, each in zip(counts, values, strict=True)
        if each
    ]
    x, y, error = zip(*shown, strict=True)
    panel.errorbar(x, y, yerr=error, color=colour, marker=marker, capsize=2, label=label, linewidth=1.6, markersize=4.5)
