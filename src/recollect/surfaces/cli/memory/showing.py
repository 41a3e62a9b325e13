"""`recollect memory show ID|SESSION`: a segment with its neighbours, or a session."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from recollect.errors import RecollectError
from recollect.surfaces.cli.explain_text import plain_line
from recollect.surfaces.cli.memory.said import as_json as segment_as_json
from recollect.surfaces.cli.memory.said import heading
from recollect.surfaces.cli.store_options import (
    Place,
    console,
    plain_text,
    print_json,
    store_options,
    with_store,
)
from recollect.values.segment import SegmentId

if TYPE_CHECKING:
    from recollect.ports import Store
    from recollect.values.segment import StoredSegment

_ID = re.compile(r"[0-9a-f]{32}")
_EXCERPT_CHARS = 400


@click.command("show")
@click.argument("what", metavar="ID|SESSION")
@click.option("--around", default=2, show_default=True, metavar="N", help="Neighbours each side.")
@click.option("--limit", default=50, show_default=True, metavar="N", help="Newest of a session.")
@store_options
def show(*, what: str, around: int, limit: int, url: str | None, space: str, as_json: bool) -> None:
    """Show a segment with what was said around it, or the newest of a session."""

    async def work(store: Store, place: Place) -> tuple[StoredSegment | None, list[StoredSegment]]:
        del place
        if _ID.fullmatch(what):
            found = await store.segments([SegmentId(what)])
            if found:
                return found[0], await _around(store, found[0], max(around, 0))
        newest = await store.page(session=what, limit=max(limit, 1), descending=True)
        return None, list(reversed(newest))

    asked, shown = with_store(url, space, work, spool="told")
    if not shown:
        raise RecollectError(
            f"{plain_line(what)!r} is neither a segment nor a session of this space; "
            "`recollect memory sessions` lists the sessions, `search` finds segments"
        )
    if as_json:
        told = [segment_as_json(one) for one in shown]
        print_json({"asked": None if asked is None else asked.segment.id, "segments": told})
    else:
        _draw(asked, shown)


async def _around(store: Store, found: StoredSegment, each_side: int) -> list[StoredSegment]:
    if not each_side:
        return [found]
    session = found.segment.session
    before = await store.page(
        after=found.sequence, limit=each_side, session=session, descending=True
    )
    after = await store.page(after=found.sequence, limit=each_side, session=session)
    return [*reversed(before), found, *after]


def _draw(asked: StoredSegment | None, shown: list[StoredSegment]) -> None:
    out = console()
    for one in shown:
        whole = asked is not None and one.segment.id == asked.segment.id
        out.print(heading(one), soft_wrap=True)
        text = plain_text(one.segment.text).strip("\n")
        if not whole and len(text) > _EXCERPT_CHARS:
            left = len(text) - _EXCERPT_CHARS
            text = f"{text[:_EXCERPT_CHARS].rstrip()}… ({left:,} more characters)"
        out.print(text, style="" if whole or asked is None else "dim", soft_wrap=True)
        out.print()
