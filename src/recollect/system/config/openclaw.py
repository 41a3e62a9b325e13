"""Reads the settings of an existing openclaw.json (JSON5).

If keys of OpenClaw's memory blocks have no effect in Recollect, one notice lists them. The rest of
the file is ignored. Recollect does not follow includes, start commands, show unused values, or read
a provider's key. If two switches contradict each other, the value is off."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from recollect.errors import SettingsError
from recollect.system.config.fields import setting_text
from recollect.system.config.keys import (
    GivenValue,
    Notice,
    Source,
    fit,
    read_bytes,
    snake_case,
    text_of,
)

if TYPE_CHECKING:
    from pathlib import Path

_RECALL, _INGEST = "recall.enabled", "ingest.enabled"
_PLUGIN: Final = "memory-context"
_ENTRY: Final = f"plugins.entries.{_PLUGIN}"
_SLOT: Final = "plugins.slots.memory"
_PRUNING: Final = "agents.defaults.contextPruning"
_MEMORY_CONTEXT: Final = {
    "hardCapTokens": "recall.hard_cap_tokens",
    "embeddingModel": "recall.embedder",
    "redaction": "redaction.enabled",
    "autoRecallMinScore": "recall.min_score",
    "maxSegments": "index.max_segments",
    "evictionDays": "index.eviction_days",
    "crossSession": "recall.scope",
}
_TOP_COMPACTION: Final = {
    "enabled": "compaction.enabled",
    "reserveTokens": "compaction.reserve_tokens",
    "keepRecentTokens": "compaction.keep_recent_tokens",
}
OPENCLAW_KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "agents.defaults.memoryContext": {"enabled": _RECALL, **_MEMORY_CONTEXT},
    "agents.defaults.compaction": {
        **_TOP_COMPACTION,
        "mode": "compaction.mode",
        "reserveTokensFloor": "compaction.reserve_tokens_floor",
        "maxHistoryShare": "compaction.max_history_share",
        "memoryFlush.enabled": "compaction.flush.enabled",
        "memoryFlush.softThresholdTokens": "compaction.flush.soft_threshold_tokens",
        "memoryFlush.prompt": "compaction.flush.prompt",
        "memoryFlush.systemPrompt": "compaction.flush.system_prompt",
    },
    _PRUNING: {
        "mode": "pruning.mode",
        "ttl": "pruning.ttl",
        "keepLastAssistants": "pruning.keep_last_assistants",
        "softTrimRatio": "pruning.soft_trim_ratio",
        "hardClearRatio": "pruning.hard_clear_ratio",
        "minPrunableToolChars": "pruning.min_prunable_tool_chars",
        "softTrim.maxChars": "pruning.soft_trim.max_chars",
        "softTrim.headChars": "pruning.soft_trim.head_chars",
        "softTrim.tailChars": "pruning.soft_trim.tail_chars",
        "hardClear.enabled": "pruning.hard_clear.enabled",
        "hardClear.placeholder": "pruning.hard_clear.placeholder",
        "tools.allow": "pruning.tools.allow",
        "tools.deny": "pruning.tools.deny",
    },
    "agents.defaults.memorySearch": {
        "enabled": _RECALL,
        "provider": "recall.remote.provider",
        "model": "recall.remote.model",
        "query.maxResults": "recall.max_results",
        "query.hybrid.vectorWeight": "recall.hybrid.vector_weight",
        "query.hybrid.textWeight": "recall.hybrid.text_weight",
        "sources": "index.sources",
        "extraPaths": "index.extra_paths",
    },
    "compaction": _TOP_COMPACTION,
    f"{_ENTRY}.config": {
        **_MEMORY_CONTEXT,
        "autoRecall": _RECALL,
        "autoCapture": _INGEST,
        "autoRecallMaxTokens": "recall.hard_cap_tokens",
        "search.vectorWeight": "recall.hybrid.vector_weight",
        "search.bm25Weight": "recall.hybrid.text_weight",
        "search.timeDecay": "recall.decay_per_day",
    },
    "": {
        "agents.defaults.contextTokens": "window_tokens",
        "agents.defaults.bootstrapMaxChars": "workspace.max_chars",
        "agents.defaults.skipBootstrap": "workspace.skip_bootstrap",
        "memory.citations": "recall.citations",
        _SLOT: _RECALL,
        f"{_ENTRY}.enabled": _RECALL,
    },
}
"""Every key of OpenClaw that Recollect reads, by block, and the setting that the key sets."""

_BLOCKS: Final = ("memory.qmd", *(f"{snake_case(block)}." for block in OPENCLAW_KEYS if block))
"""OpenClaw's blocks about memory. The notice lists their keys that have no effect in Recollect."""
_SWITCHES: Final = {
    "agents.defaults.memoryContext.enabled": (_RECALL, _INGEST),
    "agents.defaults.memorySearch.enabled": (_RECALL,),
    f"{_ENTRY}.config.autoRecall": (_RECALL,),
    f"{_ENTRY}.config.autoCapture": (_INGEST,),
}


_CONVERSIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "evictionDays": lambda value: None if value == 0 and value is not False else value,  # no limit
    "crossSession": lambda value: ("session", "space")[value] if isinstance(value, bool) else value,
    "tools.allow": lambda value: ["*"] if value == [] else value,
    "ttl": lambda it: f"{it}m" if isinstance(it, str) and it.strip().isdigit() else it,
}
"""Conversions of values that OpenClaw writes differently."""


@cache
def routes() -> Mapping[str, tuple[str, str]]:
    """Return every key of OpenClaw that Recollect reads, by its path in snake case, with
    Recollect's key and the original name."""
    return {
        snake_case(f"{block}.{name}".lstrip(".")): (to, name)
        for block, names in OPENCLAW_KEYS.items()
        for name, to in names.items()
    }


@cache
def _prefixes() -> frozenset[str]:
    return frozenset(
        path.rsplit(".", depth)[0] for path in routes() for depth in range(1, path.count(".") + 1)
    )


@dataclass(slots=True)
class _OpenClawFile:
    """A file that is being read: the remaining keys, and the values so far."""

    name: str
    leaves: dict[str, tuple[str, Any]] = field(default_factory=dict)
    given: dict[str, GivenValue] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    """The keys that have no effect in Recollect."""
    notices: list[Notice] = field(default_factory=list)

    def source(self, spelled: str) -> Source:
        return Source(kind="openclaw", name=self.name, key=spelled)

    def flag(self, path: str) -> tuple[str, bool] | None:
        """Remove a switch from the remaining keys, and return its source and value."""
        found = self.leaves.pop(snake_case(path), None)
        if found is not None and not isinstance(found[1], bool):
            raise SettingsError(f"{self.source(found[0])} must be true or false, not {found[1]!r}")
        return found

    def put(self, to: str, spelled: str, value: Any) -> Any:
        """Set a setting from a key of the file. Two keys of the same setting must agree."""
        source = self.source(spelled)
        given = GivenValue(value=fit(to, value, source), source=source)
        before = self.given.setdefault(to, given)
        if before.value != given.value:
            raise SettingsError(
                f"{source} and {before.source.key} both set {to}, to {setting_text(given.value)} "
                f"and {setting_text(before.value)}; keep one of them"
            )
        return given.value


def read_openclaw(path: Path, *, preset: str) -> tuple[dict[str, GivenValue], list[Notice]]:
    """Parse the values of an openclaw.json. Return the values, and notices about them."""
    reading = _OpenClawFile(name=str(path))
    document = _parse(path)
    _collect(document, reading)
    _memory_switches(document, reading)
    for foreign, (spelled, value) in reading.leaves.items():
        to, name = routes()[foreign]
        if to == "recall.min_score" and preset != "openclaw":
            reading.ignored.append(spelled)  # OpenClaw's score is relative; Recollect's is absolute
        elif to == "recall.remote.provider" and value == "local":
            reading.put("recall.embedder", spelled, "transformer")
        elif to == "recall.remote.provider" and value == "auto":
            continue
        elif to == "recall.remote.provider" or value == "gemini":
            provider = reading.put("recall.remote.provider", spelled, value)
            message = (
                f"mapped onto recall.remote.provider = {provider}; nothing is sent there until "
                'you set recall.embedder = "remote"'
            )
            reading.notices.append(Notice(key=spelled, message=message))
        else:
            reading.put(to, spelled, _CONVERSIONS.get(name, lambda it: it)(value))
    if reading.ignored:
        message = f"without effect in Recollect: {', '.join(reading.ignored)}"
        reading.notices.append(Notice(key=reading.name, message=message, without_effect=True))
    return reading.given, reading.notices


def _parse(path: Path) -> Mapping[str, Any]:
    import json5  # this import is slow, and most programs have no such file

    text = text_of(read_bytes(path), path)
    try:
        document = json5.loads(text)
    except (ValueError, RecursionError) as problem:
        place = re.sub(r"^<string>:(\d+)", r"line \1:", str(problem))
        raise SettingsError(f"{path} is not valid JSON5: {place}; correct that line") from None
    if not isinstance(document, Mapping):
        raise SettingsError(
            f"{path} must contain one object {{...}}; check that it is an openclaw.json"
        )
    return document


def _collect(
    table: Mapping[str, Any], reading: _OpenClawFile, path: str = "", spelled: str = ""
) -> None:
    for key, value in table.items():
        here, as_spelled = f"{path}{snake_case(key)}", f"{spelled}{key}"
        if here == snake_case(_PRUNING) and not isinstance(value, Mapping):
            here = f"{here}.mode"
        if here in routes():
            other, _ = reading.leaves.setdefault(here, (as_spelled, value))
            if other != as_spelled:
                raise SettingsError(
                    f"{reading.name}: {as_spelled} and {other} are one key; keep one of them"
                )
        elif here in _prefixes() and isinstance(value, Mapping):
            _collect(value, reading, f"{here}.", f"{as_spelled}.")
        elif here in _prefixes():
            raise SettingsError(f"{reading.source(as_spelled)} must be an object {{...}}")
        elif here == "$include" or here.startswith(_BLOCKS):
            reading.ignored.append(as_spelled)
        elif here == "agents.list" and isinstance(value, list):
            for one in (one for one in value if isinstance(one, Mapping)):
                if any(f"agents.defaults.{snake_case(name)}" in _prefixes() for name in one):
                    reading.ignored.append(f"{as_spelled}[{one.get('id', '?')}]")


def _memory_switches(document: Mapping[str, Any], reading: _OpenClawFile) -> None:
    """Turn memory off if a switch does, or if the memory-context plugin is not used. OpenClaw uses
    the plugin if its entry is enabled and the memory slot names it."""
    slot_key, slot = reading.leaves.pop(_SLOT, (_SLOT, None))
    if slot is not None and not isinstance(slot, str):
        raise SettingsError(
            f"{reading.source(slot_key)} must be the name of a plugin, not {slot!r}"
        )
    votes: dict[str, tuple[str, Any]] = {}
    for path, targets in _SWITCHES.items():
        if switch := reading.flag(path):
            votes |= {to: switch for to in targets if to not in votes or not switch[1]}
    _, enabled = reading.flag(f"{_ENTRY}.enabled") or ("", True)
    entry = document.get("plugins", {}).get("entries", {}).get(_PLUGIN)
    named = entry is not None or slot == _PLUGIN
    if slot == "none" or (named and not (entry is not None and enabled and slot == _PLUGIN)):
        for path in [path for path in reading.leaves if path.startswith(_ENTRY)]:
            del reading.leaves[path]
        off = _ENTRY if entry is not None else _SLOT
        votes |= {_RECALL: (off, False), _INGEST: (off, False)}
        needs = f"to turn it on, enable the entry of {_PLUGIN} and set {_SLOT} = {_PLUGIN}"
        message = f"memory is off: {f'{_SLOT} is none' if slot == 'none' else needs}"
        reading.notices.append(Notice(key=off, message=message))
    for to, (spelled, value) in votes.items():
        reading.put(to, spelled, value)
