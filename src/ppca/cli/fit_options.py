"""The options of `ppca fit`, which `ppca check` has too, and what they mean together."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..jobs.spec import MIN_COMMON_IDS
from ..owner.rows import MIN_ROWS
from ..owner.tables.options import DEFAULTS, ReadOptions
from .options import (
    ADDRESSES,
    COLUMNS,
    KINDS,
    RESULT,
    SERVERS,
    TABLES,
    AlignOptions,
    AnalysisOptions,
    Chunks,
    DaskOptions,
    IdColumns,
    Minimum,
    MinRows,
    OutputOptions,
    ServerOptions,
    names_in,
)

if TYPE_CHECKING:
    from ..estimator.partition import Columns
    from ..estimator.plan import Plan
    from ..owner.tables.owners import Collect
    from ..owner.tables.table import Table
    from ..runtime import Servers

TITLE = "Joint PCA"
Files = Annotated[list[str], typer.Argument(help=f"One table per owner: {KINDS}; {ADDRESSES}.")]

USUAL = ("transform", "flags")
"""Default uses of a kept model. There is no command for partial fits, so sums are not kept."""


@dataclass(frozen=True, kw_only=True)
class TableOptions(ServerOptions, OutputOptions, AlignOptions, DaskOptions):
    """Tables of owners, the servers that compute, and the folder of the result. Methods raise ValueError for what the
    command would refuse; none of them writes a file."""

    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", help="Columns to use: a,b,c. Repeatable.", rich_help_panel=TABLES),
    ] = None
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", help="Columns to omit: a,b,c. Repeatable.", rich_help_panel=TABLES),
    ] = None
    read: ReadOptions = DEFAULTS
    vertical: Annotated[
        bool,
        typer.Option(
            "--vertical", help="Owners hold different columns of the same individuals.", rich_help_panel=COLUMNS
        ),
    ] = False
    id: IdColumns = None
    minimum: Minimum = MIN_COMMON_IDS
    chunks: Chunks = None
    workers: Annotated[
        str,
        typer.Option(
            help="Worker processes per server (0: the server itself), or 'dask' (its cluster).",
            rich_help_panel=COLUMNS,
        ),
    ] = "0"
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the result.", rich_help_panel=RESULT)] = (
        Path("result")
    )
    title: Annotated[str, typer.Option(help="Title of the report.", rich_help_panel=RESULT)] = TITLE
    min_rows: MinRows = MIN_ROWS
    profile: Annotated[
        bool, typer.Option("--profile", help="Show time and traffic by stage.", rich_help_panel=RESULT)
    ] = False
    federation: Annotated[
        Path | None,
        typer.Option(
            help="Use the servers of this federation.toml. You act as the owner of all files.", rich_help_panel=SERVERS
        ),
    ] = None
    identity: Annotated[
        Path,
        typer.Option(help="Your private key file, for --federation.", envvar="PPCA_IDENTITY", rich_help_panel=SERVERS),
    ] = Path("identity.key")

    def check_tables(self, known: Collection[str], collect: Collect) -> None:
        """Refuse options of tables that exclude each other, and folders and keys that cannot be used. known: names of
        the files of a result."""
        from .folder import check_free

        with collect():
            check_free(self.output, known, replace=self.force)
        with collect():
            if not self.vertical and (self.id or self.namespace is not None):
                raise ValueError("--id and --namespace are for owners of different columns: add --vertical.")
            if not self.vertical and self.columns and self.drop:
                raise ValueError(
                    "--columns and --drop exclude each other: name the columns to take, or those to leave out."
                )
        with collect():
            self.servers(None)

    def servers(self, state: Path | None) -> Servers:
        """The servers that compute; they are not started or connected yet."""
        if self.federation is not None:
            from ..member.federation_servers import Federation

            return Federation.open(self.federation, self.identity)
        return self.local_servers(state, self.workers)

    def partition(self) -> str | Columns:
        return self.matched_by(self.id, self.minimum, self.chunks) if self.vertical else "rows"

    def tables(self, files: Sequence[str], collect: Collect = nullcontext) -> list[Table]:
        """Open all owners' tables; rows are not read yet."""
        from ..owner.tables.owners import open_columns, open_rows, set_min_rows

        columns, drop = names_in(self.columns), names_in(self.drop)
        read = replace(self.read, dask=self.dask is not None)
        if self.vertical:
            tables = open_columns(files, self.id, columns=columns, drop=drop, options=read, collect=collect)
        else:
            tables = open_rows(files, columns=columns, drop=drop, options=read, collect=collect)
        set_min_rows(tables, self.min_rows)
        return tables


@dataclass(frozen=True, kw_only=True)
class FitOptions(TableOptions, AnalysisOptions):
    """One field per option of a fit."""

    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Keep the model as shares on the servers, for ppca transform and ppca detect.",
            rich_help_panel=RESULT,
        ),
    ] = False
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            help="Allowed uses: transform, flags, scores, inverse. Default: transform,flags. transform:2 is for owner "
            "2 only.",
            rich_help_panel=RESULT,
        ),
    ] = None
    reveal: Annotated[
        bool,
        typer.Option(
            "--reveal/--no-reveal",
            help="Receive the model. With --no-reveal only the servers keep it, as shares.",
            rich_help_panel=RESULT,
        ),
    ] = True
    scores: Annotated[
        bool,
        typer.Option(
            "--scores",
            help="Show every row as a point in report.html, projected on this machine.",
            rich_help_panel=RESULT,
        ),
    ] = False

    @property
    def keeps(self) -> bool:
        """Return whether servers keep the model."""
        return self.keep or not self.reveal

    def check(self, collect: Collect = nullcontext) -> None:
        """Refuse options that exclude each other, and folders and keys that cannot be used."""
        from .result import KNOWN
        from .shares import check_state_folder, kept_as

        self.check_tables(KNOWN, collect)
        with collect():
            kept_as(self.output)
        with collect():
            if self.allow and not self.keeps:
                raise ValueError("--allow is about a model that servers keep: add --keep.")
            if self.federation is not None and self.keeps:
                raise ValueError("servers keep a model for its owners, not for a command: ppca job new --keep-for.")
            if self.keeps:
                check_state_folder(self.servers_state)
        with collect():
            if self.scores and (self.vertical or not self.reveal or self.read.missing == "mean"):
                raise ValueError(
                    "--scores needs a revealed model and owners' whole rows: it excludes --vertical, "
                    "--no-reveal and --missing mean."
                )

    def plan(self, partition: str | Columns, keep: str | None) -> Plan:
        """The parameters of the fit. keep: the name under which servers keep the model."""
        from ..estimator.plan import Plan

        return Plan(
            self.analysis,
            self.standardize,
            keep,
            self.reveal,
            allowed_in(self.allow),
            partition,
        )


def allowed_in(options: Sequence[str] | None) -> tuple[str, ...] | dict[str, list[str]]:
    """Parse --allow: operations such as scores,inverse; each can name the column owner that gets results, such as
    transform:2."""
    from ..jobs.kept import owner_name

    found: dict[str, list[str]] = {}
    plain = names_in(options) or []
    for text in plain:
        operation, _, owner = text.partition(":")
        if operation == "partial_fit":
            raise ValueError("--allow partial_fit: there is no command for partial fits; fit with ppca.PCA instead.")
        if owner and not (owner.isascii() and owner.isdigit() and int(owner) >= 1):
            raise ValueError(f"--allow {text}: write an operation, or operation:N for the N-th owner's eyes only.")
        found.setdefault(operation, []).extend([owner_name(int(owner) - 1)] if owner else [])
    if all(found.values()) and found:
        return found
    if any(found.values()):
        raise ValueError("--allow: name the owner with every operation, or with none.")
    return tuple(found) or USUAL
