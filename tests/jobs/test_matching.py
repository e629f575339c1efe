"""Servers match tags: the result is the intersection of the owners' sets of ids, and nothing else is worked on."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppca.jobs.matching import MatchError, match, positions_in
from ppca.owner.alignment.ids import normalise_ids
from ppca.owner.alignment.tags import make_tags, order_of

NAMES = ["Zoë", "学生", "ß", "naïve café", "\N{GRINNING FACE}", "Ω", "İ", "o'Neil", "a b", "\U0001d54f"]


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    """Ids of three, five or ten owners, some of them with other letters, in any order."""
    pool = draw(st.lists(st.integers(0, 10**6), min_size=1, max_size=60, unique=True))
    everybody = [f"{NAMES[n % len(NAMES)]}{n}" for n in pool]
    count = draw(st.sampled_from([3, 5, 10]))
    keep = draw(st.floats(0.5, 1.0))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    return [
        [everybody[i] for i in random.permutation(len(everybody)) if random.random() < keep] or everybody[:1]
        for _ in range(count)
    ]


@given(tables())
def test_the_match_is_the_intersection(owners: list[list[str]]) -> None:
    key = secrets.token_bytes(16)
    tags, sent = [], []
    for ids in owners:
        made = make_tags(normalise_ids(ids), key)
        order = order_of(made, "owner")
        tags.append(made[order])
        sent.append([ids[i] for i in order])
    common = set.intersection(*map(set, owners))
    if not common:
        with pytest.raises(MatchError):
            match(tags, 1)
        return
    rows = match(tags, 1)
    found = [[ids[i] for i in at] for ids, at in zip(sent, rows, strict=True)]
    assert set(found[0]) == common
    assert all(ids == found[0] for ids in found)  # the same person in the same place
    assert all(np.all(np.diff(at) > 0) for at in rows)


def test_equal_first_halves_are_told_apart() -> None:
    first = np.array([[1, 1], [5, 1], [5, 3], [5, 7], [9, 0]], np.uint64)
    second = np.array([[5, 3], [5, 4], [5, 7], [8, 8], [9, 1]], np.uint64)
    rows = match([first, second], 2)
    assert [r.tolist() for r in rows] == [[2, 3], [0, 2]]
    assert positions_in(first, second).tolist() == [2, -1, 3, -1, -1]


@pytest.mark.parametrize("common", [0, 1, 9])
def test_a_small_intersection_stops_the_job(common: int) -> None:
    """And its size is not told."""
    shared = np.arange(common, dtype=np.uint64)
    first, second = (
        np.sort(np.concatenate([shared, np.arange(start, start + 20, dtype=np.uint64)])) for start in (100, 200)
    )
    tags = [np.column_stack([part, part]) for part in (first, second)]
    with pytest.raises(MatchError, match="fewer than 10 ids are common to all 2 owners"):
        match(tags)
    if common:
        assert len(match(tags, common)[0]) == common


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (np.array([[2, 0], [1, 0]], np.uint64), "not sorted"),
        (np.array([[1, 5], [1, 5]], np.uint64), "not distinct"),
        (np.array([[1, 5], [1, 4]], np.uint64), "not sorted"),
        (np.array([1, 2], np.uint64), "wrong form"),
        (np.array([[1, 2]], np.int64), "wrong form"),
        (np.array([[1, 2, 3]], np.uint64), "wrong form"),
    ],
)
def test_malformed_tags_are_refused(tags: np.ndarray, message: str) -> None:
    good = np.array([[1, 5], [2, 5]], np.uint64)
    with pytest.raises(MatchError, match=f"owner 2 sent tags .*{message}"):
        match([good, tags], 1)
