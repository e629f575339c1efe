"""Malformed inputs: whatever arrives is accepted, or refused with the error meant for it. The long run: `ppca bench fuzz`."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import fuzz
from benchmarks.malformed import WRONG
from ppca.runtime.codec import CodecError, pack, unpack

FOLDER = tempfile.TemporaryDirectory(prefix="ppca-fuzz-")
NUMBERS = st.integers(0, 2**40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(WRONG),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["$", "shape", "ring", "row", "column", "at", "type", "to", "value", "a"]), inner
        )
    ),
    max_leaves=20,
)


@pytest.fixture(scope="module")
def seeds() -> dict[str, list[bytes]]:
    return {name: target.seeds() for name, target in fuzz.TARGETS.items()}


@pytest.mark.parametrize("name", fuzz.TARGETS)
@given(number=NUMBERS)
def test_malformed_inputs_are_refused_by_name(name: str, seeds: dict[str, list[bytes]], number: int) -> None:
    feed(name, fuzz.made(seeds[name], number, fuzz.TARGETS[name].structured), number)


@pytest.mark.parametrize("name", fuzz.TARGETS)
@given(content=st.binary(max_size=200), number=NUMBERS)
def test_any_bytes(name: str, content: bytes, number: int) -> None:
    feed(name, content, number)


def feed(name: str, content: bytes, number: int) -> None:
    target = fuzz.TARGETS[name]
    with contextlib.suppress(*target.refusals):
        target.feed(content, number, Path(FOLDER.name))


@given(value=JSON, buffers=st.lists(st.binary(max_size=40), max_size=3))
def test_any_json_with_buffers(value: Any, buffers: list[bytes]) -> None:
    """What is taken for good can be packed again; the rest is a CodecError."""
    try:
        found = unpack(value, buffers)
    except CodecError:
        return
    pack(found, [])


def test_good_inputs_are_accepted(seeds: dict[str, list[bytes]], tmp_path: Path) -> None:
    for name, target in fuzz.TARGETS.items():
        for number, content in enumerate(seeds[name]):
            target.feed(content, number, tmp_path)


def test_findings_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that fails with another error than it should is a finding; so the command tells a fault from a refusal."""
    broken = fuzz.Target(fuzz.facts_seeds, lambda *_: {}["missing"], (ValueError,), 100)
    monkeypatch.setattr(fuzz, "TARGETS", {"broken": broken})
    tally = fuzz.run_target("broken", 0, 3)
    assert (tally.accepted, tally.refused, len(tally.findings)) == (0, 0, 3)
    assert tally.findings[0] == "input 0: KeyError: 'missing'"


@pytest.mark.processes
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "TARGETS", {"greetings": fuzz.TARGETS["greetings"]})
    assert fuzz.main(1000, 0, tmp_path)
    (line,) = json.loads((tmp_path / "fuzz.json").read_text())["targets"]
    assert line["inputs"] == line["accepted"] + line["refused"] == 40
