"""Reads the settings of an existing openclaw.json (JSON5).

`settings` declares which key sets which of ours; here are the conversions that some need. Keys of
OpenClaw's memory blocks that set nothing here become one notice; everything else in the file is
left alone. Never follows an include, starts a command, shows a value that it does not use or reads
a provider's key.

A memory plugin counts only if it has an entry and the memory slot names it, both; the settings of
one that does not count are left out. If switches disagree, off wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from recollect.errors import SettingsError
from recollect.system.config.fields import Flag, shown
from recollect.system.config.keys import (
    GivenValue,
    Notice,
    Source,
    fit,
    known_keys,
    read_bytes,
    snake_case,
    text_of,
)
from recollect.system.config.settings import CALIBRATED_MIN_SCORE

if TYPE_CHECKING:
    from pathlib import Path

OPENCLAW_MIN_SCORES: Final = (0.6, 0.7)
"""OpenClaw's defaults of autoRecallMinScore, by version; they stand for our own default."""

DEFAULTS: Final = "agents.defaults"
CONTEXT_PLUGIN: Final = "memory-context"
LANCEDB_PLUGIN: Final = "memory-lancedb"
_PLUGINS: Final = (CONTEXT_PLUGIN, LANCEDB_PLUGIN)
ENTRIES: Final = "plugins.entries"
SLOT: Final = "plugins.slots.memory"
_MEMORY_CONTEXT: Final = f"{DEFAULTS}.memory_context"
_COMPACTION: Final = f"{DEFAULTS}.compaction"
_SEARCH: Final = f"{DEFAULTS}.memory_search"
_QMD: Final = "memory.qmd"
_CONTEXT_CONFIG: Final = f"{ENTRIES}.{CONTEXT_PLUGIN}.config"
_LANCEDB_CONFIG: Final = f"{ENTRIES}.{LANCEDB_PLUGIN}.config"
_BLOCKS: Final = (
    _MEMORY_CONTEXT,
    _COMPACTION,
    f"{DEFAULTS}.context_pruning",
    _SEARCH,
    _QMD,
    "session.reset",
    "compaction",
    _CONTEXT_CONFIG,
    _LANCEDB_CONFIG,
)
"""The blocks whose keys concern memory: one that sets nothing here is named in the notice."""
_BLOCK_KEYS: Final = tuple(f"{block}." for block in _BLOCKS)
_TOP_COMPACTION: Final = ("enabled", "reserve_tokens", "keep_recent_tokens")
"""Keys of compaction that may also stand at the top of the file."""
_RECALL, _INGEST = "recall.enabled", "ingest.enabled"
_SWITCHES = {
    f"{_MEMORY_CONTEXT}.enabled": (_RECALL, _INGEST),
    f"{_SEARCH}.enabled": (_RECALL,),
    f"{_CONTEXT_CONFIG}.auto_recall": (_RECALL,),
    f"{_CONTEXT_CONFIG}.auto_capture": (_INGEST,),
    f"{_LANCEDB_CONFIG}.auto_recall": (_RECALL,),
    f"{_LANCEDB_CONFIG}.auto_capture": (_INGEST,),
}
"""Each switch, and what it turns on and off here."""
_BARE_MODE = f"{DEFAULTS}.context_pruning"
_INDEXED = {
    f"{_SEARCH}.experimental.session_memory": "sessions",
    "memory.qmd.sessions.enabled": "sessions",
    "memory.qmd.include_default_memory": "memory",
}
"""Keys that put one source into the index or take it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The key of ours that a foreign key sets, and its conversion.

    A conversion raises `ValueError` for what it cannot convert.
    """

    to: str
    convert: Callable[[Any], Any] = lambda value: value


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
    return [_joined(entry) if isinstance(entry, Mapping) else entry for entry in paths]


def _joined(entry: Mapping[str, Any]) -> Any:
    path, pattern = entry.get("path"), entry.get("pattern")
    if not entry.keys() <= {"path", "name", "pattern"} or not isinstance(path, str):
        return entry
    return f"{path.rstrip('/')}/{pattern}" if isinstance(pattern, str) else path


_CONVERSIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    f"{_MEMORY_CONTEXT}.eviction_days": _days,
    f"{_MEMORY_CONTEXT}.cross_session": _scope,
    f"{DEFAULTS}.context_pruning.ttl": _minutes_unless_said,
    f"{DEFAULTS}.context_pruning.tools.allow": _allowed,
    f"{_QMD}.paths": _paths,
    f"{_QMD}.sessions.retention_days": _days,
    f"{_QMD}.update.interval": _minutes_unless_said,
    f"{_QMD}.limits.timeout_ms": _milliseconds,
}


@cache
def routes() -> Mapping[str, Route]:
    """Every foreign key that is read, by its path in snake case."""
    table: dict[str, Route] = {}
    for key in known_keys().values():
        for original, *others in (_spelled_out(snake_case(name)) for name in key.openclaw):
            convert = _CONVERSIONS.get(original, lambda value: value)
            route = Route(to=key.path, convert=convert)
            table |= dict.fromkeys((original, *others), route)
    return {path: table[path] for path in sorted(table, key=_place)}


@cache
def prefixes() -> frozenset[str]:
    """Every object on the way to a key that is read."""
    return frozenset(
        path.rsplit(".", depth)[0] for path in routes() for depth in range(1, path.count(".") + 1)
    )


def _spelled_out(declared: str) -> Iterator[str]:
    """The whole paths of a key as it is declared in `settings`: the usual one first."""
    head, _, name = declared.partition(".")
    if head in (CONTEXT_PLUGIN, LANCEDB_PLUGIN):
        yield f"{ENTRIES}.{head}.config.{name}"
    elif head in ("memory", "session", "plugins"):
        yield declared
    else:
        yield f"{DEFAULTS}.{declared}"
    if head == "memory_context" and name != "enabled":
        yield f"{_CONTEXT_CONFIG}.{name}"  # the plugin takes them all
    if head == "compaction" and name in _TOP_COMPACTION:
        yield declared


def _place(path: str) -> int:
    """Where it stands in docs/settings.md: block by block, then what is in none."""
    inside = (at for at, block in enumerate(_BLOCKS) if path.startswith(f"{block}."))
    return next(inside, len(_BLOCKS))


@dataclass(slots=True)
class _OpenClawFile:
    """One file being read: what is left of it, and what has come of it so far."""

    name: str
    preset: str
    leaves: dict[str, tuple[str, Any]] = field(default_factory=dict)
    given: dict[str, GivenValue] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    """The keys that set nothing here."""

    def source(self, spelled: str) -> Source:
        return Source(kind="openclaw", name=self.name, key=spelled)

    def say(self, spelled: str, message: str) -> None:
        self.notices.append(Notice(key=spelled, message=message))

    def flag(self, spelled: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise SettingsError(f"{self.source(spelled)} must be true or false, not {value!r}")
        return value

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
        given = GivenValue(value=fit(known_keys()[to], value, source), source=source)
        before = self.given.setdefault(to, given)
        if before.value != given.value:
            raise SettingsError(
                f"{source} and {before.source.key} both set {to}, to {shown(given.value)} and "
                f"{shown(before.value)}; keep one of them"
            )
        return given.value


def read_openclaw(
    path: Path, *, preset: str, agent: str | None = None
) -> tuple[dict[str, GivenValue], list[Notice]]:
    """What an openclaw.json sets, and what is to be said about it.

    What `agents.list` says of this `agent` goes before `agents.defaults`.
    """
    document = _for_agent(_parse(path), agent, path)
    reading = _OpenClawFile(name=str(path), preset=preset)
    _collect(document, reading)
    _leave_out_unused_search(document, reading)
    _memory_switches(document, reading)
    _index_sources(reading)
    _extra_paths(reading)
    for foreign, (spelled, value) in list(reading.leaves.items()):
        _follow(reading, routes()[foreign], spelled, value)
    agents = _table_at(document, "agents").get("list") or ()
    for one in (one for one in agents if isinstance(one, Mapping)):
        if any(f"{DEFAULTS}.{snake_case(key)}" in prefixes() for key in one):
            reading.ignored.append(f"agents.list[{one.get('id', '?')}] (see RECOLLECT_AGENT)")
    if reading.ignored:
        many = f"{len(reading.ignored)} keys" if len(reading.ignored) > 1 else "1 key"
        said = f"without effect in Recollect, {many}: {', '.join(reading.ignored)}"
        reading.notices.append(Notice(key=reading.name, message=said, without_effect=True))
    return reading.given, reading.notices


def _parse(path: Path) -> Mapping[str, Any]:
    import json5  # slow to import, and most programs have no such file

    text = text_of(read_bytes(path), path)
    try:
        document = json5.loads(text)
    except (ValueError, RecursionError) as problem:
        place = re.sub(r"^<string>:(\d+)", r"line \1:", str(problem))
        raise SettingsError(f"{path} is not valid JSON5: {place}; correct that line") from None
    if not isinstance(document, Mapping):
        raise SettingsError(f"{path} must hold one object {{...}}; is it an openclaw.json?")
    return document


def _for_agent(document: Mapping[str, Any], agent: str | None, path: Path) -> Mapping[str, Any]:
    """The document with what it says of one agent laid over what it says of all."""
    agents = _table_at(document, "agents")
    listed = [one for one in agents.get("list") or () if isinstance(one, Mapping)]
    if agent is None or not listed:
        return document
    own = next((one for one in listed if one.get("id") == agent), None)
    if own is None:
        names = ", ".join(sorted(str(one.get("id", "?")) for one in listed))
        raise SettingsError(f"{path} has no agent {agent!r}; it names {names}")
    read_there = prefixes() | routes().keys()
    over = {k: v for k, v in own.items() if f"{DEFAULTS}.{snake_case(k)}" in read_there}
    others = [one for one in listed if one is not own]
    defaults = _laid_over(_table_at(document, "agents", "defaults"), over)
    return {**document, "agents": {**agents, "defaults": defaults, "list": others}}


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables as one; where both name a key, whichever way they spell it, the upper counts."""
    spelled = {snake_case(key): key for key in below}
    merged = dict(below)
    for key, value in above.items():
        name = spelled.get(snake_case(key), key)
        before = merged.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            value = _laid_over(before, value)
        merged[name] = value
    return merged


def _collect(
    table: Mapping[str, Any], reading: _OpenClawFile, path: str = "", spelled: str = ""
) -> None:
    """Gather the values of the blocks that are read, and the keys that set nothing here."""
    for key, value in table.items():
        here, as_spelled = f"{path}{snake_case(key)}", f"{spelled}{key}"
        if here == _BARE_MODE and not isinstance(value, Mapping):
            here = f"{_BARE_MODE}.mode"
        if here in routes():
            if here in reading.leaves:
                other = reading.leaves[here][0]
                raise SettingsError(
                    f"{reading.name}: {as_spelled} and {other} are one key; keep one of them"
                )
            reading.leaves[here] = (as_spelled, value)
        elif here in prefixes() and isinstance(value, Mapping):
            _collect(value, reading, f"{here}.", f"{as_spelled}.")
        elif here in prefixes():
            raise SettingsError(f"{reading.source(as_spelled)} must be an object {{...}}")
        elif here == "$include" or here.startswith(_BLOCK_KEYS):
            reading.ignored.append(as_spelled)


def _leave_out_unused_search(document: Mapping[str, Any], reading: _OpenClawFile) -> None:
    """The keys of QMD count only where QMD is the backend, as in the file's own host."""
    if _table_at(document, "memory").get("backend") == "qmd":
        return
    unused = [path for path in reading.leaves if path.startswith(f"{_QMD}.")]
    if unused:
        reading.say(_QMD, 'not used, because memory.backend is not "qmd"')
    for path in unused:
        del reading.leaves[path]


def _index_sources(reading: _OpenClawFile) -> None:
    listed = reading.take(f"{_SEARCH}.sources")
    key = known_keys()["index.sources"]
    chosen = list(fit(key, listed[1], reading.source(listed[0])) if listed else key.default)
    sources = [listed[0]] if listed else []
    for path, word in _INDEXED.items():
        leaf = reading.take(path)
        if leaf is None:
            continue
        wanted = reading.flag(*leaf)
        sources.append(leaf[0])
        if not wanted and word in chosen:
            chosen.remove(word)
        elif wanted and word not in chosen and path.startswith("memory.qmd."):
            chosen.append(word)  # in memorySearch the list of sources has the last word
    if sources:
        reading.put("index.sources", sources[0], chosen)


def _extra_paths(reading: _OpenClawFile) -> None:
    key = known_keys()["index.extra_paths"]
    leaves = {
        path: leaf
        for path in (f"{_SEARCH}.extra_paths", "memory.qmd.paths")
        if (leaf := reading.take(path))
    }
    paths: list[str] = []
    for path, (spelled, value) in leaves.items():
        converted = reading.convert(routes()[path], spelled, value)
        paths += fit(key, converted, reading.source(spelled))
    if leaves:
        spelled, _ = next(iter(leaves.values()))
        reading.put("index.extra_paths", spelled, paths)


def _follow(reading: _OpenClawFile, route: Route, spelled: str, value: Any) -> None:
    if route.to == "recall.min_score":
        _min_score(reading, spelled, value)
    elif route.to == "recall.remote.provider" or (route.to, value) == ("recall.embedder", "gemini"):
        _provider(reading, spelled, value)
    else:
        reading.put(route.to, spelled, reading.convert(route, spelled, value))


def _min_score(reading: _OpenClawFile, spelled: str, value: Any) -> None:
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


def _provider(reading: _OpenClawFile, spelled: str, value: Any) -> None:
    if value == "local":
        reading.put("recall.embedder", spelled, "transformer")
    elif value != "auto":
        provider = reading.put("recall.remote.provider", spelled, value)
        reading.say(
            spelled,
            f"mapped onto recall.remote.provider = {provider}; nothing is sent there until you set "
            'recall.embedder = "remote"',
        )


def _table_at(document: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The object at a path of the file; an empty one where there is none."""
    table: Any = document
    for name in path:
        table = table.get(name) if isinstance(table, Mapping) else None
    return table if isinstance(table, Mapping) else {}


def _memory_switches(document: Mapping[str, Any], reading: _OpenClawFile) -> None:
    """Whether memory is on; takes the switches, and the settings of unused plugins, away."""
    slot_key, slot = reading.take(SLOT) or (SLOT, None)
    if slot is not None and not isinstance(slot, str):
        raise SettingsError(
            f"{reading.source(slot_key)} must be the name of a plugin, not {slot!r}"
        )
    for plugin in _PLUGINS:
        reading.flag(*(reading.take(f"{ENTRIES}.{plugin}.enabled") or ("", True)))
    turned_off_by = _plugins_off(_table_at(document, *ENTRIES.split(".")), slot, reading)
    votes: dict[str, tuple[str, Any]] = {}
    for path, targets in _SWITCHES.items():
        if switch := reading.take(path):
            is_on = reading.flag(*switch)
            votes |= {to: switch for to in targets if to not in votes or not is_on}
    for spelled in turned_off_by:
        votes |= {_RECALL: (spelled, False), _INGEST: (spelled, False)}
    for to, (spelled, value) in votes.items():
        reading.put(to, spelled, value)


def _plugins_off(entries: Mapping[str, Any], slot: str | None, reading: _OpenClawFile) -> list[str]:
    """The keys by which the plugins turn memory off; unused settings leave the leaves."""
    off = []
    if slot == "none":
        off.append(SLOT)
        reading.say(SLOT, "memory is off, as the slot says")
    used = [name for name in _PLUGINS if slot == name and _is_enabled(entries.get(name, False))]
    for plugin in _PLUGINS:
        entry = f"{ENTRIES}.{plugin}"
        if plugin in used or (plugin not in entries and slot != plugin):
            continue
        for path in [path for path in reading.leaves if path.startswith(f"{entry}.")]:
            del reading.leaves[path]
        # Another memory may hold the slot; OpenClaw's own plugin without it means "off".
        turns_off = not used and (slot == plugin or plugin == CONTEXT_PLUGIN)
        if turns_off:
            off.append(SLOT if slot == plugin else entry)
        outcome = "memory is off" if turns_off else "its settings are not used"
        needs = f"{plugin} needs an entry that is enabled and {SLOT} = {plugin}, both"
        reading.say(entry, f"{outcome}: {needs}")
    return off


def _is_enabled(entry: Any) -> bool:
    return entry.get("enabled") is not False if isinstance(entry, Mapping) else entry is not False
