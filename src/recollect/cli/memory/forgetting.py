"""`recollect memory forget`: remove messages for good, and print the certificate.

Lists what would go and asks, unless told not to. Never prints more of a message than its
heading and an excerpt, and nothing of it afterwards.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.cli.memory.looking import heading, heading_of
from recollect.cli.store_options import (
    Place,
    console,
    moment_from,
    print_json,
    store_options,
    when,
    with_store,
)
from recollect.core.values.segment import SegmentId
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import RecollectError
from recollect.hosts.inspect.sessions import stored_session
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.adapters.session.forget_files import FilesForgotten, FilesOrder
    from recollect.core.ports import Store
    from recollect.core.upkeep.matching import ForgetTargets
    from recollect.core.values.upkeep import Certificate

_LISTED = 20
_EXCERPT_CHARS = 100


@click.command("forget")
@click.option("--segment", "segments", multiple=True, metavar="ID", help="This segment.")
@click.option("--session", "sessions", multiple=True, metavar="NAME", help="All of this session.")
@click.option("--before", metavar="WHEN", help="All said before: 2026-01-31, or 30d ago.")
@click.option("--since", metavar="WHEN", help="All said since: 2026-01-31, or 2h ago.")
@click.option("--matching", metavar="TEXT", help="All that hold this text, facts too, case aside.")
@click.option("--pattern", metavar="REGEX", help="All that hold what this matches, facts too.")
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Also lines of its daily notes, memory/YYYY-MM-DD.md.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("-v", "--verbose", is_flag=True, help="The whole certificate, as --json has it.")
@store_options
def forget(
    *,
    verbose: bool,
    segments: tuple[str, ...],
    sessions: tuple[str, ...],
    before: str | None,
    since: str | None,
    matching: str | None,
    pattern: str | None,
    workspace: Path | None,
    yes: bool,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """Forget messages for good and print a certificate.

    They are removed from archive, index, vectors, facts, ledger, jobs and spool, and from the
    transcripts of Recollect's own agent in this space, and stay out when a history is sent
    again. --segment, --matching and --pattern mean what was said, wherever it was said. --session,
    --since and --before mean just these messages; together, those that all of them name.
    """
    order = ForgetOrder(
        at=time.time(),
        segments=tuple(SegmentId(segment) for segment in segments),
        sessions=sessions,
        said_before=None if before is None else moment_from(before, option="--before"),
        said_after=None if since is None else moment_from(since, option="--since"),
        matching=matching,
        pattern=pattern,
    )
    _require_sensible(order)

    async def work(store: Store, place: Place) -> Certificate | None:
        return await _forget(store, place, order, workspace, ask=not yes, draw=not as_json)

    certificate = with_store(url, space, work)
    if certificate is None:
        raise SystemExit(1)
    nothing = not any(certificate.counts.values())
    if as_json or not nothing:  # a program reads the zeros
        _print(certificate, as_json=as_json, whole=verbose)
    if nothing:
        _say_nothing_matches(certificate.cannot)
        raise SystemExit(1)


def _require_sensible(order: ForgetOrder) -> None:
    from recollect.core.upkeep.masks import own_patterns

    texts = order.matching or order.pattern
    if not (order.segments or order.sessions or order.by_time or texts):
        raise RecollectError(
            "say what to forget: --segment, --session, --since, --before, --matching or --pattern"
        )
    if order.matching is not None and not order.matching.strip():
        raise RecollectError("--matching: every message holds that; give a text")
    if order.pattern is not None:
        own_patterns((order.pattern,))


async def _forget(
    store: Store, place: Place, order: ForgetOrder, workspace: Path | None, *, ask: bool, draw: bool
) -> Certificate | None:
    from recollect.adapters.session.forget_files import forget_in_files, sessions_named
    from recollect.adapters.wiring import open_spool
    from recollect.adapters.wiring.models import forget_cached
    from recollect.core.upkeep.certificates import extended
    from recollect.core.upkeep.forget import find_meant
    from recollect.core.upkeep.forget import forget as forget_all
    from recollect.core.upkeep.matching import ForgetTargets

    meant_by = [await stored_session(store, session) for session in order.sessions]
    order = replace(order, sessions=sessions_named(place.space, meant_by))
    spool = await open_spool(place.url, space=place.space, key=place.settings.store.key)
    try:
        # Who is not asked needs the words alone: by age they may be all of the archive's.
        words = bool(ask or order.segments or workspace)
        meant = await find_meant(store, [spool], order) if words else ForgetTargets()
        files = _files_order(meant, order, workspace)
        if ask:
            seen = await asyncio.to_thread(forget_in_files, place.space, files, only_look=True)
            if meant.nothing and not any(seen.counts.values()):
                _say_nothing_matches(seen.cannot)
                return None
            if not _confirmed(meant, seen, order, draw=draw):
                return None
        # Files first: by then the archive still knows the words, should this be interrupted.
        done = await asyncio.to_thread(forget_in_files, place.space, files)
        certificate = await forget_all(
            store, [spool], order, now=order.at, cascades=(forget_cached,)
        )
    finally:
        await spool.close()
    return extended(certificate, counts=done.counts, covers=done.covers, cannot=done.cannot)


def _files_order(meant: ForgetTargets, order: ForgetOrder, workspace: Path | None) -> FilesOrder:
    from recollect.adapters.session.forget_files import FilesOrder

    segments = [*(segment.segment for segment in meant.stored), *meant.spooled]
    named = frozenset(order.segments)
    return FilesOrder(
        order=order,
        said=tuple({segment.text for segment in segments if segment.id in named}),
        all_said=tuple({segment.text for segment in segments}) if workspace is not None else (),
        workspace=workspace,
    )


def _confirmed(
    meant: ForgetTargets, files: FilesForgotten, order: ForgetOrder, *, draw: bool
) -> bool:
    what = _counted(meant, files)
    if draw:
        _draw_meant(meant)
    if not draw or not sys.stdin.isatty():
        raise RecollectError(
            f"{what} would be forgotten; cannot ask for confirmation (no terminal): pass --yes"
        )
    if order.by_time:
        what += f", all said {_time_of(order)} among them"
    return click.confirm(f"Forget {what} for good?", err=True)


def _draw_meant(meant: ForgetTargets) -> None:
    out = console()
    shown = [(heading(segment), segment.segment.text) for segment in meant.stored[:_LISTED]]
    shown += [
        (heading_of(segment), segment.text) for segment in meant.spooled[: _LISTED - len(shown)]
    ]
    for line, text in shown:
        out.print(line, soft_wrap=True)
        out.print(f"     {plain_line(text)[:_EXCERPT_CHARS]}", soft_wrap=True)
    for fact in meant.facts[:_LISTED]:
        out.print(f"fact  {when(fact.at)}  {plain_line(fact.id)}", soft_wrap=True)
        out.print(f"     {plain_line(fact.content)[:_EXCERPT_CHARS]}", soft_wrap=True)
    left = meant.messages - len(shown) + max(len(meant.facts) - _LISTED, 0)
    if left:
        out.print(f"… and {left:,} more")


def _time_of(order: ForgetOrder) -> str:
    parts = [] if order.said_after is None else [f"since {when(order.said_after)}"]
    if order.said_before is not None:
        parts.append(f"before {when(order.said_before)}")
    return " and ".join(parts)


def _counted(meant: ForgetTargets, files: FilesForgotten) -> str:
    from recollect.core.upkeep.certificates import counted

    text = counted(meant.messages, "messages")
    if meant.spooled:
        text += f" ({len(meant.spooled):,} of them in the spool)"
    digests = sum(fact.type == "digest" for fact in meant.facts)
    if len(meant.facts) > digests:
        text += f", {counted(len(meant.facts) - digests, 'facts')}"
    if digests:
        text += f", {counted(digests, 'digests')}"
    if meant.records:
        text += f", {counted(meant.records, 'records in ledger, jobs and session states')}"
    also = "".join(f", {counted(count, what)}" for what, count in files.counts.items() if count)
    return f"{text}{also}"


def _say_nothing_matches(cannot: Sequence[str]) -> None:
    """Say so, and what nobody could look into: it may be there."""
    click.echo("Nothing that is stored matches that; nothing was forgotten.", err=True)
    for line in cannot:
        if line not in _standing():
            click.echo(f"Not looked into: {plain_line(line)}", err=True)


def _standing() -> frozenset[str]:
    from recollect.adapters.session.forget_files import STANDING
    from recollect.core.upkeep.forget import CANNOT

    return frozenset((*CANNOT, *STANDING))


def _print(certificate: Certificate, *, as_json: bool, whole: bool) -> None:
    from recollect.core.upkeep import certificates as certificates

    if as_json:
        print_json(certificates.certificate_json(certificate))
    else:
        standing = () if whole else _standing()
        click.echo(certificates.certificate_text(certificate, plain=plain_line, standing=standing))
