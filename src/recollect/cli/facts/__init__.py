"""`recollect facts …`: what is known, since when, from whom, and why.

Each command loads when it is called, from the module named here.
"""

from __future__ import annotations

import click

from recollect.cli.lazy_group import LazyGroup

SUBCOMMANDS = {
    "list": "listing:list_facts",
    "read": "reading:read",
    "add": "changing:add",
    "edit": "changing:edit",
    "pin": "reading:pin",
    "forget": "changing:forget",
    "history": "listing:history",
    "why": "reading:why",
}


@click.group(cls=LazyGroup, package=__name__, subcommands=SUBCOMMANDS)
def facts() -> None:
    """See what is known, since when and why; correct it, pin it, forget it."""
