"""A fitted PCA beside the truth: scikit-learn's numbers, subspaces, components."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy import ACCURACY_LIMITS, PROMISED, Accuracy, accuracy_of, standardised
from ppca import PCA

Floats = NDArray[np.float64]


def random(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape)


def check(pca: PCA, pooled: Floats) -> Accuracy:
    accuracy = accuracy_of(pca, pooled)
    assert accuracy.broken(PROMISED) == [], accuracy
    assert pca.verified_
    np.testing.assert_allclose(pca.mean_, pooled.mean(axis=0), rtol=1e-9, atol=1e-12 * np.abs(pooled).max())
    return accuracy


def check_subspaces(pca: PCA, pooled: Floats, gap: float = 0.02) -> None:
    """Eigenvalues less than `gap` of the largest apart count as one group; groups must span the true subspaces.

    sin(angle) <= residual / distance to the other eigenvalues (Davis and Kahan), both relative to |C|. A group of which
    some components were left out is not determined.
    """
    values, basis = spectrum(pooled, pca.standardize)
    cuts = np.flatnonzero(-np.diff(values) > gap) + 1
    for group in np.split(np.arange(len(values)), cuts):
        if group[-1] < pca.n_components_:
            ours, theirs = pca.components_[group], basis[group]
            outside = ours - ours @ theirs.T @ theirs
            assert np.linalg.norm(outside, 2) <= np.sqrt(len(values)) * ACCURACY_LIMITS["residual"] / gap


def check_components(pca: PCA, wanted: Floats, pooled: Floats) -> None:
    """Each component within twice residual / gap (Davis and Kahan), where its eigenvalue is 1e-5 of the largest from
    others."""
    values, _ = spectrum(pooled, pca.standardize)
    gaps = np.minimum(np.diff(-values, prepend=-np.inf), np.diff(-values, append=np.inf))[: pca.n_components_]
    for ours, theirs, gap in zip(pca.components_, wanted, gaps, strict=True):
        if gap > 1e-5:
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=2 * ACCURACY_LIMITS["residual"] / gap)


def spectrum(pooled: Floats, standardize: bool) -> tuple[Floats, Floats]:
    """Eigenvalues relative to the largest, descending, and eigenvectors as rows."""
    X = standardised(pooled) if standardize else pooled - pooled.mean(axis=0)
    values, basis = np.linalg.eigh(X.T @ X / (len(X) - 1))
    return values[::-1] / values[-1], basis[:, ::-1].T
