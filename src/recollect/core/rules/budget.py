"""Limits of a window, and the edit batches: turns in which older messages of a request may change.
Between edit batches the provider's prompt cache stays valid (docs/contributing/sources.md)."""

from __future__ import annotations

from dataclasses import dataclass

from recollect.core.rules.price import is_uncached
from recollect.core.values.history import SessionState
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.report import AGENTS_OWN_WINDOW_TOKENS, BatchMoment, WindowSource
from recollect.system.config import FALLBACK_WINDOW_TOKENS, Settings

RESERVE_SHARE = 4
"""At most a quarter of the window is reserved (for the reply and for estimation errors)."""
OUTPUT_SHARE = 2
"""At most half of the window is reserved for the reply. Clients such as Claude Code ask for more in
every request (128,000 of 200,000 tokens), which would leave too little space for the history."""
BLOCK_SHARE = 10
"""A recalled block is at most a tenth of the window."""
TALK_SHARE = 3
"""For a question without tools, the block is at most a third of the window, because the model has
few other sources of an answer."""
BLOCKS_SHARE = 4  # see BLOCKS_CAP
BLOCKS_CAP = 2.5
"""All recalled blocks of a request together are at most a quarter of the window, and at most this
many times the limit of one block."""
FLUSH_SHARE = 20
"""A note-taking turn begins at most a twentieth of the window before a compaction."""
KEEP_SHARE = 0.4  # not measured; leaves most of the window to what follows a compaction
STANDING_SHARE = 10  # at most a tenth of the window, as the setting states

_WINDOWS: tuple[tuple[str, int], ...] = (
    # Published input windows by prefix of the model's name. The longest match is used.
    ("claude-", 200_000),
    ("gpt-3.5", 16_385),
    ("gpt-4", 8_192),
    ("gpt-4-", 128_000),
    ("gpt-4-0314", 8_192),
    ("gpt-4-0613", 8_192),
    ("gpt-4-32k", 32_768),
    ("gpt-4.5", 128_000),
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
class WindowLimits:
    """Thresholds of one window, in tokens."""

    window_tokens: int
    reserve_tokens: int
    available_tokens: int
    """Limit of the request, including system prompt, tools and recalled block."""
    limit_tokens: int
    """Threshold for pruning and trimming. With `turn.trim_first`, the threshold is lower by the
    maximum size of a recalled block."""
    low_water_tokens: int
    hard_cap_tokens: int
    talk_cap_tokens: int
    block_tokens: int
    blocks_tokens: int
    standing_tokens: int
    keep_recent_tokens: int
    flush_tokens: int
    compact_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWindow:
    """Size of a model's window, and the source of that size."""

    tokens: int
    source: WindowSource


def window_of(
    model: str | None, settings: Settings, *, learned_tokens: int | None = None
) -> ModelWindow:
    """Return the size of the model's window: from the setting, else from the table of models, else
    200,000 tokens. If a provider reported a smaller size, return that size."""
    name = (model or "").rpartition("/")[2].lower()
    matches = [(len(prefix), tokens) for prefix, tokens in _WINDOWS if name.startswith(prefix)]
    if settings.window_tokens is not None:
        window = ModelWindow(tokens=settings.window_tokens, source="settings")
    elif matches:
        window = ModelWindow(tokens=max(matches)[1], source="model")
    else:
        window = ModelWindow(tokens=FALLBACK_WINDOW_TOKENS, source="assumed")
    if learned_tokens is None or (learned_tokens >= window.tokens and window.source != "assumed"):
        return window
    return ModelWindow(tokens=learned_tokens, source="provider")


def limits_of(
    window_tokens: int, settings: Settings, *, output_tokens: int | None = None
) -> WindowLimits:
    """Return every threshold of a window. `output_tokens` is reserved for the reply, because
    providers count prompt and reply against the window. At most half of the window is reserved."""
    compaction = settings.compaction
    reserve = min(
        max(compaction.reserve_tokens, compaction.reserve_tokens_floor),
        window_tokens // RESERVE_SHARE,
    )
    if output_tokens is not None and output_tokens <= window_tokens // OUTPUT_SHARE:
        reserve = max(reserve, output_tokens)
    hard_cap = min(settings.recall.hard_cap_tokens, window_tokens // BLOCK_SHARE)
    talk_cap = min(settings.recall.hard_cap_tokens, window_tokens // TALK_SHARE)
    blocks = window_tokens  # recalled blocks cannot be removed from a window that the agent manages
    if window_tokens < AGENTS_OWN_WINDOW_TOKENS:
        blocks = min(int(BLOCKS_CAP * talk_cap), window_tokens // BLOCKS_SHARE)
    standing = min(settings.recall.standing_tokens, window_tokens // STANDING_SHARE)
    if not settings.recall.enabled:
        standing = 0
    available = window_tokens - reserve
    limit = available - hard_cap if settings.turn.trim_first else available
    compact_at = available
    if compaction.at_ratio is not None:
        compact_at = min(compact_at, int(window_tokens * compaction.at_ratio))
    flush = compaction.flush
    flush_at = compact_at - min(flush.soft_threshold_tokens, window_tokens // FLUSH_SHARE)
    if flush.at_ratio is not None:
        flush_at = min(flush_at, int(window_tokens * flush.at_ratio))
    return WindowLimits(
        window_tokens=window_tokens,
        reserve_tokens=reserve,
        available_tokens=available,
        limit_tokens=limit,
        low_water_tokens=int(limit * settings.trim.low_water_ratio),
        hard_cap_tokens=hard_cap,
        talk_cap_tokens=talk_cap,
        block_tokens=min(settings.recall.block_tokens, hard_cap),
        blocks_tokens=max(talk_cap, blocks),
        standing_tokens=standing,
        keep_recent_tokens=min(
            compaction.keep_recent_tokens, max(0, int(available * KEEP_SHARE) - standing)
        ),
        flush_tokens=flush_at,
        compact_tokens=compact_at,
    )


PROMPT_ROOM_SHARE = 2  # half a window; not measured


def limits_beside(
    fixed_tokens: int, window_tokens: int, settings: Settings, *, output_tokens: int | None = None
) -> tuple[WindowLimits, int]:
    """Return thresholds for a request whose system prompt and tools alone fill the window, and the
    tokens allowed for its messages. The window size may be a wrong guess, so Recollect allows
    messages half a window in addition."""
    room = window_tokens // PROMPT_ROOM_SHARE
    reserve = limits_of(window_tokens, settings, output_tokens=output_tokens).reserve_tokens
    enlarged_tokens = fixed_tokens + reserve + room
    return limits_of(enlarged_tokens, settings, output_tokens=output_tokens), room


WORTHWHILE_SHARE = 20
"""An edit batch that is due because of a ratio must save at least a twentieth of the window."""

LONG_TTL_SECONDS = 3_600.0
"""Cache lifetime of requests that ask the provider to cache for an hour."""


def batch_moment(
    settings: Settings,
    limits: WindowLimits,
    state: SessionState,
    *,
    used_tokens: int,
    now: float,
    kept_an_hour: bool = False,
) -> BatchMoment | None:
    """Return the edit batch for this turn, if any. The provider's cache counts as expired if the
    last request is longer ago than `pruning.ttl`, and than every pause that the cache has survived.
    `kept_an_hour` is true if the request asks to be cached for an hour."""
    if used_tokens > limits.limit_tokens:
        excess_reason = Reason(Cause.OVER_LIMIT, limit=limits.limit_tokens)
        return BatchMoment(kind="over-limit", reason=excess_reason)
    pruning = settings.pruning
    cache_seconds = LONG_TTL_SECONDS if kept_an_hour else 0.0
    age = 0.0 if state.sent_at is None else now - state.sent_at
    if age >= max(pruning.ttl, cache_seconds) and age > state.cache.lives_seconds:
        expiry_reason = Reason(Cause.CACHE_EXPIRED, minutes=age / 60)
        return BatchMoment(kind="cache-expired", reason=expiry_reason)
    share = used_tokens / limits.window_tokens
    if is_uncached(state.cache) and share >= pruning.soft_trim_ratio:
        uncached_reason = Reason(Cause.NOT_CACHED, requests=state.cache.misses)
        return BatchMoment(kind="uncached", reason=uncached_reason)
    by_share = pruning.mode == "adaptive" and share >= pruning.soft_trim_ratio
    if by_share or pruning.mode == "aggressive":
        return BatchMoment(kind="ratio", reason=Reason(Cause.WINDOW_SHARE, share=share))
    return None
