"""`recollect memory reindex|check|scrub|spool|jobs`: looking after a memory.

`spool` never opens the store, so it answers while that is away, which is when people ask.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import click

from recollect.cli.progress import ShownProgress
from recollect.cli.store_options import (
    Place,
    instant,
    place_of,
    print_json,
    store_options,
    when,
    with_store,
)
from recollect.core.values.batch import EXTRACT_JOB, extract_key
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.core.ports import Store
    from recollect.core.upkeep.chores import Reindexed
    from recollect.core.values.upkeep import CheckResult, ScrubResult, SpoolState


# `recollect memory spool`: what waits on this machine, and what went wrong with it


RETRY = "`recollect memory spool --retry` offers them again"


@click.command("spool")
@click.option("--retry", is_flag=True, help="Let what the store refused wait again, at the end.")
@store_options
def spool(*, retry: bool, url: str | None, space: str, as_json: bool) -> None:
    """Show what waits for the store on this machine, was refused, or is damaged.

    Exit code 1 when something was refused or is damaged.
    """
    retried, state = asyncio.run(_look(place_of(url, space), retry=retry))
    problems = problems_of(state)
    if as_json:
        print_json({**asdict(state), "retried": retried, "problems": list(problems)})
    else:
        if retry:
            click.echo(f"{retried:,} refused batches wait again")
        click.echo(f"{state.waiting:,} batches wait; the next to open this memory hands them over")
        for problem in problems:
            click.echo(f"PROBLEM  {plain_line(problem)}")
        if not problems:
            click.echo("Nothing was refused, nothing is damaged.")
    if problems:
        raise SystemExit(1)


def problems_of(state: SpoolState) -> tuple[str, ...]:
    """What people should see to, one sentence each, with what to do."""
    problems = []
    if state.refused:
        problems.append(
            f"spool: the store refused {state.refused:,} batches, kept in "
            f"{_files(state, state.refused_files)}: {RETRY}, `recollect memory forget` reaches them"
        )
    if state.damaged_files:
        problems.append(
            f"spool: what could not be read lies in {_files(state, state.damaged_files)}: "
            "look to the disk, then delete what nobody needs"
        )
    return tuple(problems)


async def _look(place: Place, *, retry: bool) -> tuple[int, SpoolState]:
    from recollect.adapters.wiring import open_spool

    opened = await open_spool(place.url, space=place.space, key=place.settings.store.key)
    try:
        retried = await opened.retry_refused() if retry else 0
        return retried, await opened.state()
    finally:
        await opened.close()


def _files(state: SpoolState, names: tuple[str, ...]) -> str:
    return f"{', '.join(names)} of {state.folder}"


# `recollect memory jobs`: what waits to be done in the background, and why something does not.


if TYPE_CHECKING:
    from recollect.core.ports import Store
    from recollect.core.values.batch import JobId, JobRecord, QueueState

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

    KIND is extract, embed, evict, expire or pack; without it all kinds are meant.
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
        job_records = await store.jobs(limit=max(limit, 1))
        return await store.queue(day=today), job_records, await _keys(store, job_records), revived

    queue, job_records, shown, revived = with_store(url, space, work)
    if as_json:
        listed = [{**asdict(job), "run_at": instant(job.run_at)} for job in job_records]
        print_json({"queue": asdict(queue), "revived": revived, "jobs": listed})
        return
    if revive:
        click.echo(f"{revived:,} dead jobs wait again")
    _draw(queue, job_records, shown)


async def _keys(store: Store, job_records: tuple[JobRecord, ...]) -> dict[JobId, str]:
    """What jobs are about, for people: a session by its name, as far as it is known."""
    names: dict[str, str] = {}
    if any(job.kind == EXTRACT_JOB for job in job_records):
        for session in await store.sessions():
            for left in (False, True):
                names[extract_key(session.session, left=left)] = session.session
    return {job.id: plain_line(names.get(job.key, job.key)) for job in job_records}


def _draw(queue: QueueState, job_records: tuple[JobRecord, ...], shown: dict[JobId, str]) -> None:
    text = f"{queue.waiting:,} waiting, {queue.leased:,} running, {queue.dead:,} dead"
    if queue.spent_tokens_today:
        text += f", {queue.spent_tokens_today:,} tokens reserved today"
    click.echo(text)
    if queue.paused:
        kinds = "all kinds" if _EVERY_KIND in queue.paused else ", ".join(queue.paused)
        click.echo(f"paused: {plain_line(kinds)}; `--resume {plain_line(queue.paused[0])}` goes on")
    if not job_records:
        return
    # A line a job, never wrapped: what is long stands last.
    kind_chars = max(len("kind"), *(len(job.kind) for job in job_records))
    key_chars = max(len("key"), *(min(len(shown[job.id]), _KEY_CHARS) for job in job_records))
    click.echo(
        f"{'kind':{kind_chars}}  {'state':7}  {'tries':>5}  {'runs at':16}  "
        f"{'key':{key_chars}}  why"
    )
    for job in job_records:
        line = (
            f"{job.kind:{kind_chars}}  {job.state:7}  {job.attempts:>5}  {when(job.run_at):16}  "
            f"{shown[job.id]:{key_chars}}  {plain_line(job.reason or '')}"
        )
        click.echo(line.rstrip())


@click.command("reindex")
@store_options
def reindex(*, url: str | None, space: str, as_json: bool) -> None:
    """Cut and tokenise every segment anew; vectors stay where a passage stays.

    Run it after a new version says that its words changed.
    """
    with ShownProgress(quiet=as_json) as progress:

        async def work(store: Store, place: Place) -> Reindexed:
            from recollect.core.boundary import SystemClock
            from recollect.core.upkeep.chores import reindex as index_anew

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
        from recollect.adapters.wiring import spool_state

        result = await store.check()
        key = place.settings.store.key
        waiting = await spool_state(place.url, space=place.space, key=key)
        text = f"the spool of this machine: {waiting.waiting:,} batches wait"
        return replace(
            result,
            checked=(*result.checked, text),
            problems=(*result.problems, *problems_of(waiting)),
        )

    result = with_store(url, space, work)
    if as_json:
        print_json(asdict(result))
    else:
        for what in result.checked:
            click.echo(f"checked  {plain_line(what)}")
        for problem in result.problems:
            click.echo(f"PROBLEM  {plain_line(problem)}")
        click.echo(
            f"{len(result.problems):,} problems" if result.problems else "Everything is in order."
        )
    if result.problems:
        raise SystemExit(1)


@click.command("scrub")
@click.option(
    "--admin-url",
    metavar="URL",
    help="PostgreSQL as the owner of the tables, who alone may rewrite them.",
)
@click.option(
    "--everything",
    is_flag=True,
    help="PostgreSQL: every table, not only those that this space removed something from.",
)
@store_options
def scrub(
    *, url: str | None, space: str, as_json: bool, admin_url: str | None, everything: bool
) -> None:
    """See to it that what was removed is in no file either; may take long.

    On PostgreSQL a table is locked for all spaces while it is rewritten, so only those are that
    hold what this space removed since they were rewritten last.
    """

    async def work(store: Store, place: Place) -> ScrubResult:
        from recollect.adapters.wiring.stores import scrub_store

        del place
        return await scrub_store(store, admin_url=admin_url, everything=everything)

    result = with_store(url, space, work)
    if as_json:
        print_json(asdict(result))
        return
    for what in result.done:
        click.echo(f"done    {plain_line(what)}")
    for what in result.cannot:
        click.echo(f"cannot  {plain_line(what)}")
