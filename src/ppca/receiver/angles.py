"""Bounds of the angles between components and those of the exact covariance, from verified residuals and gaps of
variances.

Let A be the matrix that the servers decomposed, |A|_F in [1/2, 1), and A' the same matrix without any rounding, |A -
A'|_2 <= e.
Verified: |A v - mu v| <= rho for every component v. Known: mu_1 >= mu_2 >= ..., and for the omitted components a bound
u with z'Az <= u z'z for all z orthogonal to the components. Then (Courant and Fischer), up to 1e-7 of rho and 1e-14,

    the i - 1 largest eigenvalues of A are at least mu_(i-1) - rho
    all but the i largest ones are at most max(mu_(i+1), u) + 2 rho

so that all eigenvalues of A' but one are at least

    gap = min(mu_(i-1) - mu_i - rho, mu_i - max(mu_(i+1), u) - 2 rho) - e

away from mu_i, and |A'v - mu v| <= rho + e. By Davis and Kahan, sin(angle of v to the eigenvector) <= (rho + e) / gap.
The same holds for the space of several neighbouring components, with its gap to all others. See
docs/concepts/eigensolvers.md#how-far-a-component-can-be-off.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RIGHT_ANGLE = float(np.pi / 2)
"""Bound of the angle of a component without other information."""

DETERMINED = 1e-2
"""Maximum angle of a component that counts as determined, in radians."""

ALMOST_UNIT = 1 + 2e-7
"""Factor by which the verified orthogonality, |V'V - I|_F < 1e-7, can enlarge a residual; its square is below
SQUARED."""

SQUARED = 1e-13


@dataclass(frozen=True)
class Bounds:
    """Revealed eigenvalues of A in descending order, with their bounds (see the module docstring).

    following: the bound u of omitted components; -inf if none is omitted. residual: rho. moved: e.
    """

    values: Floats
    following: float
    residual: float
    moved: float

    def angle(self, first: NDArray[np.intp] | int, stop: NDArray[np.intp] | int) -> Floats:
        """Return a bound of the angles between the space of components first .. stop - 1 and the exact one."""
        rho = self.residual * ALMOST_UNIT + SQUARED
        above, below = np.append(np.inf, self.values)[first], np.append(self.values, -np.inf)[stop]
        upper = above - self.values[first] - rho
        lower = self.values[np.subtract(stop, 1)] - np.maximum(below, self.following) - 2 * rho
        gap = np.maximum(np.minimum(upper, lower) - self.moved, rho + self.moved)
        return np.asarray(np.arcsin((rho + self.moved) / gap))

    def angles(self) -> Floats:
        """Return bounds of the angles of all components."""
        each = np.arange(len(self.values))
        return self.angle(each, each + 1)

    def spaces(self) -> list[tuple[int, int, float]]:
        """Return neighbouring components that only together span a determined space: first, stop and its angle."""
        loose = np.append(self.angles() > DETERMINED, False)
        found, at = [], 0
        while at < len(self.values):
            run = int(np.argmin(loose[at:]))  # components from here on that are not determined
            ends = np.arange(at + 2, at + run + 1)
            angles = self.angle(at, ends)
            trivial = (at == 0) & (ends == len(self.values)) & (self.following == -np.inf)  # the space of all columns
            good = np.flatnonzero((angles <= DETERMINED) & ~trivial)
            if len(good):
                found.append((at, int(ends[good[0]]), float(angles[good[0]])))
                at = int(ends[good[0]])
            else:
                at += 1
        return found


def column_error(errors: dict[str, float], scale: NDArray[np.int64], deviation: Floats | None, largest: float) -> float:
    """Return a bound of |A - A'|_2, the rounding of the data before A, from the errors that servers report.

    scale: exponents of the columns. deviation: of the columns, if these were divided by it. largest: the largest
    variance along a component (of standardised columns, if they are), with the divisor n. A column j of X, X'X = C, is
    off by `column` 2^(scale_j); standardised by `scaling` besides, and once more by its deviation. With t = |E|_F /
    |X|_2, X'X is off by 2 t + t^2 of its largest eigenvalue, and |A|_F <= 1.
    """
    if largest <= 0:
        return 0.0
    units = np.ldexp(errors["column"], scale)
    if deviation is not None:
        units = np.where(scale > CONSTANT, 2 * units / deviation, 0.0)
    t = float(np.linalg.norm(units)) / np.sqrt(largest) + errors["scaling"]
    return float(2 * t + t * t)


CONSTANT = -1000
"""Exponents below belong to constant columns (`algorithms.scales.NONE`)."""
