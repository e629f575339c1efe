"""The estimator: scikit-learn's PCA over several owners' data, fitted on shares.

Names are loaded on first use: servers import this package for their programs and need no scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import PCAModel
    from .pca import PCA
    from .shared import SharedFacts, SharedModel

__all__ = ["PCA", "PCAModel", "SharedFacts", "SharedModel"]

_HOMES = {"PCA": "pca", "PCAModel": "model", "SharedFacts": "shared", "SharedModel": "shared"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
