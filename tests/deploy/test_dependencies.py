"""The declared dependencies are the true ones: nothing needs pandas, and the lower bounds work together."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

WITHOUT_PANDAS = """
import sys
sys.modules["pandas"] = None  # an import of it fails
import numpy as np
import ppca
for path in sys.argv[1:]:
    table = ppca.open_table(path)
    rows = np.vstack([chunk for chunk in table.chunks()])
    assert rows.shape == (12, 3), (path, rows.shape)
print("read", len(sys.argv) - 1)
"""


@pytest.fixture
def tables(tmp_path: Path) -> list[Path]:
    """The same table in every kind of file: floats of two widths and integers."""
    random = np.random.default_rng(0)
    columns = [random.normal(size=12), random.normal(size=12).astype(np.float32), np.arange(12, dtype=np.uint8)]
    table = pa.table(columns, names=["a", "b", "c"])
    paths = [tmp_path / f"t.{kind}" for kind in ("csv", "parquet", "arrow", "feather")]
    pyarrow.csv.write_csv(table, paths[0])
    pyarrow.parquet.write_table(table, paths[1])
    pyarrow.feather.write_feather(table, paths[2], compression="uncompressed")
    pyarrow.feather.write_feather(table, paths[3])
    return paths


@pytest.mark.processes
def test_tables_are_read_without_pandas(tables: list[Path]) -> None:
    command = [sys.executable, "-c", WITHOUT_PANDAS, *map(str, tables)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "read 4"


def test_the_page_of_dependencies_lists_all_and_where_they_are_used() -> None:
    page = (ROOT / "docs" / "development" / "dependencies.md").read_text()
    extras = PROJECT["optional-dependencies"]
    for text in [*PROJECT["dependencies"], *extras["dask"], *extras["store"], *extras["dev"]]:
        name = re.split(r"[<>=]", text)[0]
        assert f"`{name}`" in page, f"docs/development/dependencies.md does not say why {name} is there"
    at_run_time = page.split("## At run time")[1].split("## To build")[0]
    for line in re.findall(r"^\| `.*\|$", at_run_time, re.MULTILINE):
        module, *_, places = (cell.strip() for cell in line.strip("|").split("|"))
        name = module.strip("`").replace("scikit-learn", "sklearn").replace("-", "_")
        for place in re.findall(r"`([\w/.]+)`", places):
            found = [path for root in (ROOT / "src" / "ppca", ROOT) for path in [root / place] if path.exists()]
            assert found, f"docs/development/dependencies.md: {name} in {place}, which is not there"
            files = found[0].rglob("*.py") if found[0].is_dir() else found
            used = any(re.search(rf"^\s*(from|import) {name}\b", file.read_text(), re.MULTILINE) for file in files)
            assert used, f"docs/development/dependencies.md: {place} does not import {name}"


def lower_bounds() -> list[str]:
    """Every dependency at its lower bound."""
    found = []
    for text in PROJECT["dependencies"]:
        match = re.fullmatch(r"([\w-]+)>=([\d.]+)(,<[\d.]+)?", text)
        assert match, text
        found.append(f"{match[1]}=={match[2]}.*" if match[2].count(".") < 2 else f"{match[1]}=={match[2]}")
    return found


SMOKE = """
import numpy as np, pathlib, subprocess, sys
import ppca
rng = np.random.default_rng(0)
parts = [rng.normal(size=(30, 3)) * [3, 2, 1] for _ in range(2)]
if __name__ == "__main__":
    pca = ppca.PCA(2).fit(parts)
    assert pca.verified_
    for name, part in zip("ab", parts):
        np.savetxt(f"{name}.csv", part, delimiter=",", header="x,y,z", comments="")
    command = [str(pathlib.Path(sys.executable).parent / "ppca")]
    for arguments in (["--help"], ["fit", "a.csv", "b.csv", "-k", "2", "-o", "result"], ["inspect", "result"]):
        subprocess.run([*command, *arguments], check=True, stdout=subprocess.DEVNULL)
    print("works")
"""


@pytest.mark.release
@pytest.mark.processes
@pytest.mark.timeout(1200)
def test_lower_bounds_of_all_dependencies(tmp_path: Path) -> None:
    """A fresh environment with the oldest declared versions and without pandas fits, and its commands work."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    install = [python, "-m", "pip", "install", "--quiet", *lower_bounds(), str(ROOT)]
    done = subprocess.run(install, env=environment, timeout=900, check=False, **quiet)
    assert done.returncode == 0, done.stdout
    have = subprocess.run([python, "-m", "pip", "list"], env=environment, timeout=60, check=True, **quiet).stdout
    assert "pandas" not in have
    (tmp_path / "smoke.py").write_text(SMOKE)
    done = subprocess.run([python, "smoke.py"], cwd=tmp_path, timeout=200, check=False, **quiet)
    assert done.returncode == 0, done.stdout
    assert done.stdout.strip().endswith("works")
