"""The owner's side: a table becomes a few exact sums, and only these leave the owner, as shares.

    source = open_source("patients.parquet", columns=["age", "pressure"])
    sums = moments(source)                      # one pass in bounded memory: count, mean, centred Gram matrix

Nothing here knows about servers or shares.
"""

from .errors import BadColumns, BadValue, OwnerError, UnreadableData
from .moments import Moments, moments
from .tables.sources import check_compatible, open_source
from .tables.table import Chunk, Source

__all__ = [
    "BadColumns",
    "BadValue",
    "Chunk",
    "Moments",
    "OwnerError",
    "Source",
    "UnreadableData",
    "check_compatible",
    "moments",
    "open_source",
]
