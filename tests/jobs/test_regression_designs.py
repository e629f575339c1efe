"""200 random designs: condition numbers of 1 to 1e8, means up to 1e9 deviations, duplicated and constant columns.

A design is refused, or its coefficients and standard errors are right. Errors are measured in deviations of the target by
deviation of the column, against least squares of columns that are centred with 64 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.lockstep import LockstepServers
from ppca import LinearRegression
from ppca.jobs.errors import Refusal

Floats = NDArray[np.float64]
DESIGNS = 200
ERROR = 2.0**-34
"""Error of a coefficient for inflation factors that sum to 1. It grows with their sum."""

MAX_INFLATION = 2.0**20
"""Sum of inflation factors above which servers refuse, with a factor of 2 for their own error."""


def design(random: np.random.Generator) -> tuple[Floats, Floats, str]:
    """Columns, target, and the kind of the design."""
    p = int(random.integers(1, 8))
    n = int(random.integers(p + 3, 300))
    left = np.linalg.qr(random.standard_normal((n, p)))[0]
    right = np.linalg.qr(random.standard_normal((p, p)))[0]
    X = left * np.geomspace(1, 10 ** -random.uniform(0, 8), p) @ right.T * np.sqrt(n) * 10 ** random.uniform(-3, 3, p)
    X = X + 10 ** random.uniform(0, 9, p) * random.choice([0, 1], p) * X.std(axis=0)
    y = X @ (random.standard_normal(p) / np.maximum(X.std(axis=0), 1e-300))
    y = y + random.standard_normal(n) * 10 ** random.uniform(-3, 1) + random.choice([0, 1e6])
    kind = int(random.integers(0, 12))
    if kind == 0 and p > 1:
        X[:, 0] = 2 * X[:, 1]
        return X, y, "dependent"
    if kind == 1:
        X[:, 0] = 3.25
        return X, y, "dependent"
    return X, y, ""


def truth(X: Floats, y: Floats) -> tuple[Floats, Floats, Floats, float]:
    """Coefficients, standard errors, the unit of each coefficient, and the sum of the inflation factors."""
    wide = X.astype(np.longdouble)
    centred = np.asarray(wide - wide.mean(axis=0), np.float64)
    target = np.asarray(y.astype(np.longdouble) - y.astype(np.longdouble).mean(), np.float64)
    sd = np.maximum(centred.std(axis=0), 1e-300)
    Z = centred / sd
    b = np.linalg.lstsq(Z, target, rcond=None)[0]
    residual = target - Z @ b
    inverse = np.linalg.pinv(Z.T @ Z / len(Z), rcond=1e-18)
    freedom = max(1, len(Z) - X.shape[1] - 1)
    errors = np.sqrt(residual @ residual / freedom * np.maximum(np.diag(inverse), 0) / len(Z)) / sd
    return b / sd, errors, target.std() / sd, float(np.trace(inverse))


@pytest.mark.release  # a minute
def test_nothing_wrong_is_accepted() -> None:
    random, servers = np.random.default_rng(11), LockstepServers()
    accepted, refused, worst = 0, [], 0.0
    for number in range(DESIGNS):
        X, y, kind = design(random)
        table = np.column_stack([X, y])
        coefficients, errors, unit, inflation = truth(X, y)
        model = LinearRegression(servers=servers)
        try:
            model.fit(np.array_split(table, int(random.integers(1, 4))), target=-1)
        except Refusal:
            refused.append((number, kind, inflation))
            continue
        assert not kind, f"design {number} has dependent columns"
        assert inflation < 2 * MAX_INFLATION
        accepted += 1
        moved = np.abs(model.coef_ - coefficients) / unit
        worst = max(worst, float(moved.max()) / inflation)
        assert (moved <= ERROR * inflation).all(), f"design {number}: {moved.max():.1e}, inflation {inflation:.1e}"
        found: Any = model.standard_errors_[:-1]
        if not np.isnan(found).any():
            np.testing.assert_allclose(
                found, errors, rtol=1e-6 * max(1.0, inflation / 2**14), err_msg=f"design {number}"
            )
    print(f"{accepted} accepted, {len(refused)} refused, worst error {worst:.1e} times the inflation")
    assert all(kind or inflation > MAX_INFLATION / 2 for _, kind, inflation in refused), refused
    assert accepted >= DESIGNS // 4
    assert len(refused) >= DESIGNS // 8
