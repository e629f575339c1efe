"""Errors of jobs."""

from __future__ import annotations


class Refusal(ValueError):
    """A server refuses a job. The message says why and what to do, so no traceback is reported with it."""
