"""Run a node, and stop it. At the first SIGTERM or SIGINT it answers /readyz with 503 and continues
for `serve.drain_seconds`. Then it accepts nothing, finishes open requests, and closes. A second
signal ends the waiting."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from recollect.adapters.wiring import deployment_secret
from recollect.adapters.wiring.stores import require_server
from recollect.hosts.gateway.asgi import http_server
from recollect.hosts.service.app import MountMcp, Service
from recollect.hosts.service.memories import MOST_SECONDS
from recollect.system.config import Settings

if TYPE_CHECKING:
    import uvicorn

    from recollect.hosts.service.metrics import Metrics


def service_of(settings: Settings, *, mcp: MountMcp | None = None) -> Service:
    """The application of a node; SettingsError if its store is not a server."""
    url = require_server(settings.store.url)
    return Service(settings, url, secret=deployment_secret(), mcp=mcp)


def watch(service: Service, metrics: Metrics) -> None:
    """Let the metrics read a node's connections, queue and memories."""
    memories = service.memories
    metrics.watch(
        lambda: memories.pool,
        waiting=lambda: service.waiting,
        memories=lambda: memories.open_memories,
    )


def server_of(
    service: Service,
    settings: Settings,
    *,
    on_ready: Callable[[], None] = lambda: None,
    on_draining: Callable[[], None] = lambda: None,
) -> uvicorn.Server:
    """The HTTP server of a node, which drains before it ends."""
    server = http_server(service, feature="the service", extra="serve")
    server.config.timeout_graceful_shutdown = round(MOST_SECONDS)

    def end() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    def drain_first(sig: int, frame: FrameType | None) -> None:
        """Replaces uvicorn's handler, which would end the process by the signal, as if it had
        failed."""
        del sig, frame
        if service.draining:
            end()
            return
        service.drain()
        loop = asyncio.get_running_loop()
        loop.call_later(settings.serve.drain_seconds, end)
        loop.call_soon(on_draining)  # not in a signal handler, and ending does not wait for it

    start = server.startup

    async def tell_when_ready(sockets: list[socket.socket] | None = None) -> None:
        await start(sockets)
        if server.started:
            on_ready()

    server.startup = tell_when_ready  # type: ignore[method-assign]
    server.handle_exit = drain_first  # type: ignore[method-assign]
    return server
