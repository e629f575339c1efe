"""How commands fail: one message on standard error with the cause and the next step, and a non-zero exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.text import Text

from ..servers import ProgramError, ServersFailed

SHOWN_LENGTH = 60


@contextmanager
def complaints() -> Iterator[None]:
    """Turns what a user can do something about into a message; anything else is a bug and keeps its traceback.

    ValueError covers parameters, owners' data (`OwnerError`), refused inputs and inconsistent shares; OSError files.
    """
    try:
        yield
    except BrokenPipeError:  # the reader of our output has left: nothing to tell
        raise
    except (ValueError, ServersFailed, ProgramError, OSError) as error:
        complain(str(error))
        raise typer.Exit(1) from None


def complain(message: str) -> None:
    Console(stderr=True).print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True, highlight=False)


def printable(text: str, length: int = SHOWN_LENGTH) -> str:
    """A name out of somebody's file, safe for the terminal: no control characters, not too long."""
    clean = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return clean if len(clean) <= length else clean[: length - 1] + "…"
