"""`recollect worker`: does the jobs of spaces, until it is told to stop.

Owns the command: which spaces, how many at once, signals, and what is reported. What a job is and
does is the engine's. Of many spaces the one that has waited longest is served next, for a bounded
number of jobs, so that a busy one does not keep the others waiting. Data goes to standard output
(`--json`), what happens to standard error. A stop gives every lease back or completes its job.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from recollect.adapters import wiring
from recollect.adapters.wiring.models import choose_embedders, choose_model
from recollect.cli.facts.listing import FactCounts
from recollect.core.engine.background import runner_of
from recollect.core.ports import Store
from recollect.core.upkeep.jobs import RunResult, until
from recollect.core.values.tenant import is_tenant_space
from recollect.errors import SettingsError, StoreError
from recollect.hosts.service.logs import JOBS, space_mark, write_line
from recollect.hosts.service.telemetry import telling
from recollect.system import config
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres import PostgresFleet
    from recollect.core.engine.facts.extraction import ReadingNote
    from recollect.hosts.service.metrics import Metrics
    from recollect.system.config import Settings


class Voice:
    """What happens, on standard error: to people, or as lines of a log without names of spaces."""

    def __init__(self, *, logs: bool) -> None:
        self._logs = logs

    def say(self, text: str, *, space: str = "", level: int = logging.WARNING) -> None:
        """Something that somebody should know, of a space where one is named: by its name, but
        those of tenants by a mark."""
        marked = space_mark(space, wiring.deployment_secret()) if space else None
        if self._logs:
            write_line(JOBS, level, text, {"space": marked})
            return
        named = marked if is_tenant_space(space) else space
        click.echo(plain_line(f"{named or 'recollect worker'}: {text}"), err=True)

    def tell(self, text: str, **fields: object) -> None:
        """Something that is as it should be."""
        if self._logs:
            write_line(JOBS, logging.INFO, text, fields)
        else:
            click.echo(f"recollect worker: {text}", err=True)

    def job(self, space: str, result: RunResult) -> None:
        """What became of a job: a log has a line for each, people hear of those that failed."""
        became = next(one for one in ("dead", "failed", "lost", "done") if getattr(result, one))
        if self._logs:
            marked = space_mark(space, wiring.deployment_secret())
            fields = {
                "kind": result.kind,
                "outcome": became,
                "ms": round(result.seconds * 1000, 1),
                "space": marked,
                "reason": result.reason or None,
            }
            write_line(JOBS, logging.INFO, "job", fields)
        elif became in ("dead", "failed"):
            then = "set aside" if became == "dead" else "to be tried again"
            self.say(f"a job failed ({result.kind}), {then}: {result.reason}", space=space)


# The jobs of many spaces, a few at a time


FLEET_IDLE_SECONDS: Final = 2.0
FLEET_VISITS: Final = 4
"""Spaces served at once: most of a job is waiting for the database or a model."""
JOBS_A_VISIT: Final = 20
PURGE_SECONDS: Final = 3_600.0
"""So often what has expired of tenants' records is removed."""
QUIET_SECONDS: Final = 30.0
"""How long a space is left alone that had due jobs and gave none: paused, or over its budget."""


class FleetWorker:
    """One process's share of a fleet's work."""

    def __init__(
        self,
        fleet: PostgresFleet,
        settings: Settings,
        progress: Callable[[str, RunResult], None],
        read: Callable[[str, ReadingNote], None],
        *,
        concurrency: int,
        voice: Voice,
        due_age: Callable[[float], None] = lambda _: None,
    ) -> None:
        """`due_age` is told how long the oldest job that is due has waited."""
        self._fleet = fleet
        self._settings, self._of_tenants = settings, settings.across_sessions()
        self._embedders = choose_embedders(settings).used
        self._reader = choose_model(settings, "extraction")
        self._told = progress
        self._read = read
        self._concurrency = concurrency
        self._voice, self._due_age = voice, due_age
        self._quiet_until: dict[str, float] = {}
        self._is_away = False
        """Whether the server did not answer when it was asked last: that is said once."""
        self._unreached: tuple[str, ...] = ()
        self._purged_at = -PURGE_SECONDS

    async def run(self, stop: asyncio.Event, *, once: bool = False) -> None:
        """Serve spaces until `stop` is set, or `once` until none has anything due.

        Whenever a visit ends, the next space is visited: one that takes long takes one of the
        visits that are made at once. A server that is away is asked again.
        """
        visits: dict[asyncio.Task[int], str] = {}
        names: deque[str] = deque()
        asked_at = 0.0
        try:
            while not stop.is_set():
                if not names or time.monotonic() - asked_at > FLEET_IDLE_SECONDS:
                    names = deque(await self._due_beside(set(visits.values()), once=once))
                    asked_at = time.monotonic()
                while names and len(visits) < self._concurrency and not stop.is_set():
                    name = names.popleft()
                    visits[asyncio.create_task(self._visit(name, stop))] = name
                if not visits:
                    if once:
                        return
                    await until(stop, FLEET_IDLE_SECONDS)
                    continue
                ended, _ = await asyncio.wait(
                    visits, timeout=FLEET_IDLE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                for visit in ended:
                    name = visits.pop(visit)
                    if not visit.result():
                        self._quiet_until[name] = time.time() + QUIET_SECONDS
        except BaseException:
            for visit in visits:
                visit.cancel()  # what they were lent is given back
            raise
        finally:
            if visits:
                await asyncio.wait(visits)

    async def close(self) -> None:
        """Give back the model's connections."""
        if self._reader is not None:
            await self._reader.close()

    async def _due_beside(self, visited: set[str], *, once: bool) -> list[str]:
        """Spaces that have work and are not visited now, the one that waits longest first."""
        try:
            due = await self._due(len(visited))
        except StoreError as error:
            if once:
                raise
            if not self._is_away:
                self._voice.say(str(error))
            self._is_away = True
            return []
        if self._is_away:
            self._voice.tell("the server answers again")
        self._is_away = False
        return [name for name in due if name not in visited]

    async def _due(self, visited: int) -> list[str]:
        now = time.time()
        if now - self._purged_at >= PURGE_SECONDS:
            self._purged_at = now
            try:
                await self._fleet.tenants().purge_all(now=now)
            except StoreError as error:  # the jobs go on
                self._voice.say(f"what has expired of tenants' records is still there: {error}")
        self._quiet_until = {name: at for name, at in self._quiet_until.items() if at > now}
        limit = 4 * self._concurrency + visited + len(self._quiet_until)
        due = await self._fleet.spaces_with_due_jobs(now, limit=limit)
        if due.unreached != self._unreached:
            away = ", ".join(due.unreached)
            told = f"away: {away}: its spaces wait" if away else "every node answers again"
            self._voice.say(told)
            self._unreached = due.unreached
        self._due_age(0.0 if due.oldest_due_at is None else max(0.0, now - due.oldest_due_at))
        return [name for name in due.names if name not in self._quiet_until]

    async def _visit(self, name: str, stop: asyncio.Event) -> int:
        """Do some jobs of a space; how many were taken."""
        try:
            store = await self._fleet.space(name)
            try:
                runner = runner_of(
                    store,
                    self._of_tenants if is_tenant_space(name) else self._settings,
                    embedders=self._embedders,
                    model=self._reader,
                    notify=lambda note: self._read(name, note),
                )
                result = await runner.run_due(
                    stop=stop, told=lambda each: self._told(name, each), most=JOBS_A_VISIT
                )
                return result.taken
            finally:
                await store.close()
        except StoreError as error:  # of this space: the others go on
            self._voice.say(str(error), space=name)
            return 0


IDLE_SECONDS = 2.0
MOST_TROUBLES: Final = 1_000
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@click.command("worker")
@click.option("--store", "url", metavar="URL", help="A file, sqlite:///PATH or postgresql://….")
@click.option(
    "--space",
    "spaces",
    multiple=True,
    metavar="NAME",
    help="Only this space; may be repeated. Without it every space of the server, or every memory "
    "of the data folder.",
)
@click.option("--once", is_flag=True, help="Do what is due now, then end; 1 if a job failed.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 256),
    help="Spaces of a server served at once [4], or jobs of each file [1].",
)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Read this file instead of recollect.toml.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
def worker(
    *,
    url: str | None,
    spaces: tuple[str, ...],
    once: bool,
    concurrency: int | None,
    file: Path | None,
    as_json: bool,
) -> None:
    """Do the jobs that wait in a store: embedding, facts, packing, eviction, expiry.

    Runs until it gets a signal to stop; then it finishes what it has begun, or gives it back.
    """
    settings = config.load_settings(file=file).settings
    url = url or settings.store.url
    tally = Tally(Voice(logs=settings.telemetry.log_format is not None), by_space=as_json)
    with telling(settings) as metrics:
        if metrics is not None:
            tally.voice.tell(f"metrics on port {metrics.port}", metrics_port=metrics.port)
        if _is_server(url) and not spaces:
            assert url is not None
            at_once = concurrency or FLEET_VISITS
            work = _fleet(url, settings, tally, metrics, once=once, concurrency=at_once)
        elif url is None and not spaces:
            tally.voice.tell("serves the memories of the data folder: no server is named")
            work = _data_folder(settings, tally, once=once)
        else:
            work = _spaces(url, settings, spaces, tally, once=once, concurrency=concurrency or 1)
        asyncio.run(work)
        total = tally.total
        tally.voice.tell(_total_line(total, tally.found))
    if as_json:
        click.echo(json.dumps(tally.as_object(), ensure_ascii=False, indent=2))
    if once and (total.failed or total.dead):
        raise SystemExit(1)


class Tally:
    """What became of the jobs, by space."""

    def __init__(self, voice: Voice, *, by_space: bool) -> None:
        """`by_space` keeps counts of each, which grow with the spaces that were ever served."""
        self.voice = voice
        self.total = RunResult()
        """Of all spaces."""
        self.found = 0
        """Facts that were found, in all spaces."""
        self._keeps_spaces = by_space
        self._by_space: dict[str, RunResult] = defaultdict(RunResult)
        self._found: Counter[str] = Counter()
        self._troubles: set[str] = set()
        """Why a model was not asked, or did not answer; each is told once."""

    def add(self, space: str, result: RunResult) -> None:
        """Count a result; failures are told at once."""
        self.total += result
        if self._keeps_spaces:
            self._by_space[space] += result
        self.voice.job(space, result)

    def read(self, space: str, note: ReadingNote) -> None:
        """Count what reading a session found; it is told at once, and so is what went wrong."""
        self.found += note.facts
        if self._keeps_spaces:
            self._found[space] += note.facts
        is_new = note.trouble and note.trouble not in self._troubles
        if is_new and len(self._troubles) < MOST_TROUBLES:
            self._troubles.add(note.trouble)
        if note.facts or is_new:
            level = logging.WARNING if is_new else logging.INFO
            self.voice.say(str(note), space=space, level=level)

    def as_object(self) -> dict[str, object]:
        """As `--json` prints it."""
        spaces = {
            space: {**_counts(result), "facts_found": self._found[space]}
            for space, result in sorted(self._by_space.items())
        }
        return {**_counts(self.total), "facts_found": self.found, "spaces": spaces}


def _counts(result: RunResult) -> dict[str, object]:
    return {"done": result.done, "failed": result.failed, "dead": result.dead, "lost": result.lost}


def _total_line(total: RunResult, found: int) -> str:
    if not total.taken:
        return "nothing was due"
    parts = [f"{total.done} jobs done"]
    parts += [str(FactCounts(facts=found))] if found else []
    parts += [f"{total.failed} to be tried again"] if total.failed else []
    parts += [f"{total.dead} set aside"] if total.dead else []
    parts += [f"{total.lost} lost to another worker"] if total.lost else []
    return ", ".join(parts)


def _is_server(url: str | None) -> bool:
    return url is not None and url.startswith(wiring.POSTGRES_SCHEMES)


async def _fleet(
    url: str,
    settings: config.Settings,
    tally: Tally,
    metrics: Metrics | None,
    *,
    once: bool,
    concurrency: int,
) -> None:
    async def work(stop: asyncio.Event) -> None:
        # one more than visits, so that what is due can always be asked for
        pool_size = max(settings.store.pool_size, concurrency + 1)
        fleet = await _opened(url, pool_size, tally.voice, None if once else stop)
        if fleet is None:
            return
        if not once:
            tally.voice.tell(f"serves every space of the server, {concurrency} at once")
        if metrics is not None:
            metrics.watch(lambda: fleet.pool)
        worker_ = FleetWorker(
            fleet,
            settings,
            tally.add,
            tally.read,
            concurrency=concurrency,
            voice=tally.voice,
            due_age=(lambda _: None) if metrics is None else metrics.jobs_due_age.set,
        )
        try:
            await worker_.run(stop, once=once)
        finally:
            await worker_.close()
            await fleet.close()

    await _until_stopped(work)


async def _opened(
    url: str, pool_size: int, voice: Voice, stop: asyncio.Event | None
) -> PostgresFleet | None:
    """The server's spaces; with `stop` one that is away is waited for, until that is set."""
    told = ""
    while True:
        try:
            return await wiring.open_fleet(url, pool_size=pool_size)
        except StoreError as error:
            if stop is None:
                raise
            if str(error) != told:
                voice.say(f"{error}; it is tried again")
            told = str(error)
        await until(stop, FLEET_IDLE_SECONDS)
        if stop.is_set():
            return None


async def _data_folder(settings: config.Settings, tally: Tally, *, once: bool) -> None:
    """Every memory of this user, one after the other: there may be hundreds of files."""

    async def work(stop: asyncio.Event) -> None:
        while not stop.is_set():
            for found in await wiring.stored_spaces(None, key=settings.store.key):
                if found.space is None or stop.is_set():  # what cannot be read is no memory
                    continue
                try:
                    store = await wiring.open_store(
                        None, space=found.space, create=False, key=settings.store.key
                    )
                    try:
                        await run(store, stop, True)
                    finally:
                        await store.close()
                except StoreError as error:  # of this one: the others go on
                    tally.voice.say(str(error), space=found.space)
            if once:
                break
            await until(stop, QUIET_SECONDS)

    async with _jobs_of_files(settings, tally) as run:
        await _until_stopped(work)


async def _spaces(
    url: str | None,
    settings: config.Settings,
    spaces: tuple[str, ...],
    tally: Tally,
    *,
    once: bool,
    concurrency: int,
) -> None:
    names = spaces or ("default",)
    if url is not None and not _is_server(url) and len(names) > 1:
        raise SettingsError("a file holds one space: give --store a server, or one --space")
    stores: list[Store] = []
    try:
        for name in names:
            opened = wiring.open_store(url, space=name, create=False, key=settings.store.key)
            stores.append(await opened)

        async def work(stop: asyncio.Event) -> None:
            try:
                async with asyncio.TaskGroup() as group:
                    for store in stores * concurrency:
                        group.create_task(run(store, stop, once))
            except ExceptionGroup as failed:
                raise failed.exceptions[0] from None

        async with _jobs_of_files(settings, tally) as run:
            await _until_stopped(work)
    finally:
        for store in stores:
            await store.close()


@asynccontextmanager
async def _jobs_of_files(
    settings: config.Settings, tally: Tally
) -> AsyncIterator[Callable[[Store, asyncio.Event, bool], Coroutine[Any, Any, None]]]:
    """Does the jobs of a store: what is due, or until it is stopped. Models are loaded once."""
    reader = choose_model(settings, "extraction")
    embedders = choose_embedders(settings).used

    async def run(store: Store, stop: asyncio.Event, once: bool) -> None:  # noqa: FBT001
        runner = runner_of(
            store,
            settings,
            embedders=embedders,
            model=reader,
            notify=lambda note: tally.read(store.space, note),
        )
        told = partial(tally.add, store.space)
        if once:
            await runner.run_due(stop=stop, told=told)
        else:
            await runner.run(stop, idle_seconds=IDLE_SECONDS, told=told)

    try:
        yield run
    finally:
        if reader is not None:
            await reader.close()


async def _until_stopped(work: Callable[[asyncio.Event], Awaitable[object]]) -> None:
    """Run with an event that the signals to stop set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    try:
        await work(stop)
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
