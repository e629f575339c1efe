"""Twenty textbook tables: seven of scikit-learn and thirteen of statsmodels, numbers only, rows without missing values."""

from __future__ import annotations

import importlib

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

SCIKIT_LEARN = ("iris", "wine", "breast_cancer", "diabetes", "digits", "linnerud", "linnerud_target")
STATSMODELS = (
    "anes96",
    "ccard",
    "copper",
    "cpunish",
    "elnino",
    "fair",
    "longley",
    "macrodata",
    "modechoice",
    "scotland",
    "stackloss",
    "star98",
    "statecrime",
)
NAMES = SCIKIT_LEARN + STATSMODELS


def table(name: str) -> NDArray[np.float64]:
    if name == "linnerud_target":
        return np.asarray(datasets.load_linnerud().target, np.float64)
    if name in SCIKIT_LEARN:
        return np.asarray(getattr(datasets, f"load_{name}")().data, np.float64)
    data = importlib.import_module(f"statsmodels.datasets.{name}").load_pandas().data
    return np.asarray(data.select_dtypes("number").dropna().to_numpy(np.float64))
