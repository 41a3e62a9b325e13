"""The memories behind the gateway, one a space, opened when first asked for.

Nothing here may stop a request: a memory that cannot be opened is tried again later, and until
then requests are shaped without one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from recollect.boundary import Failure, attempted
from recollect.config import Settings
from recollect.engine import Engine, Observation
from recollect.errors import RecollectError
from recollect.gateway.recognition import SessionRecognition
from recollect.providers.overflow import recognise_overflow
from recollect.rules.identity import space_secret
from recollect.wiring import open_memory
from recollect.wiring.models import OwnModel
from recollect.wiring.stores import deployment_secret

AGAIN_SECONDS: Final = 30.0
"""How long a memory that could not be opened is left alone."""
CLOSE_SECONDS: Final = 10.0
MOST_SESSIONS: Final = 64
IDLE_SECONDS: Final = 60.0
"""Sessions of a memory that are kept at hand: beyond so many, those that were idle for so long are
let go, and loaded from the store when they go on."""
MOST_OPEN: Final = 64
"""Memories open at once; those unused for longest are closed, and opened again when needed."""
_WARM_UP: Final = "warm-up"
_WARM_UP_REQUEST: Final = (
    b'{"model":"","messages":[{"role":"user","content":"What did we decide about it before?"}]}'
)
LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class SpaceMemory:
    """One space: its engine, and the sessions recognised in it."""

    engine: Engine
    recognition: SessionRecognition
    observing: dict[str, asyncio.Task[Observation | Failure]] = field(default_factory=dict)
    """Replies that are being read, by session: the session's next turn waits for its own."""
    running: Counter[str] = field(default_factory=Counter)
    """Requests that are being answered, by session."""
    used_at: float = field(default_factory=time.monotonic)
    """When it was last asked for."""
    used: OrderedDict[str, float] = field(default_factory=OrderedDict)
    """When each session was last asked for, longest unused first."""

    def use(self, session: str) -> None:
        """A session goes on; others that have been idle are let go where there are many."""
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
        """While a request of this session is under way."""
        self.running[session] += 1
        try:
            yield
        finally:
            self.running[session] -= 1
            if not self.running[session]:
                del self.running[session]

    @property
    def idle(self) -> bool:
        """Whether it may be closed: nothing is under way, and nobody asked for it just now."""
        quiet = time.monotonic() - self.used_at >= IDLE_SECONDS
        return quiet and not self.running and not self.observing


class OpenSpaces:
    """Engines by space, and the one that keeps nothing."""

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
        self.stateless = Engine(
            replace(settings, compaction=replace(settings.compaction, enabled=False)),
            recognise_overflow=recognise_overflow,
            off_the_loop=True,
        )
        """Shapes a request without memory: pairs mended, trimmed to its window."""

    def _opened(self, space: str) -> Engine:
        return open_memory(
            space=space, settings=self._settings, model=self._model, off_the_loop=True
        )

    async def get(self, space: str) -> SpaceMemory | None:
        """The memory of a space; None while it cannot be opened."""
        known = self._spaces.get(space)
        if known is not None:
            self._spaces.move_to_end(space)
            known.used_at = time.monotonic()
            return known
        failed = self._failed_at.get(space)
        if failed is not None and time.monotonic() - failed < AGAIN_SECONDS:
            return None
        try:
            engine = self._open(space)
        except (RecollectError, OSError, ValueError) as error:
            if failed is None:
                LOG.warning("the memory of space %r cannot be opened: %s", space, error)
            self._failed_at[space] = time.monotonic()
            return None
        self._failed_at.pop(space, None)
        secret = space_secret(space, deployment_secret())
        self._spaces[space] = memory = SpaceMemory(engine, SessionRecognition(secret))
        self._close_unused()
        return memory

    def _close_unused(self) -> None:
        """Let go of the memories that were unused for longest, where too many are open."""
        for space in tuple(self._spaces)[: max(0, len(self._spaces) - MOST_OPEN)]:
            if self._spaces[space].idle:
                task = asyncio.create_task(_closed(self._spaces.pop(space)))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    def opened(self) -> tuple[SpaceMemory, ...]:
        """The memories that are open."""
        return tuple(self._spaces.values())

    async def warm(self, space: str) -> None:
        """Open a memory and load what its first turn would, so that nobody waits for that."""
        memory = await self.get(space)
        engines = (self.stateless,) if memory is None else (self.stateless, memory.engine)
        for engine in engines:
            await attempted(engine.preview(_WARM_UP, _WARM_UP_REQUEST))
            engine.end(_WARM_UP)

    async def close(self) -> None:
        """Read what is still to be read, and close every memory."""
        closing = [_closed(memory) for memory in self._spaces.values()]
        await asyncio.gather(*closing, *self._closing)
        await self.stateless.close()


async def _closed(memory: SpaceMemory) -> None:
    waiting = set(memory.observing.values())
    if waiting:
        await asyncio.wait(waiting, timeout=CLOSE_SECONDS)
    try:
        await asyncio.wait_for(memory.engine.close(), CLOSE_SECONDS)
    except TimeoutError:
        LOG.warning("a memory was not closed in time; what it wrote last is in the spool")
