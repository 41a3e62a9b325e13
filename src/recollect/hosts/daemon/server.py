"""The daemon as an ASGI application on a unix socket, for hooks, OpenClaw's plugin and MCP clients.
Memories run in their own thread. Work that has started is finished even if its agent has ended. A
failed or late request gets an empty answer, and the log gives the reason."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import recollect
from recollect.core.boundary import Failure, attempted, guarded
from recollect.core.formats.json_text import decode, encode
from recollect.errors import FormatError
from recollect.hosts.daemon.client import HOOK_SECONDS, MCP_PATH, MOST_BYTES, installed_version
from recollect.hosts.gateway.asgi import Message, Receive, Send, read_body
from recollect.hosts.gateway.spaces import CLOSE_SECONDS, MemoryThread
from recollect.hosts.hooks.memory import HookMemory
from recollect.hosts.hooks.transcript_file import AgentName
from recollect.system.config import Settings

if TYPE_CHECKING:
    from recollect.hosts.daemon.mcp_stdio import LineClient
    from recollect.hosts.hooks.openclaw import OpenClawMemory
    from recollect.hosts.mcp import MemoryOrder
    from recollect.hosts.mcp.memory import ServedMemory

BODY_SECONDS: Final = 10.0
HOOKS: Final[Mapping[str, AgentName]] = {
    "/hooks/claude-code": "claude-code",
    "/hooks/codex": "codex",
}
OPENCLAW: Final = "/openclaw/"
OPENCLAW_SECONDS: Final = 120.0
"""Time limit of one step of a compaction, or of storing a long conversation."""
_STOP_LOOK_SECONDS: Final = 0.2
_VERSION: Final = (b"x-recollect-version", installed_version().encode())
LOG: Final = logging.getLogger(__name__)


class Daemon:
    """The ASGI application."""

    def __init__(
        self,
        settings: Settings,
        *,
        leave: Callable[[], None],
        stop: Callable[[], None],
        in_place: Callable[[], bool],
        stopping: Callable[[], bool],
    ) -> None:
        """`leave` hides the daemon from new clients, `stop` ends its server. `in_place` returns
        true while clients find this daemon, `stopping` when its server is about to end."""
        self._settings = settings
        self._leave = leave
        self._stop = stop
        self._in_place = in_place
        self._stopping = stopping
        self._ending = asyncio.Event()
        self._memory: HookMemory | None = None
        self._openclaw: OpenClawMemory | None = None
        self._clients: set[LineClient] = set()
        self._served: dict[MemoryOrder, ServedMemory] = {}
        self._memories = MemoryThread()
        """The only thread that uses memories."""
        self._running: set[asyncio.Future[Any]] = set()
        self._began = self._used = time.monotonic()
        self._hooks = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            answered = await self._http(scope, receive, send)
            if answered is not None:
                status, answer = answered
                # agents may show a hook's answer to the user, even an empty object
                says_nothing = status == 200 and not answer and scope["path"] in HOOKS
                await _send(send, status, b"" if says_nothing else encode(answer))

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self._memories.start()
        self._memory = await self._memories.ask(self._opened())
        beside = [
            asyncio.create_task(self._until_idle()),
            asyncio.create_task(self._until_stopped()),
        ]
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for task in beside:
            task.cancel()
        await self._close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _opened(self) -> HookMemory:
        return HookMemory(self._settings)

    async def _close(self) -> None:
        if self._running:
            await asyncio.wait(self._running, timeout=CLOSE_SECONDS)
        if self._memory is not None and await self._memories.answers():
            closing = {self._memories.ask(attempted(self._memory.close()))}
            if self._openclaw is not None:
                closing.add(self._memories.ask(attempted(self._openclaw.close())))
            await asyncio.wait(closing, timeout=3 * CLOSE_SECONDS)
            await self._memories.stop()
        else:
            LOG.warning("the memories did not close in time: their last writes are in the spool")

    async def _http(
        self, scope: Message, receive: Receive, send: Send
    ) -> tuple[int, Mapping[str, Any]] | None:
        route = (scope["method"], scope["path"])
        if route == ("GET", "/health"):
            return 200, self.health()
        if route == ("POST", "/stop"):
            self.end("asked to")
            return 200, {"pid": os.getpid()}
        if route == ("POST", MCP_PATH):
            return await self._mcp(receive, send)
        agent = HOOKS.get(scope["path"])
        if agent is None and not scope["path"].startswith(OPENCLAW):
            return 404, {"error": "there is nothing here"}
        if scope["method"] != "POST":
            return 405, {"error": "hooks are posted"}
        if agent is None:
            return await self._openclaw_call(scope["path"], receive)
        return 200, await self._hook(agent, receive)

    def health(self) -> dict[str, Any]:
        """Return the daemon's state, for `recollect daemon status`."""
        opened = [one for one in (self._memory, self._openclaw) if one is not None]
        return {
            "version": recollect.__version__,
            "pid": os.getpid(),
            "uptime_seconds": round(time.monotonic() - self._began, 3),
            "hooks": self._hooks,
            "spaces": list(dict.fromkeys(name for one in opened for name in one.spaces)),
            "mcp_clients": len(self._clients),
        }

    def end(self, why: str) -> None:
        """Hide from clients, finish open work, and stop."""
        LOG.info("stopping: %s", why)
        self._leave()
        self._stop()

    async def _hook(self, agent: AgentName, receive: Receive) -> Mapping[str, Any]:
        payload = await self._payload(receive, agent)
        if payload is None or self._memory is None:
            return {}
        what = f"{payload.get('hook_event_name')} of {agent}"
        return await self._answer(self._memory.answer(agent, payload), what, HOOK_SECONDS)

    async def _openclaw_call(self, path: str, receive: Receive) -> tuple[int, Mapping[str, Any]]:
        from recollect.hosts.hooks.openclaw import (
            CALLS,  # imported here, so that other agents do not wait for it
        )

        call = CALLS.get(path)
        if call is None:
            return 404, {"error": "there is nothing here"}
        payload = await self._payload(receive, "openclaw")
        if payload is None:
            return 200, {}
        memory = await self._memories.ask(self._open_openclaw())
        answering = memory.answer(call, payload)
        return 200, await self._answer(answering, f"{call} of openclaw", OPENCLAW_SECONDS)

    async def _open_openclaw(self) -> OpenClawMemory:
        from recollect.hosts.hooks.openclaw import OpenClawMemory

        if self._openclaw is None:  # no race: all calls run here one after the other
            self._openclaw = OpenClawMemory(self._settings)
        return self._openclaw

    async def _mcp(self, receive: Receive, send: Send) -> tuple[int, Mapping[str, Any]] | None:
        lines = _body_lines(receive)
        order = await asyncio.to_thread(self._ordered, await anext(lines, b""))
        if order is None:
            return 409, {"error": "the process serves itself: its settings are others"}
        headers = [(b"content-type", b"application/x-ndjson"), _VERSION]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        from recollect.hosts.daemon.mcp_stdio import LineClient

        own_loop = asyncio.get_running_loop()

        async def sent(line: str) -> None:
            body = line.encode("utf-8", "replace")
            await send({"type": "http.response.body", "body": body, "more_body": True})

        async def write(line: str) -> None:
            writing = asyncio.run_coroutine_threadsafe(sent(line), own_loop)
            await asyncio.wrap_future(writing)

        client = LineClient(write)
        self._clients.add(client)
        serving = self._memories.ask(attempted(self._serve(client, order)))
        feeding = asyncio.ensure_future(self._feed(client, lines))
        leaving = asyncio.ensure_future(self._let_go(client))
        tasks: set[asyncio.Future[Any]] = {serving, feeding, leaving}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if serving.done() and isinstance(failure := serving.result(), Failure):
                LOG.warning("the connection of an MCP client failed: %s", failure.said)
        finally:
            self._clients.discard(client)
            self._used = time.monotonic()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return None

    def _ordered(self, raw: bytes) -> MemoryOrder | None:
        """Return the memory to serve; None if the client has other settings or keys than the
        daemon."""
        from recollect.adapters.wiring.memory import variables_beside
        from recollect.hosts.mcp import MemoryOrder
        from recollect.system.config import load_settings

        asked = guarded(lambda: decode(raw))
        if not isinstance(asked, dict) or not isinstance(asked.get("environment"), dict):
            return None
        environment = {str(name): str(value) for name, value in asked["environment"].items()}
        settings = guarded(lambda: load_settings(environment=environment, folder=None).settings)
        order = MemoryOrder(
            space=str(asked.get("space")), store=asked.get("store"), session=asked.get("session")
        )
        beside = [
            variables_beside(self._settings, order.store, given)
            for given in (environment, os.environ)
        ]
        return order if settings == self._settings and beside[0] == beside[1] else None

    async def _serve(self, client: LineClient, order: MemoryOrder) -> None:
        from recollect.hosts.mcp.memory import served_memory

        assert self._memory is not None
        spaces = self._memory.open_spaces
        async with served_memory(
            order, settings=self._settings, spaces=spaces, shared=self._served
        ) as memory:
            await client.serve(memory)

    async def _feed(self, client: LineClient, lines: AsyncIterator[bytes]) -> None:
        async for line in lines:
            self._used = time.monotonic()
            await self._memories.ask(client.arrived.put(line))
        await self._memories.ask(client.arrived.put(None))
        await asyncio.sleep(CLOSE_SECONDS)  # the client's task ends when it takes the None

    async def _let_go(self, client: LineClient) -> None:
        await self._ending.wait()
        until = time.monotonic() + CLOSE_SECONDS / 2
        while client.under_way and time.monotonic() < until:  # noqa: ASYNC110 - in another thread
            await asyncio.sleep(0.05)

    async def _until_stopped(self) -> None:
        while not self._stopping():  # noqa: ASYNC110 - it has no event to wait for
            await asyncio.sleep(_STOP_LOOK_SECONDS)
        self._ending.set()

    async def _payload(self, receive: Receive, agent: str) -> dict[str, Any] | None:
        self._used = time.monotonic()
        self._hooks += 1
        body: object = None
        with suppress(TimeoutError):
            async with asyncio.timeout(BODY_SECONDS):
                body = await read_body(receive, MOST_BYTES)
        payload: object = None
        if isinstance(body, bytes):
            with suppress(FormatError):
                payload = decode(body)
        if isinstance(payload, dict):
            return payload
        LOG.warning(
            "cannot read a hook event of %s: it is not a JSON object, or it is too large", agent
        )
        return None

    async def _answer(
        self, answering: Coroutine[Any, Any, dict[str, Any]], what: str, seconds: float
    ) -> Mapping[str, Any]:
        # The work runs as its own task, so that messages are stored even if the agent has ended.
        work = self._memories.ask(attempted(answering))
        self._running.add(work)
        work.add_done_callback(self._finished)
        done, _ = await asyncio.wait({work}, timeout=seconds)
        if not done:
            LOG.warning(
                "%s is still running after %g s: answered without it, finishing in the background",
                what,
                seconds,
            )
            return {}
        answer = work.result()
        if isinstance(answer, Failure):
            LOG.warning("%s failed: %s", what, answer.said)
            return {}
        return answer

    def _finished(self, work: asyncio.Future[Any]) -> None:
        self._running.discard(work)
        self._used = time.monotonic()

    async def _until_idle(self) -> None:
        idle_seconds = self._settings.daemon.idle_seconds
        while True:
            await asyncio.sleep(min(5.0, idle_seconds / 4))
            if not self._in_place():
                self.end("its socket is gone")
                return
            idle = time.monotonic() - self._used >= idle_seconds
            busy = self._running or any(client.under_way for client in self._clients)
            if idle and not busy:
                self.end("idle")
                return


async def _send(send: Send, status: int, body: bytes) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        _VERSION,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _body_lines(receive: Receive) -> AsyncIterator[bytes]:
    left = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        *lines, left = (left + message.get("body", b"")).split(b"\n")
        for line in lines:
            yield line
        if not message.get("more_body") or len(left) > MOST_BYTES + 1_000_000:
            return
