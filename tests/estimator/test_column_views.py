"""What servers and owners see of a vertical job: no id, no value, and exactly the documented openings."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import chi2

from harness.lockstep import LockstepServers
from harness.tables import with_ids
from ppca import PCA, Columns

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "openings.md"
RANDOM = np.random.default_rng(4)
N, D, K = 60, 6, 3
X = RANDOM.standard_normal((N, D)) @ RANDOM.standard_normal((D, D)) + 3
PEOPLE = [f"person-{number:012d}-Zoë" for number in RANDOM.integers(0, 10**12, N)]
CUTS = [(0, 1), (1, 4), (4, 6)]


def tables(way: str = "psi") -> list[pa.Table]:
    """Owners who list the people in an order of their own, where they may."""
    found = []
    for start, stop in CUTS:
        order = RANDOM.permutation(N) if way == "psi" else np.arange(N)
        ids: Any = [PEOPLE[i] for i in order] if way != "namespace" else order
        found.append(with_ids(X[order, start:stop], [f"c{i}" for i in range(start, stop)], ids))
    return found


def job(way: str, **options: Any) -> tuple[LockstepServers, PCA]:
    lockstep_servers = LockstepServers(record=True)
    partition = Columns("id", way, N if way == "namespace" else None)
    return lockstep_servers, PCA(K, partition=partition, servers=lockstep_servers, **options).fit(tables(way))


def everything(lockstep_servers: LockstepServers, seat: int) -> bytes:
    """All that a server received: packets, messages, and public parameters, arrays and texts."""
    return b"".join(lockstep_servers.views[seat]) + b"".join(_bytes(public) for public in lockstep_servers.public)


def _bytes(value: Any) -> bytes:
    if isinstance(value, dict):
        return b"".join(_bytes(key) + _bytes(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return b"".join(map(_bytes, value))
    return value.tobytes() if isinstance(value, np.ndarray) else str(value).encode()


@pytest.mark.parametrize("way", ["psi", "aligned", "namespace"])
def test_no_server_sees_an_id_or_a_value(way: str) -> None:
    lockstep_servers, pca = job(way)
    scaled = np.rint((X - X.mean(axis=0)) * 2.0**24 * np.ldexp(1.0, -pca.scale_exponents_)).astype(np.int64)
    words = np.unique(np.concatenate([X.ravel().view(np.uint64), scaled.ravel().view(np.uint64)]))
    words = words[(words != 0) & (words > 2**16)]
    for seat in range(4):
        view = everything(lockstep_servers, seat)
        assert not any(person.encode() in view for person in PEOPLE)
        assert b"person" not in view
        shares = b"".join(lockstep_servers.views[seat])
        for offset in range(8):
            usable = (len(shares) - offset) // 8
            assert not np.isin(np.frombuffer(shares, np.uint64, usable, offset), words).any()


def test_what_a_server_receives_looks_random() -> None:
    """Packets, messages and tags: chi-square of the bytes, both tails, false alarm 1e-6 for four servers."""
    lockstep_servers, _ = job("psi")
    tags = b"".join(_bytes(public["tags"]) for public in lockstep_servers.public if public.get("tags") is not None)
    assert len(tags) == 3 * N * 16
    for seat in range(4):
        view = np.frombuffer(b"".join(lockstep_servers.views[seat]) + tags, np.uint8)
        expected = view.size / 256
        statistic = float(((np.bincount(view, minlength=256) - expected) ** 2 / expected).sum())
        assert chi2.ppf(1e-6 / 8, 255) < statistic < chi2.isf(1e-6 / 8, 255)


def test_tags_of_two_jobs_cannot_be_joined() -> None:
    sent = []
    for _ in range(2):
        lockstep_servers, _ = job("psi")
        sent.append({tag.tobytes() for public in lockstep_servers.public if "tags" in public for tag in public["tags"]})
    assert len(sent[0]) == len(sent[1]) == N
    assert not sent[0] & sent[1]


# -- openings --------------------------------------------------------------------------------------------------------------


def documented(title: str) -> list[list[str]]:
    section = PAGE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return rows[2:]


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
@pytest.mark.parametrize("way", ["psi", "aligned", "namespace"])
def test_openings_are_the_documented_ones(way: str, standardize: bool) -> None:
    lockstep_servers, pca = job(way, standardize=standardize, fixed_iterations=12)
    cases = {
        "every fit",
        "every fit, d > 1",
        "fit with `reveal`",
        "fit with `reveal`, components left out",
        f"vertical fit, {way}",
    }
    cases |= {"fit with `reveal`, standardised", "every fit, standardised"} if standardize else {"every fit, raw"}
    letters = {"n": N, "d": D, "k": K, "m": len(CUTS), "1": 1}
    wanted: Counter[tuple[str, tuple[int, ...], str]] = Counter()
    for title, to in (("To the servers", "servers"), ("To the receiver", "client"), ("Column owners", "")):
        for what, shape, when, *rest in documented(title):
            if when in cases:
                size = tuple(letters[part.strip()] for part in shape.strip("()").split(",") if part.strip())
                wanted[what, size, to or {"servers": "servers", "receiver": "client"}[rest[0]]] += 1
    found = Counter((line["what"], tuple(line["shape"]), line["to"]) for line in pca.openings_)
    assert found == wanted
    for audits in lockstep_servers.audits:
        assert all(audit == audits[0] for audit in audits)
