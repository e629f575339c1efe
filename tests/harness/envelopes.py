"""Envelopes of an owner, which members do not list."""

from __future__ import annotations

from ppca.federation.proposal import ProposedJob
from ppca.member import MemberClient
from ppca.server.object_rules import chunks_of


def envelopes_of(member: MemberClient, job: ProposedJob, owner: str) -> list[list[str]]:
    """Return the digests of an owner's envelopes by server, as its contribution lists them."""
    header = member.objects(job).by("contribution", owner)
    assert header is not None
    return chunks_of(member.servers.get(header))
