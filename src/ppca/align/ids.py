"""Ids: integers or strings, normalised to bytes so that equal ids are equal bytes at every owner.

Rules, in this order: integers become their decimal digits (7 equals "7"); strings are normalised to Unicode NFC and stripped
of white space at both ends; case is kept unless `fold_case` is asked for by all owners. Missing or empty ids, floats and other
types are refused. Duplicates after normalisation are an error that says how many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..owner.errors import OwnerError


class IdError(OwnerError):
    """An id column cannot be used."""


@dataclass(frozen=True)
class Ids:
    """Normalised ids: the bytes of all of them back to back, and where each begins."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)


def normalise_ids(column: Any, *, label: str = "owner", fold_case: bool = False) -> Ids:
    """The ids of a column (NumPy, Arrow, pandas, polars, list of integers or strings)."""
    array = _arrow(column, label)
    if array.null_count:
        raise IdError(f"{label}: {array.null_count} ids are missing; drop these rows first")
    if len(array) == 0:
        raise IdError(f"{label}: there are no ids")
    if pa.types.is_integer(array.type):
        text = pc.cast(array, pa.large_string())
    elif pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        text = pc.utf8_trim_whitespace(pc.utf8_normalize(pc.cast(array, pa.large_string()), form="NFC"))
        if fold_case:
            text = pc.utf8_lower(text)
        if pc.any(pc.equal(pc.binary_length(text), 0)).as_py():
            raise IdError(f"{label}: some ids are empty after trimming; drop these rows first")
    else:
        raise IdError(f"{label}: ids of type {array.type} are neither integers nor strings; convert the column first")
    text = text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text
    if isinstance(text, pa.ChunkedArray):
        text = pa.concat_arrays(text.chunks)
    _, offsets, data = text.buffers()
    starts = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return Ids(content[starts[0] : starts[-1]], starts - starts[0])


def _arrow(column: Any, label: str) -> Any:
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column
    try:
        if isinstance(column, np.ndarray) and column.dtype.kind == "U":
            return pa.array(column.tolist(), pa.large_string())
        return pa.array(column)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise IdError(f"{label}: the id column mixes types or cannot be read ({error})") from None
