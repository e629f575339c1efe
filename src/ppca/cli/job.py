"""`ppca job`: propose, submit, cancel and resume jobs of a federation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ..jobs.infer import verdict_parts
from ..jobs.inference import TRANSFORM
from ..jobs.spec import MIN_COMMON_IDS
from ..owner.tables.options import DEFAULTS, ReadOptions
from .draft import DraftOptions, LifetimeOptions, MembersOptions, regression_of, trusted, write_draft
from .federation import FEDERATION, File
from .member import JobName, MemberOptions, tell_job_state
from .options import RESULT, AlignOptions, AnalysisOptions, Chunks, Help, Minimum, command, names_in
from .regress_options import RegressionOptions
from .terminal import Terminal

if TYPE_CHECKING:
    from ..federation.membership import Membership

app = typer.Typer(help="Write, submit, cancel and resume jobs of a federation.", no_args_is_help=True)

Output = Annotated[Path, typer.Option("--output", "-o", help="File of the job.")]


@dataclass(frozen=True, kw_only=True)
class ColumnOptions(AlignOptions):
    """Options of the columns of a new job."""

    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", help="Columns: a,b,c; for column owners once per owner: owner=a,b,c."),
    ] = None
    columns_from: Annotated[
        Path | None,
        typer.Option("--columns-from", help="Use the column names of this table. Nothing else of it is used."),
    ] = None
    drop: Annotated[list[str] | None, typer.Option("--drop", help="Columns of --columns-from to leave out.")] = None
    read: Annotated[
        ReadOptions, Help(missing="Missing values: 'refuse' the table, 'drop' the rows, or count them as the 'mean'.")
    ] = DEFAULTS
    minimum: Minimum = MIN_COMMON_IDS
    chunks: Chunks = None

    def columns_of(self) -> list[str] | dict[str, list[str]]:
        """Return the columns as a list or, of column owners, by owner."""
        if self.columns_from is not None:
            from ..member.contributing import columns_of
            from ..owner.tables.table import unknown_names

            held, left = columns_of(self.columns_from, self.read), names_in(self.drop) or []
            if unknown := [name for name in left if name not in held]:
                raise ValueError(f"--drop: {self.columns_from} does not have the column {unknown_names(unknown, held)}")
            return [name for name in held if name not in left]
        given = self.columns or [typer.prompt("columns, as a,b,c")]
        if all("=" in text for text in given):
            pairs = [text.partition("=") for text in given]
            return {owner: names_in([names]) or [] for owner, _, names in pairs}
        return names_in(given) or []


@dataclass(frozen=True, kw_only=True)
class JobOptions(ColumnOptions, AnalysisOptions):
    """Options of a new fit: columns and analysis."""

    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            help="Allowed uses of the kept model, each with its receiver, such as transform:analyst,flags:north.",
            rich_help_panel=RESULT,
        ),
    ] = None


@app.command()
@command()
def new(
    options: JobOptions,
    draft: DraftOptions,
    name: Annotated[str | None, typer.Argument(help="Name of the job.")] = None,
    output: Output = Path("job.toml"),
    federation: File = FEDERATION,
) -> None:
    """Write job.toml: the analysis, the data, and everything opened or revealed.

    Asks for missing options.

    Look at the file, then submit it to all members with ppca job submit.
    """
    membership, name, who, whom = _asked(federation, output, name, draft)
    job = draft.job(who, whom, options.columns_of(), options)
    write_draft(draft.propose(membership, name, job), output)


@dataclass(frozen=True, kw_only=True)
class RegressJobOptions(ColumnOptions, RegressionOptions):
    """Options of a new regression: columns and analysis."""


@app.command()
@command()
def regress(
    options: RegressJobOptions,
    draft: MembersOptions,
    name: Annotated[str | None, typer.Argument(help="Name of the job.")] = None,
    output: Output = Path("job.toml"),
    federation: File = FEDERATION,
) -> None:
    """Write job.toml of a joint regression of one column on all others.

    Asks for missing options.

    Look at the file, then submit it to all members with ppca job submit.
    """
    membership, name, who, whom = _asked(federation, output, name, draft)
    job = regression_of(draft, who, whom, options.columns_of(), options)
    write_draft(draft.propose(membership, name, job), output)


def _asked(
    federation: Path, output: Path, name: str | None, draft: MembersOptions
) -> tuple[Membership, str, list[str], list[str]]:
    """Return the members of the federation, and name, owners and receivers of a job; ask for missing ones."""
    membership = trusted(federation, output)
    name = name or typer.prompt("name of the job")
    who = (
        names_in(draft.owners)
        or names_in([typer.prompt(f"owners, as a,b,c (there are {_members(membership, 'owner')})")])
        or []
    )
    whom = draft.receivers or [typer.prompt(f"receiver of the result (there are {_members(membership, 'receiver')})")]
    return membership, name, who, whom


def _members(membership: Membership, role: str) -> str:
    return ", ".join(name for name in membership.keys if role in membership.roles(name)) or "none"


@dataclass(frozen=True, kw_only=True)
class UseOptions(LifetimeOptions):
    """Options of a job that uses a kept model on new rows."""

    operation: Annotated[str, typer.Option(help="Operation: transform or detect.")] = "transform"
    owners: Annotated[list[str] | None, typer.Option("--owner", help="Owners of the new rows: a,b,c.")] = None
    receiver: Annotated[str, typer.Option("--receiver", help="Receiver of the coordinates, flags or scores.")] = ""
    threshold: Annotated[float | None, typer.Option(help="Flag rows with a larger score.")] = None
    contamination: Annotated[
        float | None, typer.Option(help="Flag this fraction of the rows: those with the largest scores.")
    ] = None
    scores: Annotated[bool, typer.Option("--scores", help="Reveal the scores too.")] = False
    rows_at_least: Annotated[int | None, typer.Option(help="Refuse to run with fewer new rows than this.")] = None

    @property
    def parts(self) -> list[str]:
        """The parts of the result that the receiver gets."""
        if self.operation not in ("transform", "detect"):
            raise ValueError(f"--operation {self.operation} is unknown; choose transform or detect.")
        parts = verdict_parts(self.threshold, self.contamination, self.scores)
        if self.operation == "transform":
            if parts:
                raise ValueError("--operation transform does not accept --threshold, --contamination or --scores.")
            return [TRANSFORM]
        if not parts:
            raise ValueError("--operation detect needs one of --threshold, --contamination or --scores.")
        return parts


@app.command()
@command()
def use(
    name: Annotated[str, typer.Argument(help="Name of the job.")],
    model: Annotated[Path, typer.Option("--model", help="Folder of the fit's result, from ppca fetch.")],
    options: UseOptions,
    output: Output = Path("job.toml"),
    federation: File = FEDERATION,
) -> None:
    """Write job.toml to use a kept model on new rows of other owners.

    The owners of the model must approve, too.
    """
    from ..jobs.build import infer_job
    from ..jobs.infer import UseModel
    from ..member.fetching import EVIDENCE, Evidence
    from ..receiver import SharedFacts
    from .result import SHARED

    membership = trusted(federation, output)
    if not (model / SHARED).exists():
        raise ValueError(f"{model} tells of no kept model: fetch the result of a job with --keep-for.")
    fit, facts = Evidence.load(model / EVIDENCE).job, SharedFacts.load(model / SHARED)
    data = fit.spec.data
    columns = data.column_names
    owners = names_in(options.owners) or []
    job = infer_job(
        owners,
        {owner: columns[data.columns_of(owner)] for owner in data.owners} if data.by_columns else columns,
        {options.receiver: options.parts},
        UseModel(
            model=fit.id,
            model_owners=data.owners,
            threshold=options.threshold,
            contamination=options.contamination,
        ),
        facts.scale_exponents,
        federated=True,
        align=data.align,
        standardize=facts.standardized,
        rows_at_least=options.rows_at_least,
    )
    write_draft(options.propose(membership, name, job), output)


@app.command()
@command()
def submit(
    me: MemberOptions,
    job: JobName = "job.toml",
) -> None:
    """Submit a job to all members.

    Servers answer by their policy, owners are asked for approval.
    """
    with me.member() as member:
        known = member.find(job)
        member.submit(known)
        Terminal().print(Text(f"submitted: {known.name}, job {known.id}"), soft_wrap=True)
        tell_job_state(member, known)


@app.command()
@command()
def cancel(
    job: JobName,
    me: MemberOptions,
) -> None:
    """Cancel a job before it is done. The servers erase its data."""
    with me.member() as member:
        known = member.find(job)
        member.cancel(known)
        Terminal().print(Text(f"cancelled: {known.name}"), soft_wrap=True)


@app.command()
@command()
def resume(
    job: JobName,
    me: MemberOptions,
) -> None:
    """Let the servers attempt a held job again. For operators.

    A job is held after several failed attempts. Nothing of it is erased. Find the cause first: ppca status shows it.
    """
    with me.member() as member:
        known = member.find(job)
        member.resume(known)
        Terminal().print(Text(f"resumed: {known.name}"), soft_wrap=True)
        tell_job_state(member, known)
