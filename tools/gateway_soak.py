"""A gateway under mixed traffic for as long as it is told: nothing may leak, and nothing be lost.

`python -m tools.gateway_soak --seconds 600`. A real gateway process between real HTTP
clients and a scripted provider, on three routes, streamed and not: clients that vanish, slow
readers, errors of the provider's, replies that break off, bodies that are no JSON. It ends with 1
where a socket, a task or a file stayed open, memory grew, the gateway made an error of its own, or
something that was acknowledged is not in the store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import psutil
from tests.harness.model_server import Asked, ModelServer, Step

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.values.model import Usage
from recollect.hosts.gateway.access import TOKEN_HEADER, TOKEN_PATH, with_token
from recollect.system.durable import own_secret
from recollect.testing.scripted_model import Fails, Says

WORKERS: Final = 6
TURNS: Final = 8
"""Turns of a conversation before the next one begins."""
WARM_UP_SHARE: Final = 0.5
QUIET_SECONDS: Final = 60.0
REPLY_SECONDS: Final = 60.0
FEW_TASKS: Final = 6
"""Tasks of an idle gateway."""
MORE_TASKS: Final = 2
"""Further tasks that may look after the store."""
MORE_FILES: Final = 8
"""Files of a memory that opens only when it is needed. A leak leaves one per request."""
ROUTES: Final = {
    "anthropic": ("/v1/messages", "messages"),
    "openai-chat": ("/v1/chat/completions", "messages"),
    "openai-responses": ("/v1/responses", "input"),
}
BEHAVIOURS: Final = {
    "ordinary": 60,
    "vanishes": 8,
    "vanishes-early": 5,
    "slow": 4,
    "fails-429": 3,
    "fails-500": 3,
    "fails-529": 3,
    "drops": 5,
    "error-inside": 4,
    "no-json": 3,
    "models": 2,
}
_BEHAVIOUR: Final = re.compile(rb"behaviour=([a-z0-9-]+)")
_MARKER: Final = re.compile(r"(?:marker|reply)-\d+-\d+")
_ASKED: Final = re.compile(rb"marker(-\d+-\d+)")


@dataclass(slots=True, kw_only=True)
class Soaked:
    """What a run came to."""

    requests: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)
    """Markers of what was answered to the end, and of the answers."""
    lost: set[str] = field(default_factory=set)
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "requests": dict(self.requests),
            "acknowledged": len(self.acknowledged),
            "lost": sorted(self.lost)[:10],
            "before": self.before,
            "after": self.after,
            "problems": self.problems,
        }


def answer(asked: Asked) -> Step:
    """What the provider does with a request, which says so itself in its last message."""
    named = _BEHAVIOUR.findall(asked.content)
    behaviour = named[-1].decode() if named else "ordinary"
    if behaviour == "no-json" or not asked.content.endswith(b"}"):
        return Fails(status=400)
    if behaviour.startswith("fails-"):
        return Fails(status=int(behaviour.removeprefix("fails-")))
    usage = Usage(input_tokens=len(asked.content) // 4, output_tokens=9)
    marks = _ASKED.findall(asked.content)
    text = reply_text(marks[-1].decode() if marks else "", long=behaviour == "slow")
    if behaviour == "vanishes":
        return Says(text=text, hang_after_events=3)
    if behaviour == "vanishes-early":
        return Says(text=text, hang_after_events=0)
    if behaviour == "drops":
        return Says(text=text, cut_after_events=3)
    if behaviour == "error-inside":
        return Says(text=text, fail_after_events=3)
    return Says(text=text, usage=usage, piece_bytes=256)


def reply_text(mark: str, *, long: bool) -> str:
    """What is answered to a message with this mark; it has a mark of its own."""
    return f"reply{mark}: " + "noted, and done. " * (2_000 if long else 6)


class Worker:
    """A client with one conversation after the other."""

    def __init__(self, number: int, url: str, soaked: Soaked, seed: int) -> None:
        self._number, self._url, self._soaked = number, url, soaked
        self._random = random.Random(f"{seed}-{number}")
        self._count = 0

    async def run(self, until: float, least: int) -> None:
        """Talk until then, and until so much was acknowledged, over connections of its own."""
        timeout = aiohttp.ClientTimeout(total=REPLY_SECONDS)
        address, _, token = self._url.partition(TOKEN_PATH)
        headers = {TOKEN_HEADER: token}
        async with aiohttp.ClientSession(address, timeout=timeout, headers=headers) as http:
            while time.monotonic() < until or len(self._soaked.acknowledged) < least:
                await self._converse(http, until, least)

    async def _converse(self, http: aiohttp.ClientSession, until: float, least: int) -> None:
        wire = self._random.choice(list(ROUTES))
        history: list[dict[str, str]] = []
        session = f"soak-{self._number}-{self._count}"
        for _ in range(TURNS):
            if time.monotonic() > until and len(self._soaked.acknowledged) >= least:
                return
            (behaviour,) = self._random.choices(list(BEHAVIOURS), weights=list(BEHAVIOURS.values()))
            self._count += 1
            marker = f"marker-{self._number}-{self._count}"
            words = " ".join(self._random.choices(_WORDS, k=60))
            said = {"role": "user", "content": f"{marker} behaviour={behaviour} {words}"}
            done = await self._ask(http, wire, session, [*history, said], behaviour)
            self._soaked.requests[behaviour] += 1
            if done:
                mark = marker.removeprefix("marker")
                self._soaked.acknowledged |= {marker, f"reply{mark}"}
                text = reply_text(mark, long=behaviour == "slow")
                history += [said, {"role": "assistant", "content": text}]

    async def _ask(
        self,
        http: aiohttp.ClientSession,
        wire: str,
        session: str,
        messages: list[dict[str, str]],
        behaviour: str,
    ) -> bool:
        """Send one request and behave as it says; whether it was answered to its end."""
        path, name = ROUTES[wire]
        stream = behaviour in _STREAMED or self._random.random() < 0.6
        fields = {"model": "m", "max_tokens": 99, "stream": stream, name: messages}
        body = json.dumps(fields).encode()
        if behaviour == "no-json":
            body = body[: len(body) // 2]
        headers = {"content-type": "application/json"}
        if self._random.random() < 0.7:  # else the session is recognised by its history
            headers["x-recollect-session"] = session
        try:
            if behaviour == "models":
                async with http.get("/v1/models") as reply:
                    self._check(reply.status, behaviour)
                    await reply.read()
                return False
            if behaviour == "vanishes-early":
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._read(http, path, body, headers, behaviour), 0.3)
                return False
            return await self._read(http, path, body, headers, behaviour)
        except aiohttp.ClientError as error:
            if behaviour != "drops":
                self._soaked.problems.append(f"{behaviour}: {type(error).__name__}")
            return False
        except TimeoutError:
            self._soaked.problems.append(f"{behaviour}: no answer in {REPLY_SECONDS:.0f} s")
            return False

    async def _read(
        self,
        http: aiohttp.ClientSession,
        path: str,
        body: bytes,
        headers: dict[str, str],
        behaviour: str,
    ) -> bool:
        async with http.post(path, data=body, headers=headers) as reply:
            self._check(reply.status, behaviour)
            if behaviour == "vanishes":
                await reply.content.readany()
                reply.close()
                return False
            if behaviour == "slow":
                for _ in range(20):
                    await reply.content.read(512)
                    await asyncio.sleep(0.02)
            await reply.read()
            return reply.status == 200 and behaviour in ("ordinary", "slow")

    def _check(self, status: int, behaviour: str) -> None:
        """No error but those that the provider was told to answer with."""
        expected = {
            "models": 200,
            "no-json": 400,
            **{name: int(name[6:]) for name in BEHAVIOURS if name.startswith("fails-")},
        }.get(behaviour, 200)
        if status != expected:
            self._soaked.problems.append(f"{behaviour}: status {status} in place of {expected}")


_STREAMED: Final = ("vanishes", "drops", "error-inside", "slow")
_WORDS: Final = (
    "window", "harbour", "engine", "ledger", "signal", "copper", "meadow", "parser", "winter",
    "lantern", "orchard", "migration", "rollback", "invoice", "cargo", "beacon", "ferry",
)  # fmt: skip


class GatewayProcess:
    """`recollect gateway` with a home of its own."""

    def __init__(self, home: Path, upstream: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as opened:
            self.port = int(opened.getsockname()[1])
        token = own_secret(home / "gateway" / "token")
        self.url = with_token(f"http://127.0.0.1:{self.port}", token)
        command = [sys.executable, "-m", "recollect", "gateway", "--port", str(self.port)]
        environment = {
            **os.environ,
            "RECOLLECT_HOME": str(home),
            "RECOLLECT_WINDOW_TOKENS": "8000",
            "RECOLLECT_GATEWAY__UPSTREAM__ANTHROPIC": upstream,
            "RECOLLECT_GATEWAY__UPSTREAM__OPENAI": f"{upstream}/v1",
            "RECOLLECT_RECALL__EMBEDDER": "none",
        }
        self._process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        self._watched = psutil.Process(self._process.pid)

    async def started(self) -> None:
        """Until it answers."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with suppress(aiohttp.ClientError, KeyError):
                await self.health()
                return
            await asyncio.sleep(0.1)
        raise AssertionError("the gateway did not start")

    async def health(self) -> dict[str, Any]:
        """What it says of itself."""
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{self.url}/recollect/health") as reply,
        ):
            fields: dict[str, Any] = await reply.json()
            return fields

    async def quiet(self, upstream_port: int, tasks: float) -> dict[str, float]:
        """What it holds once no request is under way, nobody is connected, and no more than so many
        tasks are left."""
        until = time.monotonic() + QUIET_SECONDS
        while True:
            health = await self.health()
            held = self._held(upstream_port)
            idle = not health["running"] and not held["clients"] and health["tasks"] <= tasks
            if idle or time.monotonic() > until:
                return {**held, "running": health["running"], "tasks": health["tasks"]}
            await asyncio.sleep(0.2)

    def _held(self, upstream_port: int) -> dict[str, float]:
        connections = self._watched.net_connections("tcp")
        to_provider = [one for one in connections if one.raddr and one.raddr.port == upstream_port]
        clients = [
            one
            for one in connections
            if one.raddr and one.laddr.port == self.port and one.status != "TIME_WAIT"
        ]
        return {
            "resident_mb": self._watched.memory_info().rss / 1e6,
            "clients": float(len(clients)),
            "to_provider": float(len(to_provider)),
            "half_closed": float(sum(one.status == "CLOSE_WAIT" for one in connections)),
            "files": float(self._watched.num_fds() - len(connections)),
        }

    def stop(self) -> int:
        """End it as a signal does; its status."""
        self._process.terminate()
        try:
            return self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


async def soak(
    seconds: float, *, seed: int = 1, growth_ratio: float = 0.1, least: int = 1
) -> Soaked:
    """Run for so long, until so many messages were acknowledged, and look at what is left."""
    soaked = Soaked()
    with (
        tempfile.TemporaryDirectory(prefix="recollect-soak-") as name,
        ModelServer(answer, pages={"/v1/models": {"data": []}}) as provider,
    ):
        home, upstream_port = Path(name), int(provider.url.rpartition(":")[2])
        gateway = GatewayProcess(home, provider.url)
        try:
            await gateway.started()
            for share, held in (
                (WARM_UP_SHARE, soaked.before),
                (1 - WARM_UP_SHARE, soaked.after),
            ):
                until = time.monotonic() + seconds * share
                workers = [
                    Worker(number + len(soaked.before) * WORKERS, gateway.url, soaked, seed)
                    for number in range(WORKERS)
                ]
                await asyncio.gather(*(worker.run(until, least) for worker in workers))
                provider.asked.clear()
                tasks = soaked.before.get("tasks", FEW_TASKS) + MORE_TASKS
                held.update(await gateway.quiet(upstream_port, tasks))
        finally:
            status = gateway.stop()
        if status not in (0, -15):
            soaked.problems.append(f"the gateway ended with status {status}")
        soaked.lost = soaked.acknowledged - await _stored_markers(home)
    _judge(soaked, growth_ratio)
    return soaked


async def _stored_markers(home: Path) -> set[str]:
    """Markers of all that is in the memories of a home."""
    markers: set[str] = set()
    for file in (home / "spaces").glob("*.db"):
        store = await SQLiteStore.open(file, space="default")
        try:
            after = 0
            while page := await store.page(after=after, limit=500, session=None):
                for stored in page:
                    markers.update(_MARKER.findall(stored.segment.text))
                after = page[-1].sequence
        finally:
            await store.close()
    return markers


def _judge(soaked: Soaked, growth_ratio: float) -> None:
    """Add what is not as it has to be to the problems."""
    before, after, problems = soaked.before, soaked.after, soaked.problems
    if soaked.lost:
        problems.append(f"{len(soaked.lost)} acknowledged messages are not in the store")
    if not soaked.acknowledged:
        problems.append("nothing was acknowledged")
    for name, most in (
        ("running", 0.0),
        ("clients", 0.0),
        ("half_closed", 0.0),
        ("to_provider", float(WORKERS * 2)),
        ("tasks", before["tasks"] + MORE_TASKS),
        ("files", before["files"] + MORE_FILES),
        ("resident_mb", before["resident_mb"] * (1 + growth_ratio)),
    ):
        if after[name] > most:
            problems.append(f"{name}: {after[name]:.1f} at the end, at most {most:.1f} expected")


def main(arguments: Sequence[str]) -> int:
    """Run, print, and answer 1 where something leaked or was lost."""
    parser = argparse.ArgumentParser(prog="python -m tools.gateway_soak")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    soaked = asyncio.run(soak(options.seconds, seed=options.seed))
    print(json.dumps(soaked.to_dict(), indent=2))
    return 1 if soaked.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
