"""Four local servers with slow links between them: a proxy before every one of them delays and limits what its mates
send."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.proxy import Proxy
from ppca.runtime import LocalServers


@dataclass(eq=False)
class SlowServers(LocalServers):
    """delay: seconds one way; rate: bits per second in each direction of a link between two servers, 0 for any."""

    delay: float = 0.0
    rate: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._links: list[Proxy] = []

    def reached_at(self, ports: list[int]) -> list[int]:
        self._cut()
        self._links = [Proxy(("127.0.0.1", port), delay=self.delay, rate=self.rate) for port in ports]
        return [link.port for link in self._links]

    def stop(self) -> None:
        super().stop()
        self._cut()

    def _cut(self) -> None:
        for link in self._links:
            link.close()
        self._links = []
