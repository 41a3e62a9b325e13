"""`recollect install` and `uninstall`: add memory to agents that call hooks, and to OpenClaw."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from recollect.cli.store_options import (
    download_option,
    end_daemon,
    json_option,
    offer_model,
    print_json,
)
from recollect.errors import RecollectError
from recollect.system import projects
from recollect.system.config import load_settings
from recollect.system.config.trust import printable
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
_AFTER_OPENCLAW_REMOVAL: Final = (
    "Remove it from OpenClaw's configuration, too: openclaw plugins uninstall recollect"
)
_AFTER_INSTALL: Final = (
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
    help="Change only the current folder's project. Default: all your projects.",
)
_dry_run = click.option("--dry-run", is_flag=True, help="Show the changes without making them.")


@click.command()
@_agent
@_project
@_dry_run
@click.option(
    "--space",
    metavar="NAME",
    help="Use this memory in all your projects; with --project, in this one. An empty name ends"
    " that. Default: one memory per project.",
)
@download_option
@json_option
def install(
    *,
    agent: str,
    project: bool,
    dry_run: bool,
    space: str | None,
    download: bool | None,
    as_json: bool,
) -> None:
    """Add memory to AGENT: write hooks into its settings. A hook is a command that the agent runs
    at certain events.

    \b
    recollect install claude-code            for all your projects
    recollect install claude-code --project  for this project
    recollect install codex                  then allow the hooks
    recollect install openclaw               installs its plugin

    Changes nothing else in the settings. `recollect uninstall` restores the settings. At a
    terminal, offers a small embedding model, with which recall finds more."""
    _change(agent, project=project, dry_run=dry_run, as_json=as_json, remove=False)
    if not dry_run and space is not None:
        _choose_space(space, project=project, as_json=as_json)
    if not dry_run and (download is not None or not as_json):
        offer_model(load_settings(folder=None).settings, download)


@click.command()
@_agent
@_project
@_dry_run
@json_option
def uninstall(*, agent: str, project: bool, dry_run: bool, as_json: bool) -> None:
    """Remove Recollect's hooks from AGENT's settings. The memory stays."""
    _change(agent, project=project, dry_run=dry_run, as_json=as_json, remove=True)


def _change(agent: str, *, project: bool, dry_run: bool, as_json: bool, remove: bool) -> None:
    if agent == "openclaw":
        if project:
            raise RecollectError("OpenClaw has one configuration: leave --project out")
        _change_plugin(dry_run=dry_run, as_json=as_json, remove=remove)
        return
    from recollect.hosts.hooks.install import (
        carry_out,
        plan_install,
        plan_uninstall,
        settings_file,
    )

    name: AgentName = "codex" if agent == "codex" else "claude-code"
    root = Path(projects.find_project(str(Path.cwd())).place.path)
    path = settings_file(name, "project" if project else "user", root)
    plan = plan_uninstall(name, path) if remove else plan_install(name, path, _hook_command())
    changes, diff = plan.changes, plan.diff()
    if not dry_run:
        carry_out(plan)
    if as_json:
        has_changed = changes and not dry_run
        print_json({"agent": name, "path": str(path), "changed": has_changed, "diff": diff})
    elif dry_run and changes:
        click.echo(harmless(diff))
    elif remove and not changes:
        click.echo(f"There are no Recollect hooks in {printable(path)}.")
    elif remove:
        click.echo(f"{'Removed' if plan.after is None else 'Restored'} {printable(path)}.")
        click.echo("A running daemon stops when it is idle, or now: recollect daemon stop")
    elif dry_run:
        click.echo(f"{printable(path)} stays as it is.")
    else:
        undo = f"recollect uninstall {agent}" + " --project" * project
        already_note = "" if changes else " already"
        click.echo(
            f"The hooks of {agent} are in {printable(path)}{already_note}; `{undo}` removes them."
        )
        if changes:
            click.echo(_AFTER_INSTALL)
        if changes and agent == "codex":
            click.echo(_CONSENT)


def _choose_space(space: str, *, project: bool, as_json: bool) -> None:
    folder, chosen_space = str(Path.cwd()), projects.space_named(space)
    if not project:
        projects.choose_for_all(chosen_space)
    elif not chosen_space:
        projects.split_project(folder)
    elif projects.project_space(folder) != chosen_space:
        projects.join_project(folder, chosen_space, moves=False)
    end_daemon()
    if not as_json:
        subject = "This project uses" if project else "All your projects use"
        memory_text = f"the memory {printable(chosen_space)}" if chosen_space else "its own memory"
        if not chosen_space and not project:
            subject, memory_text = "Each project uses", "its own memory again"
        click.echo(f"{subject} {memory_text}.")


def _change_plugin(*, dry_run: bool, as_json: bool, remove: bool) -> None:
    from recollect.hosts.hooks.install import (
        openclaw_plugin,
        put_openclaw_plugin,
        take_openclaw_plugin,
    )

    path = openclaw_plugin()
    shown_path, is_installed = printable(path), path.exists()
    has_changed = not dry_run and (take_openclaw_plugin() if remove else put_openclaw_plugin())
    if as_json:
        value = {"agent": "openclaw", "path": str(path), "changed": has_changed, "dry_run": dry_run}
        print_json(value)
    elif remove and not is_installed:
        click.echo(f"There is no plugin in {shown_path}.")
    elif remove and dry_run:
        click.echo(f"Would remove OpenClaw's plugin in {shown_path}.")
    elif remove:
        click.echo(f"Removed {shown_path}. {_AFTER_OPENCLAW_REMOVAL}")
    else:
        if dry_run:
            text = f"Would put OpenClaw's plugin into {shown_path} and change nothing else. Then:"
        else:
            text = f"OpenClaw's plugin is in {shown_path}{'' if has_changed else ' already'}."
        click.echo(text)
        click.echo(_OPENCLAW.format(path=shlex.quote(str(path))))


def _hook_command() -> str:
    """Return the command that starts Recollect, with a path that an upgrade does not change."""
    hook_path = Path(sys.argv[0]).absolute().with_name("recollect-hook")
    program = str(hook_path) if hook_path.exists() else shutil.which("recollect-hook")
    if program is not None:
        return shlex.quote(program)
    return f"{shlex.quote(sys.executable)} -P -m recollect hook"
