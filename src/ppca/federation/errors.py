"""Errors of a federation. Every message says what is refused, why, and what to do next."""

from __future__ import annotations


class FederationError(ValueError):
    """A file, an object or a request is refused; nothing was changed."""


class FileRefused(FederationError):
    """federation.toml, server.toml or job.toml is invalid."""


class ObjectRefused(FederationError):
    """An object is malformed, not signed by its author, or of a kind that its author may not write."""


class NotNow(ObjectRefused):
    """An object is refused for a temporary reason: a limit is reached, or something that it needs has not arrived."""


class NotReached(FederationError):
    """No server, or not the required server, answers."""
