"""Transport: frames, links and rounds between four servers. It does not know about shares."""

from .connect import connect_mesh
from .errors import (
    CertificateError,
    FrameError,
    PeerError,
    PeerTimeout,
    TransportError,
    TruncatedFrameError,
    server_name,
)
from .mesh import Mesh
from .pinned import Leaf, PinnedTls, issue_leaf, throwaway_keys
from .ports import free_ports, open_listener
from .stats import StageStats, Stats

__all__ = [
    "CertificateError",
    "FrameError",
    "Leaf",
    "Mesh",
    "PeerError",
    "PeerTimeout",
    "PinnedTls",
    "StageStats",
    "Stats",
    "TransportError",
    "TruncatedFrameError",
    "connect_mesh",
    "free_ports",
    "issue_leaf",
    "open_listener",
    "server_name",
    "throwaway_keys",
]
