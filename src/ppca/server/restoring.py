"""A lost server comes back: its row mate has the same R, its column mate the same C. Nothing is reconstructed.

The server that was lost has a new key (and a new revision of the federation says so). It fetches all objects from the
other servers. Then, of every job that is not over, it gets the row summands of each owner's shares from its row mate
and the column summands from its column mate, over TLS. The owner's own signed digests say whether they are right. Kept
models come back the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..federation.envelopes import message_of
from ..federation.errors import FederationError, ObjectRefused
from ..federation.membership import SERVERS
from ..federation.objects import Object, sha256
from ..federation.proposal import ProposedJob
from ..federation.state import times_before
from ..jobs.checks import is_digest
from .contributions import Contributions
from .keys import JOB
from .mates import BYTES_PER_SECOND, check_position
from .server_state import ServerState
from .staging import Record, Staging, record_of

PATIENCE, PER_OBJECT = 600.0, 1.0
"""Seconds in which another server gives back its objects, and more for each that was new; larger ones take longer."""

MAX_ABSENT = 100
"""Objects that another server lists and does not have; it may have erased some since."""


class Restoring:
    """Brings back what a server had."""

    def __init__(
        self, server_state: ServerState, shares: Contributions, staging: Staging, told: Callable[[str], None]
    ) -> None:
        self.server_state = server_state
        self.shares = shares
        self.staging = staging
        self._told = told

    def run(self) -> list[str]:
        """Restore as much as can be; return what is missing, and why."""
        missing: list[str] = []
        failed: list[FederationError] = []
        for server in SERVERS:
            if server == self.server_state.server:
                continue
            try:
                new, refused = self._copy(server)
            except FederationError as error:  # every object is at two more servers
                failed.append(error)
                if len(failed) > 1:
                    raise
                missing.append(f"objects of server {server}: {error}")
                self._told(f"MISSING {missing[-1]}")
                continue
            missing += refused
            self._told(f"objects of server {server}: {new} new")
        known, lost = self.server_state.admission.jobs()
        missing += [f"the file of job {job[:12]}: no other server has it" for job in lost]
        for job in known:
            try:
                missing += self._restore(self.server_state.admission.job(job))
            except FederationError as error:  # its file is damaged
                missing.append(f"job {job[:12]}: {error}")
        return missing

    def _restore(self, known: ProposedJob) -> list[str]:
        """One job; what is missing of it does not keep the others from being restored."""
        job_state, missing = self.server_state.admission.job_state(known.id), []
        objects, me = self.server_state.mailbox.objects(known.id), self.server_state.identity.name
        if objects.offer(me, of_server=True) is None:
            return []  # this operator had no part in it, or has not answered it; the server will
        try:
            check_position(
                objects, self.server_state.membership, known.proposal.federation, me, self.server_state.server
            )
            if not job_state.over:
                missing = self._restore_job(known)
            elif job_state.done and known.spec.keep is not None:
                self.restore_model(known)
        except (FederationError, OSError) as error:
            missing = [f"{known.name}: {error}"]
        for line in missing:
            self._told(f"MISSING {line}")
        return missing

    def _copy(self, server: int) -> tuple[int, list[str]]:
        """All objects that another server has and this one lacks, in the order in which they arrived there.

        FederationError if it lists objects that it does not have, or does not give in time: the other servers have
        them, too.
        """
        found = message_of(self.shares.mates.get(server, "/v1/inventory"), "inventory").get("digests")
        new, absent, refused = 0, 0, []
        deadline = time.monotonic() + PATIENCE
        if not isinstance(found, list):
            raise ObjectRefused(f"server {server} lists something else than objects")
        for digest in found:
            if not is_digest(digest) or self.server_state.mailbox.knows(digest):
                continue
            if absent > MAX_ABSENT or time.monotonic() > deadline:
                raise FederationError(f"it lists objects that it does not have, or takes too long ({new} new so far)")
            try:
                data = self.shares.mates.get(server, f"/v1/objects/{digest}", missing_ok=True)
                if not data or sha256(data) != digest:
                    absent += 1
                elif self._take(data):
                    new += 1
                    deadline += PER_OBJECT + len(data) / BYTES_PER_SECOND
            except (FederationError, OSError) as error:
                refused.append(f"object {digest[:12]} of server {server}: {error}")
        return new, refused

    def _take(self, data: bytes) -> bool:
        """Store an object that another server gives back; False if it is here already."""
        item = Object.parse(data)  # the other server admitted it in its time, perhaps under an earlier revision
        self.server_state.admission.check_quota(item.header.author, item.header.size)
        if item.header.kind == "job":
            federation = ProposedJob(item.payload).proposal.federation
        else:
            federation = self.server_state.admission.job(item.header.job).proposal.federation
        item.check_author(self.server_state.membership.signers_for(federation))
        self.server_state.admission.check_copied(item)
        if item.header.kind == "job":
            self.server_state.mailbox.note(f"federation {federation}", "earlier")
        return self.server_state.mailbox.put(item)

    def _restore_job(self, known: ProposedJob) -> list[str]:
        """Offer a new key for owners that have not contributed; restore the shares of owners that have."""
        server_state, objects = self.server_state, self.server_state.mailbox.objects(known.id)
        former = objects.offer(server_state.identity.name, of_server=True)
        assert former is not None
        key = server_state.keys.make(JOB, known.id)
        before = times_before(former) + 1
        server_state.publish("offer", known.id, key.public, server=server_state.server, again=before)
        missing = []
        for owner in known.proposal.owners:
            if objects.by("contribution", owner) is not None:
                try:
                    self.shares.bring_back(known, owner)
                    self._told(f"{known.name}: the shares of {owner} are back, and they are what {owner} signed")
                except (FederationError, OSError) as error:
                    missing.append(f"{known.name}, the shares of {owner}: {error}")
        return missing

    def restore_model(self, known: ProposedJob) -> None:
        halves_of = self.shares.mates.halves(f"/v1/restore-model/{known.id}", missing_ok=True)
        if not all(halves_of):
            return
        row, column = (record_of(half) for half in halves_of)
        if row["public"] != column["public"] or _forms(row) != _forms(column):
            raise ObjectRefused(f"the mates have different models of {known.name!r}")
        arrays = {
            name: (np.concatenate([value[0], column[name][0]]), value[1])
            for name, value in row.items()
            if name != "public"
        }
        self.staging.keep(known.id, {"public": row["public"], **arrays})
        self._told(f"{known.name}: the kept model is back")


def _forms(record: Record) -> dict[str, Any]:
    """Shapes and types of the arrays of one half of a model; raise ObjectRefused if it is invalid."""
    arrays = {name: value for name, value in record.items() if name != "public"}
    if not all(data.ndim > 0 and len(data) == 1 for data, _ in arrays.values()):
        raise ObjectRefused("a mate gives back something else than half a model")
    return {name: (data.shape, kind) for name, (data, kind) in arrays.items()}
