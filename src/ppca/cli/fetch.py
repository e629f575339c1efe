"""`ppca fetch` and `ppca verify`: a receiver's result with its evidence, and the check of both without any seat."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from .complaint import complaints
from .federation import FEDERATION, IDENTITY, File, IdentityFile
from .job import JobName, StateFolder, member_at
from .options import AsJson, Force, Quiet
from .terminal import Terminal

if TYPE_CHECKING:
    from ..federation.job import JobDescription
    from ..member import Member
    from ..member.fetching import Evidence


def fetch(
    job: JobName,
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for the result")] = Path("result"),
    wait: Annotated[bool, typer.Option("--wait", help="wait until the job is done")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    force: Force = False,
    federation: File = FEDERATION,
    identity: IdentityFile = IDENTITY,
    state: StateFolder = None,
) -> None:
    """Fetch your result from the seats: what ppca fit writes, and the evidence for it, which ppca verify checks."""
    with complaints(fetch), member_at(federation, identity, state) as member:
        from .folder import check_free

        check_free(output, _known(), replace=force)
        known = member.find(job)
        if wait:
            for _ in member.watch(known):
                pass
        evidence = fetch_into(member, known, output, replace=force)
        _show(evidence, output, quiet=quiet, as_json=as_json)


TABLES = ("projected.csv", "flags.csv")


def _known() -> tuple[str, ...]:
    """Names of what a fetched result consists of."""
    from ..member.fetching import EVIDENCE
    from .result import KNOWN

    return (*KNOWN, EVIDENCE, *TABLES)


def fetch_into(member: Member, job: JobDescription, output: Path, *, replace: bool) -> Evidence:
    """Fetches and checks a result, and writes its folder, whole or not at all."""
    from ..member.fetching import Evidence
    from .folder import whole_folder

    evidence = Evidence.gather(member, job)
    evidence.check()
    with whole_folder(output, _known(), replace=replace) as folder:
        write_fetched(folder, evidence)
    return evidence


def write_fetched(folder: Path, evidence: Evidence) -> None:
    """All files of a fetched result; the same bytes whenever it is made from the same evidence."""
    from ..estimator.federated import fitted_of
    from ..member.fetching import EVIDENCE
    from .fit import settings_of
    from .kept import write_table
    from .result import SHARED, write_result

    if evidence.job.file.fit is None:
        name, columns = inferred(evidence)
        write_table(folder / name, columns)
    else:
        fitted = fitted_of(evidence)
        if fitted.choices.reveal:
            settings = settings_of(fitted, True, servers=f"the four seats of {evidence.roster.name}")
            owners = list(evidence.job.file.owners)
            write_result(folder, fitted, title=evidence.job.name, settings=settings, owners=owners)
        if evidence.job.file.keep is not None:
            fitted.facts.save(folder / SHARED)
    evidence.save(folder / EVIDENCE)


def inferred(evidence: Evidence) -> tuple[str, dict[str, object]]:
    """The table of an infer job: its name and columns."""
    import numpy as np

    result, use = evidence.result(), evidence.job.file.infer
    assert use is not None
    if "coordinates" in result:
        z = np.asarray(result["coordinates"]) * use.unit
        return "projected.csv", {f"pc{i + 1}": z[:, i] for i in range(z.shape[1])}
    found: dict[str, object] = {}
    if "scores" in result:
        found["score"] = np.maximum(result["scores"], 0.0) * use.unit**2
    if "flags" in result:
        found["flag"] = np.asarray(result["flags"]).astype(np.int64)
    return "flags.csv", found


def _show(evidence: Evidence, output: Path, *, quiet: bool, as_json: bool) -> None:
    from ..estimator.federated import fitted_of
    from .result import fit_summary, print_account, print_openings, print_scree

    console = Terminal(quiet=quiet)
    if evidence.job.file.fit is not None:
        fitted = fitted_of(evidence)
        if as_json:
            typer.echo(fit_summary(fitted, list(evidence.job.file.owners), output))
            return
        if fitted.choices.reveal:
            print_scree(console, fitted.model)
            print_openings(console, fitted.account)
            print_account(console, fitted.model, fitted.account)
    console.print(
        Text(f"written: {output}. Check it at any time: ppca verify {output}"), soft_wrap=True, highlight=False
    )


def verify(
    result: Annotated[Path, typer.Argument(help="folder that ppca fetch wrote")],
    federation: Annotated[
        Path | None,
        typer.Option("--federation", "-f", help="your own federation.toml: its keys must be those of the evidence"),
    ] = None,
) -> None:
    """Check a fetched result without any seat: signatures, approvals, audits, and every file, computed again byte by byte."""
    with complaints(verify):
        from ..federation.roster import Roster
        from ..member.fetching import EVIDENCE, Evidence

        evidence = Evidence.load(result / EVIDENCE)
        if federation is not None and Roster.trusted(federation).digest != evidence.roster.digest:
            raise ValueError(f"the evidence is of another federation, or another revision, than {federation}.")
        console = Terminal()
        for line in verified(result, evidence):
            console.print(Text(f"✓ {line}"), soft_wrap=True, highlight=False)


def verified(result: Path, evidence: Evidence) -> list[str]:
    """What was checked of a fetched result; raises at the first fault."""
    from ..member.fetching import check_files

    checked = evidence.check()
    with tempfile.TemporaryDirectory(prefix="ppca-verify-") as name:
        folder = Path(name)
        write_fetched(folder, evidence)
        again = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    check_files(result, again)
    return [*checked, f"{len(again)} files: computed again from the evidence, equal byte by byte"]
