"""The demo agrees with scikit-learn on the pooled table (the command checks that itself) and leaves its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ppca.cli.main import app
from ppca.cli.result import FILES
from ppca.cli.walkthrough import Hospitals, Institutions, angle


@pytest.mark.usefixtures("lockstep_commands")
def test_owners_of_rows(tmp_path: Path) -> None:
    """A second demo, of column owners, replaces the first."""
    done = CliRunner().invoke(app, ["demo", "-o", str(tmp_path / "demo")])
    assert done.exit_code == 0, done.output
    assert "No one saw a patient's row" in done.stdout
    assert "Everything that was opened" in done.stdout
    written = sorted(path.name for path in (tmp_path / "demo").iterdir())
    assert written == sorted([*FILES, *Hospitals.figures, Hospitals.folder])
    assert (tmp_path / "demo" / Hospitals.figures[0]).read_bytes().startswith(b"\x89PNG")
    check_columns(tmp_path / "demo")


@pytest.mark.usefixtures("lockstep_commands")
def test_owners_of_columns(tmp_path: Path) -> None:
    check_columns(tmp_path / "demo")


def check_columns(folder: Path) -> None:
    done = CliRunner().invoke(app, ["demo", "--vertical", "-o", str(folder)])
    assert done.exit_code == 0, done.output
    printed = " ".join(done.stdout.split())
    assert "patients are known to all three, as in the plain join of the tables" in printed
    assert "No institution learned the patients or values of another one" in printed
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [*FILES, Institutions.folder, *Institutions.figures]
    )
    assert json.loads((folder / "model.json").read_text())["rows"] == 501


def test_hospitals_alone_find_something_else() -> None:
    scene = Hospitals()
    assert [len(table) for table in scene.tables.values()] == [100, 169, 300]
    assert len(scene.names) == 30
    assert all(angle(alone, scene.truth, 2) > 5 for alone in scene.alone)
    assert angle(scene.truth, scene.truth, 2) < 1e-6
