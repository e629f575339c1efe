"""Verified list of the objects of a job on one server: signatures, places, and one object for each place."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

from ..federation.errors import FederationError, NotReached, ObjectRefused
from ..federation.membership import Membership
from ..federation.objects import DECIDING, FIELDS, Header, Object, sha256


class Shelf:
    """Headers that one server has listed for one job so far."""

    def __init__(self) -> None:
        self.place = 0
        self.bytes = 0
        self.headers: dict[str, Header] = {}
        self.items: dict[str, Object] = {}
        """Objects whose signatures were checked, by digest."""
        self.former: set[str] = set()
        """Digests of those that were signed with a former key."""
        self._slots: set[tuple[Any, ...]] = set()
        self._instance = ""

    def take(self, answer: dict[str, Any], job: str, membership: Membership) -> bool:
        """Add what a server answered; whether there may be more."""
        instance, objects = str(answer.get("instance")), answer.get("objects")
        if self._instance not in ("", instance):  # its mailbox is a new one, and counts from the beginning
            self.place, self._instance = 0, instance
            return True
        self._instance = instance
        if not isinstance(objects, list):
            raise NotReached("a server answered something else than objects")
        before = self.place
        for fields in objects:
            self._add(fields, job, membership)
        return self.place > before

    def _add(self, fields: Any, job: str, membership: Membership) -> None:
        seq = fields.get("seq") if isinstance(fields, dict) else None
        if type(seq) is not int or seq <= self.place:
            raise NotReached("a server answered something else than objects")
        self.place = seq
        with contextlib.suppress(FederationError):  # what is not signed, or not whole, is not there
            item = _signed(fields, membership) if fields.get("kind") in DECIDING else None
            header = _header(fields) if item is None else item.header
            if header.job != job or (item is None and not self._is_first(header)):
                return
            self.headers[header.digest] = header
            if item is not None:
                self.items[header.digest] = item
                if not item.is_signed_by(membership.present):
                    self.former.add(header.digest)

    def _is_first(self, header: Header) -> bool:
        """Return whether a header without its object is the first of its place, and not that of an envelope, which only
        servers need.

        An author writes one object for each place. Others on the list of a server are invented, or as good as invented.
        """
        slot = (
            header.kind,
            header.author,
            *(header.about.get(name) for name in ("attempt", "receiver", "to", "chunk")),
        )
        if header.kind == "envelope" or not all(isinstance(part, str | int | None) for part in slot):
            return False
        first = slot not in self._slots
        self._slots.add(slot)
        return first


def _signed(fields: dict[str, Any], membership: Membership) -> Object:
    """An object that decides the state of a job, from the signed bytes themselves."""
    try:
        item = Object.parse(base64.b64decode(fields.get("data", ""), validate=True))
    except (TypeError, ValueError):
        raise ObjectRefused("a server answered something else than an object") from None
    item.check_author(membership.signers)
    if item.header.kind == "job" and sha256(item.payload) != item.header.job:
        raise ObjectRefused(f"{item.header.author} signed another file under the name of job {item.header.job[:12]}")
    return item


def _header(fields: dict[str, Any]) -> Header:
    """Parse the header of an object whose bytes the server does not send."""
    return Header.of({name: fields.get(name) for name in FIELDS}, fields.get("digest"), fields.get("size"))
