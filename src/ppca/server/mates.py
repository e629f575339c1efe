"""Restore lost shares of a server from its mates. The row mate has the same R of every share, the column mate C.

Each mate returns its half. Nothing is reconstructed: a server gets only shares that it had before. The diagonal server
holds none of them.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterable, Iterator
from typing import Any

from ..federation.envelopes import messages
from ..federation.errors import FederationError, ObjectRefused
from ..federation.membership import Membership, ServerEntry, address
from ..federation.state import Objects
from ..protocol import InputPacket
from ..runtime.control import Message, encode
from ..transport.deadline import cut_after
from .server_state import ServerState
from .staging import record_bytes

ROW, COLUMN = "row", "column"
ANSWER_SECONDS = 600.0
BYTES_PER_SECOND = 1 << 20
"""Minimum rate of a mate's answer: its timeout is ANSWER_SECONDS plus the time of its bytes at this rate."""

ASKING = 60.0
"""Seconds after which a mate that keeps failing is not asked again."""

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between attempts: a server that restarts, or reads a new revision, answers again within seconds."""


class HalfLost(FederationError):
    """A server can never again open what an owner sent it, so it cannot give back the half that its mate has lost."""


def split_for(asker: int, here: int) -> str:
    """Return the summands that the asking server and this one share. Refuse the diagonal server: they share none."""
    if asker == here ^ 1:
        return ROW
    if asker == here ^ 2:
        return COLUMN
    raise FederationError(f"servers {asker} and {here} do not share summands")


def positions(objects: Objects, membership: Membership, federation: str, operator: str) -> set[int]:
    """The servers that an operator was for a job: by its offers, and by the revision of the federation that the job is
    for.

    An offer alone does not tell: an operator can withhold it until it has another position, and then make a new one.
    """
    held = {
        header.about["server"]
        for header in objects.of("offer")
        if header.author == operator and "server" in header.about
    }
    then = membership if membership.digest == federation else membership.earlier.get(federation)
    before = None if then is None else then.server_of(operator)
    return held if before is None else held | {before}


def check_position(objects: Objects, membership: Membership, federation: str, operator: str, server: int) -> None:
    """Refuse shares of a job unless the operator was this server, and no other, of the job.

    With the shares of two positions it could read the data. An operator without an offer here may have withheld it:
    owners have sealed shares to an offer that this server does not know. federation: the revision that the job is for.
    """
    held = positions(objects, membership, federation, operator)
    if held - {server}:
        raise FederationError(
            f"{operator} was server {min(held - {server})} while the shares of this job were made and is server {server} now. "
            "With the shares of both positions it could read the data, so they are not given back. Propose the job again in the "
            "present federation."
        )
    if objects.offer(operator, of_server=True) is None:
        raise FederationError(
            f"{operator} has offered no key for this job that is known here, so no shares of it are given "
            "back. If it has, ask again when this server has its offer; otherwise propose the job again "
            "in the present federation."
        )


# -- the server that answers
# ---------------------------------------------------------------------------------------------


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


# -- the server that asks
# ------------------------------------------------------------------------------------------------


class Mates:
    """The other servers, asked for what this one has lost."""

    def __init__(self, server_state: ServerState) -> None:
        self.server_state = server_state
        self._mates = {ROW: server_state.server ^ 1, COLUMN: server_state.server ^ 2}

    def halves(self, path: str, *, missing_ok: bool = False) -> tuple[bytes, bytes]:
        """The row mate's and the column mate's answer."""
        row, column = (self.get(self._mates[split], path, missing_ok=missing_ok) for split in (ROW, COLUMN))
        return row, column

    def joined(self, job: str, owner: str) -> Iterator[bytes]:
        """An owner's messages put together from both mates' halves, as plain bytes."""
        row, column = (messages([half]) for half in self.halves(f"/v1/restore/{job}/{owner}"))
        try:
            for (kind, fields), (_, other) in zip(row, column, strict=True):
                pairs = zip(fields["packets"], other["packets"], strict=True)
                packets = [InputPacket(a.shape, a.dtype, a.row, b.column) for a, b in pairs]
                yield b"".join(encode(kind, **{**fields, "packets": packets}))
        except (ValueError, TypeError) as error:
            raise ObjectRefused(f"the mates give back different shares of {owner}: {error}") from None

    def get(self, server: int, path: str, *, missing_ok: bool = False) -> bytes:
        """Return the answer of another server; retry for a while if it is not reached.

        A mate that takes long to fail is not asked again: it could keep this server waiting for many times as long.
        """
        peer, began = self.server_state.membership.servers[server], time.monotonic()
        for pause in (*PAUSES, None):
            try:
                status, data = self._ask(peer, path)
                break
            except (OSError, http.client.HTTPException) as error:
                if pause is None or time.monotonic() > began + ASKING:
                    raise FederationError(
                        f"server {server} ({peer.member}) cannot be reached: {error}. All other servers must run, with "
                        "the revision of the federation that this one has; then say it again."
                    ) from None
                time.sleep(pause)
        if status == 200:
            return data
        if missing_ok and status in (404, 410):
            return b""
        if status == 410:
            raise HalfLost(peer.member)
        raise FederationError(f"server {server} ({peer.member}) answered {status} to {path}: {data[:300]!r}")

    def _ask(self, peer: ServerEntry, path: str) -> tuple[int, bytes]:
        context = self.server_state.tls.context(dialing=True)
        connection = http.client.HTTPSConnection(*address(peer.api), timeout=ANSWER_SECONDS, context=context)
        try:
            connection.connect()
            sock: Any = connection.sock
            if self.server_state.tls.member_of(sock.getpeercert() or {}) != peer.member:
                raise FederationError(f"the server at the address of {peer.member} has the key of another member")
            most = self.server_state.settings.file.policy.input_bytes
            with cut_after(sock, ANSWER_SECONDS + most / BYTES_PER_SECOND):
                connection.request("GET", path)
                response = connection.getresponse()
                data = response.read(most + 1)
            if len(data) > most:
                raise FederationError(
                    f"{peer.member} answers with more than {most:,} bytes, which no job may take here ([policy] memory)"
                )
            return response.status, data
        finally:
            connection.close()
