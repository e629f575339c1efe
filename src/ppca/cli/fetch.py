"""`ppca fetch` and `ppca verify`: a receiver's result with its evidence, and the check of both without any server."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from .member import JobName, MemberOptions
from .options import COLUMNS, OutputOptions, command
from .terminal import Terminal

if TYPE_CHECKING:
    from ..federation.proposal import ProposedJob
    from ..member import MemberClient
    from ..member.fetching import Evidence


@command()
def fetch(
    job: JobName,
    me: MemberOptions,
    shown: OutputOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for the result")] = Path("result"),
    wait: Annotated[bool, typer.Option("--wait", help="wait until the job is done")] = False,
    join: Annotated[
        Path | None,
        typer.Option(
            "--join",
            help="Your table as contributed, to add your ids to the verdicts.",
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option("--id", help="Id column of --join.", rich_help_panel=COLUMNS),
    ] = None,
    joined: Annotated[
        Path, typer.Option("--joined", help="file for the verdicts with your ids", rich_help_panel=COLUMNS)
    ] = Path("joined.csv"),
) -> None:
    """Fetch your result from the servers: the files of ppca fit, and evidence that ppca verify checks."""
    with me.member() as member:
        from .folder import check_free

        check_free(output, _known(), replace=shown.force)
        known = member.find(job)
        if wait:
            for _ in member.watch(known):
                pass
        evidence = fetch_into(member, known, output, replace=shown.force)
        if join is not None:
            _write_joined(member, evidence, join, id, joined, replace=shown.force)
        _show(evidence, output, shown)


TABLES = ("projected.csv", "flags.csv", "loadings.csv", "means.csv", "deviations.csv")


def _known() -> tuple[str, ...]:
    """Names of what a fetched result consists of."""
    from ..member.fetching import EVIDENCE
    from .result import KNOWN

    return (*KNOWN, EVIDENCE, *TABLES)


def _write_joined(
    member: MemberClient, evidence: Evidence, table: Path, id: str | None, path: Path, *, replace: bool
) -> None:
    """Write the table of a job that uses a model, with the receiver's own ids instead of pseudonyms, beside the
    result."""
    from ..member.result_ids import own_ids
    from .folder import check_file
    from .kept import ENDINGS, write_table

    check_file(path, ENDINGS, replace=replace)
    _, columns = inferred(evidence)
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
    from ..estimator.federated import fitted_of, holds_model, parts_of
    from ..jobs.parts import columns_for, own_columns
    from ..jobs.pca import JointPCA
    from ..member.fetching import EVIDENCE
    from .fit import settings_of
    from .kept import write_table
    from .result import SHARED, csv_names, write_result

    spec = evidence.job.spec
    if not isinstance(spec.analysis, JointPCA):
        name, columns = inferred(evidence)
        write_table(folder / name, columns)
    elif holds_model(evidence):
        fitted = fitted_of(evidence)
        settings = settings_of(fitted, True, servers=f"the four servers of {evidence.membership.name}")
        write_result(folder, fitted, title=evidence.job.name, settings=settings, owners=list(spec.data.owners))
    else:
        for name, columns in parts_of(evidence).tables(columns_for(spec, evidence.receiver)).items():
            found: dict[str, Any] = {**columns}
            if "column" in found:  # names are values here, and a spreadsheet would run them, too
                found["column"] = csv_names(found["column"])
            write_table(folder / name, found)
    if (
        spec.keep is not None and own_columns(spec, evidence.receiver) is None
    ):  # a user of the model must know all columns' units
        fitted_of(evidence).facts.save(folder / SHARED)
    evidence.save(folder / EVIDENCE)


def inferred(evidence: Evidence) -> tuple[str, dict[str, object]]:
    """The table of an infer job: its name and columns."""
    import numpy as np

    from ..jobs.inference import scale_of

    result, scale = evidence.result(), scale_of(evidence.job.spec)
    found: dict[str, object] = {}
    if "tags" in result:  # whose rows they are, for an owner among the receivers: see --join
        found["pseudonym"] = [f"{high:016x}{low:016x}" for high, low in np.asarray(result["tags"]).tolist()]
    if "coordinates" in result:
        z = np.ldexp(np.asarray(result["coordinates"], np.float64), scale)
        return "projected.csv", found | {f"pc{i + 1}": z[:, i] for i in range(z.shape[1])}
    if "scores" in result:
        found["score"] = np.ldexp(np.maximum(result["scores"], 0.0), 2 * scale)
    if "flags" in result:
        found["flag"] = np.asarray(result["flags"]).astype(np.int64)
    return "flags.csv", found


def _show(evidence: Evidence, output: Path, shown: OutputOptions) -> None:
    import json

    from ..estimator.federated import fitted_of, holds_model
    from ..jobs.pca import JointPCA
    from .result import print_openings, print_scree, print_traffic

    console = Terminal(quiet=shown.quiet)
    if isinstance(evidence.job.spec.analysis, JointPCA):
        account = evidence.account()
        if shown.as_json:
            typer.echo(json.dumps(_summary(evidence, output), indent=1))
            return
        if holds_model(evidence):
            print_scree(console, fitted_of(evidence).model)
        print_openings(console, account.audit)
        print_traffic(console, account)
    console.print(
        Text(f"written: {output}. Check it at any time: ppca verify {output}"), soft_wrap=True, highlight=False
    )


def _summary(evidence: Evidence, output: Path) -> dict[str, object]:
    """Return the output of `ppca fetch --json`."""
    from ..estimator.federated import parts_of
    from .result import account_summary

    parts, owners = parts_of(evidence), evidence.job.proposal.owners
    found: dict[str, object] = {"job": evidence.job.id, "owners": list(owners), "rows": parts.rows}
    if parts.variances is not None and parts.variance_ratio is not None:
        found |= {
            "explained_variance": parts.variances.tolist(),
            "explained_variance_ratio": parts.variance_ratio.tolist(),
        }
    return found | account_summary(evidence.account()) | {"written": str(output)}


@command()
def verify(
    result: Annotated[Path, typer.Argument(help="folder that ppca fetch wrote")],
    federation: Annotated[
        Path | None,
        typer.Option(
            "--federation", "-f", help="your own federation.toml: its operators must have signed the evidence's"
        ),
    ] = None,
) -> None:
    """Check a fetched result offline: signatures, approvals and audits; files are recomputed and compared byte for
    byte."""
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
