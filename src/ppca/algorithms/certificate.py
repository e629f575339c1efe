"""The certificate of the largest eigenpairs: that no larger eigenvalue than the K-th is missing, up to a tenth.

Let V and theta be the K pairs that were found, with |A V - V theta|_F + |V'V - I|_F < r, B = A - V theta V' what is left, and
beta a little above theta_K. If nothing is missing, all eigenvalues of B lie in [-r, beta]: what is left out of V couples zeros
with the rest and can make an eigenvalue as small as -r, and a larger one larger by r^2 / beta, which is little. So with A + r
instead of A, for w = beta + r, T_j(2 (B + r) / w - 1) has norm at most one for every j, and public random columns g stay as long
as they are. If an eigenvalue above beta + MARGIN w is left, T_m makes its part of g grow past that, unless g is nearly
orthogonal to its eigenvector, which happens with probability `miss_probability`. No larger eigenvalue of A is then missing: A
has at most
K above the largest of B (Weyl). A second beta, a little above an estimate of the next eigenvalue, is tried beside it.

    1. c = 2 / w from a table of theta_K                                                    2 rounds
    2. V theta and c V; then for j = 1 .. m, with the first product free (g is public)        2 m
         r1   (A + r) P | (c V)'P    r2   ((A + r) P) c - V theta ((c V)'P), one product of blocks
    3. |P_j|^2 <= (1 + SLACK) |g|^2 for EVERY j: so the first P_j that grows is seen before anything can overflow; one bit   4
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..protocol import Held, concatenate, stack, together
from .whitening import gaussian

PROBES = 8
"""Public random columns."""

MARGIN = 0.1
"""Eigenvalues of B above beta by this part of beta + r are excluded."""

SLACK = 2.0**-6
"""What rounding may add to the squared length of the probes."""

MAX_MISS_PROBABILITY = 2.0**-40
"""The probability with which one of them is missed all the same."""

STEPS_PER_OCTAVE = 128

SCALE_FRAC = 24
"""Fractional bits of 2 / w and of what is multiplied by it first: an error of 2^-24 theta a step, far below SLACK."""

MIN_BETA = 2.0**-18
"""The smallest beta: below it the rounding of A to 40 bits would count."""

MIN_BETA_PER_RESIDUAL = 16
"""beta is at minimum so many times r: then r^2 / beta is below what the table leaves of room, a step of its own."""


MAX_ORTHOGONALITY_ERROR = 1e-7
"""|V'V - I|_F that verification allows: V theta V' then differs by so much from that of orthonormal vectors."""


def negative_range(residual: float) -> float:
    """r: how far below zero B may reach, if |A V - V theta|_F may be `residual`."""
    return residual + MAX_ORTHOGONALITY_ERROR


def min_beta(residual: float) -> float:
    """The smallest beta that is asked for, where |A V - V theta|_F may be `residual`."""
    return max(MIN_BETA, MIN_BETA_PER_RESIDUAL * negative_range(residual))


def max_missing(theta: float, residual: float) -> float:
    """Eigenvalues above this are not missing, given the K-th that was found and what |A V - V theta|_F may be."""
    beta = (1 + 2.0**-10) * max(theta * math.pow(2, 1 / STEPS_PER_OCTAVE), min_beta(residual))
    return beta + MARGIN * (beta + negative_range(residual))


def promise(residual: float) -> dict[str, float]:
    """What a passed certificate says, for whoever receives the result: eigenvalues above `factor` times the smallest that was
    found, and above `floor` times |A|_F, are not missing, but with `probability`."""
    minimum = min_beta(residual)
    return {
        "factor": max_missing(minimum, residual) / minimum,
        "floor": 2 * max_missing(0, residual),
        "probability": MAX_MISS_PROBABILITY,
    }


def chebyshev_degree(d: int) -> int:
    """The smallest m for which `miss_probability` stays below MAX_MISS_PROBABILITY."""
    return next(m for m in range(1, 64) if miss_probability(d, m) <= MAX_MISS_PROBABILITY)


def miss_probability(d: int, m: int) -> float:
    """The probability that an eigenvalue of beta + MARGIN (beta + r) passes.

    Its eigenvector v grows by T = T_m(1 + 2 MARGIN). What is left of the probes is no shorter than T (v'g), so passing needs a
    chi-square of PROBES degrees, d sum (v'g)^2, below PROBES a with a = (1 + SLACK) d / T^2, and that has (Chernoff) at most
    (a e^(1 - a))^(PROBES / 2).
    |g|^2 itself is public, and taken into account by the bound that is compared with.
    """
    growth = math.cosh(m * math.acosh(1 + 2 * MARGIN))
    a = (1 + SLACK) * d / growth**2
    return 1.0 if a >= 1 else (a * math.exp(1 - a)) ** (PROBES / 2)


async def no_eigenvalue_missing(
    A: Any, values: Any, vectors: Any, run: str, residual: float, following: Any = None
) -> tuple[Any, Any]:
    """A shared bit: no eigenvalue above `max_missing(theta_K, residual)` is missing; and a shared bound of all that are left out.

    values: descending; vectors: as rows. residual: a bound of |A V - V theta|_F that is verified beside; where it does not hold,
    the bit may be 0 without need. following: an estimate of the next eigenvalue, such as a Ritz value. The same probes go
    through a second recurrence with a beta just above it. If they stay as long as they are, the bound is
    `max_missing(following, residual)`, else `max_missing(theta_K, residual)`.
    """
    d = len(A)
    g = gaussian(run, "probes", (d, PROBES), d**-0.5)
    g *= math.sqrt(PROBES / np.sum(g * g))  # on average of length one each: then a is what `miss_probability` says
    anchors = values[-1:] if following is None else concatenate([values[-1:], following.reshape(1)])
    groups = [slice(PROBES * i, PROBES * (i + 1)) for i in range(len(anchors))]
    probes = np.tile(np.round(np.ldexp(g, 24)) * 2.0**-24, len(groups))
    V = vectors.T
    top, minimum, r = 2.0, min_beta(residual), negative_range(residual)
    steps = np.arange(math.floor(math.log2(minimum) * STEPS_PER_OCTAVE), STEPS_PER_OCTAVE) / STEPS_PER_OCTAVE
    beta = np.append(minimum, 2.0 ** (steps + 1 / STEPS_PER_OCTAVE)) * (1 + 2.0**-10)
    bounds = beta + MARGIN * (beta + r) + 2.0**-SCALE_FRAC
    found = await anchors.within(top).classify(2.0**steps, [2 / (beta + r), bounds], SCALE_FRAC)
    scale, bound = found[..., 0].within(2 / minimum), found[..., 1].within(2 * top)
    weighted, *scaled = await together(
        V.mul(values, within=1.5, narrow=True, only=Held.LEFT),
        *(V.mul(scale[i], frac=SCALE_FRAC, within=2 / minimum, narrow=True) for i in range(len(groups))),
    )
    scaled, largest = [one.within(2 / minimum) for one in scaled], 8 / minimum
    diagonal = scale[np.repeat(np.arange(len(groups)), PROBES)] * np.eye(probes.shape[1], dtype=np.int64)
    before, now, lengths = None, None, []
    for _ in range(chebyshev_degree(d)):
        if now is None:
            product = A @ probes + r * probes
            inside = [one.T @ probes[:, group] for one, group in zip(scaled, groups, strict=True)]
        else:
            product, *inside = await together(
                A.matmul(now, within=4, narrow=True, only=Held.LEFT),
                *(
                    one.T.matmul(now[:, group], frac=SCALE_FRAC, within=largest, narrow=True, only=Held.RIGHT)
                    for one, group in zip(scaled, groups, strict=True)
                ),
            )
            product = product + now * r
        left = concatenate([product.within(4), weighted.within(1.5)], 1)
        right = concatenate([diagonal, -concatenate(inside, 1)])
        turned = await left.matmul(right, frac=40, within=largest, narrow=True)
        if now is None:
            before, now = probes, (turned - probes).within(4)
        else:
            before, now = now, ((turned - now) * 2 - before).within(4)
        lengths += [now[:, group] for group in groups]
    squares = await together(*(P.inner(P, frac=80) for P in lengths))
    max_length = (1 + SLACK) * float(np.sum(probes[:, :PROBES] ** 2))
    inside = await stack(list(squares)).within(2.0**45).lookup([-1e-3, max_length], [0, 1, 0], 0)
    passed = await (inside.reshape(-1, len(groups)).sum(0) == len(lengths) // len(groups))
    if len(groups) == 1:
        return passed[0], bound[0]
    return passed[0], bound[0] + await (passed[1] * (bound[1] - bound[0]))
