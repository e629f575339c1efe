"""What the cyclic Jacobi solvers share: the order of the pairs, the rotation of rows and columns, and the sweeps.

A step rotates up to d/2 disjoint pairs at once; a sweep of d - 1 steps (d if d is odd) meets every pair once. The order
is the round robin of a tournament, so which pair is rotated when is public and depends on d alone. A rotation matrix
has two non-zeros a row: columns and rows are rotated by 2 x 2 blocks, in one round each, sending the result only.

    r1..r(k)  cosines and sines of all pairs of the step (the solver's own formula)  | is the off-diagonal small enough?
    r(k+1)    A J   | V := V J
    r(k+2)    A := J' (A J), the blocks of one triangle

At the end of every sweep (eight steps at least) V := V - V (V'V - I) / 2 and A := V' (A0 V), four rounds: whatever
truncations and an approximate rotation did to V and A is gone, and V stays orthogonal to the last few bits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..protocol import concatenate, stack, symmetric, together
from .allpairs import Eigen, Progress

Index = NDArray[np.intp]
Rotation = Callable[[Any, Any], Awaitable[tuple[Any, Any]]]
"""(a, h) = (A_pq, A_qq - A_pp) of all pairs of a step to (cos, sin): p := cos p - sin q, q := sin p + cos q."""

FIRST_CHECK, CHECKS_PER_SWEEP = 1, 4
"""Convergence is asked four times a sweep after the first: the answer travels beside the rotation and costs no round."""

SHORTEST_SWEEP = 8
"""Steps between two renormalisations at least: at d = 2 a sweep is one step."""

MOST_SWEEPS = 30
"""Where a run that opens convergence bits gives up."""


@lru_cache
def round_robin(d: int) -> tuple[Index, ...]:
    """Disjoint pairs (p < q) of every step of a sweep, as arrays (pairs, 2): a tournament of d players, one resting if odd."""
    n = d + d % 2
    seats = list(range(n))
    steps = []
    for _ in range(n - 1):
        games = zip(seats[: n // 2], reversed(seats[n // 2 :]), strict=True)
        steps.append(np.array([sorted(game) for game in games if max(game) < d], np.intp).reshape(-1, 2))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return tuple(steps)


@lru_cache(maxsize=64)
def _places(d: int, step: int) -> tuple[Index, Index, Index, Index]:
    """Public index work of a step: the resting index, where column i comes from after the rotation of columns, the pairs
    of blocks of one triangle, and where entry (i, j) of the new A stands among those blocks and the resting row."""
    pairs = round_robin(d)[step]
    rest = np.setdiff1d(np.arange(d), pairs)
    order = np.concatenate([pairs.ravel(), rest])
    blocks = np.stack(np.triu_indices(len(pairs)))
    i, j = pairs[blocks[0]][:, :, None], pairs[blocks[1]][:, None, :]
    place = np.empty((d, d), np.intp)
    place[i, j] = np.arange(4 * blocks.shape[1]).reshape(-1, 2, 2)
    place[pairs[:, 1], pairs[:, 0]] = place[pairs[:, 0], pairs[:, 1]]  # blocks on the diagonal are symmetric, too
    place[j.swapaxes(1, 2), i.swapaxes(1, 2)] = place[i, j].swapaxes(1, 2)
    for number, resting in enumerate(rest):
        place[resting] = place[:, resting] = 4 * blocks.shape[1] + number * d + np.arange(d)
    return rest, np.argsort(order), blocks, place


def blocks_of(cos: Any, sin: Any) -> Any:
    """The rotations of a step as (pairs, 2, 2) matrices."""
    return stack([stack([cos, sin], -1), stack([-sin, cos], -1)], -2)


async def rotate_columns(X: Any, J: Any, step: int, d: int) -> Any:
    """X J for d columns: one round."""
    pairs = round_robin(d)[step]
    rest, inverse, _, _ = _places(d, step)
    turned = await (X[:, pairs].transpose(1, 0, 2) @ J)
    columns = turned.transpose(1, 0, 2).reshape(len(X), 2 * len(pairs))
    return concatenate([columns, X[:, rest]], 1)[:, inverse] if len(rest) else columns[:, inverse]


async def rotate_rows(Y: Any, J: Any, step: int) -> Any:
    """J' Y, known to be symmetric: one round, one triangle of 2 x 2 blocks."""
    d = len(Y)
    pairs = round_robin(d)[step]
    rest, _, (first, second), place = _places(d, step)
    old = Y[pairs[first][:, :, None], pairs[second][:, None, :]]
    new = await (J.transpose(0, 2, 1)[first] @ old)
    entries = new.reshape(4 * len(first))
    return (concatenate([entries, Y[rest].reshape(-1)]) if len(rest) else entries)[place]


async def rotate(A: Any, V: Any, cos: Any, sin: Any, step: int) -> tuple[Any, Any]:
    """J'AJ and VJ for the rotations of a step: two rounds."""
    J, d = blocks_of(cos, sin), len(A)
    AJ, V = await together(rotate_columns(A, J, step, d), rotate_columns(V, J, step, d))
    return await rotate_rows(AJ, J, step), V


async def off_is_small(A: Any, tol: float) -> bool:
    """Opens one bit, [sum of the squares of the off-diagonal < (tol/2)^2]: four rounds.

    |A0|_F lies in (1/2, 1]: with half of tol the residual is below tol relative to |A0|_F, too.
    """
    a = A[np.triu_indices(len(A), 1)]
    off = await a.inner(a, frac=80)
    small = await (off * 2 - tol * tol / 4).within(8).negative()
    return bool(await small.open(what="convergence bit", why="stop the iteration"))


async def orthonormal(V: Any) -> Any:
    """One Newton-Schulz step, V - V (V'V - I) / 2: two rounds. The distance from orthogonal is squared."""
    d = V.shape[1]
    E = symmetric(await V.T.matmul_upper(V), d) - np.eye(d, dtype=np.int64)
    return V - (await (V @ E)) * 0.5


async def refresh(A0: Any, V: Any) -> tuple[Any, Any]:
    """A = V' A0 V for V made orthonormal, and that V: four rounds."""
    V = await orthonormal(V)
    AV = await (A0 @ V)
    return symmetric(await V.T.matmul_upper(AV), len(A0)), V


async def _nothing() -> bool:
    return False


def steps_allowed(d: int, most: int | None, fixed: int | None) -> int:
    """How many steps a solver may run."""
    if fixed is not None:
        return fixed
    return MOST_SWEEPS * len(round_robin(d)) if most is None else most


async def sweeps(
    A0: Any,
    identity: Any,
    rotation: Rotation,
    *,
    tol: float,
    max_steps: int | None,
    fixed_steps: int | None,
    progress: Progress | None,
    start: tuple[Any, Any] | None = None,
) -> Eigen:
    """Cyclic Jacobi with any formula for the rotation. `iterations` of the result counts steps."""
    d = A0.shape[0]
    if d == 1:
        return Eigen(A0[0], identity, 0, True if fixed_steps is None else None)
    A, V = (A0, identity) if start is None else start
    if start is not None:
        V = await orthonormal(V)
    order = round_robin(d)
    every = max(1, len(order) // CHECKS_PER_SWEEP)
    limit = steps_allowed(d, max_steps, fixed_steps)
    steps, converged, fresh = 0, False, start is None
    while steps < limit and not converged:
        step = steps % len(order)
        (p, q), diagonal = order[step].T, A.diagonal()
        due = fixed_steps is None and (start is not None or steps >= FIRST_CHECK * len(order)) and step % every == 0
        (cos, sin), converged = await together(
            rotation(A[p, q], diagonal[q] - diagonal[p]), off_is_small(A, tol) if due else _nothing()
        )
        A, V = await rotate(A, V, cos, sin, step)
        steps += 1
        fresh = steps % max(len(order), SHORTEST_SWEEP) == 0
        if fresh:
            A, V = await refresh(A0, V)
        if progress is not None and step == len(order) - 1:
            progress(f"eigendecomposition, sweep {steps // len(order)}", min(0.95, steps / len(order) / 10))
    if not fresh:
        A, V = await refresh(A0, V)
    return Eigen(A.diagonal(), V, steps, converged if fixed_steps is None else None)
