"""The gate at a batch moment: nothing leaves a view before it is durable (design.md promise 1),
unless nothing could be made durable for so long that the view would grow without bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.engine.archive import Kept
from recollect.engine.keeper import Keeping, SessionKeeper
from recollect.values.history import Entry
from recollect.values.message import EntryKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What one turn of one session may ask about its messages."""

    keeper: SessionKeeper
    session: str
    keeping: Keeping
    now: float

    async def make_durable(self, entries: Sequence[Entry]) -> Kept:
        """Write what is not durable yet, and wait for it."""
        return await self.keeper.make_durable(self.session, entries, self.keeping, now=self.now)

    def not_durable(self, entries: Sequence[Entry]) -> frozenset[EntryKey]:
        """Those that are in neither the store nor the spool."""
        return self.keeper.not_durable(entries, self.keeping)

    def gives_up(self) -> bool:
        """Whether they may leave the view all the same: nothing took them for too long."""
        return self.keeper.archive.gives_up()
