"""job.toml: every field is checked before anybody is asked; the lists of openings are those of the job, and no others."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.jobs import use_job
from harness.federation import COLUMNS, MEMBERSHIP, OWNERS, RECEIVER, job
from ppca.federation.errors import FederationError, FileRefused
from ppca.federation.objects import sha256
from ppca.federation.proposal import ProposedJob, parse, propose, render
from ppca.federation.times import after, moment, seconds
from ppca.jobs.build import infer_job, pca_job
from ppca.jobs.checks import SpecError
from ppca.jobs.infer import UseModel
from ppca.jobs.parts import columns_for
from ppca.jobs.pca import JointPCA
from ppca.jobs.spec import ALIGNMENTS, MAX_NAMESPACE, MISSING, NAMESPACE, Align, JobSpec, Keep
from ppca.jobs.text import is_plain

FEDERATION = "0" * 64
JOB = job()
TEXT = JOB.data.decode()
BY_OWNER = {owner: [f"{owner}{number}" for number in range(2)] for owner in OWNERS}
VERTICAL = job(name="v", columns=BY_OWNER, align={"alignment": "psi"})
USE = use_job(MEMBERSHIP, "i", ["north"], COLUMNS, {RECEIVER: ["transform"]}, (1, 2, 3))
KEPT_UNTIL = datetime(2031, 1, 1, tzinfo=UTC)
TIMES = st.datetimes(datetime(2030, 1, 1), datetime(2200, 1, 1)).map(lambda time: time.replace(tzinfo=UTC))
TEXTS = st.text(min_size=1, max_size=12).filter(is_plain)
NAMES = st.lists(TEXTS, min_size=1, max_size=5, unique_by=lambda name: name.strip())


def maybe(values: Any) -> Any:
    return st.none() | values


def refused(data: str | bytes, words: str = "") -> None:
    with pytest.raises(FileRefused, match=words):
        ProposedJob(data.encode() if isinstance(data, str) else data)


ALIGNED = st.builds(
    lambda way, ids, **more: Align(alignment=way, namespace=ids if way == NAMESPACE else None, **more),
    st.sampled_from(ALIGNMENTS),
    st.integers(2, MAX_NAMESPACE),
    minimum=st.integers(1, 1000),
    fold_case=st.booleans(),
    row_share_at_most=maybe(st.floats(1 / 64, 1)),
)
PCA = st.builds(
    JointPCA,
    components=maybe(st.just(1) | st.floats(0, 1, exclude_min=True, exclude_max=True)),
    solver=st.sampled_from(["auto", "allpairs", "jacobi", "qr"]),
    tol=st.floats(1e-9, 1e-2),
    fixed_iterations=maybe(st.integers(1, 1000)),
    max_iterations=maybe(st.integers(1, 1000)),
)
KEPT = st.builds(
    lambda until, uses: Keep(until=until, allow=uses),
    TIMES,
    st.dictionaries(st.sampled_from(["transform", "flags", "scores"]), st.just(()) | st.just(("north", "analyst"))),
)


@st.composite
def fits(draw: Any) -> JobSpec:
    owners, wide = OWNERS[: draw(st.integers(1, 3))], draw(st.booleans())
    by_columns = draw(st.booleans())
    columns: Any = {owner: [f"{owner}: {number}"] for number, owner in enumerate(owners)} if by_columns else draw(NAMES)
    receivers: dict[str, list[str]] = {"analyst": draw(st.sampled_from([["model"], [], ["components", "variances"]]))}
    if by_columns:
        receivers["north"] = ["loadings", "means"]
    missing = st.sampled_from(MISSING[:2] if wide and not by_columns else MISSING)
    return pca_job(
        *(owners, columns, receivers, draw(PCA)),
        wide=wide,
        federated=True,
        fixed=draw(st.booleans()),
        align=draw(ALIGNED) if by_columns else None,
        keep=draw(maybe(KEPT)),
        standardize=draw(st.booleans()),
        missing=draw(missing),
        rows_at_least=draw(maybe(st.integers(1, 1 << 40))),
        chunks=draw(maybe(st.integers(1, 9))) if by_columns and not wide else None,
    )


@st.composite
def uses(draw: Any) -> JobSpec:
    columns = draw(NAMES)
    limit = draw(st.sampled_from([{"threshold": 2.5}, {"contamination": 0.25}, {}]))
    parts = draw(st.sampled_from([["flags"], ["flags", "scores"]])) if limit else ["transform"]
    use = UseModel(model="1" * 64, model_owners=OWNERS, **limit)
    scales = draw(st.lists(st.integers(-500, 500), min_size=len(columns), max_size=len(columns)))
    return infer_job(["south"], columns, {"analyst": parts}, use, scales, federated=True)


@given(job=fits() | uses(), name=TEXTS, expires=TIMES, days=st.integers(1, 999))
def test_a_proposal_is_read_as_it_was_written(job: JobSpec, name: str, expires: datetime, days: int) -> None:
    made = propose(FEDERATION, name, job, expires=expires, erase_after=f"{days}d")
    again = parse(made.data)
    assert render(again) == made.data
    assert again == made.proposal
    assert again.job == made.spec
    assert ProposedJob(made.data).id == sha256(made.data) == made.id


def test_a_time_or_a_span_until_a_job_expires() -> None:
    job = pca_job(OWNERS, ["a"], {"analyst": ["model"]}, federated=True)
    fixed = propose(FEDERATION, "n", job, expires="2031-05-06T10:00:00+02:00")
    assert fixed.proposal.expires == datetime(2031, 5, 6, 8, tzinfo=UTC)
    now = datetime.now(UTC)
    assert timedelta(days=3) - timedelta(seconds=2) < propose(FEDERATION, "n", job, expires="3d").proposal.expires - now


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (r'name = "first"', 'name = ""', "name"),
        (r'name = "first"', f'name = "{"x" * 81}"', "name"),
        (r'name = "first"', r'name = "a\\u001b[2J"', "control"),
        (r'name = "first"', r'name = "a\\u202eb"', "control"),
        (r'federation = "\w+"', 'federation = "x"', "digest"),
        (r'federation = "(\w+)"', lambda m: f'federation = "{m[1].upper()}"', "digest"),
        (r"owners = .*", "owners = []", "at least one"),
        (r"owners = .*", 'owners = ["north", "north"]', "each owner once"),
        (r"owners = .*", 'owners = ["North"]', "must consist of a-z"),
        (r"owners = .*", 'owners = "north"', "owners"),
        (r"columns = .*", "columns = []", "columns"),
        (r"columns = .*", 'columns = ["a", "a", "b"]', "look the same"),
        (r"columns = .*", 'columns = ["a", ""]', "columns"),
        (r"columns = .*", r'columns = ["a", "b\\n"]', "columns"),
        (r"columns = .*", 'columns = { north = ["a"] }', "columns"),
        (r"columns = .*", f'columns = ["{"x" * 1001}"]', "columns"),
        (r'name = "pca/1"', 'name = "pca/2"', "analysis.name = 'pca/2': is unknown"),
        (r'name = "pca/1"', 'name = ["pca/1"]', "analysis.name"),
        (r'name = "pca/1"', 'name = "infer/1"', "analysis"),
        (r'form = "rows"', 'form = "columns"', "data.columns"),
        (r'form = "rows"', 'form = "cells"', "data.form"),
        (r'form = "rows"', 'form = "new-rows"', "data.scales"),
        (r'form = "rows"', 'form = "rows"\nadd_to = "m"', "data.add_to"),
        (r'form = "rows"', 'form = "rows"\ntables = [3]', "data.tables"),
        (r"check_inputs = true", "check_inputs = false", "must be true if there are several owners"),
        (r'build = ".*"', r'build = "\\u200b"', "hidden"),
        (r"expires = .*", "expires = 2030-01-01T00:00:00", "zone"),
        (r"expires = .*", "expires = 2030-01-01", "expires"),
        (r"expires = .*", "expires = 0001-01-01T00:00:00+12:00", "no such time"),
        (r"expires = .*", "expires = 9999-12-31T23:59:59-12:00", "no such time"),
        (r"expires = (.*)", "expires = 2030-01-01T00:00:00Z\nnot_before = 2030-01-01T00:00:00Z", "not_before"),
        (r"erase_after = .*", 'erase_after = "7"', "erase_after"),
        (r"erase_after = .*", 'erase_after = "9999999d"', "erase_after"),
        (r"erase_after = .*", 'erase_after = "-1d"', "erase_after"),
        (r"erase_after = .*", 'erase_after = "٣d"', "erase_after"),
        (r"erase_after", "erase_afterwards", "erase_afterwards"),
        (r"fixed_iterations = .*", "fixed_iterations = 0", "fixed_iterations"),
        (r"fixed_iterations = .*", "fixed_iterations = 1000000", "fixed_iterations"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\ncomponents = 0", "components"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\ncomponents = -1", "components"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\ncomponents = 4", "components"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\ncomponents = true", "components"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\ncomponents = 1.0", "components"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\ncomponents = nan", "components"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\ncomponents = inf", "components"),
        (r'solver = ".*"', 'solver = "magic"', "solver"),
        (r"tol = .*", "tol = nan", "tol"),
        (r"tol = .*", "tol = 1.0", "tol"),
        (r'missing = ".*"', 'missing = "zero"', "missing"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\nseed = 1", "seed"),
        (r"\[receivers\]\n.*", "[receivers]", "must name a receiver"),
        (r'analyst = \["model"\]', 'analyst = ["rows"]', "is not a part of the result"),
        (r'analyst = \["model"\]', 'Analyst = ["model"]', "must consist of a-z"),
    ],
)
def test_every_field_is_checked(old: str, new: Any, words: str) -> None:
    text, count = re.subn(old, new, TEXT, count=1)
    assert count == 1
    refused(text, words)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('alignment = "psi"', 'alignment = "magic"', "alignment"),
        ('alignment = "psi"', 'alignment = "namespace"', "number of ids"),
        ('alignment = "psi"', 'alignment = "namespace"\nnamespace = 1', "between 2 and"),
        ('alignment = "psi"', 'alignment = "namespace"\nnamespace = 1000000000', "between 2 and"),
        ('alignment = "psi"', 'alignment = "psi"\nnamespace = 10', "is not used with alignment"),
        ("minimum = 10", "minimum = 0", "minimum"),
        ('north = ["north0", "north1"]', 'north = ["north0", "south0"]', "look the same"),
        ('north = ["north0", "north1"]', "north = []", "at least one"),
        ('north = ["north0", "north1"]', 'east = ["north0", "north1"]', "no other member"),
    ],
)
def test_owners_of_columns(old: str, new: str, words: str) -> None:
    text = VERTICAL.data.decode()
    assert old in text
    refused(text.replace(old, new), words)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('analyst = ["transform"]', 'analyst = ["transform", "scores"]', "submit a separate job"),
        ('analyst = ["transform"]', 'analyst = ["flags"]', "threshold"),
        ('analyst = ["transform"]', 'analyst = ["inverse"]', "analyst"),
        ('analyst = ["transform"]', "analyst = []", "at least one"),
        ('analyst = ["transform"]', 'analyst = ["transform"]\nsouth = ["transform"]', "one receiver"),
        ('analyst = ["transform"]', "", "receiver"),
        ('name = "infer/1"', 'name = "infer/1"\nthreshold = 1.0', "threshold"),
        (f'model = "{"0" * 64}"', 'model = "x"', "id of the job"),
        ('model_owners = ["north"]', "model_owners = []", "owners of the model"),
        ('model_owners = ["north"]', 'model_owners = ["North"]', "must consist of a-z"),
        ("scales = [1, 2, 3]", f"scales = [1, 2, {10**30}]", "data.scales"),
        ("scales = [1, 2, 3]", "scales = []", "data.scales"),
        ("scales = [1, 2, 3]", "scales = [1, 2]", "data.scales"),
        ('missing = "refuse"', 'missing = "mean"', "data.missing"),
        ('form = "new-rows"', 'form = "coordinates"', "form"),
        ("check_inputs = true", "check_inputs = false", "kept model is used"),
    ],
)
def test_uses_of_a_kept_model(old: str, new: str, words: str) -> None:
    text = USE.data.decode()
    assert old in text
    refused(text.replace(old, new), words)


@pytest.mark.parametrize(
    ("parts", "limits", "field"),
    [
        (["flags"], {"threshold": 1.0, "contamination": 0.1}, "analysis.threshold"),
        (["flags"], {"threshold": -1.0}, "analysis.threshold"),
        (["flags"], {"threshold": float("inf")}, "analysis.threshold"),
        (["flags"], {"threshold": float("nan")}, "analysis.threshold"),
        (["flags"], {"contamination": 0.6}, "analysis.contamination"),
        (["flags"], {"contamination": float("nan")}, "analysis.contamination"),
    ],
)
def test_limits_of_scores(parts: list[str], limits: dict[str, float], field: str) -> None:
    with pytest.raises(SpecError) as error:
        use_job(MEMBERSHIP, "i", ["north"], COLUMNS, {RECEIVER: parts}, (1, 2, 3), **limits)
    assert error.value.field == field


KEEP = '\n[keep]\nuntil = 2031-01-01T00:00:00Z\n\n[keep.allow]\nflags = ["north"]\n'


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("flags", "partial_fit", "not a use of a kept model in a federation"),
        ("flags", "inverse", "not a use of a kept model in a federation"),
        ("flags", "print", "not a use of a kept model"),
        ('"north"', '"North"', "must consist of a-z"),
        ("until = 2031-01-01T00:00:00Z", 'name = "m"', "until a date"),
        ("until = 2031-01-01T00:00:00Z", "until = 2031-01-01T00:00:00", "time zone"),
        ("until = 2031-01-01T00:00:00Z", "until = 9999-12-31T23:59:59-12:00", "no such time"),
        ("until = 2031-01-01T00:00:00Z", "until = 2031-01-01", "a time was expected"),
    ],
)
def test_kept_for_what_there_is(old: str, new: str, words: str) -> None:
    assert ProposedJob((TEXT + KEEP).encode()).spec.keep == Keep(until=KEPT_UNTIL, allow={"flags": ("north",)})
    refused(TEXT + KEEP.replace(old, new), words)
    refused(USE.data.decode() + KEEP, "keeps nothing")


@pytest.mark.parametrize("made", [JOB, VERTICAL, USE], ids=["rows", "columns", "infer"])
def test_lists_that_are_not_those_of_the_parameters(made: ProposedJob) -> None:
    text = made.data.decode()
    more = re.sub(r"opens = \[", 'opens = ["means", ', text, count=1)
    refused(more, "opens must be")
    reveals = text[text.index("[reveals]") :]
    first = re.search(r'"[a-z ]+"', reveals)
    assert first is not None
    refused(text.replace(reveals, reveals.replace(first[0], '"everything"')), "reveals must be")
    refused(text.replace(reveals, "[reveals]\n"), "reveals must be")
    refused(text.replace(reveals, reveals + 'north = ["means"]\n'), "reveals must be")
    if made.proposal.opens:
        refused(re.sub(r"opens = \[(?:.|\n)*?\]", "opens = []", text, count=1), "opens must be")


def test_another_byte_is_another_job() -> None:
    assert ProposedJob(JOB.data + b"\n").id != JOB.id


@given(place=st.integers(0, len(JOB.data) - 1), cut=st.integers(0, 30), new=st.binary(max_size=8))
def test_any_damage_is_refused_by_name_or_another_good_job(place: int, cut: int, new: bytes) -> None:
    data = JOB.data[:place] + new + JOB.data[place + cut :]
    with contextlib.suppress(FederationError):
        assert ProposedJob(data).id == sha256(data)


@pytest.mark.parametrize(("text", "found"), [("90s", 90), ("2m", 120), ("3h", 10800), ("7d", 604800)])
def test_spans(text: str, found: float) -> None:
    assert seconds(text) == found
    now = datetime.now(UTC)
    assert after(now, text) == now + timedelta(seconds=found)


@pytest.mark.parametrize("text", ["", "d", "1", "1w", "-1d", "1.5d", "1d1h", "9999999d", " 1d", "1d\n"])
def test_spans_that_are_none(text: str) -> None:
    with pytest.raises(FileRefused, match="is not a time"):
        seconds(text)


def test_a_folder_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_bytes(JOB.data)
    assert ProposedJob.load(tmp_path).id == ProposedJob.load(tmp_path / "job.toml").id == JOB.id


@pytest.mark.parametrize("text", ["", "7", "2031-01-01", "2031-01-01T00:00:00", "9999-12-31T23:59:59-12:00", "1d\n"])
def test_texts_that_are_no_moment(text: str) -> None:
    with pytest.raises(FileRefused, match="is not a time"):
        moment(text)


@pytest.mark.parametrize(
    ("receivers", "words"),
    [
        ({RECEIVER: ["loadings"]}, "are for a column owner"),
        ({"north": ["loadings", "components"]}, "instead of components"),
        ({"north": ["loadings", "model"]}, "instead of components"),
    ],
)
def test_loadings_are_for_owners_of_columns_and_in_place_of_components(receivers: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        job(columns=BY_OWNER, receivers=receivers)
    with pytest.raises(SpecError, match="are for a column owner"):
        job(receivers={"north": ["loadings"]})


def test_the_columns_that_a_result_is_about() -> None:
    columns = {"north": ["a"], "south": ["b", "c"], "west": ["d"]}
    spec = job(columns=columns, receivers={RECEIVER: ["model"], "south": ["loadings"]}).spec
    assert columns_for(spec, RECEIVER) == ["a", "b", "c", "d"]
    assert columns_for(spec, "south") == ["b", "c"]


PARTS = ".".join(["a"] * 2000) + " = 1"
EXPENSIVE = {
    "a key of many parts": PARTS,
    "a table of many parts": f"[{'.'.join(['a'] * 2000)}]",
    "parts with spaces": " . ".join(["a"] * 2000) + " = 1",
    "quoted parts": ".".join(['"a.b"', "'c'"] * 1000) + " = 1",
    "parts in an inline table": f"x = [ 1, {{ {PARTS} }} ]",
    "parts behind a text that ends with five quotes": f'x = [ """t""""", {{ {PARTS} }} ]',
    "parts behind a text of apostrophes": f"x = [ '''t''''', {{ {PARTS} }} ]",
    "parts behind an escaped quote": f'x = [ "\\"", {{ {PARTS} }} ]',
    "parts behind a comment": f"# it's\n{PARTS}",
    "many keys": "".join(f"k{number} = 1\n" for number in range(10_000)),
    "many tables": "".join(f"[t{number}.a.a.a.a.a.a]\n" for number in range(10_000)),
    "many arrays of tables": "x = 1\n" + " [[a]]\n" * 10_000,
    "many values": f"owners = [{'1,' * 300_000}]",
    "a long file": "#" * (5 << 20),
}


@pytest.mark.parametrize("name", EXPENSIVE)
def test_files_that_are_expensive_to_read_are_refused_before_they_are_read(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tomllib takes 4.3 GB for a key of 30,000 parts and 380 MB for a MB of tables."""
    monkeypatch.setattr("ppca.federation.toml.tomllib.loads", lambda _: pytest.fail("it was read"))
    refused(EXPENSIVE[name], r"more than 8 parts|the maximum is [0-9,]+|more than [0-9,]+")


def test_texts_may_hold_what_keys_may_not() -> None:
    """Names of columns with many dots, commas and quotes are read as before."""
    names = [
        "1.2.3.4.5.6.7.8.9.10.11",
        "a = b = c",
        "x, y, z",
        "it's \\\" so",
        "#5",
        "'''",
        '"""',
        "[a.b.c.d.e.f.g.h.i]",
    ]
    made = job(name="dots . and . dots . in . a . name . of . a . job", columns=names)
    assert ProposedJob(made.data).spec.data.column_names == names


def test_a_list_with_many_wrong_elements_gives_one_error() -> None:
    """65,536 wrong names were 65,536 errors."""
    start, stop = TEXT.index("owners = ["), TEXT.index("]", TEXT.index("owners = [")) + 1
    with pytest.raises(FileRefused) as error:
        ProposedJob((TEXT[:start] + f"owners = [{', '.join(['1'] * 65_536)}]" + TEXT[stop:]).encode())
    assert "data.owners" in str(error.value)
    assert len(str(error.value)) < 300


def test_hidden_characters_of_a_file_do_not_reach_its_error() -> None:
    for text in ("speed\u202e = 1\n" + TEXT, TEXT.replace('"a", "b"', '"a\u200b", "b"')):
        with pytest.raises(FileRefused) as error:
            ProposedJob(text.encode())
        assert is_plain(str(error.value))


@pytest.mark.parametrize("twin", ["a\u200b", "a\ufe0f"])
def test_columns_that_look_the_same_are_refused(twin: str) -> None:
    refused(TEXT.replace('"a", "b"', f'"a", "{twin}"'), "data.columns")
