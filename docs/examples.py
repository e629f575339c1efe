"""The example files of deploy/example: what the commands write, for members that do not exist.

Their keys are hashes of words: no one knows a private key to them. No example is signed.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime

from ppca.federation import toml
from ppca.federation.identity import key_text
from ppca.federation.membership import Membership, MembershipFile, render
from ppca.federation.proposal import propose
from ppca.federation.serverfile import ServerFile, render_server
from ppca.federation.times import after
from ppca.jobs.build import pca_job
from ppca.jobs.pca import JointPCA

FOLDER = "deploy/example"
OPERATORS = ("alpha", "beta", "gamma", "delta")
OWNERS = ("north", "harbour", "hill")
RECEIVER = "analyst"
COLUMNS = ("age", "pressure", "cholesterol", "glucose")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
BUILD = "0.1.0+0123456789abcdef"
NOTICE = "# An example. Yours is written by `{command}`.\n"


def _key(name: str) -> str:
    return key_text(hashlib.sha256(f"example key of {name}".encode()).digest())


def _membership() -> bytes:
    servers = [
        {"number": number, "member": name, "key": _key(name)}
        | {"api": f"{name}.example.org:7443", "mesh": f"{name}.example.org:7444"}
        for number, name in enumerate(OPERATORS)
    ]
    members = [{"name": name, "key": _key(name), "roles": ["owner"]} for name in OWNERS]
    members.append({"name": RECEIVER, "key": _key(RECEIVER), "roles": ["receiver"]})
    content = {"name": "heart-study", "revision": 1, "server": servers, "member": members}
    return render(toml.validated(MembershipFile, content, "the example"))


def _server() -> bytes:
    content = {
        "server": 0,
        "federation": "federation.toml",
        "identity": "identity.key",
        "listen": {},
        "store": {"path": "/var/lib/ppca"},
    }
    return render_server(toml.validated(ServerFile, content, "the example"))


def _job(membership: bytes) -> bytes:
    to = {RECEIVER: ["model"]}
    job = pca_job(OWNERS, COLUMNS, to, JointPCA(components=3), federated=True, fixed=True, standardize=True)
    drafted = propose(Membership(membership, {}).digest, "first-job", job, expires=after(NOW, "7d"))
    return re.sub(rb'(?m)^build = ".*"$', f'build = "{BUILD}"'.encode(), drafted.data)


def files() -> dict[str, str]:
    """Path from the root -> text."""
    membership = NOTICE.format(command="ppca federation new, add and sign").encode() + _membership()
    whole = {
        "federation.toml": membership,
        "server.toml": NOTICE.format(command="ppca server init").encode() + _server(),
        "job.toml": NOTICE.format(command="ppca job new").encode() + _job(membership),
    }
    return {f"{FOLDER}/{name}": data.decode() for name, data in whole.items()}
