"""The certificate of the largest eigenpairs: that no larger eigenvalue than the K-th is missing, up to a tenth.

Let V and theta be the K pairs that were found, B = A - V theta V' what is left, and beta a little above theta_K. If nothing is
missing, all eigenvalues of B lie in [0, beta], T_j(2 B / beta - 1) has norm at most one for every j, and public random columns
g stay as long as they are. If an eigenvalue above (1 + MARGIN) beta is left, T_m makes its part of g grow past that, unless g is
nearly orthogonal to its eigenvector, which happens with probability `misses`.

    1. 2 / beta from a table of theta_K                                                     2 rounds
    2. V theta 2 / beta; then for j = 1 .. m, with the first product free (g is public)       2 m + 1
         r1   A P | V'P        r2   (A P) 2 / beta | (V theta 2 / beta)(V'P)
    3. |P_j|^2 <= (1 + SLACK) |g|^2 for EVERY j: so the first P_j that grows is seen before anything can overflow; one bit   4
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..protocol import stack, together
from .whitening import gaussian

PROBES = 8
"""Public random columns."""

MARGIN = 0.1
"""Eigenvalues above 1 + MARGIN times beta are excluded."""

SLACK = 2.0**-6
"""What rounding may add to the squared length of the probes."""

MISSES = 2.0**-40
"""The probability with which one of them is missed all the same."""

STEPS_PER_OCTAVE = 128

FLOOR = 2.0**-18
"""The smallest beta: below it the rounding of A to 40 bits would count."""


def excluded(theta: float) -> float:
    """Eigenvalues above this are not missing, given the K-th that was found."""
    return (1 + MARGIN) * (1 + 2.0**-10) * max(theta * math.pow(2, 1 / STEPS_PER_OCTAVE), FLOOR)


def promise() -> dict[str, float]:
    """What a passed certificate says, for whoever receives the result: eigenvalues above `factor` times the smallest that was
    found, and above `floor` times |A|_F, are not missing, but with `probability`."""
    return {"factor": excluded(1.0), "floor": 2 * excluded(0.0), "probability": MISSES}


def degree(d: int) -> int:
    """The smallest m for which `misses` stays below MISSES."""
    return next(m for m in range(1, 64) if misses(d, m) <= MISSES)


def misses(d: int, m: int) -> float:
    """The probability that an eigenvalue of (1 + MARGIN) beta passes.

    Its eigenvector v grows by T = T_m(1 + 2 MARGIN). What is left of the probes is no shorter than T (v'g), so passing needs a
    chi-square of PROBES degrees, d sum (v'g)^2, below PROBES a with a = (1 + SLACK) d / T^2, and that has (Chernoff) at most
    (a e^(1 - a))^(PROBES / 2).
    |g|^2 itself is public, and taken into account by the bound that is compared with.
    """
    growth = math.cosh(m * math.acosh(1 + 2 * MARGIN))
    a = (1 + SLACK) * d / growth**2
    return 1.0 if a >= 1 else (a * math.exp(1 - a)) ** (PROBES / 2)


async def none_is_missing(A: Any, values: Any, vectors: Any, run: str) -> Any:
    """A shared bit: no eigenvalue above `excluded(theta_K)` is missing. values: descending; vectors: as rows."""
    d = len(A)
    g = gaussian(run, "probes", (d, PROBES), d**-0.5)
    g *= math.sqrt(PROBES / np.sum(g * g))  # on average of length one each: then a is what `misses` says
    probes = np.round(np.ldexp(g, 24)) * 2.0**-24
    V = vectors.T
    top = 2.0
    octaves = np.arange(math.log2(FLOOR) * STEPS_PER_OCTAVE, STEPS_PER_OCTAVE) / STEPS_PER_OCTAVE
    beta = np.append(FLOOR, 2.0 ** (octaves + 1 / STEPS_PER_OCTAVE)) * (1 + 2.0**-10)
    scale = (await values[-1].within(top).lookup(2.0**octaves, 2 / beta, 24)).within(2 / FLOOR)
    scaled = (await V.mul(values, within=1.5)).within(1.5)
    scaled = (await scaled.mul(scale, frac=40, within=2 / FLOOR)).within(2 / FLOOR)
    before, now, lengths = None, None, []
    for _ in range(degree(d)):
        if now is None:
            product, inside = (A @ probes).within(2), (V.T @ probes).within(2)
        else:
            product, inside = await together(A.matmul(now, within=4, narrow=True), V.T.matmul(now, within=4))
        grown, taken = await together(
            product.within(4).mul(scale, frac=40, within=2.0**20), scaled.matmul(inside.within(4), within=2.0**20)
        )
        turned = grown - taken
        if now is None:
            before, now = probes, (turned - probes).within(4)
        else:
            before, now = now, ((turned - now) * 2 - before).within(4)
        lengths.append(now)
    squares = await together(*(P.inner(P, frac=80) for P in lengths))
    bound = (1 + SLACK) * float(np.sum(probes * probes))
    inside = await stack(list(squares)).within(2.0**45).lookup([-1e-3, bound], [0, 1, 0], 0)
    return await (inside.sum() == len(lengths))
