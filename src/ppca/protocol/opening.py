"""Opening: the one place at which values leave the sharing. Every opening is recorded with its content, receiver and
reason.

- `open`, to the servers: column mates exchange row shares and add them; all four servers know the value.
- `reveal`, to a receiver: the servers of column 0 send the receiver their row shares, those of column 1 a BLAKE2b
  digest of theirs. The receiver compares each digest with the share of the same row, and adds the shares.
Rounds: 1 for `open`, none among servers for `reveal`. Sent: 1 element per element. Error: that of the nearest double.
Security: this is the disclosure. An opening is refused before anything is sent if its reason is empty or if it is not
in the party's openings list; docs/reference/openings.md lists what jobs open.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..native import ring
from .cost import declare
from .dtypes import RingType
from .multiply import ELEMENT
from .party import Opening, Party
from .rounds import Round, Step
from .shares import Data, Held, Shares

S = TypeVar("S", bound=Shares)

SERVERS = "servers"
"""Receiver of values that are opened to all four servers."""


class InconsistentShares(ValueError):
    """The four servers' parts of a result do not fit together. The result was not used."""


class OpeningRefused(RuntimeError):
    """A program tried to open a value that the job does not list, or more often than listed. It was not opened."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """One server's part of a result for one receiver: its row share (column 0) or the digest of it (column 1)."""

    to: str
    shape: tuple[int, ...]
    dtype: RingType
    payload: bytes


def limits(openings: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """Return the openings list of a job in the form that a party uses: {(what, to): maximum number}.

    Each entry has the keys "what", "to" ("servers" or the name of a receiver) and "most" (maximum number in one run).
    """
    found: dict[tuple[str, str], int] = {}
    for entry in openings:
        key = str(entry["what"]), str(entry["to"])
        if key in found or type(entry["most"]) is not int or entry["most"] < 1:
            raise ValueError(
                f"invalid openings list: {key} occurs twice, or its maximum number is not a "
                "positive integer. Correct the job."
            )
        found[key] = entry["most"]
    return found


def record(party: Party, what: str, shape: tuple[int, ...], to: str, why: str) -> None:
    """Add a line to the audit log. Refuse an opening without a reason, and one that the job does not allow, or not any
    more.
    """
    if not why.strip():
        raise ValueError(f"opening {what!r} needs a reason: pass why='...'. The reason is written to the audit log.")
    if party.openings is not None:
        left = party.openings.get((what, to))
        if not left:
            cause = (
                "is not in the list of openings of this job"
                if left is None
                else "was opened as often as this job allows"
            )
            raise OpeningRefused(
                f"{what!r} to {to!r} {cause}; it was not opened. To open it, propose a job that lists it and have "
                "its owners approve that job."
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
    """Open the values to all four servers."""
    party = x.party
    record(party, what, x.shape, SERVERS, why)
    mine = np.ascontiguousarray(x.row)
    (theirs,) = yield Round(party.counted("openings", [(party.column_mate, mine)]), [(party.column_mate, mine.nbytes)])
    return values(ring.add(mine, ring.as_ring(theirs, mine.shape)), x.dtype)


def seal(x: Shares, what: str, to: str, why: str) -> Sealed:
    """Return this server's part of a result for the named receiver."""
    record(x.party, what, x.shape, to, why)
    share = np.ascontiguousarray(x.row).tobytes()
    payload = share if x.party.column == 0 else digest(share)
    return Sealed(to, x.shape, x.dtype, payload)


def randomize_below(x: S, frac: int) -> S:
    """Return x with random bits below 2^-frac, in the row split only. Local.

    A receiver of all fractional bits of a product would learn more about the factors than the result is meant to tell.
    The servers of each row add the same random numbers below 2^-frac, from their key, to their share. The lower bits
    are then uniform, also for a single server together with the receiver.
    Error: below 2^-frac. Range: |x| + 2^(1 - frac) must be in the ring.
    """
    party, bits = x.party, x.dtype.frac - frac
    if not 0 < bits < 64:
        raise ValueError(f"cannot randomize {bits} bits of {x.dtype} below 2^-{frac}. Possible are 1 to 63 bits.")
    noise = ring.zeros(x.shape, x.dtype.limbs)
    noise[..., 0] = party.row_stream.draw(x.shape, 1, party.next_op(), 0)[..., 0] >> np.uint64(64 - bits)
    half = ring.zeros(x.shape, x.dtype.limbs)
    half[..., 0] = 1 << (bits - 1)
    data = np.zeros((2, *x.row.shape), np.uint64)
    data[0] = ring.sub(ring.add(x.row, noise), half)  # the mean of the noise is half of its range in each row
    return type(x)(party, data, x.dtype, Held.LEFT)


def digest(share: bytes) -> bytes:
    """Return the BLAKE2b digest of a row share."""
    return hashlib.blake2b(share, digest_size=32, person=b"ppca row share").digest()


def unseal(parts: Sequence[Sealed]) -> NDArray[Any]:
    """Compute a result at the receiver: check the digests of servers 1 and 3, then add the row shares of servers 0 and
    2.
    """
    if len({(part.to, part.shape, part.dtype) for part in parts}) != 1 or len(parts) != 4:
        raise InconsistentShares(
            "the servers sent results of different shapes or types; the result was not used. Ask their operators."
        )
    first = parts[0]
    size = math.prod(first.shape) * first.dtype.itemsize
    shares: list[Data] = []
    for row in (0, 1):
        share, check = parts[2 * row].payload, parts[2 * row + 1].payload
        if len(share) != size:
            raise InconsistentShares(
                f"server ({row}, 0) sent {len(share)} bytes of the result, expected {size}; the result was not used"
            )
        if digest(share) != check:
            raise InconsistentShares(f"the servers of row {row} disagree about their share; the result was not used")
        shares.append(ring.as_ring(share, (*first.shape, first.dtype.limbs)))
    return values(ring.add(shares[0], shares[1]), first.dtype)


def values(plain: Data, dtype: RingType) -> NDArray[Any]:
    """Return opened ring elements as NumPy numbers: int64 for integers, float64 for fixed point."""
    return ring.to_int64(plain) if dtype.is_integer else ring.decode(plain, dtype.frac)
