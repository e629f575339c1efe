"""The time that an attempt may run follows from its job."""

from __future__ import annotations

from harness.federation import job
from ppca.server.time_limits import iterations_of, run_seconds


def test_a_small_job_cannot_hold_the_servers_for_half_a_day() -> None:
    assert run_seconds(job().spec, 1 << 20) < 1800


def test_the_limit_grows_with_columns_iterations_and_inputs() -> None:
    few, many = (job(columns=[f"c{number}" for number in range(width)]).spec for width in (3, 1000))
    assert run_seconds(many, 0) > 20_000
    assert run_seconds(few, 10 << 30) > 20_000
    longer = job(fixed_iterations=1000).spec
    assert iterations_of(longer) == 1000
    assert run_seconds(longer, 0) > 5 * 1000
    assert run_seconds(job(columns=[f"c{number}" for number in range(300)], solver="qr").spec, 0) > 40_000
