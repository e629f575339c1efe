"""Run the adversary of the model at length and print counts.

    cd tests && python -m active_model.sweep [COMMAND] [--limit N] [--seed N]

COMMAND is one of those below or `all`; --limit chooses so many cases at random. Exit code 1 if anything was found.

- honest: random secrets, no liar: right results and no abort.
- singles, several: lies at one place or at two or three; every place of three programs, every server.
- views: every lie on `concealed` with two secrets and the liar's view held equal: messages and ends must be equal.
- adaptive: lies at several steps that depend on what the liar has heard; views held equal.
- frames: dropped frames, held frames, held frames that are changed after hearing the next round; views held equal.
- owners: an owner that lies together with a server; accepted exactly if the honest servers hold a sharing.
- concert: a wrong term with all later sums and folds made to fit it.
- rates: measured escape rates of the worst error with few combinations, beside their bounds.
- checks: each check switched off in turn lets an attack through; with all checks on the same attack fails.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from .attacks import LIES, QUICK, Adaptive, Concert, Frames, Liar, Planned
from .demonstrations import (
    DEMONSTRATIONS,
    Accomplice,
    owner_case,
    owner_patterns,
    play,
    same_view,
    tries,
    two_secrets,
)
from .network import Adversary, World
from .primitives import MOD, Array, array
from .programs import FIRST, PROGRAMS, SECOND, random_secrets, verdict
from .server import SERVERS, Config, Server, Step

Place = tuple[str, str, str]
SECRETS = FIRST, SECOND


def places(name: str, server: int, config: Config = QUICK, first: int = 0) -> list[Place]:
    """Return (kind, tag, domain) of everything that a server can change in a program."""
    watcher = Adversary(server)
    World(FIRST, 0, config, watcher, first=first).run(PROGRAMS[name][0])
    return [(kind, tag, domain) for (kind, tag), domain in watcher.places.items()]


def last_session(name: str, server: int) -> dict[str, Any]:
    """Return the messages of a server in another session of the same program and inputs."""
    watcher = Liar(server)
    World(FIRST, "another", QUICK, watcher, session="another session").run(PROGRAMS[name][0])
    return dict(watcher.sent)


def chosen(items: list[Any], limit: int | None, seed: int) -> list[Any]:
    if limit is None or limit >= len(items):
        return items
    return [items[i] for i in np.random.default_rng(seed).permutation(len(items))[:limit]]


class Report:
    """Counts of a command. Findings make it fail."""

    def __init__(self, name: str) -> None:
        self.name, self.counts, self.found, self.start = name, Counter(), [], time.time()

    def add(self, outcome: str, finding: Any = None) -> None:
        self.counts[outcome] += 1
        if finding is not None:
            self.found.append(finding)

    def close(self) -> bool:
        total = sum(self.counts.values())
        print(f"{self.name}: {total} cases in {time.time() - self.start:.0f} s: {dict(self.counts)}")
        print(f"  findings: {len(self.found)} {self.found[:4]}", flush=True)
        return not self.found


def ending(liar: Liar, found: str) -> str:
    """Name the end of a run; cases in which the liar changed nothing, or broke its own program, are counted apart."""
    if not liar.touched:
        return "no change"
    return "liar broke" if liar.broke and found == "abort" else found


# ---- wrong results ---------------------------------------------------------------------------------------------------
def honest(limit: int | None, seed: int) -> bool:
    report, rng = Report("honest"), np.random.default_rng(seed)
    for i in range(limit or 500):
        name = list(PROGRAMS)[i % len(PROGRAMS)]
        inputs = random_secrets(rng)
        config = replace(QUICK, ideal=bool(i & 4))
        found = verdict(name, inputs, World(inputs, (seed, i), config, first=i >> 3 & 1).run(PROGRAMS[name][0]))
        report.add(found, (name, i) if found != "right" else None)
    return report.close()


def singles(limit: int | None, seed: int) -> bool:
    report = Report("singles")
    names = ["arithmetic", "gates", "overlapping"]
    todo = [
        (name, server, kind, tag, lie)
        for name, server in itertools.product(names, SERVERS)
        for kind, tag, domain in places(name, server)
        for lie in LIES[domain]
    ]
    print(f"singles: {len(todo)} cases in all")
    sessions = {(name, server): last_session(name, server) for name, server in itertools.product(names, SERVERS)}
    for i, (name, server, kind, tag, lie) in enumerate(chosen(todo, limit, seed)):
        liar = Planned(server, {(kind, tag): lie}, i)
        liar.other_session = sessions[name, server]
        found = play(name, liar, i, QUICK, SECRETS[i & 1])
        report.add(ending(liar, found), (name, server, kind, tag, lie) if found == "WRONG" else None)
    return report.close()


def several(limit: int | None, seed: int) -> bool:
    report, rng = Report("several"), np.random.default_rng(seed)
    spots = {(n, s): places(n, s) for n, s in itertools.product(["arithmetic", "gates", "overlapping"], SERVERS)}
    sessions = {key: last_session(*key) for key in spots}
    keys = list(spots)
    for i in range(limit or 3000):
        name, server = keys[int(rng.integers(len(keys)))]
        here = spots[name, server]
        first = here[int(rng.integers(len(here)))]
        near = [p for p in here if p[2] == first[2] and p[1].split(".")[0] == first[1].split(".")[0]]
        pool = near if len(near) > 1 and rng.integers(2) else here
        some = [first, *(pool[int(rng.integers(len(pool)))] for _ in range(int(rng.integers(1, 3))))]
        names = sorted(LIES[first[2]])
        same = names[int(rng.integers(len(names)))]
        plan = {}
        for kind, tag, domain in some:
            options = sorted(LIES[domain])
            keep = same in options and rng.integers(2)
            plan[kind, tag] = same if keep else options[int(rng.integers(len(options)))]
        liar = Planned(server, plan, i)
        liar.other_session = sessions[name, server]
        found = play(name, liar, i, QUICK, SECRETS[i & 1])
        report.add(ending(liar, found), (name, server, plan) if found == "WRONG" else None)
    return report.close()


# ---- equal views -----------------------------------------------------------------------------------------------------
def judged(report: Report, make: Callable[[], Liar], seed: Any, first: int, what: Any, **more: Any) -> None:
    """Run one liar on two secrets with its view held equal."""
    liars: list[Liar] = []

    def remembered() -> Liar:
        liars.append(make())
        return liars[-1]

    try:
        a, b = two_secrets(remembered, seed, QUICK, first, **more)
    except RuntimeError:
        report.add("not comparable")
        return
    ends = {verdict("concealed", FIRST, a), verdict("concealed", SECOND, b)} if "owner_lies" not in more else set()
    if "WRONG" in ends:
        report.add("WRONG", what)
    elif not same_view(a, b):
        report.add("VIEWS DIFFER", what)
    else:
        end = "abort" if a.stops else "right"
        report.add(end if a.stops and not liars[0].broke else ending(liars[0], end))


def views(limit: int | None, seed: int) -> bool:
    report, config = Report("views"), replace(QUICK, ideal=True)
    todo = [
        (server, kind, tag, lie, first)
        for server, first in itertools.product(SERVERS, (0, 1))
        for kind, tag, domain in places("concealed", server, config, first)
        for lie in LIES[domain]
    ]
    print(f"views: {len(todo)} cases in all")
    sessions = {server: last_session("concealed", server) for server in SERVERS}
    for i, (server, kind, tag, lie, first) in enumerate(chosen(todo, limit, seed)):

        def make(server: int = server, plan: Any = None, i: int = i) -> Liar:
            liar = Planned(server, plan, i)
            liar.other_session = sessions[server]
            return liar

        plan = {(kind, tag): lie}
        judged(report, lambda m=make, p=plan: m(plan=p), i, first, (server, kind, tag, lie, first))
    return report.close()


def adaptive(limit: int | None, seed: int) -> bool:
    report = Report("adaptive")
    for i in range(limit or 2000):
        chance = (20, 60, 200)[i % 3]
        judged(report, lambda i=i, c=chance: Adaptive(i % 4, (seed, i), c, bool(i & 8)), i, i >> 2 & 1, i)
    return report.close()


def frames(limit: int | None, seed: int) -> bool:
    report = Report("frames")
    probe = World(FIRST, 0, replace(QUICK, ideal=True))
    probe.run(PROGRAMS["concealed"][0])
    rounds = probe.servers[0].round
    todo = [
        (server, r, peers, how, lie)
        for server, r in itertools.product(SERVERS, range(rounds))
        for size in (1, 2)
        for peers in itertools.combinations([p for p in SERVERS if p != server], size)
        for how, lie in (("drop", ""), ("hold", ""), ("hold", "late"))
    ]
    print(f"frames: {len(todo)} cases in all")
    for i, (server, r, peers, how, lie) in enumerate(chosen(todo, limit, seed)):
        what = (server, r, peers, how, lie)
        judged(report, lambda w=what, i=i: Frames(*w, i), i, i & 1, what)
    return report.close()


def owners(limit: int | None, seed: int) -> bool:
    report = Report("owners")
    counts = Counter(owner_case(QUICK, *pattern) for pattern in owner_patterns("k"))
    print("owners, acceptance:", dict(counts))
    for bad, _, lies in chosen(list(owner_patterns("o")), limit, seed):
        judged(report, lambda b=bad: Accomplice(b, "o", "input6"), 5, 0, (bad, lies), owner_lies=lies)
    return report.close() and not any(name.isupper() for name in counts)


# ---- claims ----------------------------------------------------------------------------------------------------------
def _top(v: Array) -> Array:
    out = v.copy()
    out.reshape(-1)[0] ^= MOD >> 1
    return out


def _low(v: Array) -> Array:
    out = v.copy()
    out.reshape(-1)[-1] = (int(out.reshape(-1)[-1]) + 12345) % MOD
    return out


def concert_cases(limit: int | None, seed: int) -> bool:
    report = Report("concert")
    terms = {
        name: [t for k, t, _ in places(name, 0) if k == "local" and t.endswith(".t") and not t.startswith("check")]
        for name in ("arithmetic", "gates", "overlapping")
    }
    todo = [(n, t, s, e) for n, ts in terms.items() for t in ts for s in SERVERS for e in (_top, _low)]
    print(f"concert: {len(todo)} cases in all")
    strong = Config(kappa=48, kappa_matrix=112)
    for i, (name, tag, server, error) in enumerate(chosen(todo, limit, seed)):
        liar = Concert(server, lambda t, v, tag=tag: t == tag, error)
        found = play(name, liar, i, strong)
        report.add(ending(liar, found), (name, tag, server) if found == "WRONG" else None)
    return report.close()


def concert(limit: int | None, seed: int) -> bool:
    good = concert_cases(limit, seed)
    for bits in (7, 9, 11):
        weak, runs = replace(QUICK, prime_bits=bits), 100
        wrong = sum(
            play("overlapping", Concert(i % 4, lambda t, v: t == "mul3.t", _top), i, weak) == "WRONG"
            for i in range(runs)
        )
        bound = (2 * weak.arity + 1) / 2 ** (bits - 1)
        print(f"concert, primes of {bits} bits: {wrong / runs:.3f} escape, bound {bound:.3f}")
        good &= wrong / runs < bound + 4 * math.sqrt(bound * (1 - min(bound, 1)) / runs + 1e-9)
    return good


def rates(limit: int | None, seed: int) -> bool:
    """One error of 2^127 (2^63 in 64 bits) passes with 2^-k (vectors) or (3/4)^k (matrices)."""

    def program(kind: str, only: str, ring: int) -> Callable[[Server], Step]:
        def run(s: Server) -> Step:
            x = s.input("x", ring)
            z = yield from s.multiply(x, x, kind, ring=ring, only=only)
            if only == "right":
                z = yield from s.multiply(s.public(1, z.C), z)
            if ring < MOD:
                z = yield from s.extend(z)
            yield from s.open(z, "z")

        return run

    good, runs = True, limit or 600
    kinds = [("element", o, MOD) for o in ("both", "left", "right")] + [("element", "both", 1 << 64)]
    kinds += [("inner", "both", MOD), ("matrix", "both", MOD), ("matrix", "left", MOD)]
    for (kind, only, ring), k in itertools.product(kinds, (1, 2)):
        x = array([3, 5, 7, 11])
        x = x.reshape(2, 2) if kind != "element" else x
        config, count = Config(kappa=k, kappa_matrix=k), 0
        for i in range(runs):
            liar = Wrong(i % 4, ring)
            count += (
                World({"x": x}, (seed, kind, only, ring, k, i), config, liar).run(program(kind, only, ring)).finished
            )
            good &= liar.touched == 1 and not liar.broke
        bound = 0.75**k if kind == "matrix" else 0.5**k
        what = f"{kind}, {only}, {ring.bit_length() - 1} bits, {k} combinations"
        print(f"rates: {what}: {count / runs:.3f}, bound {bound:.3f}")
        good &= abs(count / runs - bound) < 4 * math.sqrt(bound * (1 - bound) / runs)  # this error attains the bound
    return good


class Wrong(Liar):
    """Flips the top bit of one term and tells the truth about everything else."""

    def __init__(self, server: int, ring: int) -> None:
        super().__init__(server)
        self.ring = ring

    def change(self, kind: str, tag: str, value: Any, domain: str) -> Any:
        if (kind, tag) != ("local", "mul2.t"):
            return value
        out = value.copy()
        out.reshape(-1)[0] ^= self.ring >> 1
        return out


def checks(limit: int | None, seed: int) -> bool:
    good = True
    for check in DEMONSTRATIONS:
        off, on = (list(tries(check, off)) for off in (True, False))
        print(
            f"checks: {check}: the attack wins {sum(off)} of {len(off)} without it, {sum(on)} of {len(on)} with it",
            flush=True,
        )
        good &= any(off) and not any(on)
    return good


COMMANDS: dict[str, Callable[[int | None, int], bool]] = {
    f.__name__: f for f in (honest, checks, owners, concert, rates, frames, views, adaptive, singles, several)
}


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=[*COMMANDS, "all"], nargs="?", default="all")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--seed", type=int, default=1)
    chosen_ = parser.parse_args(None if arguments is None else list(arguments))
    names = list(COMMANDS) if chosen_.command == "all" else [chosen_.command]
    good = all([COMMANDS[name](chosen_.limit, chosen_.seed) for name in names])
    print("PASSED" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
