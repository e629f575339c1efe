"""The store of a server: objects in files, and a small database of their headers. An object is stored completely or not
at all.

A file is named by the digest of its content, which is checked on every read. If the disk has damaged a file, its
content counts as lost and is fetched again from another server. If the database is damaged, missing or older than the
files, its records are made again from the files; no file is deleted for want of a record. Of a job that is over,
payloads are dropped and headers stay.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from ..federation.errors import ObjectRefused
from ..federation.objects import Header, Object, sha256
from ..federation.state import Objects
from ..runtime.files import write_whole
from .records import FIELDS, mark_of, open_records

log = logging.getLogger("ppca.mailbox")

NOT_OVER = " AND NOT EXISTS (SELECT 1 FROM notes WHERE name = 'over ' || objects.job)"
HERE, DROPPED, LOST = 1, 0, -1
"""State of an object's content: stored, dropped (not requested again), or lost (requested again)."""

SMALL = 1 << 16
"""Bytes of an object that counts as small: servers tell each other with such objects what they do."""

RECORDS = "records.db"
HEADERS_AT_HAND = 100_000
"""Headers of the jobs used last that stay in memory, about 1 kB each."""


class Mailbox:
    """Objects by digest. Safe for several threads; one process at a time."""

    def __init__(self, folder: Path) -> None:
        self._files = folder / "objects"
        self._files.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = threading.RLock()
        self._database = open_records(folder / RECORDS)
        self._jobs: dict[str, Objects] = {}
        self._held = 0
        self._bytes: Counter[str] = Counter()
        self._small: Counter[str] = Counter()
        self._run("BEGIN")
        self._tidy()
        self._run("COMMIT")
        found = self._rows(
            "SELECT author, SUM(size), SUM(size * (size <= ?)) FROM objects WHERE present = 1 GROUP BY author", SMALL
        )
        for author, size, small in found:
            self._bytes[author], self._small[author] = int(size), int(small)

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _tidy(self) -> None:
        """Compare records and files: removes what was half-written or dropped, make missing records, notes lost
        content."""
        states = dict(self._rows("SELECT digest, present FROM objects"))
        jobs = dict(self._rows("SELECT digest, job FROM objects WHERE present = 0"))
        found = {path.name: path for path in self._files.glob("*/*")}
        for name in found.keys() & states.keys():
            if states[name] == DROPPED and self.note(f"erased {jobs[name]}") is not None:
                _remove(found[name])
            elif states[name] != HERE:
                self._run("UPDATE objects SET present = 1 WHERE digest = ?", name)
        orphans = [path for name, path in found.items() if name not in states]
        taken = sum(self._adopt(path) for path in sorted(orphans, key=_changed))
        if taken:
            log.warning("records made again from files", extra={"records": taken})
        for digest in (digest for digest, state in states.items() if state == HERE and digest not in found):
            self._run("UPDATE objects SET present = -1 WHERE digest = ?", digest)

    def _adopt(self, path: Path) -> bool:
        """Make the record of a file that has none; remove the file if it holds no object, or one that is not wanted."""
        try:
            data, changed = path.read_bytes(), path.stat().st_mtime
        except OSError as error:  # a folder, or a fault of the disk: the server starts without it
            _skipped(path, error)
            return False
        with suppress(ObjectRefused):
            item = Object.parse(data)
            if item.digest == path.name and self.note(f"forgotten {item.header.job}") is None:
                self._insert(item.header, changed)
                return True
        _remove(path)
        return False

    # -- objects ---------------------------------------------------------------------------------------------------

    def put(self, item: Object) -> bool:
        """Store an object; False if it is or was there already. OSError if the disk is full: nothing is left of it
        then."""
        header = item.header
        with self._lock:
            state = self.state(header.digest)
            if state in (HERE, DROPPED):
                return False
            path = self._path(header.digest)
            write_file(path, item.data)
            try:
                if state == LOST:
                    self._set(header.digest, HERE)
                    return False
                self._insert(header, time.time())
            except OSError:
                path.unlink(missing_ok=True)
                raise
            self._count(header.author, header.size, 1)
            if header.job in self._jobs:
                self._jobs[header.job].add(header)
                self._held += 1
            return True

    def _insert(self, header: Header, arrived: float) -> None:
        self._run(
            f"INSERT INTO objects ({FIELDS}, arrived, mark) VALUES (?,?,?,?,?,?,?,?)",  # noqa: S608
            *(fields := (header.kind, header.author, header.job, json.dumps(header.about), header.digest, header.size)),
            *(arrived, mark_of(*fields)),
        )

    def state(self, digest: str) -> int | None:
        """HERE, DROPPED or LOST; None if the object was never here."""
        return next((state for (state,) in self._rows("SELECT present FROM objects WHERE digest = ?", digest)), None)

    def has(self, digest: str) -> bool:
        return self.state(digest) == HERE

    def knows(self, digest: str) -> bool:
        """Return whether nothing is to be done to have this object: it is here, or was dropped."""
        return self.state(digest) in (HERE, DROPPED)

    def lost(self) -> list[str]:
        """Objects whose content the disk has lost."""
        return [digest for (digest,) in self._rows("SELECT digest FROM objects WHERE present = -1 ORDER BY seq")]

    def _set(self, digest: str, state: int) -> None:
        ((author, size, before),) = self._rows("SELECT author, size, present FROM objects WHERE digest = ?", digest)
        self._run("UPDATE objects SET present = ? WHERE digest = ?", state, digest)
        self._count(author, size, (state == HERE) - (before == HERE))

    def _count(self, author: str, size: int, times: int) -> None:
        self._bytes[author] += size * times
        if size <= SMALL:
            self._small[author] += size * times

    def get(self, digest: str) -> Object | None:
        """The object; None if it is not here, or no longer what it was."""
        if not self.has(digest):
            return None
        try:
            data = self._path(digest).read_bytes()
        except OSError:
            data = b""
        if sha256(data) != digest:
            with self._lock:
                if self.has(digest):  # it was not dropped meanwhile
                    _remove(self._path(digest))
                    self._set(digest, LOST)
            return None
        return Object.parse(data)

    def header(self, digest: str) -> Header | None:
        return next(iter(self._headers("digest = ?", digest)), None)

    def headers(self, job: str) -> list[Header]:
        """All that is known of a job, in the order of arrival."""
        return list(self.objects(job).headers)

    def objects(self, job: str) -> Objects:
        """The same by kind. It grows with the job: the next call does not read the database again."""
        with self._lock:
            found = self._jobs.pop(job, None)
            if found is None:
                found = Objects(self._headers("job = ?", job))
                if not found.headers:  # anybody can ask for ids that stand for no job: they take no memory
                    return found
                self._held += len(found.headers)
            self._jobs[job] = found  # the last one in order is the one used last
            while self._held > HEADERS_AT_HAND and len(self._jobs) > 1:
                self._held -= len(self._jobs.pop(next(iter(self._jobs))).headers)
            return found

    def jobs(self) -> list[str]:
        """The ids of all jobs, in the order of arrival."""
        return [
            job for (job,) in self._rows("SELECT job FROM objects WHERE kind = 'job' GROUP BY job ORDER BY MIN(seq)")
        ]

    def job_files(self) -> list[tuple[str, bool]]:
        """The same, each with whether its file is here."""
        found = self._rows("SELECT job, MAX(present) FROM objects WHERE kind = 'job' GROUP BY job ORDER BY MIN(seq)")
        return [(job, state == HERE) for job, state in found]

    def submitters(self, job: str) -> set[str]:
        return {author for (author,) in self._rows("SELECT author FROM objects WHERE job = ? AND kind = 'job'", job)}

    def open_jobs_of(self, author: str) -> list[str]:
        """Jobs that a member submitted and that are not noted as over."""
        return [
            job
            for (job,) in self._rows(
                f"SELECT job FROM objects WHERE author = ? AND kind = 'job'{NOT_OVER} ORDER BY seq",  # noqa: S608
                author,
            )
        ]

    def submitted(self, author: str, since: float) -> int:
        """Return the number of jobs that a member has submitted since a time."""
        where = "author = ? AND kind = 'job' AND arrived > ?"
        return int(self._rows(f"SELECT COUNT(*) FROM objects WHERE {where}", author, since)[0][0])  # noqa: S608

    def job_bytes_of(self, author: str, *, still_open: bool = False) -> int:
        """Bytes of the files of the jobs that a member submitted. still_open: of those that are not noted as over."""
        where = "author = ? AND kind = 'job' AND present = 1" + (NOT_OVER if still_open else "")
        return int(self._rows(f"SELECT COALESCE(SUM(size), 0) FROM objects WHERE {where}", author)[0][0])  # noqa: S608

    def forget(self, job: str) -> None:
        """Remove a job that is over and erased, with all that is known of it."""
        with self._lock:
            self.note(f"forgotten {job}", "yes")  # first: what is left of its files is removed at the next start
            for digest, author, size, state in self._rows(
                "SELECT digest, author, size, present FROM objects WHERE job = ?", job
            ):
                self._path(digest).unlink(missing_ok=True)
                self._count(author, size, -(state == HERE))
            self._run("DELETE FROM objects WHERE job = ?", job)
            self._held -= len(self._jobs.pop(job, Objects()).headers)
            self.unnote(*(f"{what} {job}" for what in OF_JOBS))
            for what in ("inputs", "checks"):
                self.unnote(*(f"{what} {job} {owner}" for owner in self.noted(f"{what} {job} ")))

    def since(self, seq: int, most: int = 500, *, job: str | None = None) -> list[tuple[int, Header]]:
        """Return the objects after a place in the order of arrival, with places; of one job including dropped ones."""
        where, values = ("present = 1", ()) if job is None else ("job = ?", (job,))
        rows = self._rows(
            f"SELECT seq, {FIELDS} FROM objects WHERE seq > ? AND {where} ORDER BY seq LIMIT ?",  # noqa: S608
            *(seq, *values, most),
        )
        return [(row[0], _header(row[1:])) for row in rows]

    def drop(self, job: str, kinds: Iterable[str], *, to_others_than: int | None = None) -> int:
        """Delete the content of a job's objects of these kinds; what they were stays known. Returns how many."""
        gone = [header for header in self.headers(job) if header.kind in set(kinds)]
        if to_others_than is not None:
            gone = [header for header in gone if header.about.get("to") != to_others_than]
        with self._lock:
            self._run("BEGIN")
            for header in gone:
                self._set(header.digest, DROPPED)
            self._run("COMMIT")
            for header in gone:  # records first: a file without a record is removed at the next start
                self._path(header.digest).unlink(missing_ok=True)
        return len(gone)

    def bytes_of(self, author: str | None = None, *, small: bool = False) -> int:
        """Bytes of all objects here, or of those of one author. small: of those with at most SMALL bytes."""
        counts = self._small if small else self._bytes
        with self._lock:
            return counts.total() if author is None else counts[author]

    def _headers(self, where: str, *values: object) -> list[Header]:
        return [_header(row) for row in self._rows(f"SELECT {FIELDS} FROM objects WHERE {where} ORDER BY seq", *values)]  # noqa: S608

    def whole(self, digest: str) -> Path | None:
        """The file of an object whose content is what it was; None if it is not here. The content is not kept in
        memory."""
        with suppress(OSError), self._path(digest).open("rb") as file:
            if self.has(digest) and hashlib.file_digest(file, "sha256").hexdigest() == digest:
                return self._path(digest)
        self.get(digest)  # notes what is lost
        return None

    def path(self, digest: str) -> Path:
        """Return the path of an object's content."""
        return self._path(digest)

    def _path(self, digest: str) -> Path:
        return self._files / digest[:2] / digest

    # -- notes -----------------------------------------------------------------------------------------------------

    def note(self, name: str, value: str | None = None) -> str | None:
        """A small fact that must survive a restart: sets it, or tells it."""
        if value is not None:
            self._run(
                "INSERT OR REPLACE INTO notes (name, value, mark) VALUES (?, ?, ?)", name, value, mark_of(name, value)
            )
            return value
        return next((text for (text,) in self._rows("SELECT value FROM notes WHERE name = ?", name)), None)

    def noted(self, prefix: str) -> dict[str, str]:
        """All notes whose name begins so, without the beginning."""
        after = prefix[:-1] + chr(ord(prefix[-1]) + 1)  # a range of the index, not a search through all notes
        found = self._rows("SELECT name, value FROM notes WHERE name >= ? AND name < ?", prefix, after)
        return {name.removeprefix(prefix): value for name, value in found}

    def unnote(self, *names: str) -> None:
        """Forget notes."""
        for name in names:
            self._run("DELETE FROM notes WHERE name = ?", name)

    def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock, _as_oserror(), closing(self._database.execute(statement, values)) as cursor:
            return cursor.fetchall()

    def _run(self, statement: str, *values: object) -> None:
        self._rows(statement, *values)


OF_JOBS = ("members", "name", "over", "committed", "erased", "missing")
"""Names of the notes about a job."""


def _header(row: tuple[Any, ...]) -> Header:
    kind, author, job, about, digest, size = row
    return Header(kind, author, job, json.loads(about), digest, size)


def _changed(path: Path) -> int:
    """Return when a file was changed last, in nanoseconds; 0 if the disk does not tell."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _remove(path: Path) -> None:
    """Remove a file, or say in the log why that is not possible."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _skipped(path, error)


def _skipped(path: Path, error: OSError) -> None:
    log.error("file skipped: move it away, or check the disk", extra={"path": str(path), "reason": error.strerror})


@contextmanager
def _as_oserror() -> Iterator[None]:
    """A full or failing disk is the same fault for records as for files."""
    try:
        yield
    except sqlite3.OperationalError as error:
        number = errno.ENOSPC if "full" in str(error) else errno.EIO
        raise OSError(number, f"records: {error}") from None


def write_file(path: Path, data: bytes) -> None:
    """Write a file that only this user can read, whole or not at all; it is on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(path, data, 0o600)
