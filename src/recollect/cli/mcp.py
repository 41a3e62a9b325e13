"""`recollect mcp`: memory for every client of the Model Context Protocol."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from recollect.errors import MissingExtra, RecollectError
from recollect.hosts.mcp import MemoryOrder
from recollect.system.agent_folders import project_space


@click.command("mcp")
@click.option("--space", metavar="NAME", help="Which memory; else the current project's.")
@click.option(
    "--store",
    "url",
    metavar="URL",
    help="A file, sqlite:///PATH or postgresql://…; without it your settings' store.",
)
@click.option(
    "--session", metavar="NAME", help="Serve what this session may see; else the whole space."
)
@click.option("--config", type=click.Path(path_type=Path), help="A settings file; else your own.")
@click.option("--http", "over_http", is_flag=True, help="Streamable HTTP instead.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8790,
    show_default=True,
    help="Port to listen on. 0: a free one.",
)
def mcp(
    *,
    space: str | None,
    url: str | None,
    session: str | None,
    config: Path | None,
    over_http: bool,
    host: str,
    port: int,
) -> None:
    """Serve memory to MCP clients, on standard input and output, or over HTTP.

    \b
    claude mcp add recollect -- recollect mcp    the memory of this project, for Claude Code
    recollect mcp --http                         for clients that connect; runs until Ctrl-C

    Over HTTP every request brings a token: that of RECOLLECT_MCP_TOKEN, else one that is made
    once and kept in the data folder.
    """
    if find_spec("mcp") is None:
        raise MissingExtra(feature="the MCP server", extra="mcp")
    if url == "":
        raise RecollectError("--store: the URL is empty; leave the option out instead")
    # nothing that takes time is imported before the first answer
    order = MemoryOrder(
        space=space or project_space(str(Path.cwd())),
        store=None if url is None else _absolute(url),
        session=session,
        config=None if config is None else config.expanduser().absolute(),
    )
    if over_http:
        from recollect.hosts.mcp.http import serve_http

        serve_http(order, host=host, port=port)
    else:
        from recollect.hosts.daemon.mcp_stdio import serve_stdio

        serve_stdio(order)


def _absolute(url: str) -> str:
    """The same store, wherever the process stands that opens it."""
    scheme, mark, named = url.partition("://")
    if not mark:
        return str(Path(url).expanduser().absolute())
    if scheme == "sqlite":
        return f"sqlite:///{Path(named.removeprefix('/')).expanduser().absolute()}"
    return url
