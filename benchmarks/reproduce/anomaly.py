"""Attacks on devices (N-BaIoT) found by the reconstruction error of benign traffic, on shares, with a model that no one
holds.

1. Benign rows of every device are split into training and test; rows under attack are never trained on.
2. A joint PCA of the owners' benign training rows is fitted on shares and stays there (`reveal=False`).
3. Test rows are shared, and scored on shares: squared distance to the plane of the components. Only scores are opened.
4. Scores are judged as a test for attacks: ROC, and the area under it (AUC): 0.5 is chance, 1 tells all attacks from
   benign rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.data_sets import Floats
from ppca import PCA
from ppca.jobs.input_types import row_type
from ppca.runtime import LocalServers

from .result import Options, Plot, Result, Table, cell
from .style import CYCLE, OURS, TRUTH, figure, legend
from .traffic import Bits, Traffic, traffic

COMPONENTS = 10
FALSE_ALARMS = {"found": 0.01, "found_strict": 0.001}
"""False positive rates at which the part of attacks found is given."""


@dataclass(frozen=True)
class Rows:
    """Rows of the study: which benign ones are trained on, which are tested; values as owners share them."""

    of: Traffic
    X: Floats
    training: Bits
    test: Bits

    @property
    def attacked(self) -> Bits:
        return np.asarray(self.of.label[self.test] > 0)


@dataclass(frozen=True)
class Scored:
    """Scores of tested rows (not a number for those that were not asked for), and how many values had to be clipped."""

    scores: Floats
    clipped: int


def run(options: Options) -> Result:
    found = traffic(options.data, options.pick(full=2000, quick=600, tiny=120))
    rows = chosen(found, options.pick(full=60, quick=20, tiny=5), options.pick(full=1000, quick=300, tiny=60))
    everybody = list(range(len(found.devices)))
    single = options.pick(full=everybody, quick=everybody[:4], tiny=everybody[:2])
    outside = options.pick(full=everybody, quick=everybody[:2], tiny=everybody[:1])
    counts = options.pick(full=(5, 10, 20), quick=(5, 20), tiny=(5,))
    with LocalServers(timeout=600) as servers:
        options.say("joint model")
        joint = scored(servers, rows, everybody, COMPONENTS)
        alone = {}
        for one in single:
            options.say(f"{found.devices[one]} alone")
            alone[one] = scored(servers, rows, [one], COMPONENTS)
        others = {}
        for one in outside:
            options.say(f"all but {found.devices[one]}")
            others[one] = scored(servers, rows, [each for each in everybody if each != one], COMPONENTS, of=one)
        choices = []
        for shape in ("logarithms", "as they are"):
            for count in counts:
                options.say(f"{count} components, values {shape}")
                seen = rows if shape == "logarithms" else Rows(found, found.X, rows.training, rows.test)
                got = joint if seen is rows and count == COMPONENTS else scored(servers, seen, everybody, count)
                choices.append({"values": shape, "components": count, **judged(got.scores, rows.attacked)})
    off = accuracy(rows, everybody, joint)
    clipped = sum(each.clipped for each in (joint, *alone.values(), *others.values()))
    conditions = [
        f"{found.source} {found.dropped:,} rows that occur more than once were dropped.",
        f"Models: {COMPONENTS} components of standardised columns, of benign training rows only "
        f"({rows.training.sum():,} in all); tested: {(~rows.attacked).sum():,} benign rows that were not trained on "
        f"and {rows.attacked.sum():,} rows under attack.",
        "Owners share sign(x) log(1 + |x|) of every value, a public function: counts and variances of packets "
        f"spread over many powers of ten. This and the {COMPONENTS} components were chosen with the last table in "
        "sight, which shows other choices; a service without examples of attacks may choose worse.",
        "Fits and scores are computed on shares by four local servers, the model is not revealed to anyone. Raw scores "
        "are opened here because a ROC needs them; a receiver of the scores of many rows learns the plane of the "
        "model, so a service should open flags only.",
        "Scores on shares beside scikit-learn's on the pooled rows in the clear: relative difference at most "
        f"{off['scores']:.1e}, AUC different by {off['auc']:.1e}.",
        f"{clipped:,} values that lie further out than models on shares take (2^20 scales of their column) were "
        "clipped to that by their owner; such rows keep scores far above all others. A column that is constant in "
        "an owner's training rows does not count in a model of that owner alone.",
    ]
    tables = [
        pooled_table(rows, joint, alone),
        device_table(rows, joint, alone, others),
        attack_table(rows, joint, alone),
        choice_table(choices),
    ]
    title = "Anomaly detection on shares: attacks on devices, by a joint model of benign traffic"
    return Result(title, conditions, tables, [plot(rows, joint, alone, others)])


def chosen(found: Traffic, attacked: int, benign: int) -> Rows:
    """At most a given number of rows of every device and attack, and benign ones of every device, to train on and to
    test with."""
    random = np.random.default_rng(0)
    training, test = np.zeros(len(found.X), bool), np.zeros(len(found.X), bool)
    for device in range(len(found.devices)):
        own = random.permutation(np.flatnonzero((found.device == device) & (found.label == 0)))
        held = max(2, round(0.3 * len(own)))
        training[own[held : held + benign]] = True
        test[own[: min(held, benign // 2)]] = True
        for attack in np.unique(found.attack[(found.device == device) & (found.label > 0)]):
            test[random.permutation(np.flatnonzero((found.device == device) & (found.attack == attack)))[:attacked]] = (
                True
            )
    return Rows(found, np.sign(found.X) * np.log1p(np.abs(found.X)), training, test)


def scored(servers: LocalServers, rows: Rows, owners: list[int], count: int, of: int | None = None) -> Scored:
    """Scores of all tested rows, or those of one device, under the joint model of these owners' benign rows."""
    pca = PCA(count, standardize=True, servers=servers, keep="benign", reveal=False, allow=("scores",))
    pca.fit([rows.X[rows.training & (rows.of.device == one)] for one in owners])
    asked = np.ones(int(rows.test.sum()), bool) if of is None else rows.of.device[rows.test] == of
    new = rows.X[rows.test][asked]
    limits = np.nextafter(np.ldexp(1.0, pca.scale_exponents_ + row_type(True).span), 0)
    fit = np.clip(new, -limits, limits)
    used = limits > np.finfo(float).tiny  # columns that were constant count for nothing, whatever they hold
    scores = np.full(len(asked), np.nan)
    scores[asked] = pca.shared_model().score_samples(fit)
    return Scored(scores, int((fit != new)[:, used].sum()))


def accuracy(rows: Rows, owners: list[int], joint: Scored) -> dict[str, float]:
    """The same in the clear, by scikit-learn."""
    from sklearn import decomposition
    from sklearn.preprocessing import StandardScaler

    own = rows.X[rows.training & rows.of.of(owners)]
    scaler = StandardScaler().fit(own)
    plain = decomposition.PCA(COMPONENTS, svd_solver="full").fit(scaler.transform(own))
    new = scaler.transform(rows.X[rows.test])
    scores = np.sum((new - plain.inverse_transform(plain.transform(new))) ** 2, axis=1)
    difference = np.abs(joint.scores - scores) / np.maximum(scores, np.median(scores))
    auc = abs(judged(joint.scores, rows.attacked)["auc"] - judged(scores, rows.attacked)["auc"])
    return {"scores": float(difference.max()), "auc": float(auc)}


def judged(scores: Floats, attacked: Bits) -> dict[str, float]:
    """AUC, and the part of attacks found at the rates of false alarms; below the first step of the ROC nothing is
    found."""
    from sklearn.metrics import roc_auc_score, roc_curve

    false, true, _ = roc_curve(attacked, scores)
    found = {key: float(true[false <= rate].max()) for key, rate in FALSE_ALARMS.items()}
    return {"auc": float(roc_auc_score(attacked, scores)), **found}


# -- how it is shown
# -------------------------------------------------------------------------------------------------------

FOUND = {f"found at {rate:.1%} false alarms": cell(key, "{:.1%}") for key, rate in FALSE_ALARMS.items()}
"""The columns that say what part of the attacks is found."""


def pooled_table(rows: Rows, joint: Scored, alone: dict[int, Scored]) -> Table:
    records = [{"model": "all devices, joint", **judged(joint.scores, rows.attacked)}]
    records += [
        {"model": f"{rows.of.devices[one]} alone", **judged(each.scores, rows.attacked)} for one, each in alone.items()
    ]
    return Table.of(
        "One model for the traffic of all devices",
        records,
        {
            "model of benign traffic of": cell("model"),
            "AUC": lambda r: f"{r['auc']:.4f}" + (" (above the joint model)" if r["auc"] > records[0]["auc"] else ""),
            **FOUND,
        },
        "All tested rows of all devices, with one threshold. A model of one device may take the normal traffic of "
        "others for an attack.",
    )


def device_table(rows: Rows, joint: Scored, alone: dict[int, Scored], others: dict[int, Scored]) -> Table:
    records: list[dict[str, Any]] = []
    for one, name in enumerate(rows.of.devices):
        own = rows.of.device[rows.test] == one

        def auc(each: Scored | None, own: Bits = own) -> float | None:
            return None if each is None else judged(each.scores[own], rows.attacked[own])["auc"]

        strangers = [
            judged(each.scores[own], rows.attacked[own])["auc"] for number, each in alone.items() if number != one
        ]
        records.append(
            {
                "device": name,
                "rows": int((rows.training & (rows.of.device == one)).sum()),
                "alone": auc(alone.get(one)),
                "joint": auc(joint),
                "others": auc(others.get(one)),
                "stranger": float(np.mean(strangers)) if strangers else None,
                "worst": min(strangers) if strangers else None,
            }
        )
    meanings = {"alone": "its own model", "joint": "joint model", "others": "joint model of the others"}
    meanings["stranger"] = "one other device's model"
    means = []
    for key, meaning in meanings.items():
        values = [record[key] for record in records if record[key] is not None]
        means += [f"{meaning} {np.mean(values):.4f}"] if values else []
    return Table.of(
        "Each device's own traffic: AUC",
        records,
        {
            "device": cell("device"),
            "benign rows trained on": cell("rows", "{:,}"),
            "its own model": cell("alone", "{:.4f}"),
            "joint model": lambda r: _beside(r, "joint"),
            "joint model of the others": cell("others", "{:.4f}"),
            "one other device's model, mean": cell("stranger", "{:.4f}"),
            "worst": cell("worst", "{:.4f}"),
        },
        f"Means: {', '.join(means)}. The joint model of the others is for a device without benign traffic "
        "yet, beside the model of any single other device.",
    )


def _beside(record: dict[str, Any], key: str) -> str:
    short = record["alone"] is not None and record[key] < record["alone"] - 5e-4
    return f"{record[key]:.4f}" + (" (below its own)" if short else "")


def attack_table(rows: Rows, joint: Scored, alone: dict[int, Scored]) -> Table:
    attack = rows.of.attack[rows.test]
    records: list[dict[str, Any]] = []
    for name in np.unique(attack[rows.attacked]):
        seen = (attack == name) | ~rows.attacked
        single = [judged(each.scores[seen], rows.attacked[seen])["auc"] for each in alone.values()]
        records.append(
            {
                "attack": str(name),
                "rows": int((attack == name).sum()),
                **judged(joint.scores[seen], rows.attacked[seen]),
            }
            | {"alone": float(np.mean(single)), "worst": min(single)}
        )
    return Table.of(
        "By attack, all devices: AUC",
        records,
        {
            "attack": cell("attack"),
            "rows": cell("rows", "{:,}"),
            "joint model": cell("auc", "{:.4f}"),
            **FOUND,
            "one device's model, mean": cell("alone", "{:.4f}"),
            "worst": cell("worst", "{:.4f}"),
        },
    )


def choice_table(records: list[dict[str, Any]]) -> Table:
    return Table.of(
        "What was chosen, and what else could have been: the joint model, all devices",
        records,
        {
            "values": cell("values"),
            "components": cell("components"),
            "AUC": cell("auc", "{:.4f}"),
            **FOUND,
        },
    )


def plot(rows: Rows, joint: Scored, alone: dict[int, Scored], others: dict[int, Scored]) -> Plot:
    from sklearn.metrics import roc_curve

    drawn, (curve, devices) = figure("ROC, traffic of all devices", "AUC on a device's own traffic", height=3.9)
    least = 1 / max(2, int((~rows.attacked).sum()))
    for number, (one, each) in enumerate(alone.items()):
        false, true, _ = roc_curve(rows.attacked, each.scores)
        colour = CYCLE[1 + number % (len(CYCLE) - 1)]
        curve.plot(np.maximum(false, least), true, color=colour, linewidth=0.9, label=rows.of.devices[one])
    false, true, _ = roc_curve(rows.attacked, joint.scores)
    curve.plot(np.maximum(false, least), true, color=OURS, linewidth=2.6, label="joint")
    curve.set_xscale("log")
    curve.set_xlabel("benign rows that give an alarm")
    curve.set_ylabel("attacks found")
    drawn.legend(*curve.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=8)

    def own(each: Scored, one: int) -> float:
        seen = rows.of.device[rows.test] == one
        return judged(each.scores[seen], rows.attacked[seen])["auc"]

    shown = list(alone)
    for name, colour, marker, values in (
        ("its own model", TRUTH, "s", {one: own(alone[one], one) for one in shown}),
        ("joint model", OURS, "o", {one: own(joint, one) for one in shown}),
        ("joint model of the others", CYCLE[1], "D", {one: own(each, one) for one, each in others.items()}),
    ):
        at = [shown.index(one) for one in values]
        devices.plot(at, list(values.values()), color=colour, marker=marker, linestyle="none", label=name)
    devices.set_xticks(range(len(shown)), [rows.of.devices[one] for one in shown])
    devices.tick_params(axis="x", labelrotation=60, labelsize=7.5)
    legend(devices, loc="lower left", fontsize=8)
    caption = (
        "Attacks told from benign traffic by reconstruction error on shares. Left: all devices with one threshold, "
        "by models of one device and the joint one. Right: area under such a curve for each device's own traffic."
    )
    return Plot("roc", caption, drawn)
