"""Check the environment of a command: open standard streams, and a current folder that exists."""

from __future__ import annotations

import os
import sys

STREAMS = ("standard input", "standard output", "standard error")


def check_surroundings() -> None:
    """Raise `ValueError` with what is missing and how to provide it.

    The numbers of closed streams are given to /dev/null, so that no file or connection gets one of them and the text of
    a command never lands there. Closed standard input is not an error: commands that do not ask anything do not need
    it.
    """
    closed = [number for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)) if stream is None]
    for number in closed:
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
    for number in closed:
        if number > 0:
            raise ValueError(
                f"{STREAMS[number]} is closed. Redirect it, for example {number}> /dev/null, and run again."
            )
    try:
        os.getcwd()
    except OSError as error:
        raise ValueError(
            f"the current folder cannot be used ({error.strerror}): it was removed. Change to "
            "another one (cd) and run again."
        ) from None
