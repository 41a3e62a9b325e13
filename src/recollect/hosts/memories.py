"""The open memories of a process, and the thread in which they run. A memory is opened on first use
and shared by its users. If too many are open, an unused memory is closed. Gateway, hooks and
service have such pools; each only decides how to open a memory."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from recollect.core.boundary import Failure, attempted
from recollect.system.places import data_home

if TYPE_CHECKING:
    from recollect.adapters.wiring.models import OwnModel
    from recollect.core.engine import Engine
    from recollect.system.config import Settings

AGAIN_SECONDS: Final = 30.0
"""After a failure to open a memory, Recollect tries again only after this time."""
CLOSE_SECONDS: Final = 10.0  # not measured; bounds how long a stop may take
IDLE_SECONDS: Final = 60.0
"""A memory or session counts as idle if it was not used for this long."""
MOST_OPEN: Final = 64  # not measured; each holds a connection and vectors in RAM
MOST_SESSIONS: Final = 64
"""If a memory has loaded more sessions than this, idle sessions are released until needed."""
STUCK_SECONDS: Final = 5.0
"""The thread counts as stuck if it does not run a trivial task within this time."""
LOG: Final = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")
KeyT = TypeVar("KeyT", bound=Hashable)
MemoryT = TypeVar("MemoryT", bound="OpenMemory")


@dataclass(slots=True, eq=False)
class OpenMemory:
    """One open memory, and its current uses."""

    engine: Engine
    running: Counter[str] = field(default_factory=Counter)
    """Number of current uses, by session or user."""
    used_at: float = field(default_factory=time.monotonic)
    sessions: OrderedDict[str, float] = field(default_factory=OrderedDict)
    """Time of each session's last use, least recently used first."""
    counting: threading.Lock = field(default_factory=threading.Lock)
    on_unused: Callable[[], object] | None = None
    """Called when the last use ends, in the thread of that use."""

    def begin(self, user: str) -> None:
        """Count a new use. Any thread may call this method."""
        with self.counting:
            self.running[user] += 1

    def end(self, user: str) -> None:
        with self.counting:
            self.running[user] -= 1
            if not self.running[user]:
                del self.running[user]
            if not self.running and self.on_unused is not None:
                self.on_unused()

    @contextmanager
    def in_use(self, user: str) -> Iterator[None]:
        """Count a use while the block runs."""
        self.begin(user)
        try:
            yield
        finally:
            self.end(user)

    def touch(self, session: str) -> None:
        """Record the use of a session. Release idle sessions if too many are loaded."""
        now = time.monotonic()
        self.sessions[session] = now
        self.sessions.move_to_end(session)
        while len(self.sessions) > MOST_SESSIONS:
            idle, last = next(iter(self.sessions.items()))
            if now - last < IDLE_SECONDS or self.running[idle]:
                return
            del self.sessions[idle]
            self.engine.end(idle)

    async def close(self, patience_seconds: float | None = None) -> None:
        """Close the memory after its last use has ended, or after `patience_seconds`."""
        unused = asyncio.Event()
        with self.counting:
            self.on_unused = partial(asyncio.get_running_loop().call_soon_threadsafe, unused.set)
            if not self.running:
                unused.set()
        try:
            await asyncio.wait_for(unused.wait(), patience_seconds)
        except TimeoutError:
            LOG.warning("a memory is closed although a request still uses it")
        result = await attempted(self.engine.close())
        if isinstance(result, Failure):
            LOG.warning("a memory was not closed: %s", result.said)


class MemoryPool(Generic[KeyT, MemoryT]):
    """The open memories of one kind, by key. Only one event loop may call the pool."""

    def __init__(
        self,
        opener: Callable[[KeyT], MemoryT],
        *,
        most_open: int | None = None,
        idle_seconds: float | None = None,
    ) -> None:
        """Create an empty pool. `opener` opens a memory, in a thread. If more than `most_open` are
        open, the pool closes the least recently used memories that were idle for `idle_seconds`."""
        self._opener = opener
        self._most_open = most_open
        self._idle_seconds = idle_seconds
        self._memories: OrderedDict[KeyT, MemoryT] = OrderedDict()
        self._opening: dict[KeyT, asyncio.Task[MemoryT | Failure]] = {}
        self._waiting: Counter[KeyT] = Counter()
        """Number of callers that wait for a memory which is being opened."""
        self._failures: dict[KeyT, tuple[float, Failure]] = {}
        self._closing: dict[KeyT, asyncio.Task[None]] = {}
        self._is_closed = False

    @property
    def keys(self) -> tuple[KeyT, ...]:
        return tuple(self._memories)

    def open_memories(self) -> tuple[MemoryT, ...]:
        return tuple(self._memories.values())

    async def get(self, key: KeyT, *, retry_now: bool = False) -> MemoryT | Failure:
        """Return a memory, or the failure to open it. After a failure, wait `AGAIN_SECONDS` before
        another attempt, unless `again` is true."""
        open_memory = self._memories.get(key)
        if open_memory is not None:
            self._memories.move_to_end(key)
            open_memory.used_at = time.monotonic()
            return open_memory
        failed_at, failure = self._failures.get(key, (0.0, None))
        if failure is not None and not retry_now and time.monotonic() - failed_at < AGAIN_SECONDS:
            return failure
        opening = self._opening.get(key)
        if opening is None:  # only one caller opens the memory; the others wait
            opening = self._opening[key] = asyncio.create_task(self._open(key))
            opening.add_done_callback(lambda _: self._opening.pop(key, None))
        self._waiting[key] += 1
        try:
            return await asyncio.shield(opening)
        finally:
            self._waiting -= Counter((key,))

    async def _open(self, key: KeyT) -> MemoryT | Failure:
        # Two engines of one store would not know each other's messages that are not stored yet.
        if key in self._closing:
            await asyncio.wait({self._closing[key]})
        memory = await attempted(asyncio.to_thread(self._opener, key))
        if isinstance(memory, Failure):
            _, earlier_failure = self._failures.get(key, (0.0, None))
            if (
                earlier_failure is None or earlier_failure.said != memory.said
            ):  # a tenant's key must not be logged
                space_note = f" of space {key!r}" if isinstance(key, str) else ""
                LOG.warning("the memory%s cannot be opened: %s", space_note, memory.reason)
            self._failures[key] = time.monotonic(), memory
            return memory
        self._failures.pop(key, None)
        self._memories[key] = memory
        if self._is_closed:  # it was opened too late for `close`
            self.drop(key)
        self._close_unused()
        return memory

    @asynccontextmanager
    async def use(self, key: KeyT, user: str = "") -> AsyncIterator[MemoryT]:
        """Return a memory that stays open while the block runs. Raise an error if opening fails."""
        try:
            memory = await self.get(key, retry_now=True)
            while not isinstance(memory, Failure) and self._memories.get(key) is not memory:
                memory = await self.get(key, retry_now=True)  # this memory was closed meanwhile
            if isinstance(memory, Failure):
                raise memory.raised
            with memory.in_use(user):
                yield memory
        finally:
            self._close_unused()

    def _close_unused(self) -> None:
        max_open = MOST_OPEN if self._most_open is None else self._most_open
        idle_seconds = IDLE_SECONDS if self._idle_seconds is None else self._idle_seconds
        now = time.monotonic()
        for key in tuple(islice(self._memories, max(0, len(self._memories) - max_open))):
            memory = self._memories[key]
            is_used = memory.running or self._waiting[key]
            if not is_used and now - memory.used_at >= idle_seconds:
                self.drop(key)

    def drop(self, key: KeyT) -> asyncio.Task[None] | None:
        """Close a memory after its last use. Callers that ask for this key meanwhile wait, and get
        a new memory. Return the task that closes it, if it is open or closing."""
        memory = self._memories.pop(key, None)
        if memory is not None:
            closing = self._closing[key] = asyncio.create_task(memory.close())
            closing.add_done_callback(lambda _: self._closing.pop(key, None))
        return self._closing.get(key)

    async def close(self) -> None:
        """Close every memory. Running work has a limited time to end."""
        self._is_closed = True
        if self._opening:
            await asyncio.wait(self._opening.values(), timeout=CLOSE_SECONDS)
        closing = [memory.close(CLOSE_SECONDS) for memory in self._memories.values()]
        self._memories.clear()
        await asyncio.gather(*closing, *self._closing.values())


def open_space(space: str, settings: Settings, model: OwnModel | None = None) -> Engine:
    """Open the memory of a space, for a thread that also serves other spaces."""
    from recollect.adapters.wiring import open_memory  # this import is slow

    return open_memory(space=space, settings=settings, model=model, off_the_loop=True)


def enter_data_folder() -> None:
    """Change to Recollect's data folder, because the user's settings may contain relative names."""
    from recollect.system.config.load import find_settings_file

    settings_file = find_settings_file(None)
    if settings_file:
        os.environ["RECOLLECT_CONFIG"] = str(settings_file)
    home = data_home()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chdir(home)


class MemoryThread:
    """A thread with an event loop, in which memories run."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="recollect-memory", daemon=True)
        self._pending_check: asyncio.Future[None] | None = None

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            remaining_tasks = asyncio.all_tasks(self.loop)
            for task in remaining_tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*remaining_tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    @property
    def is_stuck(self) -> bool:
        """True if the thread has ended, or did not respond at the last check."""
        late = self._pending_check is not None and not self._pending_check.done()
        return late or not self._thread.is_alive()

    async def responds(self) -> bool:
        if self.is_stuck:
            return False
        check = self.ask(asyncio.sleep(0))
        await asyncio.wait({check}, timeout=STUCK_SECONDS)
        if not check.done():
            self._pending_check = check
        return check.done()

    def ask(self, work: Coroutine[Any, Any, ResultT]) -> asyncio.Future[ResultT]:
        """Run work in the thread, in order. Cancelling the caller cancels its work."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    async def stop(self, *closing: Coroutine[Any, Any, Any]) -> None:
        """Run `closing` in the thread, then stop the thread. Do not wait for a stuck thread."""
        waiting = {self.ask(attempted(work)) for work in closing}
        while waiting and await self.responds():
            _, waiting = await asyncio.wait(waiting, timeout=STUCK_SECONDS)
        if waiting or not await self.responds():
            LOG.warning("the memories were not closed: their thread does not respond")
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)
