"""The database of a mailbox: opened, checked, and made again if it is damaged."""

from __future__ import annotations

import errno
import json
import logging
import sqlite3
import time
from pathlib import Path

from ..federation.objects import sha256

log = logging.getLogger("ppca.mailbox")
SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, author TEXT NOT NULL,
    job TEXT NOT NULL, about TEXT NOT NULL, size INTEGER NOT NULL, arrived REAL NOT NULL, present INTEGER NOT NULL DEFAULT 1,
    mark TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS objects_by_author ON objects (author, job);
CREATE INDEX IF NOT EXISTS objects_by_job ON objects (job, kind);
CREATE INDEX IF NOT EXISTS objects_by_kind ON objects (kind, job);
CREATE INDEX IF NOT EXISTS objects_lost ON objects (seq) WHERE present = -1;
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT NOT NULL, mark TEXT NOT NULL DEFAULT '');
"""
OF_DISKS = tuple(
    f"SQLITE_{name}" for name in ("IOERR", "FULL", "CANTOPEN", "READONLY", "BUSY", "LOCKED", "NOMEM", "PERM")
)
"""Errors that say nothing about the content of the database."""


def open_records(path: Path) -> sqlite3.Connection:
    """The database. A damaged one is put aside for a new one with its good notes, which `Mailbox` fills from the
    files."""
    notes: list[tuple[str, str, str]] = []
    try:
        database = _connected(path)
        ((fault,),) = database.execute("PRAGMA integrity_check(1)").fetchall()
        found = database.execute("SELECT name, value, mark FROM notes").fetchall()
        notes = [note for note in found if note[2] == mark_of(*note[:2])]
        records = database.execute(f"SELECT {FIELDS}, mark FROM objects")  # noqa: S608
        if fault == "ok" and len(notes) == len(found) and all(mark == mark_of(*fields) for *fields, mark in records):
            return database
        database.close()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if getattr(error, "sqlite_errorname", "").startswith(OF_DISKS):
            raise OSError(errno.EIO, f"cannot open {path}: {error}") from None
        fault = str(error)
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
    log.error("records damaged", extra={"reason": str(fault)[:200], "put": str(aside)})
    path.replace(aside)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    database = _connected(path)
    database.executemany("INSERT INTO notes (name, value, mark) VALUES (?, ?, ?)", notes)
    return database


def _connected(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        for table, fields in (("objects", FIELDS), ("notes", "name, value")):
            columns = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
            if columns and "mark" not in columns:  # of an earlier version
                database.create_function("mark_of", -1, mark_of)
                database.execute(f"ALTER TABLE {table} ADD COLUMN mark TEXT NOT NULL DEFAULT ''")
                database.execute(f"UPDATE {table} SET mark = mark_of({fields})")  # noqa: S608
        database.executescript(SCHEMA)
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        database.close()
        raise
    return database


FIELDS = "kind, author, job, about, digest, size"


def mark_of(*fields: object) -> str:
    """A checksum of a record: SQLite has none of its own."""
    return sha256(json.dumps(fields).encode())[:16]
