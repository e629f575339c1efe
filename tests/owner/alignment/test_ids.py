"""Ids: equal after normalisation means equal bytes; what cannot be an id is refused with a count."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppca.owner.alignment.ids import MAX_ID_BYTES, IdError, integer_ids, normalise_ids


def texts(column: Any, **options: Any) -> list[bytes]:
    ids = normalise_ids(column, **options)
    return [ids.data[a:b].tobytes() for a, b in zip(ids.offsets[:-1], ids.offsets[1:], strict=True)]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_an_integer_is_its_digits(numbers: list[int]) -> None:
    assert texts(np.array(numbers)) == [str(n).encode() for n in numbers] == texts([str(n) for n in numbers])


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=12))
def test_forms_of_a_string_are_one_id(words: list[str]) -> None:
    """Any Unicode form and white space around make no difference."""
    usable = [word for word in words if word.strip() and unicodedata.normalize("NFC", word).strip()]
    if not usable:
        return
    for form in ("NFC", "NFD"):
        other = [f" \t{unicodedata.normalize(form, word)}\u00a0" for word in usable]
        assert texts(other) == texts(usable)


def test_the_rules_by_example() -> None:
    assert texts(["Zoë", "Zoe\u0308", "  Zoë\n"]) == ["Zoë".encode()] * 3
    assert texts([7]) == texts(["7"]) != texts(["07"])
    assert texts(["ab"]) != texts(["AB"])
    assert texts(["ÄB"], fold_case=True) == texts(["äb"], fold_case=True)
    assert texts(["学生-1", "\N{GRINNING FACE}"]) == ["学生-1".encode(), "\N{GRINNING FACE}".encode()]


@pytest.mark.parametrize(
    "column",
    [
        ["a", "b"],
        np.array(["a", "b"]),
        np.array(["a", "b"], object),
        pd.Series(["a", "b"]),
        pd.Series(["a", "b"], dtype="category"),
        pd.Series(["a", "b"], dtype="string"),
        pl.Series(["a", "b"]),
        pa.array(["a", "b"]),
        pa.array(["x", "a", "b"], pa.large_string())[1:],
        pa.chunked_array([["a"], [], ["b"]]),
        pa.array(["a", "b"]).dictionary_encode(),
    ],
    ids=lambda column: f"{type(column).__module__}.{getattr(column, 'dtype', getattr(column, 'type', ''))}",
)
def test_columns_of_any_make(column: Any) -> None:
    assert texts(column) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1.0, 2.0], "not exact"),
        (pd.Series([1, None, 3]), "not exact|missing"),
        (["a", None, None], "2 ids are missing"),
        (["a", "  ", ""], "2 ids are empty"),
        ([True, False], "neither integers nor strings"),
        (np.array([], np.int64), "the id column is empty"),
        ([1, "a"], "mixes types"),
        ([b"ab"], "neither integers nor strings"),
        (["x" * (MAX_ID_BYTES + 1)], "bytes, more than"),
        (np.array(["2020-01-01"], "datetime64[D]"), "neither integers nor strings"),
    ],
)
def test_what_is_no_id(column: Any, message: str) -> None:
    with pytest.raises(IdError, match=message) as error:
        normalise_ids(column, label="school.csv")
    assert str(error.value).startswith("school.csv: ")


def test_ids_of_a_namespace() -> None:
    assert integer_ids(["3", " 4"]).tolist() == integer_ids(np.array([3, 4], np.uint8)).tolist() == [3, 4]
    for column in (["3", "x"], [0.5], ["1", None]):
        with pytest.raises(IdError):
            integer_ids(column)
