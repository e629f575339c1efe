"""A federation in place of four local processes: `PCA(servers=Federation.open(...))` computes on the seats of four organisations.

One person acts here for all owners, with one identity that is owner and receiver of its jobs: nobody else's data are in them, so
nobody else is asked. Owners of different organisations each contribute on their own machine instead (`ppca contribute`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..federation.course import Course
from ..federation.errors import FederationError
from ..federation.identity import Identity
from ..federation.parcels import Parcels
from ..federation.proposal import USES, ProposedJob, propose
from ..federation.roster import Roster
from ..federation.times import moment
from ..jobs.build import infer_job, pca_job
from ..jobs.infer import FLAGS, SCORES, UseModel
from ..jobs.infer import TRANSFORM as TRANSFORMED
from ..jobs.loading import job_of
from ..jobs.pca import JointPCA
from ..jobs.spec import ALIGNED, CLIENT, PSI, JobSpec, Keep
from ..protocol import InputPacket
from ..servers import Account, Outcome, ProgramError, ServersFailed
from ..servers.files import write_whole
from ..servers.interface import Progress
from ..servers.programs import Program, name_of
from .desk import Member
from .fetching import Evidence

FITS = tuple(f"ppca.jobs.{form}:fit" for form in ("rows", "columns", "wide_rows", "wide_columns"))
UPLOAD, FORGET = "ppca.jobs.uploads:upload", "ppca.jobs.uploads:forget"
TRANSFORM, ADD_SCORES, DETECT = (
    "ppca.jobs.inference:transform",
    "ppca.jobs.inference:add_scores",
    "ppca.jobs.inference:detect",
)
LASTS, KEEP_FOR = {"expires": "1d", "erase_after": "1h"}, "365d"
PATIENCE = 3600.0
"""Seconds to wait for the seats to finish a job."""

Packets = Sequence[list[InputPacket]]


@dataclass(eq=False)
class Federation:
    """Four seats as `PCA` and `Job` use servers. Kept models are found again by the same identity under their names."""

    member: Member
    patience: float = PATIENCE
    _pieces: dict[str, list[tuple[int, list[InputPacket], Any]]] = field(default_factory=dict)
    _scored: dict[str, tuple[str, list[list[InputPacket]]]] = field(default_factory=dict)

    @classmethod
    def open(cls, federation: Path | str, identity: Path | str, state: Path | None = None) -> Self:
        """federation: federation.toml, signed by its operators. identity: the key of a member who is owner and receiver."""
        member = Member(Roster.trusted(Path(federation)), Identity.load(Path(identity)), state)
        lacking = [role for role in ("owner", "receiver") if role not in member.roster.roles(member.name)]
        if lacking:
            raise FederationError(
                f"{member.name} is no {' and no '.join(lacking)} in {member.roster.name}: who acts for all owners is both."
            )
        return cls(member)

    @property
    def running(self) -> bool:
        return True

    def start(self) -> Self:
        return self

    def stop(self) -> None:
        self.member.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    # -- programs ----------------------------------------------------------------------------------------------------

    def run(
        self,
        program: Program | str,
        inputs: Packets,
        public: Mapping[str, Any],
        progress: Progress | None = None,
    ) -> Outcome:
        """See `Servers.run`. What a local run uploads piece by piece goes to the seats with the program that works on it."""
        name = name_of(program)
        if name == UPLOAD:
            pieces = self._pieces.setdefault(public["table"], [])
            pieces.append((public["owner"], inputs[0], public.get("tags")))
            return _nothing(sum(piece[1][0].shape[0] for piece in pieces if piece[0] == public["owner"]))
        if name == FORGET:
            self._pieces.pop(public["table"], None)
            self._scored.pop(public["table"], None)
            return _nothing(None)
        if name == ADD_SCORES:
            self._scored.setdefault(public["table"], (public["model"], []))[1].append(inputs[0])
            return _nothing(None)
        if name in FITS:
            return self._fit(inputs, public, progress)
        if name == TRANSFORM:
            return self._infer(public["model"], [inputs[0]], {"operation": "transform"}, progress)
        if name == DETECT:
            model, batches = self._scored.pop(public["table"])
            wanted = {
                key: public[key] for key in ("threshold", "contamination", "scores") if public.get(key) is not None
            }
            return self._infer(model, batches, {"operation": "detect", **wanted}, progress)
        raise ProgramError(
            f"{name} does not run on a federation: its seats fit models of rows and of columns, and use kept ones on rows "
            "(transform, detect). Use ppca.LocalServers for anything else."
        )

    def _fit(self, inputs: Packets, public: Mapping[str, Any], progress: Progress | None) -> Outcome:
        spec = job_of(public["job"])
        data, me = spec.data, self.member.name
        if data.add_to is not None:
            raise ProgramError("partial_fit does not run on a federation: fit all tables together")
        pieces = self._pieces.pop(public.get("table", ""), [])
        columns = [f"c{i + 1}" for i in range(data.width)]
        keep = None
        if spec.keep is not None:
            allow = {use: (me,) for use in spec.keep.allow if use in USES}
            keep = Keep(until=moment(KEEP_FOR), allow=allow)
        align = data.align
        if align is not None:
            way = PSI if pieces and pieces[0][2] is not None else ALIGNED
            align = replace(align, alignment=way, namespace=None)
        fitted = pca_job(
            [me],
            columns if align is None else {me: columns},
            {me: spec.receivers[CLIENT]},
            _analysis(spec),
            wide=data.is_wide,
            federated=True,
            align=align,
            keep=keep,
            tables=tuple(data.widths),
            standardize=data.standardize,
            missing=data.missing,
        )
        job = propose(self.member.roster.digest, f"fit-{time.time_ns():x}", fitted, **LASTS)
        outcome = self._run(job, [("packets", list(inputs), {})], pieces, progress)
        if spec.keep is not None and spec.keep.name is not None:
            self._remember(spec.keep.name, job, outcome)
        return outcome

    def _infer(self, model: str, batches: Packets, wanted: dict[str, Any], progress: Progress | None) -> Outcome:
        kept, me = self._recall(model), self.member.name
        unit = 1.0 if kept["standardized"] else 2.0 ** kept["scale_exponents"][0]
        if "threshold" in wanted:
            wanted["threshold"] *= unit**2
        limits = {key: wanted[key] for key in ("threshold", "contamination") if key in wanted}
        parts = [TRANSFORMED] if wanted["operation"] == "transform" else [FLAGS] if limits else []
        parts += [SCORES] if wanted.get("scores") else []
        use = UseModel(model=kept["job"], model_owners=(me,), **limits)
        more = {"standardize": kept["standardized"]}
        used = infer_job([me], kept["columns"], {me: parts}, use, kept["scale_exponents"], federated=True, **more)
        job = propose(self.member.roster.digest, f"use-{time.time_ns():x}", used, **LASTS)
        outcome = self._run(job, [("packets", [batch], {}) for batch in batches], [], progress)
        return Outcome([part["to"][CLIENT] for part in outcome.parts], outcome.account)

    # -- one job -----------------------------------------------------------------------------------------------------

    def _run(
        self,
        job: ProposedJob,
        messages: list[tuple[str, Packets, dict[str, Any]]],
        pieces: list[tuple[int, list[InputPacket], Any]],
        progress: Progress | None,
    ) -> Outcome:
        member = self.member
        member.submit(job)
        member.approve(job)
        self._await_offers(job)
        parcels = Parcels(
            member.identity, job.id, member.seat_keys(job), lambda item: member.seats.put(item, item.header.about["to"])
        )
        for owner, piece, tags in pieces:
            parcels.add("rows", [piece], tags=tags, part=owner)
        for kind, packets, more in messages:
            parcels.add(kind, packets, **more)
        member.seats.put_everywhere(parcels.finish())
        for _, told in member.watch(job, self.patience):
            if progress is not None and told is not None:
                progress(told["text"], told["fraction"], told["rounds"])
        course = member.course(job)
        if not course.done:
            raise ServersFailed(f"the seats did not finish {job.name}: {_in_words(course)}")
        evidence = Evidence.gather(member, job)
        evidence.check()
        return Outcome([_as_client(part, member.name) for part in evidence.parts()], evidence.account())

    def _await_offers(self, job: ProposedJob) -> None:
        """The seats answer within a moment."""
        deadline = time.monotonic() + 60
        while True:
            course = self.member.course(job)
            if course.over:
                raise ServersFailed(f"the seats do not run {job.name}: {_in_words(course)}")
            if not any(item.what.startswith("offer") for item in course.waiting):
                return
            if time.monotonic() > deadline:
                raise ServersFailed(f"no offer within a minute: {_in_words(course)}")
            time.sleep(0.1)

    # -- kept models -------------------------------------------------------------------------------------------------

    def _remember(self, name: str, job: ProposedJob, outcome: Outcome) -> None:
        from ..receiver.unsealing import unsealed

        found = unsealed(outcome.parts)["to"][CLIENT]
        width, standardized = job.spec.data.width, job.spec.data.standardize
        scale = np.broadcast_to(np.asarray(found["exponents"], np.int64), (width,))
        fact = {
            "job": job.id,
            "standardized": standardized,
            "scale_exponents": [int(e) for e in scale],
            "columns": job.spec.data.column_names,
        }
        write_whole(self._models() / f"{name}.json", json.dumps(fact).encode(), 0o600)

    def _recall(self, name: str) -> dict[str, Any]:
        path = self._models() / f"{name}.json"
        if not path.exists():
            raise ProgramError(
                f"{self.member.name} has kept no model {name!r} on this federation; fit one with keep={name!r}"
            )
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def _models(self) -> Path:
        folder = self.member.state.folder / "models"
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder


def _analysis(job: JobSpec) -> JointPCA:
    assert isinstance(job.analysis, JointPCA)
    return job.analysis


def _as_client(part: dict[str, Any], me: str) -> dict[str, Any]:
    """A seat's part of a result, for the code that calls the receiver of local servers `client`."""
    return {**part, "to": {CLIENT: part["to"]}} if "to" in part else part


def _in_words(course: Course) -> str:
    waiting = [f"waiting for {item.who} to {item.what}" for item in course.waiting]
    return "; ".join([course.stage, *([course.why] if course.why else []), *waiting])


def _nothing(result: Any) -> Outcome:
    """The outcome of what costs the seats nothing yet."""
    zeros = [0, 0, 0, 0]
    total = {"rounds": 0, "bytes_sent": 0, "bytes_received": 0, "sent_to": zeros, "received_from": zeros}
    return Outcome([result] * 4, Account(0.0, 0, zeros, [{"stages": {}, "total": dict(total)} for _ in range(4)], []))
