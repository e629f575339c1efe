"""Revisions of the membership file that a member or a server has used. Each revision continues the previous one."""

from __future__ import annotations

from pathlib import Path

from ..runtime.files import write_whole
from .errors import FileRefused
from .membership import Membership, read_signatures
from .toml import read

PRESENT = "present"
"""Name of the file with number and digest of the revision in force."""

ENOUGH = 3
"""Minimum number of operators of a revision that must have signed the next one with present keys. One may be lost."""


class Revisions:
    """Folder with all revisions that were used, by digest (`Membership.remember`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, membership: Membership, accepted: str | None = None) -> None:
        """Use a revision from now on; raise FileRefused unless it continues the one in force.

        accepted: the digest of a revision that a person has compared with the operators. It does not need signatures of
        the operators of the previous one.
        """
        path = self._folder / PRESENT
        number, _, digest = (path.read_text() if path.exists() else "0 ").partition(" ")
        if membership.digest != digest:
            if membership.revision <= int(number):
                raise FileRefused(
                    f"the federation's file has revision {membership.revision}; revision {number} was in force here, "
                    "and it only grows. Get the present file from an operator."
                )
            present = self._load(digest)
            if present is not None and membership.digest != accepted:
                _check_signatures(membership, present)
        membership.remember(self._folder)
        write_whole(path, f"{membership.revision} {membership.digest}".encode(), 0o600)

    def has_used(self, federation: str) -> bool:
        """Return whether a revision was used here, by its digest."""
        return (self._folder / f"{federation}.toml").exists()

    def _load(self, digest: str) -> Membership | None:
        """Return a revision that was used here, or None if its file is damaged or missing."""
        path = self._folder / f"{digest}.toml"
        try:
            found = Membership(read(path), read_signatures(path.with_suffix(".sigs")), str(path))
        except FileRefused:
            return None
        return found if found.digest == digest else None


def _check_signatures(membership: Membership, present: Membership) -> None:
    signed = [name for name in present.operators.values() if membership.is_signed_with(present.keys[name], name)]
    if len(signed) < ENOUGH:
        raise FileRefused(
            f"revision {membership.revision} of the federation's file is signed by {len(signed)} of the four "
            f"operators of revision {present.revision} with the keys that they have there; {ENOUGH} are "
            "needed. If several operators have changed, compare the words of all keys with them (ppca "
            "federation check) and accept the digest that it prints: ppca federation accept DIGEST, or on a "
            "server ppca server run --accept DIGEST."
        )
