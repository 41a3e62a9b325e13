"""Which keys act in this version, and which wait for a feature that is not built yet.

The one table of it: the notices, docs/settings.md, `recollect doctor` and the test that wants
a behaviour test for every active key all read it here. Building a feature means changing its
keys' word to `ACTIVE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What setting a key does today."""

    state: Literal["active", "later", "none"]
    why: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.why}" if self.why else self.state

    def notice(self) -> str:
        """What a person who set the key is told; empty when it acts."""
        if self.state == "active":
            return ""
        if self.state == "later":
            return f"accepted; takes effect with {self.why}, which this version does not have yet"
        return f"accepted without effect: {self.why}"


ACTIVE: Final = Effect(state="active")

EFFECTS: Final[Mapping[str, Effect]] = {
    "preset": ACTIVE,
    "window_tokens": ACTIVE,
    "turn.trim_first": ACTIVE,
    "turn.deadline_seconds": ACTIVE,
    "turn.stage_deadline_seconds": ACTIVE,
    "tokens.counter": ACTIVE,
    "tokens.calibrate": ACTIVE,
    "pruning.mode": ACTIVE,
    "pruning.ttl": ACTIVE,
    "pruning.keep_last_assistants": ACTIVE,
    "pruning.soft_trim_ratio": ACTIVE,
    "pruning.hard_clear_ratio": ACTIVE,
    "pruning.min_prunable_tool_chars": ACTIVE,
    "pruning.soft_trim.max_chars": ACTIVE,
    "pruning.soft_trim.head_chars": ACTIVE,
    "pruning.soft_trim.tail_chars": ACTIVE,
    "pruning.hard_clear.enabled": ACTIVE,
    "pruning.hard_clear.placeholder": ACTIVE,
    "pruning.hard_clear.line_chars": ACTIVE,
    "pruning.tools.allow": ACTIVE,
    "pruning.tools.deny": ACTIVE,
    "trim.low_water_ratio": ACTIVE,
    "trim.protect_messages": ACTIVE,
    "trim.protect_first_user": ACTIVE,
    "trim.min_query_chars": ACTIVE,
    "query.user_messages": ACTIVE,
    "recall.enabled": ACTIVE,
    "recall.method": ACTIVE,
    "recall.every_turn": ACTIVE,
    "recall.placement": ACTIVE,
    "recall.sticky": ACTIVE,
    "recall.hard_cap_tokens": ACTIVE,
    "recall.block_tokens": ACTIVE,
    "recall.standing_tokens": ACTIVE,
    "recall.embedder": ACTIVE,
    "recall.onnx_model": ACTIVE,
    "recall.min_score": ACTIVE,
    "recall.scope": ACTIVE,
    "recall.decay_per_day": ACTIVE,
    "recall.max_results": ACTIVE,
    "recall.deadline_seconds": ACTIVE,
    "recall.citations": ACTIVE,
    "recall.hybrid.enabled": ACTIVE,
    "recall.hybrid.vector_weight": ACTIVE,
    "recall.hybrid.text_weight": ACTIVE,
    "recall.hybrid.candidate_multiplier": ACTIVE,
    "recall.remote.provider": ACTIVE,
    "recall.remote.model": ACTIVE,
    "recall.remote.dimensions": ACTIVE,
    "recall.remote.base_url": ACTIVE,
    "recall.remote.key_variable": ACTIVE,
    "compaction.enabled": ACTIVE,
    "compaction.mode": ACTIVE,
    "compaction.reserve_tokens": ACTIVE,
    "compaction.reserve_tokens_floor": ACTIVE,
    "compaction.keep_recent_tokens": ACTIVE,
    "compaction.max_history_share": ACTIVE,
    "compaction.at_ratio": ACTIVE,
    "compaction.background": ACTIVE,
    "compaction.summary_tokens": ACTIVE,
    "compaction.audit": ACTIVE,
    "compaction.pin_ratio": ACTIVE,
    "compaction.deadline_seconds": ACTIVE,
    "compaction.breaker_failures": ACTIVE,
    "compaction.breaker_seconds": ACTIVE,
    "compaction.flush.enabled": ACTIVE,
    "compaction.flush.soft_threshold_tokens": ACTIVE,
    "compaction.flush.at_ratio": ACTIVE,
    "compaction.flush.prompt": ACTIVE,
    "compaction.flush.system_prompt": ACTIVE,
    "redaction.enabled": ACTIVE,
    "redaction.pii": ACTIVE,
    "ingest.enabled": ACTIVE,
    "index.max_segments": ACTIVE,
    "index.eviction_days": ACTIVE,
    "index.sources": ACTIVE,
    "index.extra_paths": ACTIVE,
    "index.update_interval": ACTIVE,
    "store.url": ACTIVE,
    "store.key": ACTIVE,
    "store.open_seconds": ACTIVE,
    "store.read_seconds": ACTIVE,
    "store.write_seconds": ACTIVE,
    "store.undurable_seconds": ACTIVE,
    "jobs.in_process": ACTIVE,
    "jobs.day_tokens": ACTIVE,
    "jobs.lease_seconds": ACTIVE,
    "jobs.max_attempts": ACTIVE,
    "ledger.enabled": ACTIVE,
    "ledger.retention_days": ACTIVE,
    "facts.enabled": ACTIVE,
    "facts.idle_seconds": ACTIVE,
    "facts.window_tokens": ACTIVE,
    "facts.digests": ACTIVE,
    "models.provider": ACTIVE,
    "models.base_url": ACTIVE,
    "models.key_variable": ACTIVE,
    "models.main": ACTIVE,
    "models.summary": ACTIVE,
    "models.flush": ACTIVE,
    "models.extraction": ACTIVE,
    "models.deadline_seconds": ACTIVE,
    "embedding_cache.enabled": ACTIVE,
    "embedding_cache.max_entries": ACTIVE,
    "workspace.max_chars": ACTIVE,
    "workspace.skip_bootstrap": ACTIVE,
    "session.reset.mode": ACTIVE,
    "session.reset.at_hour": ACTIVE,
    "session.reset.idle_minutes": ACTIVE,
}


def active_keys() -> tuple[str, ...]:
    """The keys that change what this version does."""
    return tuple(path for path, effect in EFFECTS.items() if effect.state == "active")
