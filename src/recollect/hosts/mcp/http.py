"""The server over streamable HTTP: on this machine only, unless somebody says otherwise.

Owns who may speak to it. A page in a browser reaches every port of this machine, so a request that
names another host, or comes from another origin, is refused; and every request brings a token,
which another user of the machine cannot read. The socket listens before anything heavy is imported:
a client that comes early waits, and is not refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from recollect.hosts.mcp import MemoryOrder
from recollect.system.config.places import mcp_token_file
from recollect.system.loopback import (
    LOOPBACK,
    address_of,
    host_of,
    is_own_page,
    listen_on,
    names_this_machine,
)
from recollect.system.own_secret import own_secret

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

TOKEN_VARIABLE: Final = "RECOLLECT_MCP_TOKEN"  # noqa: S105
PATH: Final = "/mcp"
_BACKLOG: Final = 256
_END_SECONDS: Final = 3
"""How long open streams may go on after a signal."""


def serve_http(order: MemoryOrder, *, host: str, port: int) -> None:
    """Serve until a signal says stop."""
    token, where = access_token()
    opened = listen_on(host, port, mend="name another as --port", backlog=_BACKLOG)
    url = f"{address_of(opened)}{PATH}"
    click.echo(f"Recollect's MCP server listens on {url}", err=True)
    if where is None:
        click.echo(f"  Every request brings the token of {TOKEN_VARIABLE} as a bearer.", err=True)
    else:
        bearer = f'"Authorization: Bearer $(cat {where})"'
        click.echo(f"  Every request brings the token that is in {where}:", err=True)
        click.echo(f"  claude mcp add --transport http recollect {url} --header {bearer}", err=True)
    with contextlib.suppress(KeyboardInterrupt):  # it has ended in order, then hands it on
        asyncio.run(_serve(order, opened, token, local=host in LOOPBACK))


async def _serve(order: MemoryOrder, opened: socket.socket, token: str, *, local: bool) -> None:
    import uvicorn

    from recollect.hosts.mcp.memory import served_memory
    from recollect.hosts.mcp.server import server_over

    async with served_memory(order) as memory:
        config = uvicorn.Config(
            guarded_app(server_over(memory), token=token, local=local),
            access_log=False,
            interface="asgi3",
            lifespan="on",
            log_config=None,
            log_level="warning",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_END_SECONDS,
            ws="none",
        )
        await uvicorn.Server(config).serve(sockets=[opened])


def guarded_app(server: Server[Any], *, token: str, local: bool) -> Guarded:
    """The server as an ASGI application, for who may speak to it."""
    from mcp.server.transport_security import TransportSecuritySettings

    app = server.streamable_http_app(
        streamable_http_path=PATH,
        # `Guarded` looks at hosts and origins, and at the token
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return Guarded(app, token=token, local=local)


class Guarded:
    """Lets through what is asked from here, by who knows the token."""

    def __init__(self, app: App, *, token: str, local: bool) -> None:
        """`local`: the server listens on this machine alone, so that its names are known."""
        self._app, self._token, self._local = app, token.encode(), local

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] == "http":
            headers = {name.decode("latin-1").lower(): value for name, value in scope["headers"]}
            refusal = self._refusal({name: raw.decode("latin-1") for name, raw in headers.items()})
            if refusal is not None:
                await _refuse(send, *refusal)
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: dict[str, str]) -> tuple[HTTPStatus, str] | None:
        host = headers.get("host", "")
        if self._local and not names_this_machine(host):
            return HTTPStatus.MISDIRECTED_REQUEST, "this server answers to this machine's names"
        served_as = None if self._local else host_of(f"//{host}")
        if not is_own_page(headers.get("origin", ""), served_as=served_as):
            return HTTPStatus.FORBIDDEN, "pages of other origins are not answered"
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            given.strip().encode("latin-1"), self._token
        ):
            return HTTPStatus.UNAUTHORIZED, "the token is missing or wrong"
        return None


async def _refuse(send: Send, status: HTTPStatus, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    if status is HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b'Bearer realm="recollect"'))
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


def access_token() -> tuple[str, Path | None]:
    """The token that requests bring, and the file it is in; None where the environment has it.

    Made once, readable by this user alone; two servers that start at once share it.
    """
    given = os.environ.get(TOKEN_VARIABLE)
    if given:
        return given, None
    file = mcp_token_file()
    return own_secret(file), file
