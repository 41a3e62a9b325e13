"""`recollect facts …`: what is known, since when, from whom, and why.

Each command loads when it is called, from the module named here.
"""

from __future__ import annotations

import click

from recollect.surfaces.cli.later_group import LaterGroup

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


@click.group(cls=LaterGroup, package=__name__, subcommands=SUBCOMMANDS)
def facts() -> None:
    """See what is known, since when and why; correct it, pin it, forget it."""
