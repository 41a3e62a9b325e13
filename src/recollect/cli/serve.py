"""`recollect serve` and `worker`: one node of a service for tenants, and background jobs.

The worker always visits the space that has waited longest, and runs a limited number of its jobs,
so that a busy space does not block others. A stopping worker completes or returns leased jobs."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
import socket
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, get_args

import click

from recollect.adapters import wiring
from recollect.adapters.wiring.stores import is_server, require_server
from recollect.cli.processes import NodeLog, Parent
from recollect.cli.store_options import json_option, print_json, store_option
from recollect.core.upkeep.jobs import JobRun, Outcome, until
from recollect.core.values.tenant import is_tenant_space
from recollect.errors import SettingsError, StoreError
from recollect.hosts import require_extra
from recollect.hosts.service.telemetry import JOBS, space_mark, telling, write_line
from recollect.system import config
from recollect.system.loopback import bind_socket
from recollect.system.plain_text import number_of, plain_line

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from recollect.adapters.stores.postgres.store import PostgresFleet
    from recollect.core.facts.extract import ReadingNote
    from recollect.core.ports import Store
    from recollect.hosts.service.app import AnswerMcp, MountMcp
    from recollect.hosts.service.memories import TenantMemories
    from recollect.hosts.service.metrics import Metrics
    from recollect.system.config import Settings

# Not measured: how late a worker notices a new job; one cheap query per worker.
IDLE_SECONDS: Final = 2.0
VISITS: Final = 4
"""Number of a server's spaces that are visited at once. A job mostly waits for other services."""
JOBS_PER_VISIT: Final = 20
"""Not measured: bounds how long a busy space keeps a visit from the others."""
PURGE_SECONDS: Final = 3_600.0
"""Interval between removals of tenants' expired records."""
QUIET_SECONDS: Final = 30.0
"""After a visit that ran no due job (because the space is paused or over its budget), wait this
long before the next visit. Also the interval between rounds through the data folder."""
# Not measured: bounds the memory of a worker whose model fails in ever new words.
MAX_REPORTED: Final = 1_000


@click.command("worker")
@store_option
@click.option(
    "--space",
    "spaces",
    multiple=True,
    metavar="NAME",
    help="Run the jobs of this space only; may be repeated. Default: every space of the store.",
)
@click.option(
    "--once",
    is_flag=True,
    help="Run the jobs that are due and exit. The exit code is 1 if a job failed.",
)
@json_option
def worker(*, url: str | None, spaces: tuple[str, ...], once: bool, as_json: bool) -> None:
    """Run background jobs: compute vectors, extract facts, reorder the word index, delete expired
    data.

    Runs until it gets a signal. Serves every space of a server, or every memory of this machine.
    Start more workers to run more jobs at once."""
    settings = config.load_settings().settings
    log = WorkLog(as_lines=settings.telemetry.log_format is not None)
    with telling(settings) as metrics:
        if metrics is not None:
            log.report(f"metrics on port {metrics.port}", metrics_port=metrics.port)
        asyncio.run(_work(settings, url or settings.store.url, spaces, log, metrics, once=once))
        log.report(log.total_line())
    if as_json:
        counts = {name: log.total[name] for name in get_args(Outcome)}
        print_json({**counts, "facts_found": log.found})
    if once and (log.total["failed"] or log.total["dead"]):
        raise SystemExit(1)


class WorkLog:
    """Counts jobs and reports on standard error, as text or as log lines without spaces' names."""

    def __init__(self, *, as_lines: bool) -> None:
        self.total: Counter[Outcome] = Counter()
        self.found: int = 0
        self._as_lines = as_lines
        self._reported: set[str] = set()
        """Problems with models that were reported, because each is reported only once."""

    def report(
        self, text: str, *, level: int = logging.INFO, space: str = "", **fields: object
    ) -> None:
        """Print a text, or write a log line in which a hash replaces a tenant's space."""
        mark = space_mark(space, wiring.deployment_secret()) if space else None
        if self._as_lines:
            write_line(JOBS, level, text, {**fields, "space": mark})
            return
        name = mark if is_tenant_space(space) else space
        click.echo(plain_line(f"{name or 'recollect worker'}: {text}"), err=True)

    def warn(self, text: str, *, space: str = "") -> None:
        self.report(text, level=logging.WARNING, space=space)

    def count_job(self, space: str, run: JobRun) -> None:
        """Count a job. Each job is a line in a log, but people see only failed jobs."""
        self.total[run.outcome] += 1
        if self._as_lines:
            ms, reason = round(run.seconds * 1000, 1), run.reason or None
            outcome = run.outcome
            self.report("job", space=space, kind=run.kind, outcome=outcome, ms=ms, reason=reason)
        elif run.outcome in ("dead", "failed"):
            then = "set aside" if run.outcome == "dead" else "to be tried again"
            self.warn(f"a job failed ({run.kind}), {then}: {run.reason}", space=space)

    def count_facts(self, space: str, note: ReadingNote) -> None:
        self.found += note.facts
        is_new = note.trouble and note.trouble not in self._reported
        if is_new and len(self._reported) < MAX_REPORTED:
            self._reported.add(note.trouble)
        if note.facts or is_new:
            level = logging.WARNING if is_new else logging.INFO
            self.report(str(note), space=space, level=level)

    def total_line(self) -> str:
        total = self.total
        if not total.total():
            return "nothing was due"
        parts = [f"{number_of(total['done'], 'job')} done"]
        parts += [f"{number_of(self.found, 'fact')} found"] if self.found else []
        parts += [f"{total['failed']} to be tried again"] if total["failed"] else []
        parts += [f"{total['dead']} failed permanently"] if total["dead"] else []
        parts += [f"{total['lost']} lost to another worker"] if total["lost"] else []
        return ", ".join(parts)


async def _work(
    settings: Settings,
    url: str | None,
    spaces: tuple[str, ...],
    log: WorkLog,
    metrics: Metrics | None,
    *,
    once: bool,
) -> None:
    """Run jobs until a signal arrives, or with `once` until no job is due."""
    worker = SpaceWorker(settings, log, once=once)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop.set)
    try:
        if url is not None and is_server(url) and not spaces:
            await ServerWorker(worker, metrics).run(url, settings.store.pool_size)
            return
        if url is not None and not is_server(url) and len(spaces) > 1:
            raise SettingsError(
                "a file has only one space: pass a server as --store, or one --space"
            )
        if url is None and not spaces:
            log.report("serving the memories of the data folder, because no server is named")
        elif not spaces:
            spaces = ("default",)
        await worker.run(url, spaces)
    finally:
        await worker.close()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


class SpaceWorker:
    """Runs the jobs of one space after the other, and loads models only once."""

    def __init__(self, settings: Settings, log: WorkLog, *, once: bool) -> None:
        from recollect.adapters.wiring.models import choose_embedders, choose_model

        self._settings, self._of_tenants = settings, settings.across_sessions()
        self._embedders = choose_embedders(settings).used
        self._reader = choose_model(settings, "extraction")
        self.log: WorkLog = log
        self.once: bool = once
        self.stop: asyncio.Event = asyncio.Event()

    async def run(self, url: str | None, space_names: tuple[str, ...]) -> None:
        """Serve the named spaces in turn; without names, every memory of the data folder."""
        key = self._settings.store.key
        reported: dict[str, str] = {}
        is_first = True
        while not self.stop.is_set():
            stored_spaces = () if space_names else await wiring.list_spaces(None, key=key)
            for name in space_names or [stored_space.space for stored_space in stored_spaces]:
                if name is None or self.stop.is_set():  # this file is not a memory
                    continue
                try:
                    await self.visit(
                        await wiring.open_store(
                            url, space=name, create=False, key=key, makes_ids=True
                        ),
                        name,
                    )
                    reported.pop(name, None)
                except StoreError as error:  # continue with the other spaces
                    if space_names and (self.once or is_first):
                        raise
                    if reported.get(name) != str(error):
                        self.log.warn(str(error), space=name)
                    reported[name] = str(error)
            if self.once:
                return
            is_first = False
            await until(self.stop, IDLE_SECONDS if space_names else QUIET_SECONDS)

    async def visit(self, store: Store, name: str, max_jobs: int | None = None) -> int:
        """Run at most `most` due jobs of a space, and return their number. Close the store."""
        from recollect.core.engine.background import runner_of

        runner = runner_of(
            store,
            self._of_tenants if is_tenant_space(name) else self._settings,
            embedders=self._embedders,
            model=self._reader,
            notify=partial(self.log.count_facts, name),
        )
        report = partial(self.log.count_job, name)
        try:
            return (await runner.run_due(stop=self.stop, report=report, max_jobs=max_jobs)).total()
        finally:
            await store.close()

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()


class ServerWorker:
    """Visits all spaces of a server, a few in parallel, so that a long visit blocks no other."""

    def __init__(self, worker: SpaceWorker, metrics: Metrics | None) -> None:
        self._worker, self._metrics = worker, metrics
        self._log, self._stop, self._once = worker.log, worker.stop, worker.once
        self._due: deque[str] = deque()
        self._asked_at = 0.0
        self._choosing = asyncio.Lock()
        self._visited: set[str] = set()
        self._quiet_until: dict[str, float] = {}
        self._trouble = ""
        """Why the server did not answer last, because each reason is reported only once."""
        self._unreached_nodes: tuple[str, ...] = ()
        self._purged_at = -PURGE_SECONDS

    async def run(self, url: str, pool_size: int) -> None:
        """Visit spaces until the worker stops, or with `once` until no job is due."""
        # Use one connection more than visits, so that the list of due jobs can always be read.
        fleet = await self._open(url, max(pool_size, VISITS + 1))
        if fleet is None:
            return
        self._trouble = ""
        if not self._once:
            self._log.report(f"serving every space of the server, {VISITS} at once")
        if self._metrics is not None:
            self._metrics.watch(lambda: fleet.pool)
        visits = [asyncio.create_task(self._visit_spaces(fleet)) for _ in range(VISITS)]
        try:
            await asyncio.gather(*visits)
        finally:
            for visit in visits:
                visit.cancel()  # return the leases of their jobs
            await asyncio.wait(visits)
            await fleet.close()

    async def _open(self, url: str, pool_size: int) -> PostgresFleet | None:
        """Open the server's spaces. Wait while the server is down, unless `--once` is set."""
        while not self._stop.is_set():
            try:
                return await wiring.open_fleet(url, pool_size=pool_size, makes_ids=True)
            except StoreError as error:
                self._report_trouble(f"{error}; trying again", error)
            await until(self._stop, IDLE_SECONDS)
        return None

    def _report_trouble(self, text: str, error: StoreError) -> None:
        if self._once:
            raise error
        if text != self._trouble:
            self._log.warn(text)
        self._trouble = text

    async def _visit_spaces(self, fleet: PostgresFleet) -> None:
        while not self._stop.is_set():
            async with self._choosing:
                name = await self._next_space(fleet)
                if name is not None:
                    self._visited.add(name)
            if name is None:
                if self._once:
                    return
                await until(self._stop, IDLE_SECONDS)
                continue
            try:
                store = await fleet.space(name)
                ran = await self._worker.visit(store, name, JOBS_PER_VISIT)
            except StoreError as error:  # continue with the other spaces
                self._log.warn(str(error), space=name)
                ran = 0
            if not ran:
                self._quiet_until[name] = time.time() + QUIET_SECONDS
            self._visited.discard(name)
            self._asked_at = 0.0  # this space may have more jobs

    async def _next_space(self, fleet: PostgresFleet) -> str | None:
        """Return the space that has waited longest and is not being visited."""
        if time.monotonic() - self._asked_at > IDLE_SECONDS:
            self._asked_at = time.monotonic()
            try:
                self._due = deque(await self._due_spaces(fleet))
            except StoreError as error:
                self._due.clear()
                self._report_trouble(str(error), error)
            else:
                if self._trouble:
                    self._log.report("the server answers again")
                self._trouble = ""
        return self._due.popleft() if self._due else None

    async def _due_spaces(self, fleet: PostgresFleet) -> list[str]:
        now = time.time()
        if now - self._purged_at >= PURGE_SECONDS:
            self._purged_at = now
            try:
                await fleet.tenants().purge_all(now=now)
            except StoreError as error:  # continue without the removal
                self._log.warn(f"tenants' expired records were not removed: {error}")
        self._quiet_until = {
            name: quiet_until
            for name, quiet_until in self._quiet_until.items()
            if quiet_until > now
        }
        skipped_names = self._visited | self._quiet_until.keys()
        due = await fleet.spaces_with_due_jobs(
            now, limit=4 * VISITS + len(skipped_names), every=self._once
        )
        if due.unreached != self._unreached_nodes:
            down = ", ".join(due.unreached)
            text = f"no answer from {down}: the jobs of its spaces wait"
            self._log.warn(text if down else "every node answers again")
            self._unreached_nodes = due.unreached
        if self._metrics is not None:
            oldest = due.oldest_due_at
            self._metrics.jobs_due_age.set(0.0 if oldest is None else max(0.0, now - oldest))
        return [name for name in due.names if name not in skipped_names]


@click.command()
@store_option
@click.option("--host", help="Listen on this address. Default: serve.host [127.0.0.1].")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="Listen on this port; 0 picks a free one. Default: serve.port [8789].",
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    help="Serve with this many processes, for as many cores. Default: serve.processes [1].",
)
@click.option("--openapi", "only_document", is_flag=True, help="Print the OpenAPI document.")
@click.option("--channel", type=int, hidden=True)  # a socket to the parent, which accepts
def serve(
    *,
    url: str | None,
    host: str | None,
    port: int | None,
    processes: int | None,
    only_document: bool,
    channel: int | None,
) -> None:
    """Run one node of the HTTP service; run as many nodes as you like.

    \b
    recollect db init postgresql://OWNER@HOST/DATABASE --app-password-file FILE
    export RECOLLECT_STORE__URL=postgresql://recollect_app@HOST/DATABASE
    recollect tenant create acme
    recollect key create acme
    recollect serve
    recollect worker

    Put the database's password into PGPASSWORD or ~/.pgpass, or into the URL. Nodes keep no state,
    so any node can answer any request."""
    require_extra("serve")
    if only_document:
        from recollect.hosts.service.api import openapi

        click.echo(json.dumps(openapi(), indent=2, ensure_ascii=False))
        return
    flags = {"serve.host": host, "serve.port": port, "serve.processes": processes, "store.url": url}
    arguments = {name: value for name, value in flags.items() if value is not None}
    settings = config.load_settings(arguments=arguments).settings

    # Report wrong settings before imports that take seconds.
    require_server(settings.store.url)
    if settings.serve.processes > 1 and settings.telemetry.metrics_port == 0:
        raise SettingsError(
            "several processes cannot pick their metrics ports: set telemetry.metrics_port to the "
            "port of the first"
        )
    if channel is not None:
        _serve(settings, socket.socket(fileno=channel))
        return
    host_and_port = (settings.serve.host, settings.serve.port)
    with bind_socket(*host_and_port, fix="set another as serve.port") as listening_socket:
        if settings.serve.processes == 1:
            _serve(settings, listening_socket)
            return
        own_telemetry = replace(settings.telemetry, metrics_port=None)  # each process has its port
        with telling(replace(settings, telemetry=own_telemetry)):
            raise SystemExit(asyncio.run(Parent(settings, listening_socket).run()))


def _serve(settings: Settings, listening_socket: socket.socket) -> None:
    """Serve on a socket, or the connections that a parent passes through it."""
    from recollect.hosts.service.app import NodeServer, service_of, watch

    service = service_of(settings, mcp=_mcp())
    is_child = listening_socket.family == socket.AF_UNIX
    with telling(settings) as metrics:
        log = NodeLog(settings, listening_socket)

        def on_ready() -> None:
            gc.collect()
            gc.freeze()  # examining loaded objects would take 0.1 s
            if is_child:
                listening_socket.send(b"r")
            else:
                log.serving(None if metrics is None else metrics.port)

        if metrics is not None:
            watch(service, metrics)
        if is_child:
            NodeServer(service, settings, on_ready=on_ready, parent=listening_socket).run(
                sockets=[]
            )
            return
        server = NodeServer(service, settings, on_ready=on_ready, on_draining=log.draining)
        with suppress(KeyboardInterrupt):  # the server has shut down, and raises the signal again
            server.run(sockets=[listening_socket])
        if service.draining:
            log.report("ended", "Ended")


def _mcp() -> MountMcp | None:
    if find_spec("mcp") is None:
        return None

    def mount(memories: TenantMemories, secret: bytes) -> AbstractAsyncContextManager[AnswerMcp]:
        # Import here, because the import takes seconds, and other commands do not need it.
        from recollect.hosts.service.mcp import mcp_for_tenants

        return mcp_for_tenants(memories, secret)

    return mount
