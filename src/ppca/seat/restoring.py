"""A lost seat comes back: its row mate has the same R, its column mate the same C. Nothing is reconstructed.

The seat that was lost has a new key (and a new revision of the federation says so). It fetches all objects from the other seats,
then, of every job that is not over, the row summands of each owner's shares from its row mate and the column summands from its
column mate, over TLS; the owner's own signed digests say whether they are right. Kept models come back the same way.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..federation.course import times_before
from ..federation.errors import ObjectRefused
from ..federation.job import JobDescription
from ..federation.objects import Object, sha256
from ..federation.parcels import message_of
from ..federation.roster import SEATS
from .keys import JOB
from .office import Office
from .shares import Shares
from .staging import Staging, record_of


class Restoring:
    """Brings back what a seat had."""

    def __init__(self, office: Office, shares: Shares, staging: Staging, told: Callable[[str], None]) -> None:
        self.office = office
        self.shares = shares
        self.staging = staging
        self._told = told

    def run(self) -> None:
        for seat in SEATS:
            if seat != self.office.seat:
                self._told(f"objects of seat {seat}: {self._copy(seat)} new")
        for job in self.office.mailbox.jobs():
            known, course = self.office.admission.job(job), self.office.admission.course(job)
            if not course.over:
                self._restore_job(known)
            elif course.done and known.file.keep is not None:
                self._restore_model(known)

    def _copy(self, seat: int) -> int:
        """All objects that another seat has and this one lacks, in the order in which they arrived there."""
        found = message_of(self.shares.mates.get(seat, "/v1/inventory"), "inventory")["digests"]
        new = 0
        for digest in found:
            if self.office.mailbox.knows(digest):
                continue
            data = self.shares.mates.get(seat, f"/v1/objects/{digest}", missing_ok=True)
            if data and sha256(data) == digest:
                item = Object.parse(data)  # the other seat admitted it in its time, perhaps under an earlier revision
                self.office.admission.check_room(item.header.author, item.header.size)
                item.check_author(self.office.roster.signers)
                new += self.office.mailbox.put(item)
                if item.header.kind == "job":
                    self.office.mailbox.note(f"federation {JobDescription(item.payload).file.federation}", "earlier")
        return new

    def _restore_job(self, known: JobDescription) -> None:
        """A new key, offered to owners who have not contributed yet; the shares of those who have."""
        office, objects = self.office, self.office.mailbox.objects(known.id)
        former = objects.offer(office.identity.name, of_seat=True)
        if former is None:
            return  # it was never answered; the server will
        key = office.keys.make(JOB, known.id)
        before = times_before(former) + 1
        office.publish("offer", known.id, key.public, seat=office.seat, again=before)
        for owner in known.file.owners:
            if objects.by("contribution", owner) is not None:
                self.shares.bring_back(known, owner)
                self._told(f"{known.name}: the shares of {owner} are back, and they are what {owner} signed")

    def _restore_model(self, known: JobDescription) -> None:
        halves_of = self.shares.mates.halves(f"/v1/restore-model/{known.id}", missing_ok=True)
        if not all(halves_of):
            return
        row, column = (record_of(half) for half in halves_of)
        if row["public"] != column["public"]:
            raise ObjectRefused(f"the mates have different models of {known.name!r}")
        arrays = {
            name: (np.concatenate([value[0], column[name][0]]), value[1])
            for name, value in row.items()
            if name != "public"
        }
        self.staging.keep(known.id, {"public": row["public"], **arrays})
        self._told(f"{known.name}: the kept model is back")
