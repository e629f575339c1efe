"""Opening contributions: in a process of its own with bounded memory, one after the other.

What an owner seals is hostile until it is checked. The process that serves members never parses it: it hands the names
of the files and the key of the job to this one, which answers what the shares take in memory, or why they are refused.
It lives as long as the server; if it dies or hangs it is started again, and the contribution is checked again later.

    server -> here    check     server, job, owner, key, files, restored, signed, memory
    here -> server    here      ready, once
                      good      bytes
                      refused   why: the owner's fault
                      damaged   why: a file is not what was stored
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..federation.envelopes import messages, opened, summands_at
from ..federation.errors import FederationError, ObjectRefused
from ..federation.expected import checked
from ..federation.objects import Object, sha256
from ..federation.proposal import ProposedJob
from ..federation.sealing import SealingKey
from ..protocol.inputs import size_of
from ..runtime.codec import CodecError
from ..runtime.control import Channel, ChannelClosed, Message, MessageReader, encode
from ..runtime.process import harden

if TYPE_CHECKING:
    from .mailbox import Mailbox

SECONDS = 60.0
BYTES_PER_SECOND = 10 << 20
"""The time that a check may take: a minute, and what the largest shares that are allowed need at this rate.

The bytes of the files do not matter: a key of 16 bytes stands for any shape.
"""

AROUND = 512 << 20
"""Bytes of address space that the process may take besides twice the inputs of a job.

It holds one message of an owner, at most `memory` bytes, and expands keys in blocks. Of server 0 it holds keys only.
"""

MAX_REQUEST = 1 << 26

MAX_ENDED_CHECKS = 4
"""Checks of one contribution that ended with the process that checks, before the contribution is refused."""


class CheckFailed(FederationError):
    """A contribution could not be checked now; that is not its owner's fault."""


class CheckEnded(CheckFailed):
    """The process that checks contributions died or hung during a check."""


class Checker:
    """Checks contributions one at a time; from any thread. memory: most that the inputs of a job may take."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._closed = False

    def check(self, **request: Any) -> int:
        """Bytes that the shares of an owner take in memory. ObjectRefused if they are not what the job and the owner
        say."""
        with self._lock:
            try:
                kind, fields = self._ask(SECONDS + self._memory / BYTES_PER_SECOND, request)
            except (OSError, CodecError, ChannelClosed) as error:
                self._end()
                why = f"the process that opens contributions failed ({error}); it is started again"
                raise (CheckFailed if self._closed else CheckEnded)(why) from None
        if kind == "good":
            return int(fields["bytes"])
        raise (ObjectRefused if kind == "refused" else CheckFailed)(str(fields.get("why")))

    def _ask(self, seconds: float, request: dict[str, Any]) -> Message:
        try:
            channel = self._running()
        except (OSError, CodecError, ChannelClosed) as error:
            self._end()
            raise CheckFailed(f"the process that opens contributions cannot be started ({error})") from None
        channel.settimeout(seconds)
        for part in encode("check", memory=self._memory, **request):
            channel.sendall(part)
        return self._answer(channel, seconds)

    @staticmethod
    def _answer(channel: socket.socket, seconds: float) -> Message:
        reader, deadline = MessageReader(MAX_REQUEST), time.monotonic() + seconds
        while (message := reader.read(channel)) is None:
            channel.settimeout(max(0.01, deadline - time.monotonic()))
        return message

    def _running(self) -> socket.socket:
        """Return the channel of a process that is ready. What goes wrong before is not the fault of a contribution."""
        if self._channel is None or self._process is None or self._process.poll() is not None:
            self._end()
            self._channel, theirs = socket.socketpair()
            with theirs:
                command = [sys.executable, "-P", "-m", "ppca.server.checking", "--control", str(theirs.fileno())]
                command += ["--parent", str(os.getpid()), "--memory", str(2 * self._memory + AROUND)]
                self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                    command,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    start_new_session=True,
                    env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                )
            self._channel.settimeout(SECONDS)
            self._answer(self._channel, SECONDS)  # "here"
        return self._channel

    def _end(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._channel = None

    def close(self) -> None:
        """End the process, and a check that runs."""
        self._closed = True
        if self._process is not None:
            self._process.kill()
        with self._lock:
            self._end()


@contextmanager
def counted(box: Mailbox, name: str) -> Iterator[None]:
    """Refuse a contribution during whose checks the process ended too often. name: of the note that counts.

    The note is written before the check, because the check may end this server, too.
    """
    ended = int(box.note(name) or 0)
    if ended >= MAX_ENDED_CHECKS:
        raise ObjectRefused(f"the process that checks contributions ended {ended} times while it checked them")
    box.note(name, str(ended + 1))
    try:
        yield
    except CheckEnded:
        raise
    except Exception:
        box.unnote(name)
        raise
    box.unnote(name)


def examine(
    *,
    server: int,
    job: str,
    owner: str,
    key: str,
    files: list[str],
    restored: bool,
    signed: dict[str, str],
    memory: int,
) -> int:
    """Open the shares of an owner for one server, and compare them with the job and with what the owner has signed.

    restored : whether they came back from the mates; then the files are sealed pieces, else objects
    """
    known, sealing = ProposedJob(job.encode()), SealingKey.from_bytes(bytes.fromhex(key))
    sealed = _envelopes(files, owner, known.id)
    chunks = _restored(files, sealing, known.id, owner) if restored else opened(sealed, sealing, server)
    taken = Taken(memory)
    found = summands_at(server, taken.count(checked(known.spec.data, owner, server, messages(chunks, memory))))
    wrong = [name for name, digest in found.items() if signed.get(name) != digest]
    if wrong:
        raise ObjectRefused(f"{' and '.join(wrong)} are not what the contribution says")
    return taken.bytes


class Taken:
    """Count the memory that shares need when expanded: a key of 16 bytes can represent any shape."""

    def __init__(self, most: int) -> None:
        self.bytes = 0
        self._most = most

    def count(self, found: Iterator[Message]) -> Iterator[Message]:
        for kind, fields in found:
            self.bytes += sum(size_of(packet) for packet in fields["packets"])
            if self.bytes > self._most:
                raise ObjectRefused(f"they take more than {self._most:,} bytes ([policy] memory of the server)")
            yield kind, fields
            del fields  # before the next message is read


def _envelopes(files: list[str], owner: str, job: str) -> Iterator[Object]:
    for path in map(Path, files):
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CheckFailed(f"an envelope cannot be read: {error.strerror}") from None
        if sha256(data) != path.name:
            raise CheckFailed("an envelope is damaged")
        item = Object.parse(data)
        if (item.header.author, item.header.job) != (owner, job):
            raise ObjectRefused("the contribution lists an envelope that is not its own")
        yield item


def _restored(files: list[str], key: SealingKey, job: str, owner: str) -> Iterator[bytes]:
    for number, path in enumerate(map(Path, files)):
        try:
            yield key.open(path.read_bytes(), what="restored", job=job, owner=owner, chunk=number)
        except (OSError, ObjectRefused) as error:
            raise CheckFailed(f"a restored chunk is damaged: {error}") from None


def answer(fields: dict[str, Any]) -> list[bytes]:
    """Return the answer to a request. Any error in an owner's bytes is a refusal and is not retried."""
    try:
        return encode("good", bytes=examine(**fields))
    except CheckFailed as error:
        return encode("damaged", why=str(error)[:1000])
    except FederationError as error:
        return encode("refused", why=str(error)[:1000])
    except MemoryError:
        return encode("refused", why="they take more memory than this server allows ([policy] memory)")
    except Exception as error:
        return encode("refused", why=f"they cannot be opened ({type(error).__name__})")


def main() -> None:
    parser = argparse.ArgumentParser(description="opens contributions for the server of a federation")
    parser.add_argument("--control", type=int, required=True, help="file descriptor of the control channel")
    parser.add_argument("--parent", type=int, required=True, help="process number of the server")
    parser.add_argument(
        "--memory", type=int, required=True, help="bytes that this process may take besides what it has"
    )
    arguments = parser.parse_args()
    harden(arguments.parent)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + arguments.memory,) * 2)
    connection = socket.socket(fileno=arguments.control)
    channel = Channel(connection, MAX_REQUEST)
    with suppress(ChannelClosed, OSError):
        for part in encode("here"):
            connection.sendall(part)
        while True:
            message = channel.read()
            if message is not None:
                for part in answer(message[1]):
                    connection.sendall(part)


if __name__ == "__main__":
    main()
