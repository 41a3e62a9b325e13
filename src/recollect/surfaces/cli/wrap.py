"""`recollect wrap` and `unwrap`: start an agent through a gateway, or set it up for good."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click

from recollect.config import load_settings
from recollect.errors import RecollectError
from recollect.surfaces.cli.explain import window_from
from recollect.surfaces.cli.tail import gateway_url

AGENT_NAMES = ("claude", "codex", "opencode", "pi")


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("agent", type=click.Choice(AGENT_NAMES))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--persist", is_flag=True, help="Write the base URL into the agent's configuration.")
@click.option("--space", metavar="NAME", help="Which space; else the current folder's.")
@click.option("--window", metavar="TOKENS", help="The model's window, such as 200k.")
@click.option(
    "--summaries", is_flag=True, help="Let the agent's own model summarise, with its key."
)
def wrap(
    agent: str,
    arguments: tuple[str, ...],
    persist: bool,  # noqa: FBT001 - a flag of the command
    space: str | None,
    window: str | None,
    summaries: bool,  # noqa: FBT001
) -> None:
    """Run AGENT with memory: through a gateway that lives as long as it does.

    What follows `--` goes to the agent. The memory is the current folder's. With --persist nothing
    is started: the agent's configuration then names the gateway that `recollect gateway` runs.
    """
    from recollect.gateway.agents import AGENTS, check_not_wrapped, command_line, launched
    from recollect.gateway.agents import persist as write

    chosen = AGENTS[agent]
    check_not_wrapped(chosen)
    if persist:
        if arguments or space or window or summaries:
            raise RecollectError(
                "--persist starts nothing: leave the other options and arguments out, and set "
                "window_tokens, gateway.space and gateway.summaries in recollect.toml"
            )
        settings = load_settings().settings
        for family, own in chosen.upstreams().items():
            if getattr(settings.gateway.upstream, family) != own:
                raise RecollectError(
                    f"{agent} goes to {own} today: set gateway.upstream.{family} to that, so that "
                    "the gateway does not send its key elsewhere"
                )
        url = gateway_url(settings)
        click.echo(f"{write(chosen, url)} now names {url}: keep `recollect gateway` running")
        return
    if shutil.which(chosen.program) is None:
        raise RecollectError(f"{chosen.program} is not installed, or not on the PATH")
    from recollect.gateway.running import BackgroundGateway

    upstreams = {f"gateway.upstream.{name}": url for name, url in chosen.upstreams().items()}
    given = {
        "gateway.host": "127.0.0.1",
        "gateway.port": 0,
        "gateway.space": space or str(Path.cwd()),
        "gateway.by_folder": space is None,
        **({"window_tokens": window_from(window)} if window else {}),
        **({"gateway.summaries": "client"} if summaries else {}),
        **upstreams,
    }
    settings = load_settings(arguments=given).settings
    # The agent knows no token, and nobody else knows the port.
    settings = replace(settings, gateway=replace(settings.gateway, token_variable=None))
    with BackgroundGateway(settings) as running, launched(chosen, running.url) as launch:
        where = settings.gateway.space
        click.echo(
            f"recollect: memory of {where} (--space {shlex.quote(where)}); to watch: "
            f"recollect tail --url {running.url}",
            err=True,
        )
        sys.exit(
            run_agent(command_line(chosen, launch, arguments), {**os.environ, **launch.environment})
        )


def run_agent(command: list[str], environment: dict[str, str]) -> int:
    """Run the agent in this terminal; signals are its own business, its exit code is ours."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # the terminal sends them to the agent as well
    process = subprocess.Popen(  # noqa: S603 - the program that the user named
        command, env=environment, preexec_fn=_usual_signals
    )
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    signal.signal(signal.SIGHUP, lambda *_: process.send_signal(signal.SIGHUP))
    code = process.wait()
    return code if code >= 0 else 128 - code


def _usual_signals() -> None:
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


@click.command()
@click.argument("agent", type=click.Choice(AGENT_NAMES))
def unwrap(agent: str) -> None:
    """Put AGENT's configuration back as it was before `wrap --persist`, byte for byte."""
    from recollect.gateway.agents import AGENTS, restore

    done = restore(AGENTS[agent])
    if done.whole:
        click.echo(f"{done.path} is as it was")
    else:
        click.echo(f"{done.path} had been edited since: only the gateway's URL was taken out")
