"""An owner with a modified client learns nothing about the rows and totals of others: it is refused by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.jobs import use_job
from harness.federation import IDENTITIES, MEMBERSHIP, OWNERS, RECEIVER, job
from harness.whole import Altered, FourServers, Owner, WholeJob
from ppca.federation.envelopes import Envelopes
from ppca.federation.objects import Object
from ppca.federation.proposal import ProposedJob
from ppca.jobs import columns, input_checks, rows, wide_columns, wide_rows
from ppca.jobs.errors import Refusal
from ppca.native import ring
from ppca.owner.columns import Centred
from ppca.owner.errors import OwnerError
from ppca.protocol import InputPacket, RingType, share, share_ring
from ppca.protocol.inputs import receive
from ppca.receiver.model import PCAModel
from ppca.receiver.unsealing import received
from ppca.runtime.control import encode
from ppca.server.programs import kept_name

LIAR = "south"


class Form:
    """A job of one form, and the files of its owners."""

    def __init__(self, name: str, folder: Path, servers: FourServers) -> None:
        self.folder, self.servers = folder, servers
        rng = np.random.default_rng(5)
        partition, _, way = name.partition(" ")
        wide, by_columns = partition.startswith("wide"), partition.endswith("columns")
        width, count = (70, 6) if wide else (3, 40)
        names = [f"v{i}" for i in range(width)]
        owners = OWNERS[:2] if wide else OWNERS
        fit: dict[str, Any] = {
            "missing": "mean" if way == "missing" else "refuse",
            "standardize": way == "standardised",
        }
        held = {owner: [f"{owner[0]}{name}" for name in names] for owner in owners} if by_columns else names
        align: dict[str, Any] = {"alignment": "aligned" if way == "standardised" else way, "minimum": 2}
        align |= {"namespace": 200} if way == "namespace" else {}
        self.job: ProposedJob = job(
            name=folder.name, owners=owners, columns=held, wide=wide, **fit, align=align if by_columns else None
        )
        self.id = "id" if by_columns else None
        for owner in owners:
            table = rng.standard_normal((count, width)) + 3
            self.write(owner, table, held[owner] if isinstance(held, dict) else held, np.arange(count) + 100)

    def write(self, owner: str, table: Any, names: list[str], ids: Any) -> None:
        lines = [",".join(["id", *names])] if self.id else [",".join(names)]
        for number, row in zip(ids, table, strict=True):
            lines.append(",".join([*([str(number)] if self.id else []), *(f"{value:.17g}" for value in row)]))
        self.file(owner).write_text("\n".join(lines) + "\n")

    def file(self, owner: str) -> Path:
        return self.folder / f"{owner}.csv"

    def begun(self) -> WholeJob:
        """Every owner but the liar has contributed."""
        whole = WholeJob(self.servers, self.job)
        for owner in self.job.proposal.owners:
            if owner != LIAR:
                assert whole.contribute(owner, self.file(owner), self.id) == [""] * 4
        return whole

    def lied(self, whole: WholeJob, change: Callable[[str, list[Any], dict[str, Any]], Any]) -> list[str]:
        """The liar contributes: `change` gets kind, packets and fields of every message of an unmodified client."""
        return whole.send(
            LIAR, lambda envelopes: whole.fill(LIAR, self.file(LIAR), Altered(envelopes, change), self.id)
        )


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FourServers]:
    found = FourServers(tmp_path_factory.mktemp("servers"))
    yield found
    found.close()


@pytest.fixture
def form(request: pytest.FixtureRequest, tmp_path: Path, servers: FourServers) -> Form:
    return Form(request.param, tmp_path, servers)


class Passed(Exception):
    """The check of ranges has passed."""


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs end after the check of ranges."""

    async def check(*arguments: Any) -> None:
        await input_checks.check_ranges(*arguments)
        raise Passed

    async def check_shares(*arguments: Any) -> None:
        await input_checks.check_row_shares(*arguments)
        raise Passed

    for program in (rows, wide_rows, wide_columns):
        monkeypatch.setattr(program, "check_ranges", check)
    monkeypatch.setattr(columns, "check_row_shares", check_shares)


def plain(packets: list[InputPacket]) -> Any:
    """The ring elements that an owner has shared."""
    return ring.add(receive(packets[0], 0, 0)[0], receive(packets[2], 1, 0)[0])


def with_first(packets: list[InputPacket], value: int) -> list[InputPacket]:
    """The same array with another first element."""
    whole = plain(packets)
    whole.reshape(-1, whole.shape[-1])[0] = ring.constants([value], whole.shape[-1])[0]
    return share_ring(whole, packets[0].dtype)


ALL_FORMS = [
    *("rows", "rows missing", "columns psi", "columns aligned", "widerows", "widerows standardised"),
    *("widecolumns psi", "widecolumns standardised"),
]


@pytest.mark.parametrize("form", ALL_FORMS, indirect=True)
def test_unmodified_clients_pass(form: Form, stops: None) -> None:
    whole = form.begun()
    assert whole.contribute(LIAR, form.file(LIAR), form.id) == [""] * 4
    with pytest.raises(Passed):
        whole.run()


@pytest.mark.parametrize(
    ("form", "number", "value"),
    [
        ("rows", 0, 0),
        ("rows", 0, -40),
        ("rows", 0, 1 << 36),
        ("rows", 1, 7 << 45),  # the root of 40 rows
        ("rows", 2, 2 + (1 << 14)),  # wins every comparison of 15 bits, and is looked up as 2
        ("rows", 2, -5000),
        ("rows", 3, (1 << 80) + 1),
        ("rows", 3, 1 << 127),
        ("rows", 4, 0),
        ("rows", 5, 1 << 13),
        ("rows", 5, 1 << 64),
        ("rows", 6, 1 << 90),
        ("rows", 6, -(1 << 127)),
        ("rows", 6, 1 << 57),  # 2^12 in units of the deviation; the norm of a column of 40 rows is below 7
        ("rows missing", 1, 41),
        ("rows missing", 1, -1),
        ("rows missing", 1, 0),  # its mean would count for nothing and choose the grid
        ("rows missing", 2, 2 + (1 << 14)),
        ("rows missing", 6, 1 << 90),
        ("columns psi", 0, 2 + (1 << 14)),
        ("columns psi", 1, 2 + (1 << 14)),
        ("columns aligned", 2, 1 << 100),
        ("columns aligned", 3, 1 << 45),
        ("widerows", 0, 33 << 40),
        ("widerows", 5, 1 << 14),
        ("widerows standardised", 6, 1 << 60),
        ("widecolumns psi", 3, 1 << 14),
        ("widecolumns standardised", 0, 1 << 14),
    ],
    indirect=["form"],
)
def test_a_number_out_of_range_is_refused(form: Form, number: int, value: int, stops: None) -> None:
    whole = form.begun()

    def change(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
        if kind == "packets":
            packets[number] = with_first(packets[number], value)
        return kind, packets, fields

    assert form.lied(whole, change) == [""] * 4
    with pytest.raises(Refusal, match=f"contribution of {LIAR} holds numbers outside the range"):
        whole.run()


FIRST_NUMBER = {"rows": 2, "rows missing": 2, "columns psi": 1, "widerows": 2, "widecolumns psi": 0}
"""The place of the exponents of means; mantissas and their upper halves follow."""


@pytest.mark.parametrize(
    ("form", "place"), [pytest.param(name, at, id=name) for name, at in FIRST_NUMBER.items()], indirect=["form"]
)
@pytest.mark.parametrize("mantissa", [0, 1 << 60, -(1 << 78)])
def test_a_small_mantissa_with_a_large_exponent_is_refused(form: Form, place: int, mantissa: int, stops: None) -> None:
    """The means of others would be cut off at a place that the liar chooses, and it would not show in the result."""
    whole = form.begun()

    def change(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
        if kind == "packets":
            for number, value in zip(range(place, place + 3), (75, mantissa, mantissa >> 40), strict=True):
                packets[number] = with_first(packets[number], value)
        return kind, packets, fields

    assert form.lied(whole, change) == [""] * 4
    with pytest.raises(Refusal, match=f"contribution of {LIAR} holds numbers outside the range"):
        whole.run()


@pytest.mark.parametrize(
    ("form", "place"), [pytest.param(name, at, id=name) for name, at in FIRST_NUMBER.items()], indirect=["form"]
)
def test_an_upper_half_is_compared_in_all_bits(form: Form, place: int, stops: None) -> None:
    """2^88 times 2^40 is zero modulo 2^128, so the mantissa minus 2^40 times its upper half does not show it."""
    whole = form.begun()

    def change(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
        if kind == "packets":
            low, high = (int(word) for word in plain(packets[place + 2])[0])
            packets[place + 2] = with_first(packets[place + 2], (high << 64) + low + (1 << 88))
        return kind, packets, fields

    assert form.lied(whole, change) == [""] * 4
    with pytest.raises(Refusal, match=f"contribution of {LIAR} holds numbers outside the range"):
        whole.run()


@pytest.mark.parametrize(
    ("form", "unit", "entries"),
    [
        ("widerows", 25, 0),
        ("widerows", None, 0),
        ("widerows", 25, 1 << 38),  # 2^-10 in the false unit
        ("widerows standardised", 25, None),
        ("widerows standardised", None, 0),
    ],
    indirect=["form"],
)
def test_a_unit_that_does_not_fit_the_rows_is_refused(
    form: Form, unit: int | None, entries: int | None, stops: None
) -> None:
    """The rows of the owner with the smaller unit would be cut off, and the result would be that of the other owner alone."""
    whole = form.begun()

    def change(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
        if kind == "rows" and entries is not None:
            packets[0] = with_first([*share_ring(0 * plain(packets[0]), packets[0][0].dtype)], entries)
        elif kind == "packets" and unit is not None:
            packets[5] = share(np.full(packets[5][0].shape, unit), packets[5][0].dtype)
            if len(packets) > 6:  # roots of sums of squares in the false unit
                packets[6] = share(np.full(packets[6][0].shape, 2.0**-20), packets[6][0].dtype)
        return kind, packets, fields

    assert form.lied(whole, change) == [""] * 4
    with pytest.raises(Refusal, match=f"contribution of {LIAR} holds numbers outside the range"):
        whole.run()


@pytest.mark.parametrize("form", ALL_FORMS, indirect=True)
@pytest.mark.parametrize(
    "entries",
    [
        pytest.param(lambda z: 0 * z, id="zeros"),
        pytest.param(lambda z: 0 * z + 3.3, id="constant"),
        pytest.param(lambda z: 0 * z + 2.0**-1074, id="smallest double"),
        pytest.param(lambda z: np.sign(z) * 1e150, id="large"),
        pytest.param(lambda z: z * 10.0 ** (np.arange(z.shape[1]) % 5 * 60 - 120), id="scales of columns"),
        pytest.param(lambda z: z * 1e-10 + 1e10, id="mean far from zero"),
        pytest.param(lambda z: np.where(z > 0, 1.0, -1.0) * 2.0 ** np.rint(z), id="powers of two"),
        pytest.param(lambda z: z + (2.0 - 2.0**-52) * 2**53, id="mean below a power of two"),
    ],
)
def test_honest_extreme_numbers_pass(
    form: Form, entries: Callable[[Any], Any], stops: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Centred, "check_row_shares", lambda *_: None)
    held = form.job.spec.data.columns
    names = list(held[LIAR]) if isinstance(held, dict) else list(held)
    count = 6 if form.job.spec.data.is_wide else 40
    table = entries(np.random.default_rng(8).standard_normal((count, len(names))))
    form.write(LIAR, table, names, np.arange(count) + 100)
    whole = form.begun()
    assert whole.contribute(LIAR, form.file(LIAR), form.id) == [""] * 4
    with pytest.raises(Passed):
        whole.run()


@pytest.mark.parametrize("form", ["columns psi", "columns aligned", "widerows", "widecolumns psi"], indirect=True)
@pytest.mark.parametrize("bits", [45, 62])
def test_a_row_out_of_range_is_refused(form: Form, bits: int, stops: None) -> None:
    whole = form.begun()

    def change(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
        if kind == "rows":
            packets[0] = with_first(packets[0], 1 << (bits + (24 if form.job.spec.data.is_wide else 0)))
        return kind, packets, fields

    assert form.lied(whole, change) == [""] * 4
    with pytest.raises(Refusal, match=f"contribution of {LIAR} holds"):
        whole.run()


@pytest.mark.parametrize("form", ["rows"], indirect=True)
def test_the_totals_of_one_owner_are_not_isolated(form: Form) -> None:
    """A liar hides the owner with the larger mean and reads the totals of the other one (before there was a check)."""
    rng = np.random.default_rng(1)
    tables = {"north": rng.standard_normal((40, 3)) + 100, "west": rng.standard_normal((30, 3)) + 3}
    for owner, table in tables.items():
        form.write(owner, table, form.job.spec.data.column_names, range(len(table)))
    whole = form.begun()

    def change(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
        packets[2] = share_ring(ring.integers(np.full(3, 2 + (1 << 14)), 2), packets[2][0].dtype)
        return kind, packets, fields

    assert form.lied(whole, change) == [""] * 4
    with pytest.raises(Refusal, match=LIAR):
        whole.run()
    assert [line["what"] for line in whole.audit] == ["inputs in range"]


# -- packets that the job does not ask for -------------------------------------------------------------------------------


def refused(form: Form, change: Callable[[str, list[Any], dict[str, Any]], Any], why: str) -> None:
    found = form.lied(form.begun(), change)
    assert all(f"the contribution of {LIAR} does not fit the job" in each and why in each for each in found), found


@pytest.mark.parametrize("form", ["columns psi", "columns aligned", "widerows", "widecolumns psi"], indirect=True)
@pytest.mark.parametrize("part", [1, 0, -1, True, "1"])
def test_rows_for_the_table_of_another_owner(form: Form, part: Any) -> None:
    def change(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
        return kind, packets, fields | ({"part": part} if kind == "rows" else {})

    refused(form, change, "acts for several tables")


@pytest.mark.parametrize("form", ["rows", "rows missing"], indirect=True)
def test_one_owner_as_38(form: Form) -> None:
    refused(form, lambda kind, packets, fields: (kind, 38 * packets, fields), "7 inputs were expected")


@pytest.mark.parametrize("form", ["rows"], indirect=True)
def test_a_second_message(form: Form) -> None:
    found = form.begun()

    def fill(envelopes: Any) -> None:
        found.fill(LIAR, form.file(LIAR), envelopes)
        found.fill(LIAR, form.file(LIAR), envelopes)

    assert all("a message follows" in why for why in found.send(LIAR, fill))


def without(kind_of: str) -> Callable[[str, list[Any], dict[str, Any]], Any]:
    return lambda kind, packets, fields: None if kind == kind_of else (kind, packets, fields)


@pytest.mark.parametrize(
    ("form", "change", "why"),
    [
        ("columns psi", without("rows"), "sends no rows"),
        ("columns psi", without("packets"), "sums are missing"),
        ("columns psi", lambda k, p, f: (k, p, f | ({"tags": None} if k == "rows" else {})), "tags of 40 rows"),
        ("columns aligned", lambda k, p, f: (k, p, f | {"tags": np.zeros((40, 2), np.uint64)}), "tags"),
        ("columns psi", lambda k, p, f: (k, p, f | {"more": 1}), "unknown fields more"),
        ("columns psi", lambda k, p, f: (k, 2 * p, f), ""),
        ("rows", lambda k, p, f: ("rows", p[:1], f), "it sends rows"),
        ("rows", lambda k, p, f: (k, p[:6], f), "7 inputs were expected"),
        ("rows", lambda k, p, f: (k, [share(np.ones(2), p[0][0].dtype), *p[1:]], f), "7 inputs were expected"),
        ("rows", lambda k, p, f: (k, [share(np.ones(1), RingType(128, 0, 13)), *p[1:]], f), "7 inputs were expected"),
        ("widerows", without("rows"), "sends no rows"),
        ("widecolumns psi", without("packets"), "sums are missing"),
    ],
    indirect=["form"],
)
def test_packets_that_the_job_does_not_ask_for(
    form: Form, change: Callable[[str, list[Any], dict[str, Any]], Any], why: str
) -> None:
    refused(form, change, why)


# -- what an owner signs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["rows", "columns psi"], indirect=True)
def test_the_two_splits_are_of_the_same_numbers(form: Form) -> None:
    """Comparisons read the row split, products both: a number of each kind would pass every check."""

    def change(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
        other = share_ring(ring.add(plain(packets[0]), plain(packets[0])), packets[0][0].dtype)
        mixed = [InputPacket(a.shape, a.dtype, a.row, b.column) for a, b in zip(packets[0], other, strict=True)]
        return kind, [mixed, *packets[1:]], fields

    found = form.lied(form.begun(), change)
    # The owner signs what server 0 has. Server 3 finds that it has something else.
    assert ["R0-C0" in why for why in found] == [False, False, False, True], found
    assert LIAR in found[3]


class DifferentAtOne(Envelopes):
    """Sends one server other messages than those that the owner signs. `change` gets the fields of a message."""

    def add(self, kind: str, packets: Any, **fields: Any) -> None:
        before = len(self._open[3])
        super().add(kind, packets, **fields)
        del self._open[3][before:]
        mine = [each[3] for each in packets]
        for part in encode(**self.change(kind, {"packets": mine, **fields})):
            self._open[3] += part

    def change(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        return {"kind": kind, **fields}


def reversed_tags(tags: Any) -> Any:
    return tags[::-1].copy()


def repeated_tags(tags: Any) -> Any:
    return np.concatenate([tags[:1], tags[:-1]])


@pytest.mark.parametrize("change", [reversed_tags, repeated_tags])
@pytest.mark.parametrize("form", ["columns psi", "widecolumns psi"], indirect=True)
def test_tags_that_are_not_sorted_or_not_distinct_are_refused_on_arrival(
    form: Form, change: Callable[[Any], Any]
) -> None:
    """They were found in the attempt, and the error named "owner 1"."""

    def lie(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
        if fields.get("tags") is not None:
            fields = fields | {"tags": change(fields["tags"])}
        return kind, packets, fields

    found = form.lied(form.begun(), lie)
    assert all(f"contribution of {LIAR} does not fit the job: its tags are not sorted" in why for why in found)


@pytest.mark.parametrize("form", ["columns psi"], indirect=True)
@pytest.mark.parametrize("what", ["tags", "shape", "span"])
def test_all_servers_get_the_same_messages(form: Form, what: str) -> None:
    whole = form.begun()

    def change(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        packet = fields["packets"][0]
        if kind == "rows" and what == "tags":
            fields["tags"] = fields["tags"][::-1].copy()
        elif kind == "rows" and what == "shape":
            size = packet.shape[0] // 2
            halves = [packet.row[: len(packet.row) // 2], packet.column[: len(packet.column) // 2]]
            fields |= {"packets": [InputPacket((size, 3), packet.dtype, *halves)], "tags": fields["tags"][:size]}
        elif kind == "packets" and what == "span":
            kind_of = RingType(128, 0, 14)
            fields["packets"][0] = InputPacket(packet.shape, kind_of, packet.row, packet.column)
        return {"kind": kind, **fields}

    made: list[Object] = []
    envelopes = DifferentAtOne(IDENTITIES[LIAR], form.job.id, whole.keys, made.append)
    envelopes.change = change  # type: ignore[method-assign]
    whole.fill(LIAR, form.file(LIAR), envelopes, form.id)
    last = envelopes.finish()
    found = whole.deliver(LIAR, [*made, last])
    assert found[:3] == ["", "", ""]
    assert LIAR in found[3]


# -- the order of ids ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["columns aligned", "widecolumns aligned"], indirect=True)
@pytest.mark.parametrize("ids", ["another order", "other ids"])
def test_aligned_owners_list_the_same_ids_in_the_same_order(form: Form, ids: str, stops: None) -> None:
    count = 6 if form.job.spec.data.is_wide else 40
    listed = np.arange(count)[::-1] + 100 if ids == "another order" else np.arange(count) + 101
    assert isinstance(form.job.spec.data.columns, dict)
    names = list(form.job.spec.data.columns[LIAR])
    form.write(LIAR, np.ones((count, len(names))) * np.arange(count)[:, None], names, listed)
    whole = form.begun()
    assert whole.contribute(LIAR, form.file(LIAR), form.id) == [""] * 4
    refused = whole.run()["refused"]
    assert "have different ids or another order" in refused
    assert LIAR in refused


@pytest.mark.parametrize("form", ["columns aligned", "widecolumns aligned"], indirect=True)
def test_an_owner_without_ids_is_not_aligned_with_owners_that_have_them(form: Form, stops: None) -> None:
    whole = form.begun()

    def change(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
        return kind, packets, {name: value for name, value in fields.items() if name != "order"}

    assert form.lied(whole, change) == [""] * 4
    assert f"{LIAR} sent rows without ids" in whole.run()["refused"]


@pytest.mark.parametrize("form", ["columns aligned", "columns namespace"], indirect=True)
def test_no_key_of_the_owners_is_waited_for_without_need(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of a namespace are not made into tags, and rows without ids have no order to compare."""

    def group_key(*_: Any) -> bytes:
        raise AssertionError("it waits for a key")

    monkeypatch.setattr(Owner, "group_key", group_key)
    if form.job.spec.data.align is not None and form.job.spec.data.align.alignment == "aligned":
        form.id = None
        assert isinstance(form.job.spec.data.columns, dict)
        form.write(
            LIAR,
            np.random.default_rng(2).standard_normal((40, 3)),
            list(form.job.spec.data.columns[LIAR]),
            np.arange(40),
        )
    whole = WholeJob(form.servers, form.job)
    assert whole.contribute(LIAR, form.file(LIAR), form.id) == [""] * 4


@pytest.mark.parametrize(
    "way", [{"alignment": "aligned"}, {"alignment": "namespace", "namespace": 40}], ids=["aligned", "namespace"]
)
@pytest.mark.parametrize("wide", [False, True], ids=["tall", "wide"])
def test_fewer_rows_than_the_minimum_are_refused(
    way: dict[str, Any], wide: bool, tmp_path: Path, servers: FourServers, stops: None
) -> None:
    """Approvers read `minimum`, whatever the alignment is."""
    owners, align = OWNERS[:2], {"minimum": 41, **way}
    held = {owner: [f"{owner[0]}{number}" for number in range(30)] for owner in owners}
    made = job(name=tmp_path.name, owners=owners, columns=held, align=align, wide=wide)
    whole = WholeJob(servers, made)
    for owner in owners:
        table = np.column_stack([np.arange(40), np.random.default_rng(6).standard_normal((40, 30))])
        names = ",".join(["id", *held[owner]])
        np.savetxt(tmp_path / f"{owner}.csv", table, ["%d", *["%.17g"] * 30], ",", header=names, comments="")
        assert whole.contribute(owner, tmp_path / f"{owner}.csv", "id") == [""] * 4
    found = whole.run()
    assert found["refused"] == "the owners have 40 rows; this job needs at least 41 (minimum)"
    assert set(found) <= {"refused", "rows"}


# -- missing values that count as the joint mean -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["rows missing"], indirect=True)
@pytest.mark.parametrize("missing", [0, 1, 9, 10, 30, 31, 39])
def test_a_client_refuses_a_column_that_few_rows_miss_or_have(form: Form, missing: int) -> None:
    table = np.random.default_rng(3).standard_normal((40, 3))
    table[:missing, 1] = np.nan
    form.write("north", table, form.job.spec.data.column_names, range(40))
    whole = WholeJob(form.servers, form.job)
    sent: list[str] = []
    envelopes = SimpleNamespace(add=lambda kind, *_: sent.append(kind))
    if missing in (0, 10, 30):
        whole.fill("north", form.file("north"), envelopes, min_rows=10)
        assert sent == ["packets"]
    else:
        with pytest.raises(OwnerError, match=f"column 'v1' has {40 - missing} values in 40 rows.*the minimum is 10"):
            whole.fill("north", form.file("north"), envelopes, min_rows=10)
        assert sent == []


@pytest.mark.parametrize("form", ["rows missing"], indirect=True)
def test_an_owner_far_away_reads_the_sum_of_rows_that_miss_a_column(form: Form) -> None:
    """Why the client refuses it. One row of north misses v0; south's values of v0 lie far away, its client is unmodified.

    C_0j n, less the liar's part, is delta (sum over the others' rows that have v0 of x_j - mean_j), up to v0 of the others.
    """
    rng = np.random.default_rng(3)
    tables = {owner: rng.standard_normal((count, 3)) + 3 for owner, count in zip(OWNERS, (40, 41, 50), strict=True)}
    secret = tables["north"][7].copy()
    tables["north"][7, 0] = np.nan
    tables[LIAR][:, 0] += 1e6
    whole = WholeJob(form.servers, form.job)
    for owner, table in tables.items():
        form.write(owner, table, form.job.spec.data.column_names, range(len(table)))
        assert whole.contribute(owner, form.file(owner)) == [""] * 4
    result = received(whole.run(), RECEIVER)
    scale = np.broadcast_to(result["exponents"], (3,))
    model = PCAModel.from_result(result, scale=scale, names=None, audit=[])
    own = tables[LIAR] - model.mean
    sums = (model.components.T * model.explained_variance * (model.rows - 1)) @ model.components - own.T @ own
    total = -len(own) * own.mean(axis=0)  # of v0 over the others' rows that have it, of v1 and v2 over all others' rows
    present = round(total[0] ** 2 / sums[0, 0])
    assert model.rows - len(own) - present == 1
    read = model.mean[1:] + total[1:] - sums[0, 1:] / (total[0] / present)
    np.testing.assert_allclose(read, secret[1:], atol=5e-3)  # products of others' v0, about 90, over 1e6 / 3


# -- columns that mark single rows -----------------------------------------------------------------------------------------


def marked(form: Form, column: Any) -> None:
    """The liar's second column is this one."""
    assert isinstance(form.job.spec.data.columns, dict)
    table = np.random.default_rng(7).standard_normal((40, 3))
    table[:, 1] = column
    form.write(LIAR, table, list(form.job.spec.data.columns[LIAR]), np.arange(40) + 100)


FLAG = np.eye(40)[7]


@pytest.mark.parametrize("form", ["columns psi", "columns aligned"], indirect=True)
def test_a_client_names_a_column_that_marks_one_row(form: Form) -> None:
    marked(form, FLAG)
    with pytest.raises(
        OwnerError, match=r"one row has 9[78]% of the sum of squares of column sv1; this job allows 75%"
    ):
        form.begun().contribute(LIAR, form.file(LIAR), form.id)


@pytest.mark.parametrize("form", ["columns psi", "columns aligned"], indirect=True)
@pytest.mark.parametrize("column", [FLAG, 1000 + FLAG, 1e-9 * FLAG], ids=["flag", "far from zero", "small"])
def test_servers_refuse_a_column_that_marks_one_row(
    form: Form, column: Any, stops: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(x_t - mean) / (n - 1) is the covariance of a flag of row t with another owner's column x."""
    marked(form, column)
    monkeypatch.setattr(Centred, "check_row_shares", lambda *_: None)
    whole = form.begun()
    assert whole.contribute(LIAR, form.file(LIAR), form.id) == [""] * 4
    with pytest.raises(Refusal, match=f"a column of {LIAR} has more than 0.75 of its sum of squares in few rows"):
        whole.run()
    assert [line["what"] for line in whole.audit][-2:] == ["inputs in range", "shares of single rows"]


@pytest.mark.parametrize("form", ["columns psi", "columns aligned"], indirect=True)
def test_servers_refuse_a_column_whose_squares_overflow(form: Form, stops: None) -> None:
    """(2^32)^2 is zero modulo 2^64: the marked row would have no part of the sum of squares."""
    whole = form.begun()

    def change(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
        if kind == "rows":
            entries = plain(packets[0])
            entries[:, 1, 0] = np.where(np.arange(len(entries)) % 2, 1, -1).astype(np.uint64)
            entries[7, 1, 0] = 1 << 32
            packets[0] = share_ring(entries, packets[0][0].dtype)
        return kind, packets, fields

    assert form.lied(whole, change) == [""] * 4
    with pytest.raises(Refusal, match=f"a column of {LIAR} has more than 0.75"):
        whole.run()


@pytest.mark.parametrize("form", ["columns psi", "widecolumns psi"], indirect=True)
def test_columns_of_the_smallest_doubles_are_sent(form: Form, stops: None) -> None:
    """Their scale is 2^-1073; its inverse is not a double."""
    assert isinstance(form.job.spec.data.columns, dict)
    names = list(form.job.spec.data.columns[LIAR])
    count = 6 if form.job.spec.data.is_wide else 40
    signs = np.where(np.random.default_rng(9).standard_normal((count, len(names))) > 0, 1.0, -1.0)
    form.write(LIAR, signs * 2.0**-1074, names, np.arange(count) + 100)
    whole = form.begun()
    assert whole.contribute(LIAR, form.file(LIAR), form.id) == [""] * 4
    with pytest.raises(Passed):
        whole.run()


@pytest.mark.parametrize("form", ["columns psi"], indirect=True)
def test_a_flag_of_several_rows_passes(form: Form, stops: None) -> None:
    marked(form, (np.arange(40) % 5 == 0).astype(float))
    whole = form.begun()
    assert whole.contribute(LIAR, form.file(LIAR), form.id) == [""] * 4
    with pytest.raises(Passed):
        whole.run()


# -- new rows for a kept model ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["honest", "a lie", "other units", "too few rows"])
def test_new_columns_out_of_range_or_in_other_units_or_of_few_rows_are_refused(
    how: str, tmp_path: Path, servers: FourServers
) -> None:
    """The model is that of two column owners, and both send columns of the new rows. The openings are those of the job."""
    owners, align = OWNERS[:2], {"alignment": "aligned", "minimum": 2}
    held = {owner: [f"{owner[0]}{number}" for number in range(2)] for owner in owners}
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    keep = {"until": until, "allow": {"flags": [RECEIVER]}}
    fit = job(name=tmp_path.name, owners=owners, columns=held, components=1, align=align, keep=keep)
    random = np.random.default_rng(4)
    for owner in owners:
        table = random.standard_normal((40, 2)) + 3
        np.savetxt(tmp_path / f"{owner}.csv", table, delimiter=",", header=",".join(held[owner]), comments="")
    first = WholeJob(servers, fit)
    for owner in owners:
        assert first.contribute(owner, tmp_path / f"{owner}.csv") == [""] * 4
    exponents = np.broadcast_to(first.run()["to"][RECEIVER]["exponents"], (4,)) + (how == "other units")
    for job_runner, store in zip(first.job_runners, first.stores, strict=True):
        job_runner.staging.keep(fit.id, store[kept_name(fit.id)])
    least = 41 if how == "too few rows" else 40
    more: dict[str, Any] = {
        "model": fit.id,
        "model_owners": owners,
        "threshold": 4.0,
        "align": align,
        "rows_at_least": least,
    }
    asked = use_job(MEMBERSHIP, tmp_path.name + "-use", owners, held, {RECEIVER: ["flags"]}, exponents, **more)
    second = WholeJob(servers, asked)

    def change(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
        return kind, [with_first(packets[0], 1 << 100), *packets[1:]], fields

    for owner in owners:
        altered = (
            (lambda envelopes: Altered(envelopes, change))
            if (how, owner) == ("a lie", LIAR)
            else (lambda envelopes: envelopes)
        )
        file = tmp_path / f"{owner}.csv"
        assert second.send(owner, lambda envelopes: second.fill(owner, file, altered(envelopes))) == [""] * 4  # noqa: B023
    if how == "honest":
        assert second.run()["to"][RECEIVER]["flags"].shape == (40,)
    else:
        refusal = {
            "a lie": f"contribution of {LIAR} holds numbers outside the range",
            "other units": "scale_exponents of this job are not those of the model",
            "too few rows": r"there are 40 new rows; this job needs at least 41 \(rows_at_least\)",
        }
        with pytest.raises(Refusal, match=refusal[how]):
            second.run()
    opened = {"honest": 3, "a lie": 1, "other units": 2, "too few rows": 0}
    wanted = ["inputs in range", "units of the model", "anomaly flags"]
    assert [line["what"] for line in second.audit] == wanted[: opened[how]]
