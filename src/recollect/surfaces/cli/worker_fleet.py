"""Works for every space of a fleet that has due jobs, a few at a time.

Owns who is served next: the space that has waited longest, each for a bounded number of jobs,
so that a busy space does not keep the others waiting. Knows of spaces only their names.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from recollect.engine.background import runner_of
from recollect.errors import StoreError
from recollect.surfaces.cli.explain_text import plain_line
from recollect.upkeep.jobs import RunResult, until
from recollect.wiring.models import choose_embedders, choose_model

if TYPE_CHECKING:
    from recollect.config import Settings
    from recollect.stores.postgres import PostgresFleet

IDLE_SECONDS: Final = 2.0
JOBS_A_VISIT: Final = 20
QUIET_SECONDS: Final = 30.0
"""How long a space is left alone that had due jobs and gave none: paused, or over its budget."""


class FleetWorker:
    """One process's share of a fleet's work."""

    def __init__(
        self,
        fleet: PostgresFleet,
        settings: Settings,
        told: Callable[[str, RunResult], None],
        read: Callable[[str, str], None],
        *,
        concurrency: int,
    ) -> None:
        self._fleet = fleet
        self._settings = settings
        self._embedders = choose_embedders(settings).used
        self._reader = choose_model(settings, "extraction")
        self._told = told
        self._read = read
        self._concurrency = concurrency
        self._quiet_until: dict[str, float] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Serve spaces until `stop` is set; a server that is away is asked again."""
        while not stop.is_set():
            try:
                taken = await self._serve(stop)
            except StoreError as error:
                click.echo(f"recollect worker: {error}", err=True)
                taken = 0
            if not taken:
                await until(stop, IDLE_SECONDS)

    async def close(self) -> None:
        """Give back the model's connections."""
        if self._reader is not None:
            await self._reader.close()

    async def run_due(self, stop: asyncio.Event) -> None:
        """Serve spaces until none has anything due."""
        while not stop.is_set() and await self._serve(stop):
            pass

    async def _serve(self, stop: asyncio.Event) -> int:
        """Visit the spaces that have waited longest; returns how many jobs were taken."""
        now = time.time()
        self._quiet_until = {name: at for name, at in self._quiet_until.items() if at > now}
        limit = 4 * self._concurrency + len(self._quiet_until)
        due = await self._fleet.spaces_with_due_jobs(now, limit=limit)
        names = iter([name for name in due if name not in self._quiet_until])

        async def visits() -> int:
            taken = 0
            for name in names:  # shared: each space is visited by one of us
                if stop.is_set():
                    break
                taken += await self._visit(name, stop)
            return taken

        return sum(await asyncio.gather(*(visits() for _ in range(self._concurrency))))

    async def _visit(self, name: str, stop: asyncio.Event) -> int:
        store = await self._fleet.space(name)
        taken = 0
        try:
            runner = runner_of(
                store,
                self._settings,
                embedders=self._embedders,
                model=self._reader,
                told=lambda line: self._read(name, line),
            )
            result = await runner.run_due(
                stop=stop, told=lambda each: self._told(name, each), most=JOBS_A_VISIT
            )
            taken = result.taken
        except StoreError as error:  # of this space: the others go on
            click.echo(plain_line(f"{name}: {error}"), err=True)
        finally:
            await store.close()
        if not taken:
            self._quiet_until[name] = time.time() + QUIET_SECONDS
        return taken
