"""Programs of the model with every operation, and what they must open."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .network import Outcome
from .primitives import Array
from .server import Server, Shared, Step, joined, together

F = 20
"""Fractional bits."""

CUTS, WIDE, SMALL = [3, 9, 40, 90, 200], [1 << 20, 777, 55, 44, 3, -9], [1, 2, 3, 5, 7, 11]
LEVELS = {
    1: {**{D: 1000 - 100 * D for D in range(9)}, **{-D: -50 * D for D in range(1, 5)}},
    3: {D: 7 * D for D in range(1, 6)},
}


def unpacked(v: Array, n: int) -> Array:
    """Return the symmetric matrix of a packed upper triangle."""
    out = np.zeros((n, n), dtype=object)
    i, j = np.triu_indices(n)
    out[i, j] = out[j, i] = v
    return out


def transposed(x: Shared) -> Shared:
    return x.map(lambda v: v.T)


def arithmetic(s: Server) -> Step:
    """Products of every kind, exact truncation, extension, shuffle, a narrow table; one opening and one result."""
    x, y, M, k = s.input("x"), s.input("y"), s.input("M"), s.input("k")
    h = s.input("k", 1 << 64)
    z, left, right = yield from together(
        s.multiply(x, y, shift=F), s.multiply(x, x, shift=F, only="left"), s.multiply(y, y, shift=F, only="right")
    )
    whole, both, P, square = yield from together(
        s.multiply(x, y),
        s.multiply(left, right, shift=F),
        s.multiply_upper(M, transposed(M), F),
        s.multiply(h, h, ring=1 << 64),
    )
    n = M.R.shape[0]
    exact, Q, wide, t = yield from together(
        s.truncate(whole, F),
        s.multiply(P.map(lambda v: unpacked(v, n)), M, "matrix", F),
        s.extend(square),
        s.table(k, 8, CUTS, WIDE, first=0, element=80),
    )
    batch = joined([Q, Q.times(3)], np.stack)
    mixed, inner, stack = yield from together(
        s.shuffle(joined([k, t], lambda vs: np.stack(vs, 1))),
        s.multiply(M, Q, "inner", F),
        s.multiply(batch, batch.map(lambda v: v.transpose(0, 2, 1)), "matrix", F),
    )
    yield from s.open(joined([z, exact, both, Q, wide, t, mixed, inner, stack]), "all")
    yield from s.reveal(Q, "Q")


def _near(got: Iterable[int], want: Iterable[float], tolerance: float) -> bool:
    return all(abs(int(g) - float(w) * (1 << F)) < tolerance for g, w in zip(got, want, strict=True))


def arithmetic_right(inputs: dict[str, Array], name: str, values: list[int]) -> bool:
    x, y, M = (np.array(inputs[key], dtype=float) / (1 << F) for key in ("x", "y", "M"))
    k = [int(v) for v in inputs["k"]]
    Q = M @ M.T @ M
    if name == "Q":
        return _near(values, Q.ravel(), 60)
    t = [WIDE[sum(v >= cut for cut in CUTS)] for v in k]
    stack = np.stack([Q @ Q.T, 9 * Q @ Q.T])
    sizes = [len(x), len(x), len(x), Q.size, len(k), len(k), 2 * len(k), len(M), stack.size]
    at = np.cumsum([0, *sizes])
    part = [values[a:b] for a, b in itertools.pairwise(at)]
    rows = sorted(zip(part[6][::2], part[6][1::2], strict=True))
    return (
        _near(part[0], x * y, 8)
        and _near(part[1], x * y, 8)
        and _near(part[2], (x * y) ** 2, 60)
        and _near(part[3], Q.ravel(), 60)
        and part[4] == [v * v for v in k]
        and part[5] == t
        and rows == sorted(zip(k, t, strict=True))
        and _near(part[7], (M * Q).sum(axis=1), 400)
        and _near(part[8], stack.ravel(), 20000)
    )


def gates(s: Server) -> Step:
    """Keys are dealt in the round in which digests of their shares travel: chains of signs, tables, truncations."""
    k = s.input("k")
    a = yield from s.sign(k.plus(-100), 10)
    b = yield from s.sign(a.times(2).plus(-1), 4)
    t = yield from s.table(k, 8, CUTS, SMALL, first=1)
    c, square = yield from together(s.sign(t.plus(-4), 6), s.multiply(k, k))
    short = yield from s.truncate(square, 4)
    d, p = yield from together(s.sign(short.plus(-500), 14), s.prefixes(k, 9, LEVELS, first=1))
    mixed = yield from s.shuffle(k)
    u, v = yield from together(s.table(mixed, 8, CUTS, SMALL, first=0), s.prefixes(t, 9, LEVELS, first=0))
    yield from s.open(joined([a, b, t, c, d, p, u, v]), "all")


def _steps(x: int, bits: int = 9) -> set[int]:
    """Return all values that `prefixes` may give: D is x >> g or one more at every level."""
    found = {0}
    for g, weights in LEVELS.items():
        options = set()
        for carry in (0, 1):
            D = (x % (1 << bits) >> g) + carry
            options.add(sum(w for E, w in weights.items() if (D - E) % (1 << (bits - g)) == 0))
        found = {a + b for a in found for b in options}
    return found


def gates_right(inputs: dict[str, Array], name: str, values: list[int]) -> bool:
    k = [int(v) for v in inputs["k"]]
    n = len(k)
    part = [values[i * n : (i + 1) * n] for i in range(8)]
    a = [int(v < 100) for v in k]
    t = [SMALL[sum(v >= cut for cut in CUTS)] for v in k]
    return (
        part[:4] == [a, [1 - v for v in a], t, [int(v < 4) for v in t]]
        and all(d == int(x * x < 8000) or abs(x * x - 8000) < 32 for d, x in zip(part[4], k, strict=True))
        and all(int(g) in _steps(x) for g, x in zip(part[5], k, strict=True))
        and sorted(part[6]) == sorted(t)
        and all(int(g) in _steps(x) for g, x in zip(part[7], t, strict=True))
    )


def overlapping(s: Server) -> Step:
    """Three checkpoints that overlap each other, the program and the openings."""
    x, k = s.input("x"), s.input("k")
    y = yield from s.multiply(x, x, shift=F)
    s.start_checkpoint()
    z = yield from s.multiply(y, x, shift=F)
    b = yield from s.sign(k.plus(-100), 10)
    s.start_checkpoint()
    u = yield from s.multiply(z, x, shift=F)
    t = yield from s.table(k, 8, CUTS, SMALL)
    s.start_checkpoint()
    w = yield from s.multiply(u, x, shift=F)
    yield from together(s.open(y, "y"), s.open(joined([z, b]), "zb"), s.multiply(w, w, shift=F))
    yield from together(s.open(joined([u, t]), "ut"), s.multiply(t, t))
    yield from s.open(w, "w")


def overlapping_right(inputs: dict[str, Array], name: str, values: list[int]) -> bool:
    x = np.array(inputs["x"], dtype=float) / (1 << F)
    k = [int(v) for v in inputs["k"]]
    n = len(x)
    power = {"y": 2, "zb": 3, "ut": 4, "w": 5}[name]
    rest = {"zb": [int(v < 100) for v in k], "ut": [SMALL[sum(v >= cut for cut in CUTS)] for v in k]}
    return _near(values[:n], x**power, 400) and values[n:] == rest.get(name, [])


def concealed(s: Server) -> Step:
    """Every operation on secrets that differ, and an opening that is the same: for tests of equal views."""
    x, y, M, k = s.input("x"), s.input("y"), s.input("M"), s.input("k")
    h = s.input("k", 1 << 64)
    k = k + s.input("o")
    t, left, P, square, b = yield from together(
        s.table(k, 8, CUTS, SMALL, first=s.world.first),
        s.multiply(x, y, shift=F, only="left"),
        s.multiply_upper(M, transposed(M), F),
        s.multiply(h, h, ring=1 << 64),
        s.sign(k.plus(-100), 10),
    )
    s.start_checkpoint()
    *_, wide = yield from together(
        s.multiply(left, y, shift=F),
        s.shuffle(joined([k, t], lambda vs: np.stack(vs, 1))),
        s.prefixes(t, 9, LEVELS, first=s.world.first),
        s.extend(square),
    )
    c, short, _ = yield from together(
        s.sign((t + b).plus(-5), 8),
        s.truncate(wide, 4),
        s.multiply(P.map(lambda v: unpacked(v, M.R.shape[0])), M, "matrix", F),
    )
    d = yield from s.sign((short + c).plus(-2000), 20)
    yield from s.open(joined([b, c, t]), "bits")
    last = yield from s.multiply(d, d)
    yield from s.open(last, "last")


def concealed_right(inputs: dict[str, Array], name: str, values: list[int]) -> bool:
    k = [int(v) for v in inputs["k"]]
    b = [int(v < 100) for v in k]
    t = [SMALL[sum(v >= cut for cut in CUTS)] for v in k]
    c = [int(v + w < 5) for v, w in zip(t, b, strict=True)]
    if name == "bits":
        return values == b + c + t
    return all(g in (0, 1) for g in values)


Judge = Callable[[dict[str, Array], str, list[int]], bool]
PROGRAMS: dict[str, tuple[Callable[[Server], Any], Judge]] = {
    "arithmetic": (arithmetic, arithmetic_right),
    "gates": (gates, gates_right),
    "overlapping": (overlapping, overlapping_right),
    "concealed": (concealed, concealed_right),
}


def encoded(values: Any) -> Array:
    """Return fixed-point integers."""
    return np.vectorize(lambda v: round(float(v) * (1 << F)), otypes=[object])(np.asarray(values, dtype=float))


def secrets(x: Any, y: Any, M: Any, k: Any) -> dict[str, Array]:
    return {
        "x": encoded(x),
        "y": encoded(y),
        "M": encoded(M),
        "k": np.array([int(v) for v in k], dtype=object),
        "o": np.zeros(len(k), dtype=object),
    }


FIRST = secrets([1.5, -0.25], [1.0, -1.25], [[0.5, 1.0, -1.0], [0.25, -0.5, 1.5]], [20, 250])
SECOND = secrets([-2.0, 1.999], [2.0, 1.0], [[-2.0, 0.0, 0.0], [2.0, 2.0, 2.0]], [33, 210])
"""Two secrets that `concealed` opens the same results of."""


def random_secrets(rng: np.random.Generator) -> dict[str, Array]:
    u = rng.uniform
    return secrets(u(-2, 2, 2), u(-2, 2, 2), u(-2, 2, (2, 3)), rng.integers(0, 256, 2))


def verdict(name: str, inputs: dict[str, Array], outcome: Outcome) -> str:
    """Return "WRONG" if an honest party accepted a wrong value, else "right" or "abort"."""
    right = PROGRAMS[name][1]
    for opened in outcome.opened.values():
        if not all(right(inputs, what, values) for what, values in opened.items()):
            return "WRONG"
    for what, values in outcome.revealed.items():
        if values is not None and not right(inputs, what, values):
            return "WRONG"
    return "right" if outcome.finished else "abort"
