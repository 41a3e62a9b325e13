"""Writes batches durably: to the store within its deadline, else to the spool.

Owns when a batch goes where: while anything waits in the spool, what follows waits behind it,
so a store that was away receives each session in the order it happened. It must never make a
turn wait for a store that is known to be away, and never lets a failing store raise.
Always holds: `write` answers "store" or "spool" only for what is durable there; nothing that was
begun is cut off, since a write that was cancelled half-way is neither done nor undone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from recollect.engine.boundary import Failure, Part, attempted
from recollect.errors import BatchRefused, FormatError, StoreError, StoreUnavailable
from recollect.formats.batches import read_batch, write_batch
from recollect.ports import Spool, Store
from recollect.values.batch import Batch, Written

T = TypeVar("T")
Where: TypeAlias = Literal["store", "spool", "nowhere"]

RETRY_SECONDS = 0.1
"""How long after a failure the store is tried again; doubled up to the longest."""
RETRY_MOST_SECONDS = 3.0
SPOOL_SECONDS = 1.0
"""How long the spool may take: it is a file, but a disk can hang and a lock be held."""
CLOSE_SECONDS = 1.0
"""How long closing waits for the spool to drain."""
BUG_SECONDS = 60.0
"""How long a batch is offered to a store that fails on it for no reason it can name."""


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
        open_seconds: float | None = None,
    ) -> None:
        """`open_seconds` is what opening may take, where it is more than an answer."""
        self._open_store = open_store
        self._open_spool = open_spool
        self._deadline_seconds = deadline_seconds
        self._open_seconds = max(deadline_seconds, open_seconds or 0.0)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._spool_lock = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._store: Store | None = None
        self._spool: Spool | None = None
        self._spooling = False
        self._draining: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[Any]] = set()
        self._away_until = 0.0
        self._closed = False
        self._stuck: tuple[bytes, float] = (b"", 0.0)
        self.set_aside = 0
        """How many spooled batches the store refused; they lie beside the spool."""
        self._drain_said = ""
        self._took = False
        """The store has taken something out of the spool since draining began."""
        self._store_part, self._spool_part = Part("store"), Part("spool")

    @property
    def spooling(self) -> bool:
        """Batches wait in the spool."""
        return self._spooling

    def trouble(self) -> str:
        """What people should know about the store and its spool; empty when all is well."""
        said = []
        if self._spooling and self._drain_said:
            said.append(f"batches wait in the spool: {self._drain_said}")
        if self.set_aside:
            said.append(
                f"the store refused {self.set_aside} batches: `recollect memory spool` shows them"
            )
        return "; ".join(said)

    async def store(self) -> Store:
        """The open store; StoreError when it cannot be opened."""
        async with self._opening:
            if self._closed:
                raise StoreUnavailable("this memory is closed; open it again")
            if self._store is None:
                self._store = await self._open_store()
            return self._store

    async def spool(self) -> Spool | None:
        """The spool of this machine; None where there is none, or it cannot be opened."""
        await self._look_at_spool()
        return self._spool

    async def ask(self, question: Callable[[Store], Awaitable[T]]) -> T | Failure:
        """Ask the store something within the deadline; a failure says why."""
        await self._settle_in()
        if self._is_away() or self._spooling:
            return Failure(said="the store is away")
        return await self._answer(question)

    async def look(
        self, question: Callable[[Store], Awaitable[T]], *, seconds: float
    ) -> T | Failure:
        """As `ask`, with a deadline of its own; a search that is slow does not make the store
        one that is away, which would send what is said to the spool."""
        await self._settle_in()
        if self._is_away() or self._spooling:
            return Failure(said="the store is away")
        answer = await self._bounded(lambda: self._asked(question), seconds)
        if isinstance(answer, Failure) and issubclass(answer.error, StoreUnavailable):
            self._away_until = time.monotonic() + RETRY_SECONDS
            self._store_fails(answer.said)
        elif not isinstance(answer, Failure):
            self._store_works()
        return answer

    async def write(self, batch: Batch) -> Kept:
        """Make a batch durable. Batches that must keep their order are written one by one."""
        await self._settle_in()
        await self._look_at_spool()
        said = "earlier batches wait for it" if self._spooling else "the store is away"
        if not self._spooling and not self._is_away():
            answer = await self._answer(lambda store: store.write(batch))
            if not isinstance(answer, Failure):
                return Kept(where="store", written=answer)
            said = answer.said
        return await self._to_spool(batch, said)

    async def settle(self, seconds: float) -> int:
        """Give the spool this long to drain; returns how many batches still wait in it, 1 where
        it cannot be looked into."""
        await self._settle_in()
        await self._look_at_spool()
        if self._draining is not None:
            await asyncio.wait({self._draining}, timeout=seconds)
        if self._spool is None:
            return 0 if self._open_spool is None else 1  # it cannot be looked into
        waiting = await self._bounded(self._spool.waiting, SPOOL_SECONDS)
        return 1 if isinstance(waiting, Failure) else waiting

    async def close(self) -> None:
        """Stop draining and close what was opened; what waits in the spool stays there."""
        await self._settle_in()
        self._closed = True
        if self._draining is not None:
            self._draining.cancel()
            await asyncio.wait({self._draining})
        if self._running:
            await asyncio.wait(self._running, timeout=self._deadline_seconds)
        for opened in (self._store, self._spool):
            if opened is not None:
                await self._bounded(opened.close, SPOOL_SECONDS)
        self._store = self._spool = None

    def _is_away(self) -> bool:
        """The store failed a moment ago; asking it again would only cost time."""
        return time.monotonic() < self._away_until

    async def _settle_in(self) -> None:
        """In another event loop than before (`asyncio.run` called again), open everything anew:
        connections, locks and tasks belong to the loop they were made in."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        left = () if self._loop is None else (self._store, self._spool)
        self._loop = loop
        self._spool_lock, self._opening = asyncio.Lock(), asyncio.Lock()
        self._store = self._spool = self._draining = None
        self._spooling = False
        self._running.clear()
        for opened in left:
            if opened is not None:
                await self._bounded(opened.close, SPOOL_SECONDS)

    async def _answer(self, question: Callable[[Store], Awaitable[T]]) -> T | Failure:
        opened = self._store is not None
        answer = await self._bounded(
            lambda: self._asked(question),
            self._deadline_seconds if opened else self._open_seconds,
        )
        if isinstance(answer, Failure):
            pause = RETRY_SECONDS if opened else RETRY_MOST_SECONDS
            self._away_until = time.monotonic() + pause
            if not issubclass(answer.error, BatchRefused):  # told when it is set aside
                self._store_fails(answer.said)
        else:
            self._store_works()
        return answer

    def _store_fails(self, said: str) -> None:
        if not self._closed:  # what was begun before `close` may end after it
            self._store_part.away(said)

    def _store_works(self) -> None:
        """It answered; while batches wait for it in the spool it is not back yet."""
        if not self._spooling:
            self._store_part.back()

    async def _asked(self, question: Callable[[Store], Awaitable[T]]) -> T:
        return await question(await self.store())

    async def _bounded(self, work: Callable[[], Awaitable[T]], seconds: float) -> T | Failure:
        """What `work` gives within this time. What is late is left to end by itself."""

        async def told() -> T | Failure:
            return await attempted(work())

        running = asyncio.create_task(told())
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        done, _ = await asyncio.wait({running}, timeout=seconds)
        return running.result() if done else Failure(said=f"no answer within {seconds:g} s")

    async def _look_at_spool(self) -> None:
        """Open the spool the first time; what an earlier process left goes first."""
        if self._spool is not None or self._open_spool is None or self._closed:
            return
        opened = await self._bounded(self._open_spool, SPOOL_SECONDS)
        if isinstance(opened, Failure):
            self._spool_part.away(opened.said)
            return
        if self._spool is not None:
            return
        self._spool = opened
        self._spool_part.back()
        waiting = await self._bounded(opened.waiting, SPOOL_SECONDS)
        if isinstance(waiting, Failure) or waiting:
            self._start_spooling()

    async def _to_spool(self, batch: Batch, said: str) -> Kept:
        spool = self._spool
        if spool is None:
            return Kept(where="nowhere", said=f"{said}; and there is no spool")
        # Before the append, so that nothing overtakes it even if this call is cancelled.
        self._start_spooling()

        async def append() -> None:
            async with self._spool_lock:
                await spool.append(write_batch(batch))

        kept = await self._bounded(append, SPOOL_SECONDS)
        self._start_spooling()
        if isinstance(kept, Failure):
            self._spool_part.away(kept.said)
            return Kept(where="nowhere", said=f"{said}; the spool failed too: {kept.said}")
        self._spool_part.back()
        return Kept(where="spool", said=said)

    def _start_spooling(self) -> None:
        self._spooling = True
        if self._draining is None or self._draining.done():
            self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        """Until the spool is empty: hand its batches to the store, in order."""
        assert self._spool is not None
        wait, self._took = RETRY_SECONDS, False
        while True:
            drained = await attempted(self._spool.drain(self._take))
            async with self._spool_lock:  # no append between looking and letting go
                waiting = await attempted(self._spool.waiting())
                if waiting == 0 and not isinstance(drained, Failure):
                    self._spooling = False
                    self._away_until, self._drain_said = 0.0, ""
                    if self._took:  # a spool that stayed empty says nothing of the store
                        self._store_part.back()
                    return
            if isinstance(drained, Failure) or isinstance(waiting, Failure):
                self._drain_said = drained.said if isinstance(drained, Failure) else ""
                if isinstance(drained, Failure):
                    self._store_fails(drained.said)
                await asyncio.sleep(wait)
                wait = min(2 * wait, RETRY_MOST_SECONDS)

    async def _take(self, record: bytes) -> None:
        """One spooled batch into the store.

        What can never be written is set aside, since it must not keep everything behind it out
        for ever: what is no batch, what the store refuses for itself, and what it fails on again
        and again for no reason it can name. Everything else is a matter of waiting.
        """
        store = await self.store()
        written = await attempted(_write(store, record))
        if not isinstance(written, Failure):
            self._took = True
            return
        if issubclass(written.error, BatchRefused | FormatError) or self._is_stuck(record, written):
            assert self._spool is not None
            await self._spool.set_aside(record, reason=written.error.__name__)
            self.set_aside += 1
            return
        raise StoreUnavailable(written.said)

    def _is_stuck(self, record: bytes, failure: Failure) -> bool:
        if issubclass(failure.error, StoreError | OSError):
            return False
        held, since = self._stuck
        if held != record:
            self._stuck = (record, time.monotonic())
            return False
        return time.monotonic() - since > BUG_SECONDS


async def _write(store: Store, record: bytes) -> Written:
    return await store.write(read_batch(record))
