"""Lines of event streams become events."""

from __future__ import annotations

from ppca.federation.event_lines import SILENT, EventLines


def test_lines_become_events() -> None:
    lines, found = EventLines(), []
    stream = b'event: object\ndata: {"a: b": 1}\n\n: still here\n\nevent: place\ndata: 7\n\nanything\ndata: 8\n\xff\n'
    for line in stream.splitlines(keepends=True):
        found.append(lines.event(line))
    assert [event for event in found if event] == [
        ("object", '{"a: b": 1}'),
        (SILENT, ""),
        ("place", "7"),
        ("place", "8"),
    ]
