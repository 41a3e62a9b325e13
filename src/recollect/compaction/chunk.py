"""Chunk what has to be summarised into pieces that a model can read in one call.

Chunks hold whole atomic groups: a call is never read without its results. They are balanced by
tokens and in the order of the history. What is too large to be read at all is set apart, to be
noted in the summary.
Always holds: every entry is in exactly one chunk or set apart; no chunk is empty, so reading
them always ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil

from recollect.rules.calls import group
from recollect.values.history import Entry
from recollect.values.model import WireRules

MOST_RATIO = 0.4
"""Share of the window that a chunk takes (OpenClaw's design, "Chunked Summarization")."""
LEAST_RATIO = 0.15
"""The share where messages are large (OpenClaw's design)."""
LARGE_MESSAGE_SHARE = 0.1
"""Messages are large where their average is over this share of the window (OpenClaw's design)."""
MARGIN = 1.2
"""Estimates may be short by this factor (OpenClaw's design)."""
OVERSIZED_SHARE = 0.5
"""A group over this share of the window is not read."""

WeighEntry = Callable[[Entry], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkResult:
    """The chunks to read, what is too large to be read, and why so."""

    chunks: tuple[tuple[Entry, ...], ...] = field(repr=False)
    oversized: tuple[Entry, ...] = field(default=(), repr=False)
    budget_tokens: int
    """What a chunk of several groups weighs at most; a single larger group is a chunk, too."""
    reason: str


def chunk(
    entries: Sequence[Entry],
    rules: WireRules,
    *,
    window_tokens: int,
    overhead_tokens: int = 0,
    ratio: float | None = None,
    weigh: WeighEntry | None = None,
    halvings: int = 0,
) -> ChunkResult:
    """Chunk `entries` for a model of this window.

    `overhead_tokens` is what each call needs besides its chunk: instructions, the summary before,
    the answer. `weigh` says what an entry weighs as it is written for the model; else as it
    came. Without a `ratio` it is chosen by the average message. `halvings` makes everything half
    as large so many times, for a retry after a call did not fit.
    """
    weights = [(weigh or _as_it_came)(entry) for entry in entries]
    room_tokens = max(1, window_tokens - overhead_tokens) >> halvings
    largest_tokens = min(room_tokens, (window_tokens >> halvings) * OVERSIZED_SHARE) / MARGIN
    readable: list[list[int]] = []
    oversized: list[int] = []
    for unit in _units(entries, rules):
        fits = sum(weights[at] for at in unit) <= largest_tokens
        if fits:
            readable.append(unit)
        else:
            oversized.extend(unit)
    if ratio is None:
        ratio = adaptive_ratio([weights[at] for unit in readable for at in unit], window_tokens)
    budget_tokens = max(1, int(room_tokens * ratio / MARGIN))
    chunks = _balanced(readable, weights, budget_tokens)
    said = f"{len(chunks)} chunks of up to {budget_tokens:,} tokens"
    if oversized:
        said += f"; {len(oversized)} messages are too large to be read"
    return ChunkResult(
        chunks=tuple(tuple(entries[at] for at in sorted(places)) for places in chunks),
        oversized=tuple(entries[at] for at in sorted(oversized)),
        budget_tokens=budget_tokens,
        reason=said if entries else "there is nothing to read",
    )


def adaptive_ratio(weights: Sequence[int], window_tokens: int) -> float:
    """The share of the window for a chunk: smaller the larger the average message is."""
    if not weights:
        return MOST_RATIO
    average_share = sum(weights) / len(weights) * MARGIN / window_tokens
    if average_share <= LARGE_MESSAGE_SHARE:
        return MOST_RATIO
    return max(LEAST_RATIO, MOST_RATIO - average_share * 2)


def _as_it_came(entry: Entry) -> int:
    return entry.tokens


def _units(entries: Sequence[Entry], rules: WireRules) -> list[list[int]]:
    """Places that must be read together, by the first of them.

    Groups that share a message are one unit. A unit need not be one run: a result that came late
    does not draw everything between it and its call into its chunk.
    """
    unit_of: dict[int, list[int]] = {}
    for candidate in group(entries, rules):
        joined: list[int] = []
        for at in candidate.entries:
            for known in unit_of.get(at, [at]):
                if known not in joined:
                    joined.append(known)
        for at in joined:
            unit_of[at] = joined
    for at in range(len(entries)):
        unit_of.setdefault(at, [at])
    once = {id(unit): unit for _, unit in sorted(unit_of.items(), key=lambda item: item[0])}
    return list(once.values())


def _balanced(
    units: Sequence[list[int]], weights: Sequence[int], budget_tokens: int
) -> list[list[int]]:
    """Units in order, in as few chunks as the budget allows, each about as large."""
    sizes = [sum(weights[at] for at in unit) for unit in units]
    total = sum(sizes)
    share = total / max(1, ceil(total / budget_tokens))
    chunks: list[list[int]] = []
    held = passed = 0
    for unit, size in zip(units, sizes, strict=True):
        due = len(chunks) * share  # where the open chunk should end, over all of them
        over = held + size > budget_tokens or passed + size / 2 > due
        if not chunks or (held and over):
            chunks.append([])
            held = 0
        chunks[-1].extend(unit)
        held += size
        passed += size
    return chunks
