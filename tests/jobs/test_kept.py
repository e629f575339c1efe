"""What servers keep, and what it may be used for: servers refuse everything else, whoever asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.lockstep import LockstepServers
from harness.tables import with_ids
from ppca import PCA, Columns, Job
from ppca.jobs import inference
from ppca.jobs.kept import NotAllowed, allowance
from ppca.protocol import share
from ppca.servers.store import Store, StoreError

X = np.random.default_rng(5).standard_normal((60, 4)) @ np.diag([4.0, 2, 1, 0.5])
NEW = X[:5]


def test_scores_and_inverse_are_off_unless_allowed(seats: LockstepServers) -> None:
    model = PCA(2, servers=seats, keep="m").fit([X]).shared_model()
    assert model.transform(NEW).shape == (5, 2)
    assert model.detect(NEW, threshold=1.0).shape == (5,)
    with pytest.raises(NotAllowed, match="kept without 'scores': it allows transform and flags and partial_fit"):
        model.score_samples(NEW)
    with pytest.raises(NotAllowed, match="kept without 'inverse'"):
        model.inverse_transform(np.eye(2))
    allowed = PCA(2, servers=seats, keep="m", allow=("inverse",)).fit([X]).shared_model()
    assert allowed.inverse_transform(np.eye(2)).shape == (2, 4)
    with pytest.raises(NotAllowed, match="kept without 'transform'"):
        allowed.transform(NEW)


def test_a_client_that_asks_servers_directly_gets_no_more(seats: LockstepServers) -> None:
    """Whatever the estimator checks, the servers check themselves, by what stands in the record."""
    PCA(2, servers=seats, keep="m", reveal=False, allow=("flags", "partial_fit")).fit([X])
    job, new = Job(seats), share(NEW / 16)
    with pytest.raises(NotAllowed, match="kept without 'transform'"):
        job.run(inference.transform, new, model="m")
    with pytest.raises(NotAllowed, match="does not allow 'flags' for mallory"):
        _flags(job, new, receiver="mallory", threshold=1.0)
    with pytest.raises(NotAllowed, match="kept without 'scores'"):
        _flags(job, new, threshold=1.0, scores=True)
    with pytest.raises(ValueError, match="no scores in this table"):
        job.run(inference.detect, table="empty", scores=True)
    PCA(2, servers=seats, keep="other", allow=("scores",)).fit([X])
    job.run(inference.add_scores, new, model="m", table="mixed")
    with pytest.raises(ValueError, match="scores of one model"):
        job.run(inference.add_scores, new, model="other", table="mixed")


def _flags(job: Job, new: Any, **wanted: Any) -> Any:
    with job.table() as table:
        job.run(inference.add_scores, new, model="m", table=table)
        return job.run(inference.detect, table=table, **wanted)


def test_a_partial_fit_gives_no_more_than_the_fit(seats: LockstepServers) -> None:
    """Else a single new row would reveal a model that nobody was to receive, or widen what it is good for."""
    secret = PCA(2, servers=seats, keep="m", reveal=False).fit([X])
    secret.reveal = True
    with pytest.raises(NotAllowed, match="does not allow 'partial_fit' for client"):
        secret.partial_fit([NEW])
    secret.reveal, secret.allow = False, ("transform", "scores", "partial_fit")
    with pytest.raises(NotAllowed, match="kept without 'scores'"):
        secret.partial_fit([NEW])
    secret.allow = ("transform",)
    secret.partial_fit([NEW])
    assert "m.sums" in seats.stores[0]  # of the first fit; no new ones
    PCA(2, servers=seats, keep="n", allow=("transform",)).fit([X])
    assert "n.sums" not in seats.stores[0]


def test_receivers_of_owners_of_columns(seats: LockstepServers) -> None:
    tables = [with_ids(X[:, :2], ["a", "b"], np.arange(60)), with_ids(X[:, 2:], ["c", "d"], np.arange(60))]
    way = Columns("id")
    pca = PCA(2, partition=way, servers=seats, keep="m", allow={"transform": ["owner 2"]}).fit(tables)
    assert len(pca.shared_model().transform_columns(tables, way, receiver=1).coordinates) == 60  # type: ignore[arg-type]
    with pytest.raises(NotAllowed, match=r"for owner 1: results may go to owner 2\."):
        pca.shared_model().transform_columns(tables, way, receiver=0)


@pytest.mark.parametrize(
    ("allow", "message"),
    [
        ("transform", r"as \('transform',\)"),
        (("everything",), "no operation"),
        ({"transform": ["owner 3"]}, "no receiver; choose from client, owner 1, owner 2"),
    ],
)
def test_wrong_allowances(allow: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        allowance(allow, owners=2)


def test_forget(seats: LockstepServers) -> None:
    model = PCA(2, servers=seats, keep="m").fit([X]).shared_model()
    assert set(seats.stores[3]) == {"m", "m.sums"}
    model.forget()
    assert seats.stores == [{}, {}, {}, {}]
    model.forget()


@pytest.mark.parametrize("on_disk", [False, True])
def test_stores_of_two_clients(tmp_path: Path, on_disk: bool) -> None:
    """A client cannot read, overwrite, erase or list what another one keeps."""
    folder = tmp_path if on_disk else None
    one, other = Store(folder, "one"), Store(folder, "other")
    one["m"] = {"public": {"secret": 1}}
    assert list(other) == []
    assert "m" not in other
    with pytest.raises(StoreError, match="keeps nothing under the name"):
        other["m"]
    other["m"] = {"public": {"secret": 2}}
    assert one["m"]["public"] == {"secret": 1}
    del other["m"]
    assert list(one) == ["m"]
    for name in ("../one/m", "one/m", "", ".", "m\n"):
        with pytest.raises(StoreError, match="not a usable name"):
            other[name]
        with pytest.raises(StoreError, match="not a usable name"):
            Store(folder, name)
