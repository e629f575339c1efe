"""A job as one value: what is refused and by which field, plain data and back, and what a job opens."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppca.jobs.checks import SpecError
from ppca.jobs.infer import UseModel
from ppca.jobs.loading import as_data, job_of
from ppca.jobs.openings import MEANING, SERVERS, AllowedOpening
from ppca.jobs.pca import JointPCA
from ppca.jobs.registry import ANALYSES, openings, register
from ppca.jobs.spec import Align, Analysis, ColumnList, Data, JobSpec, Keep

OWNERS = ("owner-1", "owner-2")
BY_OWNER = {"owner-1": ("a", "b"), "owner-2": ("c",)}


def rows(**fields: Any) -> Data:
    return Data(**({"form": "rows", "owners": OWNERS, "columns": ("a", "b", "c")} | fields))


def columns(**fields: Any) -> Data:
    return Data(**({"form": "columns", "owners": OWNERS, "columns": BY_OWNER, "align": Align()} | fields))


def pca(data: Data | None = None, receivers: Any = None, keep: Keep | None = None, **parameters: Any) -> JobSpec:
    to = {"client": ("model",)} if receivers is None else receivers
    return JobSpec(data=data or rows(), analysis=JointPCA(**parameters), receivers=to, keep=keep)


def use(parts: tuple[str, ...] = ("transform",), receivers: Any = None, **parameters: Any) -> JobSpec:
    data = rows(form="new-rows", owners=("owner-1",), scales=(3, 3, 3))
    to = {"client": parts} if receivers is None else receivers
    return JobSpec(data=data, analysis=UseModel(model="m", **parameters), receivers=to)


FAULTS = [
    ("data.form", lambda: rows(form="cells")),
    ("data.owners", lambda: rows(owners=())),
    ("data.owners", lambda: rows(owners=("north", "north"))),
    ("data.owners", lambda: rows(owners=("servers",))),
    ("data.owners", lambda: rows(owners=("Patients of ward 3.csv",))),
    ("data.columns", lambda: rows(columns=())),
    ("data.columns", lambda: rows(columns=("a", "a"))),
    ("data.columns", lambda: rows(columns=("a", "b\x1b[2J"))),
    ("data.columns", lambda: rows(columns=tuple(f"c{i}" for i in range(65537)))),
    ("data.columns", lambda: rows(columns=BY_OWNER)),
    ("data.columns", lambda: columns(columns={"owner-1": ("a",)})),
    ("data.columns", lambda: columns(columns={"owner-1": ("a",), "owner-2": ()})),
    ("data.columns.count", lambda: ColumnList(count=0, digest="0" * 64)),
    ("data.columns.digest", lambda: ColumnList(count=3, digest="0")),
    ("data.tables", lambda: rows(tables=(3, 3))),
    ("data.tables", lambda: rows(owners=("owner-1",), tables=(3, 2))),
    ("data.missing", lambda: rows(missing="zero")),
    ("data.missing", lambda: rows(form="wide-rows", missing="mean")),
    ("data.align", lambda: rows(align=Align())),
    ("data.align", lambda: columns(align=None)),
    ("data.align.alignment", lambda: Align(alignment="sorted")),
    ("data.align.namespace", lambda: Align(alignment="namespace")),
    ("data.align.namespace", lambda: Align(namespace=5)),
    ("data.align.minimum", lambda: Align(minimum=0)),
    ("data.align.row_share_at_most", lambda: columns(align=Align(row_share_at_most=0.5))),
    ("data.standardize", lambda: rows(standardize=1)),
    ("data.rows_at_least", lambda: rows(rows_at_least=0)),
    ("data.add_to", lambda: columns(add_to="m")),
    ("data.scales", lambda: rows(scales=(1, 2, 3))),
    ("data.scales", lambda: rows(form="new-rows")),
    ("data.scales", lambda: rows(form="new-rows", scales=(1, 2))),
    ("data.scales", lambda: rows(form="new-rows", scales=(1, 2, 501))),
    ("data.chunks", lambda: rows(chunks=2)),
    ("analysis.components", lambda: pca(components=4)),
    ("analysis.components", lambda: pca(components=0)),
    ("analysis.components", lambda: pca(components=1.5)),
    ("analysis.components", lambda: pca(components=True)),
    ("analysis.solver", lambda: pca(solver="lanczos")),
    ("analysis.solver", lambda: pca(solver="topk")),
    ("analysis.tol", lambda: pca(tol=0.5)),
    ("analysis.tol", lambda: pca(tol=float("nan"))),
    ("analysis.fixed_iterations", lambda: pca(fixed_iterations=0)),
    ("analysis.max_iterations", lambda: pca(max_iterations=100_001)),
    ("data.form", lambda: JobSpec(data=rows(), analysis=UseModel(model="m"), receivers={"client": ("transform",)})),
    ("receivers", lambda: pca(receivers={})),
    ("receivers", lambda: pca(receivers={"servers": ("model",)})),
    ("receivers.client", lambda: pca(receivers={"client": ("covariance",)})),
    ("receivers.owner-1", lambda: pca(receivers={"owner-1": ("loadings",)})),
    ("receivers.client", lambda: pca(columns(), {"client": ("loadings",)})),
    ("receivers.owner-1", lambda: pca(columns(), {"owner-1": ("loadings", "components")})),
    ("keep.allow", lambda: Keep(allow={"print": ("client",)}, name="m")),
    ("keep.allow", lambda: Keep(allow={"transform": ("servers",)}, name="m")),
    ("keep", lambda: Keep(allow={})),
    ("receivers", lambda: use(receivers={"client": ("transform",), "other": ("transform",)})),
    ("receivers.client", lambda: use(())),
    ("receivers.client", lambda: use(("inverse",))),
    ("receivers.client", lambda: use(("transform", "scores"))),
    ("analysis.threshold", lambda: use(("flags",))),
    ("analysis.threshold", lambda: use(("flags",), threshold=1.0, contamination=0.1)),
    ("analysis.threshold", lambda: use(threshold=1.0)),
    ("analysis.threshold", lambda: use(("flags",), threshold=-1.0)),
    ("analysis.contamination", lambda: use(("flags",), contamination=0.6)),
]


@pytest.mark.parametrize(("field", "make"), FAULTS, ids=[f"{n}-{field}" for n, (field, _) in enumerate(FAULTS)])
def test_a_fault_is_refused_by_its_field(field: str, make: Any) -> None:
    with pytest.raises(SpecError) as refused:
        make()
    assert refused.value.field == field
    assert refused.value.cause


JOBS = [
    pca(),
    pca(rows(missing="mean", rows_at_least=100, check_inputs=True), components=0.9, tol=1e-6),
    pca(rows(owners=("owner-1",), tables=(3, 3)), components=2, solver="topk", fixed_iterations=4),
    pca(rows(form="wide-rows", standardize=True), components=1),
    pca(columns(align=Align(row_share_at_most=0.75), check_inputs=True), {"owner-1": ("loadings", "variances")}),
    pca(columns(align=Align(alignment="namespace", namespace=9), chunks=3), {}, Keep(allow={"flags": ()}, name="m")),
    pca(rows(columns=ColumnList(count=70000, digest="f" * 64)), components=5),
    use(),
    use(("scores", "flags"), contamination=0.1, model_owners=OWNERS),
]


@pytest.mark.parametrize("job", JOBS, ids=range(len(JOBS)))
def test_plain_data_and_back(job: JobSpec) -> None:
    data = as_data(job)
    assert job_of(data) == job
    assert as_data(job_of(data)) == data


PLACES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(), st.text(max_size=4), st.just([]), st.just({})
)


@given(job=st.sampled_from(JOBS), choice=st.data())
def test_other_plain_data_are_refused_by_name(job: JobSpec, choice: Any) -> None:
    """One changed place of plain data gives another job or a `SpecError`, no other exception."""
    data = copy.deepcopy(as_data(job))
    inner = data[choice.draw(st.sampled_from(sorted(data)))]
    inner[choice.draw(st.one_of(st.sampled_from([*sorted(inner), "unknown"]), st.text(max_size=3)))] = choice.draw(
        PLACES
    )
    with contextlib.suppress(SpecError):
        found = job_of(data)
        assert job_of(as_data(found)) == found


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("analysis.name", {"analysis": {"name": "pca/99"}}),
        ("analysis.speed", {"analysis": {"name": "pca/1", "speed": 3}}),
        ("speed", {"speed": 3}),
        ("data.owners", {"data": {"form": "rows", "columns": ["a"]}}),
        ("data.owners", {"data": {"form": "rows", "owners": "north", "columns": ["a"]}}),
        ("data", {"data": None}),
        ("receivers.client", {"receivers": {"client": "model"}}),
    ],
)
def test_plain_data_with_a_fault(field: str, change: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as refused:
        job_of(as_data(pca()) | change)
    assert refused.value.field == field


@pytest.mark.parametrize("job", JOBS, ids=range(len(JOBS)))
def test_each_opening_is_listed_once_and_explained(job: JobSpec) -> None:
    found = openings(job)
    assert len({(line.what, line.to) for line in found}) == len(found)
    assert {line.to for line in found} <= {SERVERS, *job.receivers}
    assert all(line.most >= 1 and line.meaning == MEANING[line.what] for line in found)


def test_a_job_of_qr_may_open_a_bit_for_every_iteration() -> None:
    data = rows(columns=tuple(f"c{i}" for i in range(400)))
    (line,) = [line for line in openings(pca(data, solver="qr")) if line.what == "convergence bit"]
    assert line.most > 400 * 2.75


def test_an_analysis_from_outside() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Totals(Analysis):
        """Column totals."""

        NAME: ClassVar[str] = "totals/1"
        FORMS: ClassVar[frozenset[str]] = frozenset({"rows"})
        PARTS: ClassVar[tuple[str, ...]] = ("totals",)
        digits: int = 3

        def openings(self, job: JobSpec) -> list[AllowedOpening]:
            return [AllowedOpening("number of rows", name) for name in job.receivers]

    register(Totals)
    try:
        job = JobSpec(data=rows(), analysis=Totals(digits=5), receivers={"client": ("totals",)})
        assert job_of(as_data(job)) == job
        assert [line.to for line in openings(job)] == ["client"]
        with pytest.raises(ValueError, match="totals/1 is registered already"):
            register(replace_name(Totals))
    finally:
        del ANALYSES["totals/1"]


def replace_name(analysis: type[Analysis]) -> type[Analysis]:
    """Another class of the same name."""
    return type("Other", (analysis,), {})


def test_a_job_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        pca().data.form = "columns"  # type: ignore[misc]
    assert replace(pca(), receivers={"client": ("means",)}) != pca()
