"""Declares what a project may set, and parses one value with msgspec, but with its own errors."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin
from typing import get_type_hints as type_hints

from msgspec import Meta, ValidationError, convert

from recollect.errors import SettingsError

T = TypeVar("T")

Text = Annotated[str, Meta(pattern=r"\S")]
GREATEST: Final = 10**15
"""Largest number that a setting accepts. A float cannot contain every larger integer."""
SECONDS: Final = {"unit": "seconds"}
"""Marks a type (in `extra`) that also accepts durations such as "5m"."""
NONE_WORD = "none"
"""Means "no value" in a file or a variable, because TOML has no null."""

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?\s*(?:ms|[smhdw])\s*)+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhdw])")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_FLAGS = {"yes": True, "on": True, "no": False, "off": False}
_SHOWN_CHARS = 60  # not measured; keeps an error on one line


@dataclass(frozen=True, slots=True)
class ProjectRule:
    """The values that a project's recollect.toml may set before the user trusts the file. `values`
    lists them; None allows every value, or every number from `least` on."""

    values: tuple[Any, ...] | None
    least: int | None = None

    def allows(self, value: Any) -> bool:
        """Return True if an untrusted project file may set this value."""
        if self.values is not None:
            return value in self.values
        return self.least is None or value is None or value >= self.least

    def __str__(self) -> str:
        if self.values is None:
            return "yes" if self.least is None else f"from {self.least} on"
        return " or ".join(setting_text(value) for value in self.values) or "if trusted"


ANY: Final = ProjectRule(None)
"""The project may set any value: the setting names no server, path, model, text or command, turns
on nothing that costs money, and weakens no protection."""
ASK: Final = ProjectRule(())
"""Only the user may set a value, or a project whose file the user trusts (`recollect trust`)."""


def only(*values: Any) -> ProjectRule:
    """Let the project set only these values, which protect more or allow less than the others."""
    return ProjectRule(values)


def at_least(number: int) -> ProjectRule:
    """Let the project set this number or more. A smaller number would run the model more often."""
    return ProjectRule(None, number)


def setting(default: T, project: ProjectRule) -> T:
    """Declare a setting's default and its rule for projects. A setting without a rule has `ASK`."""
    declared_field: Any = dataclasses.field(default=default, metadata={"project": project})
    return declared_field  # type: ignore[no-any-return]


class Validated:
    """A group of settings that raises an error if a value does not fit."""

    __slots__ = ()

    def __post_init__(self) -> None:
        group: type = type(self)
        for name, hint in value_hints(group).items():
            try:
                value = read_value(hint, getattr(self, name))
            except ValueError as problem:
                raise SettingsError(f"{group.__name__}.{name} {problem}") from None
            object.__setattr__(self, name, value)


@cache
def _hints_of(group: type) -> Mapping[str, Any]:
    return type_hints(group, include_extras=True)


@cache
def value_hints(group: type) -> Mapping[str, Any]:
    """Return the types of a group's own settings, by field name."""
    hints = _hints_of(group).items()
    return {name: hint for name, hint in hints if not dataclasses.is_dataclass(hint)}


def inner_groups(group: type) -> Mapping[str, type]:
    """Return a group's inner groups, by field name."""
    hints = _hints_of(group).items()
    return {name: hint for name, hint in hints if name not in value_hints(group)}


def read_value(hint: Any, value: Any, *, text: bool = False) -> Any:
    """Parse the value of a setting of this type. The `ValueError` names the valid values. `text`
    means that the value comes from an environment variable."""
    try:
        return convert(_prepare(hint, value, text=text), hint, strict=not text)
    except (ValidationError, ValueError, OverflowError):
        shown_value = repr(value)
        if len(shown_value) > _SHOWN_CHARS:
            shown_value = shown_value[: _SHOWN_CHARS - 3] + "..."
        raise ValueError(f"must be {expects(hint)}, not {shown_value}") from None


def _prepare(hint: Any, value: Any, *, text: bool) -> Any:
    kind, bounds, optional = _parts(hint)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    word = value.strip() if isinstance(value, str) else ""
    if optional and word.lower() == NONE_WORD:
        return None
    if bounds is not None and bounds.extra == SECONDS:
        return value if value is None else _seconds(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if not text:
        return value
    if get_origin(kind) is tuple:
        items = [item.strip() for item in word.split(",") if item.strip()]
        return json.loads(word) if word.startswith("[") else items
    return _FLAGS.get(word.lower(), word) if kind is bool else word


def _seconds(value: Any) -> float:
    seconds = read_seconds(value)
    if seconds is None:
        raise ValueError
    return seconds


def _parts(hint: Any) -> tuple[Any, Meta | None, bool]:
    if get_origin(hint) in (UnionType, Union):
        (inner,) = (option for option in get_args(hint) if option is not type(None))
        return (*_parts(inner)[:2], True)
    if get_origin(hint) is Annotated:
        return hint.__origin__, hint.__metadata__[0], False
    return hint, None, False


def expects(hint: Any) -> str:
    """Describe the values that a type accepts, to complete "must be …"."""
    kind, bounds, optional = _parts(hint)
    if get_origin(kind) is Literal:
        words = "one of " + ", ".join(f'"{option}"' for option in get_args(kind))
    elif get_origin(kind) is tuple:
        words = f"a list, each item {expects(get_args(kind)[0])}"
    elif bounds is not None and bounds.extra == SECONDS:
        words = f'a duration such as "5m", "90s" or a number of seconds {_bounds_words(bounds)}'
    else:
        names = {bool: "true or false", str: "a non-empty string", int: "a whole number"}
        words = f"{names.get(kind, 'a number')} {_bounds_words(bounds)}".rstrip()
    return f'{words}, or "{NONE_WORD}"' if optional else words


def holds_text(hint: Any) -> bool:
    """Return True if the setting accepts free text: a server, path, key, model, command, words."""
    kind = _parts(hint)[0]
    return kind is str or (get_origin(kind) is tuple and holds_text(get_args(kind)[0]))


def _bounds_words(bounds: Meta | None) -> str:
    if bounds is None or bounds.pattern is not None:
        return ""
    if bounds.le == GREATEST:
        return f"above {bounds.gt}" if bounds.ge is None else f"of at least {bounds.ge}"
    if bounds.ge is None:
        return f"above {bounds.gt:g} and up to {bounds.le:g}"
    return f"from {bounds.ge:g} to {bounds.le:g}"


MAX_AGE_SECONDS: Final = 100 * 366 * 86_400.0
"""Not measured: the time of a larger age would be outside of what `datetime` can show."""


def read_seconds(value: Any) -> float | None:
    """Parse a duration ("5m", "1h30m", a number) to seconds; None if it is invalid."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) <= GREATEST else None
    text = value.strip().lower() if isinstance(value, str) else ""
    if _NUMBER.fullmatch(text):
        return float(text)
    if not _DURATION.fullmatch(text):
        return None
    parts = _DURATION_PART.findall(text)
    return sum(float(amount) * _UNIT_SECONDS[unit] for amount, unit in parts)


def read_age(text: str) -> float | None:
    """Parse an age such as 30d, 12h or 90s as seconds; None if it is not one, or over 100 years."""
    seconds = read_seconds(text)
    return seconds if seconds is not None and seconds < MAX_AGE_SECONDS else None


def setting_text(value: Any) -> str:
    if value is None:
        return NONE_WORD
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
