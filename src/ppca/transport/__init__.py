"""Transport: how four servers talk. Frames, links and rounds; it knows nothing of shares."""

from .certificates import create_certificates
from .connect import connect_mesh, free_ports, open_listener
from .errors import CertificateError, FrameError, PeerError, PeerTimeout, TransportError, TruncatedFrameError, seat_name
from .mesh import Mesh
from .pinned import Leaf, PinnedTls, issue_leaf
from .stats import StageStats, Stats
from .tls import Credentials, TlsSettings, seat_dns_name

__all__ = [
    "CertificateError",
    "Credentials",
    "FrameError",
    "Leaf",
    "Mesh",
    "PeerError",
    "PeerTimeout",
    "PinnedTls",
    "StageStats",
    "Stats",
    "TlsSettings",
    "TransportError",
    "TruncatedFrameError",
    "connect_mesh",
    "create_certificates",
    "free_ports",
    "issue_leaf",
    "open_listener",
    "seat_dns_name",
    "seat_name",
]
