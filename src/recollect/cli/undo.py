"""`recollect undo SESSION`: the view as it was before the last compaction.

Works on the stored session: nothing is deleted, and the archive is not touched. A client that
runs meanwhile sees it after its next turn, whose write is refused as stale.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.cli.store_options import (
    meant_session,
    opened,
    place_of,
    print_json,
    session_store_options,
)
from recollect.errors import RecollectError
from recollect.hosts.inspect.sessions import stored_session
from recollect.system.config.settings import Models
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.cli.store_options import Place
    from recollect.core.compaction.cut import UndoResult
    from recollect.system.config import Settings


@click.command("undo")
@session_store_options
def undo(
    *, session: str, url: str | None, space: str | None, workspace: Path, as_json: bool
) -> None:
    """Take back a session's last compaction; what it cut is shown again.

    An agent that runs meanwhile sends one more turn with the summary before it sees this.
    """
    session, where = meant_session(session, space, workspace, url)
    session, done = asyncio.run(_undone(place_of(url, where), session))
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


async def _undone(place: Place, session: str) -> tuple[str, UndoResult]:
    from recollect.adapters.session.files import transcript_file
    from recollect.adapters.session.transcript import read_session_file
    from recollect.adapters.wiring import open_memory
    from recollect.agent.conversation import undo_in_engine

    async with opened(place) as store:  # an engine would make a store that is not there
        session = await stored_session(store, session)
        if await store.session(session) is None:
            raise RecollectError(
                f"no session {plain_line(session)!r} is kept in this space; "
                "`recollect memory sessions` lists the sessions, and programs that call "
                "open_memory() write to another space by default: try --space default"
            )
    async with open_memory(
        space=place.space, store=place.url, settings=_without_models(place.settings)
    ) as memory:
        transcript = transcript_file(place.space, session)
        if not transcript.exists():
            return session, await memory.undo(session)
        entries = read_session_file(transcript).entries
        return session, await undo_in_engine(memory, session, entries)


def _without_models(settings: Settings) -> Settings:
    """Nobody is asked to take something back: no key, no embedder and no job is needed."""
    return replace(
        settings,
        models=Models(),
        recall=replace(settings.recall, enabled=False),
        jobs=replace(settings.jobs, in_process=False),
    )
