"""Where commands print: to terminals and files, in any encoding, and to readers that leave early."""

from __future__ import annotations

import codecs
import os
import sys

from rich.console import Console

PLAIN = {"…": "...", "×": "x", "µ": "u", "−": "-", "✓": "+", "✗": "x", "→": "->"}
"""What is printed where the output's encoding lacks a letter; of others a question mark."""


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
        """Who reads the output (`| head`) has seen enough: nothing went wrong, and nothing more is printed."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
