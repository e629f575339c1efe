"""One server's seat at the grid: who its mates are, the keys it shares with them, and its record of openings.

Seat number = 2 * row + column (drawn in docs/architecture.md). A secret x is split twice, independently: by rows
x = R0 + R1 and by columns x = C0 + C1. Server (r, c) holds Rr and Cc: two independent uniform values. Role is data;
there is one code for all.
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


class MaskReuseError(RuntimeError):
    """A stream address was asked for twice: two masks would be equal and their difference would leak."""


class Stream:
    """A pseudo-random stream known to the holders of one key, addressed by (operation number, purpose).

    Mates never exchange masks: they draw them at the same address. Each address may be used once in the life of a key;
    the second use raises `MaskReuseError`.
    """

    __slots__ = ("_used", "key", "name")

    def __init__(self, name: str, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"key of {name} has {len(key)} bytes, expected {KEY_BYTES}")
        self.name = name
        self.key = kernels.Key(key)
        self._used: set[int] = set()

    def claim(self, op: int, purpose: int) -> None:
        """Marks the address as used; the caller is about to draw from it."""
        address = op << 8 | purpose
        if address in self._used:
            raise MaskReuseError(f"stream {self.name}: operation {op}, purpose {purpose} was drawn before")
        self._used.add(address)

    def draw(self, shape: tuple[int, ...], limbs: int, op: int, purpose: int) -> ring.Ring:
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
        return self._stream.key

    def claim(self) -> int:
        """The number of an operation that may draw from the streams 0 and 1 of the key: a new one at every call."""
        self._next += 1
        self._stream.claim(self._next, 0)
        self._stream.claim(self._next, 1)
        return self._next


@dataclass(frozen=True, slots=True)
class Opening:
    """One line of the audit: what left the sharing, to whom, and why."""

    number: int
    what: str
    shape: tuple[int, ...]
    to: str
    why: str

    def as_dict(self) -> dict[str, Any]:
        return {"number": self.number, "what": self.what, "shape": list(self.shape), "to": self.to, "why": self.why}


@dataclass
class Party:
    """The state of one server in one session: seat, streams, operation counter, audit.

    tree: the public keys of the permutations in FSS trees, the same on all four servers of a run, others in the next.
    progress: tells the client how far a program is; stage: names what follows in the account of rounds and bytes;
    store: what this server keeps between programs, by name (shares of a fitted model, of sums).
    tables: rows that were uploaded for a job under way, by name; they end with the job or the process.
    openings: how often each thing (what, to whom) may still leave the sharing, see `opening.limits`; None: anything may.
    run: a public name of this run, the same on all four servers, that no other run has.
    sent: payload bytes by kind of message, what a profile shows.
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
    tables: dict[str, Any] = field(default_factory=dict)
    openings: dict[tuple[str, str], int] | None = None
    run: str = ""
    sent: dict[str, int] = field(default_factory=dict)
    _ops: int = 0

    def __post_init__(self) -> None:
        self.row, self.column = divmod(self.seat, 2)
        self.row_mate, self.column_mate, self.diagonal = self.seat ^ 1, self.seat ^ 2, self.seat ^ 3
        # Masks of the row split come from the column's key and cancel between the rows, and the other way round.
        self.row_mask_sign = 1 if self.row == 0 else -1
        self.column_mask_sign = 1 if self.column == 0 else -1
        self.row_rounding = ring.FLOOR if self.row == 0 else ring.CEIL
        self.column_rounding = ring.FLOOR if self.column == 0 else ring.CEIL

    @property
    def name(self) -> str:
        return f"({self.row},{self.column})"

    def counted(self, kind: str, sends: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        """These messages, entered in `sent` under their kind."""
        self.sent[kind] = self.sent.get(kind, 0) + sum(message.nbytes for _, message in sends)
        return sends

    def next_op(self) -> int:
        """The number of a new operation: the same on all four servers, because they run the same program."""
        self._ops += 1
        return self._ops


def agree_keys(seat: int, session: bytes) -> Step[Party]:
    """Key agreement: a server and its mates agree keys at the start of a run, and the server gets its `Party`.

    1. Of each pair of mates the one with the lower seat draws 32 bytes from the operating system and sends them over
       their (in production: mutually authenticated TLS) link. Seat 0 also draws a nonce of 32 bytes and sends it to all.
    2. Both mates hash theirs with the session name and the pair into the key of their stream. All four hash the nonce
       with the session name into the two public AES keys of their FSS trees.

    Rounds: 1, counted in `account.rounds`. Sent: at most 160 bytes per server.
    Security: a key is known to the two mates only; a new session has new keys, so masks never repeat. The nonce is public. That
    one server draws it is enough: it must only be new, so that nobody has worked against these AES keys before the run, and
    a server that follows the program draws it so. One that does not could choose keys it likes: it would be back at keys
    that are known beforehand, against whom the bound of native/fss/tree.hpp still holds, with the work of all time in q.
    """
    mates = {"row": seat ^ 1, "column": seat ^ 2}
    drawn = {mate: secrets.token_bytes(32) for mate in mates.values() if seat < mate}
    nonce = secrets.token_bytes(32) if seat == 0 else b""
    sends = [*drawn.items(), *((peer, nonce) for peer in (1, 2, 3) if seat == 0)]
    expected = [mate for mate in mates.values() if mate < seat]
    arrived = yield Round(
        [(peer, ring.np.frombuffer(value, ring.np.uint8)) for peer, value in sends],
        [(peer, 32) for peer in [*expected, *([0] if seat else [])]],
    )
    known = drawn | {mate: bytes(value) for mate, value in zip(expected, arrived[: len(expected)], strict=True)}
    streams = {}
    for kind, mate in mates.items():
        label = f"ppca {kind} {min(seat, mate)}{max(seat, mate)}".encode()
        digest = hashlib.blake2b(session, key=known[mate], person=label[:16], digest_size=KEY_BYTES).digest()
        streams[kind] = Stream(label.decode(), digest)
    public = bytes(arrived[-1]) if seat else nonce
    run = hashlib.blake2b(session, key=public, person=b"ppca run", digest_size=KEY_BYTES).hexdigest()
    return Party(seat, streams["row"], streams["column"], tree_key(public, session), run=run)


def tree_key(nonce: bytes, session: bytes) -> kernels.TreeKey:
    """The two public AES keys of a run's FSS trees."""
    return kernels.TreeKey(
        hashlib.blake2b(session, key=nonce, person=b"ppca trees", digest_size=2 * KEY_BYTES).digest()
    )


def local_parties() -> list[Party]:
    """Four parties with fresh keys in one process: for lock-step tests."""
    rows = [secrets.token_bytes(KEY_BYTES) for _ in range(2)]
    columns = [secrets.token_bytes(KEY_BYTES) for _ in range(2)]
    tree, run = tree_key(secrets.token_bytes(32), b""), secrets.token_hex(KEY_BYTES)
    streams = [(Stream(f"row {r}", rows[r]), Stream(f"column {c}", columns[c])) for r in range(2) for c in range(2)]
    return [Party(seat, *streams[seat], tree, run=run) for seat in range(4)]
