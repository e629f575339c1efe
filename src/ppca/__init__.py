"""PPCA: joint principal component analysis over private data of several owners.

Four computation servers that do not collude hold secret shares and compute on them. `PCA`, `LinearRegression` and
`Ridge` are the estimators; below them, `Job` runs any program on `SecretArray`s on four servers.
"""

from importlib import import_module
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

if TYPE_CHECKING:
    from .estimator.job import Job
    from .estimator.linear_models import LinearRegression, Ridge
    from .estimator.partition import Columns
    from .estimator.pca import PCA, load
    from .member.federation_servers import Federation
    from .owner.tables.opening import open_table
    from .runtime import LocalServers, ServersFailed

__version__ = "0.1.0"

__all__ = [
    "FIXED",
    "INTEGER",
    "PCA",
    "Columns",
    "Federation",
    "InputRefused",
    "Job",
    "LinearRegression",
    "LocalServers",
    "Party",
    "PlainArray",
    "Ridge",
    "RingType",
    "SecretArray",
    "ServersFailed",
    "__version__",
    "concatenate",
    "load",
    "make_type",
    "open_table",
    "share",
    "stack",
    "together",
    "where",
]


_HOMES = {
    "Columns": "estimator.partition",
    "Federation": "member.federation_servers",
    "Job": "estimator.job",
    "LinearRegression": "estimator.linear_models",
    "LocalServers": "runtime",
    "PCA": "estimator.pca",
    "Ridge": "estimator.linear_models",
    "ServersFailed": "runtime",
    "load": "estimator.pca",
    "open_table": "owner.tables.opening",
}


def __getattr__(name: str) -> Any:
    """Load clients of jobs and local servers on first use: programs on shares and server processes need neither."""
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
