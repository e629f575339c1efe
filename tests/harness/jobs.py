"""Jobs as plain data, as programs take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from ppca.estimator.job import Job
from ppca.estimator.plan import Plan
from ppca.estimator.rows import row_data
from ppca.jobs.chunks import Chunk
from ppca.jobs.infer import UseModel
from ppca.jobs.loading import as_data, job_of
from ppca.jobs.pca import JointPCA
from ppca.jobs.spec import CLIENT, NEW_ROWS, ROWS, JobSpec
from ppca.protocol import InputPacket

Receivers = Mapping[str, Sequence[str]]


def run_rows(servers: Any, job: Mapping[str, Any], *packets: list[InputPacket]) -> Any:
    """Run a job on rows, one packet after the other; return the opened answer."""
    return Job(servers).run_job(job_of(job), [Chunk(0, [each], rows=True) for each in packets])


def run_inputs(servers: Any, job: Mapping[str, Any], *packets: list[InputPacket]) -> Any:
    """Run a job on the inputs of row owners; return the opened answer."""
    return Job(servers).run_job(job_of(job), [Chunk(0, list(packets))])


PARAMETERS = {field.name for field in fields(JointPCA)}


def make_plan(n_components: Any = None, standardize: bool = False, **chosen: Any) -> Plan:
    """A plan. chosen: fields of `JointPCA` and of `Plan`."""
    analysis = {name: chosen.pop(name) for name in PARAMETERS & set(chosen)}
    return Plan(JointPCA(components=n_components, **analysis), standardize, **chosen)


def for_receivers(job: JobSpec, receivers: Receivers | None) -> JobSpec:
    """The job with other receivers."""
    return job if receivers is None else replace(job, receivers={name: tuple(p) for name, p in receivers.items()})


def fit_job(
    width: int,
    owners: int = 1,
    receivers: Receivers | None = None,
    rows_at_least: int | None = None,
    add_to: str | None = None,
    **chosen: Any,
) -> dict[str, Any]:
    """A fit of row owners. chosen: see `make_plan`."""
    data = row_data(ROWS, owners, width, rows_at_least=rows_at_least, add_to=add_to)
    return as_data(for_receivers(make_plan(**chosen).job(data), receivers))


def use_job(
    scales: Sequence[int],
    parts: Sequence[str],
    model: str = "m",
    receiver: str = CLIENT,
    standardize: bool = False,
    rows_at_least: int | None = None,
    check_inputs: bool = False,
    **limits: Any,
) -> dict[str, Any]:
    """A use of a kept model on rows. limits: threshold or contamination."""
    exponents = tuple(int(exponent) for exponent in scales)
    more = {"scales": exponents, "standardize": standardize, "rows_at_least": rows_at_least}
    data = row_data(NEW_ROWS, 1, len(exponents), check_inputs=check_inputs, **more)
    return as_data(JobSpec(data=data, analysis=UseModel(model=model, **limits), receivers={receiver: tuple(parts)}))
