"""One use of a kept model in one run, and a fit that asks for enough rows: what each opens, and to whom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from harness.jobs import fit_job, run_inputs, run_rows, use_job
from harness.lockstep import LockstepServers
from harness.tables import with_ids
from ppca import PCA, Columns, Job
from ppca.jobs import inference
from ppca.jobs.checks import SpecError
from ppca.jobs.chunks import Chunk
from ppca.jobs.errors import Refusal
from ppca.jobs.infer import UseModel, verdict_parts
from ppca.jobs.input_types import RAW, row_type
from ppca.jobs.kept import NotAllowed
from ppca.jobs.loading import job_of
from ppca.jobs.spec import NEW_COLUMNS, Align, Data, JobSpec
from ppca.native import ring
from ppca.owner.moments import moments
from ppca.owner.rows import share_sums
from ppca.owner.tables.opening import open_table
from ppca.protocol import OpeningRefused, share, share_ring
from ppca.receiver.unsealing import received

X = np.random.default_rng(5).standard_normal((60, 4)) @ np.diag([4.0, 2, 1, 0.5]) + 3
ALLOWED = {"transform": ["client"], "flags": ["client"], "scores": ["client"]}
NEW = X[:7]


@pytest.fixture(scope="module")
def kept() -> tuple[LockstepServers, PCA]:
    lockstep_servers = LockstepServers()
    return lockstep_servers, PCA(2, servers=lockstep_servers, keep="m", allow=ALLOWED).fit(np.array_split(X, 3))


def infer(kept: tuple[LockstepServers, PCA], *batches: Any, parts: Sequence[str] = ("transform",), **use: Any) -> Any:
    lockstep_servers, pca = kept
    scaled = [share(np.ldexp(batch, -int(pca.scale_exponents_[0])), RAW) for batch in batches]
    return run_rows(lockstep_servers, use_job(pca.scale_exponents_, parts, **use), *scaled)


def opened(lockstep_servers: LockstepServers) -> list[tuple[str, tuple[int, ...], str]]:
    return [(line.what, line.shape, line.to) for line in lockstep_servers.openings[0]]


def test_transform_of_several_batches(kept: tuple[LockstepServers, PCA]) -> None:
    lockstep_servers, pca = kept
    found = received(infer(kept, NEW[:3], NEW[3:]))
    coordinates = np.asarray(found["coordinates"]) * 2.0 ** pca.scale_exponents_[0]
    np.testing.assert_allclose(np.abs(coordinates), np.abs(pca.transform(NEW)), atol=1e-6)
    assert opened(lockstep_servers) == [("coordinates", (7, 2), "client")]


@pytest.mark.parametrize(("standardize", "rounds"), [(False, 1), (True, 3)])
def test_transform_takes_few_rounds_and_keeps_digits(standardize: bool, rounds: int) -> None:
    """Also of columns of unlike magnitudes and of rows far away."""
    unlike = X * [1e3, 1, 1e-2, 1] if standardize else X
    far = np.vstack([unlike[:5], unlike.mean(axis=0) + 1000 * unlike.std(axis=0) * np.sign(NEW[0])])
    lockstep_servers = LockstepServers()
    pca = PCA(2, standardize=standardize, servers=lockstep_servers, keep="m", allow=ALLOWED).fit(
        np.array_split(unlike, 3)
    )
    model = pca.shared_model()
    found = model.transform(far)
    assert model.job.account.rounds == rounds
    wanted = pca.transform(far)
    signs = np.sign((found * wanted).sum(axis=0))
    np.testing.assert_allclose(found * signs, wanted, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize(
    ("use", "what"),
    [
        ({"parts": ["scores"]}, ["anomaly scores"]),
        ({"parts": ["flags"], "threshold": 0.004}, ["anomaly flags"]),
        ({"parts": ["flags"], "contamination": 0.3}, ["anomaly flags"]),
        ({"parts": ["scores", "flags"], "contamination": 0.3}, ["anomaly scores", "anomaly flags"]),
    ],
)
def test_detect(kept: tuple[LockstepServers, PCA], use: dict[str, Any], what: list[str]) -> None:
    lockstep_servers, pca = kept
    unit = 4.0 ** pca.scale_exponents_[0]
    found = received(infer(kept, NEW[:3], NEW[3:], **use))
    assert opened(lockstep_servers) == [(name, (7,), "client") for name in what]
    scores = pca.model_.scores(NEW)
    if "scores" in use["parts"]:
        np.testing.assert_allclose(np.asarray(found["scores"]) * unit, scores, atol=1e-6)
    if "threshold" in use:
        assert found["flags"].tolist() == (scores > use["threshold"]).tolist()
    if "contamination" in use:
        assert sorted(np.argsort(scores)[-math.ceil(0.3 * 7) :]) == np.flatnonzero(found["flags"]).tolist()


@pytest.mark.parametrize(
    ("use", "error", "why"),
    [
        ({"receiver": "mallory"}, NotAllowed, "does not allow 'transform' for mallory"),
        ({"parts": ["scores"], "receiver": "x"}, NotAllowed, "does not allow 'scores' for x"),
        ({"parts": ["flags"], "threshold": 1.0, "receiver": "x"}, NotAllowed, "does not allow 'flags' for x"),
        ({"parts": ["inverse"]}, Refusal, "'inverse' needs data of the form 'coordinates'"),
        ({"parts": ["flags"]}, Refusal, "flags need either a threshold or a contamination"),
    ],
)
def test_what_the_model_does_not_allow(
    kept: tuple[LockstepServers, PCA], use: dict[str, Any], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        infer(kept, NEW, **use)


def test_with_all_components_no_row_can_stand_out() -> None:
    lockstep_servers = LockstepServers()
    whole = PCA(servers=lockstep_servers, keep="m", allow=ALLOWED).fit(np.array_split(X, 3))
    assert whole.shared_model().transform(NEW).shape == (7, 4)
    for use in (whole.shared_model().score_samples, lambda new: whole.shared_model().detect(new, contamination=0.3)):
        with pytest.raises(Refusal, match="keeps all 4 components, which describe every row exactly"):
            use(NEW)
    with pytest.raises(Refusal, match="keeps all 4 components"):
        infer((lockstep_servers, whole), NEW, parts=["flags"], contamination=0.3)


def test_a_row_without_distance_is_not_flagged() -> None:
    """All rows lie on the line of the model: all scores are zero, and none is among the largest."""
    line = np.arange(-10.0, 10.0)[:, None] * [1.0, 2.0, -1.0]
    fitted = PCA(1, standardize=True, servers=LockstepServers(), keep="m", allow=ALLOWED).fit(np.array_split(line, 2))
    assert not fitted.shared_model().detect(line[:6], contamination=0.5).any()
    off = line[:6] + np.outer([0, 0, 3, 0, 0, 0], [1.0, 0, 1.0])
    assert fitted.shared_model().detect(off, contamination=0.5).tolist() == [False, False, True, False, False, False]


def test_rows_that_do_not_fit_are_refused(kept: tuple[LockstepServers, PCA]) -> None:
    with pytest.raises(Refusal, match=r"rows of shape \(7, 3\) do not fit a model of 4 columns"):
        infer(kept, NEW[:, :3])
    with pytest.raises(Refusal, match="there are zero new rows"):
        infer(kept)


def test_a_planted_opening_is_refused(kept: tuple[LockstepServers, PCA], monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of the job is enforced on every use of a model, also on rows of one owner."""
    real = inference.coordinates

    async def planted(rows: Any, model: Any) -> Any:
        await rows.open(what="rows", why="planted")
        return await real(rows, model)

    monkeypatch.setattr(inference, "coordinates", planted)
    with pytest.raises(OpeningRefused, match="'rows' to 'servers' is not in the list of openings of this job"):
        kept[1].shared_model().transform(NEW)


def test_a_table_is_matched_and_used_in_one_run(lockstep_servers: LockstepServers) -> None:
    """The tags of the common rows reach the receiver, the number of rows is public, and the table is forgotten."""
    tables = [with_ids(X[:, :2], ["a", "b"], np.arange(60)), with_ids(X[20:, 2:], ["c", "d"], np.arange(20, 60))]
    way = Columns("id")
    model = PCA(2, partition=way, servers=lockstep_servers, keep="m").fit(tables).shared_model()
    runs = len(lockstep_servers.audits)
    found = model.transform_columns(tables, way, receiver=1)
    assert len(lockstep_servers.audits) == runs + 1
    assert sorted(found.ids.tolist()) == list(range(20, 60))
    assert opened(lockstep_servers) == [
        ("match pattern of pseudonyms", (40, 2), "servers"),
        ("coordinates", (40, 2), "owner-2"),
    ]
    assert [spool.rows for each in lockstep_servers.uploads for spool in each.rows.values()] == [0] * 8


@pytest.fixture(scope="module", params=[False, True], ids=["raw", "standardised"])
def of_columns(request: pytest.FixtureRequest) -> tuple[LockstepServers, PCA]:
    """A model of two column owners."""
    lockstep_servers, tables = LockstepServers(), [X[:, :2], X[:, 2:]]
    way = Columns(alignment="aligned")
    pca = PCA(2, standardize=request.param, partition=way, servers=lockstep_servers, keep="m", allow=ALLOWED)
    return lockstep_servers, pca.fit(tables)


def flags_of(of_columns: tuple[LockstepServers, PCA], south: Any) -> Any:
    """Flags of rows beyond 2^42, with these numbers of the second owner in units of the model: rows in range are below 2^42."""
    lockstep_servers, pca = of_columns
    kind = row_type(pca.standardize)
    north = np.ldexp(NEW[:, :2], -pca.scale_exponents_[:2])
    chunks = [
        Chunk(0, [share(north, kind)], rows=True),
        Chunk(1, [share_ring(ring.constants(south, 2), kind)], rows=True),
    ]
    scales = tuple(int(exponent) for exponent in pca.scale_exponents_)
    data = Data(
        form=NEW_COLUMNS,
        owners=("north", "south"),
        columns={"north": ("a", "b"), "south": ("c", "d")},
        standardize=bool(pca.standardize),
        align=Align(alignment="aligned", minimum=1),
        scales=scales,
        check_inputs=True,
    )
    unit = 1.0 if pca.standardize else 4.0 ** scales[0]
    spec = JobSpec(data=data, analysis=UseModel(model="m", threshold=2.0**42 * unit), receivers={"client": ("flags",)})
    return received(Job(lockstep_servers).run_job(spec, chunks))


@pytest.mark.parametrize("bits", [40, 47, 60])
def test_new_columns_out_of_range_are_refused(of_columns: tuple[LockstepServers, PCA], bits: int) -> None:
    """One column owner would otherwise decide every flag, whatever the threshold and the numbers of the others."""
    frac = row_type(of_columns[1].standardize).frac
    false = [[0, 1 << min(frac + bits, 126)]] * len(NEW)
    with pytest.raises(Refusal, match="the contribution of south holds numbers outside the range"):
        flags_of(of_columns, false)


def test_new_columns_at_the_end_of_the_range_pass(of_columns: tuple[LockstepServers, PCA]) -> None:
    kind = row_type(of_columns[1].standardize)
    largest = (1 << (kind.frac + kind.span)) - 1
    signs = np.random.default_rng(6).choice([-1, 1], (len(NEW), 2)).tolist()
    found = flags_of(of_columns, [[sign * largest for sign in row] for row in signs])
    assert len(found["flags"]) == len(NEW)
    assert ("inputs in range", (2,), "servers") in opened(of_columns[0])


def fit(lockstep_servers: LockstepServers, least: int, **chosen: Any) -> Any:
    packets = [packet for part in np.array_split(X, 3) for packet in share_sums(moments(open_table(part)), 3)]
    job = fit_job(X.shape[1], 3, rows_at_least=least, fixed_iterations=8, **chosen)
    return run_inputs(lockstep_servers, job, *packets)


def test_enough_rows_are_one_bit_more(lockstep_servers: LockstepServers) -> None:
    assert received(fit(lockstep_servers, 60))["rows"] == 60
    assert opened(lockstep_servers)[0] == ("enough rows", (), "servers")
    assert sum(what == "enough rows" for what, _, _ in opened(lockstep_servers)) == 1


@pytest.mark.parametrize(
    ("scale", "threshold", "expected"),
    [
        (0, 4.0, 4.0),
        (10, 4.0, 2.0**-18),
        (-10, 4.0, 2.0**22),
        (-600, 4.0, inference.HIGHEST),
    ],
)
def test_thresholds_of_models_of_very_small_and_large_units(scale: int, threshold: float, expected: float) -> None:
    """A scale of 2^-600 divided by zero at the servers, and the job was held instead of refused."""
    job = use_job([scale] * 4, ("flags",), threshold=threshold)
    assert inference._threshold(threshold, job_of(job)) == min(expected, inference.HIGHEST)


@pytest.mark.parametrize("least", [61, 1 << 36, 1 << 40])
def test_too_few_rows_are_refused_and_nothing_else_is_opened(least: int) -> None:
    seats = LockstepServers()
    with pytest.raises(Refusal, match=f"fewer than {least:,} rows"):
        fit(seats, least, keep="m")
    assert {line.what for party in seats.parties for line in party.audit} <= {"enough rows"}
    assert all("m" not in party.store for party in seats.parties)


def test_parts_and_limits_of_verdicts() -> None:
    assert verdict_parts(None, None, False) == []
    assert verdict_parts(2.0, None, True) == ["flags", "scores"]
    assert verdict_parts(None, 0.5, False) == ["flags"]
    for threshold, contamination, cause in (
        (1.0, 0.1, "not both"),
        (None, 0.6, "must be above 0 and at most 0.5"),
        (None, 0.0, "must be above 0"),
        (-1.0, None, "must be a number, at least 0"),
        (np.inf, None, "must be a number, at least 0"),
        (np.nan, None, "must be a number, at least 0"),
    ):
        with pytest.raises(SpecError, match=cause):
            verdict_parts(threshold, contamination, True)
