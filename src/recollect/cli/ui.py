"""`recollect ui`: opens the inspector in the browser."""

from __future__ import annotations

import contextlib
import json

import click

from recollect.hosts import require_extra


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
        from recollect.hosts.daemon.client import ask, ensure_daemon

        ensure_daemon()
        _show(str(json.loads(ask("POST", "/ui").body)["link"]), no_browser=no_browser)
        return
    from recollect.hosts.http import HttpServer
    from recollect.hosts.inspector.mounted import LocalInspector
    from recollect.system.config import load_settings
    from recollect.system.loopback import address_of, listen_on

    inspector = LocalInspector(load_settings().settings)
    server = HttpServer(inspector, stop_seconds=1, on_stop=inspector.end)
    opened = listen_on("127.0.0.1", port, fix="name another as --port")
    click.echo(f"The inspector listens on {address_of(opened)}. Ctrl-C stops it.", err=True)
    _show(inspector.link(address_of(opened)), no_browser=no_browser)
    with contextlib.suppress(KeyboardInterrupt):  # the server has already shut down
        server.run(sockets=[opened])


def _show(link: str, *, no_browser: bool) -> None:
    click.echo(link)
    if not no_browser:
        import webbrowser

        webbrowser.open(link)
