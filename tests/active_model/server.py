"""One server of the model: its keys, its shares and its side of every protocol.

A protocol is a generator. It calls `send`, yields once per round and then reads what arrived with `got`. All four
servers run the same program; each object holds only what that server knows. A server that finds a defect raises
`Refused` before it sends its next frame. docs/security/security-with-abort.md defines the protocols and names the checks.

Names: server s = 2 * row + column. Its row mate is s ^ 1, its column mate s ^ 2, its diagonal s ^ 3.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .primitives import (
    BITS,
    MOD,
    P127,
    Array,
    Ideal,
    Stream,
    Trees,
    array,
    fingerprint,
    random_prime,
    sha,
    signed,
    universal_hash,
)

SERVERS = range(4)
HOLDERS = {
    "row0": {0, 1},
    "row1": {2, 3},
    "col0": {0, 2},
    "col1": {1, 3},
    "diag0": {0, 3},
    "diag1": {1, 2},
    **{f"not{j}": set(SERVERS) - {j} for j in SERVERS},
}
Step = Generator[None, None, Any]

CHECKS = {
    "alone": "each split of a gate's output is made by one row",
    "tie": "diagonals compare R - C of every value that has two fresh splits",
    "witness": "the receiver of FSS keys compares them with the hash of the other dealer",
    "early": "the receiver makes that comparison before it uses the keys",
    "bound": "FSS randomness is derived from the shares it is used with",
    "z": "all pairs compare masked sign bits",
    "zero": "diagonals compare the sum of all claims",
    "length": "masked sums have a bounded length",
    "proof": "the column mate verifies the folded inner product",
    "blind": "folded vectors contain a random block",
    "commit": "coins fit their commitments",
    "label": "commitments name session, server and purpose",
    "agree": "all pairs compare coins",
    "cover": "a checkpoint covers only operations that ended before its first coin",
    "passed": "an opening waits for one frame of everybody after the last check",
    "open": "an opened share fits the hash of the diagonal",
    "mates": "mates compare input shares",
    "input tie": "diagonals compare R - C of inputs",
    "triple": "a key of three servers fits the hash of its second holder",
    "shifted": "inputs are shifted by public random numbers that are drawn after the inputs are fixed",
    "coined": "keys depend on a coin that is tossed after the contributions are fixed",
    "digest": "the receiver compares revealed shares with the digests of the other column",
}


class Refused(Exception):
    """An honest server stops. The argument names the check."""


@dataclass(frozen=True)
class Config:
    """Security parameters, and the checks that are switched off to show that they are needed."""

    kappa: int = 24
    kappa_matrix: int = 48
    arity: int = 4
    prime_bits: int = 61
    slack: int = 64
    ideal: bool = False
    off: frozenset[str] = frozenset()

    @property
    def width(self) -> int:
        """Bits of the mask of a sum of claims: two elements, up to 2^40 terms, and the statistical slack."""
        return 2 * BITS + 40 + self.slack


class Shared:
    """One server's shares of a secret array. R or C is None if the product was asked for one split only."""

    __slots__ = ("C", "R", "born", "server")

    def __init__(self, server: Server, R: Array | None, C: Array | None, born: int | None = None) -> None:
        self.server, self.R, self.C = server, R, C
        self.born = server.round if born is None else born

    def _both(self, other: Shared, f: Callable[[Array, Array], Array]) -> Shared:
        parts = [None if a is None or b is None else f(a, b) % MOD for a, b in ((self.R, other.R), (self.C, other.C))]
        return Shared(self.server, *parts, max(self.born, other.born))

    def __add__(self, other: Shared) -> Shared:
        return self._both(other, lambda a, b: a + b)

    def __sub__(self, other: Shared) -> Shared:
        return self._both(other, lambda a, b: a - b)

    def map(self, f: Callable[[Array], Array]) -> Shared:
        """Apply a local function to each split."""
        parts = (None if v is None else f(v) for v in (self.R, self.C))
        return Shared(self.server, *parts, self.born)

    def times(self, factor: int) -> Shared:
        return self.map(lambda v: v * factor % MOD)

    def plus(self, constant: int, ring: int = MOD) -> Shared:
        """Add a public constant: to the first summand of each split."""
        R = self.R if self.R is None or self.server.row else (self.R + constant) % ring
        C = self.C if self.C is None or self.server.column else (self.C + constant) % ring
        return Shared(self.server, R, C, self.born)

    def truncated(self, bits: int) -> Shared:
        """Truncate locally: first summands round down, second ones up."""

        def cut(v: Array | None, second: int) -> Array | None:
            if v is None:
                return None
            return (-((-v % MOD) >> bits)) % MOD if second else v >> bits

        return Shared(self.server, cut(self.R, self.server.row), cut(self.C, self.server.column), self.born)


def joined(parts: list[Shared], how: Callable[[list[Array]], Array] | None = None) -> Shared:
    """Combine arrays locally: flat and concatenated unless `how` says otherwise."""
    how = how or (lambda vs: np.concatenate([np.asarray(v, dtype=object).ravel() for v in vs]))
    first = parts[0]
    R, C = how([p.R for p in parts]), how([p.C for p in parts])
    return Shared(first.server, R, C, max(p.born for p in parts))


def together(*steps: Step) -> Step:
    """Run protocols beside each other: round i of every one travels in the same frame."""
    results: list[Any] = [None] * len(steps)
    live = dict(enumerate(steps))
    while live:
        for i in list(live):
            try:
                next(live[i])
            except StopIteration as stop:
                results[i] = stop.value
                del live[i]
        if live:
            yield
    return results


@dataclass
class Claim:
    """What a server remembers of a product or shuffle until a checkpoint has covered it."""

    kind: str
    left: Array | None
    right: Array
    out: Array
    scale: int
    name: tuple[int, int]
    born: int
    order: Array | None = None


class Weights:
    """The binary weights of all claims of a checkpoint, expanded from its first coin."""

    def __init__(self, coin: Any, claims: list[Claim], config: Config) -> None:
        self.config, self.claims, self.parts = config, claims, []
        for claim in claims:
            bits = Stream(coin, "weights", claim.name)
            if claim.kind == "matrix":
                assert claim.left is not None
                n, m = claim.left.shape[0], claim.right.shape[1]
                raw = bits.integers(config.kappa_matrix * (n + m), 1).reshape(config.kappa_matrix, n + m)
                self.parts.append((raw[:, :n], raw[:, n:].T))
            else:
                self.parts.append(bits.integers(config.kappa * claim.out.size, 1).reshape(config.kappa, -1))

    def _total(self, f: Callable[[Claim, Any], Array]) -> Array:
        vectors, matrices = (np.zeros(k, dtype=object) for k in (self.config.kappa, self.config.kappa_matrix))
        for claim, part in zip(self.claims, self.parts, strict=True):
            value = claim.scale * f(claim, part)
            if claim.kind == "matrix":
                matrices = matrices + value
            else:
                vectors = vectors + value
        return np.concatenate([vectors, matrices])

    def sums(self) -> Array:
        """Return this server's share of every combination, as integers that are never reduced."""

        def one(claim: Claim, part: Any) -> Array:
            if claim.kind == "permutation":
                return part @ claim.right[claim.order].ravel() if claim.order is not None else part[:, 0] * 0
            if claim.kind == "matrix":
                return ((part[0].dot(claim.left) % MOD) * (claim.right.dot(part[1]) % MOD).T).sum(axis=1)
            product = claim.left * claim.right
            return part @ (product.sum(axis=-1) if claim.kind == "inner" else product).ravel()

        return self._total(one)

    def outputs(self) -> Array:
        """Return this server's share of the combined outputs, modulo 2^128."""

        def one(claim: Claim, part: Any) -> Array:
            if claim.kind == "matrix":
                return (part[0].dot(claim.out) * part[1].T).sum(axis=1)
            return part @ claim.out.ravel()

        return self._total(one) % MOD

    def left(self, chi: Array, p: int) -> Array:
        """Return the vector that both servers of a row know. It contains the coefficients of the combinations."""
        out = [np.zeros(1, dtype=object)]
        first, second = chi[: self.config.kappa], chi[self.config.kappa :]
        for claim, part in zip(self.claims, self.parts, strict=True):
            if claim.kind == "permutation":
                moved = np.zeros(claim.out.shape, dtype=object)
                if claim.order is not None:
                    moved[claim.order] = (first @ part).reshape(moved.shape)
                out.append(moved.ravel())
            elif claim.kind == "matrix":
                out.append(claim.scale * ((part[0].dot(claim.left) % MOD) * second[:, None] % p).ravel())
            else:
                weight = first @ part
                if claim.kind == "inner":
                    weight = np.repeat(weight, claim.right.shape[-1])
                assert claim.left is not None
                out.append(claim.scale * weight * claim.left.ravel())
        return np.concatenate(out) % p

    def right(self, p: int) -> Array:
        """Return the vector that both servers of a column know."""
        out = [np.zeros(1, dtype=object)]
        for claim, part in zip(self.claims, self.parts, strict=True):
            if claim.kind == "matrix":
                out.append((claim.right.dot(part[1]) % MOD).T.ravel())
            else:
                out.append(claim.right.ravel())
        return np.concatenate(out) % p


def blocks(values: Array, arity: int) -> Array:
    """Cut a vector into `arity` blocks of equal length, padded with zeros."""
    length = max(1, -(-len(values) // arity))
    out = np.zeros(length * arity, dtype=object)
    out[: len(values)] = values
    return out.reshape(arity, length)


class Server:
    """The state of one server in one session."""

    def __init__(self, world: Any, seat: int) -> None:
        self.world, self.seat = world, seat
        self.config: Config = world.config
        self.row, self.column = divmod(seat, 2)
        self.row_mate, self.column_mate, self.diagonal = seat ^ 1, seat ^ 2, seat ^ 3
        self.peers = [p for p in SERVERS if p != seat]
        self.fss = Ideal if self.config.ideal else Trees
        self.keys: dict[str, Any] = {}
        self.round, self.op = 0, 0
        self.out: dict[Any, dict[str, Any]] = {p: {} for p in self.peers}
        self.inbox: dict[int, dict[str, Any]] = {}
        self.expected: list[Callable[[], None]] = []
        self.background: list[Step] = []
        self.claims: list[Claim] = []
        self.covered, self.started, self.number = -1, -1, 0
        self.opened: dict[str, list[int]] = {}
        self.signs: dict[int, Array] = {}
        self.weights: Weights | None = None
        self.field: tuple[int, Array] | None = None

    # ---- frames ------------------------------------------------------------------------------------------------------
    def main(self, program: Callable[[Server], Step]) -> Generator[dict[Any, Any], dict[int, dict[str, Any]], None]:
        """Run a program: yield this server's frames of a round, be resumed with the frames that arrived."""
        main = self._whole(program)
        while True:
            tasks = list(self.background)
            for task in [main, *tasks] if "cover" in self.config.off else [*tasks, main]:
                try:
                    next(task)
                except StopIteration:
                    if task is main:
                        return
                    self.background.remove(task)
            frame, self.out = self.out, {p: {} for p in self.peers}
            expected, self.expected = self.expected, []
            self.inbox = yield frame
            self.round += 1
            for check in expected:
                check()

    def _whole(self, program: Callable[[Server], Step]) -> Step:
        yield from self.setup()
        yield from program(self)
        yield
        yield

    def refuse(self, check: str, peer: int) -> None:
        if self.seat != self.world.bad:
            raise Refused(check, tuple(sorted((self.seat, peer))))

    def send(self, peer: Any, tag: str, value: Any, domain: str = "ring") -> None:
        if self.seat == self.world.bad:
            value = self.world.adversary.touch("message", f"{tag}>{peer}", value, domain)
        self.out.setdefault(peer, {})[tag] = value

    def local(self, tag: str, value: Any, domain: str = "ring") -> Any:
        if self.seat == self.world.bad:
            return self.world.adversary.touch("local", tag, value, domain)
        return value

    def got(self, peer: int, tag: str, size: int | None = None) -> Any:
        """Return a message of the last round. A missing or malformed one ends the run."""
        value = self.inbox.get(peer, {}).get(tag)
        if value is None or (size is not None and np.size(value) != size):
            self.refuse(f"{tag}: malformed", peer)
            return np.zeros(size or 1, dtype=object)
        return value

    def next(self) -> int:
        self.op += 1
        return self.op

    # ---- keys --------------------------------------------------------------------------------------------------------
    def pair(self, peer: int) -> str:
        """Return the name of the key shared with a peer."""
        if peer == self.row_mate:
            return f"row{self.row}"
        if peer == self.column_mate:
            return f"col{self.column}"
        return "diag0" if {self.seat, peer} == {0, 3} else "diag1"

    def private(self, *label: Any) -> int:
        return int(Stream((self.world.seed, "private", self.seat), *label).integers(1)[0])

    def setup(self) -> Step:
        """Agree pair keys, a public coin and the keys of three servers. Three rounds."""
        own = {p: self.local(f"setup.own{p}", self.private("pair", p), "block") for p in self.peers}
        for p in self.peers:
            self.send(p, "setup.pair", own[p], "block")
        mine = self.commit("setup")
        yield
        theirs = {p: int(self.got(p, "setup.pair")) for p in self.peers}
        marks = {p: self.got(p, "setup.commit") for p in self.peers}
        self.tell("setup", mine)
        yield
        coin = self.coin("setup", mine, marks, compare=False)
        self.coins = sha(self.world.session, coin, "public")
        for p in self.peers:
            low, high = (own[p], theirs[p]) if self.seat < p else (theirs[p], own[p])
            known = (low, high, coin) if "coined" not in self.config.off else (low,)
            self.keys[self.pair(p)] = sha(self.world.session, "pair", self.pair(p), *known)
        for p in self.peers:
            self.compare(p, "setup.agree", array([int.from_bytes(sha(self.world.program, coin)[:16], "little")]))
        for j in SERVERS:
            if self.row != j >> 1:
                key = sha(self.keys[f"row{self.row}"], "not", j)
                self.keys[f"not{j}"] = key
                if self.column == 0:
                    self.send(j ^ 1, f"setup.not{j}", int.from_bytes(key, "little"), "block")
                else:
                    self.send(j ^ 1, f"setup.mark{j}", sha("triple", self.world.session, j, key), "hash")
        yield
        j, first = self.row_mate, 2 - 2 * self.row
        key = (int(self.got(first, f"setup.not{j}")) % (1 << 256)).to_bytes(32, "little")
        mark = self.got(first + 1, f"setup.mark{j}")
        if mark != sha("triple", self.world.session, j, key) and "triple" not in self.config.off:
            self.refuse("triple", first)
        self.keys[f"not{j}"] = key

    def draw(self, key: str, label: Any, count: int, bits: int = BITS) -> Array:
        """Draw integers from a key. Each label is used once."""
        forced = self._forced(key, label)
        return forced if forced is not None else Stream(self.keys[key], label).integers(count, bits)

    def _forced(self, key: str, label: Any) -> Array | None:
        """Return the mask that a test of equal views has fixed, if any."""
        if self.seat == self.world.bad:
            return None
        self.world.drawn.add((key, label))
        return self.world.forced.get((key, label))

    def residues(self, key: str, label: Any, count: int, p: int, low: int = 0) -> Array:
        forced = self._forced(key, label)
        return forced if forced is not None else Stream(self.keys[key], label).residues(count, p, low)

    def send_masked(
        self, peer: int, tag: str, term: Array, key: str, label: Any, sign: int, ring: int, domain: str = "ring"
    ) -> Array:
        """Send term + sign * mask and return it. The mask is drawn from `key`."""
        self.world.program_mask(self, peer, tag, term, key, label, sign, ring)
        mask = self.draw(key, label, term.size).reshape(term.shape) % ring
        value = self.local(f"{tag}.sum", (term + sign * mask) % ring)
        self.send(peer, tag, value, domain)
        return value

    # ---- digests -----------------------------------------------------------------------------------------------------
    def compare(self, peer: int, tag: str, values: Array, check: str | None = None) -> None:
        """Send a keyed digest of what both servers should hold. The next frame of the peer must carry the same."""
        key, pad = (int(v) for v in self.draw(self.pair(peer), (tag, self.round, "digest"), 2, 127))
        digest = universal_hash(key % P127, pad, values)
        self.send(peer, f"{tag}.digest", digest, "hash")

        def check_it() -> None:
            if self.got(peer, f"{tag}.digest") != digest:
                self.refuse(check or tag, peer)

        self.expected.append(check_it)

    def tie(self, tag: str, R: Array, C: Array, ring: int = MOD, check: str = "tie") -> None:
        """Diagonals compare both splits of a fresh value: R - C on one side, C - R on the other."""
        if check not in self.config.off:
            self.compare(self.diagonal, tag, (R - C if self.row == 0 else C - R) % ring, f"{tag}: {check}")

    # ---- inputs ------------------------------------------------------------------------------------------------------
    def input(self, name: str, ring: int = MOD) -> Shared:
        """Take this server's shares of an owner's array and compare them with the others."""
        op = self.next()
        R, C = self.world.input_shares(self.seat, name, ring)
        R, C = self.local(f"input{op}.R", R), self.local(f"input{op}.C", C)
        if "mates" not in self.config.off:
            self.compare(self.row_mate, f"input{op}.row", R, "mates")
            self.compare(self.column_mate, f"input{op}.column", C, "mates")
        self.tie(f"input{op}", R, C, ring, "input tie")
        if "shifted" not in self.config.off:
            shift = Stream(self.coins, "shift", op).integers(2 * R.size).reshape(2, *R.shape)
            R, C = (R + (1 - 2 * self.row) * shift[0]) % ring, (C + (1 - 2 * self.column) * shift[1]) % ring
        return Shared(self, R, C)

    def public(self, value: int, like: Array) -> Shared:
        full, none = np.full(np.shape(like), value, dtype=object), np.zeros(np.shape(like), dtype=object)
        return Shared(self, none if self.row else full, none if self.column else full, 0)

    # ---- exchange and products ---------------------------------------------------------------------------------------
    def exchange(self, tag: str, term: Array, rows: bool, columns: bool, ring: int) -> Step:
        """Turn terms of the four servers into shares of their sum, in the row split, the column split or both."""
        R = C = None
        if rows:
            label, sign = (tag, "R"), 1 - 2 * self.row
            R = self.send_masked(self.row_mate, f"{tag}.R", term, f"col{self.column}", label, sign, ring)
        if columns:
            label, sign = (tag, "C"), 1 - 2 * self.column
            C = self.send_masked(self.column_mate, f"{tag}.C", term, f"row{self.row}", label, sign, ring)
        yield
        if R is not None:
            R = (R + self.got(self.row_mate, f"{tag}.R", term.size).reshape(term.shape)) % ring
            R = self.local(f"{tag}.Rout", R)
        if C is not None:
            C = (C + self.got(self.column_mate, f"{tag}.C", term.size).reshape(term.shape)) % ring
            C = self.local(f"{tag}.Cout", C)
        if R is not None and C is not None:
            self.tie(tag, R, C, ring)
        return Shared(self, R, C)

    def multiply(
        self, x: Shared, y: Shared, kind: str = "element", shift: int = 0, ring: int = MOD, only: str = "both"
    ) -> Step:
        """Product of x (row split) and y (column split). One round, one claim. `only`: "left", "right" or "both"."""
        op = self.next()
        tag = f"mul{op}"
        if kind == "matrix" and x.R.ndim == 3:
            term = np.stack([a.dot(b) for a, b in zip(x.R, y.C, strict=True)])
        elif kind == "matrix":
            term = x.R.dot(y.C)
        else:
            term = (x.R * y.C).sum(axis=-1) if kind == "inner" else x.R * y.C
        term = self.local(f"{tag}.t", term % ring)
        z = yield from self.exchange(tag, term, only != "right", only != "left", ring)
        out = z.R if z.R is not None else z.C
        scale = MOD // ring  # an equation modulo 2^64 becomes one modulo 2^128
        if kind == "matrix" and term.ndim == 3:
            for j in range(len(term)):
                self.claims.append(Claim(kind, x.R[j], y.C[j], out[j], scale, (op, j), self.round))
        else:
            self.claims.append(Claim(kind, x.R, y.C, out, scale, (op, 0), self.round))
        return z.truncated(shift) if shift else z

    def multiply_upper(self, x: Shared, y: Shared, shift: int = 0, parts: int = 2) -> Step:
        """Upper triangle of a product, packed: block rows against the columns from their first one on."""
        d = x.R.shape[0]
        cuts = [d * i // parts for i in range(parts + 1)]
        spans = list(itertools.pairwise(cuts))
        steps = [
            self.multiply(Shared(self, x.R[a:b], None, x.born), Shared(self, None, y.C[:, a:], y.born), "matrix")
            for a, b in spans
        ]
        found = yield from together(*steps)

        def pack(vs: list[Array]) -> Array:
            full = np.zeros((d, d), dtype=object)
            for (a, b), v in zip(spans, vs, strict=True):
                full[a:b, a:] = v
            return full[np.triu_indices(d)]

        z = joined(found, pack)
        return z.truncated(shift) if shift else z

    def shuffle(self, x: Shared) -> Step:
        """Permute the rows of a matrix in an order that no server knows. Two rounds."""
        for q in (0, 1):
            op = self.next()
            tag, order = f"shuffle{op}", None
            term = np.zeros(x.C.shape, dtype=object)
            if self.row == q:
                order = np.argsort(self.draw(f"row{q}", (tag, "order"), len(x.C)), kind="stable")
                term = x.C[self.local(f"{tag}.order", order, "order")]
            term = self.local(f"{tag}.t", term)
            z = yield from self.exchange(tag, term, True, True, MOD)
            self.claims.append(Claim("permutation", None, x.C, z.R, 1, (op, 0), self.round, order))
            x = z
        return x

    # ---- exact truncation --------------------------------------------------------------------------------------------
    def wraps(self, x: Shared, ring: int, bits: int) -> Step:
        """Shares of the wrap of both splits, modulo `ring`: w = m0 + m1 - m0 m1, by two one-sided products each."""
        rows, columns = x.R >> (bits - 1), x.C >> (bits - 1)
        none = np.zeros(rows.shape, dtype=object)
        one = self.public(1, rows)
        m0, m1 = (Shared(self, rows if self.row == q else none, None, x.born) for q in (0, 1))
        n0, n1 = (Shared(self, None, columns if self.column == c else none, x.born) for c in (0, 1))
        right, left = yield from together(
            self.multiply(m1, one, ring=ring, only="right"), self.multiply(one, n1, ring=ring, only="left")
        )
        p, q = yield from together(
            self.multiply(m0, right, ring=ring, only="left"), self.multiply(left, n0, ring=ring, only="right")
        )
        return Shared(self, (rows - p.R) % ring, (columns - q.C) % ring)

    def truncate(self, x: Shared, bits: int) -> Step:
        """Truncate |X| < 2^126 exactly. Two rounds."""
        x = x.plus(1 << (BITS - 2))
        w = yield from self.wraps(x, 1 << 64 if bits <= 64 else MOD, BITS)

        def cut(v: Array, wrap: Array, second: int) -> Array:
            return ((-(-v // (1 << bits)) if second else v >> bits) - (wrap << (BITS - bits))) % MOD

        z = Shared(self, cut(x.R, w.R, self.row), cut(x.C, w.C, self.column))
        return z.plus(-(1 << (BITS - 2 - bits)))

    def extend(self, x: Shared) -> Step:
        """Move |X| < 2^62 from Z_2^64 to Z_2^128. Two rounds."""
        x = x.plus(1 << 62, 1 << 64)
        w = yield from self.wraps(x, 1 << 64, 64)
        z = Shared(self, (x.R - (w.R << 64)) % MOD, (x.C - (w.C << 64)) % MOD)
        return z.plus(-(1 << 62))

    # ---- function secret sharing, both ways --------------------------------------------------------------------------
    def deal(
        self, tag: str, shares: Array, make: Callable[[Array, Array, int], list[list[list[int]]]], draws: int
    ) -> None:
        """Make the keys of this row; send one to the column mate and a hash of the other to the diagonal."""
        mine = self.local(f"{tag}.alpha", shares.ravel())
        bound = fingerprint(mine) if "bound" not in self.config.off else b""
        random = self.world.dealer_random(self, tag, bound, draws * mine.size)
        bad = self.world.bad
        plain = bad & 1 if bad is not None and bad >> 1 == 1 - self.row else 0
        pairs = make(mine, random.reshape(mine.size, draws), plain)
        flat = [array(w for key in pairs for w in key[c]) for c in (0, 1)]
        self.send(self.column_mate, f"{tag}.key", self.local(f"{tag}.key", flat[self.column], "key"), "key")
        self.send(
            self.diagonal, f"{tag}.mark", sha(self.world.session, tag, fingerprint(flat[1 - self.column])), "hash"
        )

    def receive_keys(self, tag: str, count: int, size: int) -> tuple[list[list[int]], bool]:
        """Return the keys of the column mate, after comparing them with the hash of the diagonal."""
        words = self.got(self.column_mate, f"{tag}.key", count * size)
        mark = self.got(self.diagonal, f"{tag}.mark")
        fits = "witness" in self.config.off or mark == sha(self.world.session, tag, fingerprint(words))
        if not fits and "early" not in self.config.off:
            self.refuse(f"{tag}: witness", self.column_mate)
        return [[int(v) for v in words[i * size : (i + 1) * size]] for i in range(count)], fits

    def gate(
        self,
        tag: str,
        x: Shared,
        bits: int,
        make: Callable[[Array, Array, int], list[list[list[int]]]],
        draws: int,
        size: int,
        evaluate: Callable[[int, list[int], int], int],
        first: int,
        element: int,
    ) -> Step:
        """A public function of x: both rows evaluate, row `first` makes the row split, the other the column split."""
        n, N, ring = x.R.size, 1 << bits, 1 << element
        self.deal(tag, x.R % N, make, draws)
        yield
        keys, fits = self.receive_keys(tag, n, size)
        points = self.local(f"{tag}.m", x.R.ravel() % N)
        pieces = array(evaluate(self.column, keys[i], int(points[i]) % N) % ring for i in range(n))
        pieces = self.local(f"{tag}.piece", pieces)
        if "alone" in self.config.off:  # the earlier design: every server sends in both splits
            none = pieces * 0
            R, C = yield from together(
                self.exchange(f"{tag}.r", pieces if self.row == first else none, True, False, ring),
                self.exchange(f"{tag}.c", none if self.row == first else pieces, False, True, ring),
            )
            z = Shared(self, R.R, C.C)
            self.tie(tag, z.R, z.C, ring)
        else:
            z = yield from self.split_alone(tag, pieces, first, ring)
        if not fits:
            self.refuse(f"{tag}: witness", self.column_mate)
        if element < BITS:  # as `narrowed` in the engine
            R, C = ((v - ring) % MOD if second else v for v, second in ((z.R, self.row), (z.C, self.column)))
            z = Shared(self, R, C)
        return z

    def split_alone(self, tag: str, pieces: Array, q: int, ring: int) -> Step:
        """Turn row q's pieces into the row split and the other row's pieces into the column split."""
        n = pieces.size
        if self.row == q:
            key, label = f"not{self.row_mate}", (tag, "a", self.column)
            sent = self.send_masked(self.row_mate, f"{tag}.R", pieces, key, label, 1, ring)
        else:
            key, label, sign = f"row{self.row}", (tag, "mu"), 1 - 2 * self.column
            sent = self.send_masked(self.column_mate, f"{tag}.C", pieces, key, label, sign, ring)
        yield
        if self.row == q:
            R = (sent + self.got(self.row_mate, f"{tag}.R", n)) % ring
            C = self.got(self.column_mate, f"{tag}.C", n) % ring
        else:
            masks = [self.draw(f"not{2 * q + 1 - c}", (tag, "a", c), n) for c in (0, 1)]
            R, C = -(masks[0] + masks[1]) % ring, sent
        R, C = self.local(f"{tag}.Rout", R), self.local(f"{tag}.Cout", C)
        self.tie(tag, R, C, ring)
        return Shared(self, R, C)

    def table(
        self, x: Shared, bits: int, cuts: list[int], values: list[int], first: int = 0, element: int = BITS
    ) -> Step:
        """values[number of cuts <= x], exactly. Two rounds."""
        tag = f"table{self.next()}"
        N = 1 << bits

        def make(shares: Array, random: Array, plain: int) -> list[list[list[int]]]:
            return [self.fss.generate(bits, -int(v) % N, r, False, plain) for v, r in zip(shares, random, strict=True)]

        def evaluate(c: int, key: list[int], m: int) -> int:
            base = self.fss.less(c, key, bits, m)[0]
            total = values[-1] if c == 0 else 0
            for j, cut in enumerate(cuts):
                bit = self.fss.less(c, key, bits, (m - cut) % N)[0] - base + (int(m < cut) if c == 0 else 0)
                total += (values[j] - values[j + 1]) * bit
            return total

        size = self.fss.words(bits, False)
        return (yield from self.gate(tag, x, bits, make, 2, size, evaluate, first, element))

    def prefixes(self, x: Shared, bits: int, levels: dict[int, dict[int, int]], first: int = 0) -> Step:
        """Sum over g of levels[g][D], D = (x >> g) or one more. With alpha = ~R both directions have the same D."""
        tag = f"prefix{self.next()}"
        N = 1 << bits
        size = sum(self.fss.words(bits - g, True) for g in levels)

        def make(shares: Array, random: Array, plain: int) -> list[list[list[int]]]:
            made = []
            for v, r in zip(shares, random, strict=True):
                pairs = [
                    self.fss.generate(bits - g, (~int(v) % N) >> g, r[2 * i : 2 * i + 2], True, plain)
                    for i, g in enumerate(levels)
                ]
                made.append([[w for p in pairs for w in p[c]] for c in (0, 1)])
            return made

        def evaluate(c: int, key: list[int], m: int) -> int:
            total, at = 0, 0
            for g, weights in levels.items():
                step = self.fss.words(bits - g, True)
                part = key[at : at + step]
                for D, w in weights.items():
                    total += w * self.fss.point(c, part, bits - g, ((m >> g) - D) % (N >> g))
                at += step
            return total

        return (yield from self.gate(tag, x, bits, make, 2 * len(levels), size, evaluate, first, BITS))

    def sign(self, x: Shared, bits: int) -> Step:
        """[x < 0] for signed x of this width. Two rounds; the random bit takes two products beside them."""
        op = self.next()
        tag, n, N, low = f"sign{op}", x.R.size, 1 << bits, bits - 1
        shares = x.R.ravel() % N

        def make(values: Array, random: Array, plain: int) -> list[list[list[int]]]:
            made = []
            for v, r in zip(values, random, strict=True):
                alpha = -int(v) % N
                pair = self.fss.generate(low, alpha % (N >> 1), r[:2], False, plain)
                top = [int(r[2]) & 1] * 2
                top[1 - plain] ^= alpha >> low
                made.append([[*pair[c], top[c]] for c in (0, 1)])
            return made

        def share(c: int, key: list[int], m: int) -> int:
            return (self.fss.less(c, key[:-1], low, m % (N >> 1))[1] ^ key[-1] ^ (m >> low if c == 0 else 0)) & 1

        self.signs[op] = shares
        self.world.program_bits(self, op, tag, shares, bits, share)
        self.deal(tag, shares, make, 3)
        own = self.local(f"{tag}.own", self.draw(f"col{self.column}", (tag, "bit"), n, 1), "bit")
        none = own * 0
        r0, r1 = (Shared(self, None, own if self.column == c else none) for c in (0, 1))
        left = yield from self.multiply(self.public(1, none), r0, only="left")
        keys, fits = self.receive_keys(tag, n, self.fss.words(low, False) + 1)
        points = self.local(f"{tag}.m", shares)
        bits_ = array(share(self.column, keys[i], int(points[i]) % N) for i in range(n))
        mine = self.local(f"{tag}.share", bits_, "bit") ^ own
        self.send(self.row_mate, f"{tag}.z", mine, "bit")
        mixed = yield from self.multiply(left.times(-2).plus(1), r1)
        if not fits:
            self.refuse(f"{tag}: witness", self.column_mate)
        z = array((int(a) ^ int(b)) & 1 for a, b in zip(mine, self.got(self.row_mate, f"{tag}.z", n), strict=True))
        z = self.local(f"{tag}.zz", z, "bit")
        if "z" not in self.config.off:
            for p in self.peers:
                self.compare(p, f"{tag}.z", z, "z")
        R, C = (left.R + mixed.R) % MOD, (r0.C + mixed.C) % MOD
        R = ((1 - 2 * z) * R + (z if self.row == 0 else 0)) % MOD
        C = ((1 - 2 * z) * C + (z if self.column == 0 else 0)) % MOD
        return Shared(self, R, C)

    # ---- coins -------------------------------------------------------------------------------------------------------
    def mark(self, seat: int, label: str, value: int) -> bytes:
        """Return the commitment of a server to a value."""
        if "label" in self.config.off:
            return sha("coin", value)
        return sha("coin", self.world.session, seat, label, value)

    def commit(self, label: str) -> int:
        value = int(self.local(f"{label}.own", self.private("coin", label), "block"))
        for p in self.peers:
            self.send(p, f"{label}.commit", self.mark(self.seat, label, value), "hash")
        return value

    def tell(self, label: str, value: int) -> None:
        for p in self.peers:
            self.send(p, f"{label}.tell", value, "block")

    def coin(self, label: str, own: int, marks: dict[int, Any], compare: bool = True) -> int:
        total = own
        for p in self.peers:
            told = int(self.got(p, f"{label}.tell"))
            if self.mark(p, label, told) != marks[p] and "commit" not in self.config.off:
                self.refuse("commit", p)
            total ^= told
        total = int(self.local(f"{label}.coin", total, "block"))
        if compare and "agree" not in self.config.off:
            for p in self.peers:
                self.compare(p, f"{label}.agree", array([total]), "agree")
        return total

    # ---- checkpoint --------------------------------------------------------------------------------------------------
    def start_checkpoint(self) -> None:
        """Begin a checkpoint beside the program."""
        self.number += 1
        self.started = self.round + 1 + ("cover" in self.config.off)
        task = self._checkpoint(self.number, self.round + 1)
        next(task)
        self.background.append(task)

    def _checkpoint(self, number: int, cut: int) -> Step:
        config, tag = self.config, f"check{number}"
        count, p128 = config.kappa + config.kappa_matrix, 1 << config.width
        own = [self.commit(f"{tag}.coin{i}") for i in (1, 2)]
        yield  # last round that is covered
        marks = [{p: self.got(p, f"{tag}.coin{i}.commit") for p in self.peers} for i in (1, 2)]
        self.tell(f"{tag}.coin1", own[0])
        yield  # round 1
        cut += "cover" in config.off
        claims = [c for c in self.claims if c.born <= cut]
        self.claims = [c for c in self.claims if c.born > cut]
        weights = self.weights = Weights(self.coin(f"{tag}.coin1", own[0], marks[0]), claims, config)
        sums = self.local(f"{tag}.S", weights.sums(), "integer")
        pi_key, pi_label, sign = f"col{self.column}", (tag, "pi"), 1 - 2 * self.row
        self.world.program_mask(self, self.row_mate, f"{tag}.sigma", sums, pi_key, pi_label, sign, None)
        veil = self.draw(pi_key, pi_label, count, config.width)
        sigma = sums + sign * veil
        self.send(self.row_mate, f"{tag}.sigma", sigma, "integer")
        yield  # round 2
        told = self.got(self.row_mate, f"{tag}.sigma", count)
        if "length" not in config.off and any(abs(int(v)) >= 2 * p128 for v in told):
            self.refuse("length", self.row_mate)
        zero = self.local(f"{tag}.zero", (sigma + told - weights.outputs()) % MOD)
        if "zero" not in config.off:
            self.compare(self.diagonal, f"{tag}.zero", zero if self.row == 0 else -zero % MOD, "zero")
        self.tell(f"{tag}.coin2", own[1])
        yield  # round 3
        second = self.coin(f"{tag}.coin2", own[1], marks[1])
        p = random_prime(second, config.prime_bits)
        chi = Stream(second, "chi").residues(count, p)
        self.field = p, chi
        U = self._left_side(tag, weights, chi, p, self.seat)
        V = self._right_side(tag, weights, p, self.seat)
        w = config.arity
        h = [0] * (2 * w + 1)
        for i, u in U.items():
            for j, v in V.items():
                h[i + j] = (h[i + j] + int(np.dot(u, v))) % p
        h_sent = self.local(f"{tag}.h", array(h), "field")
        key, label = f"row{self.row}", (tag, "h", self.seat)
        self.world.program_mask(self, self.column_mate, f"{tag}.h", h_sent, key, label, -1, p)
        masked = (h_sent - self.residues(key, label, len(h), p)) % p
        self.send(self.column_mate, f"{tag}.h", masked, "field")
        yield  # round 4
        prover = self.row_mate  # this server is the first verifier of its row mate
        tau = self._tau(tag, prover, p)
        U = self._left_side(tag, weights, chi, p, prover)
        folded = sum(u * pow(tau, i, p) for i, u in U.items()) % p
        mask = self.residues(key, (tag, "h", prover), len(h), p)
        sums_e = [
            int(mask[w - 1] - np.dot(chi, told)) % p,
            sum(int(m) * pow(tau, j, p) for j, m in enumerate(mask)) % p,
        ]
        got_h = self.got(self.column_mate, f"{tag}.h", len(h)) % p
        self.send(self.diagonal, f"{tag}.fold", folded, "field")
        self.send(self.diagonal, f"{tag}.e", array(sums_e), "field")
        yield  # round 5
        prover = self.column_mate  # this server is the second verifier of its column mate
        tau = self._tau(tag, prover, p)
        V = self._right_side(tag, weights, p, prover)
        mine = sum(v * pow(tau, j, p) for j, v in V.items()) % p
        folded = self.got(self.diagonal, f"{tag}.fold", len(mine)) % p
        e1, e2 = (int(v) for v in self.got(self.diagonal, f"{tag}.e", 2))
        value = sum(int(c) * pow(tau, j, p) for j, c in enumerate(got_h))
        # The prover's mask has the opposite sign of this server's, because they are in different rows.
        fits = (e1 + int(got_h[w - 1]) - sign * int(np.dot(chi, veil))) % p == 0
        fits = fits and (e2 + value - int(np.dot(folded, mine))) % p == 0
        if not fits and "proof" not in config.off:
            self.refuse("proof", prover)
        if "passed" not in config.off:
            yield  # round 6
        self.covered = max(self.covered, cut)

    def _tau(self, tag: str, prover: int, p: int) -> int:
        return int(self.residues(self.pair(self.diagonal), (tag, "tau", prover), 1, p, 1)[0])

    def _left_side(self, tag: str, weights: Weights, chi: Array, p: int, prover: int) -> dict[int, Array]:
        w = self.config.arity
        found = dict(enumerate(blocks(weights.left(chi, p), w)))
        if "blind" not in self.config.off:
            label = (tag, "ru", prover)
            self.world.program_fold(self, tag, found, label, prover, p)
            found[w] = self.residues(f"row{self.row}", label, len(found[0]), p)
        return found

    def _right_side(self, tag: str, weights: Weights, p: int, prover: int) -> dict[int, Array]:
        w = self.config.arity
        cut = blocks(weights.right(p), w)
        found = {w - 1 - j: cut[j] for j in range(w)}
        if "blind" not in self.config.off:
            found[w] = self.residues(f"col{self.column}", (tag, "rv", prover), len(cut[0]), p)
        return found

    # ---- openings ----------------------------------------------------------------------------------------------------
    def wait(self, x: Shared) -> Step:
        """Wait until a checkpoint has covered x; begin one if none will."""
        if self.covered < x.born and self.started < x.born:
            self.start_checkpoint()
        while self.covered < x.born:
            yield

    def open(self, x: Shared, name: str) -> Step:
        """Open to the servers: share of the column mate, hash of the diagonal, in one round, checked before use."""
        yield from self.wait(x)
        tag, mine = f"open.{name}", np.asarray(x.R, dtype=object).ravel()
        self.send(self.column_mate, f"{tag}.share", mine)
        self.send(self.diagonal, f"{tag}.mark", sha(self.world.session, tag, fingerprint(mine)), "hash")
        yield
        theirs = self.got(self.column_mate, f"{tag}.share", mine.size) % MOD
        mark = self.got(self.diagonal, f"{tag}.mark")
        if mark != sha(self.world.session, tag, fingerprint(theirs)) and "open" not in self.config.off:
            self.refuse("open", self.column_mate)
        values = [signed(int(v)) for v in (mine + theirs) % MOD]
        self.opened[name] = values
        return values

    def reveal(self, x: Shared, name: str) -> Step:
        """Send the row share (column 0) or its digest (column 1) to the receiver."""
        yield from self.wait(x)
        mine = np.asarray(x.R, dtype=object).ravel()
        if self.column == 0:
            self.send("receiver", name, mine)
        else:
            self.send("receiver", name, sha(self.world.session, name, fingerprint(mine)), "hash")
        yield
