"""The settings as a flat table of dotted keys, and the parsing of a value from a source.

The table is made from the dataclasses in `settings`. This module knows the two spellings of a key
(`hard_cap_tokens`, `hardCapTokens`), and raises the errors for unknown keys and invalid values."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from recollect.errors import SettingsError
from recollect.system.config.fields import ASK, ProjectRule, inner_groups, read_value, value_hints
from recollect.system.config.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_GUARDED = "redaction"

SourceKind = Literal["default", "preset", "openclaw", "file", "environment", "argument"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One setting: its dotted path, its default, its type, and what a project may set."""

    path: str
    default: Any
    hint: Any
    project: ProjectRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Origin of a value: its file, preset or variable, and the key as it is spelled there."""

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
class GivenValue:
    """A checked value and its source."""

    value: Any
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A note for the user about a key, which is not an error."""

    key: str
    message: str
    without_effect: bool = False
    """True if Recollect knows the key but ignores its value."""

    def __str__(self) -> str:
        return f"{self.key}: {self.message}"


@cache
def setting_keys() -> Mapping[str, Key]:
    """Return every key by its dotted path, in the order of the dataclasses."""
    keys = (
        key for path, of in {"": Settings, **setting_groups()}.items() for key in _keys(path, of)
    )
    return {key.path: key for key in keys}


@cache
def setting_groups() -> Mapping[str, type]:
    """Return every group of keys by its dotted path."""
    return dict(_groups_of(Settings, ""))


def _keys(prefix: str, group: type) -> Iterator[Key]:
    hints = value_hints(group)
    for field in dataclasses.fields(group):
        if field.name in hints:
            yield Key(
                path=f"{prefix}.{field.name}".lstrip("."),
                default=field.default,
                hint=hints[field.name],
                project=field.metadata.get("project", ASK),
            )


def _groups_of(group: type, prefix: str) -> Iterator[tuple[str, type]]:
    for name, inner in inner_groups(group).items():
        yield prefix + name, inner
        yield from _groups_of(inner, f"{prefix}{name}.")


def build(values: Mapping[str, Any]) -> Settings:
    """Build the settings with these values, and defaults for all other keys."""
    if unknown_paths := values.keys() - setting_keys().keys():
        raise TypeError(f"unknown settings: {', '.join(sorted(unknown_paths))}")
    settings: Settings = _build_group(Settings, "", values)
    return settings


def _build_group(group: type, prefix: str, values: Mapping[str, Any]) -> Any:
    own_values = {
        name: values[prefix + name] for name in value_hints(group) if prefix + name in values
    }
    inner = {
        name: _build_group(of, f"{prefix}{name}.", values)
        for name, of in inner_groups(group).items()
    }
    return group(**own_values, **inner)


def value_of(settings: Settings, path: str) -> Any:
    value: Any = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


def fit(path: str, value: Any, source: Source, *, text: bool = False) -> Any:
    """Convert a value for its setting, or raise an error that names the key and its source."""
    try:
        return read_value(setting_keys()[path].hint, value, text=text)
    except ValueError as problem:
        path_note = "" if snake_case(source.key) == path else f" ({path})"
        raise SettingsError(f"{source}{path_note} {problem}") from None


def put(values_by_path: dict[str, GivenValue], path: str, value: GivenValue) -> None:
    """Add one value. Raise an error if the same source has the key in another spelling."""
    if path in values_by_path:
        raise SettingsError(
            f"{value.source} and {values_by_path[path].source} both set {path}; keep one of them"
        )
    values_by_path[path] = value


def read_bytes(path: Path) -> bytes:
    """Read a settings file that the user named or wrote."""
    try:
        return path.read_bytes()
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise SettingsError(
            f"cannot read the settings file {path}: {reason}; name another one"
        ) from None


def text_of(data: bytes, path: Path) -> str:
    """Decode a settings file, without a byte order mark and with plain line ends."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise SettingsError(
            f"{path} is not UTF-8 text (byte {problem.start}); save it as UTF-8"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def snake_case(key: str) -> str:
    """Convert a key to snake case: `hardCapTokens` and `hard_cap_tokens` are the same key."""
    return ".".join(_HUMP.sub("_", part).lower() for part in key.split("."))


def error_for_unknown_key(
    path: str, source: Source, *, spelling: Callable[[str], str] = str
) -> SettingsError:
    """Return the error for an unknown key, which suggests the most similar known key."""
    groups = () if source.kind == "environment" else setting_groups()
    nearest = _nearest_key(path, (*setting_keys(), *groups))
    advice = "`recollect doctor --settings` lists every key"
    hint = f"did you mean {spelling(nearest)}?" if nearest else advice
    return SettingsError(f"{source} is not a setting of Recollect; {hint}")


def _nearest_key(path: str, known_paths: Iterable[str]) -> str | None:
    """Find the known key that is most similar to an unknown one. Only keys of the typed group are
    suggested, because a key of another group changes something else. Keys of `redaction` are
    suggested only if the user typed that group, because they protect secrets."""
    guarded = not path.startswith(_GUARDED)
    paths = [
        candidate for candidate in known_paths if not (guarded and candidate.startswith(_GUARDED))
    ]
    group, dot, _ = path.partition(".")
    if dot:
        groups = {candidate.partition(".")[0] for candidate in paths if "." in candidate}
        nearest_group = closest(group, groups, 0.75)
        return closest(
            path,
            [
                candidate
                for candidate in paths
                if nearest_group and candidate.startswith(f"{nearest_group}.")
            ],
            0.6,
        )
    # Find a group's key after a variable with only one underscore between group and key.
    group_paths = [
        candidate
        for candidate in paths
        if "." not in candidate or path.startswith(candidate.partition(".")[0])
    ]
    if close := closest(path, group_paths, 0.6):
        return close
    # Find a key without its group if only one group has this key.
    names = Counter(candidate.rpartition(".")[2] for candidate in paths)
    by_name = {
        name: candidate for candidate in paths if names[name := candidate.rpartition(".")[2]] == 1
    }
    return by_name.get(closest(path, by_name, 0.75) or "")


def closest(word: str, words: Iterable[str], cutoff: float) -> str | None:
    """Return the word that is most similar to `word`, from this similarity on."""
    return next(iter(difflib.get_close_matches(word, list(words), n=1, cutoff=cutoff)), None)
