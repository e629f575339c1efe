"""What is refused in a federation, and why; every message says what to do next."""

from __future__ import annotations


class FederationError(ValueError):
    """A file, an object or a request is refused; nothing was changed."""


class FileRefused(FederationError):
    """federation.toml, server.toml or job.toml is not as it must be."""


class ObjectRefused(FederationError):
    """An object is malformed, not signed by its author, or not the author's to write."""


class NotNow(ObjectRefused):
    """An object is refused for a reason that may pass: no room, or something that it needs is not here yet."""


class NotReached(FederationError):
    """No server, or not the server that is needed, answers."""
