"""Event streams of servers: lines to events. Servers follow each other by them, and members follow their jobs."""

from __future__ import annotations

MAX_LINE = 1 << 17
"""Maximum bytes of a line of an event stream."""

SILENT = "silence"
"""Kind of the event that a server sends if there is nothing to tell."""


class EventLines:
    """Reads the lines of one stream in their order."""

    def __init__(self) -> None:
        self._kind = ""

    def event(self, line: bytes) -> tuple[str, str] | None:
        """Return the kind and the content of the event that a line completes, or None."""
        text = line.decode(errors="replace").rstrip("\n")
        if text.startswith(":"):
            return SILENT, ""
        name, _, content = text.partition(": ")
        if name == "event":
            self._kind = content
        return (self._kind, content) if name == "data" else None
