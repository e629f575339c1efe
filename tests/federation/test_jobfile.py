"""job.toml: every field is checked before anybody is asked; the lists of openings are those of the parameters, and no others."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.federation import COLUMNS, OWNERS, RECEIVER, ROSTER, job
from ppca.algorithms.solvers import NAMES
from ppca.estimator.choices import TOLERANCES
from ppca.federation import jobfile
from ppca.federation.drafting import draft_fit, draft_infer
from ppca.federation.errors import FederationError, FileRefused
from ppca.federation.job import JobDescription
from ppca.federation.jobfile import Fit, after, seconds
from ppca.federation.objects import sha256
from ppca.owner.alignment.arrangement import LARGEST_NAMESPACE

JOB = job()
TEXT = JOB.data.decode()
VERTICAL = draft_fit(ROSTER, "v", OWNERS, {o: [f"{o}{i}" for i in range(2)] for o in OWNERS}, {RECEIVER: ["model"]})
USE = {"model": "0" * 64, "model_owners": ("north",), "standardized": False, "scale_exponents": (1, 2, 3)}
INFER = draft_infer(ROSTER, "i", ["north"], RECEIVER, {**USE, "operation": "transform"}, COLUMNS)


def refused(data: str | bytes, words: str = "") -> None:
    with pytest.raises(FileRefused, match=words):
        JobDescription(data.encode() if isinstance(data, str) else data)


def test_a_draft_is_read_as_it_was_written() -> None:
    for made in (JOB, VERTICAL, INFER):
        found = JobDescription(made.data)
        assert found.file == made.file
        assert found.id == sha256(made.data)


def test_the_bounds_are_those_of_the_programs() -> None:
    assert set(get_args(Fit.model_fields["solver"].annotation)) == set(NAMES)
    assert jobfile.TOLERANCES == TOLERANCES
    assert jobfile.LARGEST_NAMESPACE == LARGEST_NAMESPACE


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
        (r"owners = .*", 'owners = ["North"]', "no name of a member"),
        (r"owners = .*", 'owners = "north"', "owners"),
        (r"columns = .*", "columns = []", "columns"),
        (r"columns = .*", 'columns = ["a", "a", "b"]', "every name once"),
        (r"columns = .*", 'columns = ["a", ""]', "columns"),
        (r"columns = .*", r'columns = ["a", "b\\n"]', "columns"),
        (r"columns = .*", 'columns = { north = ["a"] }', "columns"),
        (r"columns = .*", f'columns = ["{"x" * 1001}"]', "columns"),
        (r"program = .*", 'program = "pca-rows/2"', "program"),
        (r"program = .*", 'program = "infer/1"', r"\[infer\]"),
        (r"program = .*", 'program = "pca-columns/1"', r"\[align\]"),
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
        (r"fixed_iterations = .*", "fixed_iterations = 10000", "fixed_iterations"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\ncomponents = 0", "components"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\ncomponents = -1", "components"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\ncomponents = 4", "components"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\ncomponents = true", "components"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\ncomponents = 1.0", "components"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\ncomponents = nan", "components"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\ncomponents = inf", "components"),
        (r"fixed_iterations = .*", 'fixed_iterations = 18\nsolver = "magic"', "solver"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\ntol = nan", "tol"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\ntol = 1.0", "tol"),
        (r"fixed_iterations = .*", 'fixed_iterations = 18\nmissing = "zero"', "missing"),
        (r"fixed_iterations = .*", "fixed_iterations = 18\nseed = 1", "seed"),
        (r"\[receivers\]\n.*", "[receivers]", "nobody would have the result"),
        (r'analyst = \["model"\]', 'analyst = ["rows"]', "is unknown"),
        (r'analyst = \["model"\]', 'Analyst = ["model"]', "no name of a member"),
    ],
)
def test_every_field_is_checked(old: str, new: Any, words: str) -> None:
    text, count = re.subn(old, new, TEXT, count=1)
    assert count == 1
    refused(text, words)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('way = "psi"', 'way = "magic"', "way"),
        ('way = "psi"', 'way = "namespace"', "number of ids"),
        ('way = "psi"', 'way = "namespace"\nnamespace = 1', "2 to"),
        ('way = "psi"', 'way = "namespace"\nnamespace = 1000000000', "2 to"),
        ('way = "psi"', 'way = "psi"\nnamespace = 10', "for that way only"),
        ('way = "psi"', 'way = "psi"\nminimum = 0', "minimum"),
        ('north = ["north0", "north1"]', 'north = ["north0", "south0"]', "every name once"),
        ('north = ["north0", "north1"]', "north = []", "at least one"),
        ('north = ["north0", "north1"]', 'east = ["north0", "north1"]', "nobody else"),
    ],
)
def test_owners_of_columns(old: str, new: str, words: str) -> None:
    made = draft_fit(
        *(ROSTER, "v", OWNERS, {o: [f"{o}{i}" for i in range(2)] for o in OWNERS}, {RECEIVER: ["model"]}),
        align={"way": "psi"},
    )
    text = made.data.decode()
    assert old in text
    refused(text.replace(old, new), words)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ({"operation": "transform", "scores": True}, "transform has no"),
        ({"operation": "transform", "threshold": 1.0}, "transform has no"),
        ({"operation": "detect"}, "detect needs"),
        ({"operation": "detect", "threshold": 1.0, "contamination": 0.1}, "not both"),
        ({"operation": "detect", "threshold": -1.0}, "threshold"),
        ({"operation": "detect", "threshold": float("inf")}, "threshold"),
        ({"operation": "detect", "threshold": float("nan")}, "threshold"),
        ({"operation": "detect", "contamination": 0.6}, "contamination"),
        ({"operation": "detect", "contamination": float("nan")}, "contamination"),
        ({"operation": "inverse"}, "operation"),
        ({"operation": "transform", "scale_exponents": (10**30,)}, "scale_exponents"),
        ({"operation": "transform", "scale_exponents": ()}, "scale_exponents"),
        ({"operation": "transform", "model": "x"}, "digest"),
    ],
)
def test_uses_of_a_kept_model(use: dict[str, Any], words: str) -> None:
    with pytest.raises(FileRefused, match=words):
        draft_infer(ROSTER, "i", ["north"], RECEIVER, {**USE, **use}, COLUMNS)


def test_infer_has_one_receiver_and_keeps_nothing() -> None:
    text = INFER.data.decode()
    refused(re.sub(r"\[receivers\]\nanalyst = \[\]", "[receivers]", text), "one receiver")
    refused(text + '\n[keep]\nuntil = 2031-01-01T00:00:00Z\nallow = { flags = ["north"] }\n', "keeps nothing")


def test_kept_for_what_there_is() -> None:
    until = datetime.now(UTC) + timedelta(days=9)
    for allow, words in (({"partial_fit": ("north",)}, "no operation"), ({"flags": ("North",)}, "no name")):
        with pytest.raises(FileRefused, match=words):
            job(keep={"until": until, "allow": allow})


@pytest.mark.parametrize("made", [JOB, VERTICAL, INFER], ids=["rows", "columns", "infer"])
def test_lists_that_are_not_those_of_the_parameters(made: JobDescription) -> None:
    text = made.data.decode()
    more = re.sub(r"opens = \[", 'opens = ["means", ', text, count=1)
    refused(more, "opens must be")
    reveals = text[text.index("[reveals]") :]
    first = re.search(r'"[a-z ]+"', reveals)
    assert first is not None
    refused(text.replace(reveals, reveals.replace(first[0], '"everything"')), "reveals must be")
    refused(text.replace(reveals, "[reveals]\n"), "reveals must be")
    refused(text.replace(reveals, reveals + 'north = ["means"]\n'), "reveals must be")
    if made.file.opens:
        refused(re.sub(r"opens = \[(?:.|\n)*?\]", "opens = []", text, count=1), "opens must be")


def test_another_byte_is_another_job() -> None:
    assert JobDescription(JOB.data + b"\n").id != JOB.id


@given(place=st.integers(0, len(JOB.data) - 1), cut=st.integers(0, 30), new=st.binary(max_size=8))
def test_any_damage_is_refused_by_name_or_another_good_job(place: int, cut: int, new: bytes) -> None:
    data = JOB.data[:place] + new + JOB.data[place + cut :]
    with contextlib.suppress(FederationError):
        assert JobDescription(data).id == sha256(data)


@pytest.mark.parametrize(("text", "found"), [("90s", 90), ("2m", 120), ("3h", 10800), ("7d", 604800)])
def test_spans(text: str, found: float) -> None:
    assert seconds(text) == found
    now = datetime.now(UTC)
    assert after(now, text) == now + timedelta(seconds=found)


@pytest.mark.parametrize("text", ["", "d", "1", "1w", "-1d", "1.5d", "1d1h", "9999999d", " 1d", "1d\n"])
def test_spans_that_are_none(text: str) -> None:
    with pytest.raises(FileRefused, match="is no time"):
        seconds(text)


def test_a_folder_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_bytes(JOB.data)
    assert JobDescription.load(tmp_path).id == JobDescription.load(tmp_path / "job.toml").id == JOB.id


@pytest.mark.parametrize(
    ("receivers", "words"),
    [
        ({RECEIVER: ["loadings"]}, "loadings are for an owner of columns"),
        ({"north": ["loadings", "components"]}, "in place of components"),
        ({"north": ["loadings", "model"]}, "in place of components"),
    ],
)
def test_loadings_are_for_owners_of_columns_and_in_place_of_components(receivers: Any, words: str) -> None:
    with pytest.raises(FileRefused, match=words):
        draft_fit(ROSTER, "v", OWNERS, {o: [f"{o}{i}" for i in range(2)] for o in OWNERS}, receivers)
    with pytest.raises(FileRefused, match="loadings are for an owner of columns"):
        job(receivers={"north": ["loadings"]})


def test_the_columns_that_a_result_is_about() -> None:
    columns = {"north": ["a"], "south": ["b", "c"], "west": ["d"]}
    file = draft_fit(ROSTER, "v", OWNERS, columns, {RECEIVER: ["model"], "south": ["loadings"]}).file
    assert file.columns_of(RECEIVER) == ["a", "b", "c", "d"]
    assert file.columns_of("south") == ["b", "c"]
    assert [file.own_columns(owner) for owner in file.owners] == [(0, 1), (1, 3), (3, 4)]


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
    "many values": f"owners = [{'1,' * 300_000}]",
    "a long file": "#" * (5 << 20),
}


@pytest.mark.parametrize("name", EXPENSIVE)
def test_files_that_are_expensive_to_read_are_refused_before_they_are_read(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tomllib takes 4.3 GB for a key of 30,000 parts; Pydantic lists every wrong element of an array."""
    monkeypatch.setattr("ppca.federation.toml.tomllib.loads", lambda _: pytest.fail("it was read"))
    refused(EXPENSIVE[name], r"more than 8 parts|at most [0-9,]+ are read|more than [0-9,]+")


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
    made = draft_fit(ROSTER, "dots . and . dots . in . a . name . of . a . job", OWNERS, names, {RECEIVER: ["model"]})
    assert JobDescription(made.data).file.all_columns == names


def test_a_list_with_many_wrong_elements_gives_one_error() -> None:
    """65,536 wrong names were 65,536 errors."""
    start, stop = TEXT.index("owners = ["), TEXT.index("]", TEXT.index("owners = [")) + 1
    with pytest.raises(FileRefused) as error:
        JobDescription((TEXT[:start] + f"owners = [{', '.join(['1'] * 65_536)}]" + TEXT[stop:]).encode())
    assert "owners[0]" in str(error.value)
    assert "owners[1]" not in str(error.value)
