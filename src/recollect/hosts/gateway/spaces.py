"""The memories of the gateway, one per space, opened on demand. If a memory cannot be opened, the
gateway retries later. Until then requests are shaped without memory. Memories have their own thread
and event loop, so that they never delay a stream."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from recollect.adapters.providers.overflow import recognise_overflow
from recollect.adapters.wiring import open_memory
from recollect.adapters.wiring.models import OwnModel
from recollect.adapters.wiring.stores import deployment_secret
from recollect.core.boundary import Failure, attempted
from recollect.core.engine import Engine
from recollect.core.rules.identity import space_secret
from recollect.hosts.gateway.caller import SessionRecognition
from recollect.system.config import Settings

AGAIN_SECONDS: Final = 30.0
CLOSE_SECONDS: Final = 10.0
MOST_SESSIONS: Final = 64
IDLE_SECONDS: Final = 60.0
"""If there are more than `MOST_SESSIONS`, sessions that were idle this long are released. They are
loaded again on demand."""
MOST_OPEN: Final = 64
"""Most memories open at once. The least recently used ones are closed."""
_WARM_UP: Final = "warm-up"
_WARM_UP_REQUEST: Final = (
    b'{"model":"","messages":[{"role":"user","content":"What did we decide about it before?"}]}'
)
STUCK_SECONDS: Final = 5.0
"""If the thread does not run a trivial task within this time, it is stuck."""
SWITCH_SECONDS: Final = 0.001
"""Python's interval for switching threads. It is short, so that streams continue."""
LOG: Final = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


class MemoryThread:
    """A thread with an event loop, in which memories run."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="recollect-memory", daemon=True)
        self._looked_at: asyncio.Future[None] | None = None

    def start(self) -> None:
        sys.setswitchinterval(min(SWITCH_SECONDS, sys.getswitchinterval()))
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    @property
    def is_stuck(self) -> bool:
        """True if the thread has ended, or has not responded since the last check."""
        late = self._looked_at is not None and not self._looked_at.done()
        return late or not self._thread.is_alive()

    async def answers(self) -> bool:
        if self.is_stuck:
            return False
        looked_at = self.ask(asyncio.sleep(0))
        await asyncio.wait({looked_at}, timeout=STUCK_SECONDS)
        if not looked_at.done():
            self._looked_at = looked_at
        return looked_at.done()

    def ask(self, work: Coroutine[Any, Any, ResultT]) -> asyncio.Future[ResultT]:
        """Run work in the thread, in order. It is cancelled if its caller is."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    async def stop(self) -> None:
        """Stop the thread once its work is done."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)


@dataclass(slots=True)
class SpaceMemory:
    """One space: its engine, and the sessions recognized in it."""

    engine: Engine
    recognition: SessionRecognition
    observing: dict[str, asyncio.Task[Any]] = field(default_factory=dict)
    """Tasks that read replies, by session. The session's next turn waits for its own."""
    running: Counter[str] = field(default_factory=Counter)
    """Counts of running requests and of replies being read, by session."""
    counting: threading.Lock = field(default_factory=threading.Lock)
    used_at: float = field(default_factory=time.monotonic)
    used: OrderedDict[str, float] = field(default_factory=OrderedDict)
    """Time of each session's last use, least recently used first."""

    def use(self, session: str) -> None:
        """Record the use of a session. Release idle sessions if there are many."""
        now = time.monotonic()
        self.used[session] = now
        self.used.move_to_end(session)
        while len(self.used) > MOST_SESSIONS:
            idle, last = next(iter(self.used.items()))
            if now - last < IDLE_SECONDS or idle in self.observing or self.running[idle]:
                return
            del self.used[idle]
            self.engine.end(idle)

    @contextmanager
    def in_use(self, session: str) -> Iterator[None]:
        """Mark a request of this session as running. Both threads call this."""
        self.begin(session)
        try:
            yield
        finally:
            self.end(session)

    def begin(self, session: str) -> None:
        """Count a running request of this session, or a reply being read."""
        with self.counting:
            self.running[session] += 1

    def end(self, session: str) -> None:
        with self.counting:
            self.running[session] -= 1
            if not self.running[session]:
                del self.running[session]

    @property
    def idle(self) -> bool:
        """True if the memory may be closed: nothing is running, and no request has used it
        lately."""
        quiet = time.monotonic() - self.used_at >= IDLE_SECONDS
        return quiet and not self.running and not self.observing


class OpenSpaces:
    """The engines by space, and one engine without a store."""

    def __init__(
        self,
        settings: Settings,
        *,
        model: OwnModel | None = None,
        opened: Callable[[str], Engine] | None = None,
    ) -> None:
        self._settings = settings
        self._model = model
        self._open = opened or self._opened
        self._spaces: OrderedDict[str, SpaceMemory] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._failed_at: dict[str, float] = {}
        self._opening: dict[str, asyncio.Task[SpaceMemory | None]] = {}
        self.stateless: Engine = Engine(
            replace(
                settings,
                compaction=replace(settings.compaction, enabled=False),
                trim=replace(settings.trim, protect_messages=1, protect_first_user=False),
            ),
            recognise_overflow=recognise_overflow,
            off_the_loop=True,
        )
        """Shapes a request without memory: fixes pairs of calls and results, and trims to the
        window."""

    def _opened(self, space: str) -> Engine:
        return open_memory(
            space=space, settings=self._settings, model=self._model, off_the_loop=True
        )

    async def get(self, space: str) -> SpaceMemory | None:
        """Return the memory of a space; None if it cannot be opened now."""
        known = self._spaces.get(space)
        if known is not None:
            self._spaces.move_to_end(space)
            known.used_at = time.monotonic()
            return known
        failed = self._failed_at.get(space)
        if failed is not None and time.monotonic() - failed < AGAIN_SECONDS:
            return None
        opening = self._opening.get(space)
        if opening is None:  # only one caller opens it; the others wait
            opening = self._opening[space] = asyncio.create_task(self._open_aside(space))
            opening.add_done_callback(lambda _: self._opening.pop(space, None))
        return await asyncio.shield(opening)

    async def _open_aside(self, space: str) -> SpaceMemory | None:
        made = await attempted(asyncio.to_thread(self._made, space))
        if isinstance(made, Failure):
            if space not in self._failed_at:
                LOG.warning("the memory of space %r cannot be opened: %s", space, made.said)
            self._failed_at[space] = time.monotonic()
            return None
        self._failed_at.pop(space, None)
        self._spaces[space] = made
        self._close_unused()
        return made

    def _made(self, space: str) -> SpaceMemory:
        secret = space_secret(space, deployment_secret())
        return SpaceMemory(self._open(space), SessionRecognition(secret))

    def _close_unused(self) -> None:
        for space in tuple(self._spaces)[: max(0, len(self._spaces) - MOST_OPEN)]:
            if self._spaces[space].idle:
                task = asyncio.create_task(_closed(self._spaces.pop(space)))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._spaces)

    def opened(self) -> tuple[SpaceMemory, ...]:
        return tuple(self._spaces.values())

    async def warm(self, space: str) -> None:
        """Open a memory and load what its first turn needs."""
        memory = await self.get(space)
        engines = (self.stateless,) if memory is None else (self.stateless, memory.engine)
        for engine in engines:
            await attempted(engine.preview(_WARM_UP, _WARM_UP_REQUEST))
            engine.end(_WARM_UP)

    async def close(self) -> None:
        """Finish reading replies, then close every memory."""
        closing = [_closed(memory) for memory in self._spaces.values()]
        await asyncio.gather(*closing, *self._closing)
        await self.stateless.close()


async def _closed(memory: SpaceMemory) -> None:
    waiting = set(memory.observing.values())
    if waiting:
        await asyncio.wait(waiting, timeout=CLOSE_SECONDS)
    closed = await attempted(asyncio.wait_for(memory.engine.close(), CLOSE_SECONDS))
    if isinstance(closed, Failure):
        LOG.warning("a memory was not closed: %s; its last writes are in the spool", closed.said)
