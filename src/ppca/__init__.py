"""PPCA: joint principal component analysis over data that may not be shown.

Four computation servers that do not collude hold secret shares and compute on them. This package is their engine, the local
cluster to try it on, and the command line.
"""

from .cluster import ClusterError, LocalCluster, ThreadCluster
from .protocol import (
    FIXED,
    INTEGER,
    InputRefused,
    Party,
    PlainArray,
    RingType,
    SecretArray,
    concatenate,
    make_type,
    share,
    stack,
    together,
    where,
)

__version__ = "0.1.0"

__all__ = [
    "FIXED",
    "INTEGER",
    "ClusterError",
    "InputRefused",
    "LocalCluster",
    "Party",
    "PlainArray",
    "RingType",
    "SecretArray",
    "ThreadCluster",
    "__version__",
    "concatenate",
    "make_type",
    "share",
    "stack",
    "together",
    "where",
]
