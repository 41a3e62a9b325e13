"""`recollect memory forget`: remove messages for good, and print the certificate.

Lists what would go and asks, unless told not to. Never prints more of a message than its
heading and an excerpt, and nothing of it afterwards.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from recollect.errors import RecollectError
from recollect.surfaces.cli.explain_text import plain_line
from recollect.surfaces.cli.memory.said import heading
from recollect.surfaces.cli.store_options import (
    Place,
    console,
    moment_from,
    print_json,
    store_options,
    when,
    with_store,
)
from recollect.values.segment import SegmentId
from recollect.values.upkeep import ForgetOrder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from recollect.ports import Store
    from recollect.values.certificate import Certificate
    from recollect.values.segment import StoredSegment

_LISTED = 20
_EXCERPT_CHARS = 100
_PAGE_SEGMENTS = 500


@click.command("forget")
@click.option("--segment", "segments", multiple=True, metavar="ID", help="This segment.")
@click.option("--session", "sessions", multiple=True, metavar="NAME", help="All of this session.")
@click.option("--before", metavar="WHEN", help="All said before: 2026-01-31, or 30d ago.")
@click.option("--matching", metavar="TEXT", help="All that hold this text, case aside.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_options
def forget(
    *,
    segments: tuple[str, ...],
    sessions: tuple[str, ...],
    before: str | None,
    matching: str | None,
    yes: bool,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """Forget messages for good and print a certificate.

    They are removed from archive, index, vectors, ledger, jobs and spool, and stay out when a
    history is sent again. The ways of naming them add up.
    """
    if not (segments or sessions or before or matching):
        raise RecollectError("say what to forget: --segment, --session, --before or --matching")
    if matching is not None and not matching.strip():
        raise RecollectError("--matching: every message holds that; give a text")
    order = ForgetOrder(
        at=time.time(),
        segments=tuple(SegmentId(one) for one in segments),
        sessions=sessions,
        said_before=None if before is None else moment_from(before, option="--before"),
    )

    async def work(store: Store, place: Place) -> Certificate | None:
        return await _forget(store, place, order, matching, ask=not yes, draw=not as_json)

    certificate = with_store(url, space, work)
    if certificate is None:
        raise SystemExit(1)
    _print(certificate, as_json=as_json)


async def _forget(
    store: Store,
    place: Place,
    order: ForgetOrder,
    matching: str | None,
    *,
    ask: bool,
    draw: bool,
) -> Certificate | None:
    from recollect.memory.forget import forget as forget_all
    from recollect.wiring import open_spool

    found = [one async for one in _meant(store, order, matching)]
    if matching is not None:
        ids = tuple(one.segment.id for one in found)
        order = replace(order, segments=tuple(dict.fromkeys((*order.segments, *ids))))
    if ask and not _confirmed(found, order, draw=draw):
        return None
    spool = await open_spool(place.url, space=place.space, key=place.settings.store.key)
    try:
        return await forget_all(store, [spool], order, now=order.at)
    finally:
        await spool.close()


async def _meant(
    store: Store, order: ForgetOrder, matching: str | None
) -> AsyncIterator[StoredSegment]:
    """The segments that an order names, in the order of arrival; all are looked at."""
    wanted = None if matching is None else matching.casefold()
    after = 0
    while page := await store.page(after=after, limit=_PAGE_SEGMENTS):
        after = page[-1].sequence
        for one in page:
            segment = one.segment
            if (
                segment.id in order.segments
                or segment.session in order.sessions
                or (order.said_before is not None and segment.said_at < order.said_before)
                or (wanted is not None and wanted in segment.text.casefold())
            ):
                yield one


def _confirmed(found: list[StoredSegment], order: ForgetOrder, *, draw: bool) -> bool:
    if not draw or not sys.stdin.isatty():
        raise RecollectError(
            f"{len(found):,} messages would be forgotten; say so with --yes, since nobody can be "
            "asked here"
        )
    if not found:
        click.echo("Nothing that is stored is meant by that.", err=True)
    out = console()
    for one in found[:_LISTED]:
        out.print(heading(one), soft_wrap=True)
        out.print(f"     {plain_line(one.segment.text)[:_EXCERPT_CHARS]}", soft_wrap=True)
    if len(found) > _LISTED:
        out.print(f"… and {len(found) - _LISTED:,} more")
    what = f"{len(found):,} messages"
    if order.said_before is not None:
        what += f", all said before {when(order.said_before)} among them"
    return click.confirm(f"Forget {what} for good?", err=True)


def _print(certificate: Certificate, *, as_json: bool) -> None:
    from recollect.memory import certificate as certificates

    if as_json:
        print_json(certificates.as_json(certificate))
    else:
        click.echo(certificates.as_text(certificate))
