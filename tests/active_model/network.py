"""The network of the model: four servers, one of them possibly lying, and frames that the liar may delay or drop.

A server sends its frame of round T + 1 as soon as it has the frames of round T of its three peers, and not before.
The liar is scheduled as unfavourably as this allows:

- It rushes: it acts after all honest servers that can act, and it has heard them.
- It may hold a frame. The scheduler releases a held frame only when nothing else can happen. Until then the other
  honest servers may send their frames of the next round, and the liar may rewrite the held frame after hearing them.
- It may drop a frame.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .primitives import MOD, Array, Stream, array, fingerprint, sha, signed
from .server import HOLDERS, SERVERS, Config, Refused, Server

Program = Callable[[Server], Generator[None, None, Any]]


class Adversary:
    """A server that follows the protocol and remembers what it could have changed. Attacks override the methods."""

    def __init__(self, server: int) -> None:
        self.server = server
        self.world: World
        self.places: dict[tuple[str, str], str] = {}
        self.view: dict[tuple[int, str], Any] = {}
        self.heard: list[tuple[int, int]] = []
        self.touched = 0
        self.broke = False

    def touch(self, kind: str, tag: str, value: Any, domain: str) -> Any:
        """Return what the liar uses instead of a local value, or sends instead of a message."""
        self.places.setdefault((kind, tag), domain)
        return value

    def hear(self, sender: int, round_: int, messages: dict[str, Any]) -> None:
        """A frame has reached the liar."""
        self.heard.append((sender, round_))
        for tag, value in messages.items():
            self.view[sender, tag] = value

    def deliver(self, round_: int, peer: int) -> str:
        """Return "now", "hold" or "drop" for the liar's frame of a round to a peer."""
        return "now"

    def late(self, round_: int, peer: int, messages: dict[str, Any]) -> dict[str, Any] | None:
        """Return the contents of a held frame when it is released, or None to drop it."""
        return messages


@dataclass
class Outcome:
    """What the honest servers and the receiver end with. `stops`: seat, (reason, servers) or "waiting", rounds seen."""

    stops: tuple[Any, ...]
    opened: dict[int, dict[str, list[int]]]
    revealed: dict[str, list[int] | None]
    view: dict[tuple[int, str], Any]
    heard: list[tuple[int, int]]

    @property
    def finished(self) -> bool:
        return not self.stops

    @property
    def visible(self) -> Any:
        """All that the environment sees of the end: who stopped, where, why, and who opened what."""
        names = tuple((s, tuple(sorted(v))) for s, v in sorted(self.opened.items()))
        return self.stops, names, tuple(sorted((k, v is not None) for k, v in self.revealed.items()))


@dataclass
class World:
    """One session: inputs, random choices, the liar, and the programming of masks for tests of equal views.

    replay: the liar's view of an earlier run. Masks that the liar cannot know are then chosen so that every masked
    message to the liar is the same as in that run. Everything else it hears must come out the same by itself.
    owner_lies: what a lying owner adds to the shares (R, C) of an array that it sends to a server.
    earlier_pass: an earlier attempt at the same replay. A server that is ahead of the liar's mates needs masks that
    they fix later; it takes them from there.
    first: the row that makes the row split of gates, in programs that let it vary.
    """

    inputs: dict[str, Array]
    seed: Any = 0
    config: Config = field(default_factory=Config)
    adversary: Adversary | None = None
    owner_lies: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    replay: World | None = None
    earlier_pass: World | None = None
    session: str = "session"
    first: int = 0

    def __post_init__(self) -> None:
        self.bad = self.adversary.server if self.adversary else None
        self.forced: dict[Any, Array] = dict(self.earlier_pass.forced) if self.earlier_pass else {}
        self.drawn: set[Any] = set()
        self.clash = False
        self.random: dict[tuple[int, str], Array] = {}
        self.program = ""
        if self.adversary:
            self.adversary.world = self
        self.servers = [Server(self, s) for s in SERVERS]

    # ---- inputs ------------------------------------------------------------------------------------------------------
    def input_shares(self, seat: int, name: str, ring: int) -> tuple[Array, Array]:
        """Return a server's shares. The liar's are the same whatever the secret is."""
        x = np.asarray(self.inputs[name], dtype=object) % ring
        found = []
        for split, (mine, line) in enumerate(((seat >> 1, (self.bad or 0) >> 1), (seat & 1, (self.bad or 0) & 1))):
            held = Stream((self.seed, "owner"), name, split).integers(x.size).reshape(x.shape) % ring
            share = held if mine == line else (x - held) % ring
            found.append((share + self.owner_lies.get((name, seat), (0, 0))[split]) % ring)
        return found[0], found[1]

    # ---- programming of masks ----------------------------------------------------------------------------------------
    def _wanted(self, server: Server, peer: int, tag: str, key: str) -> Any:
        if self.replay is None or peer != self.bad or self.bad in HOLDERS[key]:
            return None
        assert self.replay.adversary is not None
        return self.replay.adversary.view.get((server.seat, tag))

    def program_mask(
        self, server: Server, peer: int, tag: str, term: Array, key: str, label: Any, sign: int, ring: int | None
    ) -> None:
        """Choose the mask so that term + sign * mask is the message of the earlier run."""
        wanted = self._wanted(server, peer, tag, key)
        if wanted is not None:
            mask = sign * (np.ravel(wanted) - term.ravel())
            self._force(key, label, mask % ring if ring else mask)

    def _force(self, key: str, label: Any, mask: Array) -> None:
        """Fix a mask. If a server that was ahead has used another one, the run is not valid: `clash`."""
        old = self.forced.get((key, label))
        if (key, label) in self.drawn and (old is None or np.any(old != mask)):
            self.clash = True
        self.forced[key, label] = mask

    def program_fold(self, server: Server, tag: str, sides: dict[int, Array], label: Any, prover: int, p: int) -> None:
        """Choose the random block of a folded vector that the liar will see. The prover needs it first."""
        if self.replay is None or self.bad is None or prover != self.bad ^ 2 or server.seat != prover:
            return
        assert self.replay.adversary is not None
        wanted = self.replay.adversary.view.get((self.bad ^ 3, f"{tag}.fold"))
        if wanted is None:
            return
        diagonal = self.servers[self.bad]
        tau = diagonal._tau(tag, prover, p)
        rest = (np.ravel(wanted) - sum(u * pow(tau, i, p) for i, u in sides.items())) % p
        self._force(f"row{server.row}", label, rest * pow(tau, -len(sides), p) % p)

    def program_bits(
        self, server: Server, op: int, tag: str, shares: Array, bits: int, share: Callable[..., int]
    ) -> None:
        """Choose the random bits of the row mate's column so that the masked bit it announces is the earlier one."""
        if self.replay is None or self.bad is None or server.seat != self.bad ^ 1:
            return
        assert self.replay.adversary is not None
        wanted = self.replay.adversary.view.get((server.seat, f"{tag}.z"))
        tokens = self.replay.random.get((self.bad ^ 2, tag))
        if wanted is None or tokens is None:
            return
        other = self.servers[self.bad ^ 2].signs.get(op)
        if other is None and self.earlier_pass is not None:
            other = self.earlier_pass.servers[self.bad ^ 2].signs.get(op)
        if other is None:
            self.clash = True
            return
        N = 1 << bits
        own = []
        for i, (mine, theirs, r) in enumerate(zip(shares, other, tokens.reshape(-1, 3), strict=True)):
            plain = [int(r[0]), 0, 0, int(r[2]) & 1]
            bit = ((int(mine) + int(theirs)) % N >> (bits - 1)) ^ share(self.bad & 1, plain, int(mine))
            own.append(int(wanted[i]) ^ bit)
        self._force(f"col{server.column}", (tag, "bit"), array(own))

    def dealer_random(self, server: Server, tag: str, bound: bytes, count: int) -> Array:
        """Return the randomness of FSS keys; in a replay, that of the keys that the liar got."""
        key = f"row{server.row}"
        label = (tag, "fss", bound)
        hidden = self.bad is not None and self.bad not in HOLDERS[key]
        if self.replay is not None and hidden and (server.seat, tag) in self.replay.random:
            found = self.replay.random[server.seat, tag]
        else:
            found = Stream(server.keys[key], label).integers(count)
        self.random[server.seat, tag] = found
        return found

    # ---- one run -----------------------------------------------------------------------------------------------------
    def run(self, program: Program) -> Outcome:
        """Run a program on the four servers until nothing can happen any more."""
        self.program = program.__name__
        bad = self.bad
        # The mates of the liar act before its diagonal, so that masks are programmed before they are used.
        order = list(SERVERS) if bad is None else [bad ^ 2, bad ^ 1, bad ^ 3, bad]
        live = {s: self.servers[s].main(program) for s in SERVERS}
        inbox: dict[int, dict[int, dict[int, Any]]] = {s: {} for s in SERVERS}
        rounds = dict.fromkeys(SERVERS, 0)
        started: set[int] = set()
        held: list[tuple[int, int, dict[str, Any]]] = []
        parts: dict[str, dict[int, Any]] = {}
        stops: dict[int, Any] = {}

        def arrive(sender: int, peer: int, round_: int, messages: dict[str, Any]) -> None:
            inbox[peer].setdefault(round_, {})[sender] = messages
            if peer == bad and self.adversary is not None:
                self.adversary.hear(sender, round_, messages)

        def ready(s: int) -> bool:
            return s in live and (s not in started or len(inbox[s].get(rounds[s], {})) == 3)

        def advance(s: int) -> None:
            try:
                if s not in started:
                    started.add(s)
                    frame = next(live[s])
                else:
                    got = inbox[s].pop(rounds[s])
                    rounds[s] += 1
                    frame = live[s].send(got)
            except StopIteration:
                del live[s]
                return
            except Refused as refused:
                stops[s] = (s, refused.args, rounds[s])
                del live[s]
                return
            except Exception:
                if s != bad:
                    raise
                del live[s]  # the liar's own program broke on its lies: it is silent
                assert self.adversary is not None
                self.adversary.broke = True
                return
            for name, part in frame.pop("receiver", {}).items():
                parts.setdefault(name, {})[s] = part
            for peer, messages in frame.items():
                how = self.adversary.deliver(rounds[s], peer) if s == bad and self.adversary else "now"
                if how == "now":
                    arrive(s, peer, rounds[s], messages)
                elif how == "hold":
                    held.append((rounds[s], peer, messages))

        while True:
            honest = sorted((rounds[s], order.index(s), s) for s in SERVERS if s != bad and ready(s))
            if honest:
                advance(honest[0][2])
            elif bad is not None and ready(bad):
                advance(bad)
            elif held:
                round_, peer, messages = held.pop(0)
                assert self.adversary is not None
                new = self.adversary.late(round_, peer, messages)
                if new is not None and bad is not None:
                    arrive(bad, peer, round_, new)
            else:
                break
        for s in live:
            if s != bad:
                stops[s] = (s, "waiting", rounds[s])
        revealed = {name: self._unsealed(name, found) for name, found in parts.items()}
        view, heard = ({}, []) if self.adversary is None else (self.adversary.view, self.adversary.heard)
        opened = {s: self.servers[s].opened for s in SERVERS if s != bad}
        return Outcome(tuple(stops[s] for s in sorted(stops)), opened, revealed, view, heard)

    def _unsealed(self, name: str, parts: dict[int, Any]) -> list[int] | None:
        """The receiver's side: all four parts, and each row's share fits the digest of the other column."""
        if len(parts) != 4:
            return None
        for row in (0, 1):
            share, mark = parts[2 * row], parts[2 * row + 1]
            if mark != sha(self.session, name, fingerprint(share)) and "digest" not in self.config.off:
                return None
        return [signed(int(v)) for v in (np.ravel(parts[0]) + np.ravel(parts[2])) % MOD]
