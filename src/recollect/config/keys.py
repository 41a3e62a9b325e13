"""The settings as a flat table of dotted keys, and a `Settings` built from such a table.

Derived from the dataclasses in `settings`, never written by hand: what is not a field there is
not a key. Also owns the two spellings (`hard_cap_tokens`, `hardCapTokens`) and the hint for a
key that nobody knows.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from recollect.config.fields import ValueShape, annotations_of, shapes_of
from recollect.config.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One setting: its dotted path, its default, what it takes and what it says."""

    path: str
    default: Any
    shape: ValueShape
    says: str


@cache
def known_keys() -> Mapping[str, Key]:
    """Every key by its dotted path, in the order of the dataclasses."""
    return {key.path: key for key in _keys_of(Settings, "")}


@cache
def known_groups() -> Mapping[str, type]:
    """Every group of keys by its dotted path."""
    return dict(_groups_of(Settings, ""))


def _keys_of(group: type, prefix: str) -> Iterable[Key]:
    shapes, hints = shapes_of(group), annotations_of(group)
    for one in dataclasses.fields(group):
        if one.name in shapes:
            says = next(mark for mark in hints[one.name].__metadata__ if isinstance(mark, str))
            yield Key(
                path=prefix + one.name, default=one.default, shape=shapes[one.name], says=says
            )
        else:
            yield from _keys_of(hints[one.name], f"{prefix}{one.name}.")


def _groups_of(group: type, prefix: str) -> Iterable[tuple[str, type]]:
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
    hints = annotations_of(group)
    return group(
        **{
            name: _build_group(hints[name], value)
            if dataclasses.is_dataclass(hints[name])
            else value
            for name, value in nested.items()
        }
    )


def value_of(settings: Settings, path: str) -> Any:
    """The value at a dotted path."""
    value: Any = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


def snake_case(spelled: str) -> str:
    """The key in our own spelling: `hardCapTokens` and `hard_cap_tokens` are one key."""
    return ".".join(_HUMP.sub("_", part).lower() for part in spelled.split("."))


def camel_case(path: str) -> str:
    """The key in OpenClaw's spelling."""
    return re.sub(r"_([a-z0-9])", lambda hump: hump[1].upper(), path)


def nearest_key(path: str, known: Iterable[str]) -> str | None:
    """The known key that an unknown one was probably meant to be."""
    paths = list(known)
    close = difflib.get_close_matches(path, paths, n=1, cutoff=0.6)
    if close:
        return close[0]
    # A key put into the wrong group: compare what comes after the last dot only.
    by_name = {candidate.rpartition(".")[2]: candidate for candidate in reversed(paths)}
    close = difflib.get_close_matches(path.rpartition(".")[2], by_name, n=1, cutoff=0.75)
    return by_name[close[0]] if close else None
