"""What a fit will take, from public numbers alone, so that nobody is surprised by a long job.

The constants were measured with the default solver on two cores that four local servers share, 20 to 300 columns: `ppca fit`
prints rounds, bytes and seconds of every job. Over a network, add the rounds times its delay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .choices import Choices

ITERATION_BYTES = 660.0
"""Sent by a server in one iteration, per entry of the covariance."""

ITERATION_SECONDS = 1.1e-5
"""Of one iteration, per entry of the covariance: products, comparisons and their keys."""

ROUND_SECONDS = 1.5e-3
VALUE_BYTES = 16.0
VALUE_SECONDS = 2.5e-7
"""Of owners of columns, per value: what a server receives, and tags, upload and second moments."""

ROUNDS = 75
"""Besides those of the iterations, of nine rounds each."""


@dataclass(frozen=True)
class Forecast:
    """Of the whole job; `bytes` of the busiest server, sent and received from owners."""

    seconds: float
    bytes: float


def forecast(choices: Choices, width: int, values: int = 0) -> Forecast | None:
    """For so many columns, and so many values that owners of columns upload; None for solvers that were not measured."""
    if choices.solver != "allpairs":
        return None
    iterations = choices.fixed_iterations or 2 + 1.6 * math.log2(max(2, width))
    work = iterations * width**2
    rounds = ROUNDS + 9 * iterations
    return Forecast(
        work * ITERATION_SECONDS + rounds * ROUND_SECONDS + values * VALUE_SECONDS,
        work * ITERATION_BYTES + values * VALUE_BYTES,
    )
