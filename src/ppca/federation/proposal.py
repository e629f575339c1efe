"""job.toml: a job that is proposed to the members of a federation. Its exact bytes are hashed, approved and run.

The lists `opens` and `reveals` contain everything that will leave the sharing. Servers refuse any other opening at run
time. The lists follow from the job (`openings`); a file with other lists is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from ..jobs.build import checks_inputs
from ..jobs.checks import SpecError, brief, in_utc, is_digest
from ..jobs.infer import UseModel
from ..jobs.loading import as_data, job_of, record_of
from ..jobs.openings import SERVERS
from ..jobs.registry import openings
from ..jobs.spec import COORDINATES, ColumnList, JobSpec
from . import toml
from .build import build
from .errors import FileRefused
from .objects import sha256
from .text import is_plain, plain
from .times import is_span, moment

JOB_FILE = "job.toml"
MAX_NAME = 80
MAX_TEXT = 1000
USES = ("transform", "flags", "scores")
"""Uses of a kept model in a federation."""

TABLES = ("data", "analysis", "receivers", "keep")
"""The tables of the file that describe the job."""

HEAD = """\
# A job of a federation. Its exact bytes are what owners approve and servers run: after a change it is another job.
"""
LISTS = """\
# Everything that leaves the sharing, to the servers and to each receiver. Servers refuse to open anything else.
"""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The content of job.toml.

    federation: digest of the revision of the membership file. build: of the servers that run the job. erase_after: how
    long the servers keep the job after its end. opens, reveals: what the job opens to the servers, and reveals to each
    receiver.
    """

    name: str
    federation: str
    build: str
    expires: datetime
    erase_after: str = "7d"
    not_before: datetime | None = None
    job: JobSpec
    opens: tuple[str, ...]
    reveals: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        _check_text("name", self.name, MAX_NAME)
        _check_text("build", self.build, MAX_TEXT)
        if not is_digest(self.federation):
            raise SpecError("federation", self.federation[:80], "must be a SHA-256 digest: 64 hexadecimal digits")
        for field in ("expires", "not_before"):
            if (time := getattr(self, field)) is not None:
                object.__setattr__(self, field, in_utc(field, time))
        if not is_span(self.erase_after):
            raise SpecError("erase_after", self.erase_after[:80], "must be a number and s, m, h or d, such as 7d")
        if self.not_before is not None and self.not_before >= self.expires:
            raise SpecError("not_before", str(self.not_before), "the job would expire before it may start")
        _check_job(self.job)
        self._check_lists()

    def _check_lists(self) -> None:
        opens, reveals = _lists(self.job)
        if self.opens != opens:
            cause = f"opens must be {list(opens)} for these parameters; make the file with ppca job new"
            raise SpecError("opens", list(self.opens), cause)
        if dict(self.reveals) != reveals:
            cause = f"reveals must be {_plain_lists(reveals)} for these parameters; make the file with ppca job new"
            raise SpecError("reveals", _plain_lists(self.reveals), cause)

    @property
    def owners(self) -> tuple[str, ...]:
        """The members whose tables are used."""
        return self.job.data.owners

    @property
    def approvers(self) -> list[str]:
        """The members that must approve: the owners, and those that the analysis names."""
        return [*self.owners, *(name for name in self.job.analysis.approvers if name not in self.owners)]

    @property
    def kept_until(self) -> datetime | None:
        """Time when the servers erase the kept model; None: they keep no model."""
        return None if self.job.keep is None else self.job.keep.until

    @property
    def members(self) -> list[str]:
        """All members with a part in the job."""
        return list(dict.fromkeys([*self.approvers, *self.job.receivers]))


class ProposedJob:
    """A job.toml: its content, its exact bytes, and their digest, which is the id of the job."""

    def __init__(self, data: bytes, label: str = JOB_FILE) -> None:
        self.proposal = parse(data, label)
        self.data = data
        self.id = sha256(data)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file, or job.toml of a folder."""
        return cls(toml.read(path / JOB_FILE if path.is_dir() else path), str(path))

    @property
    def name(self) -> str:
        """Name of the job, for people."""
        return self.proposal.name

    @property
    def spec(self) -> JobSpec:
        """Description of the computation."""
        return self.proposal.job


def propose(
    federation: str, name: str, job: JobSpec, *, expires: str | datetime = "7d", erase_after: str = "7d"
) -> ProposedJob:
    """Return a job as a file for a federation. federation: the digest of its revision. expires: a time, or a span from
    now on.

    Raise `SpecError` if the job is not possible in a federation.
    """
    opens, reveals = _lists(job)
    end = expires if isinstance(expires, datetime) else moment(expires)
    more: dict[str, Any] = {"job": job, "opens": opens, "reveals": reveals}
    proposal = Proposal(name=name, federation=federation, build=build(), expires=end, erase_after=erase_after, **more)
    return ProposedJob(render(proposal))


def render(proposal: Proposal) -> bytes:
    """Return a proposal as the text of job.toml."""
    names = ("name", "federation", "build", "expires", "erase_after", "not_before")
    text = [HEAD + toml.lines({name: getattr(proposal, name) for name in names})]
    text.append(LISTS + toml.lines({"opens": proposal.opens}))
    for name, table in (*as_data(proposal.job).items(), ("reveals", proposal.reveals)):
        text += toml.table(name, table)
    return "\n".join(text).encode()


def parse(data: bytes, label: str = JOB_FILE) -> Proposal:
    """Parse a job.toml; raise `FileRefused` if it is invalid. The cost of parsing is bounded before."""
    return proposal_of(toml.tables(data, label), label)


def proposal_of(tables: Mapping[str, Any], label: str) -> Proposal:
    """Return the proposal that the tables of a file describe; raise `FileRefused` if they are invalid."""
    found = dict(tables)
    try:
        job = job_of({name: found.pop(name) for name in TABLES if name in found})
        proposal: Proposal = record_of(found, Proposal, job=job)
    except SpecError as error:
        raise _refused(label, error) from None
    return proposal


def _check_job(job: JobSpec) -> None:
    """Check the rules that hold for jobs of a federation only."""
    data, keep = job.data, job.keep
    if data.form == COORDINATES:
        raise SpecError("data.form", data.form, "is not possible in a federation")
    if data.add_to is not None:
        raise SpecError("data.add_to", data.add_to, "is not possible in a federation: fit all tables together")
    named = data.columns.values() if isinstance(data.columns, Mapping) else [data.columns]
    if any(isinstance(own, ColumnList) for own in named):
        raise SpecError("data.columns", data.width, "owners match columns by name: list their names")
    if data.check_inputs != checks_inputs(data.form, len(data.owners)):
        cause = "must be true if there are several owners or a kept model is used, and false otherwise"
        raise SpecError("data.check_inputs", data.check_inputs, cause)
    if keep is not None and keep.until is None:
        raise SpecError("keep.until", None, "servers of a federation keep a model until a date")
    for use in () if keep is None else keep.allow:
        if use not in USES:
            cause = f"is not a use of a kept model in a federation; choose from {', '.join(USES)}"
            raise SpecError("keep.allow", use, cause)
    if isinstance(job.analysis, UseModel):
        if not is_digest(job.analysis.model):
            raise SpecError("analysis.model", job.analysis.model[:80], "must be the id of the job that kept the model")
        if not job.analysis.model_owners:
            raise SpecError("analysis.model_owners", (), "name the owners of the model")


def _lists(job: JobSpec) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Return what a job opens to the servers, and what it reveals to each receiver."""
    found = openings(job)
    reveals = {name: tuple(line.what for line in found if line.to == name) for name in job.receivers}
    return tuple(line.what for line in found if line.to == SERVERS), reveals


def _plain_lists(reveals: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    return {name: list(lines) for name, lines in reveals.items()}


def _check_text(field: str, value: str, most: int) -> None:
    if not value or len(value) > most or not is_plain(value):
        cause = f"must have 1 to {most} characters, without control or hidden characters"
        raise SpecError(field, value[:most], cause)


def _refused(label: str, error: SpecError) -> FileRefused:
    value: Any = "" if error.value is None else f" = {brief(error.value)}"
    return FileRefused(plain(f"{label}: {error.field}{value}: {error.cause}."))
