"""`recollect gateway`: serves agents that only let their base URL be changed."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path

import click

from recollect.system.config import Settings, load_settings
from recollect.system.plain_text import window_from


@click.command()
@click.option(
    "--config", type=click.Path(path_type=Path), help="A settings file; else ./recollect.toml."
)
@click.option("--host", help="Address to listen on; else gateway.host [127.0.0.1].")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Port; else gateway.port [8788]. 0: a free one."
)
@click.option(
    "--space",
    metavar="NAME",
    help="The memory of requests that name none; else gateway.space [default]. Clients that tell "
    "their project's folder (Codex) have one a folder.",
)
@click.option(
    "--window",
    metavar="TOKENS",
    help="The model's window, such as 200k; needed only where its name does not tell it.",
)
@click.option(
    "--summaries",
    is_flag=True,
    help="When the window fills, have the client's own model write a summary, with its key, at "
    "most jobs.day_tokens a day.",
)
def gateway(
    config: Path | None,
    host: str | None,
    port: int | None,
    space: str | None,
    window: str | None,
    summaries: bool,  # noqa: FBT001 - a flag of the command
) -> None:
    """Give memory to agents you did not write: point their base URL here.

    \b
    recollect gateway     runs until Ctrl-C, and prints the base URL with its token
    recollect tail        what it does

    Messages, Chat Completions and Responses are shaped by memory; everything else passes through
    untouched. To try it with one agent, `recollect wrap claude` is enough.
    """
    settings = chosen_settings(
        config,
        host=host,
        port=port,
        space=space,
        window=window,
        summaries="client" if summaries else None,
    )
    serve(settings)


def chosen_settings(
    config: Path | None,
    *,
    host: str | None = None,
    port: int | None = None,
    space: str | None = None,
    window: str | None = None,
    summaries: str | None = None,
) -> Settings:
    """The settings with what the command line says in place of them."""
    given = {
        "gateway.host": host,
        "gateway.port": port,
        "gateway.space": space,
        "gateway.summaries": summaries,
        "window_tokens": None if window is None else window_from(window),
    }
    named = {name: value for name, value in given.items() if value is not None}
    return load_settings(arguments=named, file=config).settings


def serve(settings: Settings) -> None:
    """Serve until a signal says stop."""
    from recollect.hosts.gateway.access import (
        TOKEN_PATH,
        TOKEN_VARIABLE,
        RunningGateway,
        announced,
        gateway_token,
        gateway_token_file,
    )
    from recollect.hosts.gateway.running import listening_socket, server_of
    from recollect.hosts.gateway.server import Gateway
    from recollect.system.agent_folders import project_space
    from recollect.system.loopback import address_of

    token = gateway_token()
    app = Gateway(
        settings, token=token, tell=lambda text: click.echo(f"recollect: {text}", err=True)
    )
    server = server_of(app)
    opened = listening_socket(settings)
    address = address_of(opened)
    given = os.environ.get(TOKEN_VARIABLE)
    secret = f"${TOKEN_VARIABLE}" if given else f"$(cat {shlex.quote(str(gateway_token_file()))})"
    base = f'"{address}{TOKEN_PATH}{secret}"'
    click.echo(f"Recollect listens on {address}. Every request brings its token.", err=True)
    click.echo(f"  Claude Code: ANTHROPIC_BASE_URL={base} claude", err=True)
    click.echo("  What it does: recollect tail", err=True)
    running = RunningGateway(address=address, token=token, project=project_space(str(Path.cwd())))
    # the server has ended in order, then hands the signal on
    with suppress(KeyboardInterrupt), announced(running):
        server.run(sockets=[opened])
