"""Lies of one server: at one place, at several, chosen from what it hears, in frames that come late or never."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .network import Adversary
from .primitives import MOD, Array, Stream, array, sha
from .server import Config, Weights

Lie = Callable[["Liar", str, Any, np.random.Generator], Any]


def changed(value: Any, rng: np.random.Generator, f: Callable[[int], int]) -> Any:
    """Change one element."""
    if not isinstance(value, np.ndarray):
        return f(int(value))
    out = value.copy()
    flat = out.reshape(-1)
    at = int(rng.integers(flat.size))
    flat[at] = f(int(flat[at]))
    return out


def swapped(value: Array, rng: np.random.Generator) -> Array:
    out = value.copy()
    flat = out.reshape(-1)
    if flat.size > 1:
        i = int(rng.integers(flat.size - 1))
        flat[i], flat[i + 1] = flat[i + 1], flat[i]
    return out


def _number(rng: np.random.Generator, bits: int) -> int:
    return int.from_bytes(rng.bytes(bits // 8), "little")


def _stale(liar: Liar, tag: str, value: Any, rng: np.random.Generator) -> Any:
    """Repeat an earlier message of the same kind and size."""
    return liar.earlier(tag, value)


def _echo(liar: Liar, tag: str, value: Any, rng: np.random.Generator) -> Any:
    """Send what another server sends under the same name. It has spoken before the liar."""
    plain = tag.split(">")[0]
    for peer in (liar.server ^ 1, liar.server ^ 2, liar.server ^ 3):
        heard = liar.view.get((peer, plain))
        if heard is not None and np.shape(heard) == np.shape(value):
            return heard
    return value


def _session(liar: Liar, tag: str, value: Any, rng: np.random.Generator) -> Any:
    """Send the message of another session."""
    return liar.other_session.get(tag, value)


def _one(amount: int, modulus: int | None = None) -> Lie:
    def lie(liar: Liar, tag: str, value: Any, rng: np.random.Generator) -> Any:
        return changed(value, rng, lambda x: (x + amount) % modulus if modulus else x + amount)

    return lie


REPLAYS: dict[str, Lie] = {"stale": _stale, "echo": _echo, "session": _session}
LIES: dict[str, dict[str, Lie]] = {
    "ring": {
        "low bit": _one(1, MOD),
        "top bit": _one(MOD >> 1, MOD),
        "random": lambda liar, tag, v, rng: changed(v, rng, lambda x: (x + _number(rng, 128)) % MOD),
        "all": lambda liar, tag, v, rng: np.array([_number(rng, 128) for _ in range(v.size)], dtype=object).reshape(
            v.shape
        ),
        "swap": lambda liar, tag, v, rng: swapped(v, rng),
        **REPLAYS,
    },
    "integer": {"one": _one(1), "2^127": _one(1 << 127), "2^128": _one(MOD), "-2^200": _one(-(1 << 200)), **REPLAYS},
    "field": {
        "one": _one(1),
        "random": lambda liar, tag, v, rng: changed(v, rng, lambda x: x + _number(rng, 56)),
        **REPLAYS,
    },
    "bit": {
        "flip": lambda liar, tag, v, rng: changed(v, rng, lambda x: x ^ 1),
        "all": lambda liar, tag, v, rng: v ^ 1,
        **REPLAYS,
    },
    "block": {
        "low bit": lambda liar, tag, v, rng: int(v) ^ 1,
        "random": lambda liar, tag, v, rng: _number(rng, 128),
        **REPLAYS,
    },
    "hash": {
        "other": lambda liar, tag, v, rng: v + 1 if isinstance(v, int) else sha("other", v),
        "zero": lambda liar, tag, v, rng: 0 if isinstance(v, int) else bytes(32),
        **REPLAYS,
    },
    "key": {
        "low bit": lambda liar, tag, v, rng: changed(v, rng, lambda x: x ^ 1),
        "last": lambda liar, tag, v, rng: array([*v[:-1], int(v[-1]) ^ 1]),
        "all": lambda liar, tag, v, rng: array(int(x) ^ 2 for x in v),
        **REPLAYS,
    },
    "order": {
        "swap": lambda liar, tag, v, rng: swapped(v, rng),
        "repeat": lambda liar, tag, v, rng: np.where(np.arange(len(v)) == 0, v[1], v),
    },
}


class Liar(Adversary):
    """Remembers its own messages, so that it can repeat them."""

    def __init__(self, server: int, seed: Any = 0) -> None:
        super().__init__(server)
        self.seed = seed
        self.sent: list[tuple[str, Any]] = []
        self.other_session: dict[str, Any] = {}

    @staticmethod
    def base(tag: str) -> str:
        return "".join(ch for ch in tag if not ch.isdigit())

    def earlier(self, tag: str, value: Any) -> Any:
        for old, sent in reversed(self.sent):
            if self.base(old) == self.base(tag) and old != tag and np.shape(sent) == np.shape(value):
                return sent
        return value

    def lie(self, name: str, tag: str, value: Any, domain: str, salt: Any = 0) -> Any:
        rng = np.random.default_rng(int.from_bytes(sha(self.seed, salt)[:8], "little"))
        return LIES[domain][name](self, tag, value, rng)

    def touch(self, kind: str, tag: str, value: Any, domain: str) -> Any:
        new = self.change(kind, tag, value, domain)
        self.sent.append((tag, value))
        if np.shape(new) != np.shape(value) or np.any(np.asarray(new != value)):
            self.touched += 1
        return new

    def change(self, kind: str, tag: str, value: Any, domain: str) -> Any:
        return value


class Planned(Liar):
    """Lies at given places: {(kind, tag): lie}. All places use the same random numbers, so errors can be equal."""

    def __init__(self, server: int, plan: dict[tuple[str, str], str], seed: Any = 0) -> None:
        super().__init__(server, seed)
        self.plan = plan

    def change(self, kind: str, tag: str, value: Any, domain: str) -> Any:
        name = self.plan.get((kind, tag))
        return value if name is None else self.lie(name, tag, value, domain)


class Adaptive(Liar):
    """Lies at several steps; where, how and how much depends on everything it has heard so far. It may hold frames."""

    def __init__(self, server: int, seed: Any, chance: int, holds: bool = False, quiet: str = "setup") -> None:
        super().__init__(server, seed)
        self.chance, self.holds, self.quiet = chance, holds, quiet

    def deliver(self, round_: int, peer: int) -> str:
        return "hold" if self.holds and sha(self.seed, round_, peer)[0] < 40 else "now"

    def change(self, kind: str, tag: str, value: Any, domain: str) -> Any:
        state = sha(self.seed, tag, len(self.view), [str(v) for v in list(self.view.values())[-3:]])
        if tag.startswith(self.quiet) or int.from_bytes(state[:4], "little") % self.chance:
            return value
        names = sorted(LIES[domain])
        return self.lie(names[state[4] % len(names)], tag, value, domain, state)


class Frames(Planned):
    """Drops or holds its frame of one round to one peer; a held one may be changed after hearing the next round."""

    def __init__(self, server: int, round_: int, peers: Sequence[int], how: str, lie: str = "", seed: Any = 0) -> None:
        super().__init__(server, {}, seed)
        self.at, self.peers, self.how, self.late_lie = round_, tuple(peers), how, lie

    def deliver(self, round_: int, peer: int) -> str:
        return self.how if round_ == self.at and peer in self.peers else "now"

    def late(self, round_: int, peer: int, messages: dict[str, Any]) -> dict[str, Any] | None:
        if not self.late_lie:
            return messages
        names = [tag for tag in messages if isinstance(messages[tag], np.ndarray)]
        if not names:
            return None
        state = sha(self.seed, [str(v) for v in list(self.view.values())[-3:]])
        tag = names[state[0] % len(names)]
        rng = np.random.default_rng(state[1])
        self.touched += 1
        return messages | {tag: changed(messages[tag], rng, lambda x: x ^ 1)}


class Concert(Liar):
    """Adds an error to a term of a product and makes later sums and folds fit it as well as they can.

    pick(tag, value): where. multiple: the lie about a sum is made a multiple of this odd number, modulo 2^128.
    """

    def __init__(
        self,
        server: int,
        pick: Callable[[str, Array], bool],
        error: Callable[[Array], Array],
        fold: bool = True,
        multiple: int = 1,
    ) -> None:
        super().__init__(server)
        self.pick, self.error, self.fold, self.multiple = pick, error, fold, multiple
        self.hit: Array | None = None
        self.op, self.delta, self.folded = -1, None, False

    def change(self, kind: str, tag: str, value: Any, domain: str) -> Any:
        me = self.world.servers[self.server]
        if kind == "local" and tag.endswith(".t") and self.hit is None and self.pick(tag, value):
            wrong = self.error(value)
            self.op = int("".join(ch for ch in tag if ch.isdigit()))
            self.hit = (wrong - value) % MOD
            return wrong
        if kind == "local" and tag.endswith(".S") and self.hit is not None and self.delta is None:
            delta = self._difference(me.weights)
            if delta is not None:
                inverse = pow(self.multiple, -1, MOD)
                self.delta = array((int(v) * inverse % MOD) * self.multiple for v in delta)
                return value + self.delta
        if kind == "local" and tag.endswith(".h") and self.fold and self.delta is not None and not self.folded:
            self.folded = True
            p, chi = me.field
            out = value.copy()
            at = me.config.arity - 1
            out[at] = int(out[at] + np.dot(chi, self.delta)) % p
            return out
        return value

    def _difference(self, weights: Weights) -> Array | None:
        found = [(c, part) for c, part in zip(weights.claims, weights.parts, strict=True) if c.name[0] == self.op]
        if not found:
            return None
        config, total = weights.config, 0
        for claim, part in found:
            error = self.hit[claim.name[1]] if self.hit.ndim == 3 else self.hit
            if claim.kind == "matrix":
                value = (part[0].dot(error) * part[1].T).sum(axis=1)
                total = total + np.concatenate([np.zeros(config.kappa, dtype=object), claim.scale * value])
            else:
                value = part @ error.ravel()
                total = total + np.concatenate([claim.scale * value, np.zeros(config.kappa_matrix, dtype=object)])
        return total % MOD


def kernel_error(coin: int, op: int, count: int, kappa: int) -> Array:
    """Return an error, 2^127 times a vector of bits, that all weights of a known coin map to zero."""
    rows = Stream(coin, "weights", (op, 0)).integers(kappa * count, 1).reshape(kappa, count)
    basis: dict[int, int] = {}
    low = (1 << kappa) - 1
    for c in range(count):
        v = sum(int(rows[k, c]) << k for k in range(kappa)) | 1 << (kappa + c)
        while v & low:
            lead = (v & low).bit_length()
            if lead not in basis:
                basis[lead] = v
                break
            v ^= basis[lead]
        else:
            return (MOD >> 1) * array(v >> (kappa + i) & 1 for i in range(count))
    raise ValueError("more combinations than elements")


QUICK = Config()
