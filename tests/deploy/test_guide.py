"""docs/how-to/operate.md is true: its commands are run as they stand, on eight hosts in network namespaces.

Blocks of commands name the hosts they are for; comments between them say what people send each other. Blocks marked `install`
are not run: `test_wheel.py` installs the wheel, these hosts use the environment of the tests.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from harness.hosts import Host, Hosts, why_not

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "how-to" / "operate.md").read_text()
OPERATORS, OWNERS, RECEIVER = ["alpha", "beta", "gamma", "delta"], ["north", "harbour", "hill"], "analyst"
COLUMNS = ["age", "pressure", "cholesterol", "glucose"]
STEP = re.compile(
    r"^```sh (?P<hosts>[\w ]+)\n(?P<script>.*?)^```$|^<!-- (?P<verb>send|lose) (?P<what>.*?) -->$",
    re.MULTILINE | re.DOTALL,
)
pytestmark = [pytest.mark.release, pytest.mark.processes, pytest.mark.timeout(1800)]


def tables() -> dict[str, np.ndarray]:
    values = np.random.default_rng(3).normal(size=(90, 4)) @ np.diag([9.0, 12.0, 30.0, 20.0]) + [60, 130, 200, 100]
    return dict(zip(OWNERS, np.split(values, [20, 50]), strict=True))


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    found = Hosts(tmp_path_factory.mktemp("hosts"), OPERATORS, [*OWNERS, RECEIVER])
    try:
        yield found
    finally:
        found.close()


class Reader:
    """Follows the guide, step by step."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.printed: dict[tuple[str, str], str] = {}

    def follow(self) -> None:
        for name in OPERATORS:
            self._bring_unit(self.hosts.hosts[name])
        for name, table in tables().items():
            home = self.hosts.hosts[name].home / "ppca"
            home.mkdir()
            np.savetxt(home / "table.csv", table, delimiter=",", header=",".join(COLUMNS), comments="")
        for step in STEP.finditer(GUIDE):
            if step["verb"] == "lose":
                self.hosts.lose(step["what"])
                self._bring_unit(self.hosts.hosts[step["what"]])
            elif step["verb"] == "send":
                self._send(*re.fullmatch(r"(\S+): (\w+) -> (\w+)", step["what"]).groups())  # type: ignore[union-attr]
            elif "install" not in step["hosts"].split():
                self._run(step["hosts"].split(), step["script"])

    def _bring_unit(self, host: Host) -> None:
        shutil.copy(ROOT / "deploy" / "ppca-server.service", host.home)

    def _named(self, names: str) -> list[str]:
        return list(self.hosts.hosts) if names == "everyone" else [names]

    def _send(self, pattern: str, givers: str, takers: str) -> None:
        for giver in self._named(givers):
            files = list(self.hosts.hosts[giver].desk.glob(pattern))
            assert files, f"{giver} has no {pattern} to send"
            for taker in self._named(takers):
                for file in files if giver != taker else []:
                    shutil.copy(file, self.hosts.hosts[taker].desk)

    def _run(self, names: list[str], script: str) -> None:
        """At all these hosts at the same time; who is asked says yes."""
        with ThreadPoolExecutor(len(names)) as pool:
            done = list(pool.map(lambda name: self.hosts.hosts[name].run(script, told="y\n" * 5), names))
        for name, one in zip(names, done, strict=True):
            assert one.returncode == 0, f"at {name}:\n{script}\n{one.stdout}\n{one.stderr}"
            self.printed[name, script] = one.stdout
            if not self.hosts.hosts[name].listens:
                assert self.hosts.hosts[name].listening() == []

    def said(self, name: str, command: str) -> str:
        """What the block with that command printed at a host."""
        (found,) = [text for (host, script), text in self.printed.items() if host == name and command in script]
        return found


@pytest.fixture(scope="module")
def guided(hosts: Hosts) -> Reader:
    reader = Reader(hosts)
    reader.follow()
    return reader


def test_every_block_of_commands_is_run() -> None:
    blocks = re.findall(r"^```(.*)$", GUIDE, re.MULTILINE)
    steps = [step for step in STEP.finditer(GUIDE) if step["hosts"]]
    assert len(blocks) == 2 * len(steps) > 30
    known = {*OPERATORS, *OWNERS, RECEIVER, "everyone", "install"}
    assert all(set(step["hosts"].split()) <= known for step in steps)


def test_the_results_are_those_of_the_pooled_tables(guided: Reader) -> None:
    pooled = np.concatenate(list(tables().values()))
    desk = guided.hosts.hosts[RECEIVER].desk
    first = json.loads((desk / "result" / "model.json").read_text())
    correlation = np.sort(np.linalg.eigvalsh(np.corrcoef(pooled.T)))[::-1][:2]
    np.testing.assert_allclose(
        first["explained_variance_ratio"], correlation / 4, rtol=1e-6
    )  # as tests/cli/test_fit.py
    second = json.loads((desk / "second" / "model.json").read_text())
    covariance = np.sort(np.linalg.eigvalsh(np.cov(pooled[:, :2].T)))[::-1]
    np.testing.assert_allclose(second["explained_variance"], covariance, rtol=1e-6)


def test_all_members_see_the_same_federation(guided: Reader) -> None:
    digests = {
        re.search(r"digest ([0-9a-f]{64})", text)[1]  # type: ignore[index]
        for (_, script), text in guided.printed.items()
        if "federation check" in script
    }
    assert len(digests) == 1


def test_the_doctor_finds_links_in_both_directions(guided: Reader) -> None:
    said = guided.said("gamma", "ppca server restore")
    assert said.count("mesh port") == 4
    assert "✗" not in said
    assert "3 of 3 other servers" in said


def test_backups_have_no_key(guided: Reader) -> None:
    beta = guided.hosts.hosts["beta"]
    names = beta.run("tar -tzf ppca-backup.tar.gz").stdout.split()
    assert "etc/ppca/server.toml" in names
    assert "var/lib/ppca/records.db" in names
    assert list((beta.folder / "lib" / "ppca" / "keys").glob("*.key"))
    assert not [name for name in names if name.endswith(".key") or "/keys" in name]


def test_a_removed_job_is_erased(guided: Reader) -> None:
    analyst = guided.hosts.hosts[RECEIVER]
    for name in OPERATORS:
        assert f"erased by {name}" in analyst.run("cd ~/ppca && ppca audit mistake").stdout


def test_a_removed_member_is_let_in_nowhere(guided: Reader) -> None:
    done = guided.hosts.hosts["hill"].run("cd ~/ppca && ppca federation check && ! ppca doctor --report refused.json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((guided.hosts.hosts["hill"].desk / "refused.json").read_text())
    assert "hill is not a member of heart-study, revision 3" in report["findings"][0]["said"]


def test_files_can_be_read_by_whom_they_must(guided: Reader) -> None:
    """The unit's user is not root: all but the key must be readable for it."""
    for name in OPERATORS:
        desk = guided.hosts.hosts[name].folder / "etc" / "ppca"
        for file in ("server.toml", "federation.toml", "federation.sigs"):
            assert (desk / file).stat().st_mode & 0o004
        assert not (desk / "identity.key").stat().st_mode & 0o077


def test_nobody_can_connect_to_an_owner(guided: Reader) -> None:
    """Also not to something that would listen there."""
    if shutil.which("nft") is None:
        pytest.skip(
            "nft is not installed here (apt-get install nftables): nothing listened, which was checked all along"
        )
    north, alpha = guided.hosts.hosts["north"], guided.hosts.hosts["alpha"]
    listen = "import socket, time; s = socket.create_server(('0.0.0.0', 7443)); time.sleep(60)"
    north.run(f'nohup python3 -c "{listen}" > /dev/null 2>&1 &')
    while not north.listening():
        pass
    dial = "import socket; socket.create_connection(('{}.example.org', 7443), 3)"
    there = alpha.run(f'python3 -c "{dial.format("beta")}"')
    assert there.returncode == 0, there.stderr
    refused: subprocess.CompletedProcess[str] = alpha.run(f'python3 -c "{dial.format("north")}"')
    assert "timed out" in refused.stderr
