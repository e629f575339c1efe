"""Estimate rounds, bytes and time of a fit from public numbers.

Rounds and bytes of the default solvers follow from public numbers and the number of iterations. The coefficients are
fitted to counted jobs of 4 to 80 columns, 2 to 10 owners and 7 to 24 iterations, those of `topk` to jobs of 200 to
1,000 columns, those of more columns than rows to jobs of 10 to 260 rows and 40 to 800 columns;
`tests/estimator/test_forecast.py` counts others. The number of iterations depends on the data unless it is fixed, so it
is a guess. A fallback to another solver is not included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..algorithms.allpairs import is_checked, regularisation
from ..algorithms.solvers import TOPK, chosen_solver
from ..algorithms.topk import block_size
from ..owner.wide import padded
from .plan import Plan

ROUND_SECONDS = 8.4e-4
BYTE_SECONDS = 1.56e-8
"""Seconds per byte that a server sends, for four local servers on two cores, from the accuracy table of
docs/evaluation/benchmarks.md. Over a network, add the rounds times its delay, and the bytes over its speed."""

VALUE_BYTES = 16.0
VALUE_SECONDS = 2.5e-7
"""Seconds per value of column owners and wide tables: upload, tags and second moments."""


@dataclass(frozen=True)
class Forecast:
    """Estimate of a whole job. bytes: of the busiest server, sent bytes plus received uploads."""

    seconds: float
    rounds: float
    bytes: float


def forecast(plan: Plan, width: int, owners: int, values: int = 0, iterations: float | None = None) -> Forecast | None:
    """Return the estimate for numbers of columns, owners and uploaded values; None for solvers that were not measured.

    iterations: number of iterations, if known; None: guess it.
    """
    solver = chosen_solver(plan.analysis.solver, width, plan.analysis.components, plan.analysis.fixed_iterations)
    if solver not in ("allpairs", TOPK):
        return None
    by_columns = plan.partition != "rows"
    if solver == TOPK:
        loops = LOOPS if iterations is None else iterations
        rounds = 315 + 158 * loops
        sent = _few(width, int(plan.analysis.components or 1), loops, plan.standardize)
    else:
        fixed = plan.analysis.fixed_iterations
        top = _some(plan, width) and fixed is None
        made = iterations or fixed or _guess(width, top)
        rounds = 9 * made + 2 * math.log2(max(2, width)) + 54 + 3 * plan.standardize + 4 * top
        rounds -= (10 if plan.standardize else 7) * by_columns
        sent = _solved(width, made, plan.analysis.tol, top) + 111 * width**2 * plan.standardize
        sent += 139 * width * _revealed(plan, width)
    if not by_columns:
        sent += owners * (20 * width**2 + 3050 * width)
    seconds = rounds * ROUND_SECONDS + sent * BYTE_SECONDS + values * VALUE_SECONDS
    return Forecast(seconds, rounds, sent + values * VALUE_BYTES)


def forecast_of(plan: Plan, widths: Sequence[int], rows: Sequence[int | None], means: bool = False) -> Forecast | None:
    """Return the estimate for tables of these numbers of columns and rows (None: unknown); None if the solver was not
    measured.

    means: whether missing values count as means. The covariance is then formed of fewer rows than columns, too.
    """
    by_columns = plan.partition != "rows"
    width = sum(widths) if by_columns else widths[0]
    known = [count for count in rows if count is not None]
    joint = min(known, default=width) if by_columns else sum(map(padded, known))
    if len(known) == len(rows) and joint < width and not means:
        return forecast_wide(plan, width, joint)
    values = sum((count or 0) * own for count, own in zip(rows, widths, strict=True)) if by_columns else 0
    return forecast(plan, width, len(widths), values)


def forecast_wide(plan: Plan, width: int, rows: int, iterations: float | None = None) -> Forecast | None:
    """Return the estimate for a wide table: decompose the Gram matrix X X', then compute components from its
    eigenvectors.

    rows: including the rows of zeros that row owners add.
    """
    by_columns = plan.partition != "rows"
    solved = forecast(replace(plan, partition="rows", standardize=False), rows, 0, 0, iterations)
    if solved is None:
        return None
    made = _revealed(plan, rows)
    if by_columns:
        rounds, sent = 25 - 6 * plan.standardize, (580 * made + 4_400) * width
    else:
        rounds = 64 + 16 * plan.standardize
        sent = (500 * made + 12_400) * width + 7 * rows**2 + 115 * rows * width * plan.standardize
    values = rows * width
    seconds = solved.seconds + rounds * ROUND_SECONDS + sent * BYTE_SECONDS + values * VALUE_SECONDS
    return Forecast(seconds, solved.rounds + rounds, solved.bytes + sent + values * VALUE_BYTES)


LOOPS = 2
"""Typical number of loops of `topk`."""


def _few(width: int, components: int, loops: float, standardize: bool) -> float:
    """Return the bytes of covariance and `topk`, which sends columns of its block."""
    block = block_size(components, width)
    return (
        (140 if standardize else 63) * width**2 + (780 + 500 * loops) * width * block + (9200 + 2100 * loops) * block**2
    )


def _guess(width: int, top: bool) -> float:
    """Return the typical number of iterations. Hard spectra need up to 50% more; easy ones need half."""
    return (0.85 if top else 1.0) * (1 + 3 * math.log2(max(2, width)))


def _solved(width: int, iterations: float, tol: float, top: bool) -> float:
    """Return the bytes of covariance, iterations, verification and sort. Keys of tables get longer as delta
    decreases."""
    smallest = max(tol, 64 * math.sqrt(width) * 2.0**-40)
    bits = sum(-math.log2(regularisation(step, smallest)) for step in range(round(iterations)))
    checks = sum(is_checked(done, width) for done in range(round(iterations))) if top else 0
    per_entry = 192 * iterations + 3.41 * bits + 172 * checks + 40
    return per_entry * width**2 + 10_800 * iterations + 1550 * width * math.log2(max(2, width)) + 14_200


def _some(plan: Plan, width: int) -> bool:
    """Return whether fewer components than all are requested, so that the convergence bit concerns only these."""
    wanted = plan.analysis.components
    return wanted is not None and 1 <= wanted < width


def _revealed(plan: Plan, width: int) -> float:
    return float(plan.analysis.components or width) if _some(plan, width) else width
