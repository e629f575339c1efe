"""The loop of the iterative solvers: until an opened bit says so, at most so many times, or a fixed number of times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ..protocol import ready, together

State = TypeVar("State")

Progress = Callable[[str, float | None], None]
"""Takes what is going on and, where known, the part of it that is done."""


def silent(text: str, fraction: float | None) -> None:
    """The progress that nobody asked for."""


async def until_converged(
    state: State,
    step: Callable[[State, int], Awaitable[State]],
    bit: Callable[[State], Awaitable[Any]],
    due: Callable[[int], bool],
    *,
    max_steps: int,
    fixed_steps: int | None,
) -> tuple[State, int, bool | None]:
    """The last state, how many steps led to it, and whether it has converged (None: nobody asked).

    step: the next state, from the present one and the number of steps already made.
    bit: a shared bit, whether a state is good enough. It is opened where `due` says so of that number, and travels beside the
    step that leaves that state: it costs no round if the step has as many, and the step is the one more that is made.
    most: give up after so many steps. fixed: make exactly so many and open nothing.
    """
    done, converged = 0, False
    while done < (max_steps if fixed_steps is None else fixed_steps) and not converged:
        asks = fixed_steps is None and due(done)
        state, converged = await together(step(state, done), opened(bit(state)) if asks else ready(False))
        done += 1
    return state, done, converged if fixed_steps is None else None


async def opened(bit: Awaitable[Any]) -> bool:
    """Opens a convergence bit to the servers."""
    shared = await bit
    return bool(await shared.open(what="convergence bit", why="stop the iteration"))
