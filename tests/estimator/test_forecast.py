"""The forecast of a fit's cost is about right where it can be counted."""

from __future__ import annotations

import numpy as np
import pytest

from harness.lockstep import LockstepServers
from ppca import PCA
from ppca.estimator.choices import Choices
from ppca.estimator.forecast import forecast


@pytest.mark.parametrize("width", [16, 40])
def test_bytes_of_a_fit(seats: LockstepServers, width: int) -> None:
    rows = np.random.default_rng(width).normal(size=(3 * width, width)) @ np.diag(np.linspace(1, 3, width))
    pca = PCA(servers=seats).fit(rows)
    expected = forecast(Choices(), width)
    assert expected is not None
    assert 0.7 <= expected.bytes / max(pca.account_.bytes_sent) <= 1.4  # the number of iterations is guessed


def test_what_makes_a_job_long() -> None:
    small, large = forecast(Choices(), 20), forecast(Choices(), 1000)
    fixed, uploaded = forecast(Choices(fixed_iterations=40), 1000), forecast(Choices(), 20, 10**9)
    assert small is not None
    assert small.seconds < 1
    assert large is not None
    assert fixed is not None
    assert small.seconds < large.seconds < fixed.seconds
    assert uploaded is not None
    assert uploaded.bytes > 10**10
    assert forecast(Choices(solver="qr"), 20) is None
