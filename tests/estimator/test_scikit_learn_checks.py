"""scikit-learn's own checks of estimators: all of them run; those that do not apply are listed with the reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sklearn
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import check_estimator

from harness.lockstep import LockstepServers
from ppca import PCA

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "scikit-learn.md").read_text()
SECTION = PAGE.partition("## scikit-learn's own checks")[2].partition("\nOf the checks of names")[0]
LISTED = dict(re.findall(r"^\| `(check_\w+)` \| (.*) \|$", SECTION, re.MULTILINE))
"""Checks that the page says do not apply, and why."""


MORE = ("check_transformer_get_feature_names_out", "check_transformer_get_feature_names_out_pandas")
"""Checks that scikit-learn has for its own transformers only."""


def estimator() -> PCA:
    """An estimator whose fits differ by rounding only, about 1e-11: some checks compare two fits to 1e-9.

    If the solver stops at the default tolerance, coordinates of two fits differ by about 1e-8.
    """
    return PCA(servers=LockstepServers(), keep="check", fixed_iterations=14)


@pytest.mark.filterwarnings("ignore")  # checks use arrays and frames in turn
def test_every_check_passes_or_is_listed_with_a_reason() -> None:
    outcome: dict[str, set[str]] = {}
    for result in check_estimator(estimator(), on_fail=None, on_skip=None):
        outcome.setdefault(result["check_name"], set()).add(result["status"])
    failed = {name for name, statuses in outcome.items() if "failed" in statuses}
    assert failed <= set(LISTED)
    passed = {name for name, statuses in outcome.items() if statuses == {"passed"}} - set(LISTED)
    if f"scikit-learn {'.'.join(sklearn.__version__.split('.')[:2])} " in SECTION:  # others have other checks
        assert set(LISTED) <= outcome.keys()
        assert set(re.findall(r"`(check_\w+)`", SECTION)) - set(LISTED) - {"check_estimator"} == passed | set(MORE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MORE)
def test_checks_of_names(name: str) -> None:
    getattr(estimator_checks, name)("PCA", estimator())
