"""A group of commands that are imported when they are first used.

Owns how a table of names becomes commands: help and completion of one command load no other.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """Commands by name, each as `module:attribute` of a package, listed in the table's order."""

    def __init__(
        self,
        *given: Any,
        package: str,
        subcommands: Mapping[str, str],
        short_help: Mapping[str, str] | None = None,
        **named: Any,
    ) -> None:
        """`short_help` are lines for the list of commands: one that has none is imported for it."""
        super().__init__(*given, **named)
        self._package = package
        self._subcommands = subcommands
        self._short_help = short_help or {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing those whose line is known."""
        names = self.list_commands(ctx)
        if not names:
            return
        limit = formatter.width - 6 - max(len(name) for name in names)
        rows: list[tuple[str, str]] = []
        for name in names:
            line = self._short_help.get(name)
            if line is None:
                command = self.get_command(ctx, name)
                if command is None or command.hidden:
                    continue
                line = command.get_short_help_str(limit)
            rows.append((name, line))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names that begin so, without importing a command; then options."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=self._short_help.get(name)) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        del ctx
        return list(self._subcommands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        del ctx
        target = self._subcommands.get(cmd_name)
        if target is None:
            return None
        module, _, name = target.partition(":")
        command = getattr(importlib.import_module(f"{self._package}.{module}"), name)
        assert isinstance(command, click.Command)
        return command
