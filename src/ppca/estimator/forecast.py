"""What a fit will take, from public numbers alone, so that nobody is surprised by a long job.

Rounds and bytes of the default solvers follow from public numbers and the number of iterations. The coefficients are fitted
to counted jobs of 4 to 80 columns, 2 to 10 owners and 7 to 24 iterations, those of `topk` to jobs of 200 to 1,000 columns;
`tests/estimator/test_forecast.py` counts others. How many iterations there will be depends on the data, unless they are fixed:
that is a guess. A fall-back to another solver is not foreseen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..algorithms.allpairs import is_checked, regularisation
from ..algorithms.solvers import TOPK, chosen
from ..algorithms.topk import block_size
from .choices import Choices

ROUND_SECONDS = 8.4e-4
BYTE_SECONDS = 1.56e-8
"""Of four local servers on two cores, per round and per byte that a server sends: the accuracy table of docs/benchmarks.md. Over
a network, add the rounds times its delay, and the bytes over its speed."""

VALUE_BYTES = 16.0
VALUE_SECONDS = 2.5e-7
"""Of owners of columns, per value: what a server receives, and tags, upload and second moments."""


@dataclass(frozen=True)
class Forecast:
    """Of the whole job; `bytes` of the busiest server, sent and received from owners of columns."""

    seconds: float
    rounds: float
    bytes: float


def forecast(
    choices: Choices, width: int, owners: int, values: int = 0, iterations: float | None = None
) -> Forecast | None:
    """For so many columns and owners, and so many values that owners of columns upload; None for solvers that were not measured.

    iterations: of a job that was made; None for a guess.
    """
    solver = chosen(choices.solver, width, choices.n_components, choices.fixed_iterations)
    if solver not in ("allpairs", TOPK):
        return None
    by_columns = choices.partition != "rows"
    if solver == TOPK:
        loops = LOOPS if iterations is None else iterations
        rounds = 315 + 158 * loops
        sent = _few(width, int(choices.n_components or 1), loops, choices.standardize)
    else:
        fixed = choices.fixed_iterations
        top = _some(choices, width) and fixed is None
        made = iterations or fixed or _guess(width, top)
        rounds = 9 * made + 2 * math.log2(max(2, width)) + 54 + 3 * choices.standardize + 4 * top - 10 * by_columns
        sent = _solved(width, made, choices.tol, top) + 111 * width**2 * choices.standardize
        sent += 139 * width * _revealed(choices, width)
    if not by_columns:
        sent += owners * (20 * width**2 + 3050 * width)
    seconds = rounds * ROUND_SECONDS + sent * BYTE_SECONDS + values * VALUE_SECONDS
    return Forecast(seconds, rounds, sent + values * VALUE_BYTES)


def forecast_of(choices: Choices, widths: Sequence[int], rows: Sequence[int | None]) -> Forecast | None:
    """For tables of these numbers of columns and rows (None: not known); None where no forecast is possible.

    The coefficients are those of covariances, which are not formed of fewer rows than columns.
    """
    by_columns = choices.partition != "rows"
    width = sum(widths) if by_columns else widths[0]
    values = sum((count or 0) * own for count, own in zip(rows, widths, strict=True)) if by_columns else 0
    known = [count for count in rows if count is not None]
    total = min(known, default=width) if by_columns else sum(known)
    wide = len(known) == len(rows) and total < width
    return None if wide else forecast(choices, width, len(widths), values)


LOOPS = 2
"""Loops that `topk` takes on ordinary data."""


def _few(width: int, components: int, loops: float, standardize: bool) -> float:
    """Bytes of covariance and `topk`: what travels are columns of its block."""
    block = block_size(components, width)
    return (
        (140 if standardize else 63) * width**2 + (780 + 500 * loops) * width * block + (9200 + 2100 * loops) * block**2
    )


def _guess(width: int, top: bool) -> float:
    """Iterations of ordinary data: hard spectra take up to half more, some need half as many."""
    return (0.85 if top else 1.0) * (1 + 3 * math.log2(max(2, width)))


def _solved(width: int, iterations: float, tol: float, top: bool) -> float:
    """Bytes of covariance, iteration, verification and sort. Keys of tables get longer as delta shrinks."""
    smallest = max(tol, 64 * math.sqrt(width) * 2.0**-40)
    bits = sum(-math.log2(regularisation(step, smallest)) for step in range(round(iterations)))
    checks = sum(is_checked(done, width) for done in range(round(iterations))) if top else 0
    per_entry = 192 * iterations + 3.41 * bits + 172 * checks + 40
    return per_entry * width**2 + 10_800 * iterations + 1550 * width * math.log2(max(2, width)) + 14_200


def _some(choices: Choices, width: int) -> bool:
    """Whether a number of components is asked for that is less than all: the convergence bit is then about these."""
    wanted = choices.n_components
    return wanted is not None and 1 <= wanted < width


def _revealed(choices: Choices, width: int) -> float:
    return float(choices.n_components or width) if _some(choices, width) else width
