"""The data sets of the benchmarks, as tables of several owners.

Three come with scikit-learn; the others are Parquet files that are left out where they are not present.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DATA = Path("../shared/data")


def split(X: Floats, parts: int) -> list[Floats]:
    """Rows dealt out to owners of unequal size: owner i gets about i + 1 shares of them."""
    ends = np.cumsum(np.arange(1, parts + 1)) * len(X) // (parts * (parts + 1) // 2)
    return np.split(X, ends[:-1])


def _frame(name: str, leave_out: tuple[str, ...]) -> tuple[Floats, Any]:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(DATA / name)
    kept = [column for column in table.column_names if column not in leave_out]
    return np.column_stack([table[column].to_numpy() for column in kept]).astype(np.float64), table


def breast_cancer() -> list[Floats]:
    from sklearn.datasets import load_breast_cancer

    return split(load_breast_cancer().data, 3)


def digits() -> list[Floats]:
    from sklearn.datasets import load_digits

    return split(load_digits().data, 4)


def wine() -> list[Floats]:
    """One owner per cultivar."""
    from sklearn.datasets import load_wine

    data = load_wine()
    return [data.data[data.target == kind] for kind in range(3)]


def wine_quality() -> list[Floats]:
    """Red and white wines."""
    X, table = _frame("wine_quality.parquet", ("quality", "color"))
    colour = np.asarray(table["color"].to_pylist())
    return [X[colour == kind] for kind in np.unique(colour)]


def insurance() -> list[Floats]:
    return split(_frame("insurance_coil2000.parquet", ("CARAVAN", "split"))[0], 3)


def musk() -> list[Floats]:
    return split(_frame("musk_odds.parquet", ("outlier",))[0], 2)


def nbaiot() -> list[Floats]:
    """One owner per device."""
    files = sorted((DATA / "nbaiot").glob("*.parquet"))
    if not files:
        raise FileNotFoundError(DATA / "nbaiot")
    return [_frame(f"nbaiot/{file.name}", ("family", "attack", "label"))[0] for file in files]


def mooccube(columns: int = 200) -> list[Floats]:
    flags = ("student", "enrolled_top400", "enrolled_top100")
    return split(_frame("mooccube/student_concept_200.parquet", flags)[0][:, :columns], 3)


def mooccube_50() -> list[Floats]:
    return mooccube(50)


DATA_SETS: dict[str, Callable[[], list[Floats]]] = {
    "wine": wine,
    "breast cancer": breast_cancer,
    "digits": digits,
    "Wine Quality": wine_quality,
    "Insurance": insurance,
    "Musk": musk,
    "N-BaIoT": nbaiot,
    "MOOCCube, 50 columns": mooccube_50,
    "MOOCCube": mooccube,
}
