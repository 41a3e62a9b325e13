"""`recollect receipt SESSION`: what a compaction kept, what can be recalled, and what is lost.

Reads only. Data goes to standard output. The page and `--json` show the same record.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.cli.store_options import (
    Place,
    console,
    meant_session,
    print_json,
    session_store_options,
    when,
    with_store,
)
from recollect.errors import RecollectError
from recollect.hosts.inspect.receipts import Receipts, read_receipts
from recollect.hosts.inspect.sessions import stored_session
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.core.ports import Store


@click.command("receipt")
@click.option("--number", type=click.IntRange(min=1), metavar="N", help="Not the newest, this one.")
@click.option("--list", "listed", is_flag=True, help="List the session's compactions.")
@session_store_options
def receipt(
    *,
    session: str,
    number: int | None,
    listed: bool,
    url: str | None,
    space: str | None,
    workspace: Path,
    as_json: bool,
) -> None:
    """Show what a compaction kept, what can be recalled, and what is lost."""
    session, where = meant_session(session, space, workspace, url)

    async def work(store: Store, place: Place) -> Receipts:
        del place
        return await read_receipts(store, await stored_session(store, session))

    found = with_store(url, where, work, spool="told")
    name = plain_line(found.session)
    if listed:
        _list(found, as_json=as_json)
        return
    if not found.records:
        hint = (
            "`recollect memory sessions` lists the sessions; programs that call open_memory() "
            "write to another space by default: try --space default"
        )
        if found.is_known:
            hint = (
                "an agent that compacts by itself leaves no receipt. What its summary dropped is "
                f"in memory: `recollect memory show {shlex.quote(name)}`"
            )
        raise RecollectError(f"no compaction of session {name!r} is kept in this space; {hint}")
    page = found.page(number)
    if as_json:
        print_json(page.as_json())
        return
    from recollect.hosts.inspect.drawn import Sheet, draw_receipt  # loads rich

    out = console()
    for line in draw_receipt(page, Sheet.of(out)):
        out.print(line)


def _list(found: Receipts, *, as_json: bool) -> None:
    rows = found.rows()
    if as_json:
        print_json({"session": found.session, "compactions": rows})
        return
    if not rows:
        name = plain_line(found.session)
        click.echo(f"No compaction of session {name!r} is kept in this space.")
        return
    click.echo("   n  when              trigger     tokens             lost  recallable  pinned")
    for record, row in zip(found.records, rows, strict=True):
        tokens = f"{row['tokens_before']:>8,} → {row['tokens_after']:<8,}"
        click.echo(
            f"{record.number:>4}  {when(record.at):16}  {row['trigger']:10}{tokens} "
            f"{row['lost']:>5}  {row['recallable']:>10}  {row['pinned']:>6}"
            + ("  undone" if row["undone"] else "")
        )
