"""Shared state of one server: settings, identity, membership, mailbox, keys and subscribers to events."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from ..federation.errors import FederationError, FileRefused
from ..federation.identity import Identity
from ..federation.membership import Membership
from ..federation.objects import Header, Object
from ..federation.revisions import Revisions
from ..federation.serverfile import ServerSettings
from ..transport.pinned import PinnedTls, issue_leaf
from .admission import Admission
from .clock import Clock
from .keys import Keys
from .mailbox import Mailbox

REVISIONS = "revisions"
"""Folder in the store with the revisions of the federation that were in force."""

LEAF_VALIDITY = timedelta(hours=24)
log = logging.getLogger("ppca.server")


class ServerState:
    """State that all parts of a server use. Subscribers receive events in the event loop only."""

    def __init__(self, settings: ServerSettings, accepted: str | None = None) -> None:
        self.settings = settings
        self.identity = Identity.load(settings.identity)
        self.membership = Membership.trusted(settings.federation)
        self.server = settings.file.server
        self._check_server(self.membership)
        self.tls = self.new_tls()
        self.mailbox = Mailbox(settings.store)
        self.revisions = Revisions(settings.store / REVISIONS)
        try:
            self.revisions.take(self.membership, accepted)
        except FederationError:
            self.mailbox.close()
            raise
        self.mailbox.note(f"federation {self.membership.digest}", str(self.membership.revision))
        self.keys = Keys(settings.keys)
        self.clock = Clock()
        self.admission = Admission(
            self.mailbox, lambda: self.membership, settings.file.policy, settings.file.store.at_most, self.clock.now
        )
        self.instance = self.mailbox.note("instance") or self.mailbox.note("instance", secrets.token_hex(8))
        self.progress: dict[str, dict[str, Any]] = {}
        self.queue: dict[str, int] = {}
        """Place of each job that waits for its turn, from 1; with many jobs it may be some time old."""
        self.places: dict[int, int] = {}
        """Attempts that each of the other servers runs at a time, as they said last."""
        self._listeners: set[asyncio.Queue[dict[str, Any]]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def _check_server(self, membership: Membership) -> None:
        membership.check_identity(self.identity)
        if membership.operators.get(self.server) != self.identity.name:
            raise FileRefused(
                f"{self.identity.name} does not have server {self.server} in {membership.name}, revision "
                f"{membership.revision}; correct server in server.toml, or the federation's file."
            )

    # -- the federation ----------------------------------------------------------------------------------------------

    def new_tls(self) -> PinnedTls:
        leaf = issue_leaf(self.identity.name, self.identity.key, LEAF_VALIDITY)
        return PinnedTls(leaf, self.membership.keys, self.membership.operators)

    @property
    def mesh_tls(self) -> PinnedTls:
        """TLS of the mesh port: the same leaf, and trust in the four operators only."""
        operators = self.membership.operators.values()
        return replace(self.tls, pins={name: pin for name, pin in self.tls.pins.items() if name in operators})

    def renew(self) -> bool:
        """Read the federation's file again; True if there is a new revision. A wrong one changes nothing."""
        try:
            membership = Membership.trusted(self.settings.federation)
            if membership.digest == self.membership.digest:
                return False
            self._check_server(membership)
            unknown = (
                membership.unknown_former_keys(self.membership)
                if membership.revision == self.membership.revision + 1
                else []
            )
            if unknown:
                raise FileRefused(
                    f"revision {membership.revision} lists former keys of {' and '.join(unknown)} that "
                    f"revision {self.membership.revision} does not have. Remove them: a former key is one "
                    "that was replaced or removed."
                )
            self.revisions.take(membership)
        except FederationError as error:
            log.error("federation not renewed", extra={"reason": str(error)})
            return False
        self.membership = membership
        self.mailbox.note(f"federation {membership.digest}", str(membership.revision))
        log.info("federation renewed", extra={"revision": membership.revision, "digest": membership.digest})
        return True

    def renew_tls(self) -> None:
        """A new leaf, and trust in the members of the present revision."""
        self.tls = self.new_tls()

    # -- objects -----------------------------------------------------------------------------------------------------

    def publish(self, kind: str, job: str, payload: bytes = b"", **about: Any) -> Object:
        """An object of this server; from any thread."""
        item = Object.make(self.identity, kind, job, payload, **about)
        self.admit(item, self.identity.name)
        return item

    def admit(self, item: Object, carrier: str) -> bool:
        """Store an object and notify subscribers. Can be called from any thread."""
        new = self.admission.admit(item, carrier)
        if new:
            header = item.header
            log.info("object", extra={"kind": header.kind, "job": header.job, "author": header.author, "by": carrier})
            self._tell({"header": header})
        return new

    def show(self, job: str, text: str, fraction: float | None, rounds: int) -> None:
        """Publish the progress of a running job. Can be called from any thread."""
        self.progress[job] = {"job": job, "text": text, "fraction": fraction, "rounds": rounds}
        self._tell({"progress": self.progress[job]})

    # -- events ------------------------------------------------------------------------------------------------------

    def attend(self, loop: asyncio.AbstractEventLoop) -> None:
        """Publish events in the running event loop from now on."""
        self._loop = loop

    @contextmanager
    def events(self) -> Iterator[asyncio.Queue[dict[str, Any]]]:
        """A queue of what happens while the block lasts."""
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(10_000)
        self._listeners.add(queue)
        try:
            yield queue
        finally:
            self._listeners.discard(queue)

    def _tell(self, event: dict[str, Any]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._spread, event)

    def _spread(self, event: dict[str, Any]) -> None:
        for queue in self._listeners:
            if not queue.full():  # a slow subscriber reads the order of arrival again later
                queue.put_nowait(event)


def header_line(seq: int, header: Header, data: bytes | None = None) -> str:
    """A header as members get it. data: all bytes of the object, if they come with it."""
    whole = {} if data is None else {"data": base64.b64encode(data).decode()}
    return json.dumps({"seq": seq, **header.as_dict(), **whole})
