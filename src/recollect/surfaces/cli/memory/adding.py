"""`recollect memory add TEXT`: a note, kept like something the user said."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from recollect.errors import RecollectError
from recollect.surfaces.cli.store_options import Place, print_json, store_options, with_store

if TYPE_CHECKING:
    from recollect.ports import Store
    from recollect.values.batch import Written
    from recollect.values.segment import Segment

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

    async def work(store: Store, place: Place) -> tuple[Segment, Written]:
        return await _add(store, place, said, session)

    segment, written = with_store(url, space, work, create=True)
    outcome = _outcome(segment, written)
    if as_json:
        print_json({"id": segment.id, "session": session, "outcome": outcome})
    else:
        click.echo(f"{outcome}: {segment.id}")
        if segment.noise is not None and outcome == "stored":
            click.echo(f"recollect: it is kept but not indexed: {segment.noise}", err=True)
    if outcome == "forgotten":
        click.echo("recollect: this text was forgotten on purpose and stays out", err=True)
        raise SystemExit(1)


def _outcome(segment: Segment, written: Written) -> str:
    if segment.id in written.forgotten:
        return "forgotten"
    return "stored" if segment.id in written.stored else "known"


async def _add(store: Store, place: Place, text: str, session: str) -> tuple[Segment, Written]:
    from recollect.rules.identity import ROOT, chain, identify
    from recollect.rules.weigh import Weigher
    from recollect.turn.ingest import ingest
    from recollect.values.batch import Batch
    from recollect.values.history import Entry
    from recollect.values.message import Message, Text

    message = Message(role="user", parts=(Text(text=text),), raw=b"")
    identity = identify(message, place.secret)
    entry = Entry(
        key=chain(ROOT, identity),
        id=identity,
        message=message,
        tokens=Weigher(place.settings.tokens.counter).message(message.parts),
        role="user",
        raw=b"",
    )
    now = time.time()
    made = ingest(
        [entry],
        session=session,
        source="note",
        said_at=now,
        redaction=place.settings.redaction,
        now=now,
    )
    if not made.segments:
        raise RecollectError("that is nothing but a recalled block; there is nothing to keep")
    written = await store.write(Batch(at=now, segments=made.segments, jobs=made.jobs))
    return made.segments[0].segment, written
