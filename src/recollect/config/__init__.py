"""The settings: frozen values, read strictly from every source, every default written once.

Imports nothing of Recollect but its errors. `load_settings` is the way in; `Settings()` is the
defaults, `preset_settings` a preset's values. docs/settings.md is generated from here
(`python -m recollect.config.page`).
"""

from recollect.config.fields import EFFECTS, Effect, active_keys
from recollect.config.keys import Key, build, known_keys, value_of
from recollect.config.load import PRESETS, LoadedSettings, load_settings, preset_settings
from recollect.config.settings import (
    FALLBACK_WINDOW_TOKENS,
    Compaction,
    EmbeddingCache,
    Facts,
    Flush,
    HardClear,
    Hybrid,
    Index,
    Ingest,
    Jobs,
    Ledger,
    Models,
    PrunedTools,
    Pruning,
    Query,
    Recall,
    Redaction,
    Remote,
    Reset,
    Session,
    Settings,
    SoftTrim,
    Store,
    Tokens,
    Trim,
    Turn,
    Workspace,
)
from recollect.config.sources import Notice, Source

__all__ = [
    "EFFECTS",
    "FALLBACK_WINDOW_TOKENS",
    "PRESETS",
    "Compaction",
    "Effect",
    "EmbeddingCache",
    "Facts",
    "Flush",
    "HardClear",
    "Hybrid",
    "Index",
    "Ingest",
    "Jobs",
    "Key",
    "Ledger",
    "LoadedSettings",
    "Models",
    "Notice",
    "PrunedTools",
    "Pruning",
    "Query",
    "Recall",
    "Redaction",
    "Remote",
    "Reset",
    "Session",
    "Settings",
    "SoftTrim",
    "Source",
    "Store",
    "Tokens",
    "Trim",
    "Turn",
    "Workspace",
    "active_keys",
    "build",
    "known_keys",
    "load_settings",
    "preset_settings",
    "value_of",
]
