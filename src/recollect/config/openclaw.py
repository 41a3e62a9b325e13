"""Reads the settings of an existing openclaw.json (JSON5), and says what it did with them.

Only the blocks of the table in `routes` are read, strictly; everything else in the file is left
alone and never shown. Values go through the same shapes as our own file's. What is mapped,
refused or without effect becomes one notice each. Never follows an include, never starts a
command, never reads a provider's key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from recollect.config.fields import shown
from recollect.config.keys import camel_case, known_keys, nearest_key, snake_case
from recollect.config.routes import (
    CONTEXT_PLUGIN,
    DEFAULTS,
    ENTRIES,
    LANCEDB_PLUGIN,
    OPENCLAW_MIN_SCORES,
    PREFIXES,
    ROUTES,
    SLOT,
    STRICT_BLOCKS,
    Route,
)
from recollect.config.settings import CALIBRATED_MIN_SCORE
from recollect.config.sources import Given, Notice, Source, fit, read_text
from recollect.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path


# Whether the memory of an openclaw.json is on: its switches and its memory plugins.
#
# A plugin counts only when it has an entry and the memory slot names it, both (OpenClaw's design);
# the settings of one that does not count are left out. Where switches disagree, off wins.


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


_BARE_MODE = f"{DEFAULTS}.context_pruning"
_SEARCH = f"{DEFAULTS}.memory_search"
_INDEXED = {
    f"{_SEARCH}.experimental.session_memory": "sessions",
    "memory.qmd.sessions.enabled": "sessions",
    "memory.qmd.include_default_memory": "memory",
}
"""Keys that put one source into the index or take it out."""

_OVERRIDES = frozenset(
    path.removeprefix(f"{DEFAULTS}.").partition(".")[0]
    for path in ROUTES
    if path.startswith(f"{DEFAULTS}.")
)


@dataclass(slots=True)
class _Reading:
    """One file being read: what is left of it, and what has come of it so far."""

    name: str
    preset: str
    leaves: dict[str, tuple[str, Any]] = field(default_factory=dict)
    given: dict[str, Given] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)

    def source(self, spelled: str) -> Source:
        return Source(kind="openclaw", name=self.name, key=spelled)

    def say(self, spelled: str, message: str) -> None:
        self.notices.append(Notice(key=spelled, message=message))

    def say_without_effect(self, spelled: str, why: str) -> None:
        message = f"accepted without effect: {why}"
        self.notices.append(Notice(key=spelled, message=message, without_effect=True))

    def take(self, path: str) -> tuple[str, Any] | None:
        return self.leaves.pop(path, None)

    def convert(self, route: Route, spelled: str, value: Any) -> Any:
        try:
            return route.convert(value)
        except ValueError as problem:
            raise SettingsError(f"{self.source(spelled)} {problem}") from None

    def put(self, to: str, spelled: str, value: Any) -> Any:
        """Set a key of ours; two keys of the file that lead there must agree."""
        source = self.source(spelled)
        one = Given(value=fit(known_keys()[to], value, source), source=source)
        before = self.given.setdefault(to, one)
        if before.value != one.value:
            raise SettingsError(
                f"{source} and {before.source.key} both set {to}, to {shown(one.value)} and "
                f"{shown(before.value)}; keep one of them"
            )
        return one.value


def read_openclaw(path: Path, *, preset: str) -> tuple[dict[str, Given], list[Notice]]:
    """What an openclaw.json sets, and what is to be said about it."""
    document = _parse(path)
    reading = _Reading(name=str(path), preset=preset)
    _collect(document, reading)
    _leave_out_unused_search(reading)
    switches = memory_switches(document, reading.leaves, name=reading.name)
    reading.notices.extend(switches.notices)
    for to, spelled, value in switches.votes:
        reading.put(to, spelled, value)
    _index_sources(reading)
    _extra_paths(reading)
    for foreign, (spelled, value) in list(reading.leaves.items()):
        _follow(reading, foreign, ROUTES[foreign], spelled, value)
    _say_what_is_left_out(document, reading)
    return reading.given, reading.notices


def _parse(path: Path) -> Mapping[str, Any]:
    import json5  # slow to import, and most programs have no such file

    text = read_text(path)
    try:
        document = json5.loads(text)
    except (ValueError, RecursionError) as problem:
        place = re.sub(r"^<string>:(\d+)", r"line \1:", str(problem))
        raise SettingsError(f"{path} is not valid JSON5: {place}; correct that line") from None
    if not isinstance(document, Mapping):
        raise SettingsError(f"{path} must hold one object {{...}}; is it an openclaw.json?")
    return document


def _collect(
    table: Mapping[str, Any], reading: _Reading, path: str = "", spelled: str = ""
) -> None:
    """Gather the values of the blocks that are read; refuse what is unknown inside them."""
    for key, value in table.items():
        here, as_spelled = f"{path}{snake_case(key)}", f"{spelled}{key}"
        if here == _BARE_MODE and not isinstance(value, Mapping):
            here = f"{_BARE_MODE}.mode"
        strict = here in STRICT_BLOCKS or any(here.startswith(f"{b}.") for b in STRICT_BLOCKS)
        if here in ROUTES:
            if here in reading.leaves:
                other = reading.leaves[here][0]
                raise SettingsError(
                    f"{reading.name}: {as_spelled} and {other} are one key; keep one of them"
                )
            reading.leaves[here] = (as_spelled, value)
        elif here in PREFIXES and isinstance(value, Mapping):
            _collect(value, reading, f"{here}.", f"{as_spelled}.")
        elif strict:
            raise _unknown(reading, here, as_spelled)


def _unknown(reading: _Reading, path: str, spelled: str) -> SettingsError:
    if path in PREFIXES:
        return SettingsError(f"{reading.source(spelled)} must be an object {{...}}")
    nearest = nearest_key(path, ROUTES)
    hint = f"did you mean {camel_case(nearest)}?" if nearest else "take it out of this block"
    return SettingsError(f"{reading.source(spelled)} is not a key that Recollect knows; {hint}")


def _leave_out_unused_search(reading: _Reading) -> None:
    """The keys of QMD count only where QMD is the backend, as in the file's own host."""
    backend = reading.take("memory.backend")
    if backend and backend[1] not in ("builtin", "qmd"):
        raise SettingsError(
            f'{reading.source(backend[0])} must be one of "builtin", "qmd", not {backend[1]!r}'
        )
    if backend and backend[1] == "qmd":
        reading.say_without_effect(backend[0], ROUTES["memory.backend"].says)
        return
    unused = [path for path in reading.leaves if path.startswith("memory.qmd.")]
    if unused:
        reading.say("memory.qmd", 'not used, because memory.backend is not "qmd"')
    for path in unused:
        del reading.leaves[path]


def _index_sources(reading: _Reading) -> None:
    listed = reading.take(f"{_SEARCH}.sources")
    key = known_keys()["index.sources"]
    chosen = list(fit(key, listed[1], reading.source(listed[0])) if listed else key.default)
    said = [listed[0]] if listed else []
    for path, word in _INDEXED.items():
        leaf = reading.take(path)
        if leaf is None:
            continue
        wanted = fit(known_keys()["recall.enabled"], leaf[1], reading.source(leaf[0]))
        said.append(leaf[0])
        if not wanted and word in chosen:
            chosen.remove(word)
        elif wanted and word not in chosen and path.startswith("memory.qmd."):
            chosen.append(word)  # in memorySearch the list of sources has the last word
        reading.say(leaf[0], f"mapped onto index.sources = {shown(tuple(chosen))}")
    if said:
        reading.put("index.sources", said[0], chosen)


def _extra_paths(reading: _Reading) -> None:
    key = known_keys()["index.extra_paths"]
    found = {
        path: leaf
        for path in (f"{_SEARCH}.extra_paths", "memory.qmd.paths")
        if (leaf := reading.take(path))
    }
    paths: list[str] = []
    for path, (spelled, value) in found.items():
        converted = reading.convert(ROUTES[path], spelled, value)
        paths += fit(key, converted, reading.source(spelled))
        if ".qmd." in path:
            reading.say(spelled, f"mapped onto index.extra_paths = {shown(tuple(paths))}")
    if found:
        spelled, _ = next(iter(found.values()))
        reading.put("index.extra_paths", spelled, paths)


def _follow(reading: _Reading, path: str, route: Route, spelled: str, value: Any) -> None:
    if route.to is None and route.refused:
        reading.say(spelled, f"refused: {route.says}")
    elif route.to is None:
        reading.say_without_effect(spelled, route.says)
    elif route.to == "recall.min_score":
        _min_score(reading, spelled, value)
    elif route.to == "recall.remote.provider" or (route.to, value) == ("recall.embedder", "gemini"):
        _provider(reading, spelled, value)
    else:
        converted = reading.convert(route, spelled, value)
        canonical = reading.put(route.to, spelled, converted)
        renamed = isinstance(value, str) and isinstance(canonical, str) and value != canonical
        if route.says or renamed or converted != value or ".qmd." in path:
            remark = f" ({route.says})" if route.says else ""
            reading.say(spelled, f"mapped onto {route.to} = {shown(canonical)}{remark}")


def _min_score(reading: _Reading, spelled: str, value: Any) -> None:
    """Their score is relative and ours absolute, so theirs is mapped in proportion.

    Their defaults stand for ours, and a lower one for a lower one: a file that only repeats a
    default must never make recall stricter.
    """
    theirs = fit(known_keys()["recall.min_score"], value, reading.source(spelled))
    if theirs is None:
        raise SettingsError(f"{reading.source(spelled)} must be a number from 0 to 1")
    if reading.preset == "openclaw":
        reading.put("recall.min_score", spelled, theirs)
        reading.say(
            spelled, f'{theirs:g} applies to OpenClaw\'s score, as preset = "openclaw" asks'
        )
        return
    low, high = OPENCLAW_MIN_SCORES
    ours = round(CALIBRATED_MIN_SCORE * theirs / min(max(theirs, low), high), 3)
    if ours != CALIBRATED_MIN_SCORE:
        reading.put("recall.min_score", spelled, ours)
    default = ", its default," if ours == CALIBRATED_MIN_SCORE else ""
    reading.say(
        spelled,
        f"{theirs:g} of OpenClaw's score is mapped onto recall.min_score = {ours:g}{default} of "
        'our absolute score; preset = "openclaw" would take it as it is',
    )


def _provider(reading: _Reading, spelled: str, value: Any) -> None:
    if value == "local":
        reading.put("recall.embedder", spelled, "transformer")
        reading.say(spelled, "mapped onto recall.embedder = transformer")
    elif value != "auto":
        provider = reading.put("recall.remote.provider", spelled, value)
        reading.say(
            spelled,
            f"mapped onto recall.remote.provider = {provider}; nothing is sent there until you set "
            'recall.embedder = "remote"',
        )


def _say_what_is_left_out(document: Mapping[str, Any], reading: _Reading) -> None:
    if "$include" in document:
        reading.say("$include", "not followed; give the included file's blocks in this one")
    agents = table_at(document, "agents")
    for agent in agents.get("list") or ():
        if isinstance(agent, Mapping):
            over = [key for key in agent if snake_case(key) in _OVERRIDES]
            if over:
                reading.say_without_effect(
                    f"agents.list[{agent.get('id', '?')}]",
                    f"{', '.join(over)}; only agents.defaults is read",
                )
    models = table_at(document, "agents", "defaults", "models")
    if any(
        snake_case(key) == "cache_control_ttl"
        for model in models.values()
        for key in table_at({"model": model}, "model", "params")
    ):
        reading.say_without_effect(
            "agents.defaults.models.*.params.cacheControlTtl",
            ROUTES[f"{DEFAULTS}.cache_control_ttl"].says,
        )
