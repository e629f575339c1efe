"""The end of a job at a server: its result is published once the job is done, and all that it left is erased in
time."""

from __future__ import annotations

import logging
import time
from collections import Counter

from ..federation.proposal import ProposedJob
from .contributions import Contributions
from .keys import JOB
from .server_state import ServerState
from .staging import Staging

log = logging.getLogger("ppca.job_runner")
PUBLISHING = 1.0
"""Seconds of one pass of the loop for what an attempt produced; at least one object is published."""


class Closing:
    """Publish and erase what jobs have left at this server."""

    def __init__(self, server_state: ServerState, shares: Contributions, staging: Staging) -> None:
        self.server_state = server_state
        self.shares = shares
        self.staging = staging

    def publish(self, known: ProposedJob, attempt: int) -> None:
        """Publish what was staged; what the disk has lost of it is noted, and shown to the operator.

        This happens in the event loop. A large result is published in parts, one at each pass of the loop; the server
        goes on meanwhile.
        """
        server_state, job, me = self.server_state, known.id, self.server_state.identity.name
        lost, until = 0, time.monotonic() + PUBLISHING
        for digest in self.staging.staged(job, attempt):
            if server_state.mailbox.knows(digest):
                continue
            item = self.staging.item(job, attempt, digest)
            if item is None:
                lost += 1
                continue
            server_state.admit(item, me)
            if time.monotonic() > until:
                return
        mine = [header.about for header in server_state.mailbox.objects(job).of("result") if header.author == me]
        count = Counter(about["receiver"] for about in mine)
        whole = {about["receiver"] for about in mine if count[about["receiver"]] == about.get("chunks")}
        lacking = sorted(set(known.spec.receivers) - whole)
        if lost or lacking:
            why = f"this server's part of the result for {' and '.join(lacking) or 'the audit'} is lost: both copies were damaged"
            server_state.mailbox.note(f"missing {job}", why)
            log.error("staged result lost", extra={"job": job, "reason": why})
        self.staging.commit(job, attempt)
        self.staging.drop(job)
        server_state.mailbox.note(f"committed {job}", "yes")

    def erase(self, known: ProposedJob, due: bool) -> None:
        """Destroy the key of a job and drop what was sealed to it or by it."""
        server_state, job = self.server_state, known.id
        if not due or server_state.mailbox.note(f"erased {job}") is not None:
            return
        server_state.keys.destroy(JOB, job)
        self.staging.drop(job)
        self.shares.erase(job)
        server_state.mailbox.drop(job, ["envelope", "group", "result"])
        server_state.publish("erased", job, what="job", server=server_state.server)
        server_state.mailbox.note(f"erased {job}", "yes")
        log.info("erased", extra={"job": job})
