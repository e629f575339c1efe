"""What servers keep, and what it may be used for: servers refuse everything else, whoever asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.jobs import run_rows, use_job
from harness.lockstep import LockstepServers
from harness.tables import with_ids
from ppca import PCA, Columns
from ppca.jobs.input_types import RAW
from ppca.jobs.kept import NotAllowed, allowance
from ppca.protocol import InconsistentShares, share
from ppca.runtime.store import Store, StoreError

X = np.random.default_rng(5).standard_normal((60, 4)) @ np.diag([4.0, 2, 1, 0.5])
NEW = X[:5]


def test_scores_and_inverse_are_off_unless_allowed(lockstep_servers: LockstepServers) -> None:
    model = PCA(2, servers=lockstep_servers, keep="m").fit([X]).shared_model()
    assert model.transform(NEW).shape == (5, 2)
    assert model.detect(NEW, threshold=1.0).shape == (5,)
    with pytest.raises(NotAllowed, match="kept without 'scores': it allows transform and flags and partial_fit"):
        model.score_samples(NEW)
    with pytest.raises(NotAllowed, match="kept without 'inverse'"):
        model.inverse_transform(np.eye(2))
    allowed = PCA(2, servers=lockstep_servers, keep="m", allow=("inverse",)).fit([X]).shared_model()
    assert allowed.inverse_transform(np.eye(2)).shape == (2, 4)
    with pytest.raises(NotAllowed, match="kept without 'transform'"):
        allowed.transform(NEW)


def test_a_client_that_asks_servers_directly_gets_no_more(lockstep_servers: LockstepServers) -> None:
    """Whatever the estimator checks, the servers check themselves, by what stands in the record."""
    PCA(2, servers=lockstep_servers, keep="m", reveal=False, allow=("flags", "partial_fit")).fit([X])
    new = share(NEW / 16, RAW)
    with pytest.raises(NotAllowed, match="kept without 'transform'"):
        run_rows(lockstep_servers, use_job([4] * 4, ["transform"]), new)
    with pytest.raises(NotAllowed, match="does not allow 'flags' for mallory"):
        run_rows(lockstep_servers, use_job([4] * 4, ["flags"], receiver="mallory", threshold=1.0), new)
    with pytest.raises(NotAllowed, match="kept without 'scores'"):
        run_rows(lockstep_servers, use_job([4] * 4, ["scores", "flags"], threshold=1.0), new)
    with pytest.raises(ValueError, match="there are zero new rows"):
        run_rows(lockstep_servers, use_job([4] * 4, ["flags"], threshold=1.0))


def test_a_partial_fit_gives_no_more_than_the_fit(lockstep_servers: LockstepServers) -> None:
    """Else a single new row would reveal a model that no one was to receive, or widen what it is good for."""
    secret = PCA(2, servers=lockstep_servers, keep="m", reveal=False).fit([X])
    secret.reveal = True
    with pytest.raises(NotAllowed, match="does not allow 'partial_fit' for client"):
        secret.partial_fit([NEW])
    secret.reveal, secret.allow = False, ("transform", "scores", "partial_fit")
    with pytest.raises(NotAllowed, match="kept without 'scores'"):
        secret.partial_fit([NEW])
    secret.allow = ("transform",)
    secret.partial_fit([NEW])
    assert "m.sums" not in lockstep_servers.stores[0]  # those of the first fit lack the new rows
    PCA(2, servers=lockstep_servers, keep="n", allow=("transform",)).fit([X])
    assert "n.sums" not in lockstep_servers.stores[0]


@pytest.mark.parametrize("by_columns", [False, True])
def test_a_model_without_partial_fit_leaves_no_sums_of_an_earlier_one(
    lockstep_servers: LockstepServers, by_columns: bool
) -> None:
    """A partial fit would add to rows of another fit."""
    PCA(2, servers=lockstep_servers, keep="m").fit([X])
    assert "m.sums" in lockstep_servers.stores[0]
    if by_columns:
        tables = [with_ids(X[:, :2], ["a", "b"], np.arange(60)), with_ids(X[:, 2:], ["c", "d"], np.arange(60))]
        PCA(2, servers=lockstep_servers, keep="m", partition=Columns("id")).fit(tables)
    else:
        PCA(2, servers=lockstep_servers, keep="m", allow=("flags",)).fit([X])
    assert [list(store) for store in lockstep_servers.stores] == [["m"]] * 4


@pytest.mark.parametrize("left", [(0, 1), (0, 2), (3,)])
def test_shares_of_two_fits_under_one_name_are_noticed(
    lockstep_servers: LockstepServers, left: tuple[int, ...]
) -> None:
    """A client that is killed while four servers replace a record leaves some with the old one."""
    pca = PCA(2, servers=lockstep_servers, keep="m", allow=("transform", "flags", "inverse", "partial_fit")).fit([X])
    former = [dict(store) for store in lockstep_servers.stores]
    pca.fit([X[::2]])
    for seat in left:
        lockstep_servers.stores[seat].update(former[seat])
    model = pca.shared_model()
    for use in (
        lambda: model.transform(NEW),
        lambda: model.detect(NEW, threshold=1.0),
        lambda: model.inverse_transform(np.eye(2)),
        lambda: pca.partial_fit([NEW]),
    ):
        with pytest.raises(InconsistentShares, match="'fit'"):
            use()
    with pytest.raises(InconsistentShares, match="'fit'"):  # nor does a partial fit of both make them one
        model.transform(NEW)


def test_receivers_of_owners_of_columns(lockstep_servers: LockstepServers) -> None:
    tables = [with_ids(X[:, :2], ["a", "b"], np.arange(60)), with_ids(X[:, 2:], ["c", "d"], np.arange(60))]
    way = Columns("id")
    pca = PCA(2, partition=way, servers=lockstep_servers, keep="m", allow={"transform": ["owner-2"]}).fit(tables)
    assert len(pca.shared_model().transform_columns(tables, way, receiver=1).coordinates) == 60  # type: ignore[arg-type]
    with pytest.raises(NotAllowed, match=r"for owner-1: results may go to owner-2\."):
        pca.shared_model().transform_columns(tables, way, receiver=0)


@pytest.mark.parametrize(
    ("allow", "message"),
    [
        ("transform", r"as \('transform',\)"),
        (("everything",), "not an operation"),
        ({"transform": ["owner-3"]}, "not a receiver; choose from client, owner-1, owner-2"),
    ],
)
def test_wrong_allowances(allow: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        allowance(allow, owners=2)


def test_forget(lockstep_servers: LockstepServers) -> None:
    model = PCA(2, servers=lockstep_servers, keep="m").fit([X]).shared_model()
    assert set(lockstep_servers.stores[3]) == {"m", "m.sums"}
    model.forget()
    assert lockstep_servers.stores == [{}, {}, {}, {}]
    model.forget()


@pytest.mark.parametrize("on_disk", [False, True])
def test_stores_of_two_clients(tmp_path: Path, on_disk: bool) -> None:
    """A client cannot read, overwrite, erase or list what another one keeps."""
    folder = tmp_path if on_disk else None
    one, other = Store(folder, "one"), Store(folder, "other")
    one["m"] = {"public": {"secret": 1}}
    assert list(other) == []
    assert "m" not in other
    with pytest.raises(StoreError, match="does not have a record named"):
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
