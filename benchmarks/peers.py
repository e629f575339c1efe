"""Run another framework's benchmark in a virtual environment of its own, to compare with PPCA on the same machine.

The peer is SecretFlow SPU, the PyPI package `spu`. It is never a dependency of PPCA: its pins on NumPy and JAX, and the
Python versions it has wheels for, would become ours. `ensure_venv` builds the environment, `run_spu` measures there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

#: `spu` 0.9.5 asks for numpy < 2 and jax from 0.4.16 to 0.4.34, but fails to import with jax 0.4.26: 0.4.30 and 0.4.34
#: were tried and work.
REQUIREMENTS = ("spu>=0.9.5,<0.10", "numpy>=1.26,<2", "jax[cpu]>=0.4.30,<=0.4.34")
#: Python versions for which `spu` 0.9 has wheels; a source distribution does not exist.
PYTHON_VERSIONS = ((3, 11), (3, 10))
INSTALL_TIMEOUT = 1800.0
RUN_TIMEOUT = 3600.0
TAIL_LINES = 25


class PeerError(RuntimeError):
    """The other framework could not be installed or its benchmark failed; the message says what to do."""


def ensure_venv(directory: Path) -> Path:
    """Make `directory` a virtual environment that has `spu`, unless it is one already.

    Returns the path of its Python. Needs a Python 3.10 or 3.11: the running one, or `python3.11` / `python3.10` on the
    search path. Raises `PeerError` with the tail of pip's messages when the installation fails.
    """
    python = directory / "bin" / "python"
    if python.exists() and has_spu(python):
        return python
    if not python.exists() and directory.exists() and any(directory.iterdir()):
        raise PeerError(f"{directory} is not empty and not a virtual environment; name another directory")

    checked([suitable_python(), "-m", "venv", str(directory)], INSTALL_TIMEOUT, "creating the virtual environment")
    install = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--only-binary", "spu"]
    checked([*install, *REQUIREMENTS], INSTALL_TIMEOUT, "installing spu with pip")
    if not has_spu(python):
        raise PeerError(
            f"spu was installed in {directory} but cannot be imported there; remove the directory, try again"
        )
    return python


def run_spu(directory: Path, sizes: Sequence[int], repeats: int) -> dict[str, Any]:
    """Measure SPU (ABY3, FM128, three local processes over TCP) in the virtual environment of `ensure_venv`.

    Returns what `spu_peer` writes: version, protocol, field, settings, and one row per variant, operation and size.
    Rows of the variant `default` come first.
    """
    return in_venv(directory, "spu_peer", ["--sizes", *map(str, sizes), "--repeats", str(repeats)])


def in_venv(directory: Path, module: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Run a module of this folder with the Python of the virtual environment; what it wrote to its option --json."""
    python = directory / "bin" / "python"
    if not python.exists():
        raise PeerError(f"no virtual environment in {directory}; create it with ensure_venv first")
    with tempfile.TemporaryDirectory(prefix="ppca-peer-") as scratch, as_file(files("benchmarks")) as bench:
        output = Path(scratch) / "peer.json"
        # Appended, and -I: nothing of ours must shadow modules of the environment.
        start = f"import sys; sys.path.append({str(bench.parent)!r}); from benchmarks import {module}; {module}.main()"
        checked(
            [str(python), "-I", "-c", start, *arguments, "--json", str(output)], RUN_TIMEOUT, f"the peer's {module}"
        )
        result: dict[str, Any] = json.loads(output.read_text())
    return result


def suitable_python() -> str:
    """An interpreter that `spu` has wheels for, the running one if possible."""
    if sys.version_info[:2] in PYTHON_VERSIONS:
        return sys.executable
    names = [f"python{major}.{minor}" for major, minor in PYTHON_VERSIONS]
    for name in names:
        # A version manager may leave a stub that does not start, so try it.
        if (path := shutil.which(name)) and succeeds([path, "-c", "import ensurepip, venv"]):
            return path
    raise PeerError(
        f"spu 0.9 has wheels for Python 3.10 and 3.11 only; this is Python {sys.version_info[0]}.{sys.version_info[1]} "
        f"and neither {names[0]} nor {names[1]} is on the search path. Install one of them and try again."
    )


def has_spu(python: Path) -> bool:
    return succeeds([str(python), "-c", "import spu, jax, numpy"])


def environment() -> dict[str, str]:
    """Ours without what would make the other interpreter load our modules."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def succeeds(command: list[str]) -> bool:
    try:
        finished = subprocess.run(command, env=environment(), capture_output=True, timeout=120)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return finished.returncode == 0


def checked(command: list[str], timeout: float, what: str, folder: Path | None = None) -> None:
    """Run a command to its end, in this folder; `PeerError` with the tail of its messages if it fails."""
    try:
        finished = subprocess.run(  # noqa: S603
            command, env=environment(), capture_output=True, text=True, errors="replace", timeout=timeout, cwd=folder
        )
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"{what} took longer than {timeout:.0f} seconds and was stopped") from error
    except OSError as error:
        raise PeerError(f"{what} could not start: {error}") from error
    if finished.returncode:
        tail = "\n".join((finished.stderr or finished.stdout).strip().splitlines()[-TAIL_LINES:])
        raise PeerError(f"{what} failed with exit code {finished.returncode}; its last messages:\n{tail}")
