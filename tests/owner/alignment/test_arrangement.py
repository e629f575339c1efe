"""What an owner does with its rows before it sends them, in each of the three ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ppca.jobs.spec import MAX_NAMESPACE, Align
from ppca.owner.alignment.arrangement import arrange, arrange_rows, order_digest
from ppca.owner.alignment.ids import IdError
from ppca.owner.tables.records import Records


def table(ids: Any, label: str = "school", width: int = 2) -> Records:
    count = 4 if ids is None else len(ids)
    return Records(label, np.arange(count * width, dtype=float).reshape(count, width), None, ids)


def test_psi_sends_rows_in_the_order_of_their_tags() -> None:
    school = table(np.arange(100))
    arranged = arrange_rows(school, Align(), bytes(16))
    assert arranged.tags is not None
    assert np.all(np.diff(arranged.tags[:, 0].astype(object)) > 0)
    assert np.array_equal(arranged.values, school.values[arranged.order])
    assert arranged.ids_at(np.arange(100)).tolist() == arranged.order.tolist()
    other = arrange_rows(school, Align(), bytes(15) + b"1")
    assert not np.array_equal(arranged.order, other.order)


def test_an_owner_needs_only_its_own_table_and_the_key() -> None:
    """What it sends does not depend on anybody else: it has learned nothing of others."""
    school, rich, poor = table(np.arange(50)), table(np.arange(30, 90), "bank"), table(np.arange(49, 51), "kiosk")
    for way in (Align(), Align(alignment="namespace", namespace=100)):
        alone = arrange_rows(school, way, bytes(16))
        for other in (rich, poor):
            arrange_rows(other, way, bytes(16))
            again = arrange_rows(school, way, bytes(16))
            assert np.array_equal(alone.values, again.values)
            assert (alone.tags is None) or np.array_equal(alone.tags, again.tags)


def test_aligned_compares_digests() -> None:
    ids = ["a", "Zoë", "7"]
    same = [table(ids), table(["a ", "Zoe\u0308", "7"], "bank"), table(None, "kiosk")]
    same[2].values = same[2].values[:3]
    assert len(arrange(same, Align(alignment="aligned"))) == 3
    for other in (["Zoë", "a", "7"], ["a", "Zoë", "8"]):
        with pytest.raises(IdError, match="school and bank list different ids or another order"):
            arrange([table(ids), table(other, "bank")], Align(alignment="aligned"))
    with pytest.raises(IdError, match="school: 3, bank: 2"):
        arrange([table(ids), table(ids[:2], "bank")], Align(alignment="aligned"))
    with pytest.raises(IdError, match="bank: 1 ids occur more than once"):
        arrange([table(ids), table(["a", "a", "7"], "bank")], Align(alignment="aligned"))
    assert arrange([table(["A"] * 1), table(["a"], "bank")], Align(alignment="aligned", fold_case=True))


def test_digests_are_keyed() -> None:
    assert order_digest(table([1, 2]), Align(alignment="aligned"), bytes(16)) != order_digest(
        table([1, 2]), Align(alignment="aligned"), bytes(15) + b"1"
    )


def test_namespace_fills_with_zeros() -> None:
    arranged = arrange_rows(table(["3", "0"]), Align(alignment="namespace", namespace=5), bytes(16))
    assert arranged.values.tolist() == [[2, 3], [0, 0], [0, 0], [0, 1], [0, 0]]
    assert arranged.tags is None
    assert arranged.ids_at(np.arange(5)).tolist() == list(range(5))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([0, 5], "0 to 5, outside 0..4"),
        ([-1, 2], "outside"),
        ([1, 1, 1], "2 ids occur more than once"),
        (["x"], "integers"),
    ],
)
def test_namespace_refuses(ids: list[Any], message: str) -> None:
    with pytest.raises(IdError, match=message):
        arrange_rows(table(ids), Align(alignment="namespace", namespace=5), bytes(16))


@pytest.mark.parametrize("way", [Align(), Align(alignment="namespace", namespace=5)])
def test_ids_are_needed(way: Align) -> None:
    with pytest.raises(IdError, match=r"school: alignment .* needs an id column"):
        arrange_rows(table(None), way, bytes(16))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alignment": "magic"}, "choose from psi, aligned, namespace"),
        ({"alignment": "namespace"}, "must be the number of ids"),
        ({"alignment": "namespace", "namespace": MAX_NAMESPACE + 1}, "use 'psi' for a larger range"),
        ({"alignment": "psi", "namespace": 9}, "is not used"),
        ({"minimum": 0}, "at least 1"),
    ],
)
def test_alignments_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Align(**options)
