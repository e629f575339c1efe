"""What jobs open: the names of docs/reference/openings.md and no others, and what several jobs tell together."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from benchmarks.jobs import fit_job, use_job
from harness.federation import COLUMNS, MEMBERSHIP, OWNERS, RECEIVER, job
from ppca.federation.approval_text import (
    in_words,
    nature_in_words,
    scope,
    terms,
    to_receiver,
    to_servers,
)
from ppca.federation.earlier_jobs import together
from ppca.federation.proposal import ProposedJob, propose
from ppca.jobs.build import regression_job
from ppca.jobs.openings import MEANING, SERVERS
from ppca.jobs.parts import PARTS, own_columns
from ppca.jobs.pca import OPENED
from ppca.jobs.registry import openings
from ppca.jobs.regression import OPENED as REGRESSION_OPENED
from ppca.jobs.regression import JointRegression

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "openings.md").read_text()


def listed(heading: str) -> set[str]:
    """The first column of the tables of a section."""
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    (text,) = [part for part in section if part.startswith(heading)]
    rows = re.findall(r"^\| ([^|]+) \|", text, flags=re.MULTILINE)
    return {row.strip() for row in rows} - {"what", "---"}


LOADINGS = {what for line in listed("Loadings") for what in line.split(", ")}


def infer(*parts: str, **limits: Any) -> ProposedJob:
    return use_job(MEMBERSHIP, "i", ["north"], COLUMNS, {RECEIVER: parts}, (1, 2, 3), **limits)


def columns(receivers: Any = None, **more: Any) -> ProposedJob:
    whom = receivers or {RECEIVER: ["model"]}
    return fit_job(MEMBERSHIP, "v", OWNERS, {o: [f"{o}0", f"{o}1"] for o in OWNERS}, whom, **more)


def loadings(*parts: str, **fit: Any) -> ProposedJob:
    """A job that gives every owner its loadings, and the receiver the variances."""
    return columns({RECEIVER: ["variances"], **{owner: ["loadings", *parts] for owner in OWNERS}}, **fit)


def regression(receivers: Any = None, owners: Any = None, **parameters: Any) -> ProposedJob:
    whose = {o: [f"{o}0", f"{o}1"] for o in OWNERS} if owners else COLUMNS
    analysis = JointRegression(target="south1" if owners else "b", **parameters)
    whom = receivers or {RECEIVER: [*REGRESSION_OPENED]}
    made = regression_job(OWNERS, whose, whom, analysis, federated=True)
    return propose(MEMBERSHIP.digest, "regression", made)


EVERY = {
    "regression": regression(),
    "regression, all but correlations": regression({RECEIVER: ["result"], "north": ["coefficients"]}),
    "regression of columns": regression(owners=True),
    "ridge": regression({RECEIVER: ["result"]}, method="ridge", alpha=2.0),
    "rows": job(),
    "rows until converged": job(until_converged=True),
    "rows standardised": job(standardize=True),
    "few components of many columns": job(columns=tuple(f"c{i}" for i in range(300)), components=5),
    "the same, fixed": job(columns=tuple(f"c{i}" for i in range(300)), components=5, fixed_iterations=40),
    "rows, part of the variance": job(components=0.9),
    "rows, enough of them": job(rows_at_least=100),
    "one column": job(columns=("a",)),
    "components only": job(receivers={RECEIVER: ["components"]}),
    "columns": columns(),
    "columns aligned": columns(align={"alignment": "aligned"}),
    "columns, namespace": columns(align={"alignment": "namespace", "namespace": 10}),
    "wide rows": job(wide=True),
    "wide rows, few components": job(columns=tuple(f"c{i}" for i in range(300)), components=5, wide=True),
    "wide rows, about to be topk": job(
        columns=tuple(f"c{i}" for i in range(198)), components=5, until_converged=True, wide=True
    ),
    "wide columns": columns(wide=True),
    "wide columns aligned": columns(wide=True, align={"alignment": "aligned"}),
    "loadings": loadings(),
    "loadings, raw": loadings("variances", "means"),
    "loadings, standardised": loadings("variances", "means", "deviations", standardize=True),
    "transform": infer("transform"),
    "flags": infer("flags", threshold=1.0),
    "contamination": infer("flags", contamination=0.1),
    "scores": infer("scores"),
    "both": infer("scores", "flags", threshold=1.0),
}


@pytest.mark.parametrize("name", EVERY)
def test_every_job_opens_what_the_page_lists(name: str) -> None:
    made = EVERY[name]
    servers = listed("To the servers") | listed("Column owners") | listed("More columns than rows")
    if isinstance(made.spec.analysis, JointRegression):
        shared = {"inputs in range", "match pattern of pseudonyms", "shares of single rows"}
        assert {line.what for line in openings(made.spec)} <= listed("Regression") | shared
        return
    assert {line.what for line in to_servers(made.spec)} <= servers
    for receiver in made.spec.receivers:
        page = LOADINGS if own_columns(made.spec, receiver) is not None else listed("To the receiver")
        assert {line.what for line in to_receiver(made.spec, receiver)} <= page


def test_every_line_of_the_page_is_opened_by_some_job() -> None:
    found = {line.what for made in EVERY.values() for line in openings(made.spec)}
    page = listed("To the servers") | listed("Column owners") | listed("To the receiver") | LOADINGS
    page |= listed("More columns than rows") | listed("Regression")
    assert page - found == {"rebuilt rows"}, "no job of a federation rebuilds rows"


@pytest.mark.parametrize("name", EVERY)
def test_every_opening_has_a_reader_a_bound_and_a_meaning(name: str) -> None:
    for line in openings(EVERY[name].spec):
        assert line.to in (SERVERS, *EVERY[name].spec.receivers)
        assert 1 <= line.most <= 1000
        assert line.meaning == MEANING[line.what]
        assert line.rule() == {"what": line.what, "to": line.to, "most": line.most}


def whats(made: ProposedJob, to: str) -> list[str]:
    return [line.what for line in openings(made.spec) if line.to == to]


def test_what_parameters_change() -> None:
    assert "convergence bit" not in whats(EVERY["rows"], SERVERS), "federations iterate a fixed number of times"
    assert "convergence bit" in whats(EVERY["rows until converged"], SERVERS)
    assert "convergence level" in whats(EVERY["few components of many columns"], SERVERS), (
        "topk goes until it has converged"
    )
    assert not {"convergence level", "convergence bit"} & set(whats(EVERY["the same, fixed"], SERVERS))
    assert "number of components" in whats(EVERY["rows, part of the variance"], SERVERS)
    assert "enough rows" in whats(EVERY["rows, enough of them"], SERVERS)
    assert "enough rows" not in whats(columns(rows_at_least=100), SERVERS), (
        "servers see how many rows column owners have"
    )
    assert "shuffled ranks" not in whats(EVERY["one column"], SERVERS)
    assert "match pattern of pseudonyms" in whats(EVERY["columns"], SERVERS)
    assert "any group of owners" in MEANING["match pattern of pseudonyms"], (
        "tags of two of three owners can be compared"
    )
    assert "match pattern of pseudonyms" not in whats(EVERY["columns aligned"], SERVERS)
    assert "deviations" in whats(EVERY["rows standardised"], RECEIVER)
    assert "deviations" not in whats(EVERY["rows"], RECEIVER)
    assert not {"means", "explained variance"} & set(whats(EVERY["components only"], RECEIVER))
    assert whats(EVERY["scores"], RECEIVER) == ["anomaly scores"]
    assert whats(EVERY["flags"], RECEIVER) == whats(EVERY["contamination"], RECEIVER) == ["anomaly flags"]
    assert whats(EVERY["transform"], RECEIVER) == ["coordinates"]


def test_more_columns_than_rows() -> None:
    for name in ("wide rows", "wide rows, few components", "wide columns", "wide columns aligned"):
        assert {"verification of components", "shuffled ranks"} <= set(whats(EVERY[name], SERVERS))
        assert ("rounded numbers of rows" in whats(EVERY[name], SERVERS)) == ("rows" in name)
    assert "verification of components" not in whats(EVERY["rows"], SERVERS)
    assert "convergence level" in whats(EVERY["wide rows, about to be topk"], SERVERS), "201 rows may be of 198 columns"
    (line,) = [line for line in in_words(EVERY["wide rows"].spec) if "rounded numbers of rows" in line]
    assert line == (
        "to the four servers: rounded numbers of rows (the number of rows of every owner, rounded up to a multiple of 32; all "
        "members of the job also see it from the sizes of uploads)"
    )


def test_owners_of_loadings_get_nothing_of_others_columns() -> None:
    every_column = {"components", "means", "scale of the means", "deviations", "scale of the deviations"}
    for name in ("loadings", "loadings, raw", "loadings, standardised"):
        for owner in OWNERS:
            assert not every_column & set(whats(EVERY[name], owner))
    variances = ["explained variance", "total variance", "scale of the variance"]
    means = ["own means", "own scale of the means"]
    deviations = ["own deviations", "own scale of the deviations"]
    assert whats(EVERY["loadings"], "north") == ["loadings"]
    assert whats(EVERY["loadings, raw"], "south") == ["scale exponents", "loadings", *variances, *means]
    assert whats(EVERY["loadings, standardised"], "west") == [
        *("own scale exponents", "loadings", *variances, *means, *deviations)
    ]
    assert whats(EVERY["loadings"], RECEIVER) == ["scale exponents", *variances]
    (line,) = [line for line in in_words(EVERY["loadings"].spec) if line.startswith("to north")]
    assert line.startswith("to north: loadings (the loadings of its own columns; with its own rows it can")


def test_parts_are_the_same_everywhere() -> None:
    assert set(OPENED) == set(PARTS)


def test_words_for_who_must_approve() -> None:
    until = datetime.now(UTC) + timedelta(days=9)
    kept = job(keep={"until": until, "allow": {"flags": ("north",), "scores": ()}})
    text = in_words(kept.spec)
    assert len(text) == len(openings(kept.spec)) + 2
    assert any(line.startswith("to the four servers: verification bit") for line in text)
    assert any(line.startswith(f"to {RECEIVER}: means") for line in text)
    assert text[-2].endswith("flags of new rows for north, if you agree again")
    assert text[-1].endswith("scores of new rows for no receiver, if you agree again")


ABC, AB = job(), job(owners=("north", "south"), name="less")


def test_a_difference_of_two_jobs_shows_one_owner() -> None:
    (line,) = together(AB.spec, [("first", ABC.spec)], "north")
    assert line == (
        "you approved 'first' of north + south + west; this is north + south: analyst can compute from the difference what "
        "west alone contributed"
    )
    (line,) = together(ABC.spec, [("less", AB.spec)], "west")
    assert "this is north + south + west: analyst can compute from the difference what you alone contributed" in line


def test_different_receivers_must_meet() -> None:
    other = job(owners=("north", "south"), receivers={"spare": ["model"]})
    (line,) = together(other.spec, [("first", ABC.spec)], "north")
    assert "anyone with both results can compute" in line


def test_the_same_owners_again() -> None:
    (line,) = together(job(name="second").spec, [("first", ABC.spec)], "north")
    assert "the rows that changed" in line


def test_uses_of_one_model_together() -> None:
    """Repeated jobs with other thresholds bisect scores; approvers were not told."""
    first, second = (infer("flags", threshold=threshold).spec for threshold in (1.0, 2.0))
    (line,) = together(second, [("first", first)], "north")
    assert line.startswith("you approved 'first', which uses the same model: if rows are the same, flags with several")
    (line,) = together(infer("transform").spec, [("first", infer("scores").spec)], "north")
    assert "what neither tells alone" in line
    other = use_job(MEMBERSHIP, "j", ["north"], COLUMNS, {RECEIVER: ["scores"]}, (1, 2, 3), model="f" * 64).spec
    assert together(other, [("first", first)], "north") == []


def test_what_tells_nothing_together() -> None:
    elsewhere = job(columns=("x", "y"))
    assert together(elsewhere.spec, [("first", ABC.spec)], "north") == []
    assert together(ABC.spec, [], "north") == []
    assert together(EVERY["transform"].spec, [("first", ABC.spec)], "north") == []


def test_approvers_of_columns_read_what_a_result_tells_by_its_nature() -> None:
    found = nature_in_words(columns().spec)
    assert "marks one person" in found[0]
    assert "75% of their sum of squares in one row are refused" in found[0]
    assert "number of common rows" in found[1]
    off = nature_in_words(columns(align={"row_share_at_most": 1}).spec)[0]
    assert "refused" not in off
    assert "the servers do not check whether such columns are there" in off
    assert "by servers if it is clearly more than 81%" in found[0]


def test_approvers_of_columns_read_what_few_common_rows_tell() -> None:
    """An owner with 23 columns read all values of 24 common rows, with the default minimum of 10 and unmodified clients."""
    (found,) = (line for line in nature_in_words(columns().spec) if "common rows are enough" in line)
    assert found.startswith("10 common rows are enough, and one owner has")
    assert "Ask for a minimum of 200 or more" in found
    many = {owner: [f"{owner}{number}" for number in range(150)] for owner in OWNERS}
    assert any("a minimum of 300 or more" in line for line in nature_in_words(job(columns=many, align={}).spec))
    enough = nature_in_words(columns(align={"minimum": 200}).spec)
    assert not any("enough" in line for line in enough)
    wide = nature_in_words(job(columns=many, wide=True, align={}).spec)
    assert any("fewer rows than columns" in line and "Ask for few components" in line for line in wide)


def test_approvers_of_rows_read_what_a_result_tells_by_its_nature() -> None:
    (rare,) = nature_in_words(job().spec)
    assert "one row of all owners differs from all others" in rare
    assert nature_in_words(job(owners=("north",)).spec) == []
    found = nature_in_words(job(missing="mean").spec)
    assert "miss that column, and the sum of these rows" in found[1]


def test_approvers_of_two_owners_read_what_these_learn_of_each_other() -> None:
    two = fit_job(MEMBERSHIP, "two", OWNERS[:2], COLUMNS, {RECEIVER: ["model"]}).spec
    three = fit_job(MEMBERSHIP, "three", OWNERS[:3], COLUMNS, {RECEIVER: ["model"]}).spec
    said = "with two owners, anyone with the result and one owner's rows can subtract that owner's part"
    assert any(said in line for line in nature_in_words(two))
    assert not any(said in line for line in nature_in_words(three))


# -- what approvers read ---------------------------------------------------------------------------------------------------


def approval(of: ProposedJob, me: str) -> list[str]:
    """Everything that `ppca approve` and the page show of a job."""
    return [scope(of.proposal), *terms(of.spec, me), *in_words(of.spec), *nature_in_words(of.spec)]


def study(south: str = "b", align: dict[str, Any] | None = None, **fit: Any) -> ProposedJob:
    owners = ("north", "south", "west")
    names = {"north": ["a"], "south": [south], "west": [f"w{i}" for i in range(12)]}
    return fit_job(MEMBERSHIP, "study", owners, names, {RECEIVER: ["model"]}, align=align, **fit)


OTHER_COLUMNS = {
    "another column": study(south="hiv"),
    "one component": study(components=1),
    "two components": study(components=2),
    "standardized": study(standardize=True),
    "fewer common rows": study(align={"minimum": 1}),
    "another alignment": study(align={"alignment": "aligned"}),
    "case of ids": study(align={"fold_case": True}),
    "part of a row": study(align={"row_share_at_most": 0.9}),
}
OTHER_ROWS = {
    "another column": job(columns=("a", "b", "hiv"), rows_at_least=1000),
    "fewer rows": job(rows_at_least=1),
    "no minimum": job(),
    "missing values": job(missing="mean", rows_at_least=1000),
    "missing rows": job(missing="drop", rows_at_least=1000),
    "components": job(components=1, rows_at_least=1000),
    "part of the variance": job(components=0.9, rows_at_least=1000),
}


@pytest.mark.parametrize("me", ["north", "south", "west"])
def test_jobs_that_differ_in_what_they_compute_read_differently(me: str) -> None:
    """Other columns, a minimum of one row or another number of components had the same text as a harmless job."""
    for reference, others in ((study(), OTHER_COLUMNS), (job(rows_at_least=1000), OTHER_ROWS)):
        texts = [approval(each, me) for each in (reference, *others.values())]
        assert all(text not in texts[:number] for number, text in enumerate(texts))


def test_an_approver_reads_all_of_its_own_columns_and_some_of_others() -> None:
    lines = terms(study().spec, "west")
    own = ", ".join(f'"w{i}"' for i in range(12))
    assert lines[0] == f"columns that you contribute: {own}"
    assert terms(study().spec, "north")[2].endswith('"w9" and 2 more')
    assert "minimum number of common rows: 10" in lines
    zeros = terms(study(align={"alignment": "namespace", "namespace": 50}).spec, "north")
    assert "minimum number of common rows, with rows of zeros: 10" in zeros
    assert any("an owner sends a row of zeros for each id that it does not have" in line for line in zeros)
    assert "no minimum number of rows" in terms(job().spec, "north")
    assert any(
        line.startswith("results of only 1 common rows") for line in nature_in_words(study(align={"minimum": 1}).spec)
    )


def test_a_column_name_with_quotes_reads_as_one_name() -> None:
    lines = terms(study(south='b", "c').spec, "north")
    assert lines[1] == 'columns of south: "b\\", \\"c"'


def test_overlapping_owners_of_several_jobs_are_a_warning() -> None:
    """Four jobs of three of four owners each, and no approver was told, although sums of single owners follow from them."""
    jobs = [job(name="-".join(some), owners=some) for some in combinations(("north", "south", "west", "visitor"), 3)]
    warnings = 0
    for number, this in enumerate(jobs):
        for me in this.proposal.owners:
            earlier = [(old.name, old.spec) for old in jobs[:number] if me in old.proposal.owners]
            found = together(this.spec, earlier, me)
            assert len(found) == len(earlier)
            warnings += len(found)
    assert warnings == 12
    two_more = job(name="b", owners=("north", "south", "west", "visitor", "spare"))
    (line,) = together(two_more.spec, [("a", job().spec)], "north")
    assert "what single owners contributed" in line
    two_less = job(owners=("north",), receivers={"spare": ["model"]})
    (line,) = together(two_less.spec, [("first", ABC.spec)], "north")
    assert "several such jobs together" in line
    apart = job(name="c", owners=("visitor", "spare"))
    assert together(apart.spec, [("a", job().spec)], "visitor") == []


def test_a_regression_is_not_described_as_a_decomposition() -> None:
    """Its terms and warnings spoke of components, and said that the result is of standardized columns."""
    for made in (
        regression(),
        regression(owners=True),
        regression(method="ridge", alpha=1.0, receivers={RECEIVER: ["result"]}),
    ):
        text = " ".join([*terms(made.spec, "north"), *nature_in_words(made.spec)])
        assert "component" not in text
        assert "each column is divided" not in text
        assert "the result is in the units of the data" in text
        assert "the coefficients, the intercept and their errors" in text
    rows = " ".join(nature_in_words(regression().spec))
    assert "fit that row exactly: anyone with them and its other values can compute its target" in rows
