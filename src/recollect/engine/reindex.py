"""Index every stored segment anew, as it would be indexed if it arrived now.

Owns the walk through the store; what a segment is found by is said where it is written.
"""

from __future__ import annotations

from dataclasses import dataclass

from recollect.ports import Clock, Store
from recollect.transfer.openclaw import passages_of
from recollect.transfer.transcripts import Progress

PAGE_SEGMENTS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Reindexed:
    """How much was indexed."""

    segments: int = 0
    passages: int = 0


async def reindex(store: Store, clock: Clock, progress: Progress | None = None) -> Reindexed:
    """Cut and tokenise every segment; vectors stay where a passage stays."""
    total = (await store.stats()).segments
    segments = passages = after = 0
    while page := await store.page(after=after, limit=PAGE_SEGMENTS):
        after = page[-1].sequence
        made = {one.segment.id: passages_of(one.segment) for one in page}
        await store.replace_passages(made, at=clock.now())
        passages += sum(map(len, made.values()))
        segments += len(page)
        if progress is not None:
            progress(segments, total)
    return Reindexed(segments=segments, passages=passages)
