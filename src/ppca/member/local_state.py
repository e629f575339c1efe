"""State of a member between commands: keys of its jobs, approvals, unsent contributions. Readable by the member's user
only."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..federation.errors import FederationError
from ..federation.objects import Object
from ..federation.proposal import ProposedJob
from ..federation.revisions import Revisions
from ..federation.sealing import SealingKey
from ..jobs.checks import is_digest
from ..runtime.files import write_whole


def default_folder(federation: str, member: str) -> Path:
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "ppca" / "members" / federation / member


class MemberState:
    """One member's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.revisions = Revisions(folder / "revisions")

    # -- keys --------------------------------------------------------------------------------------------------------

    def key(self, job: str) -> SealingKey | None:
        path = self.folder / f"{job}.key"
        return SealingKey.from_bytes(path.read_bytes()) if path.exists() else None

    def make_key(self, job: str) -> SealingKey:
        key = self.key(job)
        if key is None:
            key = SealingKey()
            write_whole(self.folder / f"{job}.key", key.to_bytes(), 0o600)
        return key

    # -- approvals ---------------------------------------------------------------------------------------------------

    def approved(self, job: ProposedJob) -> None:
        write_whole(self.folder / f"{job.id}.approved", job.data, 0o600)

    def approvals(self) -> list[ProposedJob]:
        """All jobs that this member approved, oldest first."""
        paths = sorted(self.folder.glob("*.approved"), key=lambda path: path.stat().st_mtime)
        return [ProposedJob(path.read_bytes()) for path in paths]

    # -- contributions -----------------------------------------------------------------------------------------------

    def contributed(self, job: str, item: Object) -> None:
        """Keep the one contribution to a job that this member signs."""
        write_whole(self.folder / f"{job}.contribution", item.data, 0o600)

    def contribution(self, job: str) -> Object | None:
        """The contribution to a job that was sent; None if there is none, or the disk has damaged it."""
        with suppress(OSError, FederationError):
            return Object.parse((self.folder / f"{job}.contribution").read_bytes())
        return None

    # -- the outbox --------------------------------------------------------------------------------------------------

    def outbox(self, job: str) -> Outbox:
        return Outbox(self.folder / "outbox" / job)


class Outbox:
    """Sealed objects on their way: a command that was cut off sends the same ones again, without the data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def complete(self) -> bool:
        """Return whether everything was sealed, so that the data are not needed again."""
        return (self._folder / "order").exists()

    def begin(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.parent.mkdir(mode=0o700, exist_ok=True)
        self._folder.mkdir(mode=0o700)

    def put(self, item: Object) -> None:
        write_whole(self._folder / item.digest, item.data, 0o600)

    def finish(self, digests: list[str]) -> None:
        write_whole(self._folder / "order", json.dumps(digests).encode(), 0o600)

    def items(self) -> Iterator[Object]:
        for digest in self._order():
            try:
                item = Object.parse((self._folder / digest).read_bytes())
            except (OSError, FederationError):
                item = None
            if item is None or item.digest != digest:
                self.clear()
                raise FederationError("what was to be sent is damaged on this disk; contribute again, with the data.")
            yield item

    def _order(self) -> list[str]:
        try:
            found = json.loads((self._folder / "order").read_text())
        except ValueError:
            found = None
        if not isinstance(found, list) or not all(map(is_digest, found)):
            return [""]  # damaged
        return found

    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self._folder.iterdir())

    def clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
