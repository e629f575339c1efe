"""`ppca doctor` on loopback: a sound federation is found sound; every fault is named with its server and its remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from harness.api_ports import OPERATORS, LocalPorts
from ppca.cli.main import app
from ppca.member import doctor_files
from ppca.member.doctor import CheckedFiles, Doctor
from ppca.member.doctor_links import DoctorConnection
from ppca.member.doctor_report import Finding, Findings
from ppca.runtime.files import write_whole
from ppca.runtime.machine import machine_bytes
from ppca.server import api as seat_api
from ppca.server import probes
from ppca.server.probes import MAX_ECHO
from ppca.transport.pinned import PinnedTls, issue_leaf


@pytest.fixture
def local_ports(tmp_path: Path) -> Iterator[LocalPorts]:
    found = LocalPorts(tmp_path)
    yield found
    found.close()


def owner(local_ports: LocalPorts, **options: Any) -> Findings:
    folder = local_ports.folder / "north"
    patient = CheckedFiles(folder / "federation.toml", folder / "identity.key", state=folder / "state")
    return Doctor(patient, **options).examine()


def operator(local_ports: LocalPorts, server: int = 0, **options: Any) -> Findings:
    settings = local_ports.settings(server, store={"path": "store", "at_most": 1 << 20})
    return Doctor(CheckedFiles(settings.federation, settings.identity, settings), **options).examine()


def wrong(found: Findings) -> list[Finding]:
    assert all(item.remedy for item in found.items if item.level != "good")
    return [item for item in found.items if item.level == "wrong"]


def only(found: Findings) -> Finding:
    (one,) = wrong(found)
    assert not found.sound
    return one


# -- sound ------------------------------------------------------------------------------------------------------------


def test_a_sound_federation_for_an_owner(local_ports: LocalPorts) -> None:
    local_ports.open(0, 1, 2, 3)
    found = owner(local_ports, idle=1)
    assert wrong(found) == []
    assert found.items[-1].said.startswith("revision 1 and build ")
    assert sorted(found.figures["links"]) == ["0", "1", "2", "3"]
    for figures in found.figures["links"].values():
        assert figures["round_trip_seconds"] > 0
        assert figures["bytes_per_second_there"] > 0
        assert figures["bytes_per_second_back"] > 0
        assert figures["silence_seconds"] == 1
        assert "mesh_dial_seconds" not in figures  # owners have nothing to do with it


def test_a_sound_federation_for_an_operator(local_ports: LocalPorts) -> None:
    local_ports.open(0, 1, 2, 3)
    found = operator(local_ports, server=2)
    assert wrong(found) == []
    for number, figures in found.figures["links"].items():
        assert figures["mesh_dial_seconds"] > 0
        if number != "2":
            assert figures["back"]["api"]["up"]
            assert figures["back"]["mesh"]["up"]


def test_the_report_has_no_secret(local_ports: LocalPorts) -> None:
    local_ports.open(0, 1, 2, 3)
    folder, report = local_ports.folder / "north", local_ports.folder / "report.json"
    words = ["doctor", "-f", folder / "federation.toml", "-i", folder / "identity.key", "--state", folder / "state"]
    done = CliRunner().invoke(app, [*map(str, words), "--report", str(report)])
    assert done.exit_code == 0, done.output
    assert "✓ server 3 (delta): reached at " in done.output
    written = report.read_text()
    assert json.loads(written)["sound"] is True
    secret = (folder / "identity.key").read_text().splitlines()[2]
    assert len(secret) > 40
    assert secret not in written + done.output


@pytest.mark.parametrize(("memory", "said"), [(1 << 26, False), (1 << 50, True), (None, False)])
def test_memory_of_jobs_is_compared_with_that_of_the_machine(
    local_ports: LocalPorts, memory: int | None, said: bool
) -> None:
    local_ports.open(0, 1, 2, 3)
    settings = local_ports.settings(0, policy={} if memory is None else {"memory": memory})
    found = Doctor(CheckedFiles(settings.federation, settings.identity, settings)).examine()
    notes = [item for item in found.items if item.where == "memory"]
    assert len(notes) == said
    assert all("[policy] of server.toml" in item.remedy for item in notes)
    assert found.figures["memory_bytes"]["machine"] == machine_bytes()


# -- faults -----------------------------------------------------------------------------------------------------------


def test_a_stopped_server(local_ports: LocalPorts) -> None:
    local_ports.open(0, 1, 3)
    fault = only(owner(local_ports))
    assert fault.where == "server 2 (gamma)"
    assert fault.said.startswith("no process listens on 127.0.0.1:")
    assert "starts the server" in fault.remedy


def test_the_exit_code_says_that_something_must_be_mended(local_ports: LocalPorts) -> None:
    folder = local_ports.folder / "north"
    words = ["doctor", "-f", folder / "federation.toml", "-i", folder / "identity.key", "--state", folder / "state"]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 1
    assert done.output.count("→ its operator starts the server") == 4


def test_a_wrong_key(local_ports: LocalPorts) -> None:
    """Whoever answers for gamma has another key than the one that the owner has pinned."""
    local_ports.open(0, 1, 2, 3)
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    local_ports.found(at=("north",), keys={"gamma": other})
    found = wrong(owner(local_ports))
    assert found[0].where == "federation.toml"  # gamma's signature does not count either
    seats = [item for item in found if item.where == "server 2 (gamma)"]
    assert "does not hold the key pinned for gamma" in seats[0].said
    assert "over the telephone" in seats[0].remedy


def test_swapped_addresses(local_ports: LocalPorts) -> None:
    local_ports.open(0, 1, 2, 3)
    local_ports.ports[0], local_ports.ports[3] = local_ports.ports[3], local_ports.ports[0]
    local_ports.found(revision=2, at=("north",))
    found = [item for item in wrong(owner(local_ports)) if item.where == "server 0 (alpha)"]
    assert "beta answers at " in found[0].said
    assert "correct the addresses" in found[0].remedy


def test_a_member_that_servers_do_not_know(local_ports: LocalPorts) -> None:
    local_ports.found(keys={"north": Ed25519PrivateKey.generate().public_key().public_bytes_raw()}, at=OPERATORS)
    local_ports.open(0, 1, 2, 3)
    found = wrong(owner(local_ports))
    assert [item.where for item in found] == [f"server {i} ({name})" for i, name in enumerate(OPERATORS)]
    assert all(item.said.startswith("the server rejected the connection") for item in found)


def test_another_revision(local_ports: LocalPorts) -> None:
    local_ports.found(revision=2, at=("beta",))
    local_ports.open(0, 1, 2, 3)
    fault = only(owner(local_ports))
    assert (fault.where, fault.said) == ("server 1 (beta)", "it has revision 2 of the federation, you have 1")
    assert "get the new federation.toml" in fault.remedy
    local_ports.found(revision=3, at=("north",))
    older = [item for item in wrong(owner(local_ports)) if item.where == "server 0 (alpha)"]
    assert "send its operator" in older[0].remedy


class Late(seat_api.Api):
    """A server whose clock is behind."""

    behind = timedelta(minutes=4)

    async def hello(self, request: web.Request) -> web.Response:
        said = json.loads((await super().hello(request)).body or b"")  # type: ignore[arg-type]
        return web.json_response(said | {"time": (datetime.now(UTC) - self.behind).isoformat()})


def seconds_of(fault: Finding, way: str) -> int:
    """How wrong a clock is said to be. Half of the time that the answer took counts as error of the measurement."""
    found = re.fullmatch(rf"its clock is (\d+) s {way}", fault.said)
    assert found is not None, fault.said
    return int(found[1])


def test_a_wrong_clock(local_ports: LocalPorts) -> None:
    local_ports.open(0, 1, 2)
    local_ports.open(3, api=lambda server_state: Late(server_state, None))  # type: ignore[arg-type]
    found = owner(local_ports)
    fault = only(found)
    assert fault.where == "server 3 (delta)"
    assert seconds_of(fault, "behind") == pytest.approx(240, abs=5)
    assert found.figures["links"]["3"]["clock_skew_seconds"] == pytest.approx(-240, abs=5)


def test_the_own_clock_is_wrong_if_all_others_agree(local_ports: LocalPorts) -> None:
    local_ports.open(0, 1, 2, 3, api=lambda server_state: Late(server_state, None))  # type: ignore[arg-type]
    fault = only(owner(local_ports))
    assert fault.where == "this machine"
    assert seconds_of(fault, "ahead") == pytest.approx(240, abs=5)


def test_another_build(local_ports: LocalPorts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seat_api, "build", lambda: "0.0.9+other")
    local_ports.open(0, 1, 2, 3)
    found = wrong(owner(local_ports))
    assert len(found) == 4
    assert "it runs build 0.0.9+other" in found[0].said
    assert "the same wheel" in found[0].remedy


def test_an_unknown_name(local_ports: LocalPorts) -> None:
    local_ports.open(1, 2, 3)
    path = local_ports.folder / "north" / "federation.toml"
    text = path.read_text().replace(f"127.0.0.1:{local_ports.ports[0]}", f"no-such-host.invalid:{local_ports.ports[0]}")
    path.write_text(text)
    found = [item for item in wrong(owner(local_ports)) if item.where == "server 0 (alpha)"]
    assert "the name no-such-host.invalid is not known here" in found[0].said
    assert "/etc/hosts" in found[0].remedy


def test_a_server_that_does_not_run_is_missed_from_both_sides(local_ports: LocalPorts) -> None:
    local_ports.open(1, 2, 3)
    found = wrong(operator(local_ports, server=0, bandwidth=False))
    assert "systemctl start ppca-server" in next(item.remedy for item in found if item.where == "this server")
    back = [item for item in found if "does not reach the mesh port of this server" in item.said]
    assert [item.where for item in back] == ["server 1 (beta)", "server 2 (gamma)", "server 3 (delta)"]


def test_a_server_that_is_too_busy_to_be_measured_is_no_fault(
    local_ports: LocalPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "MAX_AT_ONCE", 0)
    local_ports.open(0, 1, 2, 3)
    found = owner(local_ports)
    assert wrong(found) == []
    notes = [item for item in found.items if item.level == "note" and "was not measured" in item.said]
    assert len(notes) == 4


# -- files ------------------------------------------------------------------------------------------------------------


def test_files_that_others_can_read_or_change(local_ports: LocalPorts) -> None:
    settings = local_ports.settings(0)
    settings.keys.mkdir(parents=True, mode=0o700)
    settings.store.chmod(0o755)
    write_whole(settings.keys / "job-0.key", b"secret", 0o644)
    (local_ports.folder / "alpha" / "federation.toml").chmod(0o666)
    (local_ports.folder / "alpha" / "server.toml").write_text("")
    (local_ports.folder / "alpha" / "server.toml").chmod(0o664)
    found = {item.remedy for item in wrong(operator(local_ports)) if item.remedy.startswith("chmod")}
    assert found == {
        f"chmod go-w {settings.folder}/federation.toml",
        f"chmod go-w {settings.folder}/server.toml",
        f"chmod go= {settings.store}",
        f"chmod go= {settings.keys}/job-0.key",
    }


def test_an_identity_that_others_can_read(local_ports: LocalPorts) -> None:
    (local_ports.folder / "north" / "identity.key").chmod(0o644)
    fault = only(owner(local_ports))
    assert fault.where == "identity"
    assert "chmod 600" in fault.said


def test_a_full_disk(local_ports: LocalPorts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_files.shutil, "disk_usage", lambda place: type("Usage", (), {"free": 10**8}))
    local_ports.open(0, 1, 2, 3)
    assert only(owner(local_ports)).said.startswith("100 MB are free")


# -- what servers answer ----------------------------------------------------------------------------------------------


def link(local_ports: LocalPorts, name: str) -> DoctorConnection:
    identity, membership = local_ports.identities[name], local_ports.membership(name)
    return DoctorConnection(
        membership.servers[0], PinnedTls(issue_leaf(name, identity.key), membership.keys, membership.operators)
    )


@pytest.mark.parametrize(
    ("name", "method", "path", "body", "said"),
    [
        ("north", "GET", f"/v1/echo?bytes={MAX_ECHO + 1}", None, "bytes is a whole number, at most"),
        ("north", "GET", "/v1/echo?bytes=-1", None, "bytes is a whole number"),
        ("north", "GET", "/v1/echo?wait=601", None, "wait is a whole number, at most 600"),
        ("north", "POST", "/v1/echo", bytes(MAX_ECHO + 1), "a measurement has at most"),
        ("north", "GET", "/v1/reach", None, "only servers are dialed back"),
    ],
)
def test_what_servers_do_for_measurements_is_bounded(
    local_ports: LocalPorts, name: str, method: str, path: str, body: bytes | None, said: str
) -> None:
    local_ports.open(0)
    visitor = link(local_ports, name)
    with pytest.raises(Exception, match=said):
        visitor.ask(method, path, body)
    visitor.close()
