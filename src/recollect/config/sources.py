"""Where explicit settings come from: recollect.toml, the environment, arguments.

Owns the reading of each into `{dotted key: Given}`, strictly: an unknown key, a value that does
not fit or a key given twice is a `SettingsError` naming the key, the place and what to do next.
It never merges sources (`load` does) and never touches a variable that is not a setting.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from recollect.config.keys import Key, known_groups, known_keys, nearest_key, snake_case
from recollect.config.routes import DEFAULTS, PREFIXES, ROUTES
from recollect.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT_PREFIX = "RECOLLECT_"
NOT_SETTINGS = frozenset(
    {
        "RECOLLECT_CALL",  # marks the processes of our own agent's commands
        "RECOLLECT_CONFIG",  # the settings file
        "RECOLLECT_HOME",  # the data folder
        "RECOLLECT_DATA",  # the tests' data
        "RECOLLECT_GGUF",  # the real model of the tests
        "RECOLLECT_MODELS",  # where ONNX models lie
        "RECOLLECT_SECRET",  # keys the hashes of all spaces: wiring
        "RECOLLECT_SOAK",  # the long test runs
    }
)
"""Variables with our prefix that are not settings."""

BARE_GROUPS = {"pruning": "pruning.mode"}
"""Groups that may be given as one word, and the key it sets."""

SourceKind = Literal["default", "preset", "openclaw", "file", "environment", "argument"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a value came from: which file, preset or variable, and the key as spelled there."""

    kind: SourceKind
    name: str = ""
    key: str = ""

    def __str__(self) -> str:
        if self.kind in ("file", "openclaw"):
            return f"{self.name}: {self.key}"
        if self.kind == "preset":
            return f'preset "{self.name}"'
        if self.kind == "argument":
            return f"argument {self.key}"
        return self.name or self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A canonical value and where it was given."""

    value: Any
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something a person should know about a key that is no error."""

    key: str
    message: str
    without_effect: bool = False
    """The key was read and changes nothing."""

    def __str__(self) -> str:
        return f"{self.key}: {self.message}"


def read_file(path: Path) -> dict[str, Given]:
    """What a recollect.toml sets."""
    text = read_text(path)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        last = f"at the end, line {text.count(chr(10)) + 1}"
        place = str(problem).replace("at end of document", last)
        raise SettingsError(f"{path} is not valid TOML: {place}; correct that line") from None
    return _read_table(table, kind="file", name=str(path))


def read_text(path: Path) -> str:
    """A settings file's text, a byte order mark left out."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as problem:
        raise SettingsError(
            f"{path} is not UTF-8 text (byte {problem.start}); save it as UTF-8"
        ) from None
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise SettingsError(
            f"cannot read the settings file {path}: {reason}; name another one"
        ) from None


def read_arguments(arguments: Mapping[str, Any]) -> dict[str, Given]:
    """What a caller sets: nested mappings, dotted keys or both."""
    return _read_table(arguments, kind="argument", name="")


def read_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    """What variables set: RECOLLECT_ and the key, groups joined by two underscores."""
    given: dict[str, Given] = {}
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NOT_SETTINGS:
            continue
        spelled = variable.removeprefix(ENVIRONMENT_PREFIX)
        path = ".".join(
            part.lower() if part.isupper() else snake_case(part) for part in spelled.split("__")
        )
        path = BARE_GROUPS.get(path, path)
        source = Source(kind="environment", name=variable, key=variable)
        if path not in known_keys():
            raise unknown_key(path, source, known_as=variable_name)
        try:
            value = known_keys()[path].shape.read_text(environment[variable])
        except ValueError as problem:
            raise SettingsError(f"{variable} ({path}) {problem}") from None
        put(given, path, Given(value=value, source=source))
    return given


def variable_name(path: str) -> str:
    """The environment variable that sets a key."""
    return ENVIRONMENT_PREFIX + path.replace(".", "__").upper()


def _read_table(table: Mapping[str, Any], *, kind: SourceKind, name: str) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for path, spelled, value in _flatten(table, kind, name):
        source = Source(kind=kind, name=name, key=spelled)
        put(given, path, Given(value=fit(known_keys()[path], value, source), source=source))
    return given


def _flatten(
    table: Mapping[str, Any], kind: SourceKind, name: str, prefix: str = ""
) -> Iterator[tuple[str, str, Any]]:
    for raw_key, value in table.items():
        spelled = f"{prefix}{raw_key}"
        path = snake_case(spelled)
        source = Source(kind=kind, name=name, key=spelled)
        if path in known_keys():
            yield path, spelled, value
        elif path not in known_groups() and not (value and _is_foreign_group(path, value)):
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


def _is_foreign_group(path: str, value: Any) -> bool:
    """A block of OpenClaw's own spelling; one of its keys will say how it is spelled here."""
    return isinstance(value, Mapping) and not PREFIXES.isdisjoint({path, f"{DEFAULTS}.{path}"})


def fit(key: Key, value: Any, source: Source) -> Any:
    """The canonical value, or an error that names the key and its place."""
    try:
        return key.shape.read(value)
    except ValueError as problem:
        ours = "" if snake_case(source.key) == key.path else f" ({key.path})"
        raise SettingsError(f"{source}{ours} {problem}") from None


def put(given: dict[str, Given], path: str, one: Given) -> None:
    """Take in one value; two spellings of one key in one place are an error."""
    if path in given:
        raise SettingsError(
            f"{one.source} and {given[path].source} both set {path}; keep one of them"
        )
    given[path] = one


REPLACED: Final = {
    "store.deadline_seconds": ("store.open_seconds", "store.read_seconds", "store.write_seconds")
}
"""Settings of earlier versions, and those that say now what they said."""


def unknown_key(
    path: str, source: Source, *, known_as: Callable[[str], str] = str
) -> SettingsError:
    """The error for a key nobody knows, with the nearest one that somebody does."""
    route = ROUTES.get(path) or ROUTES.get(f"{DEFAULTS}.{path}")
    if route and route.to:  # OpenClaw's own spelling of a key of ours
        return SettingsError(f"{source} is spelled {known_as(route.to)} here")
    if path in REPLACED:
        return SettingsError(f"{source} was replaced by {', '.join(map(known_as, REPLACED[path]))}")
    groups = () if source.kind == "environment" else known_groups()
    nearest = nearest_key(path, (*known_keys(), *groups))
    hint = f"did you mean {known_as(nearest)}?" if nearest else "docs/settings.md lists every key"
    return SettingsError(f"{source} is not a setting of Recollect; {hint}")
