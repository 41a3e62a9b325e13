"""The daemon's HTTP application on a unix socket, for hooks and OpenClaw's plugin.
Memories run in their own thread. Work that has started is finished even if its agent has ended. A
failed or late request gets an empty answer, and the log contains the reason."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

import recollect
from recollect.core.boundary import Failure, attempted
from recollect.core.formats.json_text import decode
from recollect.errors import FormatError
from recollect.hosts.daemon.client import (
    AGENTS,
    HOOK_SECONDS,
    MOST_BYTES,
    version_on_disk,
)
from recollect.hosts.hooks.memory import HookMemory
from recollect.hosts.hooks.openclaw import CALLS, OpenClawMemory
from recollect.hosts.http import BackgroundServer, HttpServer, JsonAnswer, application, read_body
from recollect.hosts.inspector.mounted import LocalInspector
from recollect.hosts.memories import MemoryThread
from recollect.system.config import Settings
from recollect.system.loopback import listen_on

BODY_SECONDS: Final = 10.0  # not measured; the client is on this machine
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
        self._memory = HookMemory(settings)
        self._openclaw = OpenClawMemory(settings)
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
                ],
                lifespan=self._lifespan,
            ),
            headers={"x-recollect-version": version_on_disk()},
            loop="asyncio",
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        del app
        self._memories.start()
        watching = asyncio.create_task(self._until_idle())
        yield
        watching.cancel()
        await self._close()

    async def _close(self) -> None:
        if self._running:
            await asyncio.wait(self._running, timeout=self._settings.store.close_seconds)
        if self._pages is not None:
            await asyncio.to_thread(self._pages.__exit__, None, None, None)
        await self._memories.stop(self._memory.close(), self._openclaw.close())

    async def _health(self, request: Request) -> Response:
        """Return the daemon's state, for `recollect daemon status`."""
        del request
        spaces = dict.fromkeys((*self._memory.spaces.keys, *self._openclaw.spaces.keys))
        return JsonAnswer(
            {
                "version": recollect.__version__,
                "pid": os.getpid(),
                "uptime_seconds": round(time.monotonic() - self._began, 3),
                "hooks": self._hooks,
                "spaces": list(spaces),
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

    def _end(self, reason: str) -> None:
        """Hide the daemon from clients, finish open work, and stop."""
        LOG.info("stopping: %s", reason)
        self._leave()
        self.server.should_exit = True

    async def _hook(self, request: Request) -> Response:
        agent = AGENTS.get(request.path_params["agent"])
        if agent is None:
            raise HTTPException(404)
        answer: Mapping[str, Any] = {}
        payload = await self._payload(request, agent)
        if payload is not None:
            description = f"{payload.get('hook_event_name')} of {agent}"
            answer = await self._answer(
                self._memory.answer(agent, payload), description, HOOK_SECONDS
            )
        # Agents may show a hook's answer to the user, even an empty object.
        return JsonAnswer(answer) if answer else Response(media_type="application/json")

    async def _openclaw_call(self, request: Request) -> Response:
        call = CALLS.get(request.path_params["call"])
        if call is None:
            raise HTTPException(404)
        payload = await self._payload(request, "openclaw")
        if payload is None:
            return JsonAnswer({})
        answering = self._openclaw.answer(call, payload)
        return JsonAnswer(await self._answer(answering, f"{call} of openclaw", OPENCLAW_SECONDS))

    async def _payload(self, request: Request, agent: str) -> dict[str, Any] | None:
        self._used = time.monotonic()
        self._hooks += 1
        payload: object = None
        with suppress(HTTPException, ClientDisconnect, FormatError):
            body = await read_body(request, max_bytes=MOST_BYTES, seconds=BODY_SECONDS)
            payload = decode(body)
        if isinstance(payload, dict):
            return payload
        LOG.warning(
            "cannot read a hook event of %s: it is not a JSON object, or it is too large", agent
        )
        return None

    async def _answer(
        self, answering: Coroutine[Any, Any, dict[str, Any]], description: str, seconds: float
    ) -> Mapping[str, Any]:
        # Run the work as its own task, so that messages are stored even if the agent has ended.
        work = self._memories.ask(attempted(answering))
        self._running.add(work)
        work.add_done_callback(self._forget_work)
        finished_work, _ = await asyncio.wait({work}, timeout=seconds)
        if not finished_work:
            LOG.warning(
                "%s is still running after %g s: answered without it, finishing in the background",
                description,
                seconds,
            )
            return {}
        answer = work.result()
        if isinstance(answer, Failure):
            LOG.warning("%s failed: %s", description, answer.said)
            return {}
        return answer

    def _forget_work(self, work: asyncio.Future[Any]) -> None:
        self._running.discard(work)
        self._used = time.monotonic()

    async def _until_idle(self) -> None:
        idle_seconds = self._settings.daemon.idle_seconds
        while True:
            await asyncio.sleep(min(5.0, idle_seconds / 4))
            if not self._in_place():
                self._end("its socket is gone")
                return
            if time.monotonic() - self._used >= idle_seconds and not self._running:
                self._end("idle")
                return
