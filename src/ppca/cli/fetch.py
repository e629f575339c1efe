"""`ppca fetch` and `ppca verify`: a receiver's result with its evidence, and the check of both without any server."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from .member import JobName, MemberOptions
from .options import COLUMNS, OutputOptions, command
from .terminal import Terminal

if TYPE_CHECKING:
    from ..federation.proposal import ProposedJob
    from ..member import MemberClient
    from ..member.fetching import Evidence
    from ..receiver.results import PCAResult


@command()
def fetch(
    job: JobName,
    me: MemberOptions,
    shown: OutputOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the result.")] = Path("result"),
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job is done.")] = False,
    join: Annotated[
        Path | None,
        typer.Option(
            "--join",
            help="Your table as contributed, to add your ids to coordinates, flags or scores.",
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option("--id", help="Id column of --join.", rich_help_panel=COLUMNS),
    ] = None,
    joined: Annotated[
        Path, typer.Option("--joined", help="File for the rows with your ids.", rich_help_panel=COLUMNS)
    ] = Path("joined.csv"),
    scores: Annotated[
        Path | None,
        typer.Option(
            "--scores",
            help="Your table, to show its rows in RESULT-scores.html. They are projected here and not sent.",
        ),
    ] = None,
) -> None:
    """Fetch your result from the servers.

    You get the files of ppca fit, and evidence that ppca verify checks.
    """
    with me.member() as member:
        from .folder import check_file, check_free
        from .scored import scored_path, write_scored

        check_free(output, _known(), replace=shown.force)
        if scores is not None:
            check_file(scored_path(output), (".html",), replace=shown.force)
        known = member.find(job)
        if wait:
            for _ in member.watch(known):
                pass
        evidence = fetch_into(member, known, output, replace=shown.force)
        if join is not None:
            _write_joined(member, evidence, join, id, joined, replace=shown.force)
        _show(evidence, output, shown)
        if scores is not None:
            write_scored(evidence, scores, scored_path(output))
            note = f"written: {scored_path(output)}, which shows rows of {scores.name}: do not pass it on"
            Terminal(quiet=shown.quiet or shown.as_json).print(Text(note), soft_wrap=True, highlight=False)


TABLES = ("projected.csv", "flags.csv", "loadings.csv", "means.csv", "deviations.csv")


def _known() -> tuple[str, ...]:
    """Names of what a fetched result consists of."""
    from ..member.fetching import EVIDENCE
    from .regress import known as regression_files
    from .result import KNOWN

    return (*KNOWN, *regression_files(), EVIDENCE, *TABLES)


def _write_joined(
    member: MemberClient, evidence: Evidence, table: Path, id: str | None, path: Path, *, replace: bool
) -> None:
    """Write the table of a job that uses a model, with the receiver's own ids instead of pseudonyms, beside the
    result."""
    from ..member.result_ids import own_ids
    from .folder import check_file
    from .kept import ENDINGS, write_table

    check_file(path, ENDINGS, replace=replace)
    (columns,) = evidence.result().tables().values()
    columns.pop("pseudonym", None)
    write_table(path, {id or "id": own_ids(member, evidence, table, id), **columns})


def fetch_into(member: MemberClient, job: ProposedJob, output: Path, *, replace: bool) -> Evidence:
    """Fetch and check a result, and write its folder, whole or not at all."""
    from ..member.fetching import Evidence
    from .folder import whole_folder

    evidence = Evidence.gather(member, job)
    evidence.check()
    with whole_folder(output, _known(), replace=replace, others=False) as folder:  # it holds the key of the result
        write_fetched(folder, evidence)
    return evidence


def write_fetched(folder: Path, evidence: Evidence) -> None:
    """All files of a fetched result; the same bytes whenever it is made from the same evidence."""
    from ..federation.errors import FederationError

    try:
        _write_fetched(folder, evidence)
    except (KeyError, TypeError, AttributeError, IndexError, ArithmeticError) as error:
        raise FederationError(
            f"the result of {evidence.job.name!r} is not used: it does not hold what the job reveals "
            f"({type(error).__name__}: {error}). An owner or a server did not follow the program."
        ) from None


def _write_fetched(folder: Path, evidence: Evidence) -> None:
    from ..member.fetching import EVIDENCE
    from ..receiver.regression import RegressionModel
    from ..receiver.results import PCAResult
    from .kept import write_tables
    from .regress import settings_of, write_regression

    found = evidence.result()
    if isinstance(found, PCAResult):
        _write_fit(folder, evidence, found)
    elif isinstance(found, RegressionModel):
        write_regression(
            folder,
            found,
            evidence.account(),
            title=evidence.job.name,
            settings=settings_of(found, f"the four servers of {evidence.membership.name}"),
            owners=evidence.job.proposal.owners,
            by_columns=evidence.job.spec.data.by_columns,
        )
    else:
        write_tables(folder, found.tables())
    evidence.save(folder / EVIDENCE)


def _write_fit(folder: Path, evidence: Evidence, found: PCAResult) -> None:
    from .fit import settings_of
    from .kept import write_tables
    from .result import SHARED, write_result

    if found.whole:
        settings = settings_of(found, True, servers=f"the four servers of {evidence.membership.name}")
        write_result(folder, found, title=evidence.job.name, settings=settings, owners=list(found.job.data.owners))
    else:
        write_tables(folder, found.tables())
    if found.shares_facts:
        found.facts.save(folder / SHARED)


def _show(evidence: Evidence, output: Path, shown: OutputOptions) -> None:
    import json

    from ..receiver.regression import RegressionModel
    from ..receiver.results import PCAResult
    from .regress import print_coefficients
    from .result import print_openings, print_scree, print_traffic

    console, found, account = Terminal(quiet=shown.quiet), evidence.result(), evidence.account()
    if shown.as_json:
        typer.echo(json.dumps(_summary(evidence, output), indent=1))
        return
    if isinstance(found, PCAResult) and found.whole:
        print_scree(console, found.model)
    if isinstance(found, RegressionModel):
        print_coefficients(console, found)
    print_openings(console, account.audit)
    print_traffic(console, account)
    console.print(
        Text(f"written: {output}. Check it at any time: ppca verify {output}"), soft_wrap=True, highlight=False
    )


def _summary(evidence: Evidence, output: Path) -> dict[str, object]:
    """Return the output of `ppca fetch --json`."""
    from ..receiver.regression import RegressionModel
    from ..receiver.results import PCAResult
    from .regress import regression_summary
    from .result import account_summary

    result = evidence.result()
    found: dict[str, object] = {"job": evidence.job.id, "owners": list(evidence.job.proposal.owners)}
    if isinstance(result, PCAResult):
        parts = result.parts
        found["rows"] = parts.rows
        if parts.variances is not None and parts.variance_ratio is not None:
            found |= {
                "explained_variance": parts.variances.tolist(),
                "explained_variance_ratio": parts.variance_ratio.tolist(),
            }
    if isinstance(result, RegressionModel):
        found |= regression_summary(result)
    return found | account_summary(evidence.account()) | {"written": str(output)}


@command()
def verify(
    result: Annotated[Path, typer.Argument(help="Folder that ppca fetch wrote.")],
    federation: Annotated[
        Path | None,
        typer.Option(
            "--federation", "-f", help="Your membership file. Its operators must have signed the file in the evidence."
        ),
    ] = None,
) -> None:
    """Check a fetched result offline: signatures, approvals and audits.

    Files are recomputed and compared byte for byte.
    """
    from ..federation.membership import Membership
    from ..member.fetching import EVIDENCE, Evidence

    evidence = Evidence.load(result / EVIDENCE)
    if federation is not None and not Membership.trusted(federation).vouches_for(evidence.membership):
        raise ValueError(f"the evidence is of another federation: the operators of {federation} did not sign its file.")
    console = Terminal()
    for line in verified(result, evidence):
        console.print(Text(f"✓ {line}"), soft_wrap=True, highlight=False)
    trust = (
        "whether its operators are those you know was not checked: say so with -f federation.toml"
        if federation is None
        else f"✓ its operators are those of {federation}"
    )
    console.print(Text(trust), soft_wrap=True, highlight=False)


def verified(result: Path, evidence: Evidence) -> list[str]:
    """Return the list of checks that a fetched result passed; raise at the first failure."""
    from ..member.fetching import check_files

    checked = evidence.check()
    with tempfile.TemporaryDirectory(prefix="ppca-verify-") as name:
        folder = Path(name)
        write_fetched(folder, evidence)
        again = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    check_files(result, again)
    return [*checked, f"{len(again)} files: computed again from the evidence, equal byte by byte"]
