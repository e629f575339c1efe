"""deploy/: systemd takes the unit, the commands take the examples, and alerts ask for metrics there are."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ppca.federation.errors import FileRefused
from ppca.federation.identity import Identity
from ppca.federation.membership import Membership
from ppca.federation.proposal import ProposedJob
from ppca.federation.serverfile import ServerSettings
from ppca.server import operator_page

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNIT = (DEPLOY / "ppca-server.service").read_text()
EXPOSURE = 20
"""Of 100, by systemd's own count of what a service is not kept from; its own default services have 50 to 95."""


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit as it is, but for the program, which is not installed where tests run."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed here (apt-get install systemd)")
    assert "ExecStart=/opt/ppca/bin/ppca " in UNIT
    path = tmp_path / "ppca-server.service"
    path.write_text(UNIT.replace("/opt/ppca/bin/ppca ", "/bin/true "))
    return path


@pytest.mark.processes
def test_systemd_takes_the_unit(unit: Path) -> None:
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_end_of_a_process_of_a_job_does_not_stop_the_service() -> None:
    """By default systemd stops a service of which the system killed any process because memory ran out."""
    assert "\nOOMPolicy=continue\n" in UNIT


@pytest.mark.processes
def test_systemd_complains_of_a_wrong_unit(unit: Path) -> None:
    """So that the test above can fail."""
    unit.write_text(unit.read_text().replace("WatchdogSec=60", "WatchdogSec=often"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    assert "Failed to parse sec value, ignoring: often" in done.stderr


@pytest.mark.processes
def test_the_unit_leaves_little_open(unit: Path) -> None:
    call = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager", unit]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_credential_of_systemd_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd lets the service's user read a credential by an access list, which shows as mode 0440."""
    path = tmp_path / "identity.key"
    Identity.create("alpha", path)
    path.chmod(0o440)
    with pytest.raises(FileRefused, match="can be read by others: chmod 600"):
        Identity.load(path)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "elsewhere"))
    with pytest.raises(FileRefused, match="can be read by others"):
        Identity.load(path)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert Identity.load(path).name == "alpha"
    path.chmod(0o444)
    with pytest.raises(FileRefused, match="can be read by others"):
        Identity.load(path)


def test_the_examples_are_files_that_the_commands_take() -> None:
    folder = DEPLOY / "example"
    membership = Membership.load(folder)
    assert sorted(membership.servers) == [0, 1, 2, 3]
    assert membership.faults() == [
        "revision 1 is not signed by alpha and beta and gamma and delta: each operator runs ppca federation sign"
    ]
    settings = ServerSettings.load(folder)
    assert settings.federation == folder / "federation.toml"
    assert str(settings.store) == "/var/lib/ppca"
    job = ProposedJob.load(folder)
    assert job.proposal.federation == membership.digest
    assert set(job.proposal.members) <= set(membership.keys)


def test_the_unit_finds_what_the_examples_name() -> None:
    """The store is the unit's state directory, and the key the unit's credential."""
    directory = re.search(r"^StateDirectory=(.*)$", UNIT, re.MULTILINE)
    assert directory is not None
    assert str(ServerSettings.load(DEPLOY / "example").store) == f"/var/lib/{directory[1]}"
    given = ServerSettings.load(DEPLOY / "example", Path("/run/credentials/ppca-server.service/identity.key"))
    assert str(given.identity) == "/run/credentials/ppca-server.service/identity.key"


def test_alerts_ask_for_metrics_there_are() -> None:
    offered = set(re.findall(r'"(ppca_\w+)"', Path(operator_page.__file__).read_text()))
    rules = [rule for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
    asked = {name for rule in rules for name in re.findall(r"\bppca_\w+", rule["expr"])}
    assert asked
    assert asked <= offered
    assert all({"summary", "remedy"} <= rule["annotations"].keys() for rule in rules)


def test_prometheus_asks_where_the_server_answers() -> None:
    scrape = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    (job,) = scrape["scrape_configs"]
    assert job["static_configs"] == [{"targets": [ServerSettings.load(DEPLOY / "example").file.listen.local]}]
    assert all((DEPLOY / name).exists() for name in scrape["rule_files"])


def test_the_container_runs_what_there_is() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    listen = ServerSettings.load(DEPLOY / "example").file.listen
    ports = [address.rpartition(":")[2] for address in (listen.api, listen.mesh)]
    assert f"EXPOSE {' '.join(ports)}\n" in text
    assert f"http://{listen.local}/healthz" in text
    assert re.search(r"^USER ppca$", text, re.MULTILINE)


def test_the_compose_file_runs_the_four_servers_of_the_example() -> None:
    """Names, ports, paths and volumes are those of deploy/example and of the Containerfile. No engine runs it here."""
    compose = yaml.safe_load((DEPLOY / "compose.yml").read_text())
    membership = Membership.load(DEPLOY / "example")
    settings = ServerSettings.load(DEPLOY / "example")
    container = (DEPLOY / "Containerfile").read_text()
    services = compose["services"]
    assert list(services) == [membership.operators[number] for number in range(4)]
    outside = set()
    for number, (name, service) in enumerate(services.items()):
        api, mesh = (getattr(membership.servers[number], kind) for kind in ("api", "mesh"))
        (network,) = service["networks"]
        assert network in compose["networks"]
        assert service["networks"][network]["aliases"] == [api.rpartition(":")[0]] == [mesh.rpartition(":")[0]]
        files, store = (volume.split(":") for volume in service["volumes"])
        assert files == [f"./{name}", "/etc/ppca", "ro"]
        assert store == [f"{name}-store", str(settings.store)]
        assert store[0] in compose["volumes"]
        ((host, inside),) = (port.split(":") for port in service["ports"])
        assert inside == api.rpartition(":")[2] == settings.file.listen.api.rpartition(":")[2]
        outside.add(host)
        assert service["image"] == "ppca"
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in service["security_opt"]
        assert service["ulimits"] == {"core": 0}
    assert len(outside) == 4, "each server has a port of its own on the host"
    assert '"/etc/ppca/server.toml"' in container
    assert f"VOLUME {settings.store}\n" in container
    assert "--uid 10001 " in container
