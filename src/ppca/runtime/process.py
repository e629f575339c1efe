"""Parts of a server process: it ends with its client, its output is labelled, and it reports failures."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import queue
import resource
import selectors
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from ..transport import Mesh, server_name
from .control import Channel, ChannelClosed, Message
from .failure import Failure

PARENT_EVERY = 1.0
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4  # linux/prctl.h
PROGRESS_EVERY = 0.05

OOM_SCORE = Path("/proc/self/oom_score_adj")
KILLED_FIRST = 500
"""oom_score_adj of processes that a server starts, of at most 1000: if memory runs out, the system ends these and not
the server."""

KEPT_MEMORY = 256 << 20
"""Bytes of freed memory that the allocator of a server keeps for its next arrays."""


def watch(server: int, client: int, channel: Channel, inbox: queue.Queue[Message]) -> None:
    """Read the control channel in a thread, so that the end of the client is noticed even during a run.

    The channel stays open while any process holds the client's end, including a child that the client forked. Therefore
    this also checks at intervals that the client is still this server's parent.
    """
    try:
        selector = selectors.PollSelector()  # select() refuses descriptors above 1023
        selector.register(channel, selectors.EVENT_READ)
        while True:
            if not selector.select(PARENT_EVERY):
                if os.getppid() != client:
                    break
                continue
            message = channel.read()
            if message is not None:
                inbox.put(message)
    except ChannelClosed:
        pass
    except BaseException as error:  # without this thread the server could outlive its client
        report(channel, Failure.of(server, None, error))
    os._exit(0)


def harden(parent: int, *, leash: bool = True) -> None:
    """Forbid core dumps and tracing of a process that holds shares and keys, and end it when its parent ends.
    If memory runs out, the system ends it before its parent.

    leash: whether the system kills it when its parent ends. For the system the parent is the thread that started it. If
    that thread can end before its process, the caller must detect the end of the process in another way.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # before the process becomes undumpable, which forbids this
        if int(OOM_SCORE.read_text()) < KILLED_FIRST:
            OOM_SCORE.write_text(str(KILLED_FIRST))
    system = ctypes.CDLL(None, use_errno=True)
    options = [(_PR_SET_DUMPABLE, 0), (_PR_SET_PDEATHSIG, signal.SIGKILL)]
    for option, value in options if leash else options[:1]:
        if system.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
            raise OSError(ctypes.get_errno(), f"prctl({option}) failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # the parent ended before the request
        os._exit(0)


class ProgressReporter:
    """Report the progress of a program to the other end of the channel, at a limited rate."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._mesh: Mesh | None = None
        self._first_step = 0
        self._last = 0.0

    def begin(self, mesh: Mesh) -> None:
        """Start to count the rounds of a program."""
        self._mesh, self._first_step, self._last = mesh, mesh.step, 0.0

    def __call__(self, text: str, fraction: float | None) -> None:
        now = time.monotonic()
        if now - self._last > PROGRESS_EVERY or fraction == 1.0:
            assert self._mesh is not None
            self._last = now
            self._channel.send("progress", text=text, fraction=fraction, rounds=self._mesh.step - self._first_step)


@contextlib.contextmanager
def labelled(server: int) -> Iterator[None]:
    """Redirect printed text to standard error, line by line, with the name of the server."""
    lines = _Lines(f"{server_name(server)}: ")
    with contextlib.redirect_stdout(lines):
        yield
    lines.end()


class _Lines(io.TextIOBase):
    def __init__(self, label: str) -> None:
        self._label = label
        self._line = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        if lines:
            sys.stderr.write("".join(f"{self._label}{line}\n" for line in lines))
            sys.stderr.flush()
        return len(text)

    def end(self) -> None:
        if self._line:
            self.write("\n")


def report(channel: Channel, failure: Failure) -> None:
    with contextlib.suppress(ChannelClosed):
        channel.send("failed", **asdict(failure))
