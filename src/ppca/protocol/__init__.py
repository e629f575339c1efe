"""The protocol layer: secret arrays on four servers. One module each; docs/reference/protocols.md lists them."""

from .dtypes import FIXED, INTEGER, RingType, make_type
from .inputs import InputPacket, InputRefused, share, share_ring
from .opening import InconsistentShares, OpeningRefused, Sealed, unseal
from .party import DifferentJobs, MaskReuseError, Opening, Party, agree_keys, local_parties
from .pending import Pending, ready
from .plain import PlainArray, RangeError
from .rounds import Round, Traffic, drive, run_lockstep, together
from .secret import SecretArray, concatenate, stack, where
from .shares import Held
from .triangles import skew, symmetric

__all__ = [
    "FIXED",
    "INTEGER",
    "DifferentJobs",
    "Held",
    "InconsistentShares",
    "InputPacket",
    "InputRefused",
    "MaskReuseError",
    "Opening",
    "OpeningRefused",
    "Party",
    "Pending",
    "PlainArray",
    "RangeError",
    "RingType",
    "Round",
    "Sealed",
    "SecretArray",
    "Traffic",
    "agree_keys",
    "concatenate",
    "drive",
    "local_parties",
    "make_type",
    "ready",
    "run_lockstep",
    "share",
    "share_ring",
    "skew",
    "stack",
    "symmetric",
    "together",
    "unseal",
    "where",
]
