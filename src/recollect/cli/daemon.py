"""`recollect daemon` and `recollect hook`: a process that keeps memories open, and who asks it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Final

import click

from recollect.errors import RecollectError
from recollect.hosts.daemon.client import (
    AGENTS,
    DaemonAway,
    ask,
    ensure_daemon,
    lock_path,
    log_path,
    run_hook,
)

STOP_SECONDS: Final = 60.0
_as_json = click.option("--json", "json_output", is_flag=True, help="For programs.")


@click.group()
def daemon() -> None:
    """Keep memories open for the hooks of agents, in one process of yours.

    It starts by itself when a hook needs it, ends when it is idle, and is replaced after an
    upgrade. Without it hooks are answered all the same, only slower.
    """


@daemon.command()
@click.option("--detach", is_flag=True, hidden=True)
def run(detach: bool) -> None:  # noqa: FBT001 - a flag of the command
    """Be the daemon, until Ctrl-C or idle; what goes on is in its log."""
    from recollect.hosts.daemon.life import run_detached, serve, take_place

    if detach:
        sys.exit(run_detached())
    place = take_place()
    if place is None:
        raise RecollectError("a daemon runs already: see `recollect daemon status`")
    click.echo(f"Recollect's daemon listens on {place.path}; its log: {log_path()}", err=True)
    sys.exit(serve(place))


@daemon.command()
@_as_json
def start(json_output: bool) -> None:  # noqa: FBT001
    """Start it where it does not run, and say how it is."""
    from recollect.system.config import load_settings

    load_settings(folder=None)  # what is wrong in them is shown here, and not in a log
    try:
        ensure_daemon()
        _show(_health(), json_output=json_output)
    except OSError as error:
        raise RecollectError(str(error)) from error


@daemon.command()
@_as_json
def status(json_output: bool) -> None:  # noqa: FBT001
    """Say whether it runs, and how it is; exit code 1 where it does not."""
    try:
        _show(_health(), json_output=json_output)
    except OSError:
        idle = "The daemon does not run: the first hook, or `recollect daemon start`, starts it."
        click.echo(json.dumps({"running": False}) if json_output else idle)
        sys.exit(1)


@daemon.command()
@_as_json
def stop(json_output: bool) -> None:  # noqa: FBT001
    """Have it finish what it does, and end; exit code 1 where it does not run."""
    from recollect.system.durable import locked_within

    try:
        ask("POST", "/stop")
    except OSError:
        click.echo(json.dumps({"stopped": False}) if json_output else "The daemon does not run.")
        sys.exit(1)
    lock = os.open(lock_path(), os.O_RDWR | os.O_CLOEXEC)
    if not locked_within(lock, STOP_SECONDS):
        raise RecollectError(f"the daemon does not end: see {log_path()}")
    click.echo(json.dumps({"stopped": True}) if json_output else "The daemon has ended.")


def _health() -> dict[str, Any]:
    reply = ask("GET", "/health")
    if reply.status != 200:
        raise DaemonAway(f"the daemon answers with status {reply.status}: see {log_path()}")
    told: dict[str, Any] = json.loads(reply.body)
    return told


def _show(health: dict[str, Any], *, json_output: bool) -> None:
    if json_output:
        click.echo(json.dumps({"running": True, **health}))
        return
    click.echo(f"The daemon runs: version {health['version']}, process {health['pid']}")
    click.echo(f"  for {health['uptime_seconds']:.0f} s, {health['hooks']} hooks answered")
    click.echo(f"  memories that are open: {', '.join(health['spaces']) or 'none'}")


@click.command()
@click.argument("agent", type=click.Choice(list(AGENTS)))
def hook(agent: str) -> None:
    """Answer a hook: its event comes on standard input, its answer goes to standard output.

    Agents run this; what they are told is in docs/daemon.md.
    """
    run_hook(AGENTS[agent])
