"""Envelopes of an owner, which members do not list."""

from __future__ import annotations

from ppca.federation.proposal import ProposedJob
from ppca.member import Member
from ppca.seat.admission import pieces_of


def envelopes_of(member: Member, job: ProposedJob, owner: str) -> list[list[str]]:
    """Return the digests of an owner's envelopes by server, as its contribution lists them."""
    header = member.objects(job).by("contribution", owner)
    assert header is not None
    return pieces_of(member.seats.get(header))
