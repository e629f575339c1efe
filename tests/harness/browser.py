"""A real browser for tests: headless Chromium, driven by its DevTools protocol. Nothing else is needed than aiohttp."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harness.waiting import PATIENCE

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PHONE, DESK = 390, 1280
AXE = Path(__file__).with_name("axe") / "axe.min.js"
"""axe-core, which finds barriers for people with disabilities; see axe/README.md."""


def needs_browser(test: Any) -> Any:
    """Mark a test that starts Chromium: a release test, because it takes long. It is skipped if Chromium is missing."""
    present = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
    return pytest.mark.release(pytest.mark.processes(present(test)))


class Page:
    """One tab. problems: what the browser complained of. requests: every address it asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last = 0
        self._loaded = asyncio.Event()
        self._reader = asyncio.create_task(self._read())
        self.problems: list[str] = []
        self.requests: list[str] = []

    async def _read(self) -> None:
        async for message in self._socket:
            heard = json.loads(message.data)
            if "id" in heard:
                self._answers.pop(heard["id"]).set_result(heard)
                continue
            kind, about = heard["method"], heard["params"]
            if kind == "Page.loadEventFired":
                self._loaded.set()
            elif kind == "Network.requestWillBeSent":
                self.requests.append(about["request"]["url"])
            elif kind == "Log.entryAdded" and about["entry"]["level"] == "error":
                self.problems.append(about["entry"]["text"])
            elif kind == "Runtime.exceptionThrown":
                self.problems.append(str(about["exceptionDetails"]))

    async def say(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        number = self._last
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        heard = await asyncio.wait_for(self._answers[number], PATIENCE)
        assert "error" not in heard, (method, heard["error"])
        found: dict[str, Any] = heard["result"]
        return found

    async def look(self, *, width: int = DESK, dark: bool = False, scripts: bool = True) -> None:
        """Return how wide the screen is, whether it is dark, whether scripts run."""
        mobile = width < 600
        await self.say(
            "Emulation.setDeviceMetricsOverride", width=width, height=850, deviceScaleFactor=1, mobile=mobile
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.say("Emulation.setEmulatedMedia", features=[scheme])
        await self.say("Emulation.setScriptExecutionDisabled", value=not scripts)

    async def go(self, url: str) -> None:
        self._loaded.clear()
        await self.say("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), PATIENCE)

    async def do(self, script: str) -> Any:
        """The value of an expression in the page."""
        heard = await self.say("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in heard, heard["exceptionDetails"]
        return heard["result"].get("value")

    async def until(self, script: str, patience: float = PATIENCE) -> None:
        """Wait until an expression is true, also across loads of the page."""
        deadline = asyncio.get_running_loop().time() + patience
        while not await self.do(f"document.readyState == 'complete' && !!({script})"):
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"not within {patience} s: {script}\n{await self.text()}")
            await asyncio.sleep(0.1)

    async def text(self) -> str:
        return str(await self.do("document.body.innerText"))

    async def width(self) -> int:
        """Return how wide the content is: more than the screen, and a phone would scroll sideways."""
        return int(await self.do("document.documentElement.scrollWidth"))

    async def choose(self, selector: str, path: Path) -> None:
        """Put a file into a file field, as a person does who chooses it."""
        root = (await self.say("DOM.getDocument"))["root"]["nodeId"]
        node = (await self.say("DOM.querySelector", nodeId=root, selector=selector))["nodeId"]
        await self.say("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    async def barriers(self) -> list[str]:
        """Return what axe-core finds against WCAG 2.1 A and AA on the page, one line for each rule and element."""
        await self.say("Runtime.evaluate", expression=AXE.read_text())
        tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
        script = f"axe.run(document, {{runOnly: {json.dumps(tags)}, resultTypes: ['violations']}})"
        heard = await self.do(f"{script}.then((found) => found.violations)")
        assert isinstance(heard, list)
        return [
            f"{rule['id']}: {rule['help']}: {node['target']} {node['html'][:120]}"
            for rule in heard
            for node in rule["nodes"]
        ]

    async def screenshot(self, path: Path) -> None:
        """All of the page, however long."""
        size = (await self.say("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        found = await self.say("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(found["data"]))


@asynccontextmanager
async def browser() -> AsyncIterator[Page]:
    """A tab of a browser of its own, which knows nothing and leaves nothing behind."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(prefix="ppca-browser-", ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += ["--disable-background-networking", "--hide-scrollbars", f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            [CHROMIUM, *options, "--remote-debugging-port=0", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            port = await _port(Path(profile) / "DevToolsActivePort", process)
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    tab = next(each for each in await answer.json() if each["type"] == "page")
                async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    page = Page(socket)
                    for domain in ("Page", "Runtime", "Log", "Network"):
                        await page.say(f"{domain}.enable")
                    await page.look()
                    yield page
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while asyncio.get_running_loop().time() < deadline:
        assert process.poll() is None, "Chromium ended at once"
        if file.exists() and (text := file.read_text()).count("\n"):
            return int(text.splitlines()[0])
        await asyncio.sleep(0.05)
    raise AssertionError("Chromium did not start in time")
