"""`recollect facts …`: what is known, since when, from whom, and why.

Each command loads when it is called, from the module named here.
"""

from __future__ import annotations

import importlib

import click

SUBCOMMANDS = {
    "list": "listing:list_facts",
    "read": "reading:read",
    "add": "writing:add",
    "edit": "writing:edit",
    "pin": "pinning:pin",
    "unpin": "pinning:unpin",
    "forget": "forgetting:forget",
    "history": "past:history",
    "why": "asking:why",
    "export": "folder_out:export",
    "import": "folder_in:import_",
}


class FactsGroup(click.Group):
    """A group whose commands are imported when they are first used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table: looking first, files last."""
        del ctx
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        del ctx
        target = SUBCOMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, name = target.partition(":")
        command = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=FactsGroup)
def facts() -> None:
    """See what is known, since when and why; correct it, pin it, forget it."""
