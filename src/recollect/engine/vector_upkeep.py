"""Sees to it that every passage gets the vectors of the embedders in use.

A model that is new here finds a memory without its vectors: a job is put into the queue that
makes them in the background, and until they are made the vectors of the model before it are
searched too, where that model is at hand. Must never make a turn wait. What always holds: it
looks at most every `LOOK_SECONDS`, and asks the store itself, so it is right after a restart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from recollect.boundary import Failure, attempted
from recollect.engine.archive import DurableArchive
from recollect.ports import Clock, Embedder, Store
from recollect.values.batch import EMBED_JOB, Batch, NewJob
from recollect.values.reason import Cause, Reason
from recollect.values.upkeep import Stats

LOOK_SECONDS: Final = 30.0


class VectorUpkeep:
    """The vectors of one engine's space."""

    def __init__(
        self,
        archive: DurableArchive,
        embedders: Sequence[Embedder],
        clock: Clock,
        *,
        others: Callable[[], Sequence[Embedder]] = tuple,
        queued: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`others` looks which embedders are at hand that are not in use: files are read for it,
        so it is asked only where their vectors may be needed. `queued` wakes the jobs."""
        self._archive = archive
        self._embedders = tuple(embedders)
        self._others = others
        self._clock = clock
        self._queued = queued
        self._monotonic = monotonic
        self._looked_at = -LOOK_SECONDS
        self._task: asyncio.Task[None] | None = None
        self.meanwhile: tuple[Embedder, ...] = ()
        """Embedders whose vectors are searched until those of the ones in use are made."""
        self.notes: tuple[Reason, ...] = ()
        """How far the vectors are, where they are not complete."""

    def look_soon(self) -> None:
        """Look in the background, if it was not done lately."""
        now = self._monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        self._task = asyncio.get_running_loop().create_task(self._looked())

    async def _looked(self) -> None:
        outcome = await attempted(self.look())
        if isinstance(outcome, Failure):
            self.notes = (Reason(Cause.VECTORS_UNWATCHED, error=outcome.said),)

    async def look(self) -> None:
        """Compare what there is with what there should be, and queue what is missing."""
        store = await self._archive.store()
        stats = await store.stats()
        waiting = [embedder for embedder in self._embedders if await _lacks(store, embedder, stats)]
        self.notes = tuple(_progress(embedder, stats) for embedder in waiting)
        self.meanwhile = ()
        if not waiting:
            return
        self.meanwhile = await self._others_with_vectors(stats)
        now = self._clock.now()
        jobs = tuple(NewJob(kind=EMBED_JOB, key=one.name, run_at=now) for one in waiting)
        await self._archive.write(Batch(at=now, jobs=jobs))
        self._queued()

    async def _others_with_vectors(self, stats: Stats) -> tuple[Embedder, ...]:
        used = {embedder.name for embedder in self._embedders}
        held = {name for name, count in stats.vectors.items() if count and name not in used}
        if not held:
            return ()
        others = await asyncio.to_thread(self._others)
        return tuple(other for other in others if other.name in held)

    async def close(self) -> None:
        """Stop looking."""
        task, self._task = self._task, None
        if task is not None and task.get_loop() is asyncio.get_running_loop() and not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1.0)


async def _lacks(store: Store, embedder: Embedder, stats: Stats) -> bool:
    if stats.vectors.get(embedder.name, 0) >= stats.passages:
        return False
    return bool(await store.unembedded(embedder.name, limit=1))


def _progress(embedder: Embedder, stats: Stats) -> Reason:
    made = stats.vectors.get(embedder.name, 0)
    return Reason(Cause.VECTORS_MISSING, kind=embedder.kind, made=made, passages=stats.passages)
