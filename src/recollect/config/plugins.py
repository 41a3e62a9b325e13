"""Whether the memory of an openclaw.json is on: its switches and its memory plugins.

A plugin counts only when it has an entry and the memory slot names it, both (OpenClaw's design);
the settings of one that does not count are left out. Where switches disagree, off wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recollect.config.routes import CONTEXT_PLUGIN, DEFAULTS, ENTRIES, LANCEDB_PLUGIN, SLOT
from recollect.config.sources import Notice
from recollect.errors import SettingsError

_RECALL, _INGEST = "recall.enabled", "ingest.enabled"
_SWITCHES = {
    f"{DEFAULTS}.memory_context.enabled": (_RECALL, _INGEST),
    f"{DEFAULTS}.memory_search.enabled": (_RECALL,),
    f"{ENTRIES}.{CONTEXT_PLUGIN}.config.auto_recall": (_RECALL,),
    f"{ENTRIES}.{CONTEXT_PLUGIN}.config.auto_capture": (_INGEST,),
    f"{ENTRIES}.{LANCEDB_PLUGIN}.config.auto_recall": (_RECALL,),
    f"{ENTRIES}.{LANCEDB_PLUGIN}.config.auto_capture": (_INGEST,),
}
"""Each switch, and what it turns on and off here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """What the switches come to: (our key, the key in the file, its value), and what to say."""

    votes: list[tuple[str, str, Any]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)


def table_at(document: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The object at a path of the file; an empty one where there is none."""
    found: Any = document
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def memory_switches(
    document: Mapping[str, Any], leaves: dict[str, tuple[str, Any]], *, name: str
) -> Switches:
    """Take the switches and the settings of unused plugins out of the leaves of a named file."""
    notices: list[Notice] = []
    slot_key, slot = leaves.pop(SLOT, (SLOT, None))
    if slot is not None and not isinstance(slot, str):
        raise SettingsError(f"{name}: {slot_key} must be the name of a plugin, not {slot!r}")
    entries = table_at(document, *ENTRIES.split("."))
    for plugin in (CONTEXT_PLUGIN, LANCEDB_PLUGIN):
        _refuse_no_flag(name, *leaves.pop(f"{ENTRIES}.{plugin}.enabled", ("", True)))
    verdicts = _plugin_verdicts(entries, slot, leaves, notices)
    cast: dict[str, tuple[str, Any]] = {}
    for path, targets in _SWITCHES.items():
        spelled, value = leaves.pop(path, (None, None))
        if spelled is None:
            continue
        _refuse_no_flag(name, spelled, value)
        for to in targets:
            if to not in cast or not value:
                cast[to] = (spelled, value)
    for spelled in verdicts:
        cast.update({_RECALL: (spelled, False), _INGEST: (spelled, False)})
    return Switches(votes=[(to, *vote) for to, vote in cast.items()], notices=notices)


def _refuse_no_flag(name: str, spelled: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise SettingsError(f"{name}: {spelled} must be true or false, not {value!r}")


def _plugin_verdicts(
    entries: Mapping[str, Any],
    slot: str | None,
    leaves: dict[str, tuple[str, Any]],
    notices: list[Notice],
) -> list[str]:
    """The keys by which the plugins turn memory off; unused settings leave the leaves."""
    off = []
    if slot == "none":
        off.append(SLOT)
        notices.append(Notice(key=SLOT, message="memory is off, as the slot says"))
    plugin_ids = (CONTEXT_PLUGIN, LANCEDB_PLUGIN)
    used = [plugin for plugin in plugin_ids if _is_used(plugin, entries, slot)]
    for plugin in plugin_ids:
        entry = f"{ENTRIES}.{plugin}"
        if plugin in used or (plugin not in entries and slot != plugin):
            continue
        for path in [path for path in leaves if path.startswith(f"{entry}.")]:
            del leaves[path]
        # Another memory may hold the slot; OpenClaw's own plugin without it means "off".
        turns_off = not used and (slot == plugin or plugin == CONTEXT_PLUGIN)
        if turns_off:
            off.append(SLOT if slot == plugin else entry)
        notices.append(Notice(key=entry, message=_why_unused(plugin, turns_off=turns_off)))
    return off


def _is_used(plugin: str, entries: Mapping[str, Any], slot: str | None) -> bool:
    return slot == plugin and plugin in entries and _is_enabled(entries[plugin])


def _is_enabled(entry: Any) -> bool:
    return not isinstance(entry, Mapping) or entry.get("enabled") is not False


def _why_unused(plugin: str, *, turns_off: bool) -> str:
    outcome = "memory is off" if turns_off else "its settings are not used"
    return f"{outcome}: {plugin} needs an entry that is enabled and {SLOT} = {plugin}, both"
