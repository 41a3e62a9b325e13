"""Reads what earlier sessions tell a new one (`core/turn/brief.py`), for hooks and other hosts."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Final

from recollect.core.engine.parts import EngineParts
from recollect.core.ports import StandingRecaller
from recollect.core.turn.past_turns import Past, read_past
from recollect.core.values.history import SessionId
from recollect.core.values.segment import Segment

MAX_SEGMENTS: Final = 3_000
"""The newest messages that are read, about a month of work. Reading them takes a tenth of a second
(bench week). An older order gives no rule: what withdrew it may be older, too."""


async def read_stored_past(parts: EngineParts, *, without: SessionId, folder: str = "") -> Past:
    """Read the turns of all sessions but one, the rules that still hold, and pinned facts. Paths
    are shortened relative to `folder`. Raise StoreError if memory cannot be read."""
    stored = await parts.store.page(after=2**62, limit=MAX_SEGMENTS, descending=True)
    segments: list[Segment] = [one.segment for one in stored if one.segment.session != without]
    after_gap = frozenset(
        newer.segment.id for newer, older in pairwise(stored) if newer.sequence > older.sequence + 1
    )
    pinned: tuple[str, ...] = ()
    if isinstance(parts.recaller, StandingRecaller):
        facts = await parts.recaller.standing(without)
        pinned = tuple(fact.text for fact in facts if fact.id is not None)
    return await asyncio.to_thread(
        read_past, segments[::-1], folder=folder, pinned=pinned, after_gap=after_gap
    )
