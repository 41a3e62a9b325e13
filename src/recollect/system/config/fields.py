"""What a setting is declared with, and how its value is read from typed data and from text.

Owns the declaration (`setting`), and the reading of one value: a shape is derived from a field's
type, says in words what it expects, and turns what a source holds into the one canonical value. It
knows no key and no source, and never guesses: whatever does not fit raises `ValueError` saying what
would. Reading a canonical value always gives it back unchanged.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin
from typing import get_type_hints as type_hints

from msgspec import Meta

from recollect.errors import SettingsError

T = TypeVar("T")

NONE_WORD = "none"
"""How a file or a variable says "no value": TOML has no null."""

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?\s*(?:ms|[smhd])\s*)+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhd])")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_TRUE_WORDS = frozenset({"true", "yes", "on", "1"})
_FALSE_WORDS = frozenset({"false", "no", "off", "0"})
_SHOWN_CHARS = 60
_GREATEST = 1e15
"""Larger numbers mean nothing, and whole ones may be too large for a float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What setting a key does in this version."""

    state: Literal["active", "later", "none"]
    why: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.why}" if self.why else self.state

    def notice(self) -> str:
        """What a person who set the key is told; empty when it acts."""
        if self.state == "active":
            return ""
        if self.state == "later":
            return f"accepted; takes effect with {self.why}, which this version does not have yet"
        return f"accepted without effect: {self.why}"


ACTIVE: Final = Effect(state="active")


@dataclass(frozen=True, slots=True)
class ProjectRule:
    """Which values a project's recollect.toml may set before the user trusts the file.

    `values` lists them; None allows every value, or every number from `least` on.
    """

    values: tuple[Any, ...] | None
    least: int | None = None

    def allows(self, value: Any) -> bool:
        """Whether an untrusted project file may set this value."""
        if self.values is not None:
            return value in self.values
        return self.least is None or value is None or value >= self.least

    def __str__(self) -> str:
        if self.values is None:
            return "yes" if self.least is None else f"from {self.least} on"
        return " or ".join(shown(value) for value in self.values) or "if trusted"


ANY: Final = ProjectRule(None)
"""The project may set it: it names no server, path, model, text or command, turns on nothing that
costs money, and protects nothing."""
ASK: Final = ProjectRule(())
"""Only the user may set it: here, or in a project by `recollect trust`."""


def only(*values: Any) -> ProjectRule:
    """Let the project set these values: those that protect more, or reach less, than the others."""
    return ProjectRule(values)


def at_least(number: int) -> ProjectRule:
    """Let the project set this number or more: less would make the user's model work more often."""
    return ProjectRule(None, number)


def setting(
    default: T,
    description: str,
    *,
    project: ProjectRule,
    openclaw: str | tuple[str, ...] = (),
    effect: Effect = ACTIVE,
) -> T:
    """A setting's field: its default and what is to be known of it; bounds stand in its type.

    `description` is its line in docs/settings.md. `project` decides what a recollect.toml that was
    only found in a folder may set. `openclaw` are the keys of an openclaw.json that set it: from
    `agents.defaults` on, or from the top where they begin with another block of it.
    """
    keys = (openclaw,) if isinstance(openclaw, str) else openclaw
    extra = {"openclaw": keys, "effect": effect, "project": project}
    meta = Meta(description=description, extra=extra)
    declared: Any = dataclasses.field(default=default, metadata={"meta": meta})
    return declared  # type: ignore[no-any-return]


class Validated:
    """A group of settings that refuses to exist with a value that does not fit."""

    __slots__ = ()

    def __post_init__(self) -> None:
        group: type = type(self)
        for name, shape in shapes_of(group).items():
            value = getattr(self, name)
            try:
                canonical = shape.read(value)
            except ValueError as problem:
                raise SettingsError(f"{group.__name__}.{name} {problem}") from None
            if canonical != value:
                raise SettingsError(
                    f"{group.__name__}.{name} must be given as {canonical!r}, not {value!r}"
                )


class ValueShape(ABC):
    """Reads one setting's value; `ValueError` says what was expected instead."""

    __slots__ = ()

    @property
    def holds_text(self) -> bool:
        """Whether it takes any text: a server, a path, a key, a model, a command, words."""
        return False

    @property
    @abstractmethod
    def expects(self) -> str:
        """What it takes, in words that complete "must be …"."""

    @abstractmethod
    def read(self, value: Any) -> Any:
        """The canonical value of typed data (TOML, JSON, an argument)."""

    def read_text(self, text: str) -> Any:
        """The canonical value of an environment variable's text."""
        return self.read(text)

    def misfit(self, value: Any) -> ValueError:
        """The error of a value that does not fit, with the value cut short."""
        given = repr(value)
        given = given if len(given) <= _SHOWN_CHARS else given[: _SHOWN_CHARS - 3] + "..."
        return ValueError(f"must be {self.expects}, not {given}")


@dataclass(frozen=True, slots=True)
class Flag(ValueShape):
    """True or false; a quoted "false" is not taken for true, but a variable may say yes or off."""

    expects = "true or false"

    def read(self, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise self.misfit(value)

    def read_text(self, text: str) -> bool:
        word = text.strip().lower()
        if word in _TRUE_WORDS or word in _FALSE_WORDS:
            return word in _TRUE_WORDS
        raise self.misfit(text)


@dataclass(frozen=True, slots=True)
class Number(ValueShape):
    """A finite number within its bounds; JSON writes 4000 as 4e3 too, so 4e3 counts as whole."""

    bounds: Meta
    whole: bool

    @property
    def expects(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} {_bounds_words(self.bounds)}".rstrip()

    def read(self, value: Any) -> float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not _is_within(self.bounds, value):
            raise self.misfit(value)
        if not self.whole:
            return float(value)
        if value != int(value):
            raise self.misfit(value)
        return int(value)

    def read_text(self, text: str) -> float:
        try:
            number: float = int(text) if self.whole else float(text)
        except ValueError:
            raise self.misfit(text) from None
        return self.read(number)


@dataclass(frozen=True, slots=True)
class Duration(ValueShape):
    """A length of time: "5m", "1h30m", "250ms"; a bare number is seconds.

    Keys that carry their unit (`…_seconds`) hold a float, the others a `timedelta`.
    """

    bounds: Meta
    as_seconds: bool

    @property
    def expects(self) -> str:
        words = _bounds_words(self.bounds)
        return f'a duration such as "5m", "90s" or a number of seconds {words}'.rstrip()

    def read(self, value: Any) -> timedelta | float:
        seconds = read_seconds(value)
        if seconds is None or not _is_within(self.bounds, seconds):
            raise self.misfit(value)
        if self.as_seconds:
            return seconds
        try:
            return timedelta(seconds=seconds)
        except OverflowError:
            raise self.misfit(value) from None


@dataclass(frozen=True, slots=True)
class Choice(ValueShape):
    """One of a few words."""

    options: tuple[str, ...]

    @property
    def expects(self) -> str:
        return "one of " + ", ".join(f'"{option}"' for option in self.options)

    def read(self, value: Any) -> str:
        if isinstance(value, str) and value in self.options:
            return value
        raise self.misfit(value)

    def read_text(self, text: str) -> str:
        return self.read(text.strip())


@dataclass(frozen=True, slots=True)
class TextValue(ValueShape):
    """A string with something in it; a path counts as its text."""

    expects = "a non-empty string"
    holds_text = True

    def read(self, value: Any) -> str:
        text = os.fspath(value) if isinstance(value, os.PathLike) else value
        if isinstance(text, str) and text.strip():
            return text
        raise self.misfit(value)


@dataclass(frozen=True, slots=True)
class ListOf(ValueShape):
    """A list of one shape, repetitions left out; a lone string would be read letter by letter."""

    item: ValueShape

    @property
    def holds_text(self) -> bool:
        return self.item.holds_text

    @property
    def expects(self) -> str:
        return f"a list, each item {self.item.expects}"

    def read(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise self.misfit(value)
        try:
            return tuple(dict.fromkeys(self.item.read(item) for item in value))
        except ValueError:
            raise self.misfit(value) from None

    def read_text(self, text: str) -> tuple[Any, ...]:
        """A JSON array, or items separated by commas; an empty variable is an empty list."""
        if text.lstrip().startswith("["):
            try:
                return self.read(json.loads(text))
            except json.JSONDecodeError:
                raise self.misfit(text) from None
        return self.read([item.strip() for item in text.split(",") if item.strip()])


@dataclass(frozen=True, slots=True)
class Optional(ValueShape):
    """A shape that may also be absent, said as null or as the word "none"."""

    inner: ValueShape

    @property
    def holds_text(self) -> bool:
        return self.inner.holds_text

    @property
    def expects(self) -> str:
        return f'{self.inner.expects}, or "{NONE_WORD}"'

    def read(self, value: Any) -> Any:
        if value is None or (isinstance(value, str) and value.strip().lower() == NONE_WORD):
            return None
        try:
            return self.inner.read(value)
        except ValueError:
            raise self.misfit(value) from None

    def read_text(self, text: str) -> Any:
        if text.strip().lower() == NONE_WORD:
            return None
        try:
            return self.inner.read_text(text)
        except ValueError:
            raise self.misfit(text) from None


def _is_within(bounds: Meta, number: float) -> bool:
    return abs(number) <= _GREATEST and not (  # neither infinite nor NaN
        (bounds.ge is not None and number < bounds.ge)
        or (bounds.gt is not None and number <= bounds.gt)
        or (bounds.le is not None and number > bounds.le)
    )


def _bounds_words(bounds: Meta) -> str:
    if bounds.ge is not None and bounds.le is not None:
        return f"from {bounds.ge:g} to {bounds.le:g}"
    words = [
        *([f"above {bounds.gt:g}"] if bounds.gt is not None else []),
        *([f"of at least {bounds.ge:g}"] if bounds.ge is not None else []),
        *([f"up to {bounds.le:g}"] if bounds.le is not None else []),
    ]
    return " and ".join(words)


def read_seconds(value: Any) -> float | None:
    """A length of time as settings spell it ("5m", "1h30m", a number), in seconds; else None."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) <= _GREATEST else None
    text = value.strip().lower() if isinstance(value, str) else ""
    if _NUMBER.fullmatch(text):
        return float(text)
    if not _DURATION.fullmatch(text):
        return None
    parts = _DURATION_PART.findall(text)
    return sum(float(amount) * _UNIT_SECONDS[unit] for amount, unit in parts)


def shape_of(hint: Any, bounds: Meta | None = None) -> ValueShape:
    """The shape that a field's type describes, with the bounds that msgspec's `Meta` gives it."""
    options = get_args(hint)
    if get_origin(hint) is Annotated:
        (meta,) = (mark for mark in hint.__metadata__ if isinstance(mark, Meta))
        return shape_of(hint.__origin__, meta)
    if get_origin(hint) in (UnionType, Union):
        (inner,) = (option for option in options if option is not type(None))
        return Optional(shape_of(inner))
    if get_origin(hint) is Literal:
        return Choice(options)
    if get_origin(hint) is tuple:
        return ListOf(shape_of(options[0]))
    if hint is bool:
        return Flag()
    if hint is str:
        return TextValue()
    bounds = bounds or Meta(ge=0)
    if hint is timedelta or (hint is float and "unit" in (bounds.extra or {})):
        return Duration(bounds, as_seconds=hint is float)
    if hint in (int, float):
        return Number(bounds, whole=hint is int)
    raise TypeError(f"no shape for {hint!r}")


@cache
def annotations_of(group: type) -> Mapping[str, Any]:
    """A group's type hints with their annotations."""
    return type_hints(group, include_extras=True)


@cache
def shapes_of(group: type) -> Mapping[str, ValueShape]:
    """The shapes of a group's own values, by field name; groups inside it are not values."""
    return {
        name: shape_of(hint)
        for name, hint in annotations_of(group).items()
        if not dataclasses.is_dataclass(hint)
    }


def written(value: Any) -> Any:
    """The value as a file would hold it: durations as text, lists for tuples."""
    if isinstance(value, timedelta):
        return _duration_text(value)
    return list(value) if isinstance(value, tuple) else value


def shown(value: Any) -> str:
    """The value as a person reads it in a table."""
    plain = written(value)
    if plain is None:
        return NONE_WORD
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _duration_text(duration: timedelta) -> str:
    milliseconds = round(duration.total_seconds() * 1000)
    for unit in ("d", "h", "m", "s"):
        size = round(_UNIT_SECONDS[unit] * 1000)
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0s"
