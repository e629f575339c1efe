"""Certificate of the largest eigenpairs: shows on shares that no eigenvalue more than a tenth above the K-th one is
missing.

V (d x K) and theta are the K pairs that were found, with |A V - V theta|_F + |V'V - I|_F < r. B = A - V theta V' is the
rest of A, and beta is slightly above theta_K. T_j is the Chebyshev polynomial of degree j, w = beta + r.

If no larger eigenvalue is missing, all eigenvalues of B lie in [-r, beta]: the error of V couples zero eigenvalues with
the rest. It can make an eigenvalue as small as -r, and a larger one larger by r^2 / beta, which is little. Then T_j(2
(B + r) / w - 1) has norm at most one for every j, and public random columns g do not grow. If B has an eigenvalue above
beta + MARGIN w, T_m makes its part of g grow beyond that, unless g is nearly orthogonal to its eigenvector, which
happens with at most `miss_probability`. So if g does not grow, no larger eigenvalue of A is missing: A has at most K
eigenvalues above the largest of B (Weyl). A second beta, slightly above an estimate of the next eigenvalue, is tested
in parallel.

    1. c = 2 / w from a table of theta_K                                                    2 rounds
    2. V theta and c V; then for j = 1 .. m, with the first product free (g is public)        2 m
         r1   (A + r) P | (c V)'P    r2   ((A + r) P) c - V theta ((c V)'P), one product of blocks
    3. |P_j|^2 <= (1 + SLACK) |g|^2 for EVERY j, so the first P_j that grows is seen before any overflow; one bit   4
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..protocol import Held, concatenate, stack, together
from .whitening import gaussian

PROBES = 8
"""Number of public random columns g."""

MARGIN = 0.1
"""Eigenvalues of B above beta + MARGIN (beta + r) are excluded."""

SLACK = 2.0**-6
"""Relative increase of the squared length of the probes that rounding may cause."""

MAX_MISS_PROBABILITY = 2.0**-40
"""Maximum probability that a missing eigenvalue is not detected."""

STEPS_PER_OCTAVE = 128
"""Steps per octave of the table of beta."""


SCALE_FRAC = 24
"""Fractional bits of 2 / w and of the first products with it: an error of 2^-24 theta per step, far below SLACK."""

MIN_BETA = 2.0**-18
"""Minimum of beta. Below it the rounding of A to 40 bits would matter."""

MIN_BETA_PER_RESIDUAL = 16
"""Minimum of beta / r. Then r^2 / beta is below the slack of the table of beta, one of its steps."""


MAX_ORTHOGONALITY_ERROR = 1e-7
"""Bound on |V'V - I|_F in verification. V theta V' then differs by as much from that of orthonormal vectors."""


def negative_range(residual: float) -> float:
    """Return r: the eigenvalues of B lie above -r if |A V - V theta|_F is at most `residual`."""
    return residual + MAX_ORTHOGONALITY_ERROR


def min_beta(residual: float) -> float:
    """Return the minimum of beta if |A V - V theta|_F is at most `residual`."""
    return max(MIN_BETA, MIN_BETA_PER_RESIDUAL * negative_range(residual))


def max_missing(theta: float, residual: float) -> float:
    """Return the bound above which eigenvalues are not missing, from the K-th one found and a bound on |A V - V
    theta|_F.
    """
    beta = (1 + 2.0**-10) * max(theta * math.pow(2, 1 / STEPS_PER_OCTAVE), min_beta(residual))
    return beta + MARGIN * (beta + negative_range(residual))


def promise(residual: float) -> dict[str, float]:
    """Return the statement of a passed certificate for the receiver.

    Eigenvalues are not missing, except with `probability`, if they are above `factor` times the smallest one found and
    above `floor` times |A|_F.
    """
    minimum = min_beta(residual)
    return {
        "factor": max_missing(minimum, residual) / minimum,
        "floor": 2 * max_missing(0, residual),
        "probability": MAX_MISS_PROBABILITY,
    }


def chebyshev_degree(d: int) -> int:
    """Return the smallest m for which `miss_probability` is at most MAX_MISS_PROBABILITY."""
    return next(m for m in range(1, 64) if miss_probability(d, m) <= MAX_MISS_PROBABILITY)


def miss_probability(d: int, m: int) -> float:
    """Return the probability that a missing eigenvalue beta + MARGIN (beta + r) is not detected with degree m.

    The part of the probes along its eigenvector v grows by T = T_m(1 + 2 MARGIN), so their length after m steps is at
    least T (v'g). A pass needs a chi-square variable of PROBES degrees of freedom, d sum (v'g)^2, below PROBES a with a
    = (1 + SLACK) d / T^2. This has probability at most (a e^(1 - a))^(PROBES / 2) (Chernoff). The comparison uses the
    actual |g|^2, which is public.
    """
    growth = math.cosh(m * math.acosh(1 + 2 * MARGIN))
    a = (1 + SLACK) * d / growth**2
    return 1.0 if a >= 1 else (a * math.exp(1 - a)) ** (PROBES / 2)


async def no_eigenvalue_missing(
    A: Any, values: Any, vectors: Any, run: str, residual: float, following: Any = None
) -> tuple[Any, Any]:
    """Return a shared bit, set if no eigenvalue above `max_missing(theta_K, residual)` is missing; and a shared bound
    on all omitted ones.

    values: descending. vectors: as rows. residual: a bound on |A V - V theta|_F that is verified in parallel; if it
    does not hold, the bit may be 0 without cause. following: an estimate of the next eigenvalue, such as a Ritz value.
    The same probes run a second recurrence with a beta just above it. If they do not grow, the bound is
    `max_missing(following, residual)`, otherwise `max_missing(theta_K, residual)`.
    """
    d = len(A)
    g = gaussian(run, "probes", (d, PROBES), d**-0.5)
    g *= math.sqrt(PROBES / np.sum(g * g))  # each has length one on average, as `miss_probability` assumes
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
