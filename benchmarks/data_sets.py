"""The data sets of the benchmarks, as tables of several owners.

Three come with scikit-learn. The others are Parquet files in a folder that the user names (`--data`, or PPCA_DATA);
where a file is not there, `MissingData` says which, and the measurement goes on without it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Folder = Path | None
"""Folder of the files; None if the user named none."""


class MissingData(FileNotFoundError):
    """A file of a data set is not there; the message names it and says what to do."""


def find(data: Folder, name: str) -> Path:
    """The file or folder of that name among the data."""
    if data is None:
        raise MissingData(f"no {name}: name the folder that has it with --data or PPCA_DATA")
    if not (data / name).exists():
        raise MissingData(f"no {name} in {data}")
    return data / name


def split(X: Floats, parts: int) -> list[Floats]:
    """Rows dealt out to owners of unequal size: owner i gets about i + 1 shares of them."""
    ends = np.cumsum(np.arange(1, parts + 1)) * len(X) // (parts * (parts + 1) // 2)
    return np.split(X, ends[:-1])


def _frame(path: Path, leave_out: tuple[str, ...]) -> tuple[Floats, Any]:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    kept = [column for column in table.column_names if column not in leave_out]
    return np.column_stack([table[column].to_numpy() for column in kept]).astype(np.float64), table


def breast_cancer(data: Folder) -> list[Floats]:
    from sklearn.datasets import load_breast_cancer

    return split(load_breast_cancer().data, 3)


def digits(data: Folder) -> list[Floats]:
    from sklearn.datasets import load_digits

    return split(load_digits().data, 4)


def wine(data: Folder) -> list[Floats]:
    """One owner per cultivar."""
    from sklearn.datasets import load_wine

    cultivars = load_wine()
    return [cultivars.data[cultivars.target == kind] for kind in range(3)]


def wine_quality(data: Folder) -> list[Floats]:
    """Red and white wines."""
    X, table = _frame(find(data, "wine_quality.parquet"), ("quality", "color"))
    colour = np.asarray(table["color"].to_pylist())
    return [X[colour == kind] for kind in np.unique(colour)]


def insurance(data: Folder) -> list[Floats]:
    return split(_frame(find(data, "insurance_coil2000.parquet"), ("CARAVAN", "split"))[0], 3)


def musk(data: Folder) -> list[Floats]:
    return split(_frame(find(data, "musk_odds.parquet"), ("outlier",))[0], 2)


def nbaiot(data: Folder) -> list[Floats]:
    """One owner per device."""
    files = sorted(find(data, "nbaiot").glob("*.parquet"))
    return [_frame(file, ("family", "attack", "label"))[0] for file in files]


def concepts(data: Folder) -> Floats:
    """Students x concepts of MOOCCube, 200 columns."""
    flags = ("student", "enrolled_top400", "enrolled_top100")
    return _frame(find(data, "mooccube/student_concept_200.parquet"), flags)[0]


def mooccube(data: Folder) -> list[Floats]:
    return split(concepts(data), 3)


def mooccube_50(data: Folder) -> list[Floats]:
    return split(concepts(data)[:, :50], 3)


DATA_SETS: dict[str, Callable[[Folder], list[Floats]]] = {
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
