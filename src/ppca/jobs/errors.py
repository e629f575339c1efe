"""Errors of jobs."""

from __future__ import annotations

from typing import Any


class Refusal(ValueError):
    """A server refuses a job. The message says why and what to do, so no traceback is reported with it."""


class NoResult(Refusal):
    """All four servers find, from facts that all of them see, that a job cannot have a result.

    This is the answer of the job, not a failure: the servers keep their links. cause: a word by which an interface
    knows which hints to add. facts: what the servers tell with the answer.
    """

    def __init__(self, why: str, cause: str | None = None, **facts: Any) -> None:
        super().__init__(why)
        self.cause = cause
        self.facts = facts

    @property
    def answer(self) -> dict[str, Any]:
        """Return what the servers return instead of a result."""
        cause = {} if self.cause is None else {"cause": self.cause}
        return {**self.facts, "refused": str(self), **cause}
