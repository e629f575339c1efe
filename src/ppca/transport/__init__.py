"""Transport: how four servers talk. Frames, links and rounds; it knows nothing of shares.

errors        what can go wrong, as types that name seat, peer and step
frames        the frame format, specified once
stats         bytes, messages and rounds by stage
mesh          the interface: a server's links to its peers, and ``exchange`` as the round
link, tcp     one stream to one peer; the round over three of them
tls           links with mutual TLS
connect       finding the peers and greeting them
certificates  an authority and one certificate per seat
"""

from .certificates import create_certificates
from .connect import connect_mesh, open_listener
from .errors import CertificateError, FrameError, PeerError, PeerTimeout, TransportError, TruncatedFrameError, seat_name
from .mesh import Mesh
from .stats import StageStats, Stats
from .tls import TlsSettings, seat_dns_name

__all__ = [
    "CertificateError",
    "FrameError",
    "Mesh",
    "PeerError",
    "PeerTimeout",
    "StageStats",
    "Stats",
    "TlsSettings",
    "TransportError",
    "TruncatedFrameError",
    "connect_mesh",
    "create_certificates",
    "open_listener",
    "seat_dns_name",
    "seat_name",
]
