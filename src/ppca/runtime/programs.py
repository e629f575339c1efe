"""Programs by name: what developer servers run besides jobs.

A program is an ``async def program(party, *secrets, **public)``. It is named ``package.module:function`` or
``path/to/file.py:function``; every server loads it itself, so only the name travels. Naming a file or a module means
running any code: servers that were not started for developing refuse programs.
"""

from __future__ import annotations

import importlib
import inspect
import runpy
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

from ..protocol import InputPacket
from .codec import CodecError

Program = Callable[..., Coroutine[Any, Any, Any]]


class ProgramError(ValueError):
    """A program cannot be found, has the wrong form, or does not take these inputs. Nothing was computed."""


def name_of(program: Program | str) -> str:
    """Return the name by which servers load a program; files by their absolute path."""
    if isinstance(program, str):
        place, _, function = program.rpartition(":")
        if not place or not function.isidentifier():
            raise ProgramError(f"{program!r} is not a program name: write 'module:function' or 'file.py:function'")
        if not place.endswith(".py"):
            return program
        path = Path(place).resolve()
        if not path.is_file():
            raise ProgramError(f"file not found: {place!r} in {path.parent}")
        return f"{path}:{function}"
    check_async(program, getattr(program, "__name__", str(program)))
    if "<" in program.__qualname__ or "." in program.__qualname__:
        raise ProgramError(
            f"{program.__qualname__} must stand at the top level of a module, so that servers can load it"
        )
    if program.__module__ == "__main__":
        main = sys.modules["__main__"]
        if main.__spec__ is not None:  # python -m package.module
            return f"{main.__spec__.name}:{program.__name__}"
        source = getattr(main, "__file__", None)
        if source is None:
            raise ProgramError(
                "servers cannot load a function that was defined in an interactive session; put the program into a file"
            )
        return f"{Path(source).resolve()}:{program.__name__}"
    return f"{program.__module__}:{program.__name__}"


def check_async(program: Any, name: str) -> None:
    if not inspect.iscoroutinefunction(program):
        raise ProgramError(
            f"{name!r} is not an 'async def' function; write 'async def' and await operations that communicate"
        )


def load(name: str) -> Program:
    """Return the function behind a name."""
    place, _, function = name.rpartition(":")
    try:
        if place.endswith(".py"):
            directory = str(Path(place).resolve().parent)
            if directory not in sys.path:
                sys.path.append(directory)  # the file may import modules of its folder
            # The name is not "__main__", so that servers do not run the script's main part again.
            found = runpy.run_path(place, run_name="__ppca_program__").get(function)
        else:
            found = getattr(importlib.import_module(place), function, None)
    except (Exception, SystemExit) as error:
        raise ProgramError(f"cannot load program {name!r}: {type(error).__name__}: {error}") from error
    if found is None:
        raise ProgramError(f"no function {function!r} in {place}")
    check_async(found, name)
    return cast(Program, found)


def check_arguments(program: Program, name: str, secrets: int, public: dict[str, Any]) -> None:
    """Raise ProgramError if the signature of the program does not accept the call, before anything is computed."""
    signature = inspect.signature(program)
    try:
        signature.bind(None, *[None] * secrets, **public)
    except TypeError as error:
        given = f"{secrets} secret input{'' if secrets == 1 else 's'}"
        given += f" and the public parameters {', '.join(public)}" if public else " and no public parameters"
        bare = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
        taken = inspect.Signature(bare)
        raise ProgramError(f"{name} takes {taken} but was given the party, {given}: {error}") from None


def asked_for(fields: dict[str, Any]) -> tuple[str, list[InputPacket], dict[str, Any]]:
    """Return program, packets and public parameters of a `run` message; raise CodecError if it lacks one."""
    name, packets, public = (fields.get(key) for key in ("program", "packets", "public"))
    if not isinstance(name, str) or not isinstance(public, dict) or not isinstance(packets, list):
        raise CodecError("a 'run' message needs a program, a list of packets and public parameters")
    if not all(isinstance(packet, InputPacket) for packet in packets):
        raise CodecError("a 'run' message has an input that is not a packet")
    return name, packets, public
