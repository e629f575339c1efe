"""`ppca trial`: a whole federation on this machine, to see how it works, with real keys and real TLS.

Every member has its own folder and its own processes, and does what it would do on a machine of its own, by the same
commands; they are printed as they run, and the folder stays to look at and to go on with.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from .folder import check_writable
from .options import Quiet, command
from .terminal import Terminal

OPERATORS = ("alpha", "beta", "gamma", "delta")
RECEIVER = "analyst"
FEDERATION, JOB = "heart-study", "first-job"
START_SECONDS = 60.0
HEALTH_SECONDS = 2.0
MARK = ".ppca-trial"
ENDING = (signal.SIGTERM, signal.SIGHUP)


@command()
def trial(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of the trial. An earlier trial there is replaced.")
    ] = Path("trial"),
    vertical: Annotated[bool, typer.Option("--vertical", help="Use column owners instead of row owners.")] = False,
    stay: Annotated[
        bool, typer.Option("--stay", help="Keep the four servers running until Ctrl-C or SIGTERM.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Run a whole federation on this machine, from the keys to the result of a job.

    It has four servers, three owners and a receiver.

    Prints every command as its member would type it. The result is in trial/result, checked by ppca verify; each
    member's folder (its key, its data, a server's store and log) is there to look at.
    """
    with ended_by_signals():
        from .walkthrough import Hospitals, Institutions

        _clear(output)
        stage = TrialRun(output, Terminal(quiet=quiet))
        scene = Institutions() if vertical else Hospitals()
        files = scene.write(output / "data")
        owners = {name.lower(): path for name, path in files.items()}
        started = time.monotonic()
        stage.found(list(owners))
        with stage.serving():
            stage.job(owners, vertical)
            stage.fetch()
            stage.compare(scene)
            stage.say(
                f"{time.monotonic() - started:.0f} s in all. Look at {output}: a folder for every member, and result/."
            )
            if stay:
                stage.say("The four servers go on; look at their pages, and stop them with Ctrl-C:")
                for number, name in enumerate(OPERATORS):
                    stage.say(f"  {name}: http://127.0.0.1:{stage.ports[number][2]}")
                with contextlib.suppress(KeyboardInterrupt):
                    while True:
                        time.sleep(1)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block with its clean-up, as Ctrl-C does; without, the servers would go on."""

    def end(number: int, frame: object) -> None:
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)  # the clean-up runs once, and to its end
        raise SystemExit(128 + number)

    former = {number: signal.signal(number, end) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _clear(folder: Path) -> None:
    """Remove an earlier trial; anything else is left alone."""
    check_writable(folder)
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise ValueError(f"{folder} is not empty, and no earlier trial. Choose another folder with -o.")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARK).write_text("ppca trial may replace this folder\n")
    (folder / "data").mkdir()


class TrialRun:
    """The members of the trial, and what they do one after the other."""

    def __init__(self, folder: Path, console: Terminal) -> None:
        from ..transport import free_ports

        self.folder = folder
        self.console = console
        ports = iter(free_ports(3 * len(OPERATORS)))
        self.ports = [(next(ports), next(ports), next(ports)) for _ in OPERATORS]
        self.servers: list[subprocess.Popen[bytes]] = []

    def say(self, text: str, style: str = "") -> None:
        self.console.print(Text(text, style=style), soft_wrap=True, highlight=False)

    def run(self, member: str, *words: str, shown: bool = True) -> str:
        """A command of a member in its folder, printed as it would be typed there."""
        if shown:
            self.say(f"{member:>8} $ ppca {shlex.join(words)}", "bold")
        done = subprocess.run(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "ppca.cli.main", *words],
            cwd=self.folder / member,
            env=os.environ | {"PPCA_STATE": str((self.folder / member / "state").resolve()), "COLUMNS": "110"},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise ValueError(f"{member}: ppca {words[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def tell(self, member: str, *words: str) -> str:
        """The same, and what it printed."""
        text = self.run(member, *words)
        for line in text.rstrip().splitlines():
            self.say(f"{'':>8}   {line}", "dim")
        return text

    def found(self, owners: list[str]) -> None:
        """Make keys for all members and one membership file, signed by the four operators."""
        self.say("1. Everybody makes a key; one file lists the members; the four operators sign it.")
        members = [*OPERATORS, *owners, RECEIVER]
        keys = {}
        for member in members:
            (self.folder / member).mkdir()
            printed = self.run(member, "keygen", member, shown=member in (OPERATORS[0], owners[0]))
            keys[member] = next(line.split()[2] for line in printed.splitlines() if line.startswith("line:"))
        first = OPERATORS[0]
        self.run(first, "federation", "new", FEDERATION)
        for number, member in enumerate(OPERATORS):
            api, mesh, _ = self.ports[number]
            place = ("--api", f"127.0.0.1:{api}", "--mesh", f"127.0.0.1:{mesh}")
            self.run(first, "federation", "add", member, keys[member], "--server", str(number), *place)
        for member in owners:
            self.run(first, "federation", "add", member, keys[member], "--owner")
        self.run(first, "federation", "add", RECEIVER, keys[RECEIVER], "--receiver")
        before = first
        for member in OPERATORS:
            self._pass_on(before, member)
            self.run(member, "federation", "sign")
            before = member
        for member in members:
            self._pass_on(before, member)
        self.tell(RECEIVER, "federation", "check")

    def _pass_on(self, giver: str, taker: str) -> None:
        for name in ("federation.toml", "federation.sigs"):
            source = self.folder / giver / name
            if giver != taker and source.exists():
                shutil.copy(source, self.folder / taker / name)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """The four servers, each in a process of its own with a log of its own."""
        self.say("2. Each operator starts its server.")
        try:
            for number, member in enumerate(OPERATORS):
                api, mesh, local = self.ports[number]
                listen = [
                    f"--{name}=127.0.0.1:{port}" for name, port in (("api", api), ("mesh", mesh), ("local", local))
                ]
                self.run(member, "server", "init", *listen)
                self.say(f"{member:>8} $ ppca server run", "bold")
                with (self.folder / member / "server.log").open("wb") as log:
                    self.servers.append(
                        subprocess.Popen(
                            [sys.executable, "-m", "ppca.cli.main", "server", "run"],
                            cwd=self.folder / member,
                            stdin=subprocess.DEVNULL,
                            stdout=log,
                            stderr=log,
                        )
                    )
            self._await_health()
            yield
        finally:
            self._stop()

    def _stop(self) -> None:
        for server in self.servers:
            server.terminate()
        for server in self.servers:
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    def _await_health(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            for member, server in zip(OPERATORS, self.servers, strict=True):
                if server.poll() is not None:
                    log = (
                        (self.folder / member / "server.log")
                        .read_text(encoding="utf-8", errors="replace")
                        .strip()
                        .splitlines()
                    )
                    raise ValueError(f"the server of {member} ended: {log[-1] if log else 'it said nothing'}")
            if all(_links_up(ports[2]) == 3 for ports in self.ports):
                return
            if time.monotonic() > deadline:
                raise ValueError(
                    f"the servers did not find each other within {START_SECONDS:.0f} s; see their server.log"
                )
            time.sleep(0.1)

    def job(self, owners: dict[str, Path], vertical: bool) -> None:
        self.say("3. The receiver proposes a job; every owner reads what it opens, agrees, and contributes once.")
        words = ["job", "new", JOB, "--owner", ",".join(owners), "--receiver", RECEIVER, "-k", "5", "--standardize"]
        if vertical:
            for owner, path in owners.items():
                words += ["--columns", f"{owner}={','.join(_heads(path)[1:])}"]
        else:
            words += ["--columns", ",".join(_heads(next(iter(owners.values()))))]
        self.run(RECEIVER, *words)
        self.run(RECEIVER, "job", "submit", "job.toml")
        for number, owner in enumerate(owners):
            shutil.copy(self.folder / RECEIVER / "job.toml", self.folder / owner / "job.toml")
            (self.tell if number == 0 else self.run)(owner, "approve", "job.toml", "--yes")
        for owner, path in owners.items():
            shutil.copy(path, self.folder / owner / "table.csv")
            ids = ["--id", "patient"] if vertical else []
            self.tell(owner, "contribute", "job.toml", "table.csv", *ids)
        self.say("4. The servers compute by themselves; the owners may be gone.")
        self.tell(RECEIVER, "watch", "job.toml", "--patience", "120")

    def fetch(self) -> None:
        self.say("5. The receiver fetches its result; anyone with the folder can check it, without any server.")
        shutil.rmtree(self.folder / "result", ignore_errors=True)
        self.tell(RECEIVER, "fetch", "job.toml", "-o", "../result")
        self.tell(RECEIVER, "verify", "../result")

    def compare(self, scene: object) -> None:
        """Compare with scikit-learn on the pooled table, which no member of the federation has."""
        import numpy as np

        from ..receiver import PCAModel
        from .demo import TOLERANCE
        from .walkthrough import ModelResult, Walkthrough, ratio_error

        assert isinstance(scene, Walkthrough)
        model = PCAModel.load(self.folder / "result" / "model.json")
        joint = ModelResult("joint", model.rows, model.components, np.asarray(model.explained_variance_ratio))
        worst = ratio_error(joint, scene.truth)
        self.say(f"Beside scikit-learn on the pooled table: explained-variance ratios differ by at most {worst:.1e}.")
        if not worst <= TOLERANCE:
            raise ValueError(f"the joint result differs from scikit-learn's by {worst:.1e}, more than {TOLERANCE:g}.")


def _heads(path: Path) -> list[str]:
    with path.open(encoding="utf-8") as file:
        return file.readline().rstrip("\n").split(",")


def _links_up(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=HEALTH_SECONDS) as answer:
            return int(json.loads(answer.read())["links_up"])
    except (OSError, ValueError, KeyError):
        return 0
