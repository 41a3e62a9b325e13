"""Reads the settings of an existing openclaw.json (JSON5).

If keys of OpenClaw's memory blocks have no effect in Recollect, one notice lists them. An unknown
key of a strict block is an error, as in OpenClaw. The rest of the file is ignored. Recollect does
not follow includes, start commands, show unused values, or read a provider's key. If two switches
contradict each other, the value is off."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from recollect.errors import SettingsError
from recollect.system.config.fields import setting_text
from recollect.system.config.keys import (
    GivenValue,
    Notice,
    Source,
    closest,
    fit,
    read_bytes,
    snake_case,
    text_of,
)

if TYPE_CHECKING:
    from pathlib import Path

_RECALL, _INGEST = "recall.enabled", "ingest.enabled"
_PLUGIN: Final = "memory-context"
_LANCEDB: Final = "memory-lancedb"
_ENTRIES: Final = "plugins.entries"
_ENTRY: Final = f"{_ENTRIES}.{_PLUGIN}"
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
    "knowledgeExtraction": "models.extraction",
}


def _same_names(group: str, names: str, prefix: str = "") -> dict[str, str]:
    """Map keys to the settings of a group that have the same names."""
    return {f"{prefix}{name}": f"{group}.{snake_case(name)}" for name in names.split()}


_TOP_COMPACTION: Final = _same_names("compaction", "enabled reserveTokens keepRecentTokens")
OPENCLAW_KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "agents.defaults.memoryContext": {"enabled": _RECALL, **_MEMORY_CONTEXT},
    "agents.defaults.compaction": {
        **_TOP_COMPACTION,
        **_same_names("compaction", "mode reserveTokensFloor maxHistoryShare"),
        **_same_names(
            "compaction.flush", "enabled softThresholdTokens prompt systemPrompt", "memoryFlush."
        ),
        "memoryFlush.softThreshold": "compaction.flush.at_ratio",
    },
    _PRUNING: _same_names(
        "pruning",
        "mode ttl keepLastAssistants softTrimRatio hardClearRatio minPrunableToolChars "
        "softTrim.maxChars softTrim.headChars softTrim.tailChars hardClear.enabled "
        "hardClear.placeholder tools.allow tools.deny",
    ),
    "agents.defaults.memorySearch": {
        "enabled": _RECALL,
        **_same_names("recall.remote", "provider model"),
        "query.maxResults": "recall.max_results",
        "query.hybrid.enabled": "recall.hybrid.text_weight",
        **_same_names("recall.hybrid", "vectorWeight textWeight", "query.hybrid."),
        **_same_names("index", "sources extraPaths"),
        "experimental.sessionMemory": "index.sources",
    },
    "session.reset": _same_names("session.reset", "mode atHour idleMinutes"),
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
    f"{_ENTRIES}.{_LANCEDB}.config": {"autoRecall": _RECALL, "autoCapture": _INGEST},
    "": {
        "agents.defaults.contextTokens": "window_tokens",
        "agents.defaults.bootstrapMaxChars": "workspace.max_chars",
        "agents.defaults.skipBootstrap": "workspace.skip_bootstrap",
        "memory.citations": "recall.citations",
        _SLOT: _RECALL,
        f"{_ENTRY}.enabled": _RECALL,
        f"{_ENTRIES}.{_LANCEDB}.enabled": _RECALL,
    },
}
"""Every key of OpenClaw that Recollect reads, by block, and the setting that the key sets."""

_BLOCKS: Final = (
    *(f"{snake_case(block)}." for block in OPENCLAW_KEYS if block),
    "memory.qmd",
    "memory.backend",
    "agents.defaults.heartbeat",
    "agents.defaults.block_streaming_default",
)
"""Blocks whose keys without effect in Recollect are named in the notice."""
_STRICT: Final = ("agents.defaults.memory_context.", f"{snake_case(_PRUNING)}.")
"""Blocks in which OpenClaw refuses an unknown key."""
_SWITCHES: Final = {
    "agents.defaults.memoryContext.enabled": (_RECALL, _INGEST),
    "agents.defaults.memorySearch.enabled": (_RECALL,),
}
_PLUGIN_SWITCHES: Final = {"auto_recall": _RECALL, "auto_capture": _INGEST}
_ONLY_IF_OFF: Final[Mapping[str, Any]] = {
    "knowledgeExtraction": None,
    "query.hybrid.enabled": 0.0,  # OpenClaw then compares vectors only
    "experimental.sessionMemory": ["memory"],
}
"""Switches that set a value only if they are off. The value overrides other keys."""


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

    def source(self, key: str) -> Source:
        return Source(kind="openclaw", name=self.name, key=key)

    def require_flag(self, key: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise SettingsError(f"{self.source(key)} must be true or false, not {value!r}")
        return value

    def flag(self, path: str) -> tuple[str, bool] | None:
        """Remove a switch from the remaining keys, and return its source and value."""
        switch = self.leaves.pop(snake_case(path), None)
        return switch and (switch[0], self.require_flag(*switch))

    def drop(self, block: str, reason: str) -> None:
        """Remove the keys of a block that OpenClaw does not use, and report that."""
        unused_paths = [path for path in self.leaves if path.startswith(f"{block}.")]
        for path in unused_paths:
            del self.leaves[path]
        if unused_paths:
            self.notices.append(Notice(key=block, message=f"not used, because {reason}"))

    def put(self, to: str, key: str, value: Any) -> Any:
        """Set a setting from a key of the file. Two keys of the same setting must agree."""
        source = self.source(key)
        new_value = GivenValue(value=fit(to, value, source), source=source)
        earlier_value = self.given.setdefault(to, new_value)
        if earlier_value.value != new_value.value:
            raise SettingsError(
                f"{source} and {earlier_value.source.key} both set {to}, to "
                f"{setting_text(new_value.value)} and {setting_text(earlier_value.value)}; "
                "keep one of them"
            )
        return new_value.value


def read_openclaw(
    path: Path, *, preset: str, agent: str | None = None
) -> tuple[dict[str, GivenValue], list[Notice]]:
    """Parse the values of an openclaw.json. Return the values, and notices about them. The keys of
    `agent` in `agents.list` override those of `agents.defaults`."""
    reading = _OpenClawFile(name=str(path))
    document = _for_agent(_parse(path), agent, reading)
    _collect(document, reading)
    _memory_switches(document, reading)
    for key in sorted(reading.leaves, key=lambda key: routes()[key][1] not in _ONLY_IF_OFF):
        _follow(reading, *routes()[key], *reading.leaves[key], preset=preset)
    if reading.ignored:
        message = f"without effect in Recollect: {', '.join(reading.ignored)}"
        reading.notices.append(Notice(key=reading.name, message=message, without_effect=True))
    return reading.given, reading.notices


def _follow(
    reading: _OpenClawFile, to: str, name: str, key: str, value: Any, *, preset: str
) -> None:
    if name in _ONLY_IF_OFF:
        if not reading.require_flag(key, value):
            reading.put(to, key, _ONLY_IF_OFF[name])
    elif to == "recall.min_score" and preset != "openclaw":
        reading.ignored.append(key)  # OpenClaw's score is relative; Recollect's is absolute
    elif to in ("recall.hybrid.text_weight", "index.sources") and to in reading.given:
        return
    elif to == "recall.remote.provider" and value == "local":
        reading.put("recall.embedder", key, "transformer")
    elif to == "recall.remote.provider" and value == "auto":
        return
    elif to == "recall.remote.provider" or value == "gemini":
        provider = reading.put("recall.remote.provider", key, value)
        message = (
            f"mapped onto recall.remote.provider = {provider}; nothing is sent there until "
            'you set recall.embedder = "remote"'
        )
        reading.notices.append(Notice(key=key, message=message))
    else:
        reading.put(to, key, _CONVERSIONS.get(name, lambda it: it)(value))


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
    table: Mapping[str, Any], reading: _OpenClawFile, path: str = "", spelled_prefix: str = ""
) -> None:
    for key, value in table.items():
        full_path, as_spelled = f"{path}{snake_case(key)}", f"{spelled_prefix}{key}"
        if full_path == snake_case(_PRUNING) and not isinstance(value, Mapping):
            full_path = f"{full_path}.mode"
        if full_path in routes():
            other_spelling, _ = reading.leaves.setdefault(full_path, (as_spelled, value))
            if other_spelling != as_spelled:
                raise SettingsError(
                    f"{reading.name}: {as_spelled} and {other_spelling} are one key; "
                    "keep one of them"
                )
        elif full_path in _prefixes() and isinstance(value, Mapping):
            _collect(value, reading, f"{full_path}.", f"{as_spelled}.")
        elif full_path in _prefixes():
            raise SettingsError(f"{reading.source(as_spelled)} must be an object {{...}}")
        elif full_path.startswith(_STRICT):
            block = next(block for block in _STRICT if full_path.startswith(block))
            known_paths = [path for path in routes() if path.startswith(block)]
            nearest = closest(full_path, known_paths, 0.6) or known_paths[0]
            raise SettingsError(
                f"{reading.source(as_spelled)} is not a key of OpenClaw; did you mean "
                f"{routes()[nearest][1]}?"
            )
        elif full_path == "$include" or full_path.startswith(_BLOCKS):
            reading.ignored.append(as_spelled)


def _table(document: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """Return the object at a path, or an empty one."""
    table: Any = document
    for name in path:
        items = table.items() if isinstance(table, Mapping) else ()
        table = next((value for key, value in items if snake_case(key) == snake_case(name)), None)
    return table if isinstance(table, Mapping) else {}


def _for_agent(
    document: Mapping[str, Any], agent: str | None, reading: _OpenClawFile
) -> Mapping[str, Any]:
    """Override `agents.defaults` by the keys of one agent."""
    agents, readable = _table(document, "agents"), routes().keys() | _prefixes()
    agent_entries = agents.get("list")
    keys_by_agent: dict[str, Mapping[str, Any]] = {
        str(entry.get("id", "?")): {
            key: value
            for key, value in entry.items()
            if f"agents.defaults.{snake_case(key)}" in readable
        }
        for entry in (agent_entries if isinstance(agent_entries, list) else ())
        if isinstance(entry, Mapping)
    }
    if agent is None or not keys_by_agent:
        reading.ignored += [
            f"agents.list[{name}] (see RECOLLECT_AGENT)"
            for name, keys in keys_by_agent.items()
            if keys
        ]
        return document
    if agent not in keys_by_agent:
        names = ", ".join(keys_by_agent)
        raise SettingsError(
            f"{reading.name} has no agent {agent!r}; set RECOLLECT_AGENT to {names}"
        )
    defaults = _override(_table(agents, "defaults"), keys_by_agent[agent])
    return {**document, "agents": {**agents, "defaults": defaults}}


def _override(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged_table, spelling = dict(below), {snake_case(key): key for key in below}
    for key, value in above.items():
        name = spelling.get(snake_case(key), key)
        before = merged_table.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            value = _override(before, value)
        merged_table[name] = value
    return merged_table


def _memory_switches(document: Mapping[str, Any], reading: _OpenClawFile) -> None:
    """Turn memory off if a switch does, or if OpenClaw does not use the plugin. OpenClaw uses a
    plugin if its entry is enabled and the memory slot names it."""
    slot_key, slot = reading.leaves.pop(_SLOT, (_SLOT, None))
    if slot is not None and not isinstance(slot, str):
        raise SettingsError(
            f"{reading.source(slot_key)} must be the name of a plugin, not {slot!r}"
        )
    votes: dict[str, tuple[str, Any]] = {}

    def vote(targets: Iterable[str], switch: tuple[str, bool]) -> None:
        votes.update((to, switch) for to in targets if to not in votes or not switch[1])

    for path, targets in _SWITCHES.items():
        if switch := reading.flag(path):
            vote(targets, switch)
    plugins = _table(document, "plugins")
    has_entry = _PLUGIN in _table(plugins, "entries")
    name = _PLUGIN if has_entry and slot != _LANCEDB else slot or ""
    for key, value in _table(plugins, "entries", name, "config").items():
        if (to := _PLUGIN_SWITCHES.get(snake_case(key))) is not None:
            switch_key = f"{_ENTRIES}.{name}.config.{key}"
            vote((to,), (switch_key, reading.require_flag(switch_key, value)))
            reading.leaves.pop(snake_case(switch_key), None)
    off_key, reason = _memory_off(plugins, slot, name, reading)
    for plugin in (_PLUGIN, _LANCEDB):
        reading.flag(f"{_ENTRIES}.{plugin}.enabled")
        if off_key or plugin != slot:
            reading.drop(f"{_ENTRIES}.{plugin}", f"{_SLOT} does not name an enabled {plugin}")
    if off_key:
        vote((_RECALL, _INGEST), (off_key, False))
        reading.notices.append(Notice(key=off_key, message=f"memory is off: {reason}"))
    for to, (switch_key, value) in votes.items():
        reading.put(to, switch_key, value)


def _memory_off(
    plugins: Mapping[str, Any], slot: str | None, name: str, reading: _OpenClawFile
) -> tuple[str, str]:
    """Return the key that turns memory off, and the reason; empty if none does."""
    entry, key = _table(plugins, "entries").get(name), f"{_ENTRIES}.{name}"
    entry_flag = entry.get("enabled", True) if isinstance(entry, Mapping) else entry is not False
    missing = name in (_PLUGIN, _LANCEDB) and (entry is None or slot != name)
    deny = plugins.get("deny")
    if slot == "none":
        return _SLOT, f"{_SLOT} is none"
    if plugins.get("enabled") is False or (isinstance(deny, list) and name in deny):
        return "plugins", f"{_SLOT} names a plugin that `plugins` turns off"
    if missing or not reading.require_flag(f"{key}.enabled", entry_flag):
        needs = f"to turn it on, enable the entry of {name} and set {_SLOT} = {name}"
        return _SLOT if entry is None else key, needs
    return "", ""
