"""Folders in which local servers keep shares of models between commands: one per server, never inside a result.

A result is mailed around; the parts of two servers are the model. So they lie in a folder of the user's state, and the
result has only the name under which the servers know the model, which is random.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from ..jobs.kept import SUMS
from ..receiver import SharedFacts
from ..runtime.local import server_folder
from ..runtime.store import Store
from .result import SHARED

NOTE = (
    "On this machine the shares of all four servers lie with one user: anyone that can read the folders of two has "
    "the model. `ppca forget` erases them."
)


def state_folder(given: Path | None) -> Path:
    """The folder of the servers' shares, which only its user can read: the given one, or one in the user's state."""
    folder = check_state_folder(given)
    if not folder.exists():
        folder.mkdir(parents=True, mode=0o700)
    return folder


def check_state_folder(given: Path | None) -> Path:
    """The same folder, refused if it cannot be made or used. Nothing is written."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    folder = (given or Path(home) / "ppca").resolve()
    held = next(path for path in (folder, *folder.parents) if path.exists())
    if not held.is_dir() or not os.access(held, os.W_OK | os.X_OK):
        raise ValueError(f"{held} is not a folder that you may write to. Name another one with --servers-state.")
    if folder.exists() and folder.stat().st_mode & 0o077:
        raise ValueError(
            f"others may look into {folder}. Make it yours alone (chmod 700), or name another --servers-state."
        )
    return folder


def new_name() -> str:
    """Return a random name."""
    return secrets.token_hex(16)


def holds(state: Path, server: int, name: str) -> bool:
    """Return whether a server keeps a model of this name."""
    folder = server_folder(state, server)
    return folder.is_dir() and name in Store(folder)


def erase(state: Path, name: str) -> int:
    """Erase a model and its sums from all four servers; how many of them kept something."""
    found = 0
    for folder in (server_folder(state, server) for server in range(4)):
        store = Store(folder) if folder.is_dir() else Store()
        found += name in store
        for key in (name, name + SUMS):
            del store[key]
    return found


def kept_as(result: Path) -> str | None:
    """The name of the shared model of a result, if it has one."""
    path = result / SHARED
    return SharedFacts.load(path).name if path.is_file() else None
