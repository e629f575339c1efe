"""What one server receives in a whole regression: no plaintext, and nothing that is not uniform. See `test_views`."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from harness.lockstep import LockstepServers
from ppca import Columns, LinearRegression

from .test_views import FALSE_ALARM, OWNERS, POOLED, hits, patterns, secrets_of

HALVES = [POOLED[:, :3], POOLED[:, 3:]]


@pytest.fixture(scope="module", params=["rows", "columns"])
def fitted(request: pytest.FixtureRequest) -> tuple[LockstepServers, LinearRegression]:
    servers = LockstepServers(record=True)
    by_columns = request.param == "columns"
    model = LinearRegression(
        reveal=("result", "correlation", "vif"),
        servers=servers,
        partition=Columns(None, "aligned") if by_columns else "rows",
    )
    return servers, model.fit(HALVES if by_columns else OWNERS, target=5)


@pytest.mark.parametrize("server", range(4))
def test_no_plaintext_in_a_view(fitted: tuple[LockstepServers, LinearRegression], server: int) -> None:
    """No value, moment, coefficient, error or correlation. Column owners' tables have small numbers of rows in the open."""
    servers, model = fitted
    assert model.coef_ is not None
    assert model.standard_errors_ is not None
    found = [model.coef_, model.standard_errors_, model.standard_errors_**2, [model.intercept_, model.r2_]]
    secrets = [*secrets_of(np.zeros(6, np.int64)), *np.concatenate(found).tolist()]
    assert hits(servers.views[server], patterns(secrets)) == 0


@pytest.mark.parametrize("server", range(4))
def test_a_view_is_uniform(fitted: tuple[LockstepServers, LinearRegression], server: int) -> None:
    """Chi-square of the byte histogram of the whole view, both tails."""
    servers, _ = fitted
    view = np.frombuffer(b"".join(servers.views[server]), np.uint8)
    expected = view.size / 256
    statistic = float(((np.bincount(view, minlength=256) - expected) ** 2 / expected).sum())
    assert chi2.ppf(FALSE_ALARM / 16, 255) < statistic < chi2.isf(FALSE_ALARM / 16, 255)
