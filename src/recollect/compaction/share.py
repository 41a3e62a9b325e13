"""The history's share: how much of what is cut the main summary reads itself.

Over `compaction.max_history_share` of the window the oldest chunks are summarised apart, and
their summary enters the main one as what came before (OpenClaw's design, "Safeguard Pruning").
Nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from recollect.compaction.chunk import MARGIN, WeighEntry
from recollect.values.history import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareResult:
    """Chunks to summarise apart first, chunks of the main summary, and why."""

    apart: tuple[tuple[Entry, ...], ...] = field(repr=False)
    main: tuple[tuple[Entry, ...], ...] = field(repr=False)
    budget_tokens: int
    reason: str


def share(
    chunks: Sequence[tuple[Entry, ...]],
    *,
    window_tokens: int,
    max_history_share: float,
    weigh: WeighEntry | None = None,
) -> ShareResult:
    """Set the oldest chunks apart until the rest fits its share; the newest is never apart."""
    budget_tokens = int(window_tokens * max_history_share / MARGIN)
    sizes = [sum(weigh(e) if weigh else e.tokens for e in one) for one in chunks]
    apart = 0
    left = sum(sizes)
    while left > budget_tokens and apart < len(chunks) - 1:
        left -= sizes[apart]
        apart += 1
    if apart:
        reason = f"the oldest {apart} of {len(chunks)} chunks are summarised apart"
    elif left > budget_tokens:
        reason = "over its share of the window, but in one chunk"
    else:
        reason = "the history is within its share of the window"
    return ShareResult(
        apart=tuple(chunks[:apart]),
        main=tuple(chunks[apart:]),
        budget_tokens=budget_tokens,
        reason=reason,
    )
