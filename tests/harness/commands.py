"""`ppca` commands in this process, on four servers in lock-step: no process starts, and a small fit takes 0.2
seconds."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from harness.lockstep import LockstepServers
from ppca.cli.main import app
from ppca.runtime.local import server_folder
from ppca.runtime.store import Store


class CommandServers(LockstepServers):
    """Stand for `LocalServers` in a command. They keep shares where those keep them; TLS and timeouts have no meaning
    here."""

    def __init__(self, *, state: Path | None = None, **_: Any) -> None:
        super().__init__(running=False)
        self.state = state

    def start(self) -> None:
        self.running = True
        if self.state is not None:
            self.stores = [Store(server_folder(self.state, server)) for server in range(4)]  # type: ignore[misc]

    def stop(self) -> None:
        self.running = False


@contextlib.contextmanager
def in_lockstep() -> Iterator[None]:
    """Let commands of this process use servers in lock-step."""
    with pytest.MonkeyPatch.context() as patch:
        for place in ("ppca.runtime", "ppca.cli.run", "ppca.estimator.job"):
            patch.setattr(f"{place}.LocalServers", CommandServers)
        yield


def ppca(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder`, as `subprocess.run` of its process would."""
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, arguments, env=variables, catch_exceptions=False)
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)
