"""The parts that the users of one engine share: settings, store and workers, made once."""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.core.boundary import Boundary
from recollect.core.engine.background import BackgroundNotes
from recollect.core.engine.compact import Compactor
from recollect.core.engine.guarded_store import NOTHING_KEPT, GuardedStore
from recollect.core.engine.keeper import SessionKeeper
from recollect.core.engine.open_sessions import OpenSessions
from recollect.core.engine.session import ToolAnswers
from recollect.core.ports import Clock, Model, Recaller
from recollect.core.rules.identity import SealSecret
from recollect.core.rules.tokens import Weigher
from recollect.core.transfer.memory_files import Following
from recollect.core.upkeep.jobs import BackgroundJobs
from recollect.core.values.history import SpaceId
from recollect.errors import StoreError
from recollect.system.config import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """The parts of one engine. They do not change as long as the engine lives."""

    settings: Settings
    space: SpaceId
    clock: Clock
    weigher: Weigher
    secret: bytes = field(repr=False)
    """Keys the ids of messages."""
    seal: SealSecret = field(repr=False)
    """Returns the key of the seals of tool answers."""
    embedder_names: tuple[str, ...]
    model: Model | None
    recaller: Recaller | None
    store: GuardedStore
    reader: SessionKeeper | None
    """Reads sessions from the store, also with `ingest.enabled = false`."""
    keeper: SessionKeeper | None
    """The value of `reader` if messages may be stored; otherwise None."""
    compactor: Compactor
    sessions: OpenSessions
    tool_answers: ToolAnswers
    notes: BackgroundNotes
    jobs: BackgroundJobs | None
    files: Following | None
    off_the_loop: bool

    def new_boundary(self, *, is_quick: bool = False) -> Boundary:
        """Return the boundary of one turn."""
        return Boundary(
            turn_seconds=self.settings.turn.deadline_seconds,
            stage_seconds=self.settings.turn.stage_deadline_seconds,
            off_the_loop=self.off_the_loop,
            is_quick=is_quick,
        )

    def require_keeper(self) -> SessionKeeper:
        """Return the keeper. Raise StoreError if this memory is read-only."""
        if self.keeper is None:
            raise StoreError(NOTHING_KEPT)
        return self.keeper

    def wake_jobs(self, due_at: float | None = None) -> None:
        """Start due jobs now or at `due_at`, without waiting for them."""
        if self.jobs is not None:
            self.jobs.wake(0.0 if due_at is None else max(0.0, due_at - self.clock.now()))

    async def read_files(self) -> None:
        """Read changed memory files, and wait for a limited time until they are read."""
        if self.files is not None:
            await self.files.look_now()
