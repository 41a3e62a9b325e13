"""The settings as a flat table of dotted keys, where a value came from, and how it is taken in.

Derived from the dataclasses in `settings`, never written by hand: what is not a field there is not
a key. Owns the two spellings (`hard_cap_tokens`, `hardCapTokens`), the hint for a key that nobody
knows, the keys of earlier versions, and the error for a value that does not fit.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from recollect.errors import SettingsError
from recollect.system.config.fields import (
    Effect,
    ProjectRule,
    ValueShape,
    annotations_of,
    shapes_of,
)
from recollect.system.config.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from msgspec import Meta

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

SourceKind = Literal["default", "preset", "openclaw", "file", "environment", "argument"]


_FACTS = "Facts are extracted only if models.extraction is set"

REMOVED_KEYS: Final[Mapping[str, str]] = {
    "compaction.breaker_failures": "",
    "compaction.breaker_seconds": "",
    "compaction.flush.files": "",
    "compaction.summary_tokens": "",
    "daemon.port": "Hooks use the daemon's socket",
    "facts.digests": _FACTS,
    "facts.enabled": _FACTS,
    "gateway.connect_seconds": "",
    "gateway.max_body_bytes": "",
    "gateway.max_requests": "",
    "gateway.silence_seconds": "",
    "gateway.summary_day_tokens": "jobs.day_tokens limits summaries too",
    "gateway.token_variable": "Set RECOLLECT_GATEWAY_TOKEN to the token",
    "jobs.lease_seconds": "",
    "jobs.max_attempts": "",
    "models.flush": "",
    "query.user_messages": "",
    "recall.blocks_tokens": "",
    "recall.remote.dimensions": "",
    "serve.idempotency_hours": "",
    "serve.key_cache_seconds": "",
    "serve.max_body_bytes": "",
    "serve.max_deadline_seconds": "",
    "serve.max_requests": "",
    "serve.open_spaces": "",
    "serve.tenant_concurrency": "",
    "serve.tenant_waiting": "",
    "store.open_seconds": "",
    "store.undurable_seconds": "",
    "telemetry.tenant_label": "",
    "trim.min_query_chars": "",
    "turn.stage_deadline_seconds": "",
}
"""Settings of earlier versions that files may still name, and what acts in their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One setting: its dotted path, its default, what it takes and what is declared of it."""

    path: str
    default: Any
    shape: ValueShape
    meta: Meta

    @property
    def description(self) -> str:
        """Its line in docs/settings.md."""
        return self.meta.description or ""

    @property
    def effect(self) -> Effect:
        """What it does in this version."""
        effect: Effect = (self.meta.extra or {})["effect"]
        return effect

    @property
    def project(self) -> ProjectRule:
        """What an untrusted project file may set it to."""
        rule: ProjectRule = (self.meta.extra or {})["project"]
        return rule

    @property
    def openclaw(self) -> tuple[str, ...]:
        """The keys of an openclaw.json that set it, as they are declared."""
        keys: tuple[str, ...] = (self.meta.extra or {})["openclaw"]
        return keys


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
class GivenValue:
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


@cache
def known_keys() -> Mapping[str, Key]:
    """Every key by its dotted path, in the order of the dataclasses."""
    return {key.path: key for key in _keys_of(Settings, "")}


@cache
def known_groups() -> Mapping[str, type]:
    """Every group of keys by its dotted path."""
    return dict(_groups_of(Settings, ""))


@cache
def removed_groups() -> frozenset[str]:
    """Every group that holds a setting of an earlier version."""
    parts = (path.split(".") for path in REMOVED_KEYS)
    return frozenset(".".join(names[:end]) for names in parts for end in range(1, len(names)))


def active_keys() -> tuple[str, ...]:
    """The keys that change what this version does."""
    return tuple(path for path, key in known_keys().items() if key.effect.state == "active")


def _keys_of(group: type, prefix: str) -> Iterator[Key]:
    shapes, hints = shapes_of(group), annotations_of(group)
    for field in dataclasses.fields(group):
        path = prefix + field.name
        if field.name in shapes:
            shape, meta = shapes[field.name], field.metadata["meta"]
            yield Key(path=path, default=field.default, shape=shape, meta=meta)
        else:
            yield from _keys_of(hints[field.name], f"{path}.")


def _groups_of(group: type, prefix: str) -> Iterator[tuple[str, type]]:
    for name, hint in annotations_of(group).items():
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            yield prefix + name, hint
            yield from _groups_of(hint, f"{prefix}{name}.")


def build(values: Mapping[str, Any]) -> Settings:
    """The settings with these canonical values; what is not named keeps its default."""
    nested: dict[str, Any] = {}
    for path, value in values.items():
        *groups, name = path.split(".")
        inner = nested
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[name] = value
    settings: Settings = _build_group(Settings, nested)
    return settings


def _build_group(group: type, nested: Mapping[str, Any]) -> Any:
    shapes, hints = shapes_of(group), annotations_of(group)
    return group(
        **{
            name: value if name in shapes else _build_group(hints[name], value)
            for name, value in nested.items()
        }
    )


def value_of(settings: Settings, path: str) -> Any:
    """The value at a dotted path."""
    value: Any = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


def fit(key: Key, value: Any, source: Source) -> Any:
    """The canonical value, or an error that names the key and its place."""
    try:
        return key.shape.read(value)
    except ValueError as problem:
        ours = "" if snake_case(source.key) == key.path else f" ({key.path})"
        raise SettingsError(f"{source}{ours} {problem}") from None


def put(given: dict[str, GivenValue], path: str, value: GivenValue) -> None:
    """Take in one value; two spellings of one key in one place are an error."""
    if path in given:
        raise SettingsError(
            f"{value.source} and {given[path].source} both set {path}; keep one of them"
        )
    given[path] = value


def read_bytes(path: Path) -> bytes:
    """The content of a settings file that the user named or wrote."""
    try:
        return path.read_bytes()
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise SettingsError(
            f"cannot read the settings file {path}: {reason}; name another one"
        ) from None


def text_of(data: bytes, path: Path) -> str:
    """A settings file's text, a byte order mark left out and line ends as one sign."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise SettingsError(
            f"{path} is not UTF-8 text (byte {problem.start}); save it as UTF-8"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def snake_case(spelled: str) -> str:
    """The key in our own spelling: `hardCapTokens` and `hard_cap_tokens` are one key."""
    return ".".join(_HUMP.sub("_", part).lower() for part in spelled.split("."))


def camel_case(path: str) -> str:
    """The key in OpenClaw's spelling."""
    return re.sub(r"_([a-z0-9])", lambda hump: hump[1].upper(), path)


def nearest_key(path: str, known: Iterable[str]) -> str | None:
    """The known key that an unknown one was probably meant to be.

    It is of the group that was typed: a user who follows a hint into another group changes
    something else. No hint leads to `redaction` unless it was typed, since secrets depend on it.
    """
    guarded = not path.startswith(_GUARDED)
    paths = [one for one in known if not (guarded and one.startswith(_GUARDED))]
    group, dot, _ = path.partition(".")
    if dot:
        groups = {one.partition(".")[0] for one in paths if "." in one}
        meant = [group] if group in groups else _closest(group, groups, 0.75)
        return next(iter(_closest(path, [one for one in paths if _is_in(one, meant)], 0.6)), None)
    # A variable whose group ends in one underscore begins with the group's name.
    named = [one for one in paths if "." not in one or path.startswith(one.partition(".")[0])]
    close = _closest(path, named, 0.6)
    if close:
        return close[0]
    # A key without its group, if one group alone has it.
    names = Counter(one.rpartition(".")[2] for one in paths)
    by_name = {name: one for one in paths if names[name := one.rpartition(".")[2]] == 1}
    return next((by_name[name] for name in _closest(path, by_name, 0.75)), None)


_GUARDED = "redaction"


def _closest(word: str, words: Iterable[str], cutoff: float) -> list[str]:
    return difflib.get_close_matches(word, list(words), n=1, cutoff=cutoff)


def _is_in(path: str, groups: Iterable[str]) -> bool:
    return any(path.startswith(f"{group}.") for group in groups)
