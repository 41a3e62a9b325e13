"""The daemon's HTTP application on a unix socket, for hooks, OpenClaw's plugin and MCP clients.
Memories run in their own thread. Work that has started is finished even if its agent has ended. A
failed or late request gets an empty answer, and the log contains the reason."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import recollect
from recollect.core.boundary import Failure, attempted, guarded
from recollect.core.formats.json_text import decode
from recollect.errors import FormatError
from recollect.hosts.daemon.client import (
    AGENTS,
    HOOK_SECONDS,
    MCP_PATH,
    MOST_BYTES,
    installed_version,
)
from recollect.hosts.hooks.memory import HookMemory
from recollect.hosts.http import (
    BackgroundServer,
    ClientDisconnect,
    HTTPException,
    HttpServer,
    JsonAnswer,
    RawEndpoint,
    Receive,
    Scope,
    Send,
    application,
    read_body,
)
from recollect.hosts.inspector.mounted import LocalInspector
from recollect.hosts.memories import CLOSE_SECONDS, MemoryPool, MemoryThread, OpenMemory
from recollect.system.config import Settings
from recollect.system.loopback import listen_on

if TYPE_CHECKING:
    from recollect.hosts.daemon.mcp_stdio import LineClient
    from recollect.hosts.hooks.openclaw import OpenClawMemory
    from recollect.hosts.mcp import MemoryOrder

BODY_SECONDS: Final = 10.0
OPENCLAW_SECONDS: Final = 120.0
"""Time limit for one step of a compaction, or for storing a long conversation."""
LOG: Final = logging.getLogger(__name__)


class Daemon:
    """The daemon's application, and the memories that it keeps open."""

    def __init__(
        self, settings: Settings, *, leave: Callable[[], None], in_place: Callable[[], bool]
    ) -> None:
        """Create the application. `leave` hides the daemon from new clients. `in_place` returns
        True while clients find this daemon."""
        self._settings = settings
        self._leave = leave
        self._in_place = in_place
        self._ending = asyncio.Event()
        self._memory: HookMemory | None = None
        self._openclaw: OpenClawMemory | None = None
        self._clients: set[LineClient] = set()
        self._orders: MemoryPool[MemoryOrder, OpenMemory] | None = None
        """Memories that only MCP clients use, not hooks."""
        self._memories = MemoryThread()
        """The only thread that uses memories."""
        self._running: set[asyncio.Future[Any]] = set()
        self._began = self._used = time.monotonic()
        self._hooks = 0
        self._pages: BackgroundServer | None = None
        self._inspector = LocalInspector(settings)
        self.server: HttpServer = HttpServer(
            application(
                [
                    Route("/health", self._health),
                    Route("/stop", self._stop, methods=["POST"]),
                    Route("/ui", self._ui, methods=["POST"]),
                    Route("/hooks/{agent}", self._hook, methods=["POST"]),
                    Route("/openclaw/{call}", self._openclaw_call, methods=["POST"]),
                    Route(MCP_PATH, RawEndpoint(self._mcp), methods=["POST"]),
                ],
                lifespan=self._lifespan,
            ),
            headers={"x-recollect-version": installed_version()},
            loop="asyncio",
            on_stop=self._ending.set,
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        del app
        self._memories.start()
        self._memory = await self._memories.ask(self._opened())
        watching = asyncio.create_task(self._until_idle())
        yield
        watching.cancel()
        await self._close()

    async def _opened(self) -> HookMemory:
        return HookMemory(self._settings)

    async def _close(self) -> None:
        if self._running:
            await asyncio.wait(self._running, timeout=CLOSE_SECONDS)
        if self._pages is not None:
            await asyncio.to_thread(self._pages.__exit__, None, None, None)
        opened = (self._memory, self._openclaw, self._orders)
        await self._memories.stop(*(one.close() for one in opened if one is not None))

    async def _health(self, request: Request) -> Response:
        """Return the daemon's state, for `recollect daemon status`."""
        del request
        opened = [one for one in (self._memory, self._openclaw) if one is not None]
        return JsonAnswer(
            {
                "version": recollect.__version__,
                "pid": os.getpid(),
                "uptime_seconds": round(time.monotonic() - self._began, 3),
                "hooks": self._hooks,
                "spaces": list(dict.fromkeys(key for one in opened for key in one.spaces.keys)),
                "mcp_clients": len(self._clients),
            }
        )

    async def _stop(self, request: Request) -> Response:
        del request
        self._end("asked to")
        return JsonAnswer({"pid": os.getpid()})

    async def _ui(self, request: Request) -> Response:
        """Serve the inspector on a free port of this machine, and return a link."""
        del request
        self._used = time.monotonic()
        if self._pages is None:
            pages = BackgroundServer(
                HttpServer(self._inspector, stop_seconds=1, on_stop=self._inspector.end),
                listen_on("127.0.0.1", 0, fix="try again"),
            )
            self._pages = await asyncio.to_thread(pages.__enter__)
        return JsonAnswer({"link": self._inspector.link(self._pages.url)})

    def _end(self, why: str) -> None:
        """Hide the daemon from clients, finish open work, and stop."""
        LOG.info("stopping: %s", why)
        self._leave()
        self.server.should_exit = True

    async def _hook(self, request: Request) -> Response:
        agent = AGENTS.get(request.path_params["agent"])
        if agent is None:
            raise HTTPException(404)
        answer: Mapping[str, Any] = {}
        payload = await self._payload(request, agent)
        if payload is not None and self._memory is not None:
            what = f"{payload.get('hook_event_name')} of {agent}"
            answer = await self._answer(self._memory.answer(agent, payload), what, HOOK_SECONDS)
        # Agents may show a hook's answer to the user, even an empty object.
        return JsonAnswer(answer) if answer else Response(media_type="application/json")

    async def _openclaw_call(self, request: Request) -> Response:
        # Import here, so that other agents do not wait for the import.
        from recollect.hosts.hooks.openclaw import CALLS

        call = CALLS.get(request.path_params["call"])
        if call is None:
            raise HTTPException(404)
        payload = await self._payload(request, "openclaw")
        if payload is None:
            return JsonAnswer({})
        memory = await self._memories.ask(self._open_openclaw())
        answering = memory.answer(call, payload)
        return JsonAnswer(await self._answer(answering, f"{call} of openclaw", OPENCLAW_SECONDS))

    async def _open_openclaw(self) -> OpenClawMemory:
        from recollect.hosts.hooks.openclaw import OpenClawMemory

        if self._openclaw is None:  # no race: this thread runs all calls one after the other
            self._openclaw = OpenClawMemory(self._settings)
        return self._openclaw

    async def _mcp(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        lines = _body_lines(receive)
        order = await asyncio.to_thread(self._ordered, await anext(lines, b""))
        if order is None:
            raise HTTPException(409, "the client has other settings than the daemon")
        headers = [(b"content-type", b"application/x-ndjson")]
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

    def _ordered(self, raw: bytes) -> MemoryOrder | None:
        """Return the memory to serve; None if the client's settings or keys are different ones."""
        from recollect.adapters.wiring.memory import other_variables
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
            other_variables(self._settings, order.store, given)
            for given in (environment, os.environ)
        ]
        return order if settings == self._settings and beside[0] == beside[1] else None

    async def _serve(self, client: LineClient, order: MemoryOrder) -> None:
        from recollect.hosts.mcp.memory import order_pool, served_memory

        assert self._memory is not None
        if order.store is None and order.session is None:
            serving = served_memory(order, self._memory.spaces, order.space)
        else:  # hooks see the whole space, so a client of one session gets another engine
            self._orders = self._orders or order_pool(self._settings)
            serving = served_memory(order, self._orders, replace(order, session=None))
        async with serving as memory:
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

    async def _payload(self, request: Request, agent: str) -> dict[str, Any] | None:
        self._used = time.monotonic()
        self._hooks += 1
        payload: object = None
        with suppress(HTTPException, ClientDisconnect, FormatError):
            body = await read_body(request, most=MOST_BYTES, seconds=BODY_SECONDS)
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
        # Run the work as its own task, so that messages are stored even if the agent has ended.
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
                self._end("its socket is gone")
                return
            idle = time.monotonic() - self._used >= idle_seconds
            busy = self._running or any(client.under_way for client in self._clients)
            if idle and not busy:
                self._end("idle")
                return


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
