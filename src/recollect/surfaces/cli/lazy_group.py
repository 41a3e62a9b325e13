"""A group of commands that are imported when they are first used.

Owns how a table of names becomes commands: help and completion of one command load no other.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """Commands by name, each as `module:attribute` of a package, listed in the table's order."""

    def __init__(
        self, *given: Any, package: str, subcommands: Mapping[str, str], **named: Any
    ) -> None:
        super().__init__(*given, **named)
        self._package = package
        self._subcommands = subcommands

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
