"""The servers that the gateway is measured between: a scripted provider, and two bare proxies.

Each runs as a process of its own: `python -m recollect_bench.gateway.servers WHICH PORT UPSTREAM`.
The provider speaks Anthropic's Messages, always streamed, and looks at nothing but a word in the
body that asks for a slow stream. The bare proxies do the least that a proxy can do: read the body,
send it on, hand the reply back as it comes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

SLOW: Final = b"bench-slow"
"""A body that holds this is answered slowly: a chunk every `CHUNK_SECONDS`."""
CHUNKS: Final = 40
CHUNK_SECONDS: Final = 0.05
SENT_AT: Final = "sent-at "
"""Before the provider's own clock in each chunk: one clock serves all processes of a machine."""
BACKLOG: Final = 2_048
_DROPPED: Final = frozenset({"host", "content-length", "connection", "transfer-encoding"})

Send = Callable[[Any], Awaitable[None]]


async def provider(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Send
) -> None:
    """An ASGI application that answers every request with a stream."""
    if scope["type"] != "http":
        return
    chunks: list[bytes] = []
    while True:
        message = await receive()
        chunks.append(message.get("body", b""))
        if not message.get("more_body"):
            break
    body = b"".join(chunks)
    head = [(b"content-type", b"text/event-stream; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    if SLOW in body:
        await _slowly(send)
    else:
        await _chunk(send, _OPENING + _delta("Done.") + _CLOSING)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _slowly(send: Send) -> None:
    """Chunks at a steady pace, each with the time it was sent at."""
    await _chunk(send, _OPENING)
    began = time.monotonic()
    for number in range(1, CHUNKS + 1):
        await asyncio.sleep(max(0.0, began + number * CHUNK_SECONDS - time.monotonic()))
        await _chunk(send, _delta(f"{SENT_AT}{time.monotonic():.6f} "))
    await _chunk(send, _CLOSING)


async def _chunk(send: Send, content: bytes) -> None:
    await send({"type": "http.response.body", "body": content, "more_body": True})


def _event(name: str, fields: str) -> bytes:
    return f'event: {name}\ndata: {{"type":"{name}",{fields}}}\n\n'.encode()


def _delta(text: str) -> bytes:
    delta = f'"delta":{{"type":"text_delta","text":"{text}"}}'
    return _event("content_block_delta", f'"index":0,{delta}')


_OPENING: Final = _event(
    "message_start",
    '"message":{"id":"msg_bench","type":"message","role":"assistant","model":"bench","content":[],'
    '"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":1}}',
) + _event("content_block_start", '"index":0,"content_block":{"type":"text","text":""}')
_CLOSING: Final = (
    _event("content_block_stop", '"index":0')
    + _event(
        "message_delta",
        '"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":9}',
    )
    + b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)


def bare_httpx2(upstream: str) -> Starlette:
    """A proxy of Starlette and httpx2."""
    client = httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_connections=None))

    async def relay(request: Request) -> StreamingResponse:
        content = await request.body()
        outgoing = client.build_request(
            "POST",
            upstream + request.url.path,
            headers=_handed_on(request.headers.items()),
            content=content,
        )
        reply = await client.send(outgoing, stream=True)
        return StreamingResponse(
            reply.aiter_raw(),
            status_code=reply.status_code,
            headers=dict(_handed_on(reply.headers.items())),
            background=BackgroundTask(reply.aclose),
        )

    return Starlette(routes=[Route("/{path:path}", relay, methods=["POST"])])


def bare_aiohttp(upstream: str) -> Starlette:
    """A proxy of Starlette and aiohttp."""
    opened: list[aiohttp.ClientSession] = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            auto_decompress=False, connector=connector, timeout=timeout
        ) as session:
            opened.append(session)
            yield

    async def relay(request: Request) -> StreamingResponse:
        content = await request.body()
        reply = await opened[0].post(
            upstream + request.url.path,
            data=content,
            headers=dict(_handed_on(request.headers.items())),
        )
        return StreamingResponse(
            reply.content.iter_any(),
            status_code=reply.status,
            headers=dict(_handed_on(reply.headers.items())),
            background=BackgroundTask(_released, reply),
        )

    return Starlette(routes=[Route("/{path:path}", relay, methods=["POST"])], lifespan=lifespan)


async def _released(reply: aiohttp.ClientResponse) -> None:
    reply.release()


def _handed_on(headers: Any) -> Sequence[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in _DROPPED]


def main() -> None:
    """Serve one of them until the process is ended."""
    which, port, *upstream = sys.argv[1:]
    app: Any = provider
    if which != "provider":
        app = {"httpx2": bare_httpx2, "aiohttp": bare_aiohttp}[which](upstream[0])
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(port),
        access_log=False,
        backlog=BACKLOG,
        interface="asgi3",
        lifespan="off" if which == "provider" else "on",
        log_level="warning",
        timeout_keep_alive=120,
    )


if __name__ == "__main__":
    main()
