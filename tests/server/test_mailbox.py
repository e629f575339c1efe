"""The mailbox and the keys of a server: an object is there whole or not at all, whatever the disk or a kill does."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.federation import job, make
from ppca.federation.errors import ObjectRefused
from ppca.server import mailbox as module
from ppca.server.keys import JOB, MODEL, Keys
from ppca.server.mailbox import DROPPED, HERE, LOST, Mailbox, write_file

OF = job()
ITEM = make("north", "envelope", OF, b"sealed" * 100, to=0, chunk=0)
OTHER = make("south", "envelope", OF, b"sealed" * 100, to=1, chunk=0)


@pytest.fixture
def box(tmp_path: Path) -> Mailbox:
    return Mailbox(tmp_path)


def again(box: Mailbox, folder: Path) -> Mailbox:
    """As after a restart."""
    box.close()
    return Mailbox(folder)


def files(folder: Path) -> list[Path]:
    return [path for path in (folder / "objects").rglob("*") if path.is_file()]


def test_an_object_comes_back_after_a_restart(box: Mailbox, tmp_path: Path) -> None:
    assert box.put(ITEM)
    assert not box.put(ITEM)
    box = again(box, tmp_path)
    assert box.get(ITEM.digest) == ITEM
    assert box.headers(OF.id) == [ITEM.header]
    assert [header for _, header in box.since(0)] == [ITEM.header]
    (file,) = files(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_kill_between_file_and_record_loses_nothing(
    box: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(box, "_run", killed)
        with pytest.raises(Killed):
            box.put(ITEM)
    assert files(tmp_path), "the file was written"
    box = again(box, tmp_path)
    assert box.get(ITEM.digest) == ITEM
    assert box.bytes_of("north") == len(ITEM.data)


def damaged(path: Path, way: str, place: int = 0) -> None:
    data = bytearray(path.read_bytes())
    if way == "missing":
        path.unlink()
        return
    data[place] ^= way == "flip"
    contents = {
        "empty": b"",
        "cut": data[: len(data) // 2],
        "zeros": bytes(len(data)),
        "other": b"x" * 5000,
        "flip": data,
    }
    path.write_bytes(contents[way])


@pytest.mark.parametrize("way", ["empty", "missing", "cut", "zeros", "other", "old copy"])
def test_records_that_are_damaged_or_old_are_made_again_from_the_files(box: Mailbox, tmp_path: Path, way: str) -> None:
    """An empty database was accepted, and every file without a record was deleted: 1,103 objects became none."""
    records = tmp_path / "records.db"
    items = [make("north", "envelope", OF, bytes([n]) * 500, to=0, chunk=n) for n in range(40)]
    for item in items[:2]:
        box.put(item)
    box.close()
    old = records.read_bytes()
    box = Mailbox(tmp_path)
    for item in items[2:]:
        box.put(item)
    box.close()
    records.write_bytes(old) if way == "old copy" else damaged(records, way)
    for end in ("-wal", "-shm"):
        records.with_name(records.name + end).unlink(missing_ok=True)
    box = Mailbox(tmp_path)
    assert sorted(header.digest for header in box.headers(OF.id)) == sorted(item.digest for item in items)
    assert all(box.get(item.digest) == item for item in items)
    assert box.bytes_of() == sum(len(item.data) for item in items)
    assert not box.put(items[5])


def test_flipped_bytes_of_the_records_are_survived(box: Mailbox, tmp_path: Path) -> None:
    """SQLite itself notices few of them: a changed text or number is a good record to it."""
    items = [ITEM, OTHER, make("south", "approval", OF)]
    for item in items:
        box.put(item)
    box.close()
    records = tmp_path / "records.db"
    whole = records.read_bytes()
    for place in range(0, len(whole), 101):
        for path in tmp_path.glob("records.db*"):
            path.unlink()
        records.write_bytes(whole)
        damaged(records, "flip", place)
        box = Mailbox(tmp_path)
        assert {header.digest: header for header in box.headers(OF.id)} == {i.digest: i.header for i in items}, place
        assert all(box.get(item.digest) == item for item in items), place
        box.close()


@pytest.mark.parametrize("change", ["author = 'mallory'", "about = '{}'", "size = 1"])
def test_a_record_that_was_changed_is_made_again(box: Mailbox, tmp_path: Path, change: str) -> None:
    """A good record to SQLite: only its checksum shows the change."""
    box.put(ITEM)
    box.close()
    with closing(sqlite3.connect(tmp_path / "records.db")) as database, database:
        assert database.execute(f"UPDATE objects SET {change}").rowcount == 1
    assert Mailbox(tmp_path).headers(OF.id) == [ITEM.header]


def test_records_of_an_earlier_version_are_read(box: Mailbox, tmp_path: Path) -> None:
    box.put(ITEM)
    box.note("instance", "abc")
    for table in ("objects", "notes"):
        box._run(f"ALTER TABLE {table} DROP COLUMN mark")
    box = again(box, tmp_path)
    assert (box.headers(OF.id), box.note("instance")) == ([ITEM.header], "abc")


def test_what_was_forgotten_is_not_made_again(box: Mailbox, tmp_path: Path) -> None:
    box.put(ITEM)
    data = box._path(ITEM.digest).read_bytes()
    box.forget(OF.id)
    box._path(ITEM.digest).write_bytes(data)
    box = again(box, tmp_path)
    assert (box.headers(OF.id), files(tmp_path)) == ([], [])


def test_the_cost_of_an_object_does_not_grow_with_the_job(box: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every object the server read, parsed and sorted all headers of its job, and added up all sizes in the store."""
    rows = 0
    real = box._rows

    def counted(*arguments: Any) -> Any:
        nonlocal rows
        found = real(*arguments)
        rows += len(found)
        return found

    box.headers(OF.id)
    monkeypatch.setattr(box, "_rows", counted)
    for number in range(50):
        box.put(make("north", "envelope", OF, b"x", to=0, chunk=number))
        assert len(box.headers(OF.id)) == number + 1
        assert box.bytes_of("north") == box.bytes_of() > 0
    assert rows <= 50


def test_headers_in_memory_are_bounded(box: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEADERS_AT_HAND", 10)
    jobs = [job(name=f"job {number}") for number in range(6)]
    for each in jobs:
        for number in range(4):
            box.put(make("north", "envelope", each, b"x", to=0, chunk=number))
        assert len(box.headers(each.id)) == 4
    assert sum(len(objects.headers) for objects in box._jobs.values()) == box._held <= 10
    assert all(len(box.headers(each.id)) == 4 for each in jobs)


def test_jobs_that_are_not_there_take_no_memory(tmp_path: Path) -> None:
    """A member can ask for any id, 50 times a second."""
    box = Mailbox(tmp_path)
    for number in range(100):
        assert box.headers(f"{number:064x}") == []
    assert not box._jobs
    box.close()


def test_a_kill_while_a_file_is_written_leaves_nothing(box: Mailbox, tmp_path: Path) -> None:
    place = tmp_path / "objects" / ITEM.digest[:2]
    place.mkdir()
    (place / f"{ITEM.digest}.0a1b.part").write_bytes(ITEM.data[:50])
    again(box, tmp_path)
    assert files(tmp_path) == []


@pytest.mark.parametrize("damage", [b"", b"x", None])
def test_damaged_content_is_lost_and_taken_again(box: Mailbox, tmp_path: Path, damage: bytes | None) -> None:
    box.put(ITEM)
    (file,) = files(tmp_path)
    file.unlink() if damage is None else file.write_bytes(damage)
    assert box.get(ITEM.digest) is None
    assert (box.state(ITEM.digest), box.lost()) == (LOST, [ITEM.digest])
    assert box.headers(OF.id) == [ITEM.header], "what it was stays known: the job does not go back"
    assert not box.put(ITEM), "it is no news"
    assert box.get(ITEM.digest) == ITEM
    assert box.lost() == []


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("fault", ["folder", "EIO"])
def test_a_file_that_cannot_be_read_does_not_keep_the_server_from_starting(
    known: bool,
    fault: str,
    box: Mailbox,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A folder among the objects, or a file that the disk cannot read, stopped every start."""
    caplog.set_level(logging.ERROR, logger="ppca.mailbox")  # benchmarks turn its log off
    box.put(ITEM)
    path = box.path(ITEM.digest if known else "ab" * 32)
    path.parent.mkdir(exist_ok=True)
    if fault == "folder":
        path.unlink(missing_ok=True)
        path.mkdir()
    else:
        path.touch()
        real = Path.read_bytes

        def read_bytes(self: Path) -> bytes:
            if self == path:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(self)

        monkeypatch.setattr(Path, "read_bytes", read_bytes)
    box = again(box, tmp_path)
    assert (box.get(ITEM.digest) == ITEM) is not known
    assert known or str(path) in [getattr(record, "path", "") for record in caplog.records]
    assert again(box, tmp_path).state(ITEM.digest) == (HERE if not known or fault == "folder" else LOST)


def test_a_file_that_is_gone_is_noticed_at_the_start(box: Mailbox, tmp_path: Path) -> None:
    box.put(ITEM)
    box.put(OTHER)
    box._path(ITEM.digest).unlink()
    box = again(box, tmp_path)
    assert box.lost() == [ITEM.digest]
    assert box.has(OTHER.digest)


def test_a_full_disk_leaves_nothing(box: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            box.put(ITEM)
    assert files(tmp_path) == []
    assert box.state(ITEM.digest) is None
    assert box.put(ITEM)


def test_full_records_are_the_same_fault_and_leave_no_file(box: Mailbox, tmp_path: Path) -> None:
    pages = box._rows("PRAGMA page_count")[0][0]
    box._run(f"PRAGMA max_page_count = {pages}")
    many = (make("north", "refusal", OF, why="x" * 2000, number=number) for number in range(1000))
    with pytest.raises(OSError, match="records: database or disk is full") as refused:
        list(map(box.put, many))
    assert refused.value.errno == errno.ENOSPC
    assert len(files(tmp_path)) == len(box.headers(OF.id)) < 1000
    box._run("PRAGMA max_page_count = 1000000")
    assert box.put(ITEM)


def test_a_small_disk(tmp_path: Path) -> None:
    """A real file system of 1 MiB, where this is permitted."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    small = tmp_path / "small"
    small.mkdir()
    if libc.mount(b"tmpfs", str(small).encode(), b"tmpfs", 0, b"size=1m") != 0:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        box = Mailbox(small)
        many = [make("north", "envelope", OF, bytes(100_000), to=0, chunk=number) for number in range(20)]
        with pytest.raises(OSError, match=r"No space|full"):
            list(map(box.put, many))
        here = box.headers(OF.id)
        assert 0 < len(here) < 12
        assert all(box.get(header.digest) is not None for header in here)
        box.drop(OF.id, ["envelope"])
        assert box.put(ITEM), "room again"
        box.close()
    finally:
        libc.umount(str(small).encode())


def test_many_threads_put_the_same_and_different_objects(box: Mailbox, tmp_path: Path) -> None:
    items = [make("north", "envelope", OF, bytes([n]) * 500, to=0, chunk=n) for n in range(12)] * 4
    with ThreadPoolExecutor(8) as pool:
        new = list(pool.map(box.put, items))
    assert sum(new) == 12
    assert len(box.headers(OF.id)) == len(files(tmp_path)) == 12
    places = [seq for seq, _ in box.since(0)]
    assert places == sorted(set(places))


def test_what_is_dropped_does_not_come_back(box: Mailbox, tmp_path: Path) -> None:
    box.put(ITEM)
    box.put(OTHER)
    assert box.drop(OF.id, ["envelope"], to_others_than=0) == 1
    assert (box.state(OTHER.digest), box.state(ITEM.digest)) == (DROPPED, HERE)
    assert box.drop(OF.id, ["envelope"]) == 2
    assert files(tmp_path) == []
    assert not box.put(ITEM)
    assert box.get(ITEM.digest) is None
    assert len(box.headers(OF.id)) == 2
    assert box.since(0) == []
    assert box.bytes_of() == 0
    assert again(box, tmp_path).lost() == []


def test_bytes_by_author(box: Mailbox) -> None:
    box.put(ITEM)
    box.put(OTHER)
    assert box.bytes_of("north") == len(ITEM.data)
    assert box.bytes_of() == len(ITEM.data) + len(OTHER.data)
    assert box.bytes_of("nobody") == 0


def test_what_is_forgotten_leaves_no_trace(box: Mailbox, tmp_path: Path) -> None:
    other = job(name="other")
    kept = make("north", "approval", other)
    for item in (ITEM, OTHER, kept):
        box.put(item)
    box.note(f"over {OF.id}", "1")
    box.forget(OF.id)
    assert box.headers(OF.id) == []
    assert box.note(f"over {OF.id}") is None
    assert len(files(tmp_path)) == 1
    assert box.get(kept.digest) == kept


def test_open_jobs(box: Mailbox) -> None:
    jobs = [job(name=name) for name in ("a", "b", "c")]
    for each in jobs:
        box.put(make("analyst", "job", each, each.data))
    box.note(f"over {jobs[1].id}", "1")
    assert box.open_jobs_of("analyst") == [jobs[0].id, jobs[2].id]
    assert box.open_jobs_of("north") == []
    assert box.jobs() == [each.id for each in jobs]
    assert box.submitters(jobs[0].id) == {"analyst"}


def test_other_faults_of_the_records_are_not_swallowed(box: Mailbox) -> None:
    with pytest.raises(OSError, match="no such table"):
        box._rows("SELECT * FROM no_table")
    box.close()
    with pytest.raises(sqlite3.ProgrammingError):
        box.jobs()


# -- keys ----------------------------------------------------------------------------------------------------------------


def test_a_key_is_made_once_and_destroyed_for_good(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    made = keys.make(JOB, OF.id)
    assert keys.make(JOB, OF.id).to_bytes() == made.to_bytes() == Keys(tmp_path / "keys").make(JOB, OF.id).to_bytes()
    assert keys.make(MODEL, OF.id).to_bytes() != made.to_bytes()
    (file,) = (tmp_path / "keys").glob("job-*")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    with file.open("rb") as still_open:
        assert keys.destroy(JOB, OF.id)
        assert still_open.read() == bytes(len(made.to_bytes())), "overwritten, not only unlinked"
    assert not keys.destroy(JOB, OF.id)
    assert keys.of(JOB, OF.id) is None
    assert keys.of(MODEL, OF.id) is not None


def test_a_damaged_key_is_refused(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    keys.make(JOB, OF.id)
    (file,) = tmp_path.glob("job-*")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ObjectRefused):
        keys.of(JOB, OF.id)


def test_half_written_keys_are_gone_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "job-x.key.00.part").write_bytes(b"secret")
    Keys(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_file(path, b"old")

    def fails(*_: Any) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fails)
        with pytest.raises(OSError, match="broken"):
            write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
