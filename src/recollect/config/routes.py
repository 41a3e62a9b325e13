"""Which key of an openclaw.json sets which of ours: a table, and the conversions it needs.

Owns the correspondence only; `openclaw` walks the file. Paths are in snake case; a route to
`None` is a key that OpenClaw knows and Recollect accepts without effect, for the reason given.
What is not in the table, inside a block of the table, is an error. Sources: OpenClaw's
design documents, and for keys without effect the configuration schema of OpenClaw itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from recollect.config.fields import Flag
from recollect.config.settings import CALIBRATED_MIN_SCORE

OPENCLAW_MIN_SCORES: Final = (0.6, 0.7)
"""OpenClaw's defaults of autoRecallMinScore, by version; they stand for our own default."""

DEFAULTS: Final = "agents.defaults"
CONTEXT_PLUGIN: Final = "memory-context"
LANCEDB_PLUGIN: Final = "memory-lancedb"
ENTRIES: Final = "plugins.entries"
SLOT: Final = "plugins.slots.memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where one foreign key leads: to a key of ours, converted, or nowhere for a reason.

    A conversion raises `ValueError` for what it cannot convert.
    """

    to: str | None
    convert: Callable[[Any], Any] = lambda value: value
    says: str = ""
    refused: bool = False
    """It asks for what we do not do, and not only for what means nothing here."""


def _to(path: str, convert: Callable[[Any], Any] | None = None, says: str = "") -> Route:
    return Route(to=path, convert=convert, says=says) if convert else Route(to=path, says=says)


def _without_effect(reason: str) -> Route:
    return Route(to=None, says=reason)


def _scope(cross_session: Any) -> Any:
    return "space" if Flag().read(cross_session) else "session"


def _days(days: Any) -> Any:
    return None if days == 0 and not isinstance(days, bool) else days  # there 0 is "no limit"


def _minutes_unless_said(duration: Any) -> Any:
    """OpenClaw reads a number without a unit as minutes where its text stands alone."""
    return f"{duration}m" if isinstance(duration, str) and duration.strip().isdigit() else duration


def _milliseconds(milliseconds: Any) -> Any:
    plain = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    return milliseconds / 1000 if plain else milliseconds


def _allowed(patterns: Any) -> Any:
    return ["*"] if isinstance(patterns, Sequence) and not patterns else patterns


def _paths(paths: Any) -> Any:
    """QMD names a folder and a pattern in it; ours are plain paths with patterns in them."""
    if isinstance(paths, str) or not isinstance(paths, Sequence):
        return paths
    return [_joined(one) if isinstance(one, Mapping) else one for one in paths]


def _joined(entry: Mapping[str, Any]) -> Any:
    path, pattern = entry.get("path"), entry.get("pattern")
    if not entry.keys() <= {"path", "name", "pattern"} or not isinstance(path, str):
        return entry
    return f"{path.rstrip('/')}/{pattern}" if isinstance(pattern, str) else path


_MEMORY_CONTEXT: Final[Mapping[str, Route]] = {
    "hard_cap_tokens": _to("recall.hard_cap_tokens"),
    "embedding_model": _to("recall.embedder"),
    "redaction": _to("redaction.enabled"),
    "knowledge_extraction": _to("facts.enabled"),
    "auto_recall_min_score": _to(
        "recall.min_score",
        says=f"0.6 to 0.7, its defaults, are ours, {CALIBRATED_MIN_SCORE:g}; others in proportion; "
        'as it is under preset = "openclaw"',
    ),
    "max_segments": _to("index.max_segments"),
    "eviction_days": _to("index.eviction_days", _days),
    "cross_session": _to("recall.scope", _scope),
}

_COMPACTION: Final[Mapping[str, Route]] = {
    "enabled": _to("compaction.enabled"),
    "mode": _to("compaction.mode"),
    "reserve_tokens": _to("compaction.reserve_tokens"),
    "reserve_tokens_floor": _to("compaction.reserve_tokens_floor"),
    "keep_recent_tokens": _to("compaction.keep_recent_tokens"),
    "max_history_share": _to("compaction.max_history_share"),
    "memory_flush.enabled": _to("compaction.flush.enabled"),
    "memory_flush.soft_threshold_tokens": _to("compaction.flush.soft_threshold_tokens"),
    "memory_flush.soft_threshold": _to(
        "compaction.flush.at_ratio", says="read as a share of the window"
    ),
    "memory_flush.prompt": _to("compaction.flush.prompt"),
    "memory_flush.system_prompt": _to("compaction.flush.system_prompt"),
    "memory_flush.force_flush_transcript_bytes": _without_effect("the flush goes by tokens"),
    "memory_flush.model": _without_effect("the flush is a turn of the session's own model"),
    "model": _without_effect("summaries are written by the session's model"),
    "provider": _without_effect("summaries are written by the session's model"),
    "timeout_seconds": _without_effect("deadlines are Recollect's own"),
    "custom_instructions": _without_effect("instructions are given with a compaction on request"),
    "identifier_policy": _without_effect("exact identifiers are always carried by code"),
    "identifier_instructions": _without_effect("exact identifiers are always carried by code"),
    "recent_turns_preserve": _without_effect("compaction.keep_recent_tokens says what is kept"),
    "quality_guard": _without_effect("every compaction is probed and leaves a receipt"),
    "post_index_sync": _without_effect("messages are indexed as they arrive"),
    "post_compaction_sections": _without_effect("the host's system prompt is left alone"),
    "truncate_after_compaction": _without_effect("transcripts of others are never altered"),
    "max_active_transcript_bytes": _without_effect("transcripts of others are never altered"),
    "mid_turn_precheck": _without_effect("every request is checked, in mid-turn too"),
}

_PRUNING: Final[Mapping[str, Route]] = {
    "mode": _to("pruning.mode"),
    "ttl": _to("pruning.ttl", _minutes_unless_said),
    "keep_last_assistants": _to("pruning.keep_last_assistants"),
    "soft_trim_ratio": _to("pruning.soft_trim_ratio"),
    "hard_clear_ratio": _to("pruning.hard_clear_ratio"),
    "min_prunable_tool_chars": _to("pruning.min_prunable_tool_chars"),
    "soft_trim.max_chars": _to("pruning.soft_trim.max_chars"),
    "soft_trim.head_chars": _to("pruning.soft_trim.head_chars"),
    "soft_trim.tail_chars": _to("pruning.soft_trim.tail_chars"),
    "hard_clear.enabled": _to("pruning.hard_clear.enabled"),
    "hard_clear.placeholder": _to("pruning.hard_clear.placeholder"),
    "tools.allow": _to("pruning.tools.allow", _allowed),
    "tools.deny": _to("pruning.tools.deny"),
}

_MEMORY_SEARCH: Final[Mapping[str, Route]] = {
    "provider": _to("recall.remote.provider"),
    "model": _to("recall.remote.model"),
    "query.hybrid.enabled": _to("recall.hybrid.enabled"),
    "query.hybrid.vector_weight": _to("recall.hybrid.vector_weight"),
    "query.hybrid.text_weight": _to("recall.hybrid.text_weight"),
    "query.hybrid.candidate_multiplier": _to("recall.hybrid.candidate_multiplier"),
    "query.hybrid.mmr": _without_effect("it lowers recall where measured (docs/sources.md)"),
    "query.hybrid.temporal_decay": _without_effect("see recall.decay_per_day"),
    "query.max_results": _to("recall.max_results"),
    "query.min_score": _without_effect("its score is not ours; see recall.min_score"),
    "cache.enabled": _to("embedding_cache.enabled"),
    "cache.max_entries": _to("embedding_cache.max_entries"),
    "sources": _to("index.sources"),
    "experimental.session_memory": _to("index.sources", says='on: with "sessions", off: without'),
    "extra_paths": _to("index.extra_paths"),
    "enabled": _to("recall.enabled"),
    "remote": _without_effect("keys and addresses of a provider come from the environment"),
    "fallback": _without_effect("the fallback is always local"),
    "local": _without_effect("models are found in Recollect's own folder"),
    "store": _without_effect("the store is Recollect's own"),
    "chunking": _without_effect("passages are cut as measured (docs/sources.md)"),
    "sync": _without_effect("files are re-indexed when they change"),
}

_QMD: Final[Mapping[str, Route]] = {
    "command": Route(
        to=None, says="Recollect searches by itself and starts no subprocess", refused=True
    ),
    "include_default_memory": _to("index.sources", says='on: with "memory", off: without'),
    "paths": _to("index.extra_paths", _paths),
    "sessions.enabled": _to("index.sources", says='on: with "sessions", off: without'),
    "sessions.retention_days": _to("index.eviction_days", _days),
    "sessions.export_dir": _without_effect("sessions are indexed where they are"),
    "update.interval": _to("index.update_interval", _minutes_unless_said),
    "update.debounce_ms": _without_effect("files are re-indexed when they change"),
    "update.on_boot": _without_effect("files are re-indexed when they change"),
    "update.wait_for_boot_sync": _without_effect("files are re-indexed when they change"),
    "update.embed_interval": _without_effect("embedding follows the archive"),
    "update.command_timeout_ms": _without_effect("no subprocess is started"),
    "update.update_timeout_ms": _without_effect("no subprocess is started"),
    "update.embed_timeout_ms": _without_effect("no subprocess is started"),
    "limits.max_results": _to("recall.max_results"),
    "limits.timeout_ms": _to("recall.deadline_seconds", _milliseconds),
    "limits.max_snippet_chars": _without_effect("a block is measured in tokens"),
    "limits.max_injected_chars": _without_effect("a block is measured in tokens"),
    "search_mode": _without_effect("see recall.hybrid.enabled"),
    "mcporter": _without_effect("no subprocess is started"),
    "scope": _without_effect("see recall.scope"),
}

_CONTEXT_PLUGIN_CONFIG: Final[Mapping[str, Route]] = {
    **_MEMORY_CONTEXT,
    "auto_recall_max_tokens": _to("recall.hard_cap_tokens"),
    "search.vector_weight": _to("recall.hybrid.vector_weight"),
    "search.bm25_weight": _to("recall.hybrid.text_weight"),
    "search.time_decay": _to("recall.decay_per_day"),
    "auto_recall": _to("recall.enabled"),
    "auto_capture": _to("ingest.enabled"),
    "embedding_model_name": _without_effect("models are found in Recollect's own folder"),
    "embedding_dim": _without_effect("an embedder knows its own dimensions"),
    "storage_path": _without_effect("the store is Recollect's own"),
    "vector_persist": _without_effect("vectors are kept in the store"),
    "index_type": _without_effect("vectors are searched exactly"),
    "budget": _without_effect("see recall.hard_cap_tokens"),
}

_LANCEDB_PLUGIN_CONFIG: Final[Mapping[str, Route]] = {
    "auto_capture": _to("ingest.enabled"),
    "auto_recall": _to("recall.enabled"),
    "embedding": _without_effect(
        "keys come from the environment, and nothing is sent to a provider that recall.embedder "
        "and recall.remote do not name"
    ),
    "db_path": _without_effect("the store is Recollect's own"),
    "storage_options": _without_effect("the store is Recollect's own"),
    "capture_max_chars": _without_effect("every message is kept whole"),
    "recall_max_chars": _without_effect("see query.user_messages"),
    "dreaming": _without_effect("Recollect has no such thing"),
}

_BLOCKS: Final[Mapping[str, Mapping[str, Route]]] = {
    f"{DEFAULTS}.memory_context": {"enabled": _to("recall.enabled"), **_MEMORY_CONTEXT},
    f"{DEFAULTS}.compaction": _COMPACTION,
    f"{DEFAULTS}.context_pruning": _PRUNING,
    f"{DEFAULTS}.memory_search": _MEMORY_SEARCH,
    "memory.qmd": _QMD,
    "session.reset": {
        "mode": _to("session.reset.mode"),
        "at_hour": _to("session.reset.at_hour"),
        "idle_minutes": _to("session.reset.idle_minutes"),
    },
    "compaction": {
        name: _COMPACTION[name] for name in ("enabled", "reserve_tokens", "keep_recent_tokens")
    },
    f"{ENTRIES}.{CONTEXT_PLUGIN}.config": _CONTEXT_PLUGIN_CONFIG,
    f"{ENTRIES}.{LANCEDB_PLUGIN}.config": _LANCEDB_PLUGIN_CONFIG,
}

_HOST_ONLY: Final = "it concerns the host, not the context"

ROUTES: Final[Mapping[str, Route]] = {
    **{f"{block}.{name}": route for block, of in _BLOCKS.items() for name, route in of.items()},
    f"{DEFAULTS}.context_tokens": _to("window_tokens"),
    f"{DEFAULTS}.bootstrap_max_chars": _to("workspace.max_chars"),
    f"{DEFAULTS}.skip_bootstrap": _to("workspace.skip_bootstrap"),
    f"{DEFAULTS}.block_streaming_default": _without_effect(_HOST_ONLY),
    f"{DEFAULTS}.heartbeat": _without_effect(_HOST_ONLY),
    f"{DEFAULTS}.cache_control_ttl": _without_effect("see pruning.ttl"),
    "memory.backend": _without_effect(
        'Recollect searches by itself; with "qmd" the keys of memory.qmd are mapped onto ours'
    ),
    "memory.citations": _to("recall.citations"),
    f"{ENTRIES}.{CONTEXT_PLUGIN}.enabled": _to("recall.enabled"),
    f"{ENTRIES}.{LANCEDB_PLUGIN}.enabled": _to("recall.enabled"),
    SLOT: _to("recall.enabled"),
}
"""Every foreign key that is read, by its path in snake case."""

STRICT_BLOCKS: Final = (*_BLOCKS, "memory")
"""The blocks in which an unknown key is an error."""

PREFIXES: Final = frozenset(
    path.rsplit(".", depth)[0] for path in ROUTES for depth in range(1, path.count(".") + 1)
)
"""Every object on the way to a key that is read."""
