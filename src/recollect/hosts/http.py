"""Parts that all HTTP servers of Recollect share: limits for bodies and heads, work that ends with
its client, checks of host, origin and token, JSON answers, and the server itself. Servers declare
their routes with Starlette; only relayed replies of providers use plain ASGI."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal, ParamSpec, Self, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, ExceptionHandler, Lifespan, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from recollect.core.boundary import Failure, attempted, guarded
from recollect.core.formats.json_text import encode
from recollect.errors import RecollectError
from recollect.system.loopback import address_of, host_of, is_own_host, is_own_page, peer_user

CANCEL_SECONDS: Final = 0.2
"""Pause before a request whose client has disconnected is cancelled again."""
FOREIGN_HOST: Final = "the header Host must name this machine, such as localhost"
HEAD_BYTES: Final = 65_536
"""Limit of a request's line and headers. The last chunk may exceed the limit by the same amount."""
HEAD_SECONDS: Final = 30.0
"""Time limit for receiving a request's head, from its first byte or the connection."""
LARGE_BYTES: Final = 65_536  # not measured; smaller bodies cost less than a thread
START_SECONDS: Final = 30.0  # not measured; bounds how long a start may hang
SWITCH_SECONDS: Final = 0.001
"""Python's interval for switching threads: short, so that work in threads delays no answer."""
STOP_SECONDS: Final = 10
"""Time that a stopping server waits for open requests."""
LOG: Final = logging.getLogger(__name__)
GivenT = ParamSpec("GivenT")
ResultT = TypeVar("ResultT")


class JsonAnswer(Response):
    """A response with a JSON body."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode(content)


def application(
    routes: Sequence[BaseRoute],
    *,
    lifespan: Lifespan[Starlette] | None = None,
    middleware: Sequence[Middleware] = (),
    on_problem: ExceptionHandler | None = None,
) -> Starlette:
    """Make an application from these routes. `on_problem` answers Starlette's HTTP errors, by
    default with a JSON object."""
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=middleware,
        exception_handlers={HTTPException: on_problem or _answer_error},
    )
    app.router.redirect_slashes = False
    return app


async def _answer_error(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)
    return JsonAnswer({"error": error.detail}, error.status_code, error.headers)


async def read_body(
    request: Request, *, max_bytes: int, seconds: float, count: Callable[[int], None] | None = None
) -> bytes:
    """Return the whole body. Call `count` with the size of each chunk. Raise ClientDisconnect, or
    HTTPException if the body is too large (413) or late (408)."""
    too_large = HTTPException(413, f"a request must have at most {max_bytes:,} bytes")
    announced_size = request.headers.get("content-length", "")
    is_number = announced_size.isascii() and announced_size.isdigit()
    if is_number and int(announced_size[:20]) > max_bytes:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                chunks.append(chunk)
                size += len(chunk)
                if count is not None:
                    count(len(chunk))
                if size > max_bytes:
                    raise too_large
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {seconds:g} s") from None
    return b"".join(chunks)


async def in_thread_if_large(
    size_bytes: int, work: Callable[GivenT, ResultT], *args: GivenT.args, **kwargs: GivenT.kwargs
) -> ResultT:
    """Run `work`. If it reads many bytes, use a thread, so that it delays no other request."""
    if size_bytes <= LARGE_BYTES:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


async def run_for_client(receive: Receive, work: Awaitable[None]) -> None:
    """Run `work`, and cancel it as soon as the client disconnects."""
    task = asyncio.ensure_future(work)
    disconnect_task = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({task, disconnect_task}, return_when=asyncio.FIRST_COMPLETED)
        while not task.done():
            # Cancel repeatedly: Python 3.11's wait_for may ignore a cancellation.
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_SECONDS)
        with suppress(asyncio.CancelledError):
            await task
    finally:
        task.cancel()
        disconnect_task.cancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def is_token(presented_token: str, token: str) -> bool:
    """Compare the token that a client sent with the right one, in constant time."""
    return hmac.compare_digest(presented_token.encode("utf-8", "surrogateescape"), token.encode())


def is_own_user(scope: Scope) -> bool:
    """Return whether the client can be a program of this process's user. A process of root (such as
    the relay of WSL) can read this user's files in any case."""
    client, server = scope.get("client"), scope.get("server")
    if client is None or server is None:
        return True
    user = peer_user((str(client[0]), int(client[1])), (str(server[0]), int(server[1])))
    return user is None or user in (0, os.geteuid())


class OwnPagesOnly:
    """Middleware against web pages, because a page in a browser can reach every local port. Refuses
    requests for another host or from another origin and, if `token` is set, requests without it as
    a bearer. With `local`, the header Host must name this machine."""

    def __init__(self, app: ASGIApp, *, local: bool, token: str | None = None) -> None:
        self._app = app
        self._local = local
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(Headers(scope=scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if self._local and not is_own_host(host):
            return PlainTextResponse(FOREIGN_HOST, 421)
        served_as = None if self._local else host_of(f"//{host}")
        if not is_own_page(headers.get("origin", ""), served_as=served_as):
            return PlainTextResponse("requests from web pages of other origins are refused", 403)
        scheme, _, presented_token = headers.get("authorization", "").partition(" ")
        sent_bytes = presented_token.strip().encode("latin-1")  # the token as the client sent it
        token = sent_bytes.decode("utf-8", "surrogateescape")
        is_bearer = scheme.lower() == "bearer"
        if self._token is None or (is_bearer and is_token(token, self._token)):
            return None
        challenge = {"www-authenticate": 'Bearer realm="recollect"'}
        return PlainTextResponse("the token is missing or wrong", 401, challenge)


class BoundedHttp(HttpToolsProtocol):
    """One connection, with limits for the size and time of request heads. uvicorn's parser would
    accept any number of bytes before any key is checked."""

    _unread_bytes = 0
    """Number of bytes in the parser since the last complete head or chunk of a body."""
    _made_progress = False
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass data to the parser. Close the connection if a head exceeds its limit."""
        self._made_progress = False
        super().data_received(data)
        self._unread_bytes = 0 if self._made_progress else self._unread_bytes + len(data)
        if self._unread_bytes > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        self._cancel_timer()
        self._made_progress = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._made_progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._made_progress = True
        super().on_message_complete()

    def _await_head(self) -> None:
        self._cancel_timer()
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._end_late)

    def _cancel_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_late(self) -> None:
        if getattr(self.cycle, "response_complete", True):
            self.transport.close()
        else:  # the previous request is not answered yet
            self._await_head()


class HttpServer(uvicorn.Server):
    """The HTTP server of an application, without uvicorn's own headers and logs."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        headers: dict[str, str] | None = None,
        loop: Literal["auto", "asyncio"] = "auto",
        stop_seconds: int = STOP_SECONDS,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """Configure uvicorn. Every answer gets `headers`. `on_stop` is called when the server
        begins to stop, so that endless streams end and do not delay it."""
        self._on_stop = on_stop
        self._app = app
        self._failure: Failure | None = None
        super().__init__(
            uvicorn.Config(
                self._run_app,
                access_log=False,
                date_header=False,
                headers=list((headers or {}).items()),
                http=BoundedHttp,  # this parser refuses targets that are not paths
                interface="asgi3",
                lifespan="on",
                log_config=None,
                log_level="critical",  # hosts report problems in their own records and logs
                loop=loop,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=stop_seconds,
                timeout_keep_alive=120,
                ws="none",
            )
        )

    async def _run_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        result = await attempted(self._app(scope, receive, send))
        if isinstance(result, Failure):
            self._failure = result
            raise result.raised  # uvicorn would not log this error

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application. Raise the application's error if it cannot be started."""
        sys.setswitchinterval(min(SWITCH_SECONDS, sys.getswitchinterval()))
        try:
            await super().startup(sockets)
        finally:  # uvicorn raises SystemExit
            if self._failure is not None:
                raise self._failure.raised

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()
        await super().shutdown(sockets)

    def take_connection(self, parent: socket.socket) -> bytes:
        """Serve a connection that another process passes. Return the byte that came with it."""
        try:
            order, descriptors, _, _ = socket.recv_fds(parent, 1, 1)
        except ConnectionError:
            return b""
        loop, state = asyncio.get_running_loop(), self.server_state
        for number in descriptors:
            protocol = partial(BoundedHttp, self.config, state, self.lifespan.state)
            connecting = loop.connect_accepted_socket(protocol, socket.socket(fileno=number))
            task: asyncio.Task[Any] = loop.create_task(connecting)
            state.tasks.add(task)
            task.add_done_callback(state.tasks.discard)
        return order


class BackgroundServer:
    """Runs an HTTP server in its own thread during a `with` block."""

    def __init__(self, server: uvicorn.Server, listening_socket: socket.socket) -> None:
        self._socket = listening_socket
        self.address: str = address_of(listening_socket)
        self.port: int = listening_socket.getsockname()[1]
        self.url: str = self.address
        self._server = server
        self._thread = threading.Thread(target=self._run, name="recollect-server", daemon=True)
        self._failure: Failure | None = None

    def _run(self) -> None:
        self._failure = guarded(partial(self._server.run, sockets=[self._socket]))

    def __enter__(self) -> Self:
        self._thread.start()
        until = time.monotonic() + START_SECONDS
        while not self._server.started:
            if self._failure is not None:
                reason = self._failure.reason
                raise RecollectError(f"the server at {self.address} did not start: {reason}")
            if not self._thread.is_alive() or time.monotonic() > until:
                raise RecollectError(f"the server at {self.address} did not start in time")
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        while self._thread.is_alive():  # messages may still be stored
            self._thread.join(STOP_SECONDS)
            if self._thread.is_alive():
                LOG.warning("the server at %s is still closing its memories", self.address)
        self._socket.close()
