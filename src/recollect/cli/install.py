"""`recollect install` and `uninstall`: memory in an agent that calls hooks, or in OpenClaw, and out
of it again."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from recollect.cli.store_options import print_json
from recollect.errors import RecollectError
from recollect.system.agent_folders import project_space

if TYPE_CHECKING:
    from recollect.hosts.hooks.install import InstallPlan
    from recollect.hosts.hooks.transcript_file import AgentName

AGENTS: Final = ("claude-code", "codex", "openclaw")
OPENCLAW: Final = (
    "OpenClaw's configuration is yours: name the plugin there, then restart OpenClaw.\n"
    "  openclaw plugins install --link {path}\n"
    "  openclaw config set plugins.slots.contextEngine recollect\n"
    "OpenClaw asks whether you trust it (without a terminal: --force --accept-capabilities)."
)
OPENCLAW_GONE: Final = (
    "Take it out of OpenClaw's configuration, too: openclaw plugins uninstall recollect"
)
CONSENT: Final = (
    "Codex runs no hook that you have not allowed: start codex, open /hooks, look at the commands "
    "and trust them. Until then nothing happens. The commands stay the same across upgrades, so "
    "that you are asked once."
)
_agent = click.argument("agent", type=click.Choice(AGENTS))
_user = click.option(
    "--user", "scope", flag_value="user", default=True, help="For all your projects; the default."
)
_project = click.option(
    "--project", "scope", flag_value="project", help="For the current folder's project alone."
)
_dry_run = click.option("--dry-run", is_flag=True, help="Show the change, and change nothing.")
_json = click.option("--json", "json_output", is_flag=True, help="For programs.")


@click.command()
@_agent
@_user
@_project
@_dry_run
@_json
def install(
    agent: str,
    scope: str,
    dry_run: bool,  # noqa: FBT001
    json_output: bool,  # noqa: FBT001
) -> None:
    """Give AGENT a memory: hooks in its settings, answered by `recollect daemon`.

    \b
    recollect install claude-code            for all your projects
    recollect install claude-code --project  for this project (.claude/settings.local.json)
    recollect install codex                  asks you to allow the hooks in codex once
    recollect install openclaw               puts its plugin in place, and says what to set

    Other settings stay; `recollect uninstall` restores the file.
    """
    if agent == "openclaw":
        _install_openclaw(scope, dry_run=dry_run, json_output=json_output)
        return
    _install_hooks(_hooked(agent), scope, dry_run=dry_run, json_output=json_output)


def _hooked(agent: str) -> AgentName:
    return "codex" if agent == "codex" else "claude-code"


def _install_openclaw(scope: str, *, dry_run: bool, json_output: bool) -> None:
    from recollect.hosts.hooks.install import openclaw_plugin, put_openclaw_plugin

    _for_user_alone(scope)
    path = openclaw_plugin()
    changed = not dry_run and put_openclaw_plugin()
    if json_output:
        told = {"agent": "openclaw", "path": str(path), "changed": changed, "dry_run": dry_run}
        print_json(told)
        return
    if dry_run:
        click.echo(f"OpenClaw's plugin would be put into {path}; nothing else is touched. Then:")
    else:
        click.echo(f"OpenClaw's plugin is in {path}{'' if changed else ' already'}.")
    click.echo(OPENCLAW.format(path=shlex.quote(str(path))))


def _for_user_alone(scope: str) -> None:
    if scope == "project":
        raise RecollectError("OpenClaw has one configuration: leave --project out")


def _install_hooks(agent: AgentName, scope: str, *, dry_run: bool, json_output: bool) -> None:
    from recollect.hosts.hooks.install import carry_out, plan_install, settings_file

    path = settings_file(agent, "project" if scope == "project" else "user", _project_folder())
    plan = plan_install(agent, path, _command())
    if not dry_run:
        carry_out(plan)
    if json_output:
        print_json(_told(plan, dry_run=dry_run))
        return
    if dry_run:
        click.echo(plan.diff() if plan.changes else f"{path} stays as it is.")
        return
    undo = f"recollect uninstall {agent}" + " --project" * (scope == "project")
    if not plan.changes:
        click.echo(f"Hooks for {agent} are in {path} already; `{undo}` takes them out.")
        return
    click.echo(f"Hooks for {agent} are in {path}; `{undo}` takes them out.")
    click.echo("Active from the next session. Recollect will store your conversations and add")
    click.echo("relevant memories to your prompts.")
    if agent == "codex":
        click.echo(CONSENT)


@click.command()
@_agent
@_user
@_project
@_dry_run
@_json
def uninstall(agent: str, scope: str, dry_run: bool, json_output: bool) -> None:  # noqa: FBT001
    """Take our hooks out of AGENT's settings; stored conversations stay in memory."""
    if agent == "openclaw":
        _uninstall_openclaw(scope, dry_run=dry_run, json_output=json_output)
        return
    _uninstall_hooks(_hooked(agent), scope, dry_run=dry_run, json_output=json_output)


def _uninstall_openclaw(scope: str, *, dry_run: bool, json_output: bool) -> None:
    from recollect.hosts.hooks.install import openclaw_plugin, take_openclaw_plugin

    _for_user_alone(scope)
    path = openclaw_plugin()
    there = path.exists() if dry_run else take_openclaw_plugin()
    if json_output:
        print_json({"agent": "openclaw", "path": str(path), "changed": there and not dry_run})
    elif not there:
        click.echo(f"There is no plugin in {path}.")
    elif dry_run:
        click.echo(f"OpenClaw's plugin in {path} would be removed.")
    else:
        click.echo(f"{path} is gone again. {OPENCLAW_GONE}")


def _uninstall_hooks(agent: AgentName, scope: str, *, dry_run: bool, json_output: bool) -> None:
    from recollect.hosts.hooks.install import carry_out, plan_uninstall, settings_file

    path = settings_file(agent, "project" if scope == "project" else "user", _project_folder())
    plan = plan_uninstall(agent, path)
    if not dry_run:
        carry_out(plan)
    if json_output:
        print_json(_told(plan, dry_run=dry_run))
    elif dry_run and plan.changes:
        click.echo(plan.diff())
    elif plan.changes:
        gone = plan.after is None
        click.echo(f"{path} is gone again." if gone else f"{path} is as it was before.")
    else:
        click.echo(f"There are no hooks of ours in {path}.")


def _told(plan: InstallPlan, *, dry_run: bool) -> dict[str, object]:
    return {
        "agent": plan.agent,
        "path": str(plan.path),
        "changed": plan.changes and not dry_run,
        "diff": plan.diff(),
    }


def _project_folder() -> Path:
    """The root of the project that the current folder belongs to."""
    return Path(project_space(str(Path.cwd())))


def _command() -> str:
    """What starts us, by a path that stays the same when a newer version is installed."""
    beside = Path(sys.argv[0]).absolute().with_name("recollect-hook")
    program = str(beside) if beside.exists() else shutil.which("recollect-hook")
    if program is not None:
        return shlex.quote(program)
    return f"{shlex.quote(sys.executable)} -P -m recollect hook"
