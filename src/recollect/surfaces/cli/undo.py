"""`recollect undo SESSION`: the view as it was before the last compaction.

Works on the stored session: nothing is deleted, and the archive is not touched. A client that
runs meanwhile sees it after its next turn, whose write is refused as stale.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from recollect.config.settings import Models
from recollect.errors import RecollectError
from recollect.surfaces.cli.explained import plain_line
from recollect.surfaces.cli.store_options import opened, place_of, print_json, store_options

if TYPE_CHECKING:
    from recollect.compaction.cut import UndoResult
    from recollect.config import Settings
    from recollect.surfaces.cli.store_options import Place


@click.command("undo")
@click.argument("session", metavar="SESSION")
@store_options
def undo(*, session: str, url: str | None, space: str, as_json: bool) -> None:
    """Take back a session's last compaction; what it cut is shown again.

    An agent that runs meanwhile sends one more turn with the summary before it sees this.
    """
    done = asyncio.run(_undone(place_of(url, space), session))
    if as_json:
        number = None if done.undone is None else done.undone.number
        print_json(
            {
                "session": session,
                "undone": done.undone is not None,
                "number": number,
                "reason": str(done.reason),
            }
        )
    else:
        click.echo(plain_line(str(done.reason)), err=done.undone is None)
    if done.undone is None:
        raise SystemExit(1)


async def _undone(place: Place, session: str) -> UndoResult:
    from recollect.wiring import open_memory

    async with opened(place) as store:  # an engine would make a store that is not there
        if await store.session(session) is None:
            raise RecollectError(
                f"no session {plain_line(session)!r} is kept in this space; "
                "`recollect memory sessions` lists the sessions"
            )
    async with open_memory(
        space=place.space, store=place.url, settings=_without_models(place.settings)
    ) as memory:
        return await memory.undo(session)


def _without_models(settings: Settings) -> Settings:
    """Nobody is asked to take something back: no key, no embedder and no job is needed."""
    return replace(
        settings,
        models=Models(),
        recall=replace(settings.recall, enabled=False),
        jobs=replace(settings.jobs, in_process=False),
    )
