"""Stands in for systemctl and journalctl on hosts of tests: reads the unit, and starts its command as the unit says.

Of the unit it keeps ExecStart, Type=notify, LoadCredential and StateDirectory; users and sandboxes are systemd's own.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

NAME = "ppca-server"
UNIT = Path(f"/etc/systemd/system/{NAME}.service")
CREDENTIALS = Path(f"/run/credentials/{NAME}.service")
PID, LOG = Path(f"/run/{NAME}.pid"), Path(f"/run/{NAME}.log")
START_SECONDS, STOP_SECONDS = 120.0, 60.0


def settings() -> dict[str, str]:
    lines = [line.partition("=") for line in UNIT.read_text().splitlines() if "=" in line and line[0] not in "#["]
    return {key: value for key, _, value in lines}


def start() -> None:
    found = settings()
    assert found["Type"] == "notify"
    name, _, source = found["LoadCredential"].partition(":")
    CREDENTIALS.mkdir(parents=True, exist_ok=True, mode=0o700)
    (CREDENTIALS / name).unlink(missing_ok=True)
    shutil.copy(source, CREDENTIALS / name)
    (CREDENTIALS / name).chmod(0o440)  # as systemd's access list for the service's user shows
    Path("/var/lib", found["StateDirectory"]).mkdir(mode=0o700, exist_ok=True)
    place = f"/run/{NAME}.notify"
    Path(place).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear, LOG.open("ab") as log:
        ear.bind(place)
        ear.settimeout(START_SECONDS)
        server = subprocess.Popen(
            shlex.split(found["ExecStart"].replace("%d", str(CREDENTIALS))),
            cwd="/",
            env=os.environ | {"NOTIFY_SOCKET": place, "CREDENTIALS_DIRECTORY": str(CREDENTIALS)},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        PID.write_text(str(server.pid))
        assert ear.recv(100) == b"READY=1"


def stop() -> None:
    pid = int(PID.read_text())
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < deadline, "the server does not stop"
        time.sleep(0.1)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["daemon-reload"]:
            settings()
        case ["enable", "--now", "ppca-server"] | ["start", "ppca-server"]:
            start()
        case ["stop", "ppca-server"]:
            stop()
        case ["restart", "ppca-server"]:
            stop()
            start()
        case ["journal", "-u", "ppca-server", "-o", "cat", "-n", count]:
            print("\n".join(LOG.read_text().splitlines()[-int(count) :]))
        case words:
            sys.exit(f"this stand-in does not know {words}")
