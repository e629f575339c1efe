"""Options of a job that is proposed to a federation, and the job.toml that they make: `ppca job new` and `ppca fit
--draft`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer
from rich.text import Text

from ..owner.tables.options import ReadOptions
from .federation import FEDERATION
from .options import COLUMNS, RESULT, names_in
from .terminal import Terminal

if TYPE_CHECKING:
    from ..federation.membership import Membership
    from ..federation.proposal import ProposedJob
    from ..jobs.pca import JointPCA
    from ..jobs.regression import JointRegression
    from ..jobs.spec import Align, JobSpec, Keep
    from .fit_options import FitOptions, TableOptions

OPTIONS = {"owners": "--owner", "receivers": "--receiver"}
"""Options that are not called like their field."""

DRAFT = "Job of a federation (job.toml)"

Columns = Sequence[str] | Mapping[str, Sequence[str]]
"""Columns of a job: a list or, of column owners, by owner."""


class Chosen(Protocol):
    """Options of a fit, wherever it runs."""

    @property
    def analysis(self) -> JointPCA: ...
    @property
    def until_converged(self) -> bool: ...
    @property
    def standardize(self) -> bool: ...
    @property
    def read(self) -> ReadOptions: ...
    @property
    def minimum(self) -> int: ...
    @property
    def chunks(self) -> int | None: ...
    @property
    def allow(self) -> list[str] | None: ...
    def align(self, minimum: int, row_share_at_most: float | None) -> Align: ...


@dataclass(frozen=True, kw_only=True)
class LifetimeOptions:
    """Options of the duration of a job."""

    expires: Annotated[
        str,
        typer.Option(
            help="End the job if it is unfinished after this time, such as 7d, or at a date, such as "
            "2030-01-31T12:00:00Z.",
            rich_help_panel=DRAFT,
        ),
    ] = "7d"
    erase_after: Annotated[
        str,
        typer.Option(help="Erase the job on the servers this long after its end, such as 7d.", rich_help_panel=DRAFT),
    ] = "7d"

    def propose(self, membership: Membership, name: str, job: JobSpec) -> ProposedJob:
        """Return the job as a file for the members of the federation."""
        from ..federation.proposal import propose

        return propose(membership.digest, name, job, expires=self.expires, erase_after=self.erase_after)


@dataclass(frozen=True, kw_only=True)
class MembersOptions(LifetimeOptions):
    """Options of the members of a job, which only a federation needs."""

    owners: Annotated[
        list[str] | None, typer.Option("--owner", help="Names of owners: a,b,c. Repeatable.", rich_help_panel=DRAFT)
    ] = None
    receivers: Annotated[
        list[str] | None,
        typer.Option(
            "--receiver",
            help="A receiver of the result. name:part,part reveals only these parts to it. Repeatable.",
            rich_help_panel=DRAFT,
        ),
    ] = None
    rows_at_least: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Minimum number of joint rows. With row owners, the servers check it on shares.",
            rich_help_panel=DRAFT,
        ),
    ] = None
    row_share_at_most: Annotated[
        float | None,
        typer.Option(
            help="Stop if one row has more than this fraction of a column's sum of squares. Default: 0.75. 1: no "
            "check.",
            rich_help_panel=COLUMNS,
        ),
    ] = None

    def check_unused(self) -> None:
        """Refuse options that have a meaning in job.toml only."""
        given = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        if given:
            options = ", ".join(OPTIONS.get(name, f"--{name.replace('_', '-')}") for name in given)
            raise ValueError(f"{options}: only a job of a federation has this. Add --draft job.toml to write one.")

    def data_of(self, columns: Columns, read: ReadOptions, chunks: int | None) -> dict[str, Any]:
        """Return fields of the data of a job that do not depend on its analysis."""
        by_columns = isinstance(columns, Mapping)
        found = {"missing": read.missing, "rows_at_least": self.rows_at_least}
        return found | {"chunks": chunks if by_columns else None}


@dataclass(frozen=True, kw_only=True)
class DraftOptions(MembersOptions):
    """Options of a fit of several members."""

    wide: Annotated[
        bool,
        typer.Option(
            "--wide",
            help="Analyse products of rows instead of the covariance: for fewer rows than columns.",
            rich_help_panel=DRAFT,
        ),
    ] = False
    keep_for: Annotated[
        str | None,
        typer.Option(
            "--keep-for",
            help="Keep the model as shares on the servers for this time, such as 90d, or until a date.",
            rich_help_panel=RESULT,
        ),
    ] = None

    def job(
        self,
        owners: Sequence[str],
        receivers: Sequence[str],
        columns: Columns,
        chosen: Chosen,
    ) -> JobSpec:
        """Return the job of these members. columns: a list or, of column owners, by owner."""
        from ..jobs.build import pca_job

        by_columns = isinstance(columns, Mapping)
        data = {"standardize": chosen.standardize, **self.data_of(columns, chosen.read, chosen.chunks)}
        return pca_job(
            *(owners, columns, parts_in(receivers, ["model"]), chosen.analysis),
            wide=self.wide,
            federated=True,
            fixed=not chosen.until_converged,
            align=chosen.align(chosen.minimum, self.row_share_at_most) if by_columns else None,
            keep=self.keep(chosen.allow),
            **data,
        )

    def keep(self, allow: Sequence[str] | None) -> Keep | None:
        """Return what servers keep, and for whom. allow: as operation:receiver."""
        from ..federation.times import moment
        from ..jobs.spec import Keep

        if self.keep_for is None:
            if allow:
                raise ValueError("--allow is about a model that servers keep: add --keep-for.")
            return None
        allowed: dict[str, tuple[str, ...]] = {}
        for text in names_in(allow) or []:
            operation, _, receiver = text.partition(":")
            if not receiver:
                raise ValueError(f"--allow {text}: name the receiver too, as {operation}:analyst.")
            allowed[operation] = (*allowed.get(operation, ()), receiver)
        return Keep(until=moment(self.keep_for), allow=allowed)


class ChosenRegression(Protocol):
    """Options of a regression, wherever it runs."""

    @property
    def target(self) -> str: ...
    @property
    def parts(self) -> tuple[str, ...]: ...
    @property
    def read(self) -> ReadOptions: ...
    @property
    def minimum(self) -> int: ...
    @property
    def chunks(self) -> int | None: ...
    def analysis(self, target: str) -> JointRegression: ...
    def align(self, minimum: int, row_share_at_most: float | None) -> Align: ...


def regression_of(
    draft: MembersOptions, owners: Sequence[str], receivers: Sequence[str], columns: Columns, chosen: ChosenRegression
) -> JobSpec:
    """Return the regression of these members."""
    from ..jobs.build import regression_job

    by_columns = isinstance(columns, Mapping)
    target = chosen.target
    if isinstance(columns, Mapping):
        holders = [owner for owner, names in columns.items() if target in (*names, *(f"{owner}:{n}" for n in names))]
        if len(holders) == 1 and target not in columns[holders[0]]:
            target = target.removeprefix(f"{holders[0]}:")
    return regression_job(
        *(owners, columns, parts_in(receivers, chosen.parts), chosen.analysis(target)),
        federated=True,
        align=chosen.align(chosen.minimum, draft.row_share_at_most) if by_columns else None,
        **draft.data_of(columns, chosen.read, chosen.chunks),
    )


def draft_fit(files: Sequence[str], options: FitOptions, draft: DraftOptions, name: str | None, path: Path) -> None:
    """Write the job.toml of a fit whose columns are those of these files. Their rows are not read."""
    if options.keeps:
        raise ValueError("--keep and --no-reveal are for local servers: with --draft give --keep-for and --allow.")
    membership, owners, columns = draft_of(files, options, draft, name, path)
    job = draft.job(owners, draft.receivers or [], columns, options)
    write_draft(draft.propose(membership, str(name), job), path, quiet=options.quiet)


def draft_of(
    files: Sequence[str], options: TableOptions, draft: MembersOptions, name: str | None, path: Path
) -> tuple[Membership, list[str], Columns]:
    """Return the members of the federation, the owners, and the columns of these files."""
    if name is None or not draft.owners or not draft.receivers:
        raise ValueError("--draft needs --name, --owner and --receiver: the files do not name their owners.")
    membership = trusted(options.federation or FEDERATION, path)
    owners = names_in(draft.owners) or []
    tables = options.tables(files)
    if unnamed := [table.label for table in tables if table.names is None]:
        raise ValueError(f"--draft: {', '.join(unnamed)} does not have column names; a job needs them.")
    if not options.vertical:
        return membership, owners, list(tables[0].names or ())
    if len(tables) != len(owners):
        raise ValueError(
            f"--owner: {len(owners)} owners for {len(tables)} files; give one for each file, in their order."
        )
    return membership, owners, {owner: list(table.names or ()) for owner, table in zip(owners, tables, strict=True)}


def parts_in(receivers: Sequence[str], usual: Sequence[str]) -> dict[str, list[str]]:
    """Return the parts of each receiver, which is given as its name, for the usual parts, or as name:parts."""
    found: dict[str, list[str]] = {}
    for text in receivers:
        receiver, _, parts = text.partition(":")
        found[receiver] = [part.strip() for part in parts.split(",")] if parts else list(usual)
    return found


def write_draft(job: ProposedJob, path: Path, *, quiet: bool = False) -> None:
    """Write job.toml, and tell what comes next."""
    from ..runtime.files import write_whole

    write_whole(path, job.data)
    text = f"written: {path}, job {job.id[:12]}. Next: ppca job submit {path}"
    Terminal(quiet=quiet).print(Text(text), soft_wrap=True)


def trusted(federation: Path, output: Path) -> Membership:
    """Return the members of the federation; refuse to replace a file."""
    from ..federation.membership import Membership

    if output.exists():
        raise ValueError(f"{output} exists. Choose another file.")
    return Membership.trusted(federation)
