"""`recollect receipt SESSION`: what a compaction did to what was known, as a page.

Reads only. Data goes to standard output; text from a memory is printed so that it cannot move
the cursor. What the page shows and what `--json` prints are the same record.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from recollect.errors import FormatError, RecollectError
from recollect.surfaces.cli.explain_text import plain_line
from recollect.surfaces.cli.receipt_page import ReceiptPage
from recollect.surfaces.cli.store_options import (
    Place,
    console,
    instant,
    print_json,
    store_options,
    when,
    with_store,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recollect.ports import Store
    from recollect.values.batch import StoredSession
    from recollect.values.compaction import CompactionRecord


@click.command("receipt")
@click.argument("session", metavar="SESSION")
@click.option("--number", type=click.IntRange(min=1), metavar="N", help="Not the newest, this one.")
@click.option("--list", "listed", is_flag=True, help="List the session's compactions.")
@store_options
def receipt(
    *,
    session: str,
    number: int | None,
    listed: bool,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """Show what a compaction kept, what can be recalled, and what is lost."""

    async def work(
        store: Store, place: Place
    ) -> tuple[Sequence[CompactionRecord], StoredSession | None]:
        del place
        return await store.compactions(session), await store.session(session)

    records, state = with_store(url, space, work, spool="told")
    standing = _standing(state)
    if listed:
        _list(session, records, standing, as_json=as_json)
        return
    if not records:
        raise RecollectError(
            f"no compaction of session {plain_line(session)!r} is kept in this space; "
            "`recollect memory sessions` lists the sessions"
        )
    page = page_of(session, records, number, standing)
    if as_json:
        print_json(as_object(page))
        return
    from recollect.surfaces.cli.draw_paint import Sheet
    from recollect.surfaces.cli.draw_receipt import draw_receipt

    out = console()
    for line in draw_receipt(page, Sheet.of(out)):
        out.print(line)


def _standing(state: StoredSession | None) -> int | None:
    """The number of the compaction whose summary the view shows; None where it is not known."""
    from recollect.formats.stored_records import join_state
    from recollect.values.history import newest_cut

    if state is None:
        return None
    try:
        cut = newest_cut(join_state(state.state, state.path, state.ids).edits)
    except FormatError:
        return None
    return 0 if cut is None else cut.number


def page_of(
    session: str,
    records: Sequence[CompactionRecord],
    number: int | None,
    standing: int | None = None,
) -> ReceiptPage:
    """The page of this compaction, or of the newest; `standing` is the one that the view shows."""
    from recollect.formats.stored_records import read_record

    newest = records[-1].number
    wanted = newest if number is None else number
    at = next((at for at, one in enumerate(records) if one.number == wanted), None)
    if at is None:
        kept = ", ".join(str(one.number) for one in records)
        raise RecollectError(f"--number {wanted}: no such compaction is kept; there are {kept}")
    # without the record right before it a diff would show what an older one had
    before = records[at - 1] if at and records[at - 1].number == wanted - 1 else None
    return ReceiptPage(
        session=session,
        number=wanted,
        of=newest,
        undone=standing is not None and wanted > standing,
        recorded=read_record(records[at].body),
        previous_summary="" if before is None else read_record(before.body).result.summary,
        previous_number=None if before is None else before.number,
    )


def as_object(page: ReceiptPage) -> dict[str, Any]:
    """The page as `--json` prints it."""
    from recollect.compaction.receipt import compare

    result = page.recorded.result
    diff = compare(page.previous_summary, result.summary) if page.previous_number else ()
    return {
        "session": page.session,
        **result.to_dict(),
        "undone": page.undone,
        "at": instant(page.recorded.at),
        "turn": page.recorded.turn,
        "previous_number": page.previous_number,
        "diff": [{"change": one.change, "text": one.text} for one in diff if one.change != "kept"],
    }


def _list(
    session: str, records: Sequence[CompactionRecord], standing: int | None, *, as_json: bool
) -> None:
    rows = [
        {**_row(one), "undone": standing is not None and one.number > standing} for one in records
    ]
    if as_json:
        print_json({"session": session, "compactions": rows})
        return
    if not rows:
        click.echo(f"No compaction of session {plain_line(session)!r} is kept in this space.")
        return
    click.echo("   n  when              trigger     tokens             lost  recallable  pinned")
    for record, row in zip(records, rows, strict=True):
        tokens = f"{row['tokens_before']:>8,} → {row['tokens_after']:<8,}"
        click.echo(
            f"{record.number:>4}  {when(record.at):16}  {row['trigger']:10}{tokens} "
            f"{row['lost']:>5}  {row['recallable']:>10}  {row['pinned']:>6}"
            + ("  undone" if row["undone"] else "")
        )


def _row(record: CompactionRecord) -> dict[str, Any]:
    from recollect.formats.stored_records import read_record

    try:
        result = read_record(record.body).result
    except FormatError as error:
        raise RecollectError(f"compaction {record.number} cannot be read: {error}") from error
    findings = result.receipt.findings if result.receipt else ()
    standings = Counter(one.standing for one in findings)
    return {
        "number": record.number,
        "at": instant(record.at),
        "trigger": result.trigger,
        "tokens_before": result.tokens_before,
        "tokens_after": result.tokens_after,
        "in_summary": standings["in summary"],
        "recallable": standings["recallable"],
        "lost": standings["lost"],
        "pinned": sum(one.pinned for one in findings),
    }
