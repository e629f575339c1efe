"""For every check of the design an attack that succeeds without the check and fails with it.

Each attack yields for every try whether it won: a wrong value was accepted, or an outcome or a message to the liar
depended on the secret. `DEMONSTRATIONS` maps the name of a check to its attack.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .attacks import QUICK, Concert, Liar, Planned, kernel_error
from .network import Outcome, World
from .primitives import MOD, P127, Array, Stream, Trees, array, fingerprint, is_prime, sha, universal_hash
from .programs import CUTS, FIRST, PROGRAMS, SECOND, SMALL, joined, verdict
from .server import SERVERS, Config, Server, Step

Tries = Iterator[bool]
PASSES = 12
"""Attempts to fix all masks of a replay. Each held frame can take one more."""
MANY = 40
"""Elements of a product that is tested with fewer combinations."""


# ---- what counts as a success ----------------------------------------------------------------------------------------
def equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.shape(a) == np.shape(b) and bool(np.all(np.ravel(a) == np.ravel(b)))
    return bool(a == b)


def same_view(a: Outcome, b: Outcome) -> bool:
    """Whether the liar heard the same messages in the same order, and the honest servers ended alike."""
    return (
        a.visible == b.visible
        and a.heard == b.heard
        and a.view.keys() == b.view.keys()
        and all(equal(value, b.view[key]) for key, value in a.view.items())
    )


def two_secrets(
    make: Callable[[], Liar],
    seed: Any,
    config: Config,
    first: int = 0,
    program: Any = PROGRAMS["concealed"][0],
    inputs: tuple[dict[str, Array], dict[str, Array]] = (FIRST, SECOND),
    owner_lies: dict[tuple[str, int], tuple[int, int]] | None = None,
) -> tuple[Outcome, Outcome]:
    """Run a program on two secrets with the liar's view held equal."""
    config = replace(config, ideal=True)
    worlds: list[World] = []
    outcomes = []
    for secret in (inputs[0], *[inputs[1]] * PASSES):
        replay, earlier = (worlds[0] if worlds else None), (worlds[-1] if len(worlds) > 1 else None)
        world = World(secret, seed, config, make(), owner_lies or {}, replay, earlier, first=first)
        worlds.append(world)
        outcomes.append(world.run(program))
        if replay is not None and not world.clash and same_view(outcomes[0], outcomes[-1]):
            break
    if worlds[-1].clash:
        raise RuntimeError("masks could not be fixed consistently")
    return outcomes[0], outcomes[-1]


def play(name: str, liar: Liar, seed: Any, config: Config, inputs: dict[str, Array] = FIRST) -> str:
    return verdict(name, inputs, World(inputs, seed, config, liar).run(PROGRAMS[name][0]))


def _planned(name: str, places: list[tuple[str, str, str]], config: Config) -> Tries:
    """Lie at these places, as every server, to every peer."""
    for server in SERVERS:
        for kind, tag, lie in places:
            peers = [f">{p}" for p in SERVERS if p != server] if kind == "message" else [""]
            for peer in peers:
                yield play(name, Planned(server, {(kind, tag + peer): lie}, 1), 1, config) == "WRONG"


# ---- ties, keys, signs -----------------------------------------------------------------------------------------------
def tie(config: Config) -> Tries:
    return _planned("gates", [("message", "table8.C", "low bit"), ("message", "table23.R", "low bit")], config)


class BothSplits(Liar):
    """Adds the same error to all its messages of gate outputs."""

    def change(self, kind: str, tag: str, value: Any, domain: str) -> Any:
        hit = kind == "local" and tag.startswith(("table", "prefix")) and tag.endswith((".R.sum", ".C.sum"))
        return (value + 5) % MOD if hit else value


def alone(config: Config) -> Tries:
    for i in range(8):
        yield play("gates", BothSplits(i % 4), i, config) == "WRONG"


class ShiftedKey(Liar):
    """Deals a key for x + 10. Whether that changes the value of the table depends on x."""

    def change(self, kind: str, tag: str, value: Any, domain: str) -> Any:
        if kind == "message" and tag == f"table7.key>{self.server ^ 2}":
            return array([*value[:2], int(value[2]) - 10, *value[3:]])
        return value


def keys(config: Config) -> Tries:
    for server, seed in itertools.product(SERVERS, range(4)):
        yield not same_view(*two_secrets(lambda s=server: ShiftedKey(s), seed, config, seed & 1))


def bound(config: Config) -> Tries:
    """A lying owner gives the liar's opposite row two shares that differ by one. Without bound randomness the keys of
    that row differ in one payload if the lowest bit of the honest summand is what the liar guesses, and the hash tells."""

    def program(s: Server) -> Step:
        x, o = s.input("k"), s.input("owner")
        yield from s.table(x + o, 8, CUTS, SMALL)

    for seed in range(16):
        inputs = {"k": FIRST["k"], "owner": array([0, 0])}
        world = World(inputs, seed, config, Liar(0, seed), owner_lies={("owner", 3): (1, 0)})
        world.run(program)
        assert world.adversary is not None
        key, mark = (world.adversary.view[who, f"table3.{what}"] for who, what in ((2, "key"), (3, "mark")))
        size = Trees.words(8, False)
        guesses = []
        for step in itertools.product((-1, 0, 1), repeat=2):  # the payload of the last level of both elements
            guess = key.copy()
            for i in (0, 1):
                guess[(i + 1) * size - 1] = (int(guess[(i + 1) * size - 1]) + step[i]) % MOD
            guesses.append(sha(world.session, "table3", fingerprint(guess)))
        yield mark in guesses


def z(config: Config) -> Tries:
    return _planned("gates", [("message", "sign2.z", "flip"), ("local", "sign2.share", "flip")], config)


# ---- claims ----------------------------------------------------------------------------------------------------------
def _top(value: Array) -> Array:
    out = value.copy()
    out.reshape(-1)[0] ^= MOD >> 1
    return out


def _first_product(tag: str, value: Array) -> bool:
    return tag == "mul3.t"


def _second(tag: str, value: Array) -> bool:
    return tag == "mul2.t"


def zero(config: Config) -> Tries:
    yield from _planned("overlapping", [("local", "mul3.t", "top bit")], config)


def proof(config: Config) -> Tries:
    for server in SERVERS:
        yield play("overlapping", Concert(server, _first_product, _top), server, config) == "WRONG"


def length(config: Config) -> Tries:
    """A lie about a sum that all primes of the (here short) width divide."""
    short = replace(config, prime_bits=12)
    multiple = 1
    for p in range(1 << 11, 1 << 12):
        multiple *= p if is_prime(p) else 1
    for server in SERVERS:
        yield play("overlapping", Concert(server, _first_product, _top, False, multiple), server, short) == "WRONG"


class WrongFold(Liar):
    """As the first verifier of its row mate: a false folded vector that passes if a guess of the secret y is right."""

    def change(self, kind: str, tag: str, value: Any, domain: str) -> Any:
        peer = self.server ^ 3
        if kind != "message" or not tag.startswith("check1.") or not tag.endswith(f">{peer}"):
            return value
        me = self.world.servers[self.server]
        w = me.config.arity
        if ".fold>" in tag:
            out = value.copy()
            out[0] += 1
            return out
        if ".e>" in tag:
            p, _ = me.field
            tau = me._tau("check1", self.server ^ 1, p)
            held = int(me.weights.claims[0].right[0])
            guess = (int(FIRST["x"][0]) - held) % MOD  # C of the other column if y is the first secret
            return array([int(value[0]), int(value[1]) + guess % p * pow(tau, w - 2, p)])
        return value


def blind(config: Config) -> Tries:
    def program(s: Server) -> Step:
        x, y = s.input("x"), s.input("y")
        z = yield from s.multiply(x, y)
        yield from s.open(z, "z")

    for server in SERVERS:
        ends = []
        for y in (FIRST["x"][:1], FIRST["x"][:1] + 1):
            world = World({"x": FIRST["x"][:1], "y": y}, server, config, WrongFold(server))
            ends.append(world.run(program).finished)
        yield ends[0] != ends[1]


# ---- coins -----------------------------------------------------------------------------------------------------------
def _single(s: Server) -> Step:
    """One one-sided product in the last round that the checkpoint covers."""
    x = s.input("x")
    step = s.multiply(x, x, only="left")
    next(step)
    s.start_checkpoint()
    yield
    try:
        next(step)
        raise AssertionError
    except StopIteration as stop:
        yield from s.open(stop.value, "z")


def _rushed(s: Server) -> Step:
    """A product in the round of the first coin."""
    x = s.input("x")
    y = yield from s.multiply(x, x)
    s.start_checkpoint()
    yield
    product = yield from s.multiply(y, x)
    yield from s.open(product, "z")


def _accepts(program: Any, liar: Liar, seed: int, config: Config, power: int) -> bool:
    values = array(range(MANY))
    outcome = World({"x": values}, seed, config, liar).run(program)
    want = [v**power for v in range(MANY)]
    return any(opened.get("z", want) != want for opened in outcome.opened.values())


class ChosenCoin(Liar):
    """Makes the coin what it wants: it tells its part after the others have told theirs."""

    def change(self, kind: str, tag: str, value: Any, domain: str) -> Any:
        if kind == "message" and tag.startswith("check1.coin1.tell>"):
            others = [int(self.view[p, "check1.coin1.tell"]) for p in SERVERS if p != self.server]
            return 77 ^ others[0] ^ others[1] ^ others[2]
        if kind == "local" and tag == "check1.coin1.coin":
            return 77
        if kind == "local" and tag == "mul2.t":
            return (value + kernel_error(77, 2, MANY, self.world.config.kappa)) % MOD
        return value


def commit(config: Config) -> Tries:
    for i in range(4):
        yield _accepts(_single, ChosenCoin(i % 4), i, config, 2)


class CopiedCommitment(Liar):
    """Copies the commitment of its row mate, so that their parts cancel, and holds its frame to the row mate until the
    other two have told their parts. It then knows the coin while it still owes the row mate a message that the coin tests."""

    def change(self, kind: str, tag: str, value: Any, domain: str) -> Any:
        if kind == "message" and tag.startswith("check1.coin1.commit>"):
            self.at = self.world.servers[self.server].round
            return self.view.get((self.server ^ 1, "check1.coin1.commit"), value)
        if kind == "local" and tag == "check1.coin1.coin":
            return int(self.view[self.server ^ 2, "check1.coin1.tell"]) ^ int(
                self.view[self.server ^ 3, "check1.coin1.tell"]
            )
        return value

    def deliver(self, round_: int, peer: int) -> str:
        at = getattr(self, "at", None)
        return "hold" if at is not None and (round_ == at + 1 or (round_ == at and peer == self.server ^ 1)) else "now"

    def late(self, round_: int, peer: int, messages: dict[str, Any]) -> dict[str, Any]:
        mate, others = self.server ^ 1, (self.server ^ 2, self.server ^ 3)
        if round_ == self.at:
            parts = [self.view.get((p, "check1.coin1.tell")) for p in others]
            if None in parts:
                return messages
            error = kernel_error(int(parts[0]) ^ int(parts[1]), 2, MANY, self.world.config.kappa)
            return messages | {"mul2.R": (messages["mul2.R"] + error) % MOD}
        return messages | {"check1.coin1.tell": self.view.get((mate, "check1.coin1.tell"), 0)}


def label(config: Config) -> Tries:
    for i in range(4):
        yield _accepts(_single, CopiedCommitment(i % 4), i, config, 2)


class TwoFaces(Liar):
    """Commits to different values before different servers and tells them accordingly."""

    def __init__(self, server: int, victim: int, which: int) -> None:
        super().__init__(server)
        self.victim, self.which = victim, which

    def change(self, kind: str, tag: str, value: Any, domain: str) -> Any:
        me = self.world.servers[self.server]
        name = f"check1.coin{self.which}"
        if kind == "local" and tag == f"{name}.own":
            self.mine = int(value)
        if kind == "message" and tag == f"{name}.commit>{self.victim}":
            return me.mark(self.server, name, self.mine ^ 5)
        if kind == "message" and tag == f"{name}.tell>{self.victim}":
            return int(value) ^ 5
        return value


def agree(config: Config) -> Tries:
    for server, victim, which in itertools.product(SERVERS, SERVERS, (1, 2)):
        if server != victim:
            yield not same_view(*two_secrets(lambda s=server, v=victim, w=which: TwoFaces(s, v, w), 3, config))


class FitsItsCoin(Liar):
    """Sees the coin before it sends a product in the same round."""

    def change(self, kind: str, tag: str, value: Any, domain: str) -> Any:
        if kind == "local" and tag == "check1.coin1.own":
            self.mine = int(value)
        if kind == "local" and tag == "mul3.t":
            others = [int(self.view[p, "check1.coin1.tell"]) for p in SERVERS if p != self.server]
            coin = self.mine ^ others[0] ^ others[1] ^ others[2]
            return (value + kernel_error(coin, 3, MANY, self.world.config.kappa)) % MOD
        return value


def cover(config: Config) -> Tries:
    for i in range(4):
        yield _accepts(_rushed, FitsItsCoin(i % 4), i, config, 3)


# ---- openings --------------------------------------------------------------------------------------------------------
def passed(config: Config) -> Tries:
    """A wrong product that only the proof finds: one server knows it, and the others may not open what follows."""

    def program(s: Server) -> Step:
        x = s.input("x")
        z = yield from s.multiply(x, x)
        yield from s.open(z, "z")

    for server, seed in itertools.product(SERVERS, range(2)):
        pair = two_secrets(lambda s=server: Concert(s, _second, _top), seed, config, program=program)
        yield not same_view(*pair)


def open_(config: Config) -> Tries:
    return _planned("overlapping", [("message", "open.y.share", "random")], config)


def digest(config: Config) -> Tries:
    for server in SERVERS:
        plan = {("message", "Q>receiver"): "random" if server & 1 == 0 else "other"}
        yield play("arithmetic", Planned(server, plan, 1), 1, config) == "WRONG"


# ---- inputs and keys -------------------------------------------------------------------------------------------------
class Accomplice(Liar):
    """Knows all that a lying owner knows: its digests of that owner's array fit what each peer holds."""

    def __init__(self, server: int, name: str = "k", place: str = "input1") -> None:
        super().__init__(server)
        self.name, self.place = name, place

    def change(self, kind: str, tag: str, value: Any, domain: str) -> Any:
        me = self.world.servers[self.server]
        if kind == "message" and tag.startswith(self.place) and ".digest>" in tag:
            peer = int(tag[-1])
            R, C = self.world.input_shares(peer, self.name, MOD)
            shown = {me.row_mate: R, me.column_mate: C, me.diagonal: (R - C if me.row == 1 else C - R) % MOD}[peer]
            key, pad = me.draw(me.pair(peer), (tag.split(".digest")[0], me.round, "digest"), 2, 127)
            return universal_hash(int(key) % P127, int(pad), shown)
        return value


def _owner_program(s: Server) -> Step:
    k, x = s.input("k"), s.input("x")
    z = yield from s.multiply(k, x)
    t = yield from s.table(k, 8, CUTS, SMALL)
    yield from s.open(joined([z, t]), "zt")


def owner_patterns(name: str) -> Iterator[tuple[int, bool, dict[tuple[str, int], tuple[int, int]]]]:
    """Yield (accomplice, whether the honest servers hold a sharing of some value, offsets of the shares)."""
    for bad in SERVERS:
        A, B, D = bad ^ 1, bad ^ 2, bad ^ 3
        for a, b, c, d, e, f in itertools.product((0, 1), repeat=6):
            # The liar takes the shares that its mates hold; they are the ones the honest servers compute with.
            lies = {(name, A): (a, b), (name, B): (c, d), (name, D): (e, f), (name, bad): (a, d)}
            yield bad, c == e and b == f and a + c == b + d, lies


def owner_case(config: Config, bad: int, fine: bool, lies: dict[tuple[str, int], tuple[int, int]]) -> str:
    """Run one pattern. Names in capitals are failures of the design."""
    outcome = World({"k": FIRST["k"], "x": FIRST["x"]}, 1, config, Accomplice(bad), lies).run(_owner_program)
    if fine:
        return "sharing accepted" if outcome.finished else "SHARING REFUSED"
    if outcome.finished or any(outcome.opened.values()):
        return "ACCEPTED"
    return "refused" if min(stop[2] for stop in outcome.stops) <= 4 else "REFUSED LATE"


def inputs_differ(config: Config) -> Tries:
    for pattern in owner_patterns("k"):
        yield owner_case(config, *pattern).isupper()


def shifted(config: Config) -> Tries:
    """A lying owner shares zero so that the liar's summand of k + o is 5. A local truncation then fails iff k exceeds 5."""

    def program(s: Server) -> Step:
        x = s.input("k") + s.input("o")
        yield from s.open(x.truncated(4), "x")

    inputs = {"k": array([7]), "o": array([0])}
    for bad, seed in itertools.product(SERVERS, range(2)):
        world = World(inputs, seed, config, Liar(bad))
        held = sum(int(world.input_shares(bad, name, MOD)[0][0]) for name in inputs)
        world.owner_lies = {("o", s): ((5 - held) * (1 if s >> 1 == bad >> 1 else -1), 0) for s in SERVERS}
        outcome = world.run(program)
        yield any(abs(opened["x"][0]) > 2 for opened in outcome.opened.values() if opened)


class FalseTripleKey(Liar):
    """Gives a server of the other row a false mask key, which falsifies the split that row makes, and makes the same
    error in the split that its own row makes. So it touches both splits of a gate."""

    def change(self, kind: str, tag: str, value: Any, domain: str) -> Any:
        me = self.world.servers[self.server]
        j = 3 - 2 * me.row  # column 1 of the other row; its row mate gets the false key
        false = bytes(32)
        if kind == "message" and tag.startswith(f"setup.not{j}>"):
            return int.from_bytes(false, "little")
        if kind == "local" and tag == "table2.C.sum":
            masks = [Stream(key, ("table2", "a", 0)).integers(value.size) for key in (false, me.keys[f"not{j}"])]
            return (value + masks[0] - masks[1]) % MOD
        return value


def triple(config: Config) -> Tries:
    def program(s: Server) -> Step:
        k = s.input("k")
        t = yield from s.table(k, 8, CUTS, SMALL, first=s.world.first)
        yield from s.open(t, "t")

    for server, seed in itertools.product((0, 2), range(2)):
        world = World({"k": array([7, 50])}, seed, config, FalseTripleKey(server), first=1 - (server >> 1))
        outcome = world.run(program)
        yield any(opened.get("t", [2, 5]) != [2, 5] for opened in outcome.opened.values())


class Grinder(Liar):
    """Searches the key of its row for one that makes a share of a gate's output fall where `narrowed` fails."""

    def change(self, kind: str, tag: str, value: Any, domain: str) -> Any:
        if kind == "local" and tag == f"setup.own{self.server ^ 1}":
            row = f"row{self.server >> 1}"
            other = self.server >> 1 ^ 1
            for tried in range(1 << 16):
                key = sha(self.world.session, "pair", row, tried)
                total = 0
                for c in (0, 1):
                    triple = sha(key, "not", 2 * other + 1 - c)
                    total += int(Stream(triple, ("table2", "a", c)).integers(1)[0])
                share = -total % (1 << 18)
                if share < 200:
                    return tried
        return value


def coined(config: Config) -> Tries:
    """A table that is 1,000 everywhere, in a ring of 18 bits. Honest runs fail with probability 2^-8."""

    def program(s: Server) -> Step:
        k = s.input("k")
        t = yield from s.table(k, 8, [1], [1000, 1000], first=1 - s.world.first, element=18)
        yield from s.open(t, "t")

    for seed, server in itertools.product(range(4), (0, 2)):
        world = World({"k": array([7])}, seed, config, Grinder(server), first=server >> 1)
        outcome = world.run(program)
        yield any(opened.get("t", [1000]) != [1000] for opened in outcome.opened.values())


DEMONSTRATIONS: dict[str, Callable[[Config], Tries]] = {
    "alone": alone,
    "tie": tie,
    "witness": keys,
    "early": keys,
    "bound": bound,
    "z": z,
    "zero": zero,
    "length": length,
    "proof": proof,
    "blind": blind,
    "commit": commit,
    "label": label,
    "agree": agree,
    "cover": cover,
    "passed": passed,
    "open": open_,
    "mates": inputs_differ,
    "input tie": inputs_differ,
    "triple": triple,
    "shifted": shifted,
    "coined": coined,
    "digest": digest,
}


def tries(check: str, off: bool) -> Tries:
    """Run the attack on a check, with the check switched off or with all checks on."""
    return DEMONSTRATIONS[check](replace(QUICK, off=frozenset([check] if off else [])))
