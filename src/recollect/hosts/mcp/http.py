"""The server over streamable HTTP, on this machine only by default. Every request must send a
token, which other users of the machine cannot read."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any, Final

import click
from starlette.applications import Starlette

from recollect.hosts.http import HttpServer, OwnPagesOnly
from recollect.hosts.mcp import MemoryOrder
from recollect.system.durable import own_secret
from recollect.system.loopback import LOOPBACK, address_of, listen_on
from recollect.system.places import mcp_token_file

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

TOKEN_VARIABLE: Final = "RECOLLECT_MCP_TOKEN"  # noqa: S105
PATH: Final = "/mcp"
_STOP_SECONDS: Final = 3


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


async def _serve(order: MemoryOrder, opened: socket, token: str, *, local: bool) -> None:
    from recollect.hosts.mcp.memory import only_memory
    from recollect.hosts.mcp.server import server_over

    async with only_memory(order) as memory:
        app = guarded_app(server_over(memory), token=token, local=local)
        await HttpServer(app, stop_seconds=_STOP_SECONDS).serve(sockets=[opened])


def guarded_app(server: Server[Any], *, token: str, local: bool) -> Starlette:
    """Return the server as an application that checks host, origin and token."""
    from mcp.server.transport_security import TransportSecuritySettings

    app = server.streamable_http_app(
        streamable_http_path=PATH,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    app.add_middleware(OwnPagesOnly, local=local, token=token)
    return app


def access_token() -> tuple[str, Path | None]:
    """Return the token that requests must send, and its file (None if the token is in the
    environment). The token is created once and readable by this user alone. Two servers that start
    at the same time share it."""
    given = os.environ.get(TOKEN_VARIABLE)
    if given:
        return given, None
    file = mcp_token_file()
    return own_secret(file), file
