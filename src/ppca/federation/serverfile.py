"""server.toml: the settings of one operator's server: addresses, storage, policy, work and Dask workers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, field_validator

from ..jobs.registry import ANALYSES
from ..jobs.spec import COORDINATES, FORMS, MIN_ROW_SHARE
from ..runtime.machine import machine_bytes
from . import toml
from .membership import Address, address
from .text import is_plain
from .times import is_span

SERVER_FILE = "server.toml"
MAX_TEXT = 1000
MIN_INPUT_BYTES = 1 << 26
"""Minimum of `Policy.memory` and of `Policy.input_bytes`, in bytes: 64 MiB."""


def _span(value: str) -> str:
    if not is_span(value):
        raise ValueError("write a number and a unit (s, m, h or d), such as 7d")
    return value


def _text(value: str) -> str:
    if not value or not is_plain(value) or len(value) > MAX_TEXT:
        raise ValueError(f"write a text of 1 to {MAX_TEXT} characters without control or hidden characters")
    return value


Span = Annotated[str, AfterValidator(_span)]
Texts = Annotated[tuple[Annotated[str, AfterValidator(_text)], ...], Field(strict=False, fail_fast=True)]
"""List of texts. The error names the first invalid element only."""


class Listen(toml.Strict):
    """Addresses on which the server listens.

    api: for members and servers. mesh: for servers while a job runs. local: for processes of this machine only.
    """

    api: Address = "0.0.0.0:7443"
    mesh: Address = "0.0.0.0:7444"
    local: Address = "127.0.0.1:7445"

    @field_validator("local")
    @classmethod
    def _loopback(cls, value: str) -> str:
        if address(value)[0] not in ("127.0.0.1", "::1", "localhost"):
            raise ValueError(
                "local must be a loopback address: metrics, health and the operator page do not authenticate clients"
            )
        return value


class StoreSettings(toml.Strict):
    """Settings of storage.

    path: folder of objects and records. keys: folder of the keys of jobs (None: the folder keys below path). Exclude it
    from backups: destroying a key then erases the job. keep: how long small records of finished jobs are kept. at_most:
    maximum number of bytes of all objects together.
    """

    path: str
    keys: str | None = None
    keep: Span = "365d"
    at_most: int = Field(default=64 << 30, ge=1 << 20)


class Policy(toml.Strict):
    """The operator's policy: the jobs that its server accepts.

    analyses: the analyses that may run here ([analysis] name of job.toml). forms: the accepted forms of data ([data]
    form of job.toml). max_job_lifetime: maximum time from now to the expiry of a job, and maximum time for which its
    result is kept. max_model_lifetime: maximum time for which a model is kept. memory: maximum number of bytes of the
    inputs of a job; None: see `input_bytes`.
    """

    owners_at_least: int = Field(default=3, ge=1)
    rows_at_least: int | None = Field(default=None, ge=1)
    row_share_at_most: float | None = Field(default=None, ge=MIN_ROW_SHARE, lt=1)
    iterations_at_most: int = Field(default=1000, ge=1)
    columns_at_most: int = Field(default=2000, ge=1)
    jobs_at_once: int = Field(default=1, ge=1)
    memory: int | None = Field(default=None, ge=MIN_INPUT_BYTES)
    jobs_per_member: int = Field(default=20, ge=1)
    jobs_per_day: int = Field(default=1000, ge=1)
    max_job_lifetime: Span = "90d"
    max_model_lifetime: Span = "366d"
    bytes_per_member: int = Field(default=16 << 30, ge=1 << 20)
    requests_per_second: float = Field(default=50.0, gt=0)
    attempts: int = Field(default=5, ge=1)
    analyses: Texts = tuple(sorted(ANALYSES))
    forms: Texts = tuple(form for form in FORMS if form != COORDINATES)

    @property
    def input_bytes(self) -> int:
        """Maximum number of bytes of the inputs of a job.

        It is `memory`; if that is not set, a quarter of the memory of this machine, but at least `MIN_INPUT_BYTES`.
        """
        return self.memory or max(MIN_INPUT_BYTES, machine_bytes() // 4)


class WorkSettings(toml.Strict):
    """Settings of running jobs.

    threads: number of threads of a job's kernels. 0: the cores of this machine are shared by its servers of the
    federation and by the jobs that they run at once. timeout: maximum seconds of a round. start_timeout: maximum
    seconds until all peers are connected. attempt_timeout: maximum seconds of a whole attempt.
    """

    threads: int = Field(default=0, ge=0)
    timeout: float = Field(default=60.0, gt=0)
    start_timeout: float = Field(default=60.0, gt=0)
    attempt_timeout: float = Field(default=43_200.0, gt=0)


class Workers(toml.Strict):
    """The operator's own Dask scheduler, reached with TLS. A job cannot name another one."""

    scheduler: str
    authority: str
    certificate: str
    key: str


class ServerFile(toml.Strict):
    """The tables of server.toml.

    server: number of the server, 0 to 3. federation: path of federation.toml. identity: path of the private key.
    """

    server: int = Field(ge=0, le=3)
    federation: str
    identity: str
    listen: Listen = Listen()
    store: StoreSettings
    policy: Policy = Policy()
    work: WorkSettings = WorkSettings()
    workers: Workers | None = None


class ServerSettings:
    """The content of server.toml. Relative paths in it are relative to its folder."""

    def __init__(self, file: ServerFile, folder: Path) -> None:
        self.file = file
        self.folder = folder

    @classmethod
    def load(cls, path: Path, identity: Path | None = None) -> Self:
        """Load server.toml from its path, or from its folder.

        identity: path of the private key, such as a systemd credential. None: the path in the file.
        """
        path = path / SERVER_FILE if path.is_dir() else path
        file = toml.parse(ServerFile, toml.read(path), str(path))
        if identity is not None:
            file = file.model_copy(update={"identity": str(identity.absolute())})
        return cls(file, path.resolve().parent)

    def path(self, name: str) -> Path:
        return self.folder / name

    @property
    def federation(self) -> Path:
        return self.path(self.file.federation)

    @property
    def identity(self) -> Path:
        return self.path(self.file.identity)

    @property
    def store(self) -> Path:
        return self.path(self.file.store.path)

    @property
    def keys(self) -> Path:
        return self.store / "keys" if self.file.store.keys is None else self.path(self.file.store.keys)


def render_server(file: ServerFile) -> bytes:
    """Return the text of server.toml with the settings of a file, including defaults.

    Settings that are None and the table [workers] are left out.
    """
    parts = [
        "# One server of a federation. Paths are relative to this file. Restart the server after a change here;\n"
        "# a new revision of federation.toml needs no restart.\n",
        toml.lines({"server": file.server, "federation": file.federation, "identity": file.identity}),
        "[listen]\n# api: members and servers; mesh: the other servers while a job runs; local: this machine only.\n"
        + toml.lines(file.listen.model_dump()),
        "[store]\n# keys: destroying a key erases its job. Leave that folder out of backups. keep: records of old jobs.\n"
        + toml.lines(file.store.model_dump()),
        "[policy]\n# Jobs that this server accepts. owners_at_least (fits): with two, each learns the other's sums.\n"
        "# rows_at_least (not set): fits and uses of models must have this many rows; of row owners checked on shares.\n"
        "# row_share_at_most (not set): fits of several column owners must have this limit on single rows, or a smaller one.\n"
        "# memory (not set: a quarter of this machine's): bytes of the inputs of a job.\n"
        + toml.lines(file.policy.model_dump()),
        "[work]\n# threads of a job (0: the cores of this machine, shared by its servers and the jobs at once);\n"
        "# maximum seconds of a round, of connecting to all peers, and of a whole attempt.\n"
        + toml.lines(file.work.model_dump()),
    ]
    return "\n".join(parts).encode()
