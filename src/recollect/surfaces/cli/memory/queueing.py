"""`recollect memory jobs`: what waits to be done in the background, and why something does not."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from recollect.surfaces.cli.explain_text import plain_line
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
    from recollect.ports import Store
    from recollect.values.job import JobRecord, QueueState

_EVERY_KIND = "*"


@click.command("jobs")
@click.option(
    "--pause", is_flag=False, flag_value=_EVERY_KIND, metavar="KIND", help="Hand out none."
)
@click.option(
    "--resume", is_flag=False, flag_value=_EVERY_KIND, metavar="KIND", help="Undo --pause."
)
@click.option("--revive", is_flag=True, help="Let dead jobs wait again.")
@click.option("--limit", default=100, show_default=True, metavar="N")
@store_options
def jobs(
    *,
    pause: str | None,
    resume: str | None,
    revive: bool,
    limit: int,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """List the jobs of a space; pause, resume and revive them.

    KIND is embed, evict, expire or pack; without it all kinds are meant.
    """

    async def work(store: Store, place: Place) -> tuple[QueueState, tuple[JobRecord, ...], int]:
        del place
        now = time.time()
        if pause is not None:
            await store.pause(pause)
        if resume is not None:
            await store.resume(resume)
        revived = await store.revive(at=now) if revive else 0
        today = datetime.fromtimestamp(now, UTC).date().isoformat()
        return await store.queue(day=today), await store.jobs(limit=max(limit, 1)), revived

    queue, found, revived = with_store(url, space, work)
    if as_json:
        listed = [{**asdict(job), "run_at": instant(job.run_at)} for job in found]
        print_json({"queue": asdict(queue), "revived": revived, "jobs": listed})
        return
    if revive:
        click.echo(f"{revived:,} dead jobs wait again")
    _draw(queue, found)


def _draw(queue: QueueState, found: tuple[JobRecord, ...]) -> None:
    said = f"{queue.waiting:,} waiting, {queue.leased:,} running, {queue.dead:,} dead"
    if queue.spent_tokens_today:
        said += f", {queue.spent_tokens_today:,} tokens spent today"
    click.echo(said)
    if queue.paused:
        kinds = "all kinds" if _EVERY_KIND in queue.paused else ", ".join(queue.paused)
        click.echo(f"paused: {plain_line(kinds)}; `--resume {plain_line(queue.paused[0])}` goes on")
    if not found:
        return
    from rich.table import Table

    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2))
    table.add_column("kind", no_wrap=True)
    table.add_column("key", overflow="fold")
    table.add_column("state", no_wrap=True)
    table.add_column("tries", justify="right")
    table.add_column("runs at", no_wrap=True)
    table.add_column("why", overflow="fold")
    for job in found:
        reason = plain_line(job.reason or "")
        table.add_row(
            job.kind, plain_line(job.key), job.state, str(job.attempts), when(job.run_at), reason
        )
    console().print(table)
