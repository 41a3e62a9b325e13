"""The server over streamable HTTP, on this machine only by default. A web page in a browser can
reach every local port, so requests for another host or from another origin are refused. Every
request must send a token, which other users of the machine cannot read."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from recollect.hosts.gateway.asgi import Message, Receive, Send, http_server
from recollect.hosts.mcp import MemoryOrder
from recollect.system.durable import own_secret
from recollect.system.loopback import (
    LOOPBACK,
    address_of,
    host_of,
    is_own_page,
    listen_on,
    names_this_machine,
)
from recollect.system.places import mcp_token_file

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]
TOKEN_VARIABLE: Final = "RECOLLECT_MCP_TOKEN"  # noqa: S105
PATH: Final = "/mcp"
_END_SECONDS: Final = 3


def serve_http(order: MemoryOrder, *, host: str, port: int) -> None:
    """Serve until a signal arrives."""
    token, where = access_token()
    opened = listen_on(host, port, mend="name another as --port")
    url = f"{address_of(opened)}{PATH}"
    click.echo(f"Recollect's MCP server listens on {url}", err=True)
    if where is None:
        click.echo(f"  Send the token of {TOKEN_VARIABLE} as a bearer.", err=True)
    else:
        bearer = f'"Authorization: Bearer $(cat {where})"'
        click.echo(f"  Send the token in {where} with every request:", err=True)
        click.echo(f"  claude mcp add --transport http recollect {url} --header {bearer}", err=True)
    with contextlib.suppress(KeyboardInterrupt):  # the server has already shut down
        asyncio.run(_serve(order, opened, token, local=host in LOOPBACK))


async def _serve(order: MemoryOrder, opened: socket.socket, token: str, *, local: bool) -> None:
    from recollect.hosts.mcp.memory import served_memory
    from recollect.hosts.mcp.server import server_over

    async with served_memory(order) as memory:
        app = guarded_app(server_over(memory), token=token, local=local)
        server = http_server(app, feature="the MCP server", extra="mcp")
        server.config.timeout_graceful_shutdown = _END_SECONDS
        await server.serve(sockets=[opened])


def guarded_app(server: Server[Any], *, token: str, local: bool) -> App:
    """Return the server as an ASGI application that checks host, origin and token. With `local` it
    listens on this machine only, so its host names are known."""
    from mcp.server.transport_security import TransportSecuritySettings

    app = server.streamable_http_app(
        streamable_http_path=PATH,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )

    async def guarded(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in scope["headers"]
            }
            refusal = _refusal(headers, token, local=local)
            if refusal is not None:
                await _refuse(send, *refusal)
                return
        await app(scope, receive, send)

    return guarded


def _refusal(headers: dict[str, str], token: str, *, local: bool) -> tuple[HTTPStatus, str] | None:
    host = headers.get("host", "")
    if local and not names_this_machine(host):
        return HTTPStatus.MISDIRECTED_REQUEST, "this server answers to this machine's names"
    served_as = None if local else host_of(f"//{host}")
    if not is_own_page(headers.get("origin", ""), served_as=served_as):
        return HTTPStatus.FORBIDDEN, "pages of other origins are not answered"
    scheme, _, given = headers.get("authorization", "").partition(" ")
    bearer = given.strip().encode("latin-1")
    if scheme.lower() != "bearer" or not hmac.compare_digest(bearer, token.encode()):
        return HTTPStatus.UNAUTHORIZED, "the token is missing or wrong"
    return None


async def _refuse(send: Send, status: HTTPStatus, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    if status is HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b'Bearer realm="recollect"'))
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


def access_token() -> tuple[str, Path | None]:
    """Return the token that requests must send, and its file (None if the token is in the
    environment). The token is created once and readable by this user alone. Two servers that start
    at the same time share it."""
    given = os.environ.get(TOKEN_VARIABLE)
    if given:
        return given, None
    file = mcp_token_file()
    return own_secret(file), file
