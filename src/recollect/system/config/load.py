"""Joins all sources of settings: argument > environment > file > openclaw.json > preset > default.

If the user names a file, Recollect reads only that file. If the user names none, Recollect reads
the user's own recollect.toml, then the current project's, which may set fewer keys (`trust`
decides). A wrong key or value raises a `SettingsError` that names the key, its source and the fix.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.errors import SettingsError
from recollect.system.config.keys import (
    GivenValue,
    Notice,
    Source,
    SourceKind,
    build,
    error_for_unknown_key,
    fit,
    put,
    read_bytes,
    setting_groups,
    setting_keys,
    snake_case,
    text_of,
)
from recollect.system.config.openclaw import read_openclaw
from recollect.system.config.trust import (
    UnreadFile,
    error_notice,
    is_trusted,
    notice_text,
    read_project_file,
    withheld_values,
)
from recollect.system.data_folder import absolute_path
from recollect.system.places import user_settings_file

if TYPE_CHECKING:
    from recollect.system.config.settings import Settings

CONFIG_VARIABLE = "RECOLLECT_CONFIG"
OPENCLAW_SUFFIXES = (".json", ".json5")
AGENT_VARIABLE = "RECOLLECT_AGENT"
ENVIRONMENT_PREFIX = "RECOLLECT_"
NOT_SETTINGS = frozenset(
    {
        "RECOLLECT_AGENT",  # the agent of an openclaw.json
        "RECOLLECT_CONFIG",  # the settings file
        "RECOLLECT_GATEWAY_TOKEN",  # the token of the gateway's clients
        "RECOLLECT_HOME",  # the data folder
        "RECOLLECT_KEY",  # the key of a client of the service
        "RECOLLECT_DATA",  # the tests' data
        "RECOLLECT_GGUF",  # the real model of the tests
        "RECOLLECT_MCP_TOKEN",  # the token of the MCP server's clients over HTTP
        "RECOLLECT_MODELS",  # the folder of ONNX models
        "RECOLLECT_SECRET",  # keys the hashes of all spaces (see wiring)
        "RECOLLECT_FULL",  # tests at their full sizes
        "RECOLLECT_SOAK",  # the long test runs
    }
)
"""Variables with Recollect's prefix that are not settings."""

_DEFAULT = Source(kind="default")
_LOG = logging.getLogger("recollect.config")

OPENCLAW: Mapping[str, Any] = {
    # Recall whole messages by OpenClaw's score, in its line format, without Recollect's evidence.
    "recall.method": "openclaw",
    "recall.embedder": "hash",
    "recall.scope": "session",
    # Recall on every turn. The block is after the system prompt, and is removed on the next turn.
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
    # Trim on every turn before a compaction is considered, and stop as soon as the request fits.
    "turn.trim_first": True,
    "trim.low_water_ratio": 1.0,
    "trim.protect_first_user": False,
    # Clear an old result completely.
    "pruning.hard_clear.line_chars": 0,
    # Count ceil(len/3) tokens, and never correct this number by the provider's reports.
    "tokens.counter": "openclaw",
    "tokens.calibrate": False,
    # Write summaries in one pass, and add nothing to them.
    "compaction.mode": "default",
    "compaction.audit": False,
    "compaction.pin_ratio": 0.0,
    "index.max_segments": 20_000,
    "index.eviction_days": 90,
    "workspace.skip_bootstrap": False,
    "session.reset.mode": "daily",
}
"""Values that give OpenClaw's behavior: as in its design documents, or else as in its code."""

PRESETS: Mapping[str, Mapping[str, Any]] = {"recollect": {}, "openclaw": OPENCLAW}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """The active settings, the source of each, and notices about them."""

    settings: Settings
    sources: Mapping[str, Source]
    notices: tuple[Notice, ...]
    project_notice: str = ""
    """Names the ignored part of the project's recollect.toml, and why; empty if there is none."""


def load_settings(
    *,
    arguments: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
    openclaw: Path | None = None,
    folder: Path | None = Path(),
) -> LoadedSettings:
    """Read every source. A `SettingsError` names the first invalid key.

    If `file` or RECOLLECT_CONFIG names a file, no other file is read. A file that ends in `.json`
    or `.json5` is read as an openclaw.json. If the user names no file, the user's own
    recollect.toml is read, and the project's: the one in `folder`, or in the current folder if
    `folder` has none. The project's file may come from a stranger. So keys that only the user may
    set, and files with errors, are ignored with a notice until the user runs `recollect trust`.
    With `folder=None` no project's file is read. Without `environment`, the process's own is read.
    """
    variables = os.environ if environment is None else environment
    given_file = find_settings_file(file, variables)
    project = _ProjectPart()
    if given_file is not None and given_file.suffix.lower() in OPENCLAW_SUFFIXES:
        if openclaw is not None and openclaw != given_file:
            raise SettingsError(
                f"{given_file} and {openclaw} are both an openclaw.json; give only one"
            )
        openclaw, from_files = given_file, {}
    elif given_file is not None:
        from_files = parse_file(read_bytes(given_file), given_file)
    else:
        user_file = user_settings_file()
        from_own = parse_file(read_bytes(user_file), user_file) if os.path.isfile(user_file) else {}  # noqa: PTH113
        project = _project_part(folder)
        from_files = {**from_own, **project.values}
    from_arguments = _read_table(arguments or {}, kind="argument", name="")
    # Add the source of lowest priority first: each later source overrides the earlier ones.
    explicit = {**from_files, **read_environment(variables), **from_arguments}
    preset = explicit["preset"].value if "preset" in explicit else setting_keys()["preset"].default
    agent = variables.get(AGENT_VARIABLE) or None
    openclaw_values, notices = (
        read_openclaw(openclaw, preset=preset, agent=agent) if openclaw else ({}, [])
    )
    from_preset = {
        key: GivenValue(value=value, source=Source(kind="preset", name=preset))
        for key, value in PRESETS[preset].items()
    }
    values_by_key = {**from_preset, **openclaw_values, **explicit}
    try:
        settings = build({key: value.value for key, value in values_by_key.items()})
    except SettingsError as problem:  # each value is valid, but the combination is not
        if project.untrusted_file is None:
            raise
        settings_without_project = load_settings(
            arguments=arguments, environment=environment, openclaw=openclaw, folder=None
        )
        notice = _log_once(error_notice(project.untrusted_file, problem))
        return replace(settings_without_project, project_notice=notice)
    return LoadedSettings(
        settings=settings,
        sources={
            key: values_by_key[key].source if key in values_by_key else _DEFAULT
            for key in setting_keys()
        },
        notices=tuple(notices),
        project_notice=project.notice,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProjectPart:
    values: Mapping[str, GivenValue] = field(default_factory=dict)
    notice: str = ""
    untrusted_file: Path | None = None
    """The file with these values, if the user does not trust it."""


def _project_part(folder: Path | None) -> _ProjectPart:
    folders = () if folder is None else dict.fromkeys((folder, Path()))
    project_file = next(
        (file for directory in folders if (file := read_project_file(directory))), None
    )
    if project_file is None:
        return _ProjectPart()
    if isinstance(project_file, UnreadFile):
        return _ProjectPart(notice=_log_once(str(project_file)))
    if is_trusted(project_file):
        return _ProjectPart(values=parse_file(project_file.data, project_file.path))
    try:
        file_values = parse_file(project_file.data, project_file.path)
    except SettingsError as problem:
        return _ProjectPart(notice=_log_once(error_notice(project_file.path, problem)))
    withheld = withheld_values(file_values)
    return _ProjectPart(
        values={key: value for key, value in file_values.items() if key not in withheld},
        notice=_log_once(notice_text(project_file.path, withheld)) if withheld else "",
        untrusted_file=project_file.path,
    )


@cache
def _log_once(notice: str) -> str:
    _LOG.warning("%s", notice)
    return notice


def find_settings_file(
    argument: Path | str | None, environment: Mapping[str, str] | None = None
) -> Path | None:
    """Return the settings file that the user named, as an argument or in RECOLLECT_CONFIG."""
    if argument:
        return Path(argument).expanduser()
    variables = os.environ if environment is None else environment
    variable_value = variables.get(CONFIG_VARIABLE)
    return Path(absolute_path(CONFIG_VARIABLE, variable_value)) if variable_value else None


def parse_file(data: bytes, path: Path) -> dict[str, GivenValue]:
    """Parse the content of a recollect.toml."""
    text = text_of(data, path)
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as problem:  # a number with 5,000 digits raises this, too
        last = f"at the end, line {text.count(chr(10)) + 1}"
        place = str(problem).replace("at end of document", last)
        raise SettingsError(f"{path} is not valid TOML: {place}; correct that line") from None
    return _read_table(table, kind="file", name=str(path))


def read_environment(environment: Mapping[str, str]) -> dict[str, GivenValue]:
    """Parse the values of environment variables. A variable's name is RECOLLECT_ and the key, with
    groups joined by two underscores."""
    values_by_path: dict[str, GivenValue] = {}
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NOT_SETTINGS:
            continue
        variable_key = variable.removeprefix(ENVIRONMENT_PREFIX)
        path = ".".join(
            part.lower() if part.isupper() else snake_case(part)
            for part in variable_key.split("__")
        )
        source = Source(kind="environment", name=variable, key=variable)
        if path not in setting_keys():
            raise error_for_unknown_key(path, source, spelling=variable_name)
        value = fit(path, environment[variable], source, text=True)
        put(values_by_path, path, GivenValue(value=value, source=source))
    return values_by_path


def variable_name(path: str) -> str:
    return ENVIRONMENT_PREFIX + path.replace(".", "__").upper()


def _read_table(table: Mapping[str, Any], *, kind: SourceKind, name: str) -> dict[str, GivenValue]:
    given: dict[str, GivenValue] = {}
    for path, source, value in _flatten(table, Source(kind=kind, name=name)):
        put(given, path, GivenValue(value=fit(path, value, source), source=source))
    return given


def _flatten(table: Mapping[str, Any], place: Source) -> Iterator[tuple[str, Source, Any]]:
    for raw_key, value in table.items():
        source = replace(place, key=f"{place.key}.{raw_key}".lstrip("."))
        path = snake_case(source.key)
        if path in setting_keys():
            yield path, source, value
        elif isinstance(value, Mapping) and path in setting_groups():
            yield from _flatten(value, source)
        elif path in setting_groups():
            example = next(key for key in setting_keys() if key.startswith(f"{path}."))
            raise SettingsError(
                f"{source}: {path} is a group of settings; set a key in it, such as {example}"
            )
        else:
            raise error_for_unknown_key(path, source)
