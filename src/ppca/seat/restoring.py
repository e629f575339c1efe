"""A lost seat comes back: its row mate has the same R, its column mate the same C. Nothing is reconstructed.

The seat that was lost has a new key (and a new revision of the federation says so). It fetches all objects from the other seats,
then, of every job that is not over, the row summands of each owner's shares from its row mate and the column summands from its
column mate, over TLS; the owner's own signed digests say whether they are right. Kept models come back the same way.
"""

from __future__ import annotations

import http.client
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..federation.course import Objects, times_before
from ..federation.errors import FederationError, ObjectRefused
from ..federation.job import JobDescription
from ..federation.objects import PIECE_BYTES, Object, sha256
from ..federation.parcels import message_of, messages, summands_at
from ..federation.roster import SEATS, address
from ..federation.sealing import SealingKey, seal
from ..protocol import InputPacket
from ..servers.control import Message, encode
from .keys import JOB
from .mailbox import write_file
from .office import Office
from .staging import Staging, record_bytes, record_of

ROW, COLUMN = "row", "column"
CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 600.0


def split_for(asker: int, here: int) -> str:
    """Which summands the asking seat and this one have in common; refused if they are the diagonal of each other."""
    if asker == here ^ 1:
        return ROW
    if asker == here ^ 2:
        return COLUMN
    raise FederationError(f"seats {asker} and {here} have no shares in common")


# -- the mate's side ---------------------------------------------------------------------------------------------------


def halves(found: Iterable[Message], split: str) -> Iterator[bytes]:
    """An owner's messages with one of the two summands left in every packet."""
    for kind, fields in found:
        packets = [
            InputPacket(p.shape, p.dtype, p.row if split == ROW else b"", p.column if split == COLUMN else b"")
            for p in fields["packets"]
        ]
        yield from encode(kind, **{**fields, "packets": packets})


def half_model(record: dict[str, Any], split: str) -> bytes:
    """A kept model with one of the two splits left of every array."""
    at = 0 if split == ROW else 1
    kept = {name: (value[0][at : at + 1], value[1]) for name, value in record.items() if name != "public"}
    return record_bytes({"public": record["public"], **kept})


# -- the new seat's side -----------------------------------------------------------------------------------------------


class Holder(Protocol):
    """Who reads and keeps shares at this seat: its conductor."""

    staging: Staging

    def messages_of(self, known: JobDescription, owner: str) -> Iterator[Message]: ...

    def restored_at(self, job: str, owner: str) -> Path: ...


class Restoring:
    """Brings back what a seat had, or what its disk has lost."""

    def __init__(self, office: Office, conductor: Holder, told: Callable[[str], None] = lambda text: None) -> None:
        self.office = office
        self.conductor = conductor
        self._told = told
        self._mates = {ROW: office.seat ^ 1, COLUMN: office.seat ^ 2}

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
        found = message_of(self._get(seat, "/v1/inventory"), "inventory")["digests"]
        new = 0
        for digest in found:
            if self.office.mailbox.knows(digest):
                continue
            data = self._get(seat, f"/v1/objects/{digest}", missing_ok=True)
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
        office, objects = self.office, Objects(self.office.mailbox.headers(known.id))
        former = objects.offer(office.identity.name, of_seat=True)
        if former is None:
            return  # it was never answered; the server will
        key = office.keys.make(JOB, known.id)
        before = times_before(former) + 1
        office.publish("offer", known.id, key.public, seat=office.seat, again=before)
        for owner in known.file.owners:
            if objects.by("contribution", owner) is not None:
                self.bring_back(known, owner)
                self._told(f"{known.name}: the shares of {owner} are back, and they are what {owner} signed")

    def bring_back(self, known: JobDescription, owner: str) -> None:
        """The shares of one owner from the mates of this seat, checked against what the owner signed."""
        office = self.office
        key = office.keys.of(JOB, known.id)
        header = Objects(office.mailbox.headers(known.id)).by("contribution", owner)
        item = None if header is None else office.mailbox.get(header.digest)
        if key is None or item is None:
            raise FederationError(f"the key of the job, or the contribution of {owner}, is not here")
        self._store(known, owner, key, self._joined(known, owner))
        said = item.json().get("summands", {})
        found = summands_at(office.seat, self.conductor.messages_of(known, owner))
        wrong = [name for name, digest in found.items() if said.get(name) != digest]
        if wrong:
            shutil.rmtree(self.conductor.restored_at(known.id, owner), ignore_errors=True)
            raise ObjectRefused(f"the shares of {owner} for {known.name!r} came back wrong ({' and '.join(wrong)})")

    def _joined(self, known: JobDescription, owner: str) -> Iterator[bytes]:
        """Messages put together from both mates' halves, as plain bytes."""
        path = f"/v1/restore/{known.id}/{owner}"
        parts = [messages([self._get(self._mates[split], path)]) for split in (ROW, COLUMN)]
        for (kind, fields), (_, other) in zip(*parts, strict=True):
            pairs = zip(fields["packets"], other["packets"], strict=True)
            packets = [InputPacket(a.shape, a.dtype, a.row, b.column) for a, b in pairs]
            yield b"".join(encode(kind, **{**fields, "packets": packets}))

    def _store(self, known: JobDescription, owner: str, key: SealingKey, stream: Iterator[bytes]) -> None:
        """The stream in sealed pieces, as envelopes are."""
        place, piece, left = self.conductor.restored_at(known.id, owner), 0, bytearray()
        for data in stream:
            left += data
            while len(left) >= PIECE_BYTES:
                self._put(place / str(piece), bytes(left[:PIECE_BYTES]), key, known.id, owner, piece)
                del left[:PIECE_BYTES]
                piece += 1
        self._put(place / str(piece), bytes(left), key, known.id, owner, piece)
        write_file(place / "pieces", str(piece + 1).encode())

    def _put(self, path: Any, plain: bytes, key: SealingKey, job: str, owner: str, piece: int) -> None:
        write_file(path, seal(plain, key.public, what="restored", job=job, owner=owner, piece=piece))

    def _restore_model(self, known: JobDescription) -> None:
        path = f"/v1/restore-model/{known.id}"
        halves_of = [self._get(self._mates[split], path, missing_ok=True) for split in (ROW, COLUMN)]
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
        self.conductor.staging.keep(known.id, {"public": row["public"], **arrays})
        self._told(f"{known.name}: the kept model is back")

    def _get(self, seat: int, path: str, *, missing_ok: bool = False) -> bytes:
        peer = self.office.roster.seats[seat]
        host, port = address(peer.api)
        connection = http.client.HTTPSConnection(
            host, port, timeout=ANSWER_SECONDS, context=self.office.tls.context(dialing=True)
        )
        try:
            connection.connect()
            sock: Any = connection.sock
            if self.office.tls.member_of(sock.getpeercert() or {}) != peer.member:
                raise FederationError(f"there is somebody else in place of {peer.member}")
            connection.request("GET", path)
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise FederationError(
                f"seat {seat} ({peer.member}) is not reached: {error}. All other seats must run."
            ) from None
        finally:
            connection.close()
        if response.status == 200:
            return data
        if missing_ok and response.status in (404, 410):
            return b""
        raise FederationError(f"seat {seat} ({peer.member}) answered {response.status} to {path}: {data[:300]!r}")
