"""The `recollect` command, which imports each subcommand only when it runs, so that help is
instant.

Data goes to standard output, everything else to standard error. Exit codes: 0: done; 1: the answer
is no; 2: an error, which one line explains."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Mapping
from io import TextIOWrapper
from typing import Any

import click
from click.shell_completion import CompletionItem

import recollect
from recollect.errors import RecollectError
from recollect.system.plain_text import harmless

SECTIONS = {
    "Use it with an agent": {
        "install": "Add memory to Claude Code, Codex or OpenClaw.",
        "uninstall": "Remove Recollect's hooks or plugin from an agent.",
        "wrap": "Run an agent through a gateway of its own.",
        "gateway": "Run one gateway for several agents.",
        "tail": "Watch the requests of a running gateway.",
        "mcp": "Serve memory to MCP clients.",
        "daemon": "Manage the background process that answers hooks.",
    },
    "Look at memory": {
        "ui": "Open the inspector in the browser.",
        "import": "Import recorded sessions into a memory.",
        "memory": "Search, add, forget, check and maintain messages.",
        "facts": "List, add, correct, pin and forget facts.",
        "explain": "Show where the tokens of a recorded session go.",
        "receipt": "Show what a compaction kept and lost.",
        "replay": "Print the exact request of a past turn.",
        "undo": "Undo a session's last compaction.",
        "redact": "Find and mask secrets in stored data.",
        "export": "Export a memory to files.",
        "space": "List or delete memories.",
        "project": "Show which memory a folder uses; join, split and rename memories.",
    },
    "Chat with Recollect's own agent": {
        "chat": "Chat with an agent that remembers, in this folder.",
        "init": "Create recollect.toml, with a model for the chat.",
    },
    "Run a service": {
        "serve": "Run one node of the HTTP service.",
        "worker": "Run background jobs.",
        "tenant": "Create and delete tenants, and set their limits.",
        "key": "Create, list, rotate and revoke API keys.",
        "db": "Initialize, migrate, distribute and check PostgreSQL.",
    },
    "Setup": {
        "doctor": "Check the installation; show every setting.",
        "trust": "Review and allow a project's settings file.",
        "models": "List and download embedding models.",
        "bench": "Measure one part of Recollect.",
    },
}
"""The list of commands for `--help`, which shows it without importing a command."""
COMMANDS: dict[str, str | dict[str, str]] = {
    **dict.fromkeys(("install", "uninstall"), "install"),
    **dict.fromkeys(("wrap", "gateway", "tail"), "gateway"),
    **dict.fromkeys(("mcp", "daemon", "hook", "ui"), "daemon"),
    **dict.fromkeys(("import", "export"), "import_"),
    **dict.fromkeys(("explain", "receipt", "replay", "undo"), "sessions"),
    **dict.fromkeys(("chat", "init", "trust"), "chat"),
    **dict.fromkeys(("tenant", "key", "space"), "tenants"),
    **dict.fromkeys(("serve", "worker"), "serve"),
    **dict.fromkeys(("doctor", "models"), "doctor"),
    "db": "db",
    "project": "project",
    "redact": "forgetting",
    "memory": {
        **dict.fromkeys(("stats", "sessions", "show", "search"), "memory"),
        **dict.fromkeys(("add", "index", "reindex", "check", "scrub", "jobs"), "upkeep"),
        "forget": "forgetting",
    },
    "facts": {
        **dict.fromkeys(("list", "why", "add", "edit", "expire", "pin"), "facts"),
        **dict.fromkeys(("export", "import"), "facts"),
        "forget": "forgetting",
    },
}
"""The module of each command, or the modules of a group's commands. Entry points of
`recollect.commands` add more commands, such as the benchmarks, which no module here may import."""
_ATTRIBUTES = {"import": "import_"}


class LazyGroup(click.Group):
    """A group of commands, each imported when it is first used."""

    def __init__(
        self, *arguments: Any, modules: Mapping[str, Any], prefix: str = "", **options: Any
    ) -> None:
        """Map command names to modules. `prefix` begins the name of each command's function."""
        super().__init__(*arguments, **options)
        self._modules, self._prefix = modules, prefix

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        module = self._modules.get(cmd_name)
        if module is None:
            return None
        if isinstance(module, Mapping):
            return LazyGroup(
                cmd_name, modules=module, prefix=f"{cmd_name}_", help=_short_help(cmd_name)
            )
        attribute = self._prefix + _ATTRIBUTES.get(cmd_name, cmd_name)
        command = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands without importing them, then options."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=_short_help(name)) for name in names]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]


def _short_help(name: str) -> str | None:
    return next((lines[name] for lines in SECTIONS.values() if name in lines), None)


class CommandLine(LazyGroup):
    """The commands of this package and of installed packages, with errors printed in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from importlib.metadata import entry_points  # most commands do not need it

        plugin_names = entry_points(group="recollect.commands").names
        return sorted({*super().list_commands(ctx), *plugin_names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        from importlib.metadata import entry_points

        for entry in entry_points(group="recollect.commands", name=cmd_name):
            command = command or entry.load()
        if command is None and cmd_name == "bench":
            raise click.UsageError("the benches are in a separate package: install recollect-bench")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by section, without importing them."""
        names = self.list_commands(ctx)
        for title, lines in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, line in lines.items() if name in names])

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line. Report a failed read or write in one line. Print a question mark
        for each character that the terminal cannot show."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="replace")
        try:
            try:
                return super().main(*args, **extra)
            finally:
                sys.stdout.flush()
        except OSError as error:
            # Otherwise Python would write the rest of the buffer at exit, and fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            target = "the output" if error.filename is None else error.filename
            click.echo(f"recollect: {target}: {error.strerror or error}", err=True)
            raise SystemExit(2) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run a command. A RecollectError is printed in one line, with exit code 2."""
        try:
            return super().invoke(ctx)
        except RecollectError as error:
            click.echo(f"recollect: {harmless(str(error))}", err=True)
            raise SystemExit(2) from error


@click.group(
    cls=CommandLine,
    modules=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(recollect.__version__, prog_name="recollect")
def main() -> None:
    """Keeps LLM agents inside their context window, and remembers what no longer fits.

    \b
    Get started:
      recollect install claude-code     give Claude Code a memory (or: codex, openclaw)
      recollect wrap claude             also keep its window from overflowing
      recollect explain SESSION.jsonl   see where a session's tokens go"""
    if logging.lastResort is not None:  # print warnings to standard error
        logging.lastResort.setFormatter(logging.Formatter("recollect: %(message)s"))
        logging.getLogger("recollect").addHandler(logging.lastResort)
