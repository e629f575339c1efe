"""A server's admission with a membership that can change, and the story of a job that goes well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.federation import MEMBERSHIP, job, story
from ppca.federation.errors import ObjectRefused
from ppca.federation.objects import Object
from ppca.federation.serverfile import Policy
from ppca.server.admission import Admission
from ppca.server.mailbox import Mailbox

OF = job()
STORY = story(OF)
KINDS = [item.header.kind for item in STORY]


class LocalAdmission(Admission):
    """A server's admission with a membership that can change."""

    def __init__(self, folder: Path, at_most: int = 1 << 30, **policy: Any) -> None:
        self.federation = MEMBERSHIP
        super().__init__(Mailbox(folder), lambda: self.federation, Policy(**policy), at_most)

    def tell(self, *items: Object) -> None:
        for item in items:
            self.admit(item, item.header.author)

    def refuses(self, item: Object, words: str | None = None, carrier: str | None = None) -> None:
        before = self.mailbox.headers(item.header.job)
        with pytest.raises(ObjectRefused, match=words):
            self.admit(item, carrier or item.header.author)
        assert self.mailbox.headers(item.header.job) == before


def until(kind: str, more: int = 0) -> list[Object]:
    """The story before the first object of a kind."""
    return STORY[: KINDS.index(kind) + more]
