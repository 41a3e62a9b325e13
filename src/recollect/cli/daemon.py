"""`recollect daemon`, `hook`, `mcp` and `ui`: the processes that agents start or talk to, and the
inspector, which the daemon can serve.

This module must import quickly, because agents wait for a hook."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import click

from recollect.errors import RecollectError
from recollect.hosts import require_extra
from recollect.hosts.daemon.client import (
    AGENTS,
    DaemonAway,
    ask,
    ensure_daemon,
    lock_path,
    log_path,
    run_hook,
)

# Not measured: longer than the daemon's own limits for closing its memories.
STOP_SECONDS: Final = 60.0
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group()
def daemon() -> None:
    """Manage the background process that answers the hooks of agents.

    The daemon starts when a hook needs it, stops when it is idle, and restarts after an upgrade.
    Hooks work without the daemon, but more slowly."""


@daemon.command()
@_json
def start(*, as_json: bool) -> None:
    """Start the daemon if it is not running, and print its status."""
    from recollect.system.config import load_settings

    load_settings(folder=None)  # report wrong settings here, not only in the daemon's log
    try:
        ensure_daemon()
        health = _health()
    except OSError as error:
        raise RecollectError(str(error)) from error
    _show(health, as_json=as_json)


@daemon.command()
@_json
def status(*, as_json: bool) -> None:
    """Print the daemon's status. Exits 1 if no daemon is running."""
    try:
        health = _health()
    except OSError:
        idle = "The daemon is not running: a hook or `recollect daemon start` starts it."
        click.echo(json.dumps({"running": False}) if as_json else idle)
        sys.exit(1)
    _show(health, as_json=as_json)


@daemon.command()
@_json
def stop(*, as_json: bool) -> None:
    """Stop the daemon after it has finished pending work. Exits 1 if no daemon is running."""
    from recollect.system.durable import try_lock

    try:
        ask("POST", "/stop")
    except OSError:
        click.echo(json.dumps({"stopped": False}) if as_json else "The daemon is not running.")
        sys.exit(1)
    lock = os.open(lock_path(), os.O_RDWR | os.O_CLOEXEC)
    if not try_lock(lock, STOP_SECONDS):
        raise RecollectError(f"the daemon did not stop: see {log_path()}")
    click.echo(json.dumps({"stopped": True}) if as_json else "The daemon has stopped.")


def _health() -> dict[str, Any]:
    reply = ask("GET", "/health")
    if reply.status != 200:
        raise DaemonAway(f"the daemon answers with status {reply.status}: see {log_path()}")
    health: dict[str, Any] = json.loads(reply.body)
    return health


def _show(health: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"running": True, **health}))
        return
    click.echo(f"The daemon runs: version {health['version']}, process {health['pid']}")
    click.echo(f"  for {health['uptime_seconds']:.0f} s, {health['hooks']} hooks answered")
    click.echo(f"  open memories: {', '.join(health['spaces']) or 'none'}")


@click.command(hidden=True)
@click.argument("agent", type=click.Choice(list(AGENTS)))
def hook(*, agent: str) -> None:
    """Answer a hook of AGENT: read its event on standard input, print the answer."""
    run_hook(AGENTS[agent])


@click.command("mcp")
@click.option("--space", metavar="NAME", help="Use this memory. Default: the current project's.")
@click.option("--store", "url", metavar="URL", help="Use this store. Default: store.url.")
@click.option(
    "--session",
    metavar="NAME",
    help="Serve only messages of this session, memory files and shared facts. Default: the whole"
    " memory.",
)
@click.option("--config", type=click.Path(path_type=Path), help="Use this settings file.")
@click.option(
    "--http",
    "over_http",
    is_flag=True,
    help="Serve streamable HTTP instead of standard input and output.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8790,
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
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

    Over HTTP, every request needs a token. The token is the value of RECOLLECT_MCP_TOKEN, or else a
    token that Recollect creates and keeps in the data folder."""
    require_extra("mcp")
    if url == "":
        raise RecollectError("--store: the URL is empty; leave the option out instead")
    from recollect.hosts.mcp import MemoryOrder
    from recollect.system.projects import project_space, space_named

    order = MemoryOrder(
        space=space_named(space) if space else project_space(str(Path.cwd())),
        store=None if url is None else _absolute(url),
        session=session,
        config=None if config is None else config.expanduser().absolute(),
    )
    if over_http:
        from recollect.hosts.mcp.server import serve_http

        serve_http(order, host=host, port=port)
    else:
        from recollect.hosts.mcp.stdio import serve_stdio

        serve_stdio(order)


def _absolute(url: str) -> str:
    scheme, mark, path = url.partition("://")
    if not mark:
        return str(Path(url).expanduser().absolute())
    if scheme == "sqlite":
        return f"sqlite:///{Path(path.removeprefix('/')).expanduser().absolute()}"
    return url


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    metavar="N",
    help="Listen on this port. Default: a free one.",
)
@click.option("--no-browser", is_flag=True, help="Print the link, and open no browser.")
@click.option(
    "--daemon",
    "in_daemon",
    is_flag=True,
    help="Let the daemon serve the pages, and return. They stay open while it runs.",
)
def ui(*, port: int, no_browser: bool, in_daemon: bool) -> None:
    """Open the inspector: what the model saw, what was recalled and why, and the stored memory.

    Shows the sessions of this machine in your browser until Ctrl-C. The link works once, within ten
    minutes. Only this machine can reach the pages."""
    require_extra("ui")
    if in_daemon:
        ensure_daemon()
        _show_link(str(json.loads(ask("POST", "/ui").body)["link"]), no_browser=no_browser)
        return
    from recollect.hosts.http import HttpServer
    from recollect.hosts.inspector.mounted import LocalInspector
    from recollect.system.config import load_settings
    from recollect.system.loopback import address_of, listen_on

    inspector = LocalInspector(load_settings().settings)
    server = HttpServer(inspector, stop_seconds=1, on_stop=inspector.end)
    listening_socket = listen_on("127.0.0.1", port, fix="name another as --port")
    click.echo(
        f"The inspector listens on {address_of(listening_socket)}. Ctrl-C stops it.", err=True
    )
    _show_link(inspector.link(address_of(listening_socket)), no_browser=no_browser)
    with contextlib.suppress(KeyboardInterrupt):  # the server has already shut down
        server.run(sockets=[listening_socket])


def _show_link(link: str, *, no_browser: bool) -> None:
    click.echo(link)
    if not no_browser:
        import webbrowser

        webbrowser.open(link)
