"""Normalise ids (integers or strings) to bytes, so that equal ids are equal bytes at every owner.

Rules, in this order: integers become their decimal digits (7 equals "7", but not "07"); strings are normalised to
Unicode NFC and stripped of white space at both ends; case is kept unless all owners ask for `fold_case` (Unicode lower
case). Missing or empty ids, floats and other types are refused, as are ids longer than 4,096 bytes. Duplicates
after normalisation are an error that says how many (see `tags.order_of`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..errors import OwnerError

MAX_ID_BYTES = 4096
"""Maximum size of an id in bytes. Longer ids are probably text of another column."""


class IdError(OwnerError):
    """An id column cannot be used."""


@dataclass(frozen=True)
class Ids:
    """Normalised ids: their concatenated bytes, and the offset of each."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)


def normalise_ids(column: Any, *, label: str = "owner", fold_case: bool = False) -> Ids:
    """Return the ids of a column (NumPy, Arrow, pandas, polars, list of integers or strings)."""
    array = arrow_ids(column, label)
    if pa.types.is_integer(array.type):
        text = pc.cast(array, pa.large_string())
    else:
        text = pc.utf8_trim_whitespace(pc.utf8_normalize(pc.cast(array, pa.large_string()), form="NFC"))
        if fold_case:
            text = pc.utf8_lower(text)
    _, offsets, data = text.buffers()
    starts = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    ids = Ids(content[starts[0] : starts[-1]], starts - starts[0])
    lengths = ids.lengths
    empty = int(np.count_nonzero(lengths == 0))
    if empty:
        raise IdError(f"{label}: {empty} ids are empty after trimming; drop these rows first")
    if lengths.max() > MAX_ID_BYTES:
        raise IdError(f"{label}: an id has {lengths.max():,} bytes, more than {MAX_ID_BYTES:,}; is this the id column?")
    return ids


def integer_ids(column: Any, *, label: str = "owner") -> NDArray[np.int64]:
    """Return the ids of a small public range: integers, or strings of decimal digits."""
    array = arrow_ids(column, label)
    if not pa.types.is_integer(array.type):
        array = pc.utf8_trim_whitespace(array)
    try:
        return np.asarray(pc.cast(array, pa.int64()))
    except pa.ArrowInvalid:
        raise IdError(f"{label}: ids of a namespace are integers from 0; use alignment 'psi' for other ids") from None


DECIMALS, ZEROS, LETTERS = "decimals", "leading zeros", "letters"
"""Spellings of ids that often prevent a match with those of another owner."""

_SPELLINGS = {DECIMALS: r"^\s*\d+\.0+\s*$", ZEROS: r"^\s*0\d+\s*$", LETTERS: r"\pL"}


def spellings(column: Any, label: str) -> set[str]:
    """Return which of these spellings occur in an owner's ids."""
    array = arrow_ids(column, label)
    if pa.types.is_integer(array.type):
        return set()
    text = pc.cast(array, pa.large_string())
    return {name for name, form in _SPELLINGS.items() if pc.any(pc.match_substring_regex(text, form)).as_py()}


def arrow_ids(column: Any, label: str) -> Any:
    """Return the column as one Arrow array of integers or strings without missing values."""
    array = _arrow(column, label)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if len(array) == 0:
        raise IdError(f"{label}: the id column is empty")
    if array.null_count:
        raise IdError(f"{label}: {array.null_count} ids are missing; drop these rows first")
    if pa.types.is_floating(array.type):
        raise IdError(
            f"{label}: ids of type {array.type} are not exact (missing ids turn integers into floats); drop rows "
            "without an id and convert the column to integers or strings"
        )
    strings = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    if not (pa.types.is_integer(array.type) or any(is_kind(array.type) for is_kind in strings)):
        raise IdError(f"{label}: ids of type {array.type} are neither integers nor strings; convert the column first")
    return array


def _arrow(column: Any, label: str) -> Any:
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column
    try:
        if isinstance(column, np.ndarray) and column.dtype.kind == "U":
            return pa.array(column.tolist(), pa.large_string())
        if hasattr(column, "to_arrow"):
            return column.to_arrow()
        return pa.array(column)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise IdError(f"{label}: the id column mixes types or cannot be read ({error})") from None
