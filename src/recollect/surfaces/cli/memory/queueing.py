"""`recollect memory jobs`: what waits to be done in the background, and why something does not."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

import click

from recollect.surfaces.cli.explain_text import plain_line
from recollect.surfaces.cli.store_options import (
    Place,
    instant,
    print_json,
    store_options,
    when,
    with_store,
)
from recollect.values.batch import EXTRACT_JOB, extract_key

if TYPE_CHECKING:
    from recollect.ports import Store
    from recollect.values.batch import JobId, JobRecord, QueueState

    _Listed: TypeAlias = tuple[QueueState, tuple[JobRecord, ...], dict[JobId, str], int]

_EVERY_KIND = "*"
_KEY_CHARS = 40


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

    KIND is extract, digest, embed, evict, expire or pack; without it all kinds are meant.
    """

    async def work(store: Store, place: Place) -> _Listed:
        del place
        now = time.time()
        if pause is not None:
            await store.pause(pause)
        if resume is not None:
            await store.resume(resume)
        revived = await store.revive(at=now) if revive else 0
        today = datetime.fromtimestamp(now, UTC).date().isoformat()
        found = await store.jobs(limit=max(limit, 1))
        return await store.queue(day=today), found, await _keys(store, found), revived

    queue, found, shown, revived = with_store(url, space, work)
    if as_json:
        listed = [{**asdict(job), "run_at": instant(job.run_at)} for job in found]
        print_json({"queue": asdict(queue), "revived": revived, "jobs": listed})
        return
    if revive:
        click.echo(f"{revived:,} dead jobs wait again")
    _draw(queue, found, shown)


async def _keys(store: Store, found: tuple[JobRecord, ...]) -> dict[JobId, str]:
    """What jobs are about, for people: a session by its name, as far as it is known."""
    names: dict[str, str] = {}
    if any(job.kind == EXTRACT_JOB for job in found):
        for one in await store.sessions():
            for left in (False, True):
                names[extract_key(one.session, left=left)] = one.session
    return {job.id: plain_line(names.get(job.key, job.key)) for job in found}


def _draw(queue: QueueState, found: tuple[JobRecord, ...], shown: dict[JobId, str]) -> None:
    said = f"{queue.waiting:,} waiting, {queue.leased:,} running, {queue.dead:,} dead"
    if queue.spent_tokens_today:
        said += f", {queue.spent_tokens_today:,} tokens reserved today"
    click.echo(said)
    if queue.paused:
        kinds = "all kinds" if _EVERY_KIND in queue.paused else ", ".join(queue.paused)
        click.echo(f"paused: {plain_line(kinds)}; `--resume {plain_line(queue.paused[0])}` goes on")
    if not found:
        return
    # A line a job, never wrapped: what is long stands last.
    kind_chars = max(len("kind"), *(len(job.kind) for job in found))
    key_chars = max(len("key"), *(min(len(shown[job.id]), _KEY_CHARS) for job in found))
    click.echo(
        f"{'kind':{kind_chars}}  {'state':7}  {'tries':>5}  {'runs at':16}  "
        f"{'key':{key_chars}}  why"
    )
    for job in found:
        line = (
            f"{job.kind:{kind_chars}}  {job.state:7}  {job.attempts:>5}  {when(job.run_at):16}  "
            f"{shown[job.id]:{key_chars}}  {plain_line(job.reason or '')}"
        )
        click.echo(line.rstrip())
