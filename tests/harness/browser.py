"""A real browser without a window: Chromium, driven over its DevTools protocol."""

import asyncio
import base64
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
ROOT = Path(__file__).parents[2]
AXE = (
    Path(os.environ.get("AXE_FOLDER", ROOT / ".ci/agents/axe")) / "node_modules/axe-core/axe.min.js"
)
with_browser = pytest.mark.skipif(PROGRAM is None, reason="chromium is not installed here")
with_axe = pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not here: .ci/run installs it")
SECONDS = 90.0


class Tab:
    """One tab. `asked` has every address that it requested, `problems` what it complained about."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._loaded = asyncio.Event()
        self.asked: list[str] = []
        self.bytes = 0
        self.problems: list[str] = []

    async def read(self) -> None:
        async for message in self._socket:
            event = message.json()
            if "id" in event:
                self._waiting.pop(event["id"]).set_result(event)
                continue
            method, given = event["method"], event["params"]
            if method == "Network.requestWillBeSent":
                self.asked.append(given["request"]["url"])
            elif method == "Network.loadingFinished":
                self.bytes += int(given["encodedDataLength"])
            elif method == "Page.loadEventFired":
                self._loaded.set()
            elif method == "Runtime.exceptionThrown":
                self.problems.append(str(given["exceptionDetails"])[:500])
            elif method == "Log.entryAdded" and given["entry"]["level"] == "error":
                self.problems.append(given["entry"]["text"] + " " + given["entry"].get("url", ""))
            elif method == "Page.javascriptDialogOpening":
                self.problems.append(f"a dialog: {given['message']}")

    async def call(self, method: str, **given: Any) -> Any:
        self._number += 1
        waiting = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._number, "method": method, "params": given})
        answer = await asyncio.wait_for(waiting, SECONDS)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    async def go(self, address: str) -> None:
        """Open an address, and wait until the page is loaded."""
        self._loaded.clear()
        await self.call("Page.navigate", url=address)
        await asyncio.wait_for(self._loaded.wait(), SECONDS)

    async def run(self, script: str) -> Any:
        """Evaluate an expression in the page, as DevTools do: no policy stops it."""
        done = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    async def click(self, selector: str) -> None:
        """Click on an element that leads to another page, and wait for it."""
        self._loaded.clear()
        found = f"document.querySelector({selector!r})"
        assert await self.run(f"!!{found}"), f"no {selector} on {await self.run('location.href')}"
        click = "new MouseEvent('click', {bubbles: true, cancelable: true})"
        await self.run(f"{found}.dispatchEvent({click})")
        await asyncio.wait_for(self._loaded.wait(), SECONDS)

    async def words(self) -> str:
        return " ".join(str(await self.run("document.body.innerText")).split())

    async def until(self, script: str, seconds: float = 30.0) -> None:
        async with asyncio.timeout(seconds):
            while not await self.run(script):  # noqa: ASYNC110 - the page changes in the browser
                await asyncio.sleep(0.1)

    async def look(self, *, width: int = 1400, height: int = 1000, dark: bool = False) -> None:
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.call("Emulation.setEmulatedMedia", features=scheme)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)

    async def picture(self) -> bytes:
        shot = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(shot["data"])

    async def faults(self) -> list[str]:
        """What axe-core finds on the page that is serious."""
        await self.run(AXE.read_text(encoding="utf-8") + ";true")
        found = await self.run(
            "axe.run({resultTypes: ['violations']}).then(done => done.violations"
            ".filter(one => ['serious', 'critical'].includes(one.impact))"
            ".map(one => one.id + ': ' + one.nodes[0].html + ' ' + one.nodes[0].failureSummary))"
        )
        return [str(one)[:600] for one in found]


@asynccontextmanager
async def browser() -> AsyncIterator[Tab]:
    """Run Chromium with one tab."""
    assert PROGRAM is not None
    with tempfile.TemporaryDirectory(prefix="rc-chromium", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [
                *(PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
                *("--disable-quic", "--disable-background-networking", "--disable-sync"),
                *("--disable-component-update", "--disable-dev-shm-usage"),
                *("--remote-debugging-port=0", f"--user-data-dir={folder}"),
                "about:blank",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            async with aiohttp.ClientSession() as client:
                base = await asyncio.to_thread(_address, process)
                async with client.put(f"{base}/json/new?about:blank") as made:
                    target = (await made.json())["webSocketDebuggerUrl"]
                async with client.ws_connect(target, max_msg_size=0) as socket:
                    tab = Tab(socket)
                    reading = asyncio.create_task(tab.read())
                    for part in ("Page", "Network", "Runtime", "Log"):
                        await tab.call(f"{part}.enable")
                    yield tab
                    reading.cancel()
        finally:
            process.terminate()
            process.wait(30)
            assert process.stderr is not None
            process.stderr.close()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"ws://([^/]+)/", line):
            return f"http://{found[1]}"
    raise RuntimeError("chromium did not start")
