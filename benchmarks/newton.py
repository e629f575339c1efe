"""Square root and reciprocal by Newton iterations (the paper's Appendix A), corrected. Baselines.

Square root of A, from the Newton iteration for 1 / sqrt(A):

    x_0 = 0.48 10^(-e/2) for A in [10^e, 10^(e+1));   x := x (3 - A x^2) / 2, seven times;   sqrt(A) = A x

The paper uses 0.48 for A in [1, 10] and scales it for other A, without saying how. Here a table look-up of the decade
does it.

Reciprocal of A, by the iteration of third order:

    x_0 = 10^(-e-1) for A in [10^e, 10^(e+1));        x := x + x r + x r^2 with r = 1 - A x, six times

Correction of the printed text: it starts from the reciprocal of the *nearest* power of ten. Then A x_0 can be 3 (A = 3,
x_0 = 1), r is -2, and the iteration diverges; it converges for |r| < 1 only. The next larger power of ten gives r in
(0, 0.9].

Both compare A with the powers of ten from 10^-11 to 10^12 that the type can hold: one look-up, two rounds.
Rounds: 39 for the square root (2, then 5 an iteration, 2 for A x), 26 for the reciprocal (2, then 4 an iteration).
Range: 10^-6 <= A < 2^span. Error: that of the last iterations in fixed point, see the tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np

START = 0.48
"""The paper's start for 1 / sqrt(A) with A in [1, 10]: A x^2 < 3, for which the iteration converges."""

ROOT_STEPS, RECIPROCAL_STEPS = 7, 6
"""Numbers of iterations in the paper."""

DECADES = np.arange(-6, 10)
"""Exponents of the powers of ten that the default type distinguishes: 40 fractional bits and |A| < 2^30."""


async def _by_decade(A: Any, values: Any) -> Any:
    """Return values[i] for A in [10^DECADES[i], 10^DECADES[i + 1]): two rounds."""
    return await A.lookup(10.0 ** DECADES[1:], values)


async def newton_sqrt(A: Any) -> Any:
    """Return sqrt(A) for 10^-6 <= A < 2^30."""
    x = await _by_decade(A, START * 10.0 ** (-DECADES / 2))
    for _ in range(ROOT_STEPS):
        Ax = await (A * x)
        square = await Ax.mul(x, within=3)
        x = (await x.mul((3 - square).within(3))) * 0.5
    return await (A * x)


async def newton_reciprocal(A: Any) -> Any:
    """Return 1 / A for 10^-6 <= A < 2^30."""
    x = await _by_decade(A, 10.0 ** -(DECADES + 1.0))
    for _ in range(RECIPROCAL_STEPS):
        rest = 1 - await A.mul(x, within=2)
        power = rest + await rest.within(1).mul(rest.within(1), within=1)
        x = x + await (x * power)
    return x
