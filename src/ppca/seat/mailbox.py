"""The mailbox of a seat: objects in files, what they are in a small database. An object is there whole or not at all.

Files are named by the digest of their content, which is checked when they are read: the content of one that a disk has damaged
is lost, and is taken again from whoever has it. What is kept of jobs that are over is small: payloads are dropped, headers stay.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ..federation.objects import Header, Object, sha256

SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, author TEXT NOT NULL,
    job TEXT NOT NULL, about TEXT NOT NULL, size INTEGER NOT NULL, arrived REAL NOT NULL, present INTEGER NOT NULL DEFAULT 1
);
CREATE INDEX IF NOT EXISTS objects_by_author ON objects (author, job);
CREATE INDEX IF NOT EXISTS objects_by_job ON objects (job, kind);
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
HERE, DROPPED, LOST = 1, 0, -1
"""What became of an object's content. Dropped content is not wanted again, lost content is."""


class Mailbox:
    """Objects by digest. Safe for several threads; one process at a time."""

    def __init__(self, folder: Path) -> None:
        self._files = folder / "objects"
        self._files.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = threading.RLock()
        self._database = sqlite3.connect(folder / "records.db", check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.executescript(SCHEMA)
        self._tidy()

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _tidy(self) -> None:
        """Removes what a killed process left half-written or without a record, and notes which content is lost."""
        here = {digest for (digest,) in self._rows("SELECT digest FROM objects WHERE present = 1")}
        found = {path.name: path for path in self._files.glob("*/*")}
        for name in found.keys() - here:
            found[name].unlink(missing_ok=True)
        for digest in here - found.keys():
            self._set(digest, LOST)

    # -- objects ---------------------------------------------------------------------------------------------------

    def put(self, item: Object) -> bool:
        """Stores an object; False if it is or was there already. OSError if the disk is full: nothing is left of it then."""
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
                self._run(
                    "INSERT INTO objects (digest, kind, author, job, about, size, arrived) VALUES (?,?,?,?,?,?,?)",
                    *(header.digest, header.kind, header.author, header.job),
                    *(json.dumps(header.about), header.size, time.time()),
                )
            except OSError:
                path.unlink(missing_ok=True)
                raise
            return True

    def state(self, digest: str) -> int | None:
        """HERE, DROPPED or LOST; None if the object was never here."""
        return next((state for (state,) in self._rows("SELECT present FROM objects WHERE digest = ?", digest)), None)

    def has(self, digest: str) -> bool:
        return self.state(digest) == HERE

    def knows(self, digest: str) -> bool:
        """Whether nothing is to be done to have this object: it is here, or was dropped."""
        return self.state(digest) in (HERE, DROPPED)

    def lost(self) -> list[str]:
        """Objects whose content the disk has lost."""
        return [digest for (digest,) in self._rows("SELECT digest FROM objects WHERE present = -1 ORDER BY seq")]

    def _set(self, digest: str, state: int) -> None:
        self._run("UPDATE objects SET present = ? WHERE digest = ?", state, digest)

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
                if self.has(digest):  # nobody has dropped it meanwhile
                    self._path(digest).unlink(missing_ok=True)
                    self._set(digest, LOST)
            return None
        return Object.parse(data)

    def header(self, digest: str) -> Header | None:
        return next(iter(self._headers("digest = ?", digest)), None)

    def headers(self, job: str) -> list[Header]:
        """All that is known of a job, in the order of arrival."""
        return self._headers("job = ?", job)

    def jobs(self) -> list[str]:
        """The ids of all jobs, in the order of arrival."""
        return [
            job for (job,) in self._rows("SELECT job FROM objects WHERE kind = 'job' GROUP BY job ORDER BY MIN(seq)")
        ]

    def submitters(self, job: str) -> set[str]:
        return {author for (author,) in self._rows("SELECT author FROM objects WHERE job = ? AND kind = 'job'", job)}

    def open_jobs_of(self, author: str) -> list[str]:
        """Jobs that a member submitted and that are not noted as over."""
        return [
            job
            for (job,) in self._rows(
                "SELECT job FROM objects WHERE author = ? AND kind = 'job' "
                "AND NOT EXISTS (SELECT 1 FROM notes WHERE name = 'over ' || objects.job) ORDER BY seq",
                author,
            )
        ]

    def count(self, author: str, job: str | None = None, *, since: float = 0.0) -> int:
        """Objects of an author for one job; without one, the jobs that it submitted since then."""
        where = "kind = 'job' AND arrived > ?" if job is None else "job = ?"
        found = self._rows(
            f"SELECT COUNT(*) FROM objects WHERE author = ? AND {where}",  # noqa: S608
            *(author, since if job is None else job),
        )
        return int(found[0][0])

    def forget(self, job: str) -> None:
        """Removes a job that is over and erased, with all that is known of it."""
        with self._lock:
            for header in self.headers(job):
                self._path(header.digest).unlink(missing_ok=True)
            self._run("DELETE FROM objects WHERE job = ?", job)
            self._run("DELETE FROM notes WHERE name IN (?, ?, ?)", f"over {job}", f"committed {job}", f"erased {job}")
            self.note(f"forgotten {job}", "yes")

    def since(self, seq: int, most: int = 500, *, job: str | None = None) -> list[tuple[int, Header]]:
        """What arrived after a place in the order of arrival, and the places. Of one job all, else without what was dropped."""
        where, values = ("present = 1", ()) if job is None else ("job = ?", (job,))
        rows = self._rows(
            f"SELECT seq, {FIELDS} FROM objects WHERE seq > ? AND {where} ORDER BY seq LIMIT ?",  # noqa: S608
            *(seq, *values, most),
        )
        return [(row[0], _header(row[1:])) for row in rows]

    def drop(self, job: str, kinds: Iterable[str], *, to_others_than: int | None = None) -> int:
        """Deletes the content of a job's objects of these kinds; what they were stays known. Returns how many."""
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

    def bytes_of(self, author: str | None = None) -> int:
        """Bytes of all objects here, or of those of one author."""
        where, values = ("", ()) if author is None else (" AND author = ?", (author,))
        return int(self._rows(f"SELECT COALESCE(SUM(size), 0) FROM objects WHERE present = 1{where}", *values)[0][0])  # noqa: S608

    def _headers(self, where: str, *values: object) -> list[Header]:
        return [_header(row) for row in self._rows(f"SELECT {FIELDS} FROM objects WHERE {where} ORDER BY seq", *values)]  # noqa: S608

    def _path(self, digest: str) -> Path:
        return self._files / digest[:2] / digest

    # -- notes -----------------------------------------------------------------------------------------------------

    def note(self, name: str, value: str | None = None) -> str | None:
        """A small fact that must survive a restart: sets it, or tells it."""
        if value is not None:
            self._run(
                "INSERT INTO notes VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", name, value
            )
            return value
        return next((text for (text,) in self._rows("SELECT value FROM notes WHERE name = ?", name)), None)

    def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock, _as_oserror(), closing(self._database.execute(statement, values)) as cursor:
            return cursor.fetchall()

    def _run(self, statement: str, *values: object) -> None:
        self._rows(statement, *values)


FIELDS = "kind, author, job, about, digest, size"


def _header(row: tuple[Any, ...]) -> Header:
    kind, author, job, about, digest, size = row
    return Header(kind, author, job, json.loads(about), digest, size)


@contextmanager
def _as_oserror() -> Iterator[None]:
    """A full or failing disk is the same fault for records as for files."""
    try:
        yield
    except sqlite3.OperationalError as error:
        number = errno.ENOSPC if "full" in str(error) else errno.EIO
        raise OSError(number, f"records: {error}") from None


def write_file(path: Path, data: bytes) -> None:
    """Writes a file, readable by this user only, whole or not at all; it is on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    with _opened(path.parent) as folder:
        os.fsync(folder)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
