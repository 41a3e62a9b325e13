"""`recollect memory …`: look into a memory, add to it, forget, and look after it.

Each command loads when it is called, from the module named here.
"""

from __future__ import annotations

import importlib

import click

SUBCOMMANDS = {
    "stats": "looking:stats",
    "sessions": "looking:sessions",
    "show": "showing:show",
    "search": "searching:search",
    "add": "adding:add",
    "forget": "forgetting:forget",
    "index": "indexing:index",
    "embed": "embedding:embed",
    "evict": "upkeep:evict",
    "reindex": "upkeep:reindex",
    "check": "upkeep:check",
    "spool": "spooling:spool",
    "scrub": "upkeep:scrub",
    "migrate": "upkeep:migrate",
    "jobs": "queueing:jobs",
}


class MemoryGroup(click.Group):
    """A group whose commands are imported when they are first used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table: looking first, upkeep last."""
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


@click.group(cls=MemoryGroup)
def memory() -> None:
    """Look into a memory, add to it, forget, and look after it."""
