"""The loop of the iterative solvers: until an opened bit reports convergence, or for a maximum or fixed number of
steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ..protocol import ready, together

State = TypeVar("State")

Progress = Callable[[str, float | None], None]
"""Called with the current step as text and, if known, the completed fraction."""


def silent(text: str, fraction: float | None) -> None:
    """Ignore all progress."""


async def until_converged(
    state: State,
    step: Callable[[State, int], Awaitable[State]],
    bit: Callable[[State], Awaitable[Any]],
    due: Callable[[int], bool],
    *,
    max_steps: int,
    fixed_steps: int | None,
) -> tuple[State, int, bool | None]:
    """Return the last state, the number of steps that led to it, and whether it has converged (None with fixed steps).

    step: computes the next state from the current one and the number of steps already made. bit: computes a shared bit,
    whether a state is accurate enough. It is opened if `due` holds for the number of steps made. It runs
        in parallel with the step that leaves that state, so it costs no round if the step has at least as many.
    max_steps: maximum number of steps. fixed_steps: make exactly this many and open nothing.
    """
    done, converged = 0, False
    while done < (max_steps if fixed_steps is None else fixed_steps) and not converged:
        asks = fixed_steps is None and due(done)
        state, converged = await together(step(state, done), opened(bit(state)) if asks else ready(False))
        done += 1
    return state, done, converged if fixed_steps is None else None


async def opened(bit: Awaitable[Any]) -> bool:
    """Open a convergence bit to the servers."""
    shared = await bit
    return bool(await shared.open(what="convergence bit", why="stop the iteration"))
