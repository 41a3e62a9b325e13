"""`recollect replay SESSION --turn N`: the request of a past turn, rebuilt from the ledger.

The request goes to standard output, byte for byte; what is to be said about it to standard
error, so that the bytes can be piped. Reads only.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from recollect.errors import RecollectError
from recollect.surfaces.cli.explain_text import plain_line
from recollect.surfaces.cli.store_options import (
    Place,
    instant,
    print_json,
    store_options,
    when,
    with_store,
)

if TYPE_CHECKING:
    from recollect.engine.rebuilding import NotRebuilt, Rebuilt
    from recollect.ports import Store

_MOST_NAMED = 5


@click.command("replay")
@click.argument("session", metavar="SESSION")
@click.option("--turn", type=click.IntRange(min=1), metavar="N", help="Which turn.")
@click.option("--list", "listed", is_flag=True, help="List the turns that are kept.")
@store_options
def replay(
    *,
    session: str,
    turn: int | None,
    listed: bool,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """Print the request of a past turn as it was sent."""
    if listed:
        _list(session, _kept_turns(session, url, space), as_json=as_json)
        return
    if turn is None:
        raise RecollectError("say which turn: --turn N, or --list for those that are kept")

    async def work(store: Store, place: Place) -> Rebuilt | NotRebuilt:
        from recollect.engine.rebuilding import rebuild_request

        del place
        return await rebuild_request(store, session, turn)

    _print(session, with_store(url, space, work), as_json=as_json)


def _kept_turns(session: str, url: str | None, space: str) -> tuple[int, ...]:
    async def work(store: Store, place: Place) -> tuple[int, ...]:
        del place
        return tuple(await store.turns(session))

    return with_store(url, space, work)


def _print(session: str, found: Rebuilt | NotRebuilt, *, as_json: bool) -> None:
    from recollect.engine.rebuilding import NotRebuilt
    from recollect.formats.json_spans import decode

    if isinstance(found, NotRebuilt):
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
            }
        )
        return
    click.echo(_told(found), err=True)
    sys.stdout.buffer.write(found.body)
    sys.stdout.buffer.flush()


def _told(found: Rebuilt) -> str:
    """One line: which turn it is, and whether it is what was sent."""
    record = found.record
    said = f"turn {record.number}, {when(record.at)}, {record.format}, {len(found.body):,} bytes: "
    if found.exact:
        return said + "exact"
    reasons = []
    if found.redacted:
        reasons.append(f"not as it was sent, secrets are masked: {_named(found.redacted)}")
    if found.missing:
        reasons.append(f"no longer kept: {_named(found.missing)}")
    return f"{said}not exact; {'; '.join(reasons)}"


def _named(things: tuple[str, ...]) -> str:
    left = len(things) - _MOST_NAMED
    return ", ".join(things[:_MOST_NAMED]) + (f" and {left:,} more" if left > 0 else "")


def _list(session: str, turns: tuple[int, ...], *, as_json: bool) -> None:
    if as_json:
        print_json({"session": session, "turns": list(turns)})
    elif turns:
        for first, last in _runs(turns):
            click.echo(f"{first}" if first == last else f"{first}-{last}")
    else:
        click.echo(f"No turn of session {plain_line(session)!r} is in the ledger.")


def _runs(turns: tuple[int, ...]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for turn in turns:
        if runs and turn == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], turn)
        else:
            runs.append((turn, turn))
    return runs
