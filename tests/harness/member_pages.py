"""`ppca ui` of one member, without a federation: its pages are real, everyone else is on a board."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import aiohttp
import numpy as np
from aiohttp import web

from harness.board import Board
from harness.waiting import PATIENCE, eventually
from ppca.federation.proposal import ProposedJob
from ppca.member import MemberClient
from ppca.member.fetching import EVIDENCE
from ppca.receiver import PCAModel
from ppca.web.member import site
from ppca.web.member.results import Results
from ppca.web.member.site import Pages

HOSTILE = "<script>document.title='taken'</script><img src=//evil.example onerror=1>"
LONG = "心臓病の共同研究、第二回、全病院の患者の検査値による主成分分析"
TABLE = "a,b,c\n" + "".join(f"{40 + i},{7 * i % 31},{i % 3}\n" for i in range(30))


def write_result(member: MemberClient, job: ProposedJob, folder: Path) -> None:
    """Stands for `ppca fetch`: the files of a result, and evidence with a key."""
    (folder / EVIDENCE).mkdir(parents=True)
    (folder / EVIDENCE / "result.key").write_bytes(b"SECRET")
    rng = np.random.default_rng(5)
    components = np.linalg.qr(rng.normal(size=(3, 3)))[0][:2]
    model = PCAModel(
        components=components,
        explained_variance=np.array([3.0, 1.0]),
        explained_variance_ratio=np.array([0.6, 0.2]),
        total_variance=5.0,
        mean=np.zeros(3),
        scale=None,
        fell_back=False,
        resolution=1e-9,
        tolerance=1e-9,
        component_error=np.array([1e-8, 2e-8]),
        rows=304,
        solver="allpairs",
        iterations=9,
        verified=True,
        feature_names=[HOSTILE, LONG, "oldpeak"],
    )
    model.save(folder / "model.json")
    (folder / "report.html").write_text("<!doctype html><title>report</title><p>the report</p>")


class MemberPages:
    """`ppca ui` of one member, and everyone else on a board."""

    def __init__(self, board: Board, name: str) -> None:
        self.board = board
        self.name = name
        self.results = Results(
            board.folder / "results", lambda folder, job: ["every signature is that of a pinned key"]
        )
        self.pages = Pages(lambda: board.member(name), self.results, write_result)
        self.origin = self.link = ""

    @property
    def root(self) -> str:
        return self.origin + self.pages.authorisation.root

    async def enter(self, session: aiohttp.ClientSession) -> None:
        async with session.get(self.link) as answer:
            assert (answer.status, str(answer.url)) == (200, f"{self.root}/")

    async def post(
        self, session: aiohttp.ClientSession, path: str, data: Any = None, **headers: str
    ) -> tuple[int, str]:
        headers = {"Origin": self.origin} | headers
        async with session.post(f"{self.root}{path}", data=data, headers=headers) as answer:
            return answer.status, await answer.text()

    async def text(self, session: aiohttp.ClientSession, path: str = "/") -> str:
        async with session.get(f"{self.root}{path}") as answer:
            assert answer.status == 200
            return await answer.text()

    async def heard(self, job: ProposedJob, look: Callable[[Any], bool] = lambda known: True) -> None:
        def known() -> bool:
            found = self.pages.following.one(job.id)
            return found is not None and look(found)

        await eventually(known, "not heard of")

    async def done(self, job: ProposedJob) -> Any:
        def over() -> bool:
            task = self.pages.tasks.of(job.id)
            return task is not None and not task.under_way

        await eventually(over, "not done")
        return self.pages.tasks.of(job.id)


@asynccontextmanager
async def desk(board: Board, name: str) -> AsyncIterator[MemberPages]:
    here = MemberPages(board, name)
    runner = web.AppRunner(here.pages.application(), access_log=None, shutdown_timeout=2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    here.origin, here.link = f"http://127.0.0.1:{port}", here.pages.authorisation.link(port)
    here.pages.following.start()
    try:
        with patch.object(
            site, "QUICK", PATIENCE
        ):  # the page that follows shows the end, however loaded the machine is
            yield here
    finally:
        here.pages.following.stop()
        await runner.cleanup()


def visitor() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))  # keeps cookies of addresses
