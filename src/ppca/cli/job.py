"""`ppca job`: propose, submit, cancel and resume jobs of a federation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ..owner.tables.options import DEFAULTS, ReadOptions
from .federation import FEDERATION, File
from .member import JobName, MemberOptions, tell_course
from .options import COLUMNS, RESULT, SOLVER, AlignOptions, AnalysisOptions, Help, Minimum, command, names_in
from .terminal import Terminal

if TYPE_CHECKING:
    from ..federation.drafting import Lifetime
    from ..federation.job import JobDescription
    from ..federation.roster import Roster

app = typer.Typer(help="Jobs of a federation: propose, submit, cancel, resume.", no_args_is_help=True)


@dataclass(frozen=True, kw_only=True)
class ProposalOptions:
    """The file of a new job."""

    expires: Annotated[str, typer.Option(help="the job ends unfinished after this time, such as 7d")] = "7d"
    erase_after: Annotated[str, typer.Option(help="the servers erase the job this long after its end, such as 7d")] = (
        "7d"
    )
    output: Annotated[Path, typer.Option("--output", "-o", help="file of the job")] = Path("job.toml")
    federation: File = FEDERATION

    def roster(self) -> Roster:
        """Return the members of the federation; refuse to replace a file."""
        from ..federation.roster import Roster

        if self.output.exists():
            raise ValueError(f"{self.output} exists. Choose another file with -o.")
        return Roster.trusted(self.federation)

    def lifetime(self) -> Lifetime:
        from ..federation.drafting import Lifetime

        return Lifetime(self.expires, self.erase_after)

    def write(self, job: JobDescription) -> None:
        from ..servers.files import write_whole

        write_whole(self.output, job.data)
        text = f"written: {self.output}, job {job.id[:12]}. Next: ppca job submit {self.output}"
        Terminal().print(Text(text), soft_wrap=True)


@dataclass(frozen=True, kw_only=True)
class JobOptions(ProposalOptions, AlignOptions, AnalysisOptions):
    """What a new job computes, from which columns, and what the servers keep of it."""

    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", help="columns: a,b,c; of owners of columns once for each: owner=a,b,c"),
    ] = None
    columns_from: Annotated[
        Path | None, typer.Option("--columns-from", help="take the columns of this table; nothing else of it is used")
    ] = None
    drop: Annotated[list[str] | None, typer.Option("--drop", help="columns of --columns-from to leave out")] = None
    read: Annotated[
        ReadOptions, Help(missing="missing values: 'refuse' the table, 'drop' the rows, or count them as the 'mean'")
    ] = DEFAULTS
    wide: Annotated[
        bool,
        typer.Option("--wide", help="there are fewer rows than columns: analyse products of rows, not the covariance"),
    ] = False
    rows_at_least: Annotated[
        int | None,
        typer.Option(min=1, help="compute nothing if there are fewer rows; of owners of rows checked on shares"),
    ] = None
    minimum: Minimum = 10
    row_share_at_most: Annotated[
        float,
        typer.Option(
            help="stop if one row has more of a column's sum of squares; 1: no check", rich_help_panel=COLUMNS
        ),
    ] = 0.75
    until_converged: Annotated[
        bool,
        typer.Option(
            "--until-converged",
            help="open one bit per iteration, instead of a fixed number of iterations for these columns",
            rich_help_panel=SOLVER,
        ),
    ] = False
    keep_for: Annotated[
        str | None,
        typer.Option(
            "--keep-for", help="servers keep the model in shares for this time, such as 90d", rich_help_panel=RESULT
        ),
    ] = None
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            help="what the kept model may be used for: transform:analyst, flags:north",
            rich_help_panel=RESULT,
        ),
    ] = None

    def columns_of(self) -> list[str] | dict[str, list[str]]:
        """Return the columns as a list or, of column owners, by owner."""
        if self.columns_from is not None:
            from ..member.contributing import columns_of
            from ..owner.tables.table import unknown_names

            held, left = columns_of(self.columns_from, self.read), names_in(self.drop) or []
            if unknown := [name for name in left if name not in held]:
                raise ValueError(f"--drop: {self.columns_from} has no column {unknown_names(unknown, held)}")
            return [name for name in held if name not in left]
        given = self.columns or [typer.prompt("columns, as a,b,c")]
        if all("=" in text for text in given):
            pairs = [text.partition("=") for text in given]
            return {owner: names_in([names]) or [] for owner, _, names in pairs}
        return names_in(given) or []

    def fit(self) -> dict[str, Any]:
        """Return the table [fit]."""
        count = self.component_count
        found: dict[str, Any] = {
            "components": "all" if count is None else count,
            "standardize": self.standardize,
            "solver": self.solver,
            "tol": self.tol,
            "missing": self.read.missing,
        }
        if self.fixed_iterations is not None or self.until_converged:
            found |= {"fixed_iterations": self.fixed_iterations}
        return found

    def align(self) -> dict[str, Any]:
        """Return the table [align]."""
        found = {
            "way": self.alignment,
            "minimum": self.minimum,
            "fold_case": self.fold_case,
            "row_share_at_most": self.row_share_at_most,
        }
        return found if self.namespace is None else found | {"namespace": self.namespace}

    def keep(self) -> dict[str, Any] | None:
        """Return the table [keep], if servers keep the model."""
        from ..federation.jobfile import after

        if self.keep_for is None:
            if self.allow:
                raise ValueError("--allow is about a model that servers keep: add --keep-for.")
            return None
        allowed: dict[str, list[str]] = {}
        for text in self.allow or []:
            operation, _, receiver = text.partition(":")
            if not receiver:
                raise ValueError(f"--allow {text}: name the receiver too, as {operation}:analyst.")
            allowed.setdefault(operation, []).append(receiver)
        return {"until": after(datetime.now(UTC).replace(microsecond=0), self.keep_for), "allow": allowed}


@app.command()
@command()
def new(
    options: JobOptions,
    name: Annotated[str | None, typer.Argument(help="what the job is called")] = None,
    owners: Annotated[list[str] | None, typer.Option("--owner", help="an owner, or several: a,b,c")] = None,
    receivers: Annotated[
        list[str] | None,
        typer.Option(
            "--receiver",
            help="a receiver of the model; name:components,variances for parts of it; of an owner of columns name:loadings",
        ),
    ] = None,
) -> None:
    """Write job.toml: what is computed, of whose data, and what is opened to whom. Asks for what is not given.

    Look at the file, then submit it to all members with ppca job submit.
    """
    from ..federation.drafting import draft_fit

    roster = options.roster()
    name = name or typer.prompt("name of the job")
    who = (
        names_in(owners) or names_in([typer.prompt(f"owners, as a,b,c (there are {_members(roster, 'owner')})")]) or []
    )
    whom = receivers or [typer.prompt(f"receiver of the model (there are {_members(roster, 'receiver')})")]
    job = draft_fit(
        *(roster, name, who, options.columns_of(), _parts(whom)),
        lasts=options.lifetime(),
        fit=options.fit(),
        align=options.align(),
        keep=options.keep(),
        wide=options.wide,
        rows_at_least=options.rows_at_least,
    )
    options.write(job)


def _members(roster: Roster, role: str) -> str:
    return ", ".join(name for name in roster.keys if role in roster.roles(name)) or "none"


def _parts(receivers: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in receivers:
        receiver, _, parts = text.partition(":")
        found[receiver] = [part.strip() for part in parts.split(",")] if parts else ["model"]
    return found


@app.command()
@command()
def use(
    name: Annotated[str, typer.Argument(help="what the job is called")],
    model: Annotated[Path, typer.Option("--model", help="folder of the fit's result, from ppca fetch")],
    options: ProposalOptions,
    operation: Annotated[str, typer.Option(help="transform or detect")] = "transform",
    owners: Annotated[list[str] | None, typer.Option("--owner", help="who has the new rows: a,b,c")] = None,
    receiver: Annotated[str, typer.Option("--receiver", help="who gets the coordinates, flags or scores")] = "",
    threshold: Annotated[float | None, typer.Option(help="flag rows with a larger score")] = None,
    contamination: Annotated[
        float | None, typer.Option(help="flag this part of the rows, those with the largest scores")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="reveal the scores too")] = False,
    rows_at_least: Annotated[int | None, typer.Option(help="refuse to run with fewer new rows than this")] = None,
) -> None:
    """Write job.toml for the use of a kept model on new rows of other owners. The owners of the model are asked again, too."""
    from ..federation.drafting import draft_infer
    from ..member.fetching import EVIDENCE, Evidence
    from ..receiver import SharedFacts
    from .result import SHARED

    roster = options.roster()
    if not (model / SHARED).exists():
        raise ValueError(f"{model} tells of no kept model: fetch the result of a job with --keep-for.")
    fit, facts = Evidence.load(model / EVIDENCE).job, SharedFacts.load(model / SHARED)
    infer = {
        "model": fit.id,
        "model_owners": list(fit.file.owners),
        "operation": operation,
        "threshold": threshold,
        "contamination": contamination,
        "scores": scores,
        "standardized": facts.standardized,
        "scale_exponents": [int(e) for e in facts.scale_exponents],
    }
    columns = fit.file.columns if isinstance(fit.file.columns, Mapping) else list(fit.file.columns)
    job = draft_infer(
        *(roster, name, names_in(owners) or [], receiver),
        {key: value for key, value in infer.items() if value is not None},
        columns,
        align=None
        if fit.file.align is None
        else fit.file.align.model_dump(exclude_none=True, exclude={"row_share_at_most"}),
        rows_at_least=rows_at_least,
        lasts=options.lifetime(),
    )
    options.write(job)


@app.command()
@command()
def submit(
    me: MemberOptions,
    job: JobName = "job.toml",
) -> None:
    """Lay a job before everybody: seats answer by their policy, owners are asked for their approval."""
    with me.member() as member:
        known = member.find(job)
        member.submit(known)
        Terminal().print(Text(f"submitted: {known.name}, job {known.id}"), soft_wrap=True)
        tell_course(member, known)


@app.command()
@command()
def cancel(
    job: JobName,
    me: MemberOptions,
) -> None:
    """End a job before it is done; seats erase what they have of it."""
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
        tell_course(member, known)
