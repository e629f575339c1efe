"""Structured logs: one JSON object per line, with the fields that were named and nothing else. Never a share, a key or
a row."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from ..runtime.failure import places

FIELDS = (
    *("job", "kind", "author", "by", "peer", "attempt", "reason", "digest", "server", "address", "revision", "build"),
    *("member", "status", "path", "seconds", "bytes", "error", "at"),
)


class JsonFormatter(logging.Formatter):
    """Fields by name; of an exception the type and the places in the code, not its text."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "what": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            line["at"] = places(record.exc_info[2])
        return json.dumps(line, default=str)


def set_up(level: str = "INFO") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
