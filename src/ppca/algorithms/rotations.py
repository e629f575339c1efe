"""Shared parts of the cyclic Jacobi solvers: order of the pairs, rotation of rows and columns, and sweeps.

A step rotates up to d/2 disjoint pairs at once; a sweep of d - 1 steps (d if d is odd) visits every pair once. The
order is the round robin of a tournament (Golub and Van Loan, Matrix Computations, section 8.5), so the schedule is
public and depends only on d. A rotation matrix has two non-zeros per row: columns and rows are rotated by 2 x 2 blocks,
in one round each, and only the result is sent.

    r1..r(k)  cosines and sines of all pairs of the step (formula of the solver)  | is the off-diagonal small enough?
    r(k+1)    A J   | V := V J
    r(k+2)    A := J' (A J), the blocks of one triangle

At the end of every sweep (after at least eight steps) V := V - V (V'V - I) / 2 and A := V' (A0 V), four rounds. This
removes the errors of truncations and of an approximate rotation from V and A, and keeps V orthogonal to the last few
bits.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..protocol import concatenate, stack, symmetric, together
from .eigen import Eigen, off_diagonal_is_small, orthonormal
from .iteration import Progress, State, silent, until_converged

Index = NDArray[np.intp]
Order = Callable[[int], tuple[Index, ...]]
"""Function of d: the disjoint pairs of every step of a sweep over d columns, as arrays (pairs, 2)."""

Rotation = Callable[[Any, Any], Awaitable[tuple[Any, Any]]]
"""(a, h) = (A_pq, A_qq - A_pp) of all pairs of a step to (cos, sin): p := cos p - sin q, q := sin p + cos q."""

UNCHECKED_SWEEPS, CHECKS_PER_SWEEP = 1, 4
"""Sweeps before the first convergence check, and checks per sweep.

A check runs in parallel with a rotation, at no round.
"""

MIN_SWEEP_STEPS = 8
"""Minimum number of steps between two renormalisations: at d = 2 a sweep is one step."""

MAX_SWEEPS = 30
"""Maximum number of sweeps of a run that opens convergence bits."""


@lru_cache
def round_robin(d: int) -> tuple[Index, ...]:
    """Return disjoint pairs (p < q) of every step of a sweep, as arrays (pairs, 2): a tournament of d players, one
    resting if d is odd.
    """
    n = d + d % 2
    players = list(range(n))
    steps = []
    for _ in range(n - 1):
        games = zip(players[: n // 2], reversed(players[n // 2 :]), strict=True)
        steps.append(np.array([sorted(game) for game in games if max(game) < d], np.intp).reshape(-1, 2))
        players = [players[0], players[-1], *players[1:-1]]
    return tuple(steps)


@lru_cache(maxsize=64)
def _indices(d: int, step: int, order: Order) -> tuple[Index, Index, Index, Index]:
    """Return the public indices of a step.

    They are: the resting indices; the source of each column after the rotation of columns; the pairs of blocks of one
    triangle; and the position of entry (i, j) of the new A among those blocks and the resting rows.
    """
    pairs = order(d)[step]
    rest = np.setdiff1d(np.arange(d), pairs)
    arranged = np.concatenate([pairs.ravel(), rest])
    blocks = np.stack(np.triu_indices(len(pairs)))
    i, j = pairs[blocks[0]][:, :, None], pairs[blocks[1]][:, None, :]
    place = np.empty((d, d), np.intp)
    place[i, j] = np.arange(4 * blocks.shape[1]).reshape(-1, 2, 2)
    place[pairs[:, 1], pairs[:, 0]] = place[pairs[:, 0], pairs[:, 1]]  # blocks on the diagonal are symmetric
    place[j.swapaxes(1, 2), i.swapaxes(1, 2)] = place[i, j].swapaxes(1, 2)
    for number, resting in enumerate(rest):
        place[resting] = place[:, resting] = 4 * blocks.shape[1] + number * d + np.arange(d)
    return rest, np.argsort(arranged), blocks, place


def blocks_of(cos: Any, sin: Any) -> Any:
    """Return the rotations of a step as (pairs, 2, 2) matrices."""
    return stack([stack([cos, sin], -1), stack([-sin, cos], -1)], -2)


async def rotate_columns(X: Any, J: Any, step: int, d: int, order: Order = round_robin) -> Any:
    """Return X J for d columns of length at most one: one round."""
    pairs = order(d)[step]
    rest, inverse, _, _ = _indices(d, step, order)
    turned = await X[:, pairs].transpose(1, 0, 2).matmul(J, within=1.5)
    columns = turned.transpose(1, 0, 2).reshape(len(X), 2 * len(pairs))
    return concatenate([columns, X[:, rest]], 1)[:, inverse] if len(rest) else columns[:, inverse]


async def rotate_rows(Y: Any, J: Any, step: int, order: Order = round_robin) -> Any:
    """Return J' Y, known to be symmetric: one round, one triangle of 2 x 2 blocks."""
    d = len(Y)
    pairs = order(d)[step]
    rest, _, (first, second), place = _indices(d, step, order)
    old = Y[pairs[first][:, :, None], pairs[second][:, None, :]]
    new = await J.transpose(0, 2, 1)[first].matmul(old, within=1.5)
    entries = new.reshape(4 * len(first))
    return (concatenate([entries, Y[rest].reshape(-1)]) if len(rest) else entries)[place]


async def rotate(A: Any, V: Any, cos: Any, sin: Any, step: int, order: Order = round_robin) -> tuple[Any, Any]:
    """Return J'AJ and VJ for the rotations of a step: two rounds."""
    J, d = blocks_of(cos, sin), len(A)
    AJ, V = await together(rotate_columns(A, J, step, d, order), rotate_columns(V, J, step, d, order))
    return await rotate_rows(AJ, J, step, order), V


async def refresh(A0: Any, V: Any) -> tuple[Any, Any]:
    """Return A = V' A0 V for V made orthonormal, and that V: four rounds."""
    V = await orthonormal(V)
    AV = await A0.matmul(V, within=1.5)
    return symmetric(await V.T.matmul_upper(AV, within=1.5), len(A0)), V


async def in_sweeps(
    state: State,
    d: int,
    turn: Callable[[State, int], Awaitable[State]],
    renew: Callable[[State], Awaitable[State]],
    bit: Callable[[State], Awaitable[Any]],
    *,
    max_iterations: int | None,
    fixed_iterations: int | None,
    progress: Progress,
    what: str,
    at_once: bool = False,
    order: Order = round_robin,
    check_every: int | None = None,
) -> tuple[State, int, bool | None]:
    """Run the loop of a cyclic Jacobi over d columns: `turn` for every step of a sweep, `renew` at its end; see
    `until_converged`.

    at_once: check convergence in the first sweep, too. check_every: steps between two checks (None: a quarter of a
        sweep).
    """
    if d == 1:
        return state, 0, True if fixed_iterations is None else None
    steps = len(order(d))
    every = max(1, steps // CHECKS_PER_SWEEP) if check_every is None else check_every

    async def step(state: State, done: int) -> State:
        state = await turn(state, done % steps)
        if (done + 1) % max(steps, MIN_SWEEP_STEPS) == 0:
            state = await renew(state)
        sweep, rest = divmod(done + 1, steps)
        if rest == 0:
            progress(f"{what}, sweep {sweep}", min(0.95, sweep / 10))
        return state

    return await until_converged(
        state,
        step,
        bit,
        due=lambda done: (
            done % steps % every == 0 and (at_once or done >= UNCHECKED_SWEEPS * steps)
            if check_every is None
            else done > 0 and done % every == 0
        ),
        max_steps=MAX_SWEEPS * steps if max_iterations is None else max_iterations,
        fixed_steps=fixed_iterations,
    )


def max_checks(d: int, max_iterations: int | None = None) -> int:
    """Return the maximum number of convergence bits that a cyclic Jacobi over d columns opens."""
    steps = max(1, d - 1 + d % 2)
    total = MAX_SWEEPS * steps if max_iterations is None else max_iterations
    per_sweep = math.ceil(steps / max(1, steps // CHECKS_PER_SWEEP))
    return min(total, math.ceil(total / steps) * per_sweep)


StopRule = Callable[[Any, float], Awaitable[Any]]
"""(A, tol) to the shared bit that ends the iteration."""


async def norm_is_small(A: Any, tol: float) -> Any:
    """Return [norm of the off-diagonal < tol / 2].

    |A0|_F lies in [1/2, 1], so the residual is also below tol relative to |A0|_F.
    """
    return await off_diagonal_is_small(A, tol / 2)


class _Sweeping(NamedTuple):
    """Shared A = V'A0V and V between two steps. fresh: nothing has been rotated since they were renewed."""

    A: Any
    V: Any
    fresh: bool


async def sweeps(
    A0: Any,
    identity: Any,
    rotation: Rotation,
    *,
    tol: float = 1e-7,
    max_iterations: int | None = None,
    fixed_iterations: int | None = None,
    progress: Progress = silent,
    start: tuple[Any, Any] | None = None,
    order: Order = round_robin,
    stop: StopRule = norm_is_small,
    check_every: int | None = None,
) -> Eigen:
    """Compute eigenvalues and eigenvectors of a shared symmetric matrix with |A0|_F <= 1 and 40 fractional bits, with
    any rotation.

    tol: stop when the off-diagonal has a Frobenius norm below it; each check opens one bit (four a sweep).
    max_iterations: maximum number of steps (None: 30 sweeps). A sweep is d - 1 steps, d if d is odd. fixed_iterations:
    make exactly this number of steps and open nothing. start: (A, V) of another solver, with A = V'A0V and V nearly
    orthogonal (Newton-Schulz must converge from V): continue from there. order: the pairs of every step. stop: the
    shared bit that ends the iteration. check_every: steps between two checks (None: a quarter of a sweep, after the
    first sweep). `iterations` of the result counts steps.
    """
    d = A0.shape[0]
    A0 = A0.within(1)

    async def turn(state: _Sweeping, step: int) -> _Sweeping:
        A, V, _ = state
        (p, q), diagonal = order(d)[step].T, A.diagonal()
        cos, sin = await rotation(A[p, q], diagonal[q] - diagonal[p])
        return _Sweeping(*await rotate(A, V, cos, sin, step, order), fresh=False)

    async def renew(state: _Sweeping) -> _Sweeping:
        return _Sweeping(*await refresh(A0, state.V), fresh=True)

    first = _Sweeping(A0, identity, True) if start is None else _Sweeping(start[0], await orthonormal(start[1]), False)
    state, steps, converged = await in_sweeps(
        first,
        d,
        turn,
        renew,
        lambda state: stop(state.A, tol),
        max_iterations=max_iterations,
        fixed_iterations=fixed_iterations,
        progress=progress,
        what="eigendecomposition",
        at_once=start is not None,
        order=order,
        check_every=check_every,
    )
    A, V, _ = state if state.fresh else await renew(state)
    return Eigen(A.diagonal(), V, steps, converged)
