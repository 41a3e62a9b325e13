"""`recollect memory add TEXT`: a note, kept like something the user said."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from recollect.errors import RecollectError
from recollect.surfaces.cli.store_options import Place, print_json, store_options, with_store

if TYPE_CHECKING:
    from recollect.engine.keeper import Noted
    from recollect.ports import Store

NOTES_SESSION = "notes"


@click.command("add")
@click.argument("text", metavar="TEXT")
@click.option("--session", default=NOTES_SESSION, show_default=True, metavar="NAME")
@store_options
def add(*, text: str, session: str, url: str | None, space: str, as_json: bool) -> None:
    """Remember a note; a dash reads it from standard input."""
    said = sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text
    said = said.strip()
    if not said:
        raise RecollectError("there is no text in that note; say what is to be remembered")

    async def work(store: Store, place: Place) -> Noted:
        from recollect.engine.keeper import keep_note
        from recollect.rules.tokens import Weigher

        return await keep_note(
            store,
            said,
            session=session,
            secret=place.secret,
            weigher=Weigher(place.settings.tokens.counter),
            redaction=place.settings.redaction,
            now=time.time(),
        )

    noted = with_store(url, space, work, create=True)
    segment = noted.segment
    if segment is None:
        raise RecollectError("that is nothing but a recalled block; there is nothing to keep")
    if as_json:
        print_json({"id": segment.id, "session": session, "outcome": noted.outcome})
    else:
        click.echo(f"{noted.outcome}: {segment.id}")
        if segment.noise is not None and noted.outcome == "stored":
            click.echo(f"recollect: it is kept but not indexed: {segment.noise}", err=True)
    if noted.outcome == "forgotten":
        click.echo("recollect: this text was forgotten on purpose and stays out", err=True)
        raise SystemExit(1)
