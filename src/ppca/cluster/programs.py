"""Programs by name: what all four servers run.

A program is an ``async def program(party, *secrets, **public)``. It is named ``package.module:function`` or
``path/to/file.py:function``; every server loads it itself, so only the name travels.
"""

from __future__ import annotations

import importlib
import inspect
import runpy
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..protocol import InputPacket, Party, Pending, SecretArray, agree_keys, drive
from ..transport import Mesh

Program = Callable[..., Coroutine[Any, Any, Any]]


class ProgramError(ValueError):
    """A program cannot be found or has the wrong form."""


def name_of(program: Program | str) -> str:
    """The name under which servers find a program."""
    if isinstance(program, str):
        if ":" not in program:
            raise ProgramError(f"{program!r} is no program name: write 'module:function' or 'file.py:function'")
        return program
    if not inspect.iscoroutinefunction(program):
        raise ProgramError(f"{getattr(program, '__name__', program)!r} is not an 'async def' function")
    if "<" in program.__qualname__ or "." in program.__qualname__:
        raise ProgramError(
            f"{program.__qualname__} must stand at the top level of a module, so that servers can load it"
        )
    if program.__module__ == "__main__":
        source = getattr(sys.modules["__main__"], "__file__", None)
        if source is None:
            raise ProgramError(
                "functions typed into a session cannot be loaded by servers; put the program into a file"
            )
        return f"{Path(source).resolve()}:{program.__name__}"
    return f"{program.__module__}:{program.__name__}"


def load(name: str) -> Program:
    """The function behind a name."""
    place, _, function = name.rpartition(":")
    try:
        if place.endswith(".py"):
            found = runpy.run_path(place, run_name="__ppca_program__").get(function)
        else:
            found = getattr(importlib.import_module(place), function, None)
    except (ImportError, OSError) as error:
        raise ProgramError(f"cannot load program {name!r}: {error}") from error
    if found is None:
        raise ProgramError(f"{place} has no function {function!r}")
    if not inspect.iscoroutinefunction(found):
        raise ProgramError(f"{name!r} is not an 'async def' function")
    program: Program = found
    return program


@dataclass
class Ran:
    """One server's account of a run."""

    value: Any
    seconds: float
    stats: dict[str, Any]
    audit: list[dict[str, Any]] = field(default_factory=list)


def execute(
    mesh: Mesh,
    session: bytes,
    program: Program,
    packets: list[InputPacket],
    public: dict[str, Any],
    progress: Callable[[str, float | None], None] | None = None,
) -> Ran:
    """Runs a program on this seat: fresh keys, the inputs, the rounds; returns its value and the account."""
    party: Party = drive(_awaited(agree_keys(mesh.seat, session)), mesh)
    if progress is not None:
        party.progress = progress
    secrets = [SecretArray.from_packet(party, packet) for packet in packets]
    start = time.perf_counter()
    value = drive(program(party, *secrets, **public), mesh)
    seconds = time.perf_counter() - start
    return Ran(value, seconds, mesh.stats.as_dict(), [opening.as_dict() for opening in party.audit])


async def _awaited(step: Any) -> Any:
    return await Pending(step)
