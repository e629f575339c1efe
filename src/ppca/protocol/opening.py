"""Opening: the one place where values leave the sharing. Every opening is recorded with what, to whom and why.

- `open`, to the servers: column mates exchange row shares and add them; all four know the value.
- `reveal`, to a receiver: the servers of column 0 hand over their row shares, those of column 1 a BLAKE2b digest of
  theirs. The receiver adds the shares and checks that each digest fits the share of the same row.
Rounds: 1 for `open`, none among servers for `reveal`. Sent: 1 element per element. Error: that of the nearest double.
Security: this is the disclosure. An empty reason is refused, and so is what a party's list of openings does not have, before
anything of it is sent; docs/openings.md lists what jobs open.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..native import ring
from .cost import declare
from .dtypes import RingType
from .multiply import ELEMENT
from .party import Opening, Party
from .rounds import Round, Step
from .shares import Data, Shares

SERVERS = "servers"


class InconsistentShares(ValueError):
    """The four servers' parts of a result do not fit together; the result was not used."""


class OpeningRefused(RuntimeError):
    """A program wanted to open something that the job does not list, or more often than listed; it was not opened."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A result on its way to one receiver: this server's row share (column 0) or the digest of it (column 1)."""

    to: str
    shape: tuple[int, ...]
    dtype: RingType
    payload: bytes


def limits(openings: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """A job's list of openings as a party has it. Each entry: "what", "to" ("servers" or a receiver), "most" times in one run."""
    found: dict[tuple[str, str], int] = {}
    for entry in openings:
        key = str(entry["what"]), str(entry["to"])
        if key in found or type(entry["most"]) is not int or entry["most"] < 1:
            raise ValueError(
                f"the list of openings has {key} twice, or not with a whole number above zero; mend the job"
            )
        found[key] = entry["most"]
    return found


def record(party: Party, what: str, shape: tuple[int, ...], to: str, why: str) -> None:
    """Writes the audit line. An opening without a reason is refused, and one that the job does not allow (any more)."""
    if not why.strip():
        raise ValueError(f"opening {what!r} needs a reason: pass why='...', it goes into the audit log")
    if party.openings is not None:
        left = party.openings.get((what, to))
        if not left:
            cause = (
                "is not in the list of openings of this job"
                if left is None
                else "was opened as often as this job allows"
            )
            raise OpeningRefused(
                f"{what!r} to {to!r} {cause}; it was not opened. If it is meant to be, propose a job that lists it and have its "
                "owners approve that one."
            )
        party.openings[what, to] = left - 1
    party.audit.append(Opening(len(party.audit) + 1, what, shape, to, why))


@declare(
    "open",
    rounds=1,
    sent=lambda seat, n: n * ELEMENT,
    bytes_text="1 element per element",
    input_range="the whole ring",
    error="exact (integers), nearest double (fixed point)",
)
def open_to_servers(x: Shares, what: str, why: str) -> Step[NDArray[Any]]:
    """The values, known to all four servers from here on."""
    party = x.party
    record(party, what, x.shape, SERVERS, why)
    mine = np.ascontiguousarray(x.row)
    (theirs,) = yield Round(party.counted("openings", [(party.column_mate, mine)]), [(party.column_mate, mine.nbytes)])
    return values(ring.add(mine, ring.as_ring(theirs, mine.shape)), x.dtype)


def seal(x: Shares, what: str, to: str, why: str) -> Sealed:
    """This server's part of a result for the named receiver."""
    record(x.party, what, x.shape, to, why)
    share = np.ascontiguousarray(x.row).tobytes()
    payload = share if x.party.column == 0 else digest(share)
    return Sealed(to, x.shape, x.dtype, payload)


def digest(share: bytes) -> bytes:
    return hashlib.blake2b(share, digest_size=32, person=b"ppca row share").digest()


def unseal(parts: Sequence[Sealed]) -> NDArray[Any]:
    """The receiver's side: adds the row shares of seats 0 and 2, after checking the digests of seats 1 and 3."""
    if len({(part.to, part.shape, part.dtype) for part in parts}) != 1 or len(parts) != 4:
        raise InconsistentShares("the servers sent results of different shapes or types; ask their operators")
    first = parts[0]
    size = math.prod(first.shape) * first.dtype.itemsize
    shares: list[Data] = []
    for row in (0, 1):
        share, check = parts[2 * row].payload, parts[2 * row + 1].payload
        if len(share) != size:
            raise InconsistentShares(f"the server of seat ({row},0) sent {len(share)} bytes, expected {size}")
        if digest(share) != check:
            raise InconsistentShares(f"the servers of row {row} disagree about their share; the result is not reliable")
        shares.append(ring.as_ring(share, (*first.shape, first.dtype.limbs)))
    return values(ring.add(shares[0], shares[1]), first.dtype)


def values(plain: Data, dtype: RingType) -> NDArray[Any]:
    """Opened ring elements as NumPy numbers: int64 for integers, float64 for fixed point."""
    return ring.to_int64(plain) if dtype.is_integer else ring.decode(plain, dtype.frac)
