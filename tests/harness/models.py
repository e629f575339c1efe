"""Models for tests of pictures and reports: random ones, and that of a table of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppca.estimator.pca import PCA
from ppca.receiver import PCAModel
from ppca.receiver.parts import signed


def opening(what: str, shape: list[int], to: str = "servers", why: str = "because") -> dict[str, Any]:
    return {"number": 1, "what": what, "shape": shape, "to": to, "why": why}


def model_of(d: int, k: int, names: list[str] | None = None, **changes: Any) -> PCAModel:
    """A model with random components and variances."""
    rng = np.random.default_rng(d)
    components, _ = np.linalg.qr(rng.normal(size=(d, d)))
    values = np.sort(rng.random(d) ** 4)[::-1]
    audit = [opening("number of rows", [])]
    audit += [opening("convergence bit", [], why="stop the iteration") for _ in range(7)]
    audit += [opening("components", [k, d], "client", "agreed result")]
    facts: dict[str, Any] = {
        "components": components[:k],
        "explained_variance": values[:k],
        "explained_variance_ratio": values[:k] / values.sum(),
        "total_variance": float(values.sum()),
        "mean": np.zeros(d),
        "scale": None,
        "rows": 1234,
        "feature_names": names,
        "solver": "allpairs",
        "iterations": 13,
        "verified": True,
        "fell_back": False,
        "resolution": 1e-12,
        "tolerance": 1e-9,
        "component_error": np.full(k, 3.2e-7),
        "audit": audit,
    }
    return PCAModel(**(facts | changes))


def rows_and_model(
    n: int, d: int, k: int, *, standardize: bool = True, names: list[str] | None = None
) -> tuple[NDArray[np.float64], PCAModel]:
    """Rows with four factors, and their model as scikit-learn defines it."""
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(n, 4)) * [3, 2, 1, 0.5] @ rng.normal(size=(4, d)) + rng.normal(size=(n, d))
    mean, scale = rows.mean(axis=0), rows.std(axis=0) if standardize else np.ones(d)
    _, singular, vectors = np.linalg.svd((rows - mean) / scale, full_matrices=False)
    variances = singular**2 / (n - 1)
    found = model_of(
        d,
        k,
        names,
        components=signed(vectors[:k]),
        explained_variance=variances[:k],
        explained_variance_ratio=variances[:k] / variances.sum(),
        total_variance=float(variances.sum()),
    )
    return rows, replace(found, mean=mean, scale=scale if standardize else None, rows=n)


def fitted(model: PCAModel) -> PCA:
    """An estimator that has this model."""
    pca = PCA()
    pca._take_shape(model.rows, model.components.shape[1], len(model.components), model.feature_names)
    pca._take(model)
    return pca
