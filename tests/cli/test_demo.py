"""The demo agrees with scikit-learn on the pooled table (the command checks that itself) and leaves its files."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from ppca.cli.main import app
from ppca.cli.result import FILES
from ppca.cli.scenes import Hospitals, angle


def test_demo(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["demo", "-o", str(tmp_path / "demo")])
    assert done.exit_code == 0, done.output
    assert "Nobody saw a patient's row" in done.stdout
    assert "Everything that was opened" in done.stdout
    written = sorted(path.name for path in (tmp_path / "demo").iterdir())
    assert written == sorted([*FILES, *Hospitals.figures, Hospitals.folder])
    assert (tmp_path / "demo" / Hospitals.figures[0]).read_bytes().startswith(b"\x89PNG")
    for options in ([], ["--vertical"]):
        again = CliRunner().invoke(app, ["demo", "-o", str(tmp_path / "demo"), *options])
        assert again.exit_code == 0, again.output


def test_hospitals_alone_find_something_else() -> None:
    scene = Hospitals()
    assert [len(table) for table in scene.tables.values()] == [100, 169, 300]
    assert len(scene.names) == 30
    assert all(angle(alone, scene.truth, 2) > 5 for alone in scene.alone)
    assert angle(scene.truth, scene.truth, 2) < 1e-6
