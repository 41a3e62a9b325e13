"""ASGI requests and replies: reads them within limits and answers them. Also makes the HTTP server.
This module knows nothing of providers or memory. Work for a client stops as soon as the client
disconnects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from recollect.core.formats.json_text import encode
from recollect.core.values.report import Report
from recollect.errors import MissingExtra
from recollect.hosts.gateway.access import TOKEN_HEADER, without_token
from recollect.hosts.gateway.activity import ExchangeRecord
from recollect.hosts.gateway.upstream import Headers

if TYPE_CHECKING:
    import uvicorn

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

ENDING_BYTES: Final = 65_536
_LAST_EVENTS: Final = (b"data: [DONE]", b"event: message_stop", b"event: response.completed")
CANCEL_SECONDS: Final = 0.2
"""Pause before a request whose client has disconnected is cancelled again."""


@dataclass(slots=True)
class Exchange:
    """One request while it is handled."""

    method: str
    path: str
    target: str
    headers: Headers = field(repr=False)
    token: str = field(repr=False)
    """The access token; empty if none was sent."""
    body: bytes = field(repr=False)
    record: ExchangeRecord
    began: float
    started: bool = False
    report: Report | None = field(default=None, repr=False)
    in_memory: bool = False
    ending: bytes = field(default=b"", repr=False)
    concluding: bool = False
    """True while the reply is being read. The record is complete after that."""

    def header(self, name: str) -> str:
        """Return the first value of a header, by its lower-case name; empty if it is missing."""
        return next((value for key, value in self.headers if key == name), "")

    @property
    def has_ended(self) -> bool:
        """True if the last event of a stream was received. Clients disconnect then without
        waiting."""
        return any(mark in self.ending for mark in _LAST_EVENTS)

    def note(self, **changes: Any) -> None:
        self.record = replace(self.record, **changes)


def exchange_of(scope: Message, number: int) -> Exchange:
    """Make an exchange for a new request. Its access token is only in `token`."""
    raw_path = bytes(scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
    raw_path, _ = without_token(raw_path)
    path, token = without_token(scope["path"])
    query = bytes(scope.get("query_string") or b"").decode("latin-1")
    headers = [(_text(name), _text(value)) for name, value in scope["headers"]]
    given = next((value for name, value in headers if name == TOKEN_HEADER), "")
    record = ExchangeRecord(
        number=number,
        at=time.time(),
        method=scope["method"],
        path=shown_path(path),
        client="other",
        kind="",
    )
    return Exchange(
        method=scope["method"],
        path=path,
        target=raw_path + (f"?{query}" if query else ""),
        headers=headers,
        token=token or given,
        body=b"",
        record=record,
        began=time.perf_counter(),
    )


_LONG_CHARS: Final = 20
_SEPARATORS: Final = frozenset("-._")


def shown_path(path: str) -> str:
    """Return a path for records and logs. A part that may be a key is masked."""
    return "/".join("…" if _may_be_key(part) else part for part in path.split("/"))


def _may_be_key(part: str) -> bool:
    if len(part) <= _LONG_CHARS or not any(map(str.isdigit, part)):
        return False
    return any(map(str.isupper, part)) or _SEPARATORS.isdisjoint(part)


class NoBody(Enum):
    """Why a request's body was not read. The value is shown to people."""

    GONE = "the client disconnected"
    SLOW = "the request did not arrive in time"
    TOO_LARGE = "the request is too large"


async def unless_gone(receive: Receive, work: Awaitable[None]) -> None:
    """Run `work`, and stop it as soon as the client disconnects."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        while not task.done():
            # Cancel repeatedly: Python 3.11's wait_for drops a cancellation that arrives with its
            # result.
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_SECONDS)
        with suppress(asyncio.CancelledError):
            await task
    finally:
        task.cancel()
        gone.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(receive: Receive, most: int) -> bytes | NoBody:
    """Return the whole body, or the reason why there is none."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return NoBody.GONE
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > most:
            return NoBody.TOO_LARGE
        if not message.get("more_body"):
            return b"".join(chunks)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


async def send_json(send: Send, status: int, fields: Any) -> None:
    body = encode(fields)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def http_server(
    app: Callable[[Message, Receive, Send], Awaitable[None]],
    *,
    feature: str,
    extra: str,
    loop: Literal["auto", "asyncio"] = "auto",
) -> uvicorn.Server:
    """Make the HTTP server of an application. It adds no headers and logs nothing."""
    try:
        import httptools  # noqa: F401 - what uvicorn parses with
        import uvicorn

        from recollect.hosts.gateway.heads import BoundedHttp
    except ImportError:
        raise MissingExtra(feature=feature, extra=extra) from None
    return uvicorn.Server(
        uvicorn.Config(
            app,
            access_log=False,
            date_header=False,
            http=BoundedHttp,  # this parser refuses targets that are not paths
            interface="asgi3",
            lifespan="on",
            log_config=None,
            log_level="critical",  # the gateway reports problems in its records and log
            loop=loop,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=10,
            timeout_keep_alive=120,
            ws="none",
        )
    )
