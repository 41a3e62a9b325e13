"""Where the agents are installed, and a gateway with a recording relay on either side of it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.harness.model_server import ModelServer

from recollect.adapters.wiring import open_store
from recollect.core.values.segment import StoredSegment
from recollect.hosts.gateway.access import with_token
from recollect.system.durable import own_secret
from tools.clients.hop import HttpExchange, RecordingHop
from tools.clients.provider import ScriptedProvider, scripted_server

PACKAGES: Final[Mapping[str, str]] = {
    "node24": "node@24",
    "claude": "@anthropic-ai/claude-code@2.1.325",
    "codex": "@openai/codex@0.166.0",
    "pi": "@earendil-works/pi-coding-agent@0.87.1",
    "opencode": "opencode-ai@1.18.33",
    "openclaw": "openclaw@2026.9.6",
}
"""By npm, each into a folder of its own."""
AGENTS: Final = ("claude", "pi", "codex", "opencode")
START_SECONDS: Final = 60.0


class LabError(Exception):
    """The agents cannot be had here; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A folder with the agents in it."""

    folder: Path

    def program(self, name: str) -> Path:
        """What starts an agent."""
        return self.folder / name / "node_modules" / ".bin" / name

    @property
    def path(self) -> str:
        """PATH for the agents: a newer Node than most systems have, and what every system has."""
        return f"{self.folder / 'node24' / 'node_modules' / '.bin'}:/usr/local/bin:/usr/bin:/bin"

    def has(self, name: str) -> bool:
        """Whether an agent is installed."""
        return self.program(name).exists()

    def install(self, names: Collection[str]) -> None:
        """Install the missing ones; LabError where npm cannot."""
        for name in ("node24", *names):
            if not (self.folder / name / "node_modules").is_dir():
                self.install_as(name, PACKAGES[name])

    def install_as(self, name: str, package: str) -> None:
        """Install a package as npm finds it now, whatever was there; LabError where it cannot."""
        npm = shutil.which("npm")
        if npm is None:
            raise LabError("npm is not installed, so the agents cannot be")
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        options = ("--loglevel=error", "--no-fund", "--no-audit", "--prefix")
        done = subprocess.run(
            [npm, "install", *options, str(self.folder / name), package],
            env={**os.environ, "PATH": f"{self.path}:{os.environ.get('PATH', '')}"},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if done.returncode:
            said = (done.stderr or done.stdout)[-300:].strip() or "without a word"
            raise LabError(f"npm could not install {package}: {said}")

    def version(self, name: str, package: str) -> str:
        """Which version of a package is installed."""
        folder = self.folder / name / "node_modules" / package.rpartition("@")[0]
        found = json.loads((folder / "package.json").read_text(encoding="utf-8"))
        return str(found["version"])


class GatewayProcess:
    """`recollect gateway` in a process of its own."""

    def __init__(self, folder: Path, upstream: str, **settings: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.store = folder / "memory.db"
        self.log = folder / "gateway.log"
        config = folder / "recollect.toml"
        config.write_text(_toml(upstream, self.store, settings), encoding="utf-8")
        self.home = folder / "home"
        own = {"RECOLLECT_HOME": str(self.home), "RECOLLECT_CONFIG": str(config.absolute())}
        environment = {**os.environ, **own}
        self._token = own_secret(self.home / "gateway" / "token")
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "recollect", "gateway"],
                stdout=log,
                stderr=log,
                env=environment,
                cwd=folder,
            )
        self.url = self._address()

    def _address(self) -> str:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self._process.poll() is None:
            found = re.search(r"listens on (http://\S+?)\. ", self.log.read_text(encoding="utf-8"))
            if found:
                return with_token(found[1], self._token)
            time.sleep(0.05)
        raise LabError(f"the gateway did not start: {self.log.read_text(encoding='utf-8')[-500:]}")

    def stop(self, how: int = signal.SIGINT) -> int:
        """End it as a user or a service manager would, and return its exit code."""
        self._process.send_signal(how)
        try:
            return self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait(10)


def _toml(upstream: str, store: Path, settings: Mapping[str, Any]) -> str:
    given = {
        "store.url": str(store),
        "gateway.port": 0,
        "gateway.by_folder": False,
        "gateway.upstream.anthropic": upstream,
        "gateway.upstream.openai": f"{upstream}/v1",
        **settings,
    }
    tables: dict[str, list[str]] = {}
    for name, value in given.items():
        table, _, key = name.rpartition(".")
        written = str(value).lower() if isinstance(value, bool) else repr(value)
        tables.setdefault(table, []).append(f"{key} = {written}".replace("'", '"'))
    top = tables.pop("", [])
    rest = [f"[{table}]\n" + "\n".join(lines) for table, lines in tables.items()]
    return "\n".join([*top, *rest]) + "\n"


@dataclass(slots=True, kw_only=True)
class Stage:
    """A provider, a gateway before it, and a relay on either side of the gateway."""

    folder: Path
    provider: ScriptedProvider
    server: ModelServer
    before: RecordingHop
    """Between the client and the gateway."""
    behind: RecordingHop
    """Between the gateway and the provider."""
    gateway: GatewayProcess

    @property
    def url(self) -> str:
        """What a client is given as its base URL."""
        return self.before.url

    def pairs(self) -> Iterator[tuple[HttpExchange, HttpExchange]]:
        """What a client sent and got, with what the provider got and sent."""
        answered = {one.request_id: one for one in self.behind.exchanges() if one.request_id}
        for one in self.before.exchanges():
            if one.request_id in answered:
                yield one, answered[one.request_id]

    def stored(self) -> tuple[StoredSegment, ...]:
        """What memory keeps; the gateway is stopped first."""
        self.gateway.stop()
        return asyncio.run(_page(self.gateway.store))


async def _page(path: Path) -> tuple[StoredSegment, ...]:
    store = await open_store(str(path), space="default")
    try:
        return await store.page(limit=100_000)
    finally:
        await store.close()


@contextmanager
def staged(
    folder: Path, *, server: Mapping[str, Any] | None = None, **settings: Any
) -> Iterator[Stage]:
    """A stage for as long as the block runs; `server` are options of the provider's server."""
    with ExitStack() as stack:
        provider = ScriptedProvider()
        running = stack.enter_context(scripted_server(provider, **(server or {})))
        behind = stack.enter_context(RecordingHop(running.url))
        given = {"recall.embedder": "none", **settings}
        gateway = GatewayProcess(folder / "gateway", behind.url, **given)
        stack.callback(gateway.stop)
        before = stack.enter_context(RecordingHop(gateway.url))
        yield Stage(
            folder=folder,
            provider=provider,
            server=running,
            before=before,
            behind=behind,
            gateway=gateway,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One run of an agent's program."""

    status: int
    output: str


def run_agent(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str],
    folder: Path,
    seconds: float = 180.0,
    interrupt: threading.Event | None = None,
) -> Ran:
    """Run it to its end; with `interrupt` it is stopped as Ctrl-C does once that is set."""
    process = subprocess.Popen(
        [str(part) for part in command],
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    if interrupt is not None:
        interrupt.wait(seconds)
        process.send_signal(signal.SIGINT)
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        output += "\n[killed: it did not end in time]"
    return Ran(status=process.returncode, output=output)
