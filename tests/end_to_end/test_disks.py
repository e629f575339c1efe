"""What lies on the disks of four servers: nothing readable while a job lives, nothing at all once it is erased, and what a disk
loses comes back from the mates."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.field import OPERATORS, Field
from benchmarks.jobs import fit_job
from harness.envelopes import envelopes_of
from ppca.federation import envelopes
from ppca.federation.proposal import ProposedJob
from ppca.member.contributing import contribute
from ppca.member.fetching import Evidence
from ppca.protocol import InputPacket

pytestmark = pytest.mark.processes
OWNERS = ("north", "south", "west")
COLUMNS = ["a", "b", "c", "d", "e"]
PATIENCE = 240.0
RANDOM = np.random.default_rng(0)
TABLES = {owner: RANDOM.standard_normal((40, 5)) @ RANDOM.standard_normal((5, 5)) + 3 for owner in OWNERS}
POOLED = np.concatenate(list(TABLES.values()))
VARIANCES = np.linalg.eigvalsh(np.cov(POOLED.T))[::-1]
PIECE = 24
"""Bytes of a needle: long enough to be nowhere by chance."""


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    folder = tmp_path_factory.mktemp("field")
    with Field(folder, OWNERS, ("analyst",)) as found:
        for owner, table in TABLES.items():
            np.savetxt(
                folder / f"{owner}.csv", table, delimiter=",", header=",".join(COLUMNS), comments="", fmt="%.17g"
            )
        yield found


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> set[bytes]:
    """The beginnings of all summands that owners send: what must never be readable on a server's disk."""
    found: set[bytes] = set()
    real = envelopes.Envelopes.add

    def add(self: envelopes.Envelopes, kind: str, packets: Sequence[list[InputPacket]], **fields: Any) -> None:
        found.update(
            bytes(part)[:PIECE] for each in packets for p in each for part in (p.row, p.column) if len(part) > 8
        )
        real(self, kind, packets, **fields)

    monkeypatch.setattr(envelopes.Envelopes, "add", add)
    return found


def proposed(field: Field, name: str, erase_after: str = "7d") -> ProposedJob:
    analyst = field.member("analyst")
    job = fit_job(
        *(analyst.membership, name, list(OWNERS), COLUMNS, {"analyst": ["model"]}),
        components=3,
        erase_after=erase_after,
    )
    analyst.submit(job)
    for owner in OWNERS:
        field.member(owner).approve(job)
    await_that(lambda: not any(item.actor in OPERATORS for item in analyst.job_state(job).waiting))
    return job


def await_that(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def finished(field: Field, job: ProposedJob) -> Evidence:
    analyst = field.member("analyst")
    *_, (job_state, _) = analyst.watch(job, PATIENCE)
    assert job_state.done, job_state
    evidence = Evidence.gather(analyst, job)
    evidence.check()
    model = evidence.result().model
    assert np.abs(model.explained_variance - VARIANCES[:3]).max() < 1e-8 * VARIANCES[0]
    return evidence


def files(field: Field, seat: str) -> Iterator[tuple[Path, bytes]]:
    for path in (field.folder / seat).rglob("*"):
        if path.is_file():
            yield path, path.read_bytes()


class Secrets:
    """What must not be readable on a server's disk: shares, rows as text or bits, and the keys of a job."""

    def __init__(self, field: Field, job: ProposedJob, shares: set[bytes]) -> None:
        assert len(shares) >= 4 * len(OWNERS)
        rows = [f"{value:.10g}".encode()[:9] for value in POOLED.ravel()] + [
            value.tobytes() for value in POOLED.ravel()
        ]
        self.needles = [*shares, *rows]
        self.keys = {
            seat: path.read_bytes()[:PIECE]
            for seat in OPERATORS
            for path in (field.folder / seat / "store/keys").glob(f"*{job.id}*")
        }
        assert len(self.keys) == len(OPERATORS)
        self.envelopes = {
            digest
            for owner in OWNERS
            for chunks in envelopes_of(field.member("analyst"), job, owner)
            for digest in chunks
        }
        assert len(self.envelopes) >= 4 * len(OWNERS)

    def check(self, path: Path, content: bytes, *keys: bytes) -> None:
        """Look for words of eight bytes at every place first: thousands of needles would take seconds one by one."""
        needles: dict[int, list[bytes]] = {}
        for needle in [*self.needles, *keys]:
            needles.setdefault(int.from_bytes(needle[:8], "little"), []).append(needle)
        windows = [
            np.frombuffer(content[start : len(content) - (len(content) - start) % 8], np.uint64) for start in range(8)
        ]
        words = np.concatenate(windows)
        for word in words[np.isin(words, np.array(list(needles), np.uint64))]:
            assert not any(needle in content for needle in needles[int(word)]), path


def contributed(field: Field, name: str, shares: set[bytes], **times: str) -> tuple[ProposedJob, Secrets]:
    job = proposed(field, name, **times)
    for owner in OWNERS:
        contribute(field.member(owner), job, field.folder / f"{owner}.csv")
    return job, Secrets(field, job, shares)


def test_no_share_key_or_row_is_readable(field: Field, shares: set[bytes]) -> None:
    """A key lies in the folder of keys of its own server only."""
    job, secrets = contributed(field, "lives", shares)
    finished(field, job)
    for seat in OPERATORS:
        found = list(files(field, seat))
        assert [path for path, _ in found if path.name in secrets.envelopes]
        for path, content in found:
            secrets.check(path, content, *([] if path.parent.name == "keys" else [secrets.keys[seat]]))


@pytest.mark.release
def test_all_of_it_goes(field: Field, shares: set[bytes]) -> None:
    """In real time; tests/server/test_erasure.py moves the clock."""
    job, secrets = contributed(field, "short-lived", shares, erase_after="60s")
    finished(field, job)
    analyst = field.member("analyst")
    await_that(lambda: {header.author for header in analyst.objects(job).of("erased")} == set(OPERATORS))
    for seat in OPERATORS:
        assert not [path for path, _ in files(field, seat) if path.name in secrets.envelopes]
        for path, content in files(field, seat):
            secrets.check(path, content, *secrets.keys.values())
    assert analyst.job_state(job).stage == "erased"


def test_a_secret_would_be_found(field: Field, shares: set[bytes]) -> None:
    """At any place of a file."""
    _, secrets = contributed(field, "planted", shares)
    for place in (0, 13):
        for needle in (secrets.needles[0], secrets.needles[-1]):
            with pytest.raises(AssertionError):
                secrets.check(Path("planted"), bytes(place) + needle + b"\n")


def test_what_a_disk_loses_comes_back_from_the_mates(field: Field) -> None:
    """Two servers find other bytes where shares were: one before it could check them, one after its receipt."""
    job = proposed(field, "damaged")
    for owner in OWNERS[:2]:
        contribute(field.member(owner), job, field.folder / f"{owner}.csv")
    analyst = field.member("analyst")
    await_that(lambda: len(analyst.objects(job).receipts()) == 8)
    hurt = damage(field, OPERATORS[1], job, "north") + damage(field, OPERATORS[2], job, "south")
    assert hurt >= 2
    contribute(field.member("west"), job, field.folder / "west.csv")
    finished(field, job)
    restored = [field.folder / OPERATORS[1] / "store" / "restored" / job.id / "north" / "chunks"]
    restored += [field.folder / OPERATORS[2] / "store" / "restored" / job.id / "south" / "chunks"]
    assert all(path.exists() for path in restored)


def damage(field: Field, seat: str, job: ProposedJob, owner: str) -> int:
    """Flips a bit in every envelope of an owner to a server."""
    store = field.folder / seat / "store" / "objects"
    number = OPERATORS.index(seat)
    count = 0
    for digest in envelopes_of(field.member("analyst"), job, owner)[number]:
        for path in store.rglob(digest + "*"):
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
            count += 1
    return count
