"""Reads the settings of an existing openclaw.json (JSON5), and says what it did with them.

Which key sets which of ours is declared in `settings`; here stand the conversions some need, and
the keys that OpenClaw knows and Recollect accepts without effect, each with the reason. Only those
blocks are read, strictly: an unknown key inside them is an error; everything else in the file is
left alone and never shown. What is mapped, refused or without effect becomes one notice each. Never
follows an include, never starts a command, never reads a provider's key. Sources: OpenClaw's design
documents, and for keys without effect the configuration schema of OpenClaw itself.

Whether memory is on: a plugin counts only when it has an entry and the memory slot names it, both;
the settings of one that does not count are left out. Where switches disagree, off wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from recollect.config.fields import Flag, shown
from recollect.config.keys import (
    GivenValue,
    Notice,
    Source,
    camel_case,
    fit,
    known_keys,
    nearest_key,
    read_bytes,
    snake_case,
    text_of,
)
from recollect.config.settings import CALIBRATED_MIN_SCORE
from recollect.errors import SettingsError

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
STRICT_BLOCKS: Final = (*_BLOCKS, "memory")
"""The blocks in which an unknown key is an error."""
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
    """Where one foreign key leads: to a key of ours, converted, or nowhere for a reason.

    A conversion raises `ValueError` for what it cannot convert.
    """

    to: str | None
    convert: Callable[[Any], Any] = lambda value: value
    remark: str = ""
    """What is added to a notice; the reason where it leads nowhere."""
    refused: bool = False
    """It asks for what we do not do, and not only for what means nothing here."""


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

_REMARKS: Final[Mapping[str, str]] = {
    f"{_MEMORY_CONTEXT}.auto_recall_min_score": (
        f"0.6 to 0.7, its defaults, are ours, {CALIBRATED_MIN_SCORE:g}; others in proportion; "
        'as it is under preset = "openclaw"'
    ),
    f"{_COMPACTION}.memory_flush.soft_threshold": "read as a share of the window",
    f"{_SEARCH}.experimental.session_memory": 'on: with "sessions", off: without',
    f"{_QMD}.include_default_memory": 'on: with "memory", off: without',
    f"{_QMD}.sessions.enabled": 'on: with "sessions", off: without',
}

_WITHOUT_EFFECT: Final[Mapping[str, Mapping[str, str]]] = {
    _COMPACTION: {
        "memory_flush.force_flush_transcript_bytes": "the flush goes by tokens",
        "memory_flush.model": "the flush is a turn of the session's own model",
        "model": "summaries are written by the session's model",
        "provider": "summaries are written by the session's model",
        "timeout_seconds": "deadlines are Recollect's own",
        "custom_instructions": "instructions are given with a compaction on request",
        "identifier_policy": "exact identifiers are always carried by code",
        "identifier_instructions": "exact identifiers are always carried by code",
        "recent_turns_preserve": "compaction.keep_recent_tokens says what is kept",
        "quality_guard": "every compaction is probed and leaves a receipt",
        "post_index_sync": "messages are indexed as they arrive",
        "post_compaction_sections": "the host's system prompt is left alone",
        "truncate_after_compaction": "transcripts of others are never altered",
        "max_active_transcript_bytes": "transcripts of others are never altered",
        "mid_turn_precheck": "every request is checked, in mid-turn too",
    },
    _SEARCH: {
        "query.hybrid.mmr": "it lowers recall where measured (docs/sources.md)",
        "query.hybrid.temporal_decay": "see recall.decay_per_day",
        "query.min_score": "its score is not ours; see recall.min_score",
        "remote": "keys and addresses of a provider come from the environment",
        "fallback": "the fallback is always local",
        "local": "models are found in Recollect's own folder",
        "store": "the store is Recollect's own",
        "chunking": "passages are cut as measured (docs/sources.md)",
        "sync": "files are re-indexed when they change",
    },
    _QMD: {
        "sessions.export_dir": "sessions are indexed where they are",
        "update.debounce_ms": "files are re-indexed when they change",
        "update.on_boot": "files are re-indexed when they change",
        "update.wait_for_boot_sync": "files are re-indexed when they change",
        "update.embed_interval": "embedding follows the archive",
        "update.command_timeout_ms": "no subprocess is started",
        "update.update_timeout_ms": "no subprocess is started",
        "update.embed_timeout_ms": "no subprocess is started",
        "limits.max_snippet_chars": "a block is measured in tokens",
        "limits.max_injected_chars": "a block is measured in tokens",
        "search_mode": "see recall.hybrid.enabled",
        "mcporter": "no subprocess is started",
        "scope": "see recall.scope",
    },
    _CONTEXT_CONFIG: {
        "embedding_model_name": "models are found in Recollect's own folder",
        "embedding_dim": "an embedder knows its own dimensions",
        "storage_path": "the store is Recollect's own",
        "vector_persist": "vectors are kept in the store",
        "index_type": "vectors are searched exactly",
        "budget": "see recall.hard_cap_tokens",
    },
    _LANCEDB_CONFIG: {
        "embedding": (
            "keys come from the environment, and nothing is sent to a provider that "
            "recall.embedder and recall.remote do not name"
        ),
        "db_path": "the store is Recollect's own",
        "storage_options": "the store is Recollect's own",
        "capture_max_chars": "every message is kept whole",
        "recall_max_chars": "see query.user_messages",
        "dreaming": "Recollect has no such thing",
    },
    DEFAULTS: {
        "block_streaming_default": "it concerns the host, not the context",
        "heartbeat": "it concerns the host, not the context",
        "cache_control_ttl": "see pruning.ttl",
    },
    "memory": {
        "backend": (
            'Recollect searches by itself; with "qmd" the keys of memory.qmd are mapped onto ours'
        )
    },
}
"""Keys of OpenClaw that change nothing here, and why."""
_REFUSED: Final = {f"{_QMD}.command": "Recollect searches by itself and starts no subprocess"}


@cache
def routes() -> Mapping[str, Route]:
    """Every foreign key that is read, by its path in snake case."""
    table: dict[str, Route] = {}
    for key in known_keys().values():
        for original, *others in (_spelled_out(snake_case(name)) for name in key.openclaw):
            convert = _CONVERSIONS.get(original, lambda value: value)
            remark = _REMARKS.get(original, "")
            route = Route(to=key.path, convert=convert, remark=remark)
            table |= dict.fromkeys((original, *others), route)
    for block, reasons in _WITHOUT_EFFECT.items():
        table |= {f"{block}.{name}": Route(to=None, remark=why) for name, why in reasons.items()}
    for path, why in _REFUSED.items():
        table[path] = Route(to=None, remark=why, refused=True)
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

    def source(self, spelled: str) -> Source:
        return Source(kind="openclaw", name=self.name, key=spelled)

    def say(self, spelled: str, message: str) -> None:
        self.notices.append(Notice(key=spelled, message=message))

    def say_without_effect(self, spelled: str, why: str) -> None:
        message = f"accepted without effect: {why}"
        self.notices.append(Notice(key=spelled, message=message, without_effect=True))

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
    _leave_out_unused_search(reading)
    _memory_switches(document, reading)
    _index_sources(reading)
    _extra_paths(reading)
    for foreign, (spelled, value) in list(reading.leaves.items()):
        _follow(reading, foreign, routes()[foreign], spelled, value)
    _say_what_is_left_out(document, reading)
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
    """Gather the values of the blocks that are read; refuse what is unknown inside them."""
    for key, value in table.items():
        here, as_spelled = f"{path}{snake_case(key)}", f"{spelled}{key}"
        if here == _BARE_MODE and not isinstance(value, Mapping):
            here = f"{_BARE_MODE}.mode"
        strict = here in STRICT_BLOCKS or any(here.startswith(f"{b}.") for b in STRICT_BLOCKS)
        if here in routes():
            if here in reading.leaves:
                other = reading.leaves[here][0]
                raise SettingsError(
                    f"{reading.name}: {as_spelled} and {other} are one key; keep one of them"
                )
            reading.leaves[here] = (as_spelled, value)
        elif here in prefixes() and isinstance(value, Mapping):
            _collect(value, reading, f"{here}.", f"{as_spelled}.")
        elif strict:
            raise _unknown(reading, here, as_spelled)


def _unknown(reading: _OpenClawFile, path: str, spelled: str) -> SettingsError:
    if path in prefixes():
        return SettingsError(f"{reading.source(spelled)} must be an object {{...}}")
    nearest = nearest_key(path, routes())
    hint = f"did you mean {camel_case(nearest)}?" if nearest else "take it out of this block"
    return SettingsError(f"{reading.source(spelled)} is not a key that Recollect knows; {hint}")


def _leave_out_unused_search(reading: _OpenClawFile) -> None:
    """The keys of QMD count only where QMD is the backend, as in the file's own host."""
    backend = reading.take("memory.backend")
    if backend and backend[1] not in ("builtin", "qmd"):
        raise SettingsError(
            f'{reading.source(backend[0])} must be one of "builtin", "qmd", not {backend[1]!r}'
        )
    if backend and backend[1] == "qmd":
        reading.say_without_effect(backend[0], routes()["memory.backend"].remark)
        return
    unused = [path for path in reading.leaves if path.startswith("memory.qmd.")]
    if unused:
        reading.say("memory.qmd", 'not used, because memory.backend is not "qmd"')
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
        reading.say(leaf[0], f"mapped onto index.sources = {shown(tuple(chosen))}")
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
        if ".qmd." in path:
            reading.say(spelled, f"mapped onto index.extra_paths = {shown(tuple(paths))}")
    if leaves:
        spelled, _ = next(iter(leaves.values()))
        reading.put("index.extra_paths", spelled, paths)


def _follow(reading: _OpenClawFile, path: str, route: Route, spelled: str, value: Any) -> None:
    if route.to is None and route.refused:
        reading.say(spelled, f"refused: {route.remark}")
    elif route.to is None:
        reading.say_without_effect(spelled, route.remark)
    elif route.to == "recall.min_score":
        _min_score(reading, spelled, value)
    elif route.to == "recall.remote.provider" or (route.to, value) == ("recall.embedder", "gemini"):
        _provider(reading, spelled, value)
    else:
        converted = reading.convert(route, spelled, value)
        canonical = reading.put(route.to, spelled, converted)
        renamed = isinstance(value, str) and isinstance(canonical, str) and value != canonical
        if route.remark or renamed or converted != value or ".qmd." in path:
            remark = f" ({route.remark})" if route.remark else ""
            reading.say(spelled, f"mapped onto {route.to} = {shown(canonical)}{remark}")


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
        reading.say(spelled, "mapped onto recall.embedder = transformer")
    elif value != "auto":
        provider = reading.put("recall.remote.provider", spelled, value)
        reading.say(
            spelled,
            f"mapped onto recall.remote.provider = {provider}; nothing is sent there until you set "
            'recall.embedder = "remote"',
        )


def _say_what_is_left_out(document: Mapping[str, Any], reading: _OpenClawFile) -> None:
    if "$include" in document:
        reading.say("$include", "not followed; give the included file's blocks in this one")
    agents = _table_at(document, "agents")
    read_there = prefixes() | routes().keys()
    for agent in agents.get("list") or ():
        if isinstance(agent, Mapping):
            over = [key for key in agent if f"{DEFAULTS}.{snake_case(key)}" in read_there]
            if over:
                reading.say_without_effect(
                    f"agents.list[{agent.get('id', '?')}]",
                    f"{', '.join(over)}; read for that agent alone (RECOLLECT_AGENT)",
                )
    models = _table_at(document, "agents", "defaults", "models")
    if any(
        snake_case(key) == "cache_control_ttl"
        for model in models.values()
        for key in _table_at({"model": model}, "model", "params")
    ):
        reading.say_without_effect(
            "agents.defaults.models.*.params.cacheControlTtl",
            routes()[f"{DEFAULTS}.cache_control_ttl"].remark,
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
