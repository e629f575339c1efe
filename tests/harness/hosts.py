"""Hosts for tests: processes in namespaces of their own (network, mounts, names, processes) on one switch.

A host has its own address and hostname, its own /etc, /opt, /run, /var/lib and home; programs are those of this
machine.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

NEEDED = ("ip", "nsenter", "unshare", "mount", "hostname", "bash", "curl", "tar")
SUBNET = "10.77.0"
DOMAIN = "example.org"
OUTBOUND_ONLY = """
table inet guard {
  chain in { type filter hook input priority 0; policy drop; iif lo accept; ct state established,related accept; }
}
"""


def why_not() -> str:
    """Return why there can be no hosts here; empty if there can."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return (
            f"{' and '.join(missing)} not installed here (apt-get install iproute2 util-linux hostname bash curl tar)"
        )
    spaces = ["--net", "--mount", "--uts", "--pid", "--fork", "--mount-proc"]
    tried = subprocess.run(["unshare", *spaces, "ip", "link", "add", "type", "veth"], capture_output=True, text=True)
    return f"network namespaces are not permitted here: {tried.stderr.strip()}" if tried.returncode else ""


class Space:
    """A process that holds namespaces, and commands in them. When it ends, everything in it ends."""

    def __init__(self, setup: str = "") -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc",
             "--propagation", "private", "sh", "-ec", f"{setup}\necho ready\nexec sleep infinity"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n"
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        self.pid = int(children.read_text().split()[0])

    def enter(self, *words: str) -> list[str]:
        return ["nsenter", "-t", str(self.pid), "-n", "-m", "-u", "-p", *words]

    def must(self, command: str) -> str:
        done = subprocess.run(self.enter("sh", "-ec", command), capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def plug(self, name: str, pid: int) -> None:
        """A cable from the switch in this space to another space."""
        inside = ["nsenter", "-t", str(self.pid), "-n", "ip", "link"]  # not its processes: pid is one of ours
        subprocess.run([*inside, "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(pid)], check=True)
        subprocess.run([*inside, "set", name, "master", "switch", "up"], check=True)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._holder.kill()
        self._holder.wait()


class Host(Space):
    """One machine. listens: others may connect to it; else only answers come in, where nft is installed."""

    def __init__(
        self, name: str, folder: Path, number: int, switch: Space, names: dict[str, int], listens: bool
    ) -> None:
        self.name, self.folder, self.listens = name, folder, listens
        self.home = folder / "home"
        for place in ("home", "opt", "run", "lib", "bin"):
            (folder / place).mkdir(parents=True, exist_ok=True)
        (folder / "opt" / "ppca").symlink_to(sys.prefix)
        shutil.copytree("/etc", folder / "etc", symlinks=True, ignore_dangling_symlinks=True)
        lines = [f"{SUBNET}.{address} {each}.{DOMAIN} {each}\n" for each, address in names.items()]
        (folder / "etc" / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        self._stand_ins()
        places = {"etc": "/etc", "opt": "/opt", "run": "/run", "lib": "/var/lib"}
        mounts = [f"mount --bind {shlex.quote(str(folder / own))} {place}" for own, place in places.items()]
        super().__init__("\n".join([*mounts, f"hostname {name}"]))
        try:
            self._connect(number, switch)
        except BaseException:
            self.close()
            raise

    def _connect(self, number: int, switch: Space) -> None:
        switch.plug(self.name, self.pid)
        self.must(f"ip link set lo up; ip addr add {SUBNET}.{number}/24 dev eth0; ip link set eth0 up")
        if not self.listens and shutil.which("nft"):
            self.must(f"nft {shlex.quote(OUTBOUND_ONLY)}")

    def _stand_ins(self) -> None:
        script = Path(__file__).with_name("systemctl.py")
        for command, word in (("systemctl", ""), ("journalctl", "journal")):
            path = self.folder / "bin" / command
            path.write_text(f'#!/bin/sh\nexec {sys.executable} {script} {word} "$@"\n')
            path.chmod(0o755)

    @property
    def desk(self) -> Path:
        """Return where its member works."""
        return self.home / "ppca"

    def run(self, script: str, *, told: str = "", patience: float = 600) -> subprocess.CompletedProcess[str]:
        """A script as it is typed there."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PPCA", "XDG", "PYTEST"))}
        own |= {"HOME": str(self.home), "PATH": f"{self.folder / 'bin'}:/opt/ppca/bin:{os.environ['PATH']}"}
        own |= {"COLUMNS": "120"}
        return subprocess.run(
            self.enter("bash", "-euo", "pipefail", "-c", f"cd ~\n{script}"),
            env=own, input=told, capture_output=True, text=True, timeout=patience,
        )  # fmt: skip

    def listening(self) -> list[str]:
        """Addresses on which something listens."""
        table = self.must("cat /proc/net/tcp /proc/net/tcp6")
        rows = [line.split() for line in table.splitlines()]
        return [row[1] for row in rows if len(row) > 3 and row[3] == "0A"]


class Hosts:
    """All hosts by name, and the switch between them."""

    def __init__(self, folder: Path, listening: list[str], others: list[str]) -> None:
        self.folder = folder
        self.names = {name: number for number, name in enumerate([*listening, *others], start=11)}
        self._listening = set(listening)
        self.switch = Space("ip link add switch type bridge; ip link set switch up")
        self.hosts: dict[str, Host] = {}
        try:
            for name in self.names:
                self.add(name, folder / name)
        except BaseException:
            self.close()
            raise

    def add(self, name: str, folder: Path) -> None:
        self.hosts[name] = Host(
            name, folder, self.names[name], self.switch, self.names, listens=name in self._listening
        )

    def lose(self, name: str) -> None:
        """The machine and its disk are gone; there is an empty one of that name."""
        lost = self.hosts.pop(name)
        lost.close()
        shutil.rmtree(lost.folder)
        self.add(name, self.folder / f"new-{name}")

    def close(self) -> None:
        for host in self.hosts.values():
            host.close()
        self.switch.close()
