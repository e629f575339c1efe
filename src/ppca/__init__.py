"""PPCA: joint principal component analysis over data that may not be shown.

Four computation servers that do not collude hold secret shares and compute on them. `PCA` is the estimator; the engine below
(`SecretArray`, `LocalServers`) runs any program on four servers.
"""

from typing import TYPE_CHECKING, Any

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
from .servers import LocalServers, ServersFailed, ThreadCluster

if TYPE_CHECKING:
    from .estimator import PCA

__version__ = "0.1.0"

__all__ = [
    "FIXED",
    "INTEGER",
    "PCA",
    "InputRefused",
    "LocalServers",
    "Party",
    "PlainArray",
    "RingType",
    "SecretArray",
    "ServersFailed",
    "ThreadCluster",
    "__version__",
    "concatenate",
    "make_type",
    "share",
    "stack",
    "together",
    "where",
]


def __getattr__(name: str) -> Any:
    """`ppca.PCA` is loaded on first use: servers need neither it nor scikit-learn."""
    if name == "PCA":
        from .estimator import PCA

        return PCA
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
