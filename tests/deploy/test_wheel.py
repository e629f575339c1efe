"""The wheel is what is deployed: it installs where there is neither compiler nor source, and computes there."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ppca import __version__
from ppca.federation.build import build

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.release, pytest.mark.processes, pytest.mark.timeout(1800)]
PAGES = (".html", ".css", ".js", ".svg")
COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "cmake", "ninja", "make")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once in a run of tests, in a folder of that run: workers that come second wait for it, other runs have their own."""
    build()  # remembered: whoever edits sources meanwhile does not disturb
    own = tmp_path_factory.getbasetemp()
    return built_once(own.parent / "wheel" if "PYTEST_XDIST_WORKER" in os.environ else own / "wheel")


def built_once(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            command = ["make", "wheel", f"DIST={folder / 'dist'}", f"WHEEL={folder / 'work'}"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
            (folder / "done").touch()
    (found,) = (folder / "dist").glob("*.whl")
    return found


class Host:
    """A machine without a compiler: a new virtual environment, and nothing in PATH but what is in it."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        hidden = ("PYTHON", "VIRTUAL_ENV", "CC", "CXX", "CMAKE", "PPCA")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        self.environment = kept | {"PATH": str(self.bin)}

    def run(self, command: str, *words: object) -> str:
        done = subprocess.run(
            [self.bin / command, *map(str, words)],
            cwd=self.folder, env=self.environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def host(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Host:
    found = Host(tmp_path_factory.mktemp("host"))
    found.run("python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:", wheel)
    assert not [name for name in COMPILERS if (found.bin / name).exists()]
    return found


def test_the_wheel_is_named_after_the_c_library_it_needs(wheel: Path) -> None:
    """auditwheel gives that name only to a wheel whose module needs no library beside the C library."""
    assert "-manylinux_2_" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if ".so" in name] == [
        name for name in names if "/_kernels." in name and ".so" in name
    ]
    shown = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.*") if path.suffix in PAGES}
    assert shown <= set(names)


def test_the_installed_command_is_this_build(host: Host) -> None:
    """Servers run a job only together with servers of the same build: a wheel and a checkout of one source are the same."""
    assert host.run("ppca", "--version").strip() == f"ppca {__version__}"
    where = "import ppca, ppca.federation.build as b; print(ppca.__file__, b.build())"
    file, found = host.run("python", "-c", where).split()
    assert Path(file).is_relative_to(host.folder)
    assert found == build()


def test_the_example_of_the_readme_runs_from_the_wheel(host: Host) -> None:
    shown = re.search(r"examples/joint_pca\.py\n((?:    .*\n)+)", (ROOT / "README.md").read_text())
    assert shown is not None
    (host.folder / "joint_pca.py").write_text((ROOT / "examples/joint_pca.py").read_text())
    assert host.run("python", "joint_pca.py") == re.sub(r"^    ", "", shown[1], flags=re.MULTILINE)


def test_a_release_is_the_same_twice_with_its_checksums_and_bill_of_materials(tmp_path: Path) -> None:
    """Two builds in different folders: the same bytes. The bill of materials lists what pip would install."""
    contents = []
    for each in ("first", "second"):
        place = tmp_path / each
        command = ["make", "release", f"DIST={place / 'dist'}", f"WHEEL={place / 'work'}", f"PYTHONS={sys.executable}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        contents.append({path.name: path.read_bytes() for path in (place / "dist").iterdir()})
    first, second = contents
    assert first == second
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in first.items()}
    sums = dict(line.split()[::-1] for line in first["SHA256SUMS"].decode().splitlines())
    assert sums == {name: digest for name, digest in digests.items() if name != "SHA256SUMS"}
    (wheel,) = (name for name in first if name.endswith(".whl"))
    bill = json.loads(first[f"ppca-{__version__}.cdx.json"])
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": digests[wheel]}]
    names = {part["name"].lower().replace("_", "-") for part in bill["components"]}
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {re.split(r"[<>=]", text)[0] for text in needed} <= names
    assert not {"pandas", "matplotlib", "pytest"} & names
    assert all(part["version"] and part["hashes"] for part in bill["components"])


def test_the_installed_command_fits(host: Host) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 4)) * [4.0, 3.0, 2.0, 1.0]
    for name, part in zip("abc", np.split(rows, [10, 30]), strict=True):
        np.savetxt(host.folder / f"{name}.csv", part, delimiter=",", header="w,x,y,z", comments="")
    host.run("ppca", "fit", "a.csv", "b.csv", "c.csv", "-k", 2, "-q", "-o", "result")
    model = json.loads((host.folder / "result" / "model.json").read_text())
    variances = np.sort(np.linalg.eigvalsh(np.cov(rows.T)))[::-1][:2]
    np.testing.assert_allclose(model["explained_variance"], variances, rtol=1e-6)  # as tests/cli/test_fit.py
