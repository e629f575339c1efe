"""`ppca approve`, `refuse`, `contribute`, `status`, `watch`, `audit`: a member's part in a job of a federation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ..owner.rows import MIN_ROWS
from ..owner.tables.options import ReadOptions
from .errors import note, printable
from .federation import FEDERATION, IDENTITY, File, IdentityFile
from .options import AsJson, Help, MinRows, Quiet, command
from .terminal import Terminal

if TYPE_CHECKING:
    from ..federation.proposal import ProposedJob
    from ..federation.state import JobState
    from ..member import MemberClient

JobName = Annotated[str, typer.Argument(help="The job: its file job.toml, its id or its name.")]


@dataclass(frozen=True, kw_only=True)
class MemberOptions:
    """Options that name the member that runs a command."""

    federation: File = FEDERATION
    identity: IdentityFile = IDENTITY
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            envvar="PPCA_STATE",
            help="Folder of your job keys and of shares not yet sent. Default: below ~/.local/state/ppca.",
        ),
    ] = None

    @contextmanager
    def member(self) -> Iterator[MemberClient]:
        """Open the client of the member, and close it when the command ends."""
        from ..member import MemberClient

        member = MemberClient.open(self.federation, self.identity, self.state)
        try:
            yield member
        finally:
            member.close()


@command()
def approve(
    job: JobName,
    me: MemberOptions,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation. The job is still printed.")
    ] = False,
) -> None:
    """Show exactly what a job reveals and to whom, then approve it.

    Receivers run the same command to accept the job.
    """
    with me.member() as member:
        known = member.find(job)
        show_words(member, known)
        if not yes and not typer.confirm("approve?"):
            raise typer.Exit(1)
        member.approve(known)
        Terminal().print(Text(f"approved: {known.name}, job {known.id[:12]}, as {member.name}"), soft_wrap=True)
        tell_job_state(member, known)


def show_words(member: MemberClient, job: ProposedJob) -> None:
    """Print what a job computes and opens. Approvers read this text."""
    from ..federation.approval_text import scope, terms

    console = Terminal()
    console.print(Text(f"{job.name} ({job.spec.analysis.NAME}, {job.spec.data.form}), job {job.id}"), soft_wrap=True)
    console.print(Text(f"of: {scope(job.proposal)}"), soft_wrap=True)
    console.print("What it computes, and from which data:")
    for line in terms(job.spec, member.name):
        console.print(Text(f"  - {line}"), soft_wrap=True, highlight=False)
    opened, together = member.words(job)
    console.print("Opened, and nothing else:")
    for line in opened:
        console.print(Text(f"  - {line}"), soft_wrap=True, highlight=False)
    for line in together:
        note(line)


@command()
def refuse(
    job: JobName,
    why: Annotated[str, typer.Option("--why", help="The reason; all members of the job see it.")],
    me: MemberOptions,
) -> None:
    """Refuse a job. This ends it for everyone."""
    with me.member() as member:
        known = member.find(job)
        member.refuse(known, why)
        Terminal().print(Text(f"refused: {known.name}"), soft_wrap=True)


@command()
def contribute(
    job: JobName,
    data: Annotated[Path, typer.Argument(help="Your table, a folder of tables, or a pattern in quotes.")],
    me: MemberOptions,
    read: Annotated[ReadOptions, Help(missing=None)],
    id: Annotated[str | None, typer.Option("--id", help="Id column (column owners).")] = None,
    min_rows: MinRows = MIN_ROWS,
    patience: Annotated[float, typer.Option(help="Seconds to wait for each object of another column owner.")] = 600.0,
    quiet: Quiet = False,
) -> None:
    """Upload secret shares of your table to the four servers.

    If interrupted, run the same command again.

    Afterwards you can go offline.

    If rows are joined by id, column owners share a key. The first owner of the job makes it, and waits until every
    other owner has approved. The others wait until the first owner has contributed. --patience limits each wait.
    """
    with me.member() as member:
        from ..member.contributing import contribute as send
        from ..web.report import size
        from .progress import stage_bars

        known = member.find(job)
        with stage_bars(quiet=quiet) as show:
            sent = send(
                *(member, known, data),
                id=id,
                options=read,
                min_rows=min_rows,
                patience=patience,
                told=lambda text, fraction: show(text, fraction, 0),
            )
        Terminal(quiet=quiet).print(Text(f"contributed to {known.name}: {size(sent)} in sealed shares"), soft_wrap=True)
        if not quiet:
            tell_job_state(member, known)


@command()
def status(
    me: MemberOptions,
    job: Annotated[
        str | None, typer.Argument(help="The job: its file job.toml, its id or its name. Default: all your jobs.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of each job and the members that must act next."""
    with me.member() as member:
        import json

        if job is None:
            found = [(known, told["place"]) for known, told in member.jobs()]
        else:
            only = member.find(job)
            found = [(only, next((told["place"] for told in member.servers.jobs() if told["id"] == only.id), None))]
        job_states = [(known, member.job_state(known), place) for known, place in found]
        if as_json:
            typer.echo(json.dumps([state_facts(*each) for each in job_states], indent=1))
            return
        if not job_states:
            Terminal().print(Text(f"{member.name} does not take part in any job."))
        for known, job_state, place in job_states:
            _print_job_state(known, job_state, place)


def state_facts(job: ProposedJob, job_state: JobState, place: int | None = None) -> dict[str, Any]:
    """Return the state of a job as values for JSON. place: position in the queue; None: unknown."""
    return {
        "place": place,
        "id": job.id,
        "name": job.name,
        "stage": job_state.stage,
        "attempt": job_state.attempt,
        "why": job_state.why,
        "waiting": [{"actor": item.actor, "what": item.what} for item in job_state.waiting],
    }


def tell_job_state(member: MemberClient, job: ProposedJob) -> None:
    _print_job_state(job, member.job_state(job))


def _print_job_state(job: ProposedJob, job_state: JobState, place: int | None = None) -> None:
    console = Terminal()
    queued = f", place {place} in the queue" if place is not None and job_state.stage == "ready" else ""
    attempt = f", attempt {job_state.attempt}" if job_state.attempt else ""
    said = ", ".join(part for part in (job_state.ended, job_state.why) if part)
    why = f" ({printable(said, 400)})" if said else ""
    console.print(
        Text(f"{job.name} {job.id[:12]}: {job_state.stage}{queued}{attempt}{why}"), soft_wrap=True, highlight=False
    )
    for item in job_state.waiting:
        console.print(
            Text(f"  waiting for {item.actor} to {printable(item.what, 400)}"), soft_wrap=True, highlight=False
        )


@command()
def watch(
    job: JobName,
    me: MemberOptions,
    patience: Annotated[
        float | None, typer.Option(help="Seconds after which to stop following. Default: no limit.")
    ] = None,
) -> None:
    """Follow a job until it ends. Exit code 1 unless it succeeds."""
    with me.member() as member:
        from .progress import stage_bars

        known = member.find(job)
        job_state, shown = None, ""
        with stage_bars() as show:
            for job_state, progress in member.watch(known, patience):
                if progress is not None:
                    show(progress["text"], progress["fraction"], progress["rounds"])
                elif (text := _in_short(job_state)) != shown:
                    show(text, None, 0)
                    shown = text
        assert job_state is not None
        _print_job_state(known, job_state)
        if not job_state.done:
            raise typer.Exit(1)


def _in_short(job_state: JobState) -> str:
    first = next(iter(job_state.waiting), None)
    return job_state.stage if first is None else f"{job_state.stage}, waiting for {first.actor} to {first.what}"


@command()
def audit(
    job: JobName,
    me: MemberOptions,
    as_json: AsJson = False,
) -> None:
    """Show the signed audit log of a job: openings, failed attempts and erasures."""
    with me.member() as member:
        known = member.find(job)
        _audit(member, known, as_json)


def _audit(member: MemberClient, job: ProposedJob, as_json: bool) -> None:
    import json

    from ..federation.headers import FINISHED
    from .result import print_openings

    objects = member.objects(job)
    audits = member.audits(job, objects.headers, member.job_state(job, objects.headers).attempt)
    erased = sorted({(h.author, str(h.about.get("what"))) for h in objects.of("erased")})
    if as_json:
        typer.echo(json.dumps({"job": job.id, "audits": audits, "erased": erased}, indent=1))
        return
    console = Terminal()
    tell_job_state(member, job)
    equal = len({json.dumps(each["audit"]) for each in audits.values()}) == 1
    if audits:
        print_openings(console, next(iter(audits.values()))["audit"])
        whose = ", ".join(audits)
        said = "their lists are equal" if equal else "THEIR LISTS DIFFER: do not use the result"
        console.print(Text(f"signed by {whose}; {said}"), soft_wrap=True)
    for header in objects.of("ended"):
        about = header.about
        if about["outcome"] != FINISHED:
            said = f"attempt {about['attempt']} {about['outcome']} at {header.author}: {about['why']}"
            console.print(Text(printable(said, 2500)), soft_wrap=True)
    for operator, what in erased:
        console.print(Text(f"erased by {operator}: its key of the {printable(what)}"), soft_wrap=True)
