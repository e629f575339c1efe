"""Runs parts one after the other: measures, shows and writes each; a part that fails is named, and the others go on."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from rich.console import Console

from .parts import part
from .result import Options, machine
from .writing import content, show, write


def reproduce(names: list[str], options: Options, console: Console) -> list[str]:
    """Measure the parts of these names; return the names of those that failed."""
    failed = []
    began = time.perf_counter()
    for name in names:
        before, start = machine(), time.perf_counter()
        try:
            with console.status(name) as status:

                def say(doing: str, name: str = name, update: Any = status.update) -> None:
                    update(f"{name}: {doing}")

                result = part(name)(dataclasses.replace(options, say=say))
        except Exception:
            console.print_exception(max_frames=6)
            failed.append(name)
            continue
        data = content(name, result, options, before, time.perf_counter() - start)
        show(data, console)
        files = write(data, result, options.output)
        console.print(f"written: {', '.join(map(str, files))}", highlight=False, markup=False)
    console.print(f"{len(names) - len(failed)} of {len(names)} parts in {time.perf_counter() - began:.0f} s")
    return failed
