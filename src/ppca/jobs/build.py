"""Build jobs from options, for every interface: `PCA`, `ppca fit`, `ppca job new`, `ppca job use` and federations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..algorithms.solvers import chosen_solver
from .infer import UseModel
from .pca import JointPCA
from .regression import JointRegression
from .spec import (
    COLUMNS,
    COORDINATES,
    NEW_COLUMNS,
    NEW_ROWS,
    ROW_SHARE,
    ROWS,
    USES_SCALES,
    WIDE_COLUMNS,
    WIDE_ROWS,
    Align,
    ColumnList,
    Columns,
    Data,
    JobSpec,
    Keep,
)

OwnNames = Sequence[str] | ColumnList


def pca_job(
    owners: Sequence[str],
    columns: OwnNames | Mapping[str, OwnNames],
    receivers: Mapping[str, Sequence[str]],
    analysis: JointPCA | None = None,
    *,
    wide: bool = False,
    federated: bool = False,
    fixed: bool = False,
    align: Align | None = None,
    keep: Keep | None = None,
    **data: Any,
) -> JobSpec:
    """Return a job that computes a joint PCA: of column owners if `columns` is a mapping by owner, otherwise of row
    owners.

    wide: there are fewer rows than columns. federated: the owners are members of a federation and do not trust each
    other.
    fixed: let all-pairs run a number of iterations that follows from the columns, and open no convergence bits. data:
    other fields of `Data`. A limit of the share of a row of 1 means none.
    """
    form = (WIDE_COLUMNS if wide else COLUMNS) if isinstance(columns, Mapping) else WIDE_ROWS if wide else ROWS
    made = _data(form, owners, columns, align, federated, data)
    analysis = analysis or JointPCA()
    solver = chosen_solver(analysis.solver, made.width, analysis.components)
    if fixed and analysis.fixed_iterations is None and solver == "allpairs":
        analysis = replace(analysis, fixed_iterations=iterations_for(made.width))
    return JobSpec(data=made, analysis=analysis, receivers=_tuples(receivers), keep=keep)


def infer_job(
    owners: Sequence[str],
    columns: OwnNames | Mapping[str, OwnNames],
    receivers: Mapping[str, Sequence[str]],
    analysis: UseModel,
    scales: Sequence[int],
    *,
    coordinates: bool = False,
    federated: bool = False,
    align: Align | None = None,
    **data: Any,
) -> JobSpec:
    """Return a job that uses a kept model on new rows or, if `coordinates`, on coordinates. data: other fields of
    `Data`."""
    form = NEW_COLUMNS if isinstance(columns, Mapping) else COORDINATES if coordinates else NEW_ROWS
    data |= {"scales": tuple(int(exponent) for exponent in scales)}
    made = _data(form, owners, columns, align, federated, data)
    return JobSpec(data=made, analysis=analysis, receivers=_tuples(receivers))


def regression_job(
    owners: Sequence[str],
    columns: OwnNames | Mapping[str, OwnNames],
    receivers: Mapping[str, Sequence[str]],
    analysis: JointRegression,
    *,
    federated: bool = False,
    align: Align | None = None,
    **data: Any,
) -> JobSpec:
    """Return a joint regression: of column owners, if columns are given by owner. data: other fields of `Data`."""
    form = COLUMNS if isinstance(columns, Mapping) else ROWS
    made = _data(form, owners, columns, align, federated, {"standardize": True} | data)
    return JobSpec(data=made, analysis=analysis, receivers=_tuples(receivers))


def checks_inputs(form: str, owners: int) -> bool:
    """Return whether the servers of a federation check what owners send: if there are several, or if a kept model is
    used."""
    return owners > 1 or form in USES_SCALES


def iterations_for(width: int) -> int:
    """Iterations of all-pairs that are enough for all matrices that were tried; too few are found by verification."""
    return 12 + 3 * math.ceil(math.log2(max(2, width)))


def _data(
    form: str,
    owners: Sequence[str],
    columns: OwnNames | Mapping[str, OwnNames],
    align: Align | None,
    federated: bool,
    more: Mapping[str, Any],
) -> Data:
    checks = federated and checks_inputs(form, len(owners))
    if form in (COLUMNS, WIDE_COLUMNS, NEW_COLUMNS):
        align = align or Align()
        share = align.row_share_at_most
        share = (ROW_SHARE if share is None else share) if checks and form == COLUMNS else None
        align = replace(align, row_share_at_most=None if share == 1 else share)
    named: Columns
    if isinstance(columns, Mapping):
        place = {owner: number for number, owner in enumerate(owners)}
        whose = sorted(columns, key=lambda owner: place.get(owner, len(place)))
        named = {owner: _names(columns[owner]) for owner in whose}
    else:
        named = _names(columns)
    return Data(form=form, owners=tuple(owners), columns=named, align=align, check_inputs=checks, **more)


def _names(columns: OwnNames) -> tuple[str, ...] | ColumnList:
    return columns if isinstance(columns, ColumnList) else tuple(columns)


def _tuples(receivers: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {receiver: tuple(parts) for receiver, parts in receivers.items()}
