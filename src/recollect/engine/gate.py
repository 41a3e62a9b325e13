"""The gate at a batch moment: nothing leaves a view before it is durable (design.md promise 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.engine.archive import Kept
from recollect.engine.keeping import Keeping, SessionKeeper
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
        """Those that may not leave the view."""
        return self.keeper.not_durable(entries, self.keeping)
