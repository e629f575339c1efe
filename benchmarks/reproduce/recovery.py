"""The attacker of the part `attack`: rows from second moments.

What the attacker knows of n rows X (n x d) with mean m: a factor B (k x d) of their scatter, and where the rest lies.

    X = 1 m' + Q B + E      Q (n x k) unknown, with orthonormal columns orthogonal to 1;  Q'E = 0, E V' = 0, |E|^2 =
    rest

- From the covariance C: B'B = (n - 1) C, k is its rank and E = 0. Every Q gives rows with the same C, so the attacker
  must know something else of the rows.
- From k components V, their variances, the mean and the total variance: B = sqrt((n - 1) L) V, and E is what is left
  out.
- An attacker that also knows all rows but n: see `without_own`.

What it knows here: every value is a whole number between known bounds. The search is for a matrix that lies in both
sets, the matrices above and the whole ones, by relaxed reflections (Elser et al., "Searching with iterated maps", PNAS
104(2), 2007), with columns in units of their deviations:

1. a = the nearest matrix to x with these moments: Q is the polar factor of x B' (orthogonal Procrustes);
2. b = 2 a - x, rounded to whole numbers within the bounds;
3. x = x + (b - a) / 2; again, until `a` rounded has exactly the moments: a certificate that needs no original.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment, minimize

from benchmarks.data_sets import Floats

STEP = 0.5
LOOK = 20
"""Iterations between two looks whether the rounded rows have the moments."""

MIN_DEVIATION = 0.2
"""Deviation below which a column is not scaled up further: its values are told apart as they are."""

RANK = 1e-9
"""Variances below this part of the largest count as none."""


@dataclass(frozen=True)
class Moments:
    """Known moments of a number of rows: X = 1 m' + Q B + E, see above. plane: V, orthonormal rows; rest: |E|^2.

    unit: in which every column is given, see `scaled`; |E|^2 is in the units of the data.
    """

    rows: int
    mean: Floats
    factor: Floats
    plane: Floats
    rest: float = 0.0
    unit: Floats | float = 1.0

    @classmethod
    def of_covariance(cls, rows: int, mean: Floats, covariance: Floats) -> Moments:
        """From a whole covariance matrix."""
        variances, vectors = np.linalg.eigh(covariance)
        kept = variances > RANK * variances[-1]
        return cls.of_components(rows, mean, vectors[:, kept].T, variances[kept], float(variances[kept].sum()))

    @classmethod
    def of_components(cls, rows: int, mean: Floats, components: Floats, variances: Floats, total: float) -> Moments:
        """From what a receiver of a PCA gets. Variances that rounding left below zero count as none."""
        most = np.maximum(variances, 0.0)
        rest = max(0.0, (rows - 1) * (total - float(most.sum())))
        whole = rest < RANK ** (2 / 3) * (rows - 1) * total  # all components are there; what is left is rounding
        factor = np.sqrt((rows - 1) * most)[:, None] * components
        return cls(rows, mean, factor, components, 0.0 if whole else rest)

    def nearest(self, x: Floats) -> Floats:
        """The nearest matrix with these moments; if something is left out, one near it, and x itself if x has them.

        What is left out may not turn Q, so Q is then found in the plane, in which E is zero.
        """
        centred = x - x.mean(axis=0)
        image = (centred @ self.plane.T) @ (self.plane @ self.factor.T) if self.rest else centred @ self.factor.T
        left, _, right = np.linalg.svd(image, full_matrices=False)
        Q = left @ right
        found = self.mean + Q @ self.factor
        if self.rest:
            rest = centred - Q @ (Q.T @ centred)
            rest = rest - (rest @ self.plane.T) @ self.plane
            found = found + rest * np.sqrt(self.rest / max(float(np.sum((rest * self.unit) ** 2)), 1e-300))
        return np.asarray(found)

    def scaled(self, unit: Floats) -> Moments:
        """The same with columns divided by these units."""
        plane = np.linalg.qr(self.plane.T * unit[:, None])[0].T
        return Moments(self.rows, self.mean / unit, self.factor / unit, plane, self.rest, self.unit * unit)

    @property
    def deviations(self) -> Floats:
        """Return the variances of the columns; the omitted part counts as spread evenly."""
        squares = np.sum(self.factor**2, axis=0) + self.rest / len(self.mean)
        return np.asarray(np.sqrt(squares / max(1, self.rows - 1)))

    def fit(self, x: Floats, within: float) -> bool:
        """Return whether rows have these moments to within a limit in every product B x' and in the mean."""
        centred = x - self.mean
        products = centred.T @ (centred @ self.plane.T) - self.factor.T @ (self.factor @ self.plane.T)
        total = np.sum(centred**2) - np.sum(self.factor**2) - self.rest
        return bool(
            max(np.abs(products).max(), np.abs(centred.sum(axis=0)).max(), abs(total) / len(self.mean)) < within
        )


def without_own(own: Floats, rows: int, mean: Floats, components: Floats, variances: Floats, total: float) -> Moments:
    """Return what an owner that received a joint PCA of `rows` rows, all but a few of them its own, knows of the
    others' rows.

    With T = sum of x x' over all rows, V the components and L their variances, T V' = (n - 1) V' L + n m (m'V'),
    exactly; so are the others' mean and, with W = S V' for their scatter S about it, the factor B = M^(-1/2) W' with M
    = V W. If the components are at least as many as the others' rows less one, B'B = S: everything. All components are
    a whole covariance.
    """
    few = rows - len(own)
    theirs = (rows * mean - own.sum(axis=0)) / few
    image = (rows - 1) * components.T * variances + rows * np.outer(mean, components @ mean)
    W = image - own.T @ (own @ components.T) - few * np.outer(theirs, components @ theirs)
    trace = (rows - 1) * total + rows * mean @ mean - np.sum(own**2) - few * theirs @ theirs
    values, vectors = np.linalg.eigh(components @ W)
    kept = np.argsort(values)[::-1][: few - 1]
    kept = kept[values[kept] > RANK ** (2 / 3) * max(float(values[-1]), 1e-300)]
    factor = (W @ vectors[:, kept] / np.sqrt(values[kept])).T
    rest = max(0.0, float(trace) - float(np.sum(factor**2))) if len(kept) < few - 1 else 0.0
    return Moments(few, theirs, factor, components, rest)


def recover(
    known: Moments, low: Floats, high: Floats, random: np.random.Generator, iterations: int, within: float = 0.5
) -> tuple[Floats, bool]:
    """Rows of whole numbers between the bounds that have the moments; and whether they do, or the search gave up."""
    unit = np.maximum(known.deviations, MIN_DEVIATION)
    even = known.scaled(unit)

    def whole(x: Floats) -> Floats:
        return np.clip(np.rint(x * unit), low, high) + 0.0

    x = a = even.nearest(even.mean + random.standard_normal((known.rows, len(known.mean))))
    for number in range(iterations):
        a = even.nearest(x)
        if number % LOOK == 0 and known.fit(whole(a), within):
            return whole(a), True
        x = x + STEP * (whole(2 * a - x) / unit - a)
    return whole(a), False


def rotated(known: Moments, random: np.random.Generator) -> Floats:
    """Some rows with these moments, by chance: as good as any other for an attacker that knows only the moments."""
    return known.nearest(random.standard_normal((known.rows, len(known.mean))))


def descended(covariance: Floats, rows: int, factor: float, random: np.random.Generator) -> Floats:
    """Centred rows by gradient descent (L-BFGS) on |Y'Y - factor C|^2 over centred Y, from random rows.

    With factor = n - 1 the minimum, zero, is at every Y with the covariance C; with the paper's (n - 1)^2, with (n - 1)
    C.
    """
    width, target = len(covariance), factor * covariance
    size = float(np.sum(target**2))

    def objective(flat: Floats) -> tuple[float, Floats]:
        Y = flat.reshape(rows, width)
        Y = Y - Y.mean(axis=0)
        rest = Y.T @ Y - target
        return float(np.sum(rest**2)) / size, (4 * Y @ rest / size).ravel()

    start = random.standard_normal((rows, width)) * np.sqrt(np.trace(target) / (rows * width))
    found = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 1e-15})
    Y = found.x.reshape(rows, width)
    return np.asarray(Y - Y.mean(axis=0))


@dataclass(frozen=True)
class Success:
    """Return how near found rows come to the true ones, in the order that fits best.

    exact: rows that are right in every value. error: root mean square error, relative to that of guessing the mean for
    all.
    """

    exact: int
    error: float


def matched(found: Floats, true: Floats) -> Floats:
    """The found rows in the order of the true ones that fits best: moments do not tell an order."""
    distances = np.sum(true**2, axis=1)[:, None] + np.sum(found**2, axis=1) - 2 * true @ found.T
    return np.asarray(found[linear_sum_assignment(distances)[1]])


def success(found: Floats, true: Floats) -> Success:
    placed = matched(found, true)
    guess = np.sum((true - true.mean(axis=0)) ** 2)
    exact = int(np.sum(np.all(np.rint(placed) == true, axis=1)))
    return Success(exact, float(np.sqrt(np.sum((placed - true) ** 2) / guess)))
