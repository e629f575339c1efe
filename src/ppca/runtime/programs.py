"""Load and execute programs by name.

A program is an ``async def program(party, *secrets, **public)``. It is named ``package.module:function`` or
``path/to/file.py:function``. Every server loads it itself, so only the name is sent. Servers run only the programs of
`ppca.jobs` that are listed in `OFFERED`, because naming a file or a module means running any code. Developer servers
allow that.
"""

from __future__ import annotations

import importlib
import inspect
import runpy
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ..jobs.loading import job_of
from ..jobs.operator import INPUT_BYTES
from ..jobs.registry import openings
from ..native import clock
from ..protocol import InputPacket, InputRefused, Party, Pending, SecretArray, agree_keys, drive
from ..protocol.inputs import size_of, summands
from ..protocol.opening import limits
from ..transport import Mesh
from .codec import CodecError

Program = Callable[..., Coroutine[Any, Any, Any]]

KEY_STAGE = "key agreement"
"""Name of the stage that counts the first round of a run."""


OFFERED = (
    "ppca.jobs.columns:fit",
    "ppca.jobs.inference:infer",
    "ppca.jobs.kept:erase",
    "ppca.jobs.rows:fit",
    "ppca.jobs.uploads:forget",
    "ppca.jobs.uploads:upload",
    "ppca.jobs.wide_columns:fit",
    "ppca.jobs.wide_rows:fit",
)
"""Programs that servers run for every client. Other programs run on developer servers only."""

STORES_PACKETS = ("ppca.jobs.uploads:upload",)
"""Programs that store the packets of their inputs instead of computing with them: a first summand stays a key of 16
bytes."""


def stores_packets(program: Program) -> bool:
    """Return whether a program stores the packets of its inputs without computing with them."""
    return f"{program.__module__}:{program.__name__}" in STORES_PACKETS


def rules_of(program: Program, public: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return all openings that a program is allowed, from its job; None for programs of developers and without a
    job."""
    if f"{program.__module__}:{program.__name__}" not in OFFERED or "job" not in public:
        return None
    return [line.rule() for line in openings(job_of(public["job"]))]


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


def load(name: str, developer: bool = False) -> Program:
    """Load the function of a name: an offered one or, on developer servers only, one of any file or module."""
    place, _, function = name.rpartition(":")
    if name in OFFERED:
        program: Program = getattr(importlib.import_module(place), function)
        return program
    if not developer:
        raise ProgramError(
            f"{name} is not one of the programs that these servers offer. Run your own programs on developer servers: "
            f"ppca.Job() without servers, or LocalServers(developer=True)."
        )
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
        raise ProgramError(f"there is not a function {function!r} in {place}")
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


def check_inputs(packets: list[InputPacket], row: int, column: int, most: int) -> None:
    """Raise ProgramError for packets of wrong sizes, or of more bytes than the operator allows, before allocating
    memory."""
    size = sum(size_of(packet) for packet in packets)
    if size > most:
        raise ProgramError(
            f"the inputs take {size:,} bytes in the memory of a server, its operator allows {most:,} "
            f"({INPUT_BYTES}): send fewer rows at a time"
        )
    try:
        for packet in packets:
            summands(packet, row, column)
    except InputRefused as error:
        raise ProgramError(str(error)) from None


def prepare(
    name: str, packets: list[InputPacket], public: dict[str, Any], server: int, most: int, developer: bool = False
) -> Program:
    """Load a program and check that it accepts these inputs, before they are used; raise ProgramError if not."""
    check_inputs(packets, *divmod(server, 2), most)
    program = load(name, developer)
    check_arguments(program, name, len(packets), public)
    return program


@dataclass
class Ran:
    """One server's report of a run: its result (parts of it sealed) and its counters.

    keeps: whether the program stores or erases records. The server does that only when told that all four have
    finished.
    """

    result: Any
    seconds: float
    stats: dict[str, Any]
    audit: list[dict[str, Any]] = field(default_factory=list)
    keeps: bool = False


def execute(
    mesh: Mesh,
    session: bytes,
    program: Program,
    packets: list[InputPacket],
    public: dict[str, Any],
    progress: Callable[[str, float | None], None] | None = None,
    store: MutableMapping[str, Any] | None = None,
    tables: dict[str, Any] | None = None,
    rules: list[dict[str, Any]] | None = None,
) -> Ran:
    """Run a program on this server with fresh keys; return its result and the account.

    rules: all allowed openings (`protocol.opening.limits`); None: any.
    """
    allowed = None if rules is None else limits(rules)
    with mesh.stage(KEY_STAGE):
        party: Party = drive(_awaited(agree_keys(mesh.seat, session)), mesh)
    stages = _Stages(mesh, party.sent)
    party.stage, party.openings = stages, allowed
    if progress is not None:
        party.progress = progress
    if store is not None:
        party.store = store
    if tables is not None:
        party.tables = tables
    running = program(party, *(packets if stores_packets(program) else _taken(party, packets)), **public)
    start = time.perf_counter()
    result = drive(running, mesh)
    seconds = time.perf_counter() - start
    return Ran(result, seconds, stages.account(), [opening.as_dict() for opening in party.audit])


def _taken(party: Party, packets: list[InputPacket]) -> Iterator[SecretArray]:
    """Return the shares of all packets. Each packet is removed and freed, so that inputs are not in memory twice."""
    packets.reverse()
    while packets:
        yield SecretArray.from_packet(party, packets.pop())


class _Stages:
    """Measure the stages of a program. The mesh counts rounds and bytes; this class measures times and kinds of bytes.

    Stages follow each other. If one is nested in another, its time counts in both.
    """

    def __init__(self, mesh: Mesh, sent: dict[str, int]) -> None:
        self._mesh = mesh
        self._sent = sent
        self._kinds: dict[str, dict[str, int]] = {}
        self._work: dict[str, dict[str, float]] = {}
        clock.reset()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        before, start, sent = clock.reading(), time.perf_counter(), dict(self._sent)
        with self._mesh.stage(name):
            yield
        spent = {"elapsed": time.perf_counter() - start}
        spent |= {kind: seconds - before[kind] for kind, seconds in clock.reading().items()}
        total = self._work.setdefault(name, dict.fromkeys(spent, 0.0))
        for kind, seconds in spent.items():
            total[kind] += seconds
        kinds = self._kinds.setdefault(name, {})
        for kind, size in self._sent.items():
            kinds[kind] = kinds.get(kind, 0) + size - sent.get(kind, 0)

    def account(self) -> dict[str, Any]:
        """Return the mesh's counters with the times of each stage."""
        stats = self._mesh.stats.as_dict()
        for name, spent in self._work.items():
            if name in stats["stages"]:
                stats["stages"][name]["work"] = spent
                stats["stages"][name]["kinds"] = self._kinds[name]
        return stats


async def _awaited(step: Any) -> Any:
    return await Pending(step)
