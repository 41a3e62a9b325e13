"""`recollect memory …`: look into a memory, add to it, forget, and look after it.

Each command loads when it is called, from the module named here.
"""

from __future__ import annotations

import click

from recollect.cli.lazy_group import LazyGroup

SUBCOMMANDS = {
    "stats": "looking:stats",
    "sessions": "looking:sessions",
    "show": "looking:show",
    "search": "searching:search",
    "add": "indexing:add",
    "forget": "forgetting:forget",
    "index": "indexing:index",
    "embed": "indexing:embed",
    "reindex": "upkeep:reindex",
    "check": "upkeep:check",
    "spool": "upkeep:spool",
    "scrub": "upkeep:scrub",
    "jobs": "upkeep:jobs",
}


@click.group(cls=LazyGroup, package=__name__, subcommands=SUBCOMMANDS)
def memory() -> None:
    """Look into a memory, add to it, forget, and look after it."""
