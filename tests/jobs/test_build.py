"""Jobs from options: defaults and forms that follow from the owners and the columns."""

from __future__ import annotations

import pytest

from ppca.jobs.build import infer_job, iterations_for, pca_job
from ppca.jobs.checks import SpecError
from ppca.jobs.infer import UseModel
from ppca.jobs.pca import JointPCA
from ppca.jobs.spec import (
    COLUMNS,
    COORDINATES,
    NEW_COLUMNS,
    NEW_ROWS,
    ROW_SHARE,
    ROWS,
    WIDE_COLUMNS,
    WIDE_ROWS,
    Align,
    JobSpec,
)

OWNERS = ("north", "south")
TO = {"analyst": ["model"]}
BY_OWNER = {"south": ["c"], "north": ["a", "b"]}


def test_the_form_follows_from_columns_and_shape() -> None:
    assert pca_job(OWNERS, ["a"], TO).data.form == ROWS
    assert pca_job(OWNERS, ["a"], TO, wide=True).data.form == WIDE_ROWS
    assert pca_job(OWNERS, BY_OWNER, TO).data.form == COLUMNS
    assert pca_job(OWNERS, BY_OWNER, TO, wide=True).data.form == WIDE_COLUMNS
    use = UseModel(model="m")
    assert infer_job(OWNERS, ["a"], {"analyst": ["transform"]}, use, [3]).data.form == NEW_ROWS
    assert infer_job(OWNERS, BY_OWNER, {"analyst": ["transform"]}, use, [3, 3, 3]).data.form == NEW_COLUMNS
    assert infer_job(OWNERS, ["a"], {"analyst": ["inverse"]}, use, [3], coordinates=True).data.form == COORDINATES


def test_columns_come_in_the_order_of_the_owners() -> None:
    assert pca_job(OWNERS, BY_OWNER, TO).data.column_names == ["a", "b", "c"]
    with pytest.raises(SpecError) as refused:
        pca_job(OWNERS, BY_OWNER | {"east": ["d"]}, TO)
    assert refused.value.field == "data.columns"


def test_iterations_are_fixed_for_allpairs_only() -> None:
    def count(job: JobSpec) -> int | None:
        assert isinstance(job.analysis, JointPCA)
        return job.analysis.fixed_iterations

    many = [f"c{i}" for i in range(300)]
    assert count(pca_job(OWNERS, ["a", "b"], TO)) is None
    assert count(pca_job(OWNERS, ["a", "b"], TO, fixed=True)) == iterations_for(2) == 15
    assert count(pca_job(OWNERS, ["a", "b"], TO, JointPCA(fixed_iterations=4), fixed=True)) == 4
    assert count(pca_job(OWNERS, ["a", "b"], TO, JointPCA(solver="jacobi"), fixed=True)) is None
    assert count(pca_job(OWNERS, many, TO, JointPCA(components=5), fixed=True)) is None, "topk"


def test_members_of_a_federation_are_checked_unless_they_are_alone() -> None:
    def checks(job: JobSpec) -> tuple[bool, float | None]:
        return job.data.check_inputs, None if job.data.align is None else job.data.align.row_share_at_most

    assert checks(pca_job(OWNERS, BY_OWNER, TO)) == (False, None)
    assert checks(pca_job(OWNERS, BY_OWNER, TO, federated=True)) == (True, ROW_SHARE)
    assert checks(pca_job(OWNERS, BY_OWNER, TO, federated=True, align=Align(row_share_at_most=0.5))) == (True, 0.5)
    assert checks(pca_job(OWNERS, BY_OWNER, TO, federated=True, align=Align(row_share_at_most=1))) == (True, None)
    assert checks(pca_job(OWNERS, BY_OWNER, TO, federated=True, wide=True)) == (True, None)
    assert checks(pca_job(["north"], {"north": ["a"]}, TO, federated=True)) == (False, None)
    assert checks(pca_job(OWNERS, ["a"], TO, federated=True)) == (True, None)
    use = infer_job(["north"], ["a"], {"analyst": ["transform"]}, UseModel(model="m"), [3], federated=True)
    assert checks(use) == (True, None)
