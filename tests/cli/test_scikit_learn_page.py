"""The page of differences from scikit-learn names every parameter and method in which the two estimators differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sklearn.decomposition

from ppca import PCA

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "scikit-learn.md").read_text()


def methods(estimator: Any) -> set[str]:
    return {name for name in dir(estimator) if not name.startswith("_") and not name.endswith("_request")}


def differences() -> list[str]:
    theirs, ours = sklearn.decomposition.PCA(), PCA()
    return sorted((set(theirs.get_params()) ^ set(ours.get_params())) | (methods(theirs) ^ methods(ours)))


@pytest.mark.parametrize("name", differences())
def test_difference_is_named(name: str) -> None:
    assert f"`{name}`" in PAGE, f"docs/reference/scikit-learn.md does not mention {name}"
