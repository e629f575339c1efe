"""The folder of a result, or a single file: written whole or not at all, and never over something that is not a
result."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path


class FolderRefused(ValueError):
    """The folder for the result cannot be used; nothing was written."""


def check_free(folder: Path, known: Collection[str], *, replace: bool) -> None:
    """Refuse a folder that cannot be written, or whose content would be lost.

    known : names that a result consists of
    replace : whether an earlier result may be replaced; other files never are
    """
    target = folder.resolve()
    check_writable(folder)
    if target.is_dir():
        held = sorted(entry.name for entry in target.iterdir())
        foreign = [name for name in held if name not in known]
        if held and not replace:
            raise FolderRefused(
                f"{folder} exists and is not empty. Choose another folder with -o, or replace it with --force."
            )
        if foreign:
            raise FolderRefused(
                f"{folder} holds {foreign[0]!r}, which is not part of a result and would be lost. "
                "Choose another folder with -o, or move it away."
            )
    elif target.exists():
        raise FolderRefused(f"{folder} is a file. Choose a folder with -o.")


def check_writable(path: Path) -> None:
    """Refuse a file or folder that cannot be made, by making one of a similar name in the nearest folder that
    exists."""
    target = path.resolve()
    try:
        above = target.parent
        while not above.exists():
            above = above.parent
        probe = _beside(above / target.name, "part")
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        raise FolderRefused(
            f"{path} cannot be made: {above} takes no new folder ({error.strerror}). Choose another place with -o."
        ) from None


def _beside(target: Path, kind: str) -> Path:
    """A new name in the same folder for what is not finished yet."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.{kind}")


@contextmanager
def whole_folder(folder: Path, known: Collection[str], *, replace: bool, others: bool = True) -> Iterator[Path]:
    """A new folder beside the wanted one, which takes its place at the end of the block, or is removed on any error.

    others : whether other users may look into it, as far as the umask lets them
    """
    check_free(folder, known, replace=replace)
    target = folder.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    part, former = (_beside(target, kind) for kind in ("part", "former"))
    part.mkdir(mode=0o777 if others else 0o700)
    try:
        yield part
        check_free(folder, known, replace=replace)  # it may have changed while the job ran
        _put(part, target, former)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _put(part: Path, target: Path, former: Path) -> None:
    """Two renames; an earlier result is deleted only when the new one is in its place."""
    if not target.exists():
        part.rename(target)
        return
    target.rename(former)
    try:
        part.rename(target)
    except BaseException:
        former.rename(target)
        raise
    shutil.rmtree(former, ignore_errors=True)


def check_file(path: Path, endings: Collection[str], *, replace: bool) -> None:
    """Refuse a file that could not be written afterwards, or that exists."""
    target = path.resolve()
    if path.suffix.lower() not in endings:
        raise FolderRefused(f"-o {path}: the ending must be {' or '.join(endings)}.")
    if not target.parent.is_dir():
        raise FolderRefused(
            f"{path} cannot be made: there is no folder {target.parent}. Make it, or choose another with -o."
        )
    check_writable(path)
    if target.is_dir():
        raise FolderRefused(f"{path} is a folder. Give the name of a file with -o.")
    if target.exists() and not replace:
        raise FolderRefused(f"{path} exists. Choose another name with -o, or replace it with --force.")
