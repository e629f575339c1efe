"""Run the attempts of jobs on one server, from the owners' chunks to the sealed result and the signed outcome."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ..federation.build import build
from ..federation.envelopes import chunks_in, result_info
from ..federation.errors import FederationError
from ..federation.headers import BROKEN, FINISHED, WITHDRAWN
from ..federation.membership import address
from ..federation.objects import Object
from ..federation.proposal import ProposedJob
from ..federation.sealing import seal
from ..federation.state import Attempts
from ..federation.text import plain
from ..jobs.chunks import ServerChunk
from ..jobs.infer import UseModel
from ..jobs.pools import DASK
from ..jobs.spec import COLUMNS
from ..runtime.control import encode
from ..runtime.cores import threads_for
from ..runtime.failure import CONSEQUENCE, SUSPECT, Failure
from .attempt import Attempt
from .contributions import Contributions
from .forking import ForkServer
from .programs import job_for_workers, kept_name
from .restoring import Restoring
from .router import Router
from .server_state import ServerState
from .staging import Staging, audit_digest
from .time_limits import run_seconds
from .work import AttemptFailed, AttemptInput, Done

log = logging.getLogger("ppca.job_runner")


class Withdrawn(FederationError):
    """This server ends an attempt for a reason that is not a fault of the job."""


class StartSignal:
    """Signal for which the thread of an attempt waits until all servers are ready or the attempt is stopped."""

    def __init__(self) -> None:
        self.why = ""
        self._open = threading.Event()

    def begin(self) -> None:
        self._open.set()

    def stop(self, why: str) -> None:
        self.why = self.why or why
        self._open.set()

    def check(self) -> None:
        """Raise Withdrawn if the attempt was stopped."""
        if self.why:
            raise Withdrawn(self.why)

    def wait(self) -> None:
        """Wait until the attempt begins. Raise Withdrawn if it was stopped."""
        self._open.wait()
        self.check()


class AttemptRunner:
    """Run attempts of jobs on this server, each in its own worker process. running: attempts in progress, by job."""

    def __init__(self, server_state: ServerState, router: Router, shares: Contributions, staging: Staging) -> None:
        self.server_state = server_state
        self.router = router
        self.shares = shares
        self.staging = staging
        self.forks = ForkServer()
        self.running: dict[str, Attempt] = {}
        self._restoring = Restoring(server_state, shares, staging, log.warning)

    def run(self, known: ProposedJob, number: int, start: str, gate: StartSignal) -> None:
        """Prepare an attempt, run it when all servers are ready, and publish its outcome."""
        job, attempt = known.id, None
        try:
            self.shares.drop_forwarded(known)
            self.shares.mend(known)
            gate.check()
            work = self.work(known, start)
            attempt = Attempt(work, self.router, self.forks, lambda *what: self.server_state.show(job, *what))
            self.running[job] = attempt
            began = datetime.now(UTC)
            done = attempt.run(lambda: self._announce(job, number, gate))
            self._finish(known, number, done, began)
        except Withdrawn as error:
            self.end(job, number, WITHDRAWN, str(error))
        except AttemptFailed as failed:
            failure = failed.failure
            if gate.why:
                self.end(job, number, WITHDRAWN, gate.why)
            elif attempt is not None and not attempt.begun and failure.rank in (SUSPECT, CONSEQUENCE):
                self.end(job, number, WITHDRAWN, f"it did not begin: {failure.reason}")
            else:
                self.fail(job, number, failure.reason, final=failed.final, failure=failure)
        except (FederationError, OSError) as error:
            self.fail(job, number, str(error))
        except Exception as error:
            log.exception("attempt", extra={"job": job})
            self.fail(job, number, type(error).__name__)
        finally:
            self.running.pop(job, None)
            self.server_state.progress.pop(job, None)

    def _announce(self, job: str, number: int, gate: StartSignal) -> None:
        """Publish that this server is ready, and wait until all servers are."""
        gate.check()
        if self.server_state.identity.name not in self.server_state.mailbox.objects(job).ready(number):
            self.server_state.publish("ready", job, attempt=number, server=self.server_state.server)
        gate.wait()

    def work(self, known: ProposedJob, start: str) -> AttemptInput:
        server_state, settings = self.server_state, self.server_state.settings.file
        kept = {}
        if isinstance(known.spec.analysis, UseModel):
            kept[kept_name(known.spec.analysis.model)] = self._model(known.spec.analysis.model)
        return AttemptInput(
            server=server_state.server,
            session=hashlib.sha256(f"ppca session {start}".encode()).digest(),
            addresses={number: address(server.mesh) for number, server in server_state.membership.servers.items()},
            tls=server_state.mesh_tls,
            job=job_for_workers(known),
            chunks=self._chunks(known),
            workers=DASK if settings.workers is not None and known.spec.data.form == COLUMNS else 0,
            kept=kept,
            timeout=settings.work.timeout,
            threads=settings.work.threads or threads_for(self._servers_here() * settings.policy.jobs_at_once),
            input_bytes=settings.policy.input_bytes,
            start_timeout=settings.work.start_timeout,
            attempt_timeout=settings.work.attempt_timeout,
            run_timeout=run_seconds(known.spec, self._input_bytes(known)),
        )

    def _model(self, job: str) -> dict[str, Any]:
        """Return a kept model. If it is missing or damaged on disk, restore it from the mates."""
        try:
            record = self.staging.model(job)
        except (FederationError, OSError):
            record = None
        if record is None:
            self._restoring.restore_model(self.server_state.admission.job(job))
            record = self.staging.model(job)
        if record is None:
            raise FederationError("this server does not hold the model any more")
        return record

    def _input_bytes(self, known: ProposedJob) -> int:
        """Return the bytes that the shares of all owners take, as the checks of their contributions found."""
        return sum(map(int, self.server_state.mailbox.noted(f"inputs {known.id} ").values()))

    def _servers_here(self) -> int:
        """Return the number of servers that the membership file places on this machine (same host)."""
        hosts = {number: address(server.mesh)[0] for number, server in self.server_state.membership.servers.items()}
        return list(hosts.values()).count(hosts[self.server_state.server])

    def _chunks(self, known: ProposedJob) -> Iterator[ServerChunk]:
        """Yield the chunks of the owners, owner by owner."""
        for number, owner in enumerate(known.proposal.owners):
            for kind, fields in self.shares.messages_of(known, owner):
                if kind == "blind":  # it has blinded the digests of the contribution, see `envelopes`
                    continue
                table = number + fields.get("part", 0)  # `part`: of a sole owner that acts for several tables
                order = fields.get("order")
                order = None if order is None else bytes.fromhex(order)
                yield ServerChunk(table, fields["packets"], kind == "rows", fields.get("tags"), order)

    def _finish(self, known: ProposedJob, number: int, done: Done, began: datetime) -> None:
        """Seal the parts of the result to their receivers, write everything to disk, and publish `finished`."""
        server_state, ran = self.server_state, done.ran
        total = ran.stats["total"]
        results: dict[str, list[Object]] = {}
        for receiver in known.spec.receivers:
            offer = server_state.mailbox.objects(known.id).offer(receiver, of_server=False)
            item = None if offer is None else server_state.mailbox.get(offer.digest)
            if item is None:
                raise FederationError(f"the offer of {receiver} is not here")
            mine = {**ran.result, "to": {receiver: ran.result["to"].get(receiver, {})}}
            plain = b"".join(encode("result", result=mine))
            chunks = chunks_in(plain)
            results[receiver] = []
            for chunk, data in enumerate(chunks):
                info = result_info(known.id, receiver, server_state.server, number, chunk, len(chunks))
                about = {name: info[name] for name in ("receiver", "attempt", "server", "chunk", "chunks")}
                sealed = seal(data, item.payload, **info)
                results[receiver].append(Object.make(server_state.identity, "result", known.id, sealed, **about))
        audit = {
            "attempt": number,
            "server": server_state.server,
            "build": build(),
            "federation": server_state.membership.digest,
            "began": began.isoformat(),
            "ended": datetime.now(UTC).isoformat(),
            "seconds": ran.seconds,
            "stats": ran.stats,
            "audit": ran.audit,
            "results": {receiver: [item.digest for item in items] for receiver, items in results.items()},
            "contributions": {
                owner: header.digest
                for owner in known.proposal.owners
                if (header := server_state.mailbox.objects(known.id).by("contribution", owner)) is not None
            },
        }
        account = Object.make(
            server_state.identity,
            "audit",
            known.id,
            json.dumps(audit).encode(),
            attempt=number,
            server=server_state.server,
        )
        name = kept_name(known.id)
        self.staging.put(
            known.id, number, [*(item for items in results.values() for item in items), account], done.kept.get(name)
        )
        self.end(
            known.id,
            number,
            FINISHED,
            "",
            audit=audit_digest(ran.audit),
            rounds=total["rounds"],
            sent=total["sent_to"],
            received=total["received_from"],
        )

    def fail(self, job: str, number: int, why: str, *, final: bool = False, failure: Failure | None = None) -> None:
        """Publish that an attempt failed here. After as many failures as the operator allows, the job is held."""
        before = Attempts.of(
            self.server_state.mailbox.objects(job), self.server_state.membership, before=number
        ).failures
        hold = before + 1 >= self.server_state.settings.file.policy.attempts
        self.end(job, number, BROKEN, why, final=final, failure=failure, hold=hold)

    def end(
        self,
        job: str,
        number: int,
        outcome: str,
        why: str,
        *,
        final: bool = False,
        failure: Failure | None = None,
        **about: Any,
    ) -> None:
        """Publish the outcome of an attempt. `failure`: details for the local log only."""
        if outcome != FINISHED:
            named = {} if failure is None else {"error": failure.cause, "at": failure.places}
            known = {name: value for name, value in named.items() if value}
            log.warning(f"attempt {outcome}", extra={"job": job, "attempt": number, "reason": why, **known})
        self.server_state.publish(
            "ended",
            job,
            attempt=number,
            outcome=outcome,
            why=plain(why)[:1500],
            final=final,
            server=self.server_state.server,
            **about,
        )
