"""`recollect install` and `uninstall`: memory for an agent that calls hooks, or for OpenClaw."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from recollect.cli.store_options import json_option, print_json
from recollect.errors import RecollectError
from recollect.system.config.trust import printable
from recollect.system.places import project_space
from recollect.system.plain_text import harmless

if TYPE_CHECKING:
    from recollect.hosts.hooks.transcript_file import AgentName

AGENTS: Final = ("claude-code", "codex", "openclaw")
_OPENCLAW: Final = (
    "Name the plugin in OpenClaw's configuration, then restart OpenClaw.\n"
    "  openclaw plugins install --link {path}\n"
    "  openclaw config set plugins.slots.contextEngine recollect\n"
    "OpenClaw asks whether you trust it (without a terminal: --force --accept-capabilities)."
)
_OPENCLAW_GONE: Final = (
    "Remove it from OpenClaw's configuration, too: openclaw plugins uninstall recollect"
)
_INSTALLED: Final = (
    "Active from the next session. Recollect will store your conversations and add relevant\n"
    "memories to your prompts, also after the agent's own compaction."
)
_CONSENT: Final = (
    "Codex runs no hook that you have not allowed: start codex, open /hooks, look at the commands "
    "and trust them. Until then nothing happens. The commands stay the same across upgrades, so "
    "that you are asked once."
)
_agent = click.argument("agent", type=click.Choice(AGENTS))
_project = click.option(
    "--project",
    is_flag=True,
    help="Only for the current folder's project. Default: for all your projects.",
)
_dry_run = click.option("--dry-run", is_flag=True, help="Show the changes without making them.")


@click.command()
@_agent
@_project
@_dry_run
@json_option
def install(*, agent: str, project: bool, dry_run: bool, as_json: bool) -> None:
    """Add memory to AGENT: hooks in its settings, answered by `recollect daemon`.

    \b
    recollect install claude-code            for all your projects
    recollect install claude-code --project  for this project
    recollect install codex                  then allow the hooks
    recollect install openclaw               installs its plugin

    Changes nothing else in the settings; `recollect uninstall` restores them.
    """
    if agent == "openclaw":
        _openclaw(project=project, dry_run=dry_run, as_json=as_json, remove=False)
        return
    from recollect.hosts.hooks.install import carry_out, plan_install

    name, path = _settings_of(agent, project=project)
    plan = plan_install(name, path, _command())
    if not dry_run:
        carry_out(plan)
    undo = f"recollect uninstall {agent}" + " --project" * project
    if as_json:
        _print_plan(plan, dry_run=dry_run)
    elif dry_run:
        click.echo(harmless(plan.diff()) if plan.changes else f"{printable(path)} stays as it is.")
    elif not plan.changes:
        click.echo(f"The hooks of {agent} are in {printable(path)} already; `{undo}` removes them.")
    else:
        click.echo(f"The hooks of {agent} are in {printable(path)}; `{undo}` removes them.")
        click.echo(_INSTALLED)
        if agent == "codex":
            click.echo(_CONSENT)


@click.command()
@_agent
@_project
@_dry_run
@json_option
def uninstall(*, agent: str, project: bool, dry_run: bool, as_json: bool) -> None:
    """Remove Recollect's hooks from AGENT's settings. The memory stays."""
    if agent == "openclaw":
        _openclaw(project=project, dry_run=dry_run, as_json=as_json, remove=True)
        return
    from recollect.hosts.hooks.install import carry_out, plan_uninstall

    name, path = _settings_of(agent, project=project)
    plan = plan_uninstall(name, path)
    if not dry_run:
        carry_out(plan)
    if as_json:
        _print_plan(plan, dry_run=dry_run)
    elif not plan.changes:
        click.echo(f"There are no Recollect hooks in {printable(path)}.")
    elif dry_run:
        click.echo(harmless(plan.diff()))
    else:
        click.echo(f"{'Removed' if plan.after is None else 'Restored'} {printable(path)}.")


def _openclaw(*, project: bool, dry_run: bool, as_json: bool, remove: bool) -> None:
    from recollect.hosts.hooks.install import (
        openclaw_plugin,
        put_openclaw_plugin,
        take_openclaw_plugin,
    )

    if project:
        raise RecollectError("OpenClaw has one configuration: leave --project out")
    path = openclaw_plugin()
    there = path.exists()
    changed = not dry_run and (take_openclaw_plugin() if remove else put_openclaw_plugin())
    if as_json:
        shown = {"agent": "openclaw", "path": str(path), "changed": changed, "dry_run": dry_run}
        print_json(shown)
    elif not remove:
        if dry_run:
            click.echo(
                f"Would put OpenClaw's plugin into {printable(path)} and change nothing else. Then:"
            )
        else:
            click.echo(f"OpenClaw's plugin is in {printable(path)}{'' if changed else ' already'}.")
        click.echo(_OPENCLAW.format(path=shlex.quote(str(path))))
    elif not there:
        click.echo(f"There is no plugin in {printable(path)}.")
    elif dry_run:
        click.echo(f"Would remove OpenClaw's plugin in {printable(path)}.")
    else:
        click.echo(f"Removed {printable(path)}. {_OPENCLAW_GONE}")


def _settings_of(agent: str, *, project: bool) -> tuple[AgentName, Path]:
    from recollect.hosts.hooks.install import settings_file

    name: AgentName = "codex" if agent == "codex" else "claude-code"
    root = Path(project_space(str(Path.cwd())))
    return name, settings_file(name, "project" if project else "user", root)


def _print_plan(plan: Any, *, dry_run: bool) -> None:
    changed = plan.changes and not dry_run
    shown = {"agent": plan.agent, "path": str(plan.path), "changed": changed, "diff": plan.diff()}
    print_json(shown)


def _command() -> str:
    """Return the command that starts Recollect, by a path that stays the same after an upgrade."""
    beside = Path(sys.argv[0]).absolute().with_name("recollect-hook")
    program = str(beside) if beside.exists() else shutil.which("recollect-hook")
    if program is not None:
        return shlex.quote(program)
    return f"{shlex.quote(sys.executable)} -P -m recollect hook"
