"""`ppca job`: propose, submit, cancel and resume jobs of a federation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ..owner.tables.options import DEFAULTS, ReadOptions
from .complaint import complaints
from .federation import FEDERATION, IDENTITY, File, IdentityFile
from .member import JobName, StateFolder, member_at, tell_course
from .options import COLUMNS, RESULT, SOLVER, SOLVER_HELP, component_count, names_in, reading_options
from .terminal import Terminal

if TYPE_CHECKING:
    pass

app = typer.Typer(help="Jobs of a federation: propose, submit, cancel, resume.", no_args_is_help=True)


@app.command()
@reading_options(without=["missing"])
def new(
    name: Annotated[str | None, typer.Argument(help="what the job is called")] = None,
    owners: Annotated[list[str] | None, typer.Option("--owner", help="an owner, or several: a,b,c")] = None,
    receivers: Annotated[
        list[str] | None,
        typer.Option(
            "--receiver",
            help="a receiver of the model; name:components,variances for parts of it; of an owner of columns name:loadings",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", help="columns: a,b,c; of owners of columns once for each: owner=a,b,c"),
    ] = None,
    columns_from: Annotated[
        Path | None, typer.Option("--columns-from", help="take the columns of this table; nothing else of it is used")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option("--drop", help="columns of --columns-from to leave out")] = None,
    read: ReadOptions = DEFAULTS,
    components: Annotated[
        str, typer.Option("--components", "-k", help="how many; a part of the variance; or 'all'")
    ] = "all",
    standardize: Annotated[bool, typer.Option("--standardize", help="divide columns by their joint deviation")] = False,
    missing: Annotated[str, typer.Option(help="rows with a missing value: refuse, drop, or mean")] = "refuse",
    wide: Annotated[
        bool,
        typer.Option("--wide", help="there are fewer rows than columns: analyse products of rows, not the covariance"),
    ] = False,
    rows_at_least: Annotated[
        int | None,
        typer.Option(min=1, help="compute nothing if there are fewer rows; of owners of rows checked on shares"),
    ] = None,
    alignment: Annotated[str, typer.Option(help="psi, aligned or namespace", rich_help_panel=COLUMNS)] = "psi",
    namespace: Annotated[int | None, typer.Option(help="number of ids", rich_help_panel=COLUMNS)] = None,
    minimum: Annotated[int, typer.Option(min=1, help="stop if fewer ids are common", rich_help_panel=COLUMNS)] = 10,
    row_share_at_most: Annotated[
        float,
        typer.Option(
            help="stop if one row has more of a column's sum of squares; 1: no check", rich_help_panel=COLUMNS
        ),
    ] = 0.75,
    fold_case: Annotated[
        bool, typer.Option("--fold-case", help="ids may differ in case", rich_help_panel=COLUMNS)
    ] = False,
    solver: Annotated[str, typer.Option(help=SOLVER_HELP, rich_help_panel=SOLVER)] = "auto",
    tol: Annotated[float, typer.Option(help="where the eigensolver stops", rich_help_panel=SOLVER)] = 1e-9,
    fixed_iterations: Annotated[
        int | None, typer.Option(min=1, help="so many, in place of a number by the columns", rich_help_panel=SOLVER)
    ] = None,
    until_converged: Annotated[
        bool,
        typer.Option(
            "--until-converged", help="open one bit per iteration, in place of a fixed number", rich_help_panel=SOLVER
        ),
    ] = False,
    keep_for: Annotated[
        str | None,
        typer.Option("--keep-for", help="seats keep the model in shares for so long, as 90d", rich_help_panel=RESULT),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow", help="what a kept model is for: transform:analyst, flags:north", rich_help_panel=RESULT
        ),
    ] = None,
    expires: Annotated[str, typer.Option(help="the job ends unfinished after so long, as 7d")] = "7d",
    erase_after: Annotated[str, typer.Option(help="seats erase the job so long after its end, as 7d")] = "7d",
    output: Annotated[Path, typer.Option("--output", "-o", help="file of the job")] = Path("job.toml"),
    federation: File = FEDERATION,
) -> None:
    """Write job.toml: what is computed, of whose data, and what is opened to whom. Asks for what is not given.

    Look at the file, then lay it before everybody with ppca job submit.
    """
    with complaints(new):
        from ..federation.drafting import draft_fit
        from ..federation.jobfile import after
        from ..federation.roster import Roster, write_whole

        if output.exists():
            raise ValueError(f"{output} exists. Choose another file with -o.")
        roster = Roster.trusted(federation)
        name = name or typer.prompt("name of the job")
        who = (
            names_in(owners)
            or names_in([typer.prompt(f"owners, as a,b,c (there are {_members(roster, 'owner')})")])
            or []
        )
        whom = receivers or [typer.prompt(f"receiver of the model (there are {_members(roster, 'receiver')})")]
        taken = _columns(columns, columns_from, names_in(drop) or [], read)
        count = component_count(components)
        fit = {
            "components": "all" if count is None else count,
            "standardize": standardize,
            "solver": solver,
            "tol": tol,
        }
        fit |= {"missing": missing} | ({} if fixed_iterations is None else {"fixed_iterations": fixed_iterations})
        align = {"way": alignment, "minimum": minimum, "fold_case": fold_case, "row_share_at_most": row_share_at_most}
        align |= {} if namespace is None else {"namespace": namespace}
        keep = None
        if keep_for is not None:
            from datetime import UTC, datetime

            keep = {"until": after(datetime.now(UTC).replace(microsecond=0), keep_for), "allow": _allowed(allow or [])}
        elif allow:
            raise ValueError("--allow is about a model that seats keep: add --keep-for.")
        job = draft_fit(
            *(roster, name, who, taken, _parts(whom)),
            expires=expires,
            erase_after=erase_after,
            fit=fit,
            align=align,
            keep=keep,
            wide=wide,
            rows_at_least=rows_at_least,
            until_converged=until_converged,
        )
        write_whole(output, job.data)
        Terminal().print(Text(f"written: {output}, job {job.id[:12]}. Next: ppca job submit {output}"), soft_wrap=True)


def _members(roster: Any, role: str) -> str:
    return ", ".join(name for name in roster.keys if role in roster.roles(name)) or "none"


def _columns(
    given: Sequence[str] | None, table: Path | None, left: Sequence[str], read: ReadOptions
) -> list[str] | dict[str, list[str]]:
    """Columns as a list or, of owners of columns, by owner."""
    if table is not None:
        from ..member.contributing import columns_of
        from ..owner.tables.table import unknown_names

        held = columns_of(table, read)
        if unknown := [name for name in left if name not in held]:
            raise ValueError(f"--drop: {table} has no column {unknown_names(unknown, held)}")
        return [name for name in held if name not in left]
    given = given or [typer.prompt("columns, as a,b,c")]
    if all("=" in text for text in given):
        pairs = [text.partition("=") for text in given]
        return {owner: names_in([names]) or [] for owner, _, names in pairs}
    return names_in(given) or []


def _parts(receivers: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in receivers:
        receiver, _, parts = text.partition(":")
        found[receiver] = [part.strip() for part in parts.split(",")] if parts else ["model"]
    return found


def _allowed(given: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in given:
        operation, _, receiver = text.partition(":")
        if not receiver:
            raise ValueError(f"--allow {text}: name the receiver too, as {operation}:analyst.")
        found.setdefault(operation, []).append(receiver)
    return found


@app.command()
def use(
    name: Annotated[str, typer.Argument(help="what the job is called")],
    model: Annotated[Path, typer.Option("--model", help="folder of the fit's result, from ppca fetch")],
    operation: Annotated[str, typer.Option(help="transform or detect")] = "transform",
    owners: Annotated[list[str] | None, typer.Option("--owner", help="who has the new rows: a,b,c")] = None,
    receiver: Annotated[str, typer.Option("--receiver", help="who gets the coordinates, flags or scores")] = "",
    threshold: Annotated[float | None, typer.Option(help="flag rows with a larger score")] = None,
    contamination: Annotated[
        float | None, typer.Option(help="flag this part of the rows, those with the largest scores")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="reveal the scores too")] = False,
    rows_at_least: Annotated[int | None, typer.Option(help="refuse to run with fewer new rows than this")] = None,
    expires: Annotated[str, typer.Option(help="the job ends unfinished after so long")] = "7d",
    erase_after: Annotated[str, typer.Option(help="seats erase the job so long after its end")] = "7d",
    output: Annotated[Path, typer.Option("--output", "-o", help="file of the job")] = Path("job.toml"),
    federation: File = FEDERATION,
) -> None:
    """Write job.toml for the use of a kept model on new rows of other owners. The owners of the model are asked again, too."""
    with complaints(use):
        from ..federation.drafting import draft_infer
        from ..federation.roster import Roster, write_whole
        from ..member.fetching import EVIDENCE, Evidence
        from ..receiver import SharedFacts
        from .result import SHARED

        if output.exists():
            raise ValueError(f"{output} exists. Choose another file with -o.")
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
            *(Roster.trusted(federation), name, names_in(owners) or [], receiver),
            {key: value for key, value in infer.items() if value is not None},
            columns,
            align=None
            if fit.file.align is None
            else fit.file.align.model_dump(exclude_none=True, exclude={"row_share_at_most"}),
            rows_at_least=rows_at_least,
            expires=expires,
            erase_after=erase_after,
        )
        write_whole(output, job.data)
        Terminal().print(Text(f"written: {output}, job {job.id[:12]}. Next: ppca job submit {output}"), soft_wrap=True)


@app.command()
def submit(
    job: JobName = "job.toml",
    federation: File = FEDERATION,
    identity: IdentityFile = IDENTITY,
    state: StateFolder = None,
) -> None:
    """Lay a job before everybody: seats answer by their policy, owners are asked for their approval."""
    with complaints(submit), member_at(federation, identity, state) as member:
        known = member.find(job)
        member.submit(known)
        Terminal().print(Text(f"submitted: {known.name}, job {known.id}"), soft_wrap=True)
        tell_course(member, known)


@app.command()
def cancel(
    job: JobName,
    federation: File = FEDERATION,
    identity: IdentityFile = IDENTITY,
    state: StateFolder = None,
) -> None:
    """End a job before it is done; seats erase what they have of it."""
    with complaints(cancel), member_at(federation, identity, state) as member:
        known = member.find(job)
        member.cancel(known)
        Terminal().print(Text(f"cancelled: {known.name}"), soft_wrap=True)


@app.command()
def resume(
    job: JobName,
    federation: File = FEDERATION,
    identity: IdentityFile = IDENTITY,
    state: StateFolder = None,
) -> None:
    """Let the servers attempt a held job again. For operators.

    A job is held after several failed attempts. Nothing of it is erased. Find the cause first: ppca status shows it.
    """
    with complaints(resume), member_at(federation, identity, state) as member:
        known = member.find(job)
        member.resume(known)
        Terminal().print(Text(f"resumed: {known.name}"), soft_wrap=True)
        tell_course(member, known)
