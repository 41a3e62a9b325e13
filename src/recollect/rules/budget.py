"""One place for every limit of a window (design.md 2, "Limits").

Flush, compaction, trim and the recalled block all take their threshold from here, so that no
two of them can disagree about the reserve.
"""

from __future__ import annotations

from dataclasses import dataclass

from recollect.config import Settings

RESERVE_SHARE = 4
"""The reserve is at most a quarter of the window."""
BLOCK_SHARE = 10
"""The recalled block is at most a tenth of the window."""
FLUSH_SHARE = 20
"""The soft threshold is at most a twentieth of the window."""
KEEP_SHARE = 0.4
"""What is kept word for word is at most this share of what the reserve leaves."""

_WINDOWS: tuple[tuple[str, int], ...] = (
    # Published input windows by the beginning of a model's name; the longest match counts.
    ("claude-", 200_000),
    ("gpt-3.5", 16_385),
    ("gpt-4", 8_192),
    ("gpt-4-turbo", 128_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("gpt-5", 400_000),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
    ("gemini-", 1_048_576),
    ("deepseek", 128_000),
    ("mistral-large", 128_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The thresholds of one window, in tokens."""

    window_tokens: int
    reserve_tokens: int
    available_tokens: int
    """The view, with system prompt, tools and recalled block, never exceeds this."""
    limit_tokens: int
    """Over this it is time to prune and trim; under the seeds' preset the block's cap below."""
    low_water_tokens: int
    """What one batch of trims goes down to."""
    hard_cap_tokens: int
    block_tokens: int
    keep_recent_tokens: int
    flush_tokens: int
    """From here on a flush is due."""
    compact_tokens: int
    """From here on a compaction is due."""


def window_of(model: str | None, settings: Settings, *, learned_tokens: int | None = None) -> int:
    """The window: as set, but never above what a provider said; else by table, else 200,000."""
    from recollect.config.settings import FALLBACK_WINDOW_TOKENS

    known = settings.window_tokens
    if known is None:
        name = (model or "").rpartition("/")[2].lower()
        matches = [(len(prefix), tokens) for prefix, tokens in _WINDOWS if name.startswith(prefix)]
        known = learned_tokens or (max(matches)[1] if matches else FALLBACK_WINDOW_TOKENS)
    return known if learned_tokens is None else min(known, learned_tokens)


def limits_of(window_tokens: int, settings: Settings) -> Limits:
    """Every threshold of a window under these settings."""
    compaction = settings.compaction
    reserve = min(
        max(compaction.reserve_tokens, compaction.reserve_tokens_floor),
        window_tokens // RESERVE_SHARE,
    )
    hard_cap = min(settings.recall.hard_cap_tokens, window_tokens // BLOCK_SHARE)
    available = window_tokens - reserve
    limit = available - hard_cap if settings.turn.trim_first else available
    compact_at = available
    if compaction.at_ratio is not None:
        compact_at = min(compact_at, int(window_tokens * compaction.at_ratio))
    flush = compaction.flush
    flush_at = compact_at - min(flush.soft_threshold_tokens, window_tokens // FLUSH_SHARE)
    if flush.at_ratio is not None:
        flush_at = min(compact_at, int(window_tokens * flush.at_ratio))
    return Limits(
        window_tokens=window_tokens,
        reserve_tokens=reserve,
        available_tokens=available,
        limit_tokens=limit,
        low_water_tokens=int(limit * settings.trim.low_water_ratio),
        hard_cap_tokens=hard_cap,
        block_tokens=min(settings.recall.block_tokens, hard_cap),
        keep_recent_tokens=min(compaction.keep_recent_tokens, int(available * KEEP_SHARE)),
        flush_tokens=flush_at,
        compact_tokens=compact_at,
    )
