"""`recollect gateway`: serves agents that only let their base URL be changed."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from recollect.config import Settings, load_settings
from recollect.surfaces.cli.explain import window_from
from recollect.surfaces.cli.tail import gateway_url

SWITCH_SECONDS: Final = 0.001
"""How long what is kept beside the turns may compute before replies that stream get their turn; by
default five times as long."""


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="Another settings file.")
@click.option("--host", help="Address to listen on, in place of gateway.host.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port, in place of gateway.port.")
@click.option("--space", metavar="NAME", help="Space of requests that name none.")
@click.option("--anthropic", metavar="URL", help="Where Messages requests go.")
@click.option("--openai", metavar="URL", help="Where Chat and Responses requests go.")
@click.option("--window", metavar="TOKENS", help="The model's window, such as 200k.")
def gateway(
    config: Path | None,
    host: str | None,
    port: int | None,
    space: str | None,
    anthropic: str | None,
    openai: str | None,
    window: str | None,
) -> None:
    """Give memory to agents you did not write: point their base URL here.

    Messages, Chat Completions and Responses are shaped by memory; everything else passes through
    untouched. `recollect wrap` starts an agent through a gateway of its own.
    """
    settings = chosen_settings(
        config, host=host, port=port, space=space, anthropic=anthropic, openai=openai, window=window
    )
    serve(settings)


def chosen_settings(
    config: Path | None,
    *,
    host: str | None = None,
    port: int | None = None,
    space: str | None = None,
    anthropic: str | None = None,
    openai: str | None = None,
    window: str | None = None,
) -> Settings:
    """The settings with what the command line says in place of them."""
    given = {
        "gateway.host": host,
        "gateway.port": port,
        "gateway.space": space,
        "gateway.upstream.anthropic": anthropic,
        "gateway.upstream.openai": openai,
        "window_tokens": None if window is None else window_from(window),
    }
    named = {name: value for name, value in given.items() if value is not None}
    return load_settings(arguments=named, file=config).settings


def serve(settings: Settings) -> None:
    """Serve until a signal says stop."""
    from recollect.gateway.running import address_of, gateway_token, listening_socket, server_of
    from recollect.gateway.server import Gateway

    sys.setswitchinterval(SWITCH_SECONDS)
    app = Gateway(settings, token=gateway_token(settings))
    server = server_of(app)
    opened = listening_socket(settings)
    url = address_of(opened)
    click.echo(f"Recollect listens on {url}: set it as your agent's base URL", err=True)
    click.echo(f"  Claude Code: ANTHROPIC_BASE_URL={url} claude", err=True)
    usual = gateway_url(load_settings().settings) == url
    watch = "recollect tail" if usual else f"recollect tail --url {url}"
    click.echo(f"  What it does: {watch}", err=True)
    with suppress(KeyboardInterrupt):  # the server has ended in order, then hands the signal on
        server.run(sockets=[opened])
