"""`recollect facts forget`: remove facts for good, on request with the messages they rest on.

Lists what would go and asks, unless told not to; prints the certificate, and nothing of what
was said afterwards.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.errors import RecollectError
from recollect.surfaces.cli.explain_text import plain_line
from recollect.surfaces.cli.facts.shown import book_of, statement, told, with_facts
from recollect.surfaces.cli.memory.said import heading
from recollect.surfaces.cli.store_options import (
    Place,
    console,
    print_json,
    store_options,
)

if TYPE_CHECKING:
    from recollect.ports import Spool, Store
    from recollect.upkeep.matching import Meant
    from recollect.values.upkeep import Certificate, ForgetOrder

_LISTED = 20
_EXCERPT_CHARS = 100
FOLDERS = ("Markdown folders that `recollect facts export` wrote: export again to renew them",)


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

    Digests of the same subject go along. The messages stay, and nothing is extracted from them
    again in the same words; --sources forgets them, too, wherever they were said.
    """

    async def work(store: Store, place: Place) -> Certificate | None:
        order = await book_of(store, place).order_to_forget(ids, sources=sources, versions=versions)
        return await forget_facts(store, place, order, workspace, ask=not yes, draw=not as_json)

    certificate = with_facts(url, space, work)
    if certificate is None:
        raise SystemExit(1)
    print_certificate(certificate, as_json=as_json)


async def forget_facts(
    store: Store,
    place: Place,
    order: ForgetOrder,
    workspace: Path | None,
    *,
    ask: bool,
    draw: bool,
) -> Certificate | None:
    """Ask if need be, and forget; None where the answer was no."""
    from recollect.session.forget_files import FilesOrder, forget_in_files
    from recollect.upkeep.certificates import extended
    from recollect.wiring import open_spool
    from recollect.wiring.models import forget_cached

    spool = await open_spool(place.url, space=place.space, key=place.settings.store.key)
    try:
        meant = await _meant(store, spool, order)
        if ask and not _confirmed(meant, draw=draw):
            return None
        done = None
        if order.segments:  # files first: by then the archive still knows the words
            said = {one.segment.text for one in meant.stored}
            said |= {one.text for one in meant.spooled}
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
        return extended(certificate, counts={}, covers=(), cannot=FOLDERS)
    return extended(
        certificate, counts=done.counts, covers=done.covers, cannot=(*done.cannot, *FOLDERS)
    )


async def _meant(store: Store, spool: Spool, order: ForgetOrder) -> Meant:
    """What would go; facts alone are found without a walk through all that was said."""
    from recollect.upkeep.forget import find_meant
    from recollect.upkeep.matching import Meant as Found
    from recollect.upkeep.matching import facts_meant

    if order.segments:
        return await find_meant(store, [spool], order)
    return Found(facts=await facts_meant(store, order))


def print_certificate(certificate: Certificate, *, as_json: bool) -> None:
    """The certificate, for people or for programs."""
    from recollect.upkeep import certificates as certificates

    if as_json:
        print_json(certificates.certificate_json(certificate))
    else:
        click.echo(certificates.certificate_text(certificate, plain=plain_line))


def _confirmed(meant: Meant, *, draw: bool) -> bool:
    what = f"{len(meant.facts):,} facts"
    if meant.messages:
        what += f" and {meant.messages:,} messages"
    if not draw or not sys.stdin.isatty():
        raise RecollectError(
            f"{what} would be forgotten; say so with --yes, since nobody can be asked here"
        )
    out = console()
    for fact in meant.facts[:_LISTED]:
        out.print(told(fact), soft_wrap=True)
        out.print(f"     {statement(fact)[:_EXCERPT_CHARS]}", soft_wrap=True)
    for one in meant.stored[:_LISTED]:
        out.print(heading(one), soft_wrap=True)
        out.print(f"     {plain_line(one.segment.text)[:_EXCERPT_CHARS]}", soft_wrap=True)
    left = max(len(meant.facts) - _LISTED, 0) + max(meant.messages - _LISTED, 0)
    if left:
        out.print(f"… and {left:,} more")
    return click.confirm(f"Forget {what} for good?", err=True)
