"""Fits of column owners: join the rows of the same individuals, then upload and analyse them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..jobs.checks import SpecError
from ..jobs.matching import MatchError
from ..jobs.spec import COLUMNS, MIN_COMMON_IDS, PSI, Align, Data, JobSpec, local_owners, numbered
from ..jobs.uploads import MATCH, ORDER
from ..owner.alignment.ids import DECIMALS, LETTERS, ZEROS, IdError, spellings
from ..owner.contribute import Source, form_of, missing_of
from ..owner.errors import OwnerError
from ..owner.tables.owners import IdNames
from ..owner.tables.records import Records
from ..owner.tables.table import listed
from ..receiver.unsealing import received
from .job import Job
from .runs import run


@dataclass(frozen=True)
class Columns:
    """A partition by columns: owners hold different columns of the same individuals.

    Parameters
    ----------
    id : str, list of str or dict
        Name of the id column (or of a pandas index) in every owner's table. If names differ: a list in the order of the
        owners, or a dictionary by their names.
    alignment : str
        "psi" (private join by id), "aligned" (same rows in the same order) or "namespace" (ids 0 to namespace - 1).
    namespace : int or None
        Number of ids, for that alignment only.
    minimum : int
        Minimum number of common rows. With fewer, nothing is computed.
    fold_case : bool
        Whether ids that differ only in case are equal.
    chunks : int or None
        Number of row chunks of the second moments. None: as few as the ring allows.
    """

    id: IdNames = None
    alignment: str = PSI
    namespace: int | None = None
    minimum: int = MIN_COMMON_IDS
    fold_case: bool = False
    chunks: int | None = None

    def __post_init__(self) -> None:
        try:
            self.align  # noqa: B018 - refuses what cannot be
        except SpecError as error:
            raise error.short() from None
        if self.chunks is not None and self.chunks < 1:
            raise SpecError("chunks", self.chunks, "must be at least 1")

    @property
    def align(self) -> Align:
        """Alignment for a job."""
        return Align(alignment=self.alignment, namespace=self.namespace, minimum=self.minimum, fold_case=self.fold_case)


class FewMatches(OwnerError, MatchError):
    """Too few rows are common to all owners. Hints about ids come from each owner's own ids only."""


@dataclass
class ColumnFit:
    """A job of column owners: what the receiver got, columns, rows and bytes by owner, seconds by step.

    doubt: possible reason why few rows are common, or None.
    """

    job: JobSpec
    result: dict[str, Any]
    widths: list[int]
    rows_of_owners: list[int]
    bytes_sent: list[int]
    seconds: dict[str, float]
    doubt: FewMatches | None


def check_number(owners: int) -> None:
    """Refuse a single column owner."""
    if owners < 2:
        raise OwnerError("a partition by columns needs at least two owners: give one table for each.")


def check_matched(answer: dict[str, Any], partition: Columns, owners: Sequence[Records]) -> None:
    """Raise the refusal of the servers, with hints for the owners."""
    if "refused" not in answer:
        return
    text, cause = answer["refused"], answer.get("cause")
    if cause == ORDER:
        raise IdError(_labelled(text, owners))
    if cause != MATCH:
        raise OwnerError(f"{text}.")
    doubts, options = doubts_of(owners, partition.fold_case)
    message = "; ".join([text, *doubts])
    raise FewMatches(f"{message}.", options=[*options, *(["minimum"] if partition.minimum > 1 else [])])


def _labelled(text: str, owners: Sequence[Records]) -> str:
    """Replace the names that servers use in a refusal by the labels of the owners' tables."""
    labels = dict(zip(local_owners(len(owners)), (owner.label for owner in owners), strict=True))
    return re.sub(r"\bowner-\d+\b", lambda found: labels.get(found[0], found[0]), text)


def doubts_of(owners: Sequence[Records], fold_case: bool) -> tuple[list[str], list[str]]:
    """Return possible reasons why ids do not match, and parameters that may help. Each owner checks its own ids
    only."""
    seen = {owner.label: spellings(owner.ids, owner.label) for owner in owners if owner.ids is not None}
    doubts, options = [], []
    for form, meaning in (
        (DECIMALS, "ids of {} end in '.0', like integers that were written as decimals"),
        (ZEROS, "ids of {} begin with zeros, which are significant"),
    ):
        whose = [label for label, forms in seen.items() if form in forms]
        if 0 < len(whose) < len(seen):
            doubts.append(meaning.format(listed(whose)))
    if not fold_case and any(LETTERS in forms for forms in seen.values()):
        doubts.append("ids have letters, whose case is significant")
        options.append("fold_case")
    return doubts, options


def fit_columns(
    job: Job,
    sources: Sequence[Source],
    partition: Columns,
    make_job: Callable[[Data], JobSpec],
    check_rows: Callable[[int], None],
    form: str | None = None,
) -> ColumnFit:
    """Run the whole job: owners arrange and share their rows, servers align and analyse them.

    form: of the data; None: wide if there are fewer rows than columns.
    """
    check_number(len(sources))
    start = time.perf_counter()
    form = form_of(sources, partition.align) if form is None else form
    missing = missing_of([source.table for source in sources])
    widths = [source.table.n_columns for source in sources]
    spec = make_job(column_data(form, widths, partition, job.servers.member, missing=missing))
    read = time.perf_counter() - start
    done = run(job, spec, sources)
    owners = [source.records() for source in sources]
    if "rows" in done.answer:
        check_rows(done.answer["rows"])  # the same refusal, with parameters of this interface
    check_matched(done.answer, partition, owners)
    done.seconds["arrange"] += read
    return ColumnFit(
        spec,
        received(done.answer, job.receiver),
        spec.data.widths,
        [len(owner.values) for owner in owners],
        done.sent,
        done.seconds,
        _doubt(owners, partition, done.answer["rows"]),
    )


def column_data(form: str, widths: Sequence[int], partition: Columns, member: str | None = None, **more: Any) -> Data:
    """Return the data of column owners. member: the member of a federation that acts for all of them."""
    chunks = partition.chunks if form == COLUMNS else None
    if member is not None:
        every = {member: numbered(sum(widths))}
        more |= {"align": partition.align, "chunks": chunks, "tables": tuple(widths)}
        return Data(form=form, owners=(member,), columns=every, **more)
    owners, columns, start = local_owners(len(widths)), {}, 0
    for name, width in zip(owners, widths, strict=True):
        columns[name] = numbered(width, start)
        start += width
    return Data(form=form, owners=owners, columns=columns, align=partition.align, chunks=chunks, **more)


def _doubt(owners: Sequence[Records], partition: Columns, rows: int) -> FewMatches | None:
    """Return a hint about the ids if less than half of every owner's rows are common. It is not an error."""
    fewest = min(len(owner.values) for owner in owners)
    if partition.alignment != PSI or 2 * rows >= fewest:
        return None
    doubts, options = doubts_of(owners, partition.fold_case)
    text = f"only {rows:,} of at least {fewest:,} ids are common: {'; '.join(doubts)}."
    return FewMatches(text, options=options) if doubts else None
