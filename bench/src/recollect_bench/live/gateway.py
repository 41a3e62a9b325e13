"""Conversations through the gateway: real HTTP, and behind it a provider that refuses what real
ones refuse.

Owns the provider, which is strict: a request over its window or against its wire's rules is an
error in the provider's own words, and is counted. What it was sent is what counts as the request.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Self

import aiohttp
import uvicorn

from recollect.core.engine import Engine
from recollect.errors import RecollectError
from recollect.hosts.gateway.running import BackgroundGateway
from recollect.hosts.http import BackgroundServer
from recollect.system.config import Settings
from recollect.testing.provider_rules import violations
from recollect_bench.live.feed import CHARS_A_TOKEN, LiveClock, Sent, Tally, feed
from recollect_bench.live.sessions import LiveSession, WireMessage

_NOTED: Final[WireMessage] = {"role": "assistant", "content": "Noted."}


class JsonProvider(BackgroundServer):
    """A provider on this machine that answers each request with one JSON object."""

    def __init__(self) -> None:
        config = uvicorn.Config(
            self._serve, interface="asgi3", lifespan="off", log_level="error", ws="none"
        )
        super().__init__(uvicorn.Server(config), socket.create_server(("127.0.0.1", 0)))

    async def _serve(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        assert scope["type"] == "http"
        content = b""
        while True:
            message = await receive()
            content += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, fields = await self._answer(content)
        body = json.dumps(fields).encode()
        head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, content: bytes) -> tuple[int, dict[str, Any]]:
        """The status and the object for a request's body."""
        raise NotImplementedError


class StrictProvider(JsonProvider):
    """Chat Completions on this machine; each request waits until it is told its reply."""

    def __init__(self, window_tokens: int) -> None:
        self._window = window_tokens
        self.overflows = 0
        """Requests that were over the window."""
        self.broken: list[str] = []
        """Rules that requests broke."""
        self.requests: asyncio.Queue[tuple[dict[str, Any], Callable[[WireMessage], None]]]
        super().__init__()

    def __enter__(self) -> Self:
        self.requests = asyncio.Queue()
        self._reader = asyncio.get_running_loop()
        return super().__enter__()

    async def _answer(self, content: bytes) -> tuple[int, dict[str, Any]]:
        tokens = len(content) // CHARS_A_TOKEN
        body = json.loads(content)
        if tokens > self._window:
            self.overflows += 1
            return 400, _error(
                f"This model's maximum context length is {self._window} tokens. However, your "
                f"messages resulted in {tokens} tokens. Please reduce the length of the messages.",
                "context_length_exceeded",
            )
        if found := violations("openai-chat", body):
            self.broken.append(str(found[0]))
            return 400, _error(str(found[0]), "invalid_request_error")
        told: asyncio.Future[WireMessage] = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()

        def tell(reply: WireMessage) -> None:
            loop.call_soon_threadsafe(told.set_result, reply)

        self._reader.call_soon_threadsafe(self.requests.put_nowait, (body, tell))
        reply = await told
        usage = {"prompt_tokens": tokens, "completion_tokens": 10, "total_tokens": tokens + 10}
        choice = {"index": 0, "message": dict(reply), "finish_reason": "stop"}
        return 200, {"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}


def _error(message: str, code: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": code}}


class ThroughGateway:
    """The product as an agent reaches it by its base URL alone."""

    summary_cost = 0.0

    def __init__(
        self,
        gateway: BackgroundGateway,
        provider: StrictProvider,
        session: LiveSession,
        clock: LiveClock,
        http: aiohttp.ClientSession,
    ) -> None:
        self.clock = clock
        self.errors: list[str] = []
        """What reached the client in place of an answer."""
        self._url = f"{gateway.url}/v1/chat/completions"
        self._gateway = gateway
        self._provider = provider
        self._session = session
        self._http = http
        self._open: tuple[asyncio.Task[None], Callable[[WireMessage], None]] | None = None

    async def shape(self, history: Sequence[WireMessage]) -> Sent:
        """Send it as the client would; what the provider gets is what was sent."""
        await self._replied(_NOTED)
        system = (
            [{"role": "system", "content": self._session.system}] if self._session.system else []
        )
        request: dict[str, Any] = {"model": "bench", "messages": [*system, *history]}
        if self._session.tools:
            request["tools"] = list(self._session.tools)
        begun = time.perf_counter()
        client = asyncio.create_task(self._post(request))
        arrives = asyncio.create_task(self._provider.requests.get())
        await asyncio.wait({client, arrives}, return_when=asyncio.FIRST_COMPLETED)
        if not arrives.done():
            arrives.cancel()
            return Sent(messages=[], lost_by="an error reached the client")
        body, tell = arrives.result()
        self._open = (client, tell)
        return Sent(
            messages=[one for one in body["messages"] if one["role"] != "system"],
            lost_by="through the gateway",
            seconds=time.perf_counter() - begun,
        )

    async def ask(self, history: list[WireMessage]) -> Sent:
        """What is asked is answered at once."""
        return await self.shape(history)

    async def observe(self, reply: WireMessage) -> None:
        """The provider replies."""
        await self._replied(reply)

    async def between(self) -> None:
        """What runs beside the turns goes on while a model answers."""
        gateway = self._gateway.gateway
        for memory in gateway.shaper.spaces.open_memories():
            await gateway.memories.ask(memory.engine.settle(60.0, jobs=True))

    async def back(self) -> None:
        """The branch ends with a reply; the gateway finds out by itself that it was one."""
        await self._replied(_NOTED)

    async def _replied(self, reply: WireMessage) -> None:
        if self._open is not None:
            client, tell = self._open
            self._open = None
            tell(reply)
            await client

    async def _post(self, request: dict[str, Any]) -> None:
        headers = {"x-recollect-session": self._session.name}
        async with self._http.post(self._url, json=request, headers=headers) as response:
            text = await response.text()
            if response.status != 200:
                self.errors.append(f"{response.status}: {text[:200]}")


async def through_gateway(
    session: LiveSession,
    settings: Settings,
    clock: LiveClock,
    opened: Callable[[str], Engine],
) -> Tally:
    """Feed a conversation through a gateway of its own; RecollectError where a client saw an error
    or the provider a request against its rules."""
    assert settings.window_tokens is not None
    with StrictProvider(settings.window_tokens) as provider:
        upstream = replace(settings.gateway.upstream, openai=f"{provider.url}/v1")
        chosen = replace(settings, gateway=replace(settings.gateway, port=0, upstream=upstream))
        with BackgroundGateway(chosen, open_engine=opened) as gateway:
            async with aiohttp.ClientSession() as http:
                client = ThroughGateway(gateway, provider, session, clock, http)
                tally = await feed(session, client)
                tally.overflows = provider.overflows
    if client.errors or provider.broken:
        raise RecollectError(
            f"{len(client.errors)} errors reached the client, {len(provider.broken)} requests "
            f"broke a rule: {(client.errors or provider.broken)[0]}"
        )
    return tally
