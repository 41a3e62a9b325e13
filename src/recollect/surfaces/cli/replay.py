"""`recollect replay SESSION --turn N`: the request of a past turn, rebuilt from the ledger.

The request goes to standard output, byte for byte; what is to be said about it to standard
error, so that the bytes can be piped. Turns are counted as reports, receipts and `explain` count
them: one for every request. Reads only.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.errors import RecollectError
from recollect.inspect.sessions import stored_session
from recollect.plain_text import plain_line
from recollect.surfaces.cli.explained import shown_text
from recollect.surfaces.cli.store_options import (
    Place,
    instant,
    meant_session,
    print_json,
    session_store_options,
    when,
    with_store,
)

if TYPE_CHECKING:
    from recollect.engine.ledger import KeptTurn, NotRebuilt, Rebuilt
    from recollect.ports import Store

_MOST_NAMED = 5
_MOST_LISTED = 20


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
    ) -> tuple[str, Rebuilt | NotRebuilt | None, tuple[KeptTurn, ...]]:
        from recollect.engine.ledger import Rebuilt, kept_turns, rebuild_request

        del place
        name = await stored_session(store, session)
        found = None if turn is None or listed else await rebuild_request(store, name, turn)
        kept = () if isinstance(found, Rebuilt) else await kept_turns(store, name)
        return name, found, kept

    session, found, kept = with_store(url, where, work)
    if found is None:
        _list(session, kept, as_json=as_json)
    else:
        _print(session, found, kept, as_json=as_json)


def _print(
    session: str, found: Rebuilt | NotRebuilt, kept: tuple[KeptTurn, ...], *, as_json: bool
) -> None:
    from recollect.engine.ledger import NotRebuilt
    from recollect.formats.json_text import decode

    if isinstance(found, NotRebuilt):
        for line in _rows(kept)[-_MOST_LISTED:] if not as_json else ():
            click.echo(line, err=True)
        raise RecollectError(f"session {plain_line(session)!r}: {found.reason}")
    record = found.record
    if as_json:
        print_json(
            {
                "session": session,
                "turn": record.number,
                "at": instant(record.at),
                "format": record.format,
                "model": record.model,
                "exact": found.exact,
                "missing": list(found.missing),
                "redacted": list(found.redacted),
                "bytes": len(found.body),
                "request": decode(found.body),
                "report": None if found.report is None else decode(found.report),
            }
        )
        return
    click.echo(_request_text(found), err=True)
    sys.stdout.buffer.write(found.body)
    sys.stdout.buffer.flush()


def _request_text(rebuilt: Rebuilt) -> str:
    """One line: which turn it is, and whether it is what was sent."""
    record = rebuilt.record
    text = (
        f"turn {record.number}, {when(record.at)}, {record.format}, {len(rebuilt.body):,} bytes: "
    )
    reasons = ["exact" if rebuilt.exact else "not exact"]
    if rebuilt.redacted:
        reasons.append(f"not as it was sent, secrets are masked: {_named(rebuilt.redacted)}")
    if rebuilt.missing:
        reasons.append(f"no longer kept: {_named(rebuilt.missing)}")
    return text + "; ".join(reasons)


def _named(things: tuple[str, ...]) -> str:
    left = len(things) - _MOST_NAMED
    return ", ".join(things[:_MOST_NAMED]) + (f" and {left:,} more" if left > 0 else "")


def _list(session: str, kept: tuple[KeptTurn, ...], *, as_json: bool) -> None:
    if as_json:
        turns = [
            {"turn": turn.turn, "at": instant(turn.at), "said": shown_text(turn.said)}
            for turn in kept
        ]
        print_json({"session": session, "turns": turns})
    elif kept:
        for line in _rows(kept):
            click.echo(line)
    else:
        click.echo(f"No turn of session {plain_line(session)!r} is in the ledger.")


def _rows(kept: tuple[KeptTurn, ...]) -> list[str]:
    """A line for every message of the user: the turns that answer it, and its first words."""
    rows = []
    for _, group in groupby(kept, key=lambda turn: turn.asked_by or turn.turn):
        turns = list(group)
        first, last = turns[0], turns[-1]
        span = f"{first.turn}" if first is last else f"{first.turn}-{last.turn}"
        rows.append(f"{span:>9}  {when(first.at)}  {shown_text(first.said) or '(no longer kept)'}")
    return rows
