"""`recollect replay SESSION --turn N`: the request of a past turn, rebuilt from the ledger.

The request goes to standard output, byte for byte; what is to be said about it to standard
error, so that the bytes can be piped. Turns are counted as reports, receipts and `explain` count
them: one for every request. Reads only.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.cli.store_options import (
    Place,
    instant,
    meant_session,
    print_json,
    session_store_options,
    with_store,
)
from recollect.errors import RecollectError
from recollect.hosts.inspect.sessions import stored_session
from recollect.hosts.inspect.text import MOST_LISTED, sent_line, turns_text
from recollect.hosts.inspect.tokens import shown_text
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.core.engine.ledger import KeptTurn, NotRebuilt
    from recollect.core.ports import Store
    from recollect.hosts.inspect.turns import SentTurn


@click.command("replay")
@click.option("--turn", type=click.IntRange(min=1), metavar="N", help="Which turn.")
@click.option("--list", "listed", is_flag=True, help="List the turns that are kept.")
@session_store_options
def replay(
    *,
    session: str,
    turn: int | None,
    listed: bool,
    url: str | None,
    space: str | None,
    workspace: Path,
    as_json: bool,
) -> None:
    """Print the request of a past turn as it was sent."""
    session, where = meant_session(session, space, workspace, url)
    if turn is None and not listed:
        raise RecollectError("say which turn: --turn N, or --list for those that are kept")

    async def work(
        store: Store, place: Place
    ) -> tuple[str, SentTurn | NotRebuilt | None, tuple[KeptTurn, ...]]:
        from recollect.core.engine.ledger import kept_turns
        from recollect.hosts.inspect.turns import SentTurn, read_turn

        del place
        name = await stored_session(store, session)
        found = None if turn is None or listed else await read_turn(store, name, turn)
        kept = () if isinstance(found, SentTurn) else await kept_turns(store, name)
        return name, found, kept

    session, found, kept = with_store(url, where, work)
    if found is None:
        _list(session, kept, as_json=as_json)
    else:
        _print(session, found, kept, as_json=as_json)


def _print(
    session: str, found: SentTurn | NotRebuilt, kept: tuple[KeptTurn, ...], *, as_json: bool
) -> None:
    from recollect.core.engine.ledger import NotRebuilt
    from recollect.core.formats.json_text import decode

    if isinstance(found, NotRebuilt):
        for line in turns_text(kept)[-MOST_LISTED:] if not as_json else ():
            click.echo(line, err=True)
        raise RecollectError(f"session {plain_line(session)!r}: {found.reason}")
    rebuilt, record = found.rebuilt, found.rebuilt.record
    if as_json:
        print_json(
            {
                "session": session,
                "turn": record.number,
                "at": instant(record.at),
                "format": record.format,
                "model": record.model,
                "exact": rebuilt.exact,
                "missing": list(rebuilt.missing),
                "redacted": list(rebuilt.redacted),
                "bytes": len(rebuilt.body),
                "request": decode(rebuilt.body),
                "report": None if rebuilt.report is None else decode(rebuilt.report),
            }
        )
        return
    click.echo(sent_line(found), err=True)
    sys.stdout.buffer.write(rebuilt.body)
    sys.stdout.buffer.flush()


def _list(session: str, kept: tuple[KeptTurn, ...], *, as_json: bool) -> None:
    if as_json:
        turns = [
            {"turn": turn.turn, "at": instant(turn.at), "said": shown_text(turn.said)}
            for turn in kept
        ]
        print_json({"session": session, "turns": turns})
        return
    for line in turns_text(kept):
        click.echo(line)
    if not kept:
        click.echo(f"No turn of session {plain_line(session)!r} is in the ledger.")
