"""Checks of `ppca doctor` without a network: file permissions, free disk space, the number of this server."""

from __future__ import annotations

import json
import shutil
import stat
import urllib.request
from pathlib import Path

from ..federation.identity import Identity
from ..federation.membership import SIGNATURES_FILE, Membership
from ..federation.serverfile import ServerSettings
from ..html.formats import size
from ..runtime.machine import machine_bytes
from .doctor_report import Findings

MIN_FREE = 1 << 30
"""Bytes below which uploads of a few owners may already fail."""

LOCAL_SECONDS = 5.0

COPIES_OF_INPUTS = 3
"""Copies of the inputs of a job while they are handed to the process that computes."""


def unwritable(found: Findings, federation: Path) -> None:
    """Check the permissions of federation.toml. Anyone that can change it can lock members out, but not add members."""
    for path in (federation, federation.with_name(SIGNATURES_FILE)):
        _not_by_others(found, path)


def _not_by_others(found: Findings, path: Path) -> None:
    if path.is_file() and path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        found.wrong(path.name, f"{path} can be changed by others", f"chmod go-w {path}")


def member(found: Findings, state: Path) -> None:
    """Check the folder in which a member keeps keys of jobs and unsent shares."""
    _private(found, "state", state)
    _check_space(found, "state", state)


def server(found: Findings, settings: ServerSettings, membership: Membership | None, identity: Identity | None) -> None:
    """The operator's files, store and running server."""
    _not_by_others(found, settings.folder / "server.toml")
    if membership is not None and identity is not None and membership.server_of(identity.name) != settings.file.server:
        found.wrong(
            "server.toml",
            f"{identity.name} does not have server {settings.file.server} in {membership.name}, revision "
            f"{membership.revision}",
            "correct server in server.toml, or the federation's file",
        )
    _private(found, "store", settings.store)
    _private(found, "keys", settings.keys)
    free = _check_space(found, "store", settings.store)
    if free is not None and free < settings.file.store.at_most:
        found.note(
            "store",
            f"it may grow to {size(settings.file.store.at_most)}, and {size(free)} are free",
            "lower at_most in [store] of server.toml, or enlarge the disk",
        )
    _memory(found, settings)
    _running(found, settings)


def _memory(found: Findings, settings: ServerSettings) -> None:
    """Compare what the inputs of jobs may take with the memory of this machine."""
    policy, machine = settings.file.policy, machine_bytes()
    most = (COPIES_OF_INPUTS * policy.jobs_at_once + 1) * policy.input_bytes
    found.figures["memory_bytes"] = {"machine": machine, "jobs": most}
    if most > machine:
        found.note(
            "memory",
            f"{policy.jobs_at_once} jobs at once and a check may take {size(most)}, and this machine has {size(machine)}",
            f"set memory in [policy] of server.toml to at most {machine // (COPIES_OF_INPUTS * policy.jobs_at_once + 1)}",
        )


def _private(found: Findings, where: str, folder: Path) -> None:
    """A folder of keys or shares, and the keys in it, are for one user."""
    if not folder.exists():
        return
    open_to = [path for path in (folder, *folder.glob("*.key")) if path.stat().st_mode & 0o077]
    for path in open_to:
        found.wrong(where, f"{path} can be read by others", f"chmod go= {path}")
    if not open_to:
        found.good(where, f"{folder} is for its user only")


def _check_space(found: Findings, where: str, folder: Path) -> int | None:
    place = next((each for each in (folder, *folder.parents) if each.exists()), None)
    if place is None:
        return None
    free = shutil.disk_usage(place).free
    found.figures[f"{where}_free_bytes"] = free
    if free < MIN_FREE:
        found.wrong(where, f"{size(free)} are free on the disk of {folder}", "free some space, or choose another disk")
    return free


def _running(found: Findings, settings: ServerSettings) -> None:
    """The server of this server, by its own account."""
    place = settings.file.listen.local
    try:
        with urllib.request.urlopen(f"http://{place}/healthz", timeout=LOCAL_SECONDS) as answer:
            health = json.loads(answer.read())
        found.figures["health"] = health
        found.good("this server", f"runs; {health['links_up']} of 3 other servers are linked to it")
    except (OSError, ValueError, KeyError):
        found.wrong(
            "this server",
            f"it does not answer on {place}",
            "systemctl start ppca-server, or ppca server run -c server.toml; its log says why it ended",
        )
