"""The demo agrees with scikit-learn on the pooled table (the command checks that itself) and leaves its files."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from ppca.cli.demo import COMPARISON, PROJECTION, angle, hospitals, plain_pca
from ppca.cli.main import app
from ppca.cli.result import FILES


def test_demo(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["demo", "-o", str(tmp_path / "demo")])
    assert done.exit_code == 0, done.output
    assert "Nobody saw a patient's row" in done.stdout
    assert "Everything that was opened" in done.stdout
    written = sorted(path.name for path in (tmp_path / "demo").iterdir())
    assert written == sorted([*FILES, COMPARISON, PROJECTION, "hospitals"])
    assert (tmp_path / "demo" / COMPARISON).read_bytes().startswith(b"\x89PNG")


def test_hospitals_alone_find_something_else() -> None:
    import numpy as np

    tables, names = hospitals()
    assert [len(table) for table in tables.values()] == [100, 169, 300]
    assert len(names) == 30
    pooled = plain_pca("pooled", np.concatenate(list(tables.values())))
    assert all(angle(plain_pca(name, table), pooled, 2) > 5 for name, table in tables.items())
    assert angle(pooled, pooled, 2) < 1e-6
