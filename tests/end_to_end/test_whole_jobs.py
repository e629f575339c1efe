"""Whole jobs over four servers that are processes: several receivers, kept models, one person for all owners, a lost server."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ppca
from benchmarks.field import OPERATORS, Field
from benchmarks.jobs import fit_job, use_job
from ppca.cli.fetch import fetch_into, verified
from ppca.federation.approval_text import to_receiver
from ppca.federation.errors import FederationError
from ppca.federation.identity import Identity
from ppca.federation.proposal import ProposedJob
from ppca.jobs.inference import scale_of
from ppca.member import MemberClient
from ppca.member.contributing import contribute
from ppca.member.fetching import EVIDENCE, Evidence
from ppca.member.result_ids import own_ids
from ppca.receiver.parts import signed

pytestmark = pytest.mark.processes
Floats = NDArray[np.float64]
OWNERS = ("north", "south", "west")
COLUMNS = ["a", "b", "c", "d", "e"]
PATIENCE = 240.0
RANDOM = np.random.default_rng(0)
MIX = RANDOM.standard_normal((5, 5))
TABLES = {owner: RANDOM.standard_normal((rows, 5)) @ MIX + 3 for owner, rows in zip(OWNERS, (60, 45, 30), strict=True)}
POOLED = np.concatenate(list(TABLES.values()))
VARIANCES = np.linalg.eigvalsh(np.cov(POOLED.T))[::-1]
NEW = RANDOM.standard_normal((20, 5)) @ MIX + 3
NEW[0] += 50


def write(path: Path, table: Floats) -> Path:
    np.savetxt(path, table, delimiter=",", header=",".join(COLUMNS), comments="", fmt="%.17g")
    return path


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    folder = tmp_path_factory.mktemp("field")
    with Field(folder, (*OWNERS, "solo"), ("analyst", "auditor", "solo", *OWNERS)) as found:
        for owner, table in TABLES.items():
            write(folder / f"{owner}.csv", table)
        write(folder / "new.csv", NEW)
        yield found


def answered(member: MemberClient, job: ProposedJob) -> None:
    """Waits for the servers' offers."""
    deadline = time.monotonic() + PATIENCE
    while any(item.what.startswith("offer") for item in member.job_state(job).waiting if item.actor in OPERATORS):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def run(
    field: Field,
    job: ProposedJob,
    submitter: str,
    files: dict[str, str],
    *accepting: str,
    id: str | None = None,
    min_rows: int = 10,
) -> Evidence:
    """A job from its submission to the evidence of its first receiver."""
    first = field.member(submitter)
    first.submit(job)
    for name in (*job.proposal.approvers, *accepting):
        field.member(name).approve(job)
    answered(first, job)
    for owner, name in files.items():
        contribute(field.member(owner), job, field.folder / name, id=id, min_rows=min_rows)
    return finish(field, job)


def finish(field: Field, job: ProposedJob) -> Evidence:
    receiver = field.member(next(iter(job.spec.receivers)))
    *_, (job_state, _) = receiver.watch(job, PATIENCE)
    assert job_state.done, job_state
    evidence = Evidence.gather(receiver, job)
    evidence.check()
    return evidence


@pytest.fixture(scope="module")
def fit(field: Field) -> Evidence:
    """A model for the analyst, its variances for the auditor; the servers keep it for the north."""
    keep = {
        "until": datetime.now(UTC).replace(microsecond=0) + timedelta(days=1),
        "allow": {"transform": ["north"], "flags": ["north"]},
    }
    job = fit_job(
        *(field.member("analyst").membership, "first", list(OWNERS), COLUMNS),
        {"analyst": ["model"], "auditor": ["variances"]},
        components=3,
        keep=keep,
        rows_at_least=50,
    )
    return run(field, job, "analyst", {owner: f"{owner}.csv" for owner in OWNERS}, "auditor")


def test_a_fit_is_that_of_the_pooled_rows(fit: Evidence) -> None:
    model = fit.result().model
    assert np.abs(model.explained_variance - VARIANCES[:3]).max() < 1e-8 * VARIANCES[0]
    assert model.rows == len(POOLED)
    assert np.abs(model.mean - POOLED.mean(axis=0)).max() < 1e-9


def test_the_audit_is_what_was_approved(fit: Evidence) -> None:
    opened = {(line["what"], line["to"]) for line in fit.account().audit}
    assert {what for what, to in opened if to == "servers"} == {
        *("inputs in range", "enough rows", "verification bit", "shuffled ranks")
    }
    assert {what for what, to in opened if to == "auditor"} == {
        *("number of rows", "scale exponents", "explained variance", "total variance", "scale of the variance")
    }
    assert ("components", "analyst") in opened


def test_another_receiver_gets_its_parts_only(field: Field, fit: Evidence) -> None:
    found = Evidence.gather(field.member("auditor"), fit.job).result().values
    assert "values" in found
    assert not {"components", "mean"} & set(found)


def test_its_result_is_a_folder_that_can_be_verified(field: Field, fit: Evidence, tmp_path: Path) -> None:
    fetch_into(field.member("auditor"), fit.job, tmp_path / "result", replace=False)
    names = {path.name for path in (tmp_path / "result").iterdir()}
    assert names == {"explained_variance.csv", "shared.json", "evidence"}
    table = np.genfromtxt(tmp_path / "result" / "explained_variance.csv", delimiter=",", names=True)
    assert np.abs(table["explained_variance"] - VARIANCES[:3]).max() < 1e-8 * VARIANCES[0]
    command = [sys.executable, "-m", "ppca.cli.main", "verify", str(tmp_path / "result")]
    assert subprocess.run(command, capture_output=True).returncode == 0


def test_who_is_no_receiver_gets_nothing(field: Field, fit: Evidence) -> None:
    with pytest.raises(FederationError, match="west is not a receiver"):
        Evidence.gather(field.member("west"), fit.job)


BY_COLUMNS = {"north": ["a", "b"], "south": ["c"], "west": ["d", "e"]}


def write_columns(field: Field, rows: Floats) -> dict[str, str]:
    """Every owner's columns of the same rows, in their order."""
    for owner, mine in BY_COLUMNS.items():
        part = rows[:, [COLUMNS.index(name) for name in mine]]
        path = field.folder / f"{owner}-in-order.csv"
        np.savetxt(path, part, delimiter=",", header=",".join(mine), comments="", fmt="%.17g")
    return {owner: f"{owner}-in-order.csv" for owner in BY_COLUMNS}


def test_every_owner_of_columns_gets_its_own_loadings(field: Field, tmp_path: Path) -> None:
    rows = POOLED[:60]
    owners = {owner: ["loadings", "variances", "means", "deviations"] for owner in OWNERS}
    job = fit_job(
        *(field.member("analyst").membership, "loadings", list(OWNERS), BY_COLUMNS),
        {"analyst": ["variances"], "auditor": ["components"], **owners},
        components=2,
        standardize=True,
        align={"alignment": "aligned"},
    )
    run(field, job, "analyst", write_columns(field, rows), "auditor")
    scaled = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    values, vectors = np.linalg.eigh(np.cov(scaled.T))
    truth = signed(vectors.T[::-1][:2])
    components = np.asarray(Evidence.gather(field.member("auditor"), job).result().values["components"])
    np.testing.assert_allclose(components, truth, atol=1e-6)
    start = 0
    for owner, mine in BY_COLUMNS.items():
        columns = slice(start, start := start + len(mine))
        folder = tmp_path / owner
        evidence = fetch_into(field.member(owner), job, folder, replace=False)
        found = evidence.result().values
        assert np.shape(found["loadings"]) == (2, len(mine))
        np.testing.assert_array_equal(found["loadings"], components[:, columns])
        assert {np.shape(found[name]) for name in ("exponents", "mean", "mean_exponents", "inverse", "power")} == {
            (len(mine),)
        }
        assert "components" not in found
        assert {path.name for path in folder.iterdir()} == {
            *("loadings.csv", "explained_variance.csv", "means.csv", "deviations.csv", "evidence")
        }
        table = np.genfromtxt(folder / "loadings.csv", delimiter=",", names=True)
        assert list(table.dtype.names or ()) == mine
        np.testing.assert_allclose(np.stack([table[name] for name in mine], axis=1), truth[:, columns], atol=1e-6)
        deviations = np.genfromtxt(folder / "deviations.csv", delimiter=",", names=True, dtype=None, encoding=None)
        np.testing.assert_allclose(np.atleast_1d(deviations)["deviation"], rows[:, columns].std(axis=0), rtol=1e-6)
        variances = np.genfromtxt(folder / "explained_variance.csv", delimiter=",", names=True)["explained_variance"]
        np.testing.assert_allclose(variances, values[::-1][:2], atol=1e-6)
        verified(folder, Evidence.load(folder / EVIDENCE))
        opened = {(line["what"], tuple(line["shape"])) for line in evidence.account().audit if line["to"] == owner}
        assert ("loadings", (2, len(mine))) in opened
        assert {what for what, _ in opened} == {line.what for line in to_receiver(job.spec, owner)}


def use(field: Field, fit: Evidence, name: str, receiver: str, **wanted: Any) -> ProposedJob:
    parts = wanted.pop("parts")
    more = {"model": fit.job.id, "model_owners": OWNERS, **wanted}
    return use_job(
        field.member(receiver).membership, name, ["south"], COLUMNS, {receiver: parts}, fit.result().scale, **more
    )


def test_a_kept_model_transforms_rows_of_another_owner(field: Field, fit: Evidence) -> None:
    job = use(field, fit, "coordinates", "north", parts=["transform"])
    evidence = run(field, job, "north", {"south": "new.csv"})
    model = fit.result().model
    found = np.ldexp(np.asarray(evidence.result().values["coordinates"]), scale_of(job.spec))
    assert np.abs(np.abs(found) - np.abs(model.project(NEW))).max() < 1e-8


def test_a_kept_model_flags_rows_and_nothing_else_that_was_not_allowed(field: Field, fit: Evidence) -> None:
    evidence = run(
        field, use(field, fit, "flags", "north", parts=["flags"], contamination=0.05), "north", {"south": "new.csv"}
    )
    assert np.asarray(evidence.result().values["flags"]).tolist() == [1] + [0] * 19
    refused = use(field, fit, "scores", "north", parts=["scores"])
    north = field.member("north")
    north.submit(refused)
    *_, (job_state, _) = north.watch(refused, PATIENCE)
    assert not job_state.done
    assert "this model was kept without 'scores'" in job_state.why


def test_two_owners_are_too_few(field: Field) -> None:
    analyst = field.member("analyst")
    job = fit_job(analyst.membership, "pair", ["north", "south"], COLUMNS, {"analyst": ["model"]})
    analyst.submit(job)
    *_, (job_state, _) = analyst.watch(job, PATIENCE)
    assert (job_state.stage, job_state.ended) in {("refused", ""), ("erased", "refused")}
    assert "2 owners; this server wants 3" in job_state.why


def test_too_few_rows_are_refused_on_shares(field: Field) -> None:
    job = fit_job(
        *(field.member("analyst").membership, "few", list(OWNERS), COLUMNS, {"analyst": ["model"]}), rows_at_least=136
    )
    with pytest.raises(AssertionError, match="rows"):
        run(field, job, "analyst", {owner: f"{owner}.csv" for owner in OWNERS})


@pytest.mark.parametrize("wide", [False, True])
def test_too_few_rows_of_owners_of_columns_are_refused(field: Field, wide: bool) -> None:
    job = fit_job(
        *(field.member("analyst").membership, f"few-{wide}", list(OWNERS), BY_COLUMNS, {"analyst": ["model"]}),
        align={"alignment": "aligned", "minimum": 4},
        rows_at_least=5,
        wide=wide,
    )
    with pytest.raises(AssertionError, match="fewer than 5 rows in common, the minimum of this job or of an operator"):
        run(field, job, "analyst", write_columns(field, POOLED[:4]), min_rows=1)


def test_one_person_for_all_owners(field: Field) -> None:
    folder = field.folder / "solo"
    federation = ppca.Federation.open(folder / "federation.toml", folder / "identity.key", folder / "state")
    model = ppca.PCA(3, servers=federation, keep="mine", allow=("transform", "flags")).fit(list(TABLES.values()))
    assert np.abs(model.explained_variance_ - VARIANCES[:3]).max() < 1e-8 * VARIANCES[0]
    assert np.abs(np.abs(model.shared_model().transform(NEW)) - np.abs(model.transform(NEW))).max() < 1e-8
    assert model.shared_model().detect(NEW, contamination=0.05).nonzero()[0].tolist() == [0]


def test_one_person_for_all_owners_of_columns(field: Field) -> None:
    folder = field.folder / "solo"
    federation = ppca.Federation.open(folder / "federation.toml", folder / "identity.key", folder / "state")
    pandas = pytest.importorskip("pandas")
    ids = np.arange(60)
    left = pandas.DataFrame({"id": ids, "a": POOLED[:60, 0], "b": POOLED[:60, 1]})
    right = pandas.DataFrame({"id": ids, "c": POOLED[:60, 2], "d": POOLED[:60, 3]}).iloc[::-1]
    model = ppca.PCA(2, servers=federation, partition=ppca.Columns(id="id")).fit([left, right])
    truth = np.linalg.eigvalsh(np.cov(POOLED[:60, :4].T))[::-1]
    assert np.abs(model.explained_variance_ - truth[:2]).max() < 1e-6 * truth[0]


def test_owners_of_columns_use_a_kept_model_and_one_learns_whose_rows_stand_out(field: Field, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    columns = {"north": ["a", "b"], "south": ["c"], "west": ["d", "e"]}
    rows = POOLED[:60].copy()
    rows[7] += 40 * np.array([1, -1, 1, -1, 1])
    table = pandas.DataFrame(rows, columns=COLUMNS).assign(id=[f"P{i:03}" for i in range(60)])
    for number, (owner, mine) in enumerate(columns.items()):
        table[["id", *mine]].sample(frac=1, random_state=number).to_csv(
            field.folder / f"{owner}-columns.csv", index=False
        )
    files = {owner: f"{owner}-columns.csv" for owner in columns}
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    job = fit_job(
        *(field.member("north").membership, "by-columns", list(OWNERS), columns, {"north": ["model"]}),
        components=2,
        standardize=True,
        align={"row_share_at_most": 1},  # one row stands out by far, and its owners know that
        keep={"until": until, "allow": {"flags": ["north"]}},
    )
    fit = run(field, job, "north", files, id="id")
    model = fit.result().model
    scaled = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    truth = np.linalg.eigvalsh(np.cov(scaled.T))[::-1]
    assert np.abs(model.explained_variance - truth[:2]).max() < 1e-6
    more: dict[str, Any] = {"model": job.id, "model_owners": OWNERS, "contamination": 1 / 60, "standardize": True}
    whom = {"north": ["flags"]}
    asked = use_job(field.member("north").membership, "whose", OWNERS, columns, whom, fit.result().scale, **more)
    evidence = run(field, asked, "north", files, id="id")
    ids = own_ids(field.member("north"), evidence, field.folder / "north-columns.csv", "id")
    flags = np.asarray(evidence.result().values["flags"]).astype(bool)
    assert ids[flags].tolist() == [f"P{int(np.argmax(model.scores(rows))):03}"]


@pytest.mark.release
def test_a_lost_server_comes_back_from_its_mates(field: Field, fit: Evidence) -> None:
    analyst = field.member("analyst")
    job = fit_job(analyst.membership, "second", list(OWNERS), COLUMNS, {"analyst": ["model"]}, components=3)
    analyst.submit(job)
    for owner in OWNERS:
        field.member(owner).approve(job)
    answered(analyst, job)
    for owner in OWNERS[:2]:
        contribute(field.member(owner), job, field.folder / f"{owner}.csv")
    while any("receive" in item.what for item in analyst.job_state(job).waiting):
        time.sleep(0.1)
    field.kill(2)
    lost = field.folder / OPERATORS[2]
    (lost / "store").rename(lost / "lost")
    (lost / "identity.key").unlink()
    old, new = field.identities[OPERATORS[2]], Identity.create(OPERATORS[2], lost / "identity.key")
    field.identities[OPERATORS[2]] = new
    membership = field.write_membership(2, former=[(OPERATORS[2], old)])
    deadline = time.monotonic() + PATIENCE
    while any(
        MemberClient(membership, field.identities["west"]).servers.hello(seat)["revision"] < 2 for seat in (0, 1, 3)
    ):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    command = [sys.executable, "-m", "ppca.cli.main", "server", "restore"]
    done = subprocess.run(command, cwd=lost, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "first: the kept model is back" in done.stdout
    assert "second: the shares of south are back" in done.stdout
    field.start(2)
    contribute(field.member("west"), job, field.folder / "west.csv")
    model = finish(field, job).result().model
    assert np.abs(model.explained_variance - VARIANCES[:3]).max() < 1e-8 * VARIANCES[0]
    again = use(field, fit, "again", "north", parts=["transform"])
    found = run(field, again, "north", {"south": "new.csv"}).result().values["coordinates"]
    assert np.asarray(found).shape == (20, 3)
