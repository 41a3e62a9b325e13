"""The `recollect` command. Commands load when they are called, so that help is instant.

Data goes to standard output, everything else to standard error. Exit codes: 0 done, 1 the
answer is no, 2 something has to be changed before it can work (one line says what).
"""

from __future__ import annotations

import logging
import os
import sys
from io import TextIOWrapper
from typing import Any

import click

import recollect
from recollect.agent.chat.output import harmless
from recollect.cli.lazy_group import LazyGroup
from recollect.errors import RecollectError

COMMANDS = {
    "chat": "chat:chat",
    "compact": "sessions:compact",
    "daemon": "daemon:daemon",
    "db": "db:db",
    "doctor": "doctor:doctor",
    "explain": "explain:explain",
    "export": "export:export",
    "facts": "facts:facts",
    "gateway": "gateway:gateway",
    "hook": "daemon:hook",
    "import": "import_:import_",
    "init": "init:init",
    "key": "tenants:key",
    "mcp": "mcp:mcp",
    "install": "install:install",
    "models": "models:models",
    "memory": "memory:memory",
    "receipt": "receipt:receipt",
    "redact": "redact:redact",
    "replay": "replay:replay",
    "serve": "serve:serve",
    "sessions": "sessions:sessions",
    "space": "space:space",
    "status": "sessions:status",
    "tail": "tail:tail",
    "tenant": "tenants:tenant",
    "trust": "trust:trust",
    "undo": "undo:undo",
    "uninstall": "install:uninstall",
    "why": "sessions:why",
    "worker": "worker:worker",
    "wrap": "wrap:wrap",
}
"""Name to module and object. Further ones come from the entry points of `recollect.commands`;
the benches use that door, since nothing may import them."""

SHORT_HELP = {
    "bench": "Measure one part of Recollect.",
    "chat": "Talk to an agent that works in a folder and remembers.",
    "compact": "Replace a chat's past by a summary, now.",
    "daemon": "Keep memories open for the hooks of agents.",
    "db": "Set up, migrate, distribute and check PostgreSQL.",
    "doctor": "Check that all works; show every setting in force.",
    "explain": "Show where the tokens of a session go.",
    "export": "Write a memory, or a session, to files.",
    "facts": "See what is known, since when and why; correct it.",
    "gateway": "Give memory to agents you did not write.",
    "hook": "Answer a hook of an agent; agents run it.",
    "import": "Take recorded sessions into a memory.",
    "init": "Set up a folder: write recollect.toml.",
    "key": "Make, list, revoke and rotate keys of a service.",
    "mcp": "Serve memory to MCP clients.",
    "install": "Give Claude Code or Codex a memory by their hooks.",
    "memory": "Look into a memory, add to it, forget.",
    "models": "Which embedding models are here; download one.",
    "receipt": "Show what a compaction kept and what is lost.",
    "redact": "Find secrets in what is stored, and mask them.",
    "replay": "Print the request of a past turn as it was sent.",
    "serve": "Serve memory to the tenants of a service.",
    "sessions": "List the chat sessions of a folder.",
    "space": "List the spaces of a store, or delete one.",
    "status": "Show a chat's window, cost and cache share.",
    "tail": "Watch a gateway at work.",
    "tenant": "Say who may use a service, and how much of it.",
    "trust": "Review and allow a project's settings file.",
    "undo": "Take back a session's last compaction.",
    "uninstall": "Take our hooks out of an agent's settings.",
    "why": "Show what becomes of a chat's message, and why.",
    "worker": "Do the jobs that wait in a store.",
    "wrap": "Run an agent through a gateway of its own.",
}
"""What the list of commands says, so that showing it imports none of them."""


class CommandLine(LazyGroup):
    """Our own commands and those of installed packages; errors are one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command's name, our own and those of entry points."""
        from importlib.metadata import entry_points  # a command of our own does without it

        others = entry_points(group="recollect.commands").names
        return sorted({*super().list_commands(ctx), *others})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        from importlib.metadata import entry_points

        for entry in entry_points(group="recollect.commands", name=cmd_name):
            command = command or entry.load()
        if command is None and cmd_name == "bench":
            raise click.UsageError("the benches are a package apart: install recollect-bench")
        return command

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line; where the system refuses to write or read, say so in one line.

        A terminal that cannot show a sign gets a question mark in its place.
        """
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="replace")
        try:
            try:
                return super().main(*args, **extra)
            finally:
                sys.stdout.flush()
        except OSError as error:
            # What is still buffered would be tried again at the end, and fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            what = "the output" if error.filename is None else error.filename
            click.echo(f"recollect: {what}: {error.strerror or error}", err=True)
            raise SystemExit(2) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; an error of ours is one line and exit code 2."""
        try:
            return super().invoke(ctx)
        except RecollectError as error:
            click.echo(f"recollect: {harmless(str(error))}", err=True)
            raise SystemExit(2) from error


@click.group(
    cls=CommandLine,
    package=__name__,
    subcommands=COMMANDS,
    short_help=SHORT_HELP,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(recollect.__version__, prog_name="recollect")
def main() -> None:
    """What an LLM agent knows after its context window has overflowed."""
    if logging.lastResort is not None:  # warnings go to standard error, as they are
        logging.getLogger("recollect").addHandler(logging.lastResort)
