"""job.toml: every field is checked before anybody is asked; the lists of openings are those of the job, and no others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ppca.federation.objects import sha256
from ppca.federation.proposal import ProposedJob, parse, propose, render
from ppca.jobs.build import infer_job, pca_job
from ppca.jobs.infer import UseModel
from ppca.jobs.pca import JointPCA
from ppca.jobs.spec import ALIGNMENTS, MAX_NAMESPACE, MISSING, NAMESPACE, Align, JobSpec, Keep
from ppca.jobs.text import is_plain

OWNERS = ("north", "south", "west")
FEDERATION = "0" * 64
TIMES = st.datetimes(datetime(2030, 1, 1), datetime(2200, 1, 1)).map(lambda time: time.replace(tzinfo=UTC))
TEXTS = st.text(min_size=1, max_size=12).filter(is_plain)
NAMES = st.lists(TEXTS, min_size=1, max_size=5, unique_by=lambda name: name.strip())


def maybe(values: Any) -> Any:
    return st.none() | values


ALIGNED = st.builds(
    lambda way, ids, **more: Align(alignment=way, namespace=ids if way == NAMESPACE else None, **more),
    st.sampled_from(ALIGNMENTS),
    st.integers(2, MAX_NAMESPACE),
    minimum=st.integers(1, 1000),
    fold_case=st.booleans(),
    row_share_at_most=maybe(st.floats(1 / 64, 1)),
)
PCA = st.builds(
    JointPCA,
    components=maybe(st.just(1) | st.floats(0, 1, exclude_min=True, exclude_max=True)),
    solver=st.sampled_from(["auto", "allpairs", "jacobi", "qr"]),
    tol=st.floats(1e-9, 1e-2),
    fixed_iterations=maybe(st.integers(1, 1000)),
    max_iterations=maybe(st.integers(1, 1000)),
)
KEPT = st.builds(
    lambda until, uses: Keep(until=until, allow=uses),
    TIMES,
    st.dictionaries(st.sampled_from(["transform", "flags", "scores"]), st.just(()) | st.just(("north", "analyst"))),
)


@st.composite
def fits(draw: Any) -> JobSpec:
    owners, wide = OWNERS[: draw(st.integers(1, 3))], draw(st.booleans())
    by_columns = draw(st.booleans())
    columns: Any = {owner: [f"{owner}: {number}"] for number, owner in enumerate(owners)} if by_columns else draw(NAMES)
    receivers: dict[str, list[str]] = {"analyst": draw(st.sampled_from([["model"], [], ["components", "variances"]]))}
    if by_columns:
        receivers["north"] = ["loadings", "means"]
    missing = st.sampled_from(MISSING[:2] if wide and not by_columns else MISSING)
    return pca_job(
        *(owners, columns, receivers, draw(PCA)),
        wide=wide,
        federated=True,
        fixed=draw(st.booleans()),
        align=draw(ALIGNED) if by_columns else None,
        keep=draw(maybe(KEPT)),
        standardize=draw(st.booleans()),
        missing=draw(missing),
        rows_at_least=draw(maybe(st.integers(1, 1 << 40))),
        pieces=draw(maybe(st.integers(1, 9))) if by_columns and not wide else None,
    )


@st.composite
def uses(draw: Any) -> JobSpec:
    columns = draw(NAMES)
    limit = draw(st.sampled_from([{"threshold": 2.5}, {"contamination": 0.25}, {}]))
    parts = draw(st.sampled_from([["flags"], ["flags", "scores"]])) if limit else ["transform"]
    use = UseModel(model="1" * 64, model_owners=OWNERS, **limit)
    scales = draw(st.lists(st.integers(-500, 500), min_size=len(columns), max_size=len(columns)))
    return infer_job(["south"], columns, {"analyst": parts}, use, scales, federated=True)


@given(job=fits() | uses(), name=TEXTS, expires=TIMES, days=st.integers(1, 999))
def test_a_proposal_is_read_as_it_was_written(job: JobSpec, name: str, expires: datetime, days: int) -> None:
    made = propose(FEDERATION, name, job, expires=expires, erase_after=f"{days}d")
    again = parse(made.data)
    assert render(again) == made.data
    assert again == made.proposal
    assert again.job == made.spec
    assert ProposedJob(made.data).id == sha256(made.data) == made.id


def test_a_time_or_a_span_until_a_job_expires() -> None:
    job = pca_job(OWNERS, ["a"], {"analyst": ["model"]}, federated=True)
    fixed = propose(FEDERATION, "n", job, expires="2031-05-06T10:00:00+02:00")
    assert fixed.proposal.expires == datetime(2031, 5, 6, 8, tzinfo=UTC)
    now = datetime.now(UTC)
    assert timedelta(days=3) - timedelta(seconds=2) < propose(FEDERATION, "n", job, expires="3d").proposal.expires - now
