"""Arrow columns as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet
from numpy.typing import NDArray

from .arrays import exact_dtype
from .integers import Rest, rest_of


def numbers(column: Any) -> tuple[NDArray[Any], Rest | None]:
    """An Arrow array as numbers, and what doubles lose of them; nulls become NaN."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_integer(kind):
        whole = view(pc.fill_null(column, 0) if column.null_count else column)
        if not column.null_count:
            return whole, rest_of(whole)
        return view(pc.fill_null(pc.cast(column, pa.float64(), safe=False), np.nan)), rest_of(whole)
    if not (pa.types.is_float32(kind) or pa.types.is_float64(kind)):
        column = pc.cast(column, pa.float64(), safe=False)
    return view(pc.fill_null(column, np.nan) if column.null_count else column), None


def view(column: Any) -> NDArray[Any]:
    """An Arrow array of numbers without nulls as it lies in memory."""
    if not len(column):
        return np.empty(0)
    # `to_numpy` would import pandas, which takes longer than a small job
    values = np.frombuffer(column.buffers()[1], numpy_dtype(column.type))
    return values[column.offset : column.offset + len(column)]


def numpy_dtype(kind: Any) -> np.dtype[Any]:
    """The NumPy type of an Arrow type of booleans, integers or floats; Arrow's own function needs pandas."""
    if pa.types.is_boolean(kind):
        return np.dtype(bool)
    letter = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
    return np.dtype(f"{letter}{kind.bit_width // 8}")


def is_numeric(kind: Any) -> bool:
    """Integers, floats, decimals, booleans; dictionaries of these; and columns that are all null (refused as
    missing)."""
    if pa.types.is_dictionary(kind):
        return is_numeric(kind.value_type)
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_null(kind)
    )


def chunk_dtype(kind: Any) -> np.dtype[Any]:
    """float32 for types that it holds exactly, else float64."""
    if pa.types.is_dictionary(kind):
        return chunk_dtype(kind.value_type)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return exact_dtype(numpy_dtype(kind))
    return np.dtype(np.float64)


def flat(column: Any) -> Any:
    """Combine a chunked array into one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
