"""Writes batches durably: to the store within its deadline, else to the spool.

Owns the order of writes: while anything waits in the spool, what follows waits behind it, so a
store that was away receives everything in the order it happened. It must never make a turn
wait for a store that is known to be away, and never lets a failing store raise.
Always holds: `write` answers "store" or "spool" only for what is durable there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from recollect.engine.boundary import Failure, attempted
from recollect.errors import FormatError, StoreError, StoreUnavailable
from recollect.formats.batches import read_batch, write_batch
from recollect.ports import Spool, Store
from recollect.values.batch import Batch, Written

T = TypeVar("T")
Where: TypeAlias = Literal["store", "spool", "nowhere"]

RETRY_SECONDS = 0.1
"""How long after a failure the store is tried again; doubled up to the longest."""
RETRY_MOST_SECONDS = 3.0
CLOSE_SECONDS = 1.0
"""How long closing waits for the spool to drain."""
OPEN_SECONDS = 1.0
"""Opening may take longer than an answer: a driver is imported, tables may have to be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Where a batch is durable now, and what went wrong where it is not in the store."""

    where: Where
    written: Written | None = None
    said: str = ""


class DurableArchive:
    """One space's way to its store; one for each engine."""

    def __init__(
        self,
        open_store: Callable[[], Awaitable[Store]],
        open_spool: Callable[[], Awaitable[Spool]] | None,
        *,
        deadline_seconds: float,
    ) -> None:
        self._open_store = open_store
        self._open_spool = open_spool
        self._deadline_seconds = deadline_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._order = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._store: Store | None = None
        self._spool: Spool | None = None
        self._spooling = False
        self._draining: asyncio.Task[None] | None = None
        self._abandoned: set[asyncio.Task[Any]] = set()
        self._away_until = 0.0
        self._closed = False
        self.set_aside = 0
        """Spooled batches that the store refuses; they stay beside the spool."""

    @property
    def away(self) -> bool:
        """The store failed a moment ago; asking it again would only cost time."""
        return time.monotonic() < self._away_until

    @property
    def spooling(self) -> bool:
        """Batches wait in the spool."""
        return self._spooling

    async def store(self) -> Store:
        """The open store; StoreError when it cannot be opened."""
        async with self._opening:
            if self._closed:
                raise StoreUnavailable("this memory is closed; open it again")
            if self._store is None:
                self._store = await self._open_store()
            return self._store

    async def ask(self, question: Callable[[Store], Awaitable[T]]) -> T | Failure:
        """Ask the store something within the deadline; a failure says why."""
        await self._settle_in()
        if self.away or self._spooling:
            return Failure(said="the store is away")
        return await self._bounded(question)

    async def write(self, batch: Batch) -> Kept:
        """Make a batch durable, in order."""
        await self._settle_in()
        async with self._order:
            await self._look_at_spool()
            said = "earlier batches wait for it" if self._spooling else "the store is away"
            if not self._spooling and not self.away:
                answer = await self._bounded(lambda store: store.write(batch))
                if not isinstance(answer, Failure):
                    return Kept(where="store", written=answer)
                said = answer.said
            return await self._to_spool(batch, said)

    async def settle(self, seconds: float) -> int:
        """Give the spool this long to drain; returns how many batches still wait in it."""
        if self._draining is not None:
            await asyncio.wait({self._draining}, timeout=seconds)
        return 0 if self._spool is None else await self._spool.waiting()

    async def close(self) -> None:
        """Stop draining and close what was opened; what waits in the spool stays there."""
        await self._settle_in()
        self._closed = True
        if self._draining is not None:
            self._draining.cancel()
            await asyncio.wait({self._draining})
        if self._abandoned:
            await asyncio.wait(self._abandoned, timeout=self._deadline_seconds)
        for opened in (self._store, self._spool):
            if opened is not None:
                await attempted(opened.close())
        self._store = self._spool = None

    async def _settle_in(self) -> None:
        """In another event loop than before (`asyncio.run` called again), open everything anew:
        connections, locks and tasks belong to the loop they were made in."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        left = () if self._loop is None else (self._store, self._spool)
        self._loop = loop
        self._order, self._opening = asyncio.Lock(), asyncio.Lock()
        self._store = self._spool = self._draining = None
        self._spooling = False
        self._abandoned.clear()
        for opened in left:
            if opened is not None:
                await attempted(asyncio.wait_for(opened.close(), OPEN_SECONDS))

    async def _bounded(self, question: Callable[[Store], Awaitable[T]]) -> T | Failure:
        """The answer within the deadline. A late call is left to end by itself: a write that
        was cut off half-way through its commit would be neither done nor undone."""

        async def asked() -> T:
            return await question(await self.store())

        async def told() -> T | Failure:
            return await attempted(asked())

        opened = self._store is not None
        allowed = self._deadline_seconds if opened else max(OPEN_SECONDS, self._deadline_seconds)
        running = asyncio.create_task(told())
        done, _ = await asyncio.wait({running}, timeout=allowed)
        answer = running.result() if done else Failure(said=f"no answer within {allowed:g} s")
        if not done:
            self._abandoned.add(running)
            running.add_done_callback(self._abandoned.discard)
        if isinstance(answer, Failure) and not answer.refused:
            pause = RETRY_SECONDS if opened else RETRY_MOST_SECONDS
            self._away_until = time.monotonic() + pause
        return answer

    async def _look_at_spool(self) -> None:
        """Open the spool the first time; what an earlier process left goes first."""
        if self._spool is not None or self._open_spool is None:
            return
        opened = await attempted(self._open_spool())
        if isinstance(opened, Failure):
            return
        self._spool = opened
        if await opened.waiting():
            self._start_spooling()

    async def _to_spool(self, batch: Batch, said: str) -> Kept:
        if self._spool is None:
            return Kept(where="nowhere", said=f"{said}; and there is no spool")
        kept = await attempted(self._spool.append(write_batch(batch)))
        if isinstance(kept, Failure):
            return Kept(where="nowhere", said=f"{said}; the spool failed too: {kept.said}")
        self._start_spooling()
        return Kept(where="spool", said=said)

    def _start_spooling(self) -> None:
        self._spooling = True
        if self._draining is None or self._draining.done():
            self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        """Until the spool is empty: hand its batches to the store, in order."""
        assert self._spool is not None
        wait = RETRY_SECONDS
        while True:
            drained = await attempted(self._spool.drain(self._take))
            if isinstance(drained, Failure):
                await asyncio.sleep(wait)
                wait = min(2 * wait, RETRY_MOST_SECONDS)
                continue
            async with self._order:
                if not await self._spool.waiting():
                    self._spooling = False
                    self._away_until = 0.0
                    return

    async def _take(self, record: bytes) -> None:
        """One spooled batch into the store. What the store refuses for itself is set aside:
        it must not keep everything behind it out for ever."""
        store = await self.store()
        try:
            await store.write(read_batch(record))
        except StoreUnavailable:
            raise
        except (StoreError, FormatError) as error:
            assert self._spool is not None
            await self._spool.set_aside(record, reason=type(error).__name__)
            self.set_aside += 1
