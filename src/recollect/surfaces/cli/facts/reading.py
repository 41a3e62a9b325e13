"""`recollect facts read`: read now what waits to be read for facts, without waiting for idle.

The same work as the worker's, by rules or with the model of the settings, within the same budget.
Owns nothing of how a session is read. What could not be read stays waiting, and is told.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from recollect.errors import RecollectError
from recollect.surfaces.cli.explain_text import plain_line
from recollect.surfaces.cli.facts.found import Found
from recollect.surfaces.cli.facts.shown import with_facts
from recollect.surfaces.cli.facts.waiting import said_waiting, sessions_waiting
from recollect.surfaces.cli.progress import ShownProgress
from recollect.surfaces.cli.store_options import Place, print_json, store_options

if TYPE_CHECKING:
    from recollect.engine.facts.jobs import Told
    from recollect.ports import Model, Store
    from recollect.upkeep.jobs import JobRunner, RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What became of it."""

    sessions: int
    found: Found
    result: RunResult
    waiting: int


@click.command("read")
@click.option("--session", metavar="NAME", help="Only this session.")
@store_options
def read(*, session: str | None, url: str | None, space: str, as_json: bool) -> None:
    """Read sessions for facts now, without waiting until they are idle."""
    with ShownProgress(quiet=as_json) as progress:

        async def work(store: Store, place: Place) -> Read:
            return await _read(store, place, session, progress)

        done = with_facts(url, space, work)
    _tell(done, as_json=as_json)
    if done.result.failed or done.result.dead:
        raise SystemExit(1)


async def _read(store: Store, place: Place, session: str | None, progress: ShownProgress) -> Read:
    from recollect.values.batch import Batch, extract_job
    from recollect.wiring.models import choose_model

    if not place.settings.facts.enabled:
        raise RecollectError("facts.enabled is off: switch it on to have sessions read")
    names = await _sessions(store, place, session)
    now = time.time()
    jobs = tuple(extract_job(one, run_at=now, left=True) for one in names)
    await store.write(Batch(at=now, jobs=jobs))
    found = Found()
    total = sum(one.segments for one in await store.sessions() if one.session in names)

    def told(line: str) -> None:
        found.hear(line)
        progress.show("reading messages for facts", found.messages, total)

    reader = choose_model(place.settings, "extraction")
    try:
        result = await _runner(store, place, reader, told).run_due()
    finally:
        if reader is not None:
            await reader.close()
    return Read(
        sessions=len(names), found=found, result=result, waiting=await sessions_waiting(store)
    )


async def _sessions(store: Store, place: Place, session: str | None) -> list[str]:
    from recollect.session.forget_files import sessions_named

    held = [one.session for one in await store.sessions()]
    if session is None:
        return held
    named = set(sessions_named(place.space, [session]))
    found = [one for one in held if one in named]
    if not found:
        raise RecollectError(
            f"no session is called {plain_line(session)!r}; `recollect memory sessions` lists them"
        )
    return found


def _runner(store: Store, place: Place, reader: Model | None, told: Told) -> JobRunner:
    """A worker that does nothing else: embedding and digests are left to `recollect worker`."""
    from recollect.boundary import SystemClock
    from recollect.engine.background import metered
    from recollect.engine.facts.jobs import Extraction
    from recollect.upkeep.jobs import JobRunner as Runner
    from recollect.values.batch import EXTRACT_JOB
    from recollect.wiring.models import choose_embedders

    settings, clock = place.settings, SystemClock()
    extraction = Extraction(
        store=store,
        settings=settings,
        clock=clock,
        model=None if reader is None else metered(reader, store, clock),
        embedders=tuple(one.name for one in choose_embedders(settings).used),
        max_attempts=settings.jobs.max_attempts,
        at_once=True,
        told=told,
    )
    return Runner(
        store,
        {EXTRACT_JOB: extraction.extract},
        clock,
        lease_seconds=settings.jobs.lease_seconds,
        max_attempts=settings.jobs.max_attempts,
        day_tokens=settings.jobs.day_tokens,
    )


def _tell(done: Read, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "sessions": done.sessions,
                "messages": done.found.messages,
                "facts_found": done.found.facts,
                "notes": done.found.notes,
                "failed": done.result.failed + done.result.dead,
                "waiting": done.waiting,
            }
        )
        return
    if done.found.messages:
        click.echo(f"{done.found} in {done.found.messages:,} messages")
    elif not done.waiting:
        click.echo("nothing to read: all that was said was read before")
    for note in done.found.notes:
        click.echo(f"recollect: {plain_line(note)}", err=True)
    if done.result.failed or done.result.dead:
        click.echo(f"recollect: a job failed: {plain_line(done.result.reason)}", err=True)
    if done.waiting:
        click.echo(
            f"recollect: {said_waiting(done.waiting)}; `recollect memory jobs` says why it waits",
            err=True,
        )
