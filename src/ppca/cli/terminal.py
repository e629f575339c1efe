"""Printing of commands to terminals, files and pipes, in any encoding."""

from __future__ import annotations

import codecs
import os
import sys

from rich.console import Console

PLAIN = {"…": "...", "×": "x", "µ": "u", "−": "-", "✓": "+", "✗": "x", "→": "->"}
"""Replacements for characters that the output's encoding lacks; others become a question mark."""


def _spelled(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


codecs.register_error("ppca-plain", _spelled)


class Terminal(Console):
    """Standard output or standard error."""

    def __init__(self, *, stderr: bool = False, quiet: bool = False) -> None:
        stderr = sys.stdout is None if sys.stderr is None or sys.stdout is None else stderr  # the one that is open
        stream = sys.stderr if stderr else sys.stdout
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="ppca-plain")
        super().__init__(stderr=stderr, quiet=quiet)

    def on_broken_pipe(self) -> None:
        """Stop without an error if the reader of a pipe (`| head`) closes it."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
