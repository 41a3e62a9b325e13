"""`recollect facts add|edit|forget`: facts that people write, correct and remove.

`forget` lists what it would remove and asks, unless `--yes` is given. It prints a certificate that
holds no message content.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.cli.facts.listing import (
    TypeChoice,
    book_of,
    fact_as_json,
    fact_line,
    is_past,
    shown_id,
    statement,
    with_facts,
)
from recollect.cli.memory.looking import heading
from recollect.cli.store_options import (
    Place,
    console,
    filling_store_options,
    print_json,
    store_options,
    with_store,
)
from recollect.core.values.fact import EXTRACTED_TYPES
from recollect.errors import RecollectError
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.core.facts.results import FactWritten
    from recollect.core.ports import Spool, Store
    from recollect.core.upkeep.matching import ForgetTargets
    from recollect.core.values.fact import FactType
    from recollect.core.values.upkeep import Certificate, ForgetOrder


# `recollect facts add` and `edit`: what a person knows better.


@click.command("add")
@click.argument("text", metavar="TEXT")
@click.option(
    "--type", "kind", type=TypeChoice(EXTRACTED_TYPES), help="Its type. Default: by its words."
)
@click.option("--subject", default="", metavar="NAME", help="What it is about.")
@filling_store_options
def add(
    *, text: str, kind: FactType | None, subject: str, url: str | None, space: str, as_json: bool
) -> None:
    """Write a fact in your own words; a dash reads it from standard input.

    What it corrects is replaced, and kept as history.
    """

    async def work(store: Store, place: Place) -> FactWritten:
        return await book_of(store, place).add(_words(text), type=kind, subject=subject)

    _print_written(with_store(url, space, work, create=True), as_json=as_json)


@click.command("edit")
@click.argument("id_", metavar="ID")
@click.argument("text", metavar="[TEXT]", required=False)
@click.option("--type", "kind", type=TypeChoice(EXTRACTED_TYPES), help="Another type.")
@store_options
def edit(
    *, id_: str, text: str | None, kind: FactType | None, url: str | None, space: str, as_json: bool
) -> None:
    """Correct a fact: a new version in your words; the one before is kept as history.

    With --type alone the words stay as they are, and so does who said them.
    """
    if text is None and kind is None:
        raise RecollectError("say what it should be: the new TEXT, --type, or both")

    async def work(store: Store, place: Place) -> FactWritten:
        book = book_of(store, place)
        fact = await book.find(id_)
        if text is None and kind in (None, fact.type):
            return Unchanged(outcome="known", fact=fact, reason="it is of that type already")
        words = fact.content if text is None else _words(text)
        return await book.edit(fact.id, words, type=kind)

    from recollect.core.facts.results import FactWritten as Unchanged

    _print_written(with_facts(url, space, work), as_json=as_json)


def _words(text: str) -> str:
    return sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text


def _print_written(written: FactWritten, *, as_json: bool) -> None:
    if as_json:
        print_json(written_as_json(written))
    else:
        _draw_written(written)
    if written.masked:
        click.echo(f"recollect: {written.masked} secrets in it were masked", err=True)
    if written.outcome == "refused":
        raise SystemExit(1)


def written_as_json(written: FactWritten) -> dict[str, object]:
    """What became of a statement."""
    return {
        "outcome": written.outcome,
        "fact": None if written.fact is None else fact_as_json(written.fact),
        "replaced": [fact.id for fact in written.replaced],
        "reason": written.reason,
    }


def written_line(written: FactWritten) -> str:
    """What was done, in a few words."""
    fact = written.fact
    named = "" if fact is None else f" {shown_id(fact.id)}"
    if written.outcome == "replaced" and written.replaced:
        return f"replaced {', '.join(shown_id(fact.id) for fact in written.replaced)}, now{named}"
    if written.outcome in ("added", "replaced"):
        before = fact is not None and is_past(fact)
        return f"added{named}" + (" as what held before" if before else "")
    if written.outcome == "known":
        return f"already known{named}" if named else f"already known: {written.reason}"
    return f"refused: {written.reason}"


def _draw_written(written: FactWritten) -> None:
    out = console()
    out.print(written_line(written), soft_wrap=True)
    if written.fact is not None:
        out.print(fact_line(written.fact), soft_wrap=True)
        out.print(f"     {statement(written.fact)}", soft_wrap=True)
    for fact in written.replaced:
        out.print(f"     before: {statement(fact)}", style="dim", soft_wrap=True)


# `recollect facts forget`: remove facts for good, on request with the messages they rest on


_LISTED = 20
_EXCERPT_CHARS = 100


@click.command("forget")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@click.option("--sources", is_flag=True, help="Also the messages they rest on.")
@click.option("--versions", is_flag=True, help="Also their other versions.")
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="With --sources: also lines of its daily notes.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_options
def forget(
    *,
    ids: tuple[str, ...],
    sources: bool,
    versions: bool,
    workspace: Path | None,
    yes: bool,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """Forget facts for good and print a certificate.

    The messages stay, and nothing is extracted from them again in the same words; --sources forgets
    them, too, wherever they were said.
    """

    async def work(store: Store, place: Place) -> Certificate | None:
        order = await book_of(store, place).order_to_forget(ids, sources=sources, versions=versions)
        return await forget_facts(store, place, order, workspace, ask=not yes, draw=not as_json)

    certificate = with_facts(url, space, work)
    if certificate is None:
        raise SystemExit(1)
    print_certificate(certificate, as_json=as_json)


async def forget_facts(
    store: Store, place: Place, order: ForgetOrder, workspace: Path | None, *, ask: bool, draw: bool
) -> Certificate | None:
    """Ask if need be, and forget; None where the answer was no."""
    from recollect.adapters.session.forget_files import FilesOrder, forget_in_files
    from recollect.adapters.wiring import open_spool
    from recollect.adapters.wiring.models import forget_cached
    from recollect.core.upkeep.certificates import extended

    spool = await open_spool(place.url, space=place.space, key=place.settings.store.key)
    try:
        meant = await _meant(store, spool, order)
        if ask and not _confirmed(meant, draw=draw):
            return None
        done = None
        if order.segments:  # files first: by then the archive still knows the words
            said = {segment.segment.text for segment in meant.stored}
            said |= {segment.text for segment in meant.spooled}
            files = FilesOrder(
                order=order, said=tuple(said), all_said=tuple(said), workspace=workspace
            )
            done = await asyncio.to_thread(forget_in_files, place.space, files)
        certificate = await book_of(store, place).forget(
            order, spools=[spool], cascades=(forget_cached,)
        )
    finally:
        await spool.close()
    if done is None:
        return certificate
    return extended(certificate, counts=done.counts, covers=done.covers, cannot=done.cannot)


async def _meant(store: Store, spool: Spool, order: ForgetOrder) -> ForgetTargets:
    """What would go; facts alone are found without a walk through all that was said."""
    from recollect.core.upkeep.forget import find_meant
    from recollect.core.upkeep.matching import ForgetTargets as Found
    from recollect.core.upkeep.matching import facts_meant

    if order.segments:
        return await find_meant(store, [spool], order)
    return Found(facts=await facts_meant(store, order))


def print_certificate(certificate: Certificate, *, as_json: bool) -> None:
    """The certificate, for people or for programs."""
    from recollect.core.upkeep import certificates as certificates

    if as_json:
        print_json(certificates.certificate_json(certificate))
    else:
        click.echo(certificates.certificate_text(certificate, plain=plain_line))


def _confirmed(meant: ForgetTargets, *, draw: bool) -> bool:
    from recollect.core.upkeep.certificates import counted

    what = counted(len(meant.facts), "facts")
    if meant.messages:
        what += f" and {counted(meant.messages, 'messages')}"
    if draw:
        _draw_meant(meant)
    if not draw or not sys.stdin.isatty():
        raise RecollectError(
            f"{what} would be forgotten; cannot ask for confirmation (no terminal): pass --yes"
        )
    return click.confirm(f"Forget {what} for good?", err=True)


def _draw_meant(meant: ForgetTargets) -> None:
    out = console()
    for fact in meant.facts[:_LISTED]:
        out.print(fact_line(fact), soft_wrap=True)
        out.print(f"     {statement(fact)[:_EXCERPT_CHARS]}", soft_wrap=True)
    for segment in meant.stored[:_LISTED]:
        out.print(heading(segment), soft_wrap=True)
        out.print(f"     {plain_line(segment.segment.text)[:_EXCERPT_CHARS]}", soft_wrap=True)
    left = max(len(meant.facts) - _LISTED, 0) + max(meant.messages - _LISTED, 0)
    if left:
        out.print(f"… and {left:,} more")
