"""The time that an attempt may run, from what its job asks for.

The limit is many times what a job of this size takes over a slow network. It keeps a member's job of a few columns from
holding the places of all four servers for as long as the largest job that they accept.
"""

from __future__ import annotations

from ..jobs.spec import JobSpec

BASE_SECONDS = 900.0
COLUMN_SECONDS = 20.0
"""Seconds for each column: rounds of cyclic Jacobi, the fallback, grow with the number of columns."""

ITERATION_SECONDS = 5.0
PAIR_SECONDS = 1e-4
"""Seconds for each pair of columns in each iteration."""

BYTES_PER_SECOND = 1 << 19
"""Rate at which inputs are handed over and read, at least."""

ITERATIONS = 60
"""Iterations of a job that does not set them."""

QR_ITERATIONS = 30
"""Iterations of the solver `qr` for each column."""


def iterations_of(job: JobSpec) -> int:
    """Return the largest number of iterations that a job asks for; 0 if it does not set one."""
    found = (getattr(job.analysis, name, None) for name in ("fixed_iterations", "max_iterations"))
    return max((count for count in found if count is not None), default=0)


def run_seconds(job: JobSpec, input_bytes: int) -> float:
    """Return the seconds that an attempt may take once it runs. input_bytes: of all owners' shares."""
    width = job.data.width
    usual = QR_ITERATIONS * width if getattr(job.analysis, "solver", None) == "qr" else ITERATIONS
    iterations = max(usual, iterations_of(job))
    steps = iterations * (ITERATION_SECONDS + PAIR_SECONDS * width**2)
    return BASE_SECONDS + COLUMN_SECONDS * width + steps + input_bytes / BYTES_PER_SECOND
