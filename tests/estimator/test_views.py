"""What one server receives in a whole fit: packets of owners and all messages of the others. No plaintext is in it.

The scan looks at every 8 bytes of a view, at every offset, for the 64-bit words of any encoding of a data value, a covariance
or correlation entry, a mean, a deviation, or an owner's row count: with any number of fractional bits in use, either sign, in
the units of the data and in scaled ones, and as a double. The last eight bits are left out, so that rounding does not hide a
value. Words of zeros or ones are looked for too: a number of moderate size in the 128-bit ring has one.
With 2^19 words in a view and 2^16 patterns of 56 bits, a false alarm has probability 2^-21 a view.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from harness.lockstep import LockstepServers
from ppca import PCA

FALSE_ALARM = 1e-6
FRACTIONS = (0, 12, 20, 30, 40, 48, 50, 52, 56, 60, 80, 96, 100, 112, 124)
DROPPED = 8

RNG = np.random.default_rng(3)
OWNERS = [RNG.standard_normal((n, 6)) @ RNG.standard_normal((6, 6)) + 2 for n in (23, 37, 61)]
POOLED = np.vstack(OWNERS)

Words = NDArray[np.uint64]


def secrets_of(scale: NDArray[np.int64]) -> list[float]:
    """Everything that must not be seen, in the units of the data and scaled."""
    shrink = np.ldexp(1.0, -scale)
    found: list[NDArray[Any]] = [np.array([len(owner) for owner in OWNERS])]
    for unit in (np.ones(6), shrink):
        tables = [*OWNERS, POOLED]
        found += [table * unit for table in OWNERS]
        found += [table.mean(axis=0) * unit for table in tables]
        found += [table.std(axis=0) * unit for table in tables]
        found += [table.sum(axis=0) * unit for table in tables]
        found += [np.cov(table.T * unit[:, None], bias=bias) for table in tables for bias in (False, True)]
        found += [(table * unit).T @ (table * unit) for table in tables]
        found += [(table * unit).T @ (table * unit) / len(POOLED) for table in tables]
    found += [np.corrcoef(table.T) for table in [*OWNERS, POOLED]]
    return np.unique(np.concatenate([np.ravel(part) for part in found])).tolist()


def patterns(values: Iterable[float]) -> Words:
    """Words of all encodings, without their last bits, and words of zeros and ones."""
    words = {0, 2**64 - 1}
    plain = np.asarray(list(values))
    words.update(plain.view(np.uint64).tolist())
    for value in plain.tolist():
        for frac in FRACTIONS:
            whole = int(value * 2.0**frac)
            for signed in (whole, -whole):
                ring = signed % 2**128
                words.update((ring % 2**64, ring >> 64))
    return np.unique(np.array(sorted(words), np.uint64) >> np.uint64(DROPPED))


def words_of(view: Iterable[bytes]) -> Words:
    """Eight bytes from every offset of every message."""
    found = []
    for message in view:
        for offset in range(min(8, max(0, len(message) - 7))):
            usable = (len(message) - offset) // 8 * 8
            found.append(np.frombuffer(message, np.uint64, usable // 8, offset))
    return np.concatenate(found) >> np.uint64(DROPPED)


def hits(view: Iterable[bytes], wanted: Words) -> int:
    return int(np.isin(words_of(view), wanted).sum())


@pytest.fixture(scope="module", params=[False, True], ids=["raw", "standardised"])
def fitted(request: pytest.FixtureRequest) -> tuple[LockstepServers, PCA]:
    seats = LockstepServers(record=True)
    pca = PCA(3, standardize=request.param, servers=seats, keep="model").fit(OWNERS)
    pca.partial_fit(OWNERS[0][:10])
    pca.shared_model().detect(OWNERS[1], threshold=1.0)
    return seats, pca


@pytest.mark.parametrize("seat", range(4))
def test_no_plaintext_in_a_view(fitted: tuple[LockstepServers, PCA], seat: int) -> None:
    seats, pca = fitted
    assert hits(seats.views[seat], patterns(secrets_of(pca.scale_exponents_))) == 0


@pytest.mark.parametrize("seat", range(4))
def test_no_plaintext_in_what_a_server_keeps(fitted: tuple[LockstepServers, PCA], seat: int) -> None:
    """Shares of the model and of the sums, as they would be on disk."""
    seats, pca = fitted
    kept = [value[0] for record in seats.stores[seat].values() for key, value in record.items() if key != "public"]
    assert len(kept) >= 5
    wanted = secrets_of(pca.scale_exponents_) + pca.components_.ravel().tolist() + pca.explained_variance_.tolist()
    # Low limbs only: a locally truncated share is uniform in 88 bits, its upper limb near 0 or 2^64 whatever the secret.
    low = np.concatenate([np.ascontiguousarray(shares[..., 0]).ravel() for shares in kept]) >> np.uint64(DROPPED)
    assert not np.isin(low, patterns(wanted)).any()


@pytest.mark.parametrize("seat", range(4))
def test_a_view_is_uniform(fitted: tuple[LockstepServers, PCA], seat: int) -> None:
    """Chi-square of the byte histogram of the whole view, both tails; false alarm 1e-6 for all servers and fits together."""
    seats, _ = fitted
    view = np.frombuffer(b"".join(seats.views[seat]), np.uint8)
    expected = view.size / 256
    statistic = float(((np.bincount(view, minlength=256) - expected) ** 2 / expected).sum())
    alarm = FALSE_ALARM / 16
    assert chi2.ppf(alarm, 255) < statistic < chi2.isf(alarm, 255)


@pytest.mark.parametrize("value", ["data", "covariance", "mean", "row count"])
def test_the_scan_finds_what_it_looks_for(fitted: tuple[LockstepServers, PCA], value: str) -> None:
    """A plaintext in the middle of random bytes, at an odd place, is found."""
    _, pca = fitted
    scale = float(np.ldexp(1.0, -int(pca.scale_exponents_[0])))
    planted, frac = {
        "data": (OWNERS[0][3, 0] * scale, 40),
        "covariance": (float(np.cov(POOLED.T, bias=True)[0, 0]) * scale**2, 112),
        "mean": (-float(POOLED[:, 0].mean()) * scale, 56),
        "row count": (37.0, 0),
    }[value]
    encoded = (round(planted * 2.0**frac) % 2**128).to_bytes(16, "little")
    noise = RNG.bytes(999)
    wanted = patterns(secrets_of(pca.scale_exponents_))
    assert hits([noise], wanted) == 0
    assert hits([noise[:501] + encoded + noise[501:]], wanted) > 0


def test_views_of_two_fits_of_the_same_data_have_nothing_in_common() -> None:
    """Masks are fresh in every run: no word of one view occurs in the other. False alarm: 2^38 pairs of 56 bits, 2^-18
    a server."""
    first, second = (LockstepServers(record=True) for _ in range(2))
    for seats in (first, second):
        PCA(3, servers=seats, fixed_iterations=6).fit(OWNERS)
    for seat in range(4):
        assert hits(first.views[seat], np.unique(words_of(second.views[seat]))) == 0
