"""`recollect memory evict|reindex|check|scrub|migrate`: looking after a memory."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TextIO

import click

from recollect.errors import RecollectError
from recollect.surfaces.cli.explain_text import plain_line
from recollect.surfaces.cli.memory.spooling import problems_of
from recollect.surfaces.cli.progress import ShownProgress
from recollect.surfaces.cli.store_options import (
    Place,
    moment_from,
    place_of,
    print_json,
    store_options,
    with_store,
)

if TYPE_CHECKING:
    from recollect.ports import Store
    from recollect.upkeep.chores import Reindexed
    from recollect.values.upkeep import CheckResult, ScrubResult

_DAY_SECONDS = 86_400.0


@click.command("evict")
@click.option("--max-segments", type=click.IntRange(0), metavar="N", help="Keep the newest N.")
@click.option("--before", metavar="WHEN", help="All said before: 2026-01-31, or 90d ago.")
@store_options
def evict(
    *, max_segments: int | None, before: str | None, url: str | None, space: str, as_json: bool
) -> None:
    """Move the oldest segments out of the index, never out of the archive.

    Without an option the settings index.max_segments and index.eviction_days hold.
    """
    said_before = None if before is None else moment_from(before, option="--before")

    async def work(store: Store, place: Place) -> int:
        most, until = max_segments, said_before
        if most is None and until is None:
            most, days = place.settings.index.max_segments, place.settings.index.eviction_days
            until = None if days is None else time.time() - days * _DAY_SECONDS
        return await store.evict(max_segments=most, said_before=until)

    moved = with_store(url, space, work)
    if as_json:
        print_json({"moved": moved})
    else:
        click.echo(
            f"{moved:,} segments are cold now; `search --cold` still finds them"
            if moved
            else "Nothing had to leave the index."
        )


@click.command("reindex")
@store_options
def reindex(*, url: str | None, space: str, as_json: bool) -> None:
    """Cut and tokenise every segment anew; vectors stay where a passage stays.

    Run it after a new version says that its words changed.
    """
    with ShownProgress(quiet=as_json) as progress:

        async def work(store: Store, place: Place) -> Reindexed:
            from recollect.boundary import SystemClock
            from recollect.upkeep.chores import reindex as index_anew

            del place
            show = partial(progress.show, "indexing")
            return await index_anew(store, SystemClock(), show)

        done = with_store(url, space, work)
    if as_json:
        print_json(asdict(done))
    else:
        click.echo(f"{done.segments:,} segments indexed anew, {done.passages:,} passages")


@click.command("check")
@store_options
def check(*, url: str | None, space: str, as_json: bool) -> None:
    """Check store and spool; exit code 1 when something is not as it should be."""

    async def work(store: Store, place: Place) -> CheckResult:
        from recollect.wiring import spool_state

        found = await store.check()
        key = place.settings.store.key
        waiting = await spool_state(place.url, space=place.space, key=key)
        told = f"the spool of this machine: {waiting.waiting:,} batches wait"
        return replace(
            found,
            checked=(*found.checked, told),
            problems=(*found.problems, *problems_of(waiting)),
        )

    found = with_store(url, space, work)
    if as_json:
        print_json(asdict(found))
    else:
        for what in found.checked:
            click.echo(f"checked  {plain_line(what)}")
        for problem in found.problems:
            click.echo(f"PROBLEM  {plain_line(problem)}")
        click.echo(
            f"{len(found.problems):,} problems" if found.problems else "Everything is in order."
        )
    if found.problems:
        raise SystemExit(1)


@click.command("scrub")
@click.option(
    "--admin-url",
    metavar="URL",
    help="PostgreSQL as the owner of the tables, who alone may rewrite them.",
)
@store_options
def scrub(*, url: str | None, space: str, as_json: bool, admin_url: str | None) -> None:
    """See to it that what was removed is in no file either; may take long."""

    async def work(store: Store, place: Place) -> ScrubResult:
        from recollect.wiring import scrub_store

        del place
        return await scrub_store(store, admin_url=admin_url)

    found = with_store(url, space, work)
    if as_json:
        print_json(asdict(found))
        return
    for what in found.done:
        click.echo(f"done    {plain_line(what)}")
    for what in found.cannot:
        click.echo(f"cannot  {plain_line(what)}")


@click.command("migrate")
@click.argument("server", required=False, metavar="[URL]")
@click.option(
    "--phase",
    type=click.Choice(["pre", "post", "all"]),
    default="all",
    show_default=True,
    help="pre before the new version runs, post when no older one is left.",
)
@click.option("--app-role", metavar="ROLE", help="The role that the application uses.")
@click.option(
    "--app-password-file",
    "password_file",
    type=click.File("r"),
    metavar="FILE",
    help="Let that role log in with the password in FILE; a dash reads standard input.",
)
@store_options
def migrate(
    *,
    server: str | None,
    phase: Literal["pre", "post", "all"],
    app_role: str | None,
    password_file: TextIO | None,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """Bring a PostgreSQL database to this version's schema; give its owner's URL.

    SQLite files are brought up to date when they are opened.
    """
    place = place_of(server or url, space)
    if place.url is None or not place.url.startswith(("postgresql://", "postgres://")):
        raise RecollectError(
            "migrate is for PostgreSQL: give postgresql://OWNER@HOST/DATABASE "
            "(SQLite files are brought up to date when they are opened)"
        )
    from recollect.stores.postgres.schema import APP_ROLE
    from recollect.stores.postgres.schema import migrate as migrate_server

    password = None if password_file is None else password_file.readline().rstrip("\r\n")
    done = asyncio.run(
        migrate_server(
            place.url, phase=phase, app_role=app_role or APP_ROLE, app_password=password or None
        )
    )
    if as_json:
        print_json({"applied": list(done)})
        return
    for name in done:
        click.echo(f"applied  {plain_line(name)}")
    if not done:
        click.echo("The schema is up to date.")
