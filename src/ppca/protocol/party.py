"""The state of one server in a session: its mates, the keys shared with them, and its record of openings.

Server number = 2 * row + column (see docs/development/architecture.md). A secret x is split twice: by rows x =
R0 + R1 and by columns x = C0 + C1. Server (r, c) holds Rr and Cc, two independent uniform values. The role of a server
is data: all four run the same code.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, MutableMapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from ..native import kernels, ring
from .rounds import Round, Step

KEY_BYTES = 16
"""Length of an AES key in bytes."""

DIGEST_BYTES = 16
"""Length in bytes of the digest of a job that servers compare."""


class MaskReuseError(RuntimeError):
    """A stream address was used twice. Two masks would be equal, and their difference would reveal secrets."""


class DifferentJobs(RuntimeError):
    """The four servers are about to compute different things. Nothing was computed."""


class Stream:
    """A pseudo-random stream known to the holders of one key, addressed by (operation number, purpose).

    Mates do not send masks to each other: they draw them at the same address. Each address can be used once during the
    life of a key; the second use raises `MaskReuseError`.
    """

    __slots__ = ("_used", "key", "name")

    def __init__(self, name: str, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"invalid key of stream {name}: {len(key)} bytes. A key has {KEY_BYTES} bytes.")
        self.name = name
        self.key = kernels.Key(key)
        self._used: set[int] = set()

    def claim(self, op: int, purpose: int) -> None:
        """Mark the address as used before the caller draws from it."""
        address = op << 8 | purpose
        if address in self._used:
            raise MaskReuseError(
                f"stream {self.name}: operation {op}, purpose {purpose} was drawn before. Each address is used once."
            )
        self._used.add(address)

    def draw(self, shape: tuple[int, ...], limbs: int, op: int, purpose: int) -> ring.Ring:
        """Claim the address and return the elements of the stream there."""
        self.claim(op, purpose)
        out = ring.empty(shape, limbs)
        kernels.prg(out, self.key, op, purpose)
        return out


class PrivateStream:
    """Randomness of this server alone, expanded from one key of the operating system."""

    __slots__ = ("_next", "_stream")

    def __init__(self) -> None:
        self._stream = Stream("private", secrets.token_bytes(KEY_BYTES))
        self._next = 0

    @property
    def key(self) -> kernels.Key:
        """Key of the stream."""
        return self._stream.key

    def claim(self) -> int:
        """Return a new operation number, whose streams 0 and 1 the caller may draw from."""
        self._next += 1
        self._stream.claim(self._next, 0)
        self._stream.claim(self._next, 1)
        return self._next


@dataclass(frozen=True, slots=True)
class Opening:
    """One line of the audit log: what was opened or revealed, to whom, and why."""

    number: int
    what: str
    shape: tuple[int, ...]
    to: str
    why: str

    def as_dict(self) -> dict[str, Any]:
        """Return the line as a JSON object."""
        return {"number": self.number, "what": self.what, "shape": list(self.shape), "to": self.to, "why": self.why}


@dataclass
class Party:
    """State of one server in one session: its number, streams, operation counter and audit log.

    tree: the public keys of the permutations in FSS trees; the same on all four servers of a run, different in every
    run. progress: reports to the client how far a program is. stage: names the current stage in the account of rounds
    and bytes. store: what this server keeps between programs, by name (shares of a fitted model, of sums).
    openings: how often each (value, receiver) may still be opened, see `opening.limits`; None: not limited. run: a
    public name of this run, the same on all four servers, different in every run. sent: payload bytes by kind of
    message, shown in profiles.
    """

    seat: int
    row_stream: Stream
    column_stream: Stream
    tree: kernels.TreeKey
    private: PrivateStream = field(default_factory=PrivateStream)
    audit: list[Opening] = field(default_factory=list)
    progress: Callable[[str, float | None], None] = lambda text, fraction: None
    stage: Callable[[str], Any] = nullcontext
    store: MutableMapping[str, dict[str, Any]] = field(default_factory=dict)
    openings: dict[tuple[str, str], int] | None = None
    run: str = ""
    sent: dict[str, int] = field(default_factory=dict)
    _ops: int = 0

    def __post_init__(self) -> None:
        self.row, self.column = divmod(self.seat, 2)
        self.row_mate, self.column_mate, self.diagonal = self.seat ^ 1, self.seat ^ 2, self.seat ^ 3
        # Masks of the row split come from the key of the column and cancel between the rows; and the reverse.
        self.row_mask_sign = 1 if self.row == 0 else -1
        self.column_mask_sign = 1 if self.column == 0 else -1
        self.row_rounding = ring.FLOOR if self.row == 0 else ring.CEIL
        self.column_rounding = ring.FLOOR if self.column == 0 else ring.CEIL

    @property
    def name(self) -> str:
        """Coordinates (row, column) as text."""
        return f"({self.row},{self.column})"

    def counted(self, kind: str, sends: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        """Add these messages to `sent` under their kind, and return them."""
        self.sent[kind] = self.sent.get(kind, 0) + sum(message.nbytes for _, message in sends)
        return sends

    def next_op(self) -> int:
        """Return the number of a new operation: the same on all four servers, because they run the same program."""
        self._ops += 1
        return self._ops


def agree_keys(seat: int, session: bytes, digest: bytes = bytes(DIGEST_BYTES)) -> Step[Party]:
    """Key agreement: a server and its mates agree keys at the start of a run, and the server gets its `Party`.

    1. Of each pair of mates the one with the lower number draws 32 bytes from the operating system and sends them over
       their link (mutually authenticated TLS in production). Server 0 also draws a nonce of 32 bytes and sends it to
       all. Every server sends all others 16 bytes, the digest of what it is about to compute.
    2. A server that gets another digest than its own stops with an error that names the servers. Both mates hash their
       bytes with the session name and the pair into the key of their stream. All four servers hash the nonce with the
       session name into the two public AES keys of their FSS trees.

    Rounds: 1, counted in `account.rounds`. Sent: at most 208 bytes per server.
    Security: only the two mates know their key. A new session has new keys, so masks never repeat. The nonce is public;
    one server may draw it, because it only has to be new: no attacker has computed with these AES keys before the run.
    A server 0 that does not follow the program could choose keys known beforehand. The bound of native/fss/tree.hpp
    then still holds, with q counting all work ever done on these keys.
    """
    mates = {"row": seat ^ 1, "column": seat ^ 2}
    drawn = {mate: secrets.token_bytes(32) for mate in mates.values() if seat < mate}
    nonce = secrets.token_bytes(32) if seat == 0 else b""
    sends = [*drawn.items(), *((peer, nonce) for peer in (1, 2, 3) if seat == 0)]
    expected = [mate for mate in mates.values() if mate < seat]
    keys = [*expected, *([0] if seat else [])]
    others = [peer for peer in range(4) if peer != seat]
    arrived = yield Round(
        [(peer, ring.np.frombuffer(value, ring.np.uint8)) for peer, value in [*sends, *((p, digest) for p in others)]],
        [*((peer, 32) for peer in keys), *((peer, DIGEST_BYTES) for peer in others)],
    )
    found = {peer: bytes(value) for peer, value in zip(others, arrived[len(keys) :], strict=True)}
    check_same(seat, {**found, seat: digest})
    known = drawn | {mate: bytes(value) for mate, value in zip(expected, arrived[: len(expected)], strict=True)}
    streams = {}
    for kind, mate in mates.items():
        label = f"ppca {kind} {min(seat, mate)}{max(seat, mate)}".encode()
        digest = hashlib.blake2b(session, key=known[mate], person=label[:16], digest_size=KEY_BYTES).digest()
        streams[kind] = Stream(label.decode(), digest)
    public = bytes(arrived[len(keys) - 1]) if seat else nonce
    run = hashlib.blake2b(session, key=public, person=b"ppca run", digest_size=KEY_BYTES).hexdigest()
    return Party(seat, streams["row"], streams["column"], tree_key(public, session), run=run)


def check_same(seat: int, digests: dict[int, bytes]) -> None:
    """Raise `DifferentJobs` if a server has another digest than this one."""
    same = [peer for peer in sorted(digests) if digests[peer] == digests[seat]]
    if len(same) < len(digests):
        other = [peer for peer in sorted(digests) if peer not in same]
        raise DifferentJobs(
            f"the servers were not given the same job: {_listed(other)} {'has' if len(other) == 1 else 'have'} another job, or "
            f"inputs of other shapes, than {_listed(same)}. Nothing was computed. Compare the job on these servers."
        )


def _listed(servers: list[int]) -> str:
    return f"server{'' if len(servers) == 1 else 's'} {' and '.join(map(str, servers))}"


def tree_key(nonce: bytes, session: bytes) -> kernels.TreeKey:
    """Return the two public AES keys of a run's FSS trees."""
    return kernels.TreeKey(
        hashlib.blake2b(session, key=nonce, person=b"ppca trees", digest_size=2 * KEY_BYTES).digest()
    )


def local_parties() -> list[Party]:
    """Return four parties with fresh keys in one process, for lock-step tests."""
    rows = [secrets.token_bytes(KEY_BYTES) for _ in range(2)]
    columns = [secrets.token_bytes(KEY_BYTES) for _ in range(2)]
    tree, run = tree_key(secrets.token_bytes(32), b""), secrets.token_hex(KEY_BYTES)
    streams = [(Stream(f"row {r}", rows[r]), Stream(f"column {c}", columns[c])) for r in range(2) for c in range(2)]
    return [Party(seat, *streams[seat], tree, run=run) for seat in range(4)]
