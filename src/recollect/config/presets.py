"""The presets: values that belong together, applied below every explicit source.

Each table holds only what differs from the defaults in `settings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

OPENCLAW: Mapping[str, Any] = {
    # Whole messages by OpenClaw's score, none of our evidence, in its own lines.
    "recall.method": "openclaw",
    "recall.embedder": "hash",
    "recall.scope": "session",
    # Recall on every turn, its block after the system prompt, gone on the next turn.
    "recall.every_turn": True,
    "recall.placement": "after-system",
    "recall.sticky": False,
    # OpenClaw fills the block up to the hard cap.
    "recall.block_tokens": 4000,
    "recall.min_score": 0.7,
    "recall.decay_per_day": 0.995,
    "recall.hybrid.vector_weight": 0.7,
    "recall.hybrid.text_weight": 0.3,
    # Trim before compaction on every turn, and stop as soon as the limit is met.
    "turn.trim_first": True,
    "trim.low_water_ratio": 1.0,
    "trim.protect_first_user": False,
    # ceil(len/3), never corrected by what the provider reports.
    "tokens.counter": "openclaw",
    "tokens.calibrate": False,
    # Summaries in one pass, with nothing of ours added to them.
    "compaction.mode": "default",
    "compaction.audit": False,
    "compaction.pin_ratio": 0.0,
    "index.max_segments": 20_000,
    "index.eviction_days": 90,
}
"""How OpenClaw does it (settings.md, "Presets")."""

PRESETS: Mapping[str, Mapping[str, Any]] = {"recollect": {}, "openclaw": OPENCLAW}
