"""A result folder appears whole or not at all, and never over other files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppca.cli.folder import FolderRefused, check_free, whole_folder

KNOWN = ("model.json", "report.html")


def fill(folder: Path, text: str) -> None:
    for name in KNOWN:
        (folder / name).write_text(text)


def test_new_folder_with_parents(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b"
    with whole_folder(target, KNOWN, replace=False) as part:
        fill(part, "new")
        assert not target.exists()
    assert sorted(path.name for path in target.iterdir()) == sorted(KNOWN)
    assert [path.name for path in target.parent.iterdir()] == ["b"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_remains_after_an_error(tmp_path: Path, error: type[BaseException]) -> None:
    def write() -> None:
        with whole_folder(tmp_path / "result", KNOWN, replace=False) as part:
            fill(part, "half")
            raise error

    with pytest.raises(error):
        write()
    assert list(tmp_path.iterdir()) == []


def test_earlier_result_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "result"
    target.mkdir()
    fill(target, "old")
    with pytest.raises(FolderRefused, match="--force"):
        check_free(target, KNOWN, replace=False)
    with pytest.raises(OSError, match="disk"), whole_folder(target, KNOWN, replace=True):
        raise OSError("disk full")
    assert (target / "model.json").read_text() == "old"
    with whole_folder(target, KNOWN, replace=True) as part:
        fill(part, "new")
        assert (target / "model.json").read_text() == "old"
    assert (target / "model.json").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_other_files_are_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("work")
    with pytest.raises(FolderRefused, match=r"thesis\.tex"), whole_folder(tmp_path, KNOWN, replace=True):
        pass
    with pytest.raises(FolderRefused, match="is a file"):
        check_free(tmp_path / "thesis.tex", KNOWN, replace=True)
    with pytest.raises(FolderRefused, match="cannot be made"):
        check_free(tmp_path / "thesis.tex" / "result", KNOWN, replace=True)
    assert (tmp_path / "thesis.tex").read_text() == "work"


def test_empty_folder_may_be_used(tmp_path: Path) -> None:
    target = tmp_path / "result"
    target.mkdir()
    with whole_folder(target, KNOWN, replace=False) as part:
        fill(part, "new")
    assert (target / "model.json").exists()
