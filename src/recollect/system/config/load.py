"""Joins all sources of settings: argument > environment > file > openclaw.json > preset > default.

The files are the one that the user named, else the user's own recollect.toml and, over it, what the
current project's may set (`trust` decides).
Owns the reading of recollect.toml, the environment and arguments, strictly: an unknown key, a value
that does not fit or a key given twice is a `SettingsError` naming the key, the place and what to do
next. Owns the precedence and the record of it: for every key its value, its source, and one notice
for each key that was set and does nothing (yet). And the presets: values that belong together, of
which each table holds only what differs from the defaults. Never touches a variable that is not a
setting.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from recollect.errors import SettingsError
from recollect.system.config.keys import (
    REMOVED_KEYS,
    GivenValue,
    Notice,
    Source,
    SourceKind,
    build,
    fit,
    known_groups,
    known_keys,
    nearest_key,
    put,
    read_bytes,
    removed_groups,
    snake_case,
    text_of,
)
from recollect.system.config.openclaw import DEFAULTS, prefixes, read_openclaw, routes
from recollect.system.config.places import user_settings_file
from recollect.system.config.trust import (
    UnreadFile,
    error_notice,
    is_trusted,
    notice_text,
    printable,
    read_project_file,
    withheld_values,
)
from recollect.system.data_folder import absolute_path

if TYPE_CHECKING:
    from recollect.system.config.settings import Settings

CONFIG_VARIABLE = "RECOLLECT_CONFIG"
AGENT_VARIABLE = "RECOLLECT_AGENT"
OPENCLAW_SUFFIXES = (".json", ".json5")
ENVIRONMENT_PREFIX = "RECOLLECT_"
NOT_SETTINGS = frozenset(
    {
        "RECOLLECT_AGENT",  # whose overrides count
        "RECOLLECT_CALL",  # marks the processes of our own agent's commands
        "RECOLLECT_CONFIG",  # the settings file
        "RECOLLECT_GATEWAY_TOKEN",  # what clients of the gateway bring
        "RECOLLECT_HOME",  # the data folder
        "RECOLLECT_DATA",  # the tests' data
        "RECOLLECT_GGUF",  # the real model of the tests
        "RECOLLECT_MCP_TOKEN",  # what clients of the MCP server bring over HTTP
        "RECOLLECT_MODELS",  # where ONNX models lie
        "RECOLLECT_SECRET",  # keys the hashes of all spaces: wiring
        "RECOLLECT_FULL",  # tests at their full sizes
        "RECOLLECT_SOAK",  # the long test runs
    }
)
"""Variables with our prefix that are not settings."""

BARE_GROUPS = {"pruning": "pruning.mode"}
"""Groups that may be given as one word, and the key it sets."""

_DEFAULT = Source(kind="default")
_LOG = logging.getLogger("recollect.config")
_logged: set[str] = set()
"""What this process logged about project files: each line once."""

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
    "recall.standing_tokens": 0,
    "recall.min_score": 0.7,
    "recall.decay_per_day": 0.995,
    "recall.hybrid.vector_weight": 0.7,
    "recall.hybrid.text_weight": 0.3,
    # Trim before compaction on every turn, and stop as soon as the limit is met.
    "turn.trim_first": True,
    "trim.low_water_ratio": 1.0,
    "trim.protect_first_user": False,
    # Of an old result that is cleared nothing stays.
    "pruning.hard_clear.line_chars": 0,
    # ceil(len/3), never corrected by what the provider reports.
    "tokens.counter": "openclaw",
    "tokens.calibrate": False,
    # Summaries in one pass, with nothing of ours added to them.
    "compaction.mode": "default",
    "compaction.audit": False,
    "compaction.pin_ratio": 0.0,
    "index.max_segments": 20_000,
    "index.eviction_days": 90,
    "workspace.skip_bootstrap": False,
}
"""How OpenClaw does it, by its design documents and, where they are silent, by its code."""


@dataclass(frozen=True, slots=True)
class NotRestored:
    """Something that OpenClaw does and `preset = "openclaw"` does otherwise."""

    openclaw: str
    here: str
    why: str


NOT_RESTORED: Final = (
    NotRestored(
        "archives messages at a compaction or after a trim, beside the turn",
        "every message is archived on arrival, and none leaves the view before it is durable",
        "a crash in between loses what was only in the view",
    ),
    NotRestored(
        "archives the words of user and assistant alone",
        "tool calls and results are archived too; its recall leaves them out",
        "they could never be searched, exported or restored",
    ),
    NotRestored(
        "replaces the history by a fixed text when summarising fails",
        "the history stays and the view is trimmed",
        "a failed call of a model must not wipe a session",
    ),
    NotRestored(
        "may reset the session when a compaction fails",
        "the session goes on, and the report says what failed",
        "nothing that was said is lost without being asked",
    ),
    NotRestored(
        "masks secrets by six patterns",
        "our rules mask them, unless redaction is off",
        "the six miss most secrets and destroy commit ids (docs/figures.md)",
    ),
    NotRestored(
        "puts recalled text into the block as it is",
        "tags in it that could close the block, or open another, are defused",
        "an old message could speak for the block around it",
    ),
    NotRestored(
        "chooses anew on every turn what to trim, and leaves no trace of it",
        "what was trimmed stays out until the view is over its limit again; a gap leaves one line "
        "that says so; calls and results leave together",
        "a view that changes everywhere breaks the provider's cache, and a silent gap misleads",
    ),
    NotRestored(
        "shows facts of all sessions",
        "facts keep to the scope of recall: this session's and those of none",
        "what one session said must not show in another by default",
    ),
    NotRestored(
        "supersedes and rewrites facts by the share of words they have in common",
        "a fact is replaced by one of the same subject and attribute, and never rewritten",
        "unrelated facts of one type superseded each other",
    ),
    NotRestored(
        "re-ranks by maximal marginal relevance",
        "there is no such step",
        "it never changes anything there: its limit is never below the number of candidates, and "
        "the block is filled by score and written by time",
    ),
    NotRestored(
        "dates a message by when it was archived",
        "by when it was said",
        "decay and the block's dates would tell of compactions",
    ),
    NotRestored(
        "embeds the first 2,000 characters of a message with any embedder",
        "with hash it does; with another one the message's nearest passage counts",
        "passages are embedded already, and a model's time is dear",
    ),
    NotRestored(
        "keeps the whole reserve of any window",
        "the reserve is at most a quarter of the window",
        "a window of 20,000 tokens would hold nothing",
    ),
    NotRestored(
        "prompts models in its own sentences",
        "the prompts are ours; tags and placeholders are its own",
        "only literals of a protocol are taken over",
    ),
)
"""What `preset = "openclaw"` does not restore, and why."""

PRESETS: Mapping[str, Mapping[str, Any]] = {"recollect": {}, "openclaw": OPENCLAW}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """The settings in force, where each came from, and what should be said about them."""

    settings: Settings
    sources: Mapping[str, Source]
    notices: tuple[Notice, ...]
    project_notice: str = ""
    """What of the project's recollect.toml is ignored and why; empty if nothing is."""


def load_settings(
    *,
    arguments: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
    openclaw: Path | None = None,
    agent: str | None = None,
    folder: Path | None = Path(),
) -> LoadedSettings:
    """Read every source that there is; `SettingsError` names the first key that is wrong.

    With `file`, or the file that RECOLLECT_CONFIG names, no other file is read; one that ends in
    `.json` or `.json5` is an openclaw.json. Otherwise the user's own recollect.toml is read, and
    the one in `folder`, or in the current folder if `folder` has none. The folder's author wrote
    that file: keys that only the user may set, and a file with an error, are ignored with a notice
    until the user runs `recollect trust`. With `folder=None` no project's file is read.
    Without `environment`, the process's own is read. What a file says of one `agent` (its
    `[agents.NAME]`, or OpenClaw's `agents.list`) goes before what it says of all; without one,
    RECOLLECT_AGENT names it.
    """
    variables = os.environ if environment is None else environment
    agent = agent or variables.get(AGENT_VARIABLE) or None
    named = named_file(file, variables)
    project = _ProjectPart()
    if named is not None and named.suffix.lower() in OPENCLAW_SUFFIXES:
        if openclaw is not None and openclaw != named:
            raise SettingsError(f"{named} and {openclaw} are both an openclaw.json; give one")
        openclaw, from_files = named, {}
    elif named is not None:
        from_files = read_file(named, agent=agent)
    else:
        own = user_settings_file()
        from_own = read_file(own, agent=agent) if os.path.isfile(own) else {}  # noqa: PTH113
        project = _project_part(folder, agent)
        from_files = {**from_own, **project.values}
    # Lowest first: each later one wins over the earlier.
    explicit = {
        **from_files,
        **read_environment(variables),
        **read_arguments(arguments or {}),
    }
    preset = explicit["preset"].value if "preset" in explicit else known_keys()["preset"].default
    imported, notices = (
        read_openclaw(openclaw, preset=preset, agent=agent) if openclaw else ({}, [])
    )
    from_preset = {
        key: GivenValue(value=value, source=Source(kind="preset", name=preset))
        for key, value in PRESETS[preset].items()
    }
    removed = {key: explicit.pop(key) for key in REMOVED_KEYS if key in explicit}
    given = {**from_preset, **imported, **explicit}
    try:
        settings = build({key: value.value for key, value in given.items()})
    except SettingsError as problem:  # each value fits, but not with the others
        if project.untrusted is None:
            raise
        without = load_settings(
            arguments=arguments,
            environment=environment,
            openclaw=openclaw,
            agent=agent,
            folder=None,
        )
        notice = _log_once(error_notice(project.untrusted, problem))
        return replace(without, project_notice=notice)
    return LoadedSettings(
        settings=settings,
        sources={key: given[key].source if key in given else _DEFAULT for key in known_keys()},
        notices=(*notices, *_notices_without_effect(given), *_removal_notices(removed)),
        project_notice=project.notice,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProjectPart:
    """What the project's file sets and may set, and a notice of what is ignored."""

    values: Mapping[str, GivenValue] = field(default_factory=dict)
    notice: str = ""
    untrusted: Path | None = None
    """The file that set the values, if the user did not trust it."""


def _project_part(folder: Path | None, agent: str | None) -> _ProjectPart:
    folders = () if folder is None else dict.fromkeys((folder, Path()))
    found = next((file for one in folders if (file := read_project_file(one))), None)
    if found is None:
        return _ProjectPart()
    if isinstance(found, UnreadFile):
        return _ProjectPart(notice=_log_once(str(found)))
    if is_trusted(found):
        return _ProjectPart(values=parse_file(found.data, found.path, agent=agent))
    try:
        given = parse_file(found.data, found.path, agent=agent)
    except SettingsError as problem:
        return _ProjectPart(notice=_log_once(error_notice(found.path, problem)))
    withheld = withheld_values(given)
    return _ProjectPart(
        values={key: value for key, value in given.items() if key not in withheld},
        notice=_log_once(notice_text(found.path, withheld)) if withheld else "",
        untrusted=found.path,
    )


def _log_once(notice: str) -> str:
    if notice not in _logged:
        _logged.add(notice)
        _LOG.warning("%s", notice)
    return notice


def preset_settings(preset: str) -> Settings:
    """The settings of a preset with nothing else set, whatever files and variables say."""
    return build({**PRESETS.get(preset, {}), "preset": preset})


def named_file(
    given: Path | str | None, environment: Mapping[str, str] | None = None
) -> Path | None:
    """The settings file that the user named, as an argument or, absolute, by RECOLLECT_CONFIG."""
    if given:
        return Path(given).expanduser()
    variables = os.environ if environment is None else environment
    named = variables.get(CONFIG_VARIABLE)
    return Path(absolute_path(CONFIG_VARIABLE, named)) if named else None


def _notices_without_effect(given: Mapping[str, GivenValue]) -> list[Notice]:
    """One for each key set on purpose, and one for all that a preset set besides."""
    notices: list[Notice] = []
    by_preset: dict[str, list[str]] = {}
    for key in known_keys():
        message = known_keys()[key].effect.notice()
        if not message or key not in given or given[key].value == known_keys()[key].default:
            continue
        if given[key].source.kind == "preset":
            by_preset.setdefault(message, []).append(key)
        else:
            notices.append(Notice(key=key, message=message))
    notices += [
        Notice(key="preset", message=f"{', '.join(keys)}: {message}")
        for message, keys in by_preset.items()
    ]
    return notices


def _removal_notices(removed: Mapping[str, GivenValue]) -> Iterator[Notice]:
    """One for each setting of an earlier version; logged once, too."""
    for key, given in removed.items():
        said = f"{printable(str(given.source))} is no longer a setting and has no effect"
        if REMOVED_KEYS[key]:
            said = f"{said}. {REMOVED_KEYS[key]}"
        yield Notice(key=key, message=_log_once(said), without_effect=True)


def read_file(path: Path, *, agent: str | None = None) -> dict[str, GivenValue]:
    """What a recollect.toml of the user's sets, for all agents and for this one."""
    return parse_file(read_bytes(path), path, agent=agent)


def parse_file(data: bytes, path: Path, *, agent: str | None = None) -> dict[str, GivenValue]:
    """What a recollect.toml with this content sets, for all agents and for this one."""
    common, by_agent = parse_tables(data, path)
    if agent is not None and by_agent and agent not in by_agent:
        raise unknown_agent(agent, by_agent, str(path))
    return {**common, **by_agent.get(agent or "", {})}


def parse_tables(
    data: bytes, path: Path
) -> tuple[dict[str, GivenValue], dict[str, dict[str, GivenValue]]]:
    """What a recollect.toml with this content sets: for all agents, and for each by its name."""
    text = text_of(data, path)
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as problem:  # also of a number with 5,000 digits
        last = f"at the end, line {text.count(chr(10)) + 1}"
        place = str(problem).replace("at end of document", last)
        raise SettingsError(f"{path} is not valid TOML: {place}; correct that line") from None
    agents = table.pop("agents", {})
    if not isinstance(agents, Mapping) or not all(isinstance(a, Mapping) for a in agents.values()):
        raise SettingsError(f"{path}: agents holds a table for each agent, such as [agents.NAME]")
    by_agent = {
        name: _read_table(own, kind="file", name=f"{path} [agents.{name}]")
        for name, own in agents.items()
    }
    return _read_table(table, kind="file", name=str(path)), by_agent


def unknown_agent(agent: str, known: Iterable[str], name: str) -> SettingsError:
    """The error for an agent that a file with agents does not name."""
    return SettingsError(f"{name} has no agent {agent!r}; it names {', '.join(sorted(known))}")


def read_arguments(arguments: Mapping[str, Any]) -> dict[str, GivenValue]:
    """What a caller sets: nested mappings, dotted keys or both."""
    return _read_table(arguments, kind="argument", name="")


def read_environment(environment: Mapping[str, str]) -> dict[str, GivenValue]:
    """What variables set: RECOLLECT_ and the key, groups joined by two underscores."""
    given: dict[str, GivenValue] = {}
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NOT_SETTINGS:
            continue
        spelled = variable.removeprefix(ENVIRONMENT_PREFIX)
        path = ".".join(
            part.lower() if part.isupper() else snake_case(part) for part in spelled.split("__")
        )
        path = BARE_GROUPS.get(path, path)
        source = Source(kind="environment", name=variable, key=variable)
        if path in REMOVED_KEYS:
            put(given, path, GivenValue(value=environment[variable], source=source))
            continue
        if path not in known_keys():
            raise unknown_key(path, source, known_as=variable_name)
        try:
            value = known_keys()[path].shape.read_text(environment[variable])
        except ValueError as problem:
            raise SettingsError(f"{variable} ({path}) {problem}") from None
        put(given, path, GivenValue(value=value, source=source))
    return given


def variable_name(path: str) -> str:
    """The environment variable that sets a key."""
    return ENVIRONMENT_PREFIX + path.replace(".", "__").upper()


def _read_table(table: Mapping[str, Any], *, kind: SourceKind, name: str) -> dict[str, GivenValue]:
    given: dict[str, GivenValue] = {}
    for path, spelled, value in _flatten(table, kind, name):
        source = Source(kind=kind, name=name, key=spelled)
        if path not in REMOVED_KEYS:
            value = fit(known_keys()[path], value, source)
        put(given, path, GivenValue(value=value, source=source))
    return given


def _flatten(
    table: Mapping[str, Any], kind: SourceKind, name: str, prefix: str = ""
) -> Iterator[tuple[str, str, Any]]:
    for raw_key, value in table.items():
        spelled = f"{prefix}{raw_key}"
        path = snake_case(spelled)
        source = Source(kind=kind, name=name, key=spelled)
        if path in known_keys() or path in REMOVED_KEYS:
            yield path, spelled, value
        elif path not in known_groups() and not _is_other_group(path, value):
            raise unknown_key(path, source)
        elif isinstance(value, Mapping):
            yield from _flatten(value, kind, name, f"{spelled}.")
        elif path in BARE_GROUPS:
            yield BARE_GROUPS[path], spelled, value
        else:
            example = next(key for key in known_keys() if key.startswith(f"{path}."))
            raise SettingsError(
                f"{source}: {path} is a group of settings, not one; set a key in it, such as "
                f"{example}"
            )


def _is_other_group(path: str, value: Any) -> bool:
    """A group of an earlier version, or a block of OpenClaw's own whose keys have names here."""
    is_foreign = bool(value) and not prefixes().isdisjoint({path, f"{DEFAULTS}.{path}"})
    return isinstance(value, Mapping) and (path in removed_groups() or is_foreign)


def unknown_key(
    path: str, source: Source, *, known_as: Callable[[str], str] = str
) -> SettingsError:
    """The error for a key nobody knows, with the nearest one that somebody does."""
    route = routes().get(path) or routes().get(f"{DEFAULTS}.{path}")
    if route:  # OpenClaw's own spelling of a key of ours
        return SettingsError(f"{source} is spelled {known_as(route.to)} here")
    groups = () if source.kind == "environment" else known_groups()
    nearest = nearest_key(path, (*known_keys(), *groups))
    hint = f"did you mean {known_as(nearest)}?" if nearest else "`recollect doctor` lists every key"
    return SettingsError(f"{source} is not a setting of Recollect; {hint}")
