"""What a setting's value may look like, and how it is read from typed data and from text.

Owns the reading of one value: a shape is derived from a field's type hint, says in words what
it expects, and turns what a source holds into the one canonical value. It knows no key and no
source, and never guesses: whatever does not fit raises `ValueError` saying what would. Reading
a canonical value always gives it back unchanged.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    Protocol,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

# Which keys act in this version, and which wait for a feature that is not built yet.
#
# The one table of it: the notices, docs/settings.md, `recollect doctor` and the test that wants
# a behaviour test for every active key all read it here. Building a feature means changing its
# keys' word to `ACTIVE`.


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What setting a key does today."""

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

EFFECTS: Final[Mapping[str, Effect]] = {
    "preset": ACTIVE,
    "window_tokens": ACTIVE,
    "turn.trim_first": ACTIVE,
    "turn.deadline_seconds": ACTIVE,
    "turn.stage_deadline_seconds": ACTIVE,
    "tokens.counter": ACTIVE,
    "tokens.calibrate": ACTIVE,
    "pruning.mode": ACTIVE,
    "pruning.ttl": ACTIVE,
    "pruning.keep_last_assistants": ACTIVE,
    "pruning.soft_trim_ratio": ACTIVE,
    "pruning.hard_clear_ratio": ACTIVE,
    "pruning.min_prunable_tool_chars": ACTIVE,
    "pruning.soft_trim.max_chars": ACTIVE,
    "pruning.soft_trim.head_chars": ACTIVE,
    "pruning.soft_trim.tail_chars": ACTIVE,
    "pruning.hard_clear.enabled": ACTIVE,
    "pruning.hard_clear.placeholder": ACTIVE,
    "pruning.hard_clear.line_chars": ACTIVE,
    "pruning.tools.allow": ACTIVE,
    "pruning.tools.deny": ACTIVE,
    "trim.low_water_ratio": ACTIVE,
    "trim.protect_messages": ACTIVE,
    "trim.protect_first_user": ACTIVE,
    "trim.min_query_chars": ACTIVE,
    "query.user_messages": ACTIVE,
    "recall.enabled": ACTIVE,
    "recall.method": ACTIVE,
    "recall.every_turn": ACTIVE,
    "recall.placement": ACTIVE,
    "recall.sticky": ACTIVE,
    "recall.hard_cap_tokens": ACTIVE,
    "recall.block_tokens": ACTIVE,
    "recall.standing_tokens": ACTIVE,
    "recall.embedder": ACTIVE,
    "recall.onnx_model": ACTIVE,
    "recall.min_score": ACTIVE,
    "recall.scope": ACTIVE,
    "recall.decay_per_day": ACTIVE,
    "recall.max_results": ACTIVE,
    "recall.deadline_seconds": ACTIVE,
    "recall.citations": ACTIVE,
    "recall.hybrid.enabled": ACTIVE,
    "recall.hybrid.vector_weight": ACTIVE,
    "recall.hybrid.text_weight": ACTIVE,
    "recall.hybrid.candidate_multiplier": ACTIVE,
    "recall.remote.provider": ACTIVE,
    "recall.remote.model": ACTIVE,
    "recall.remote.dimensions": ACTIVE,
    "recall.remote.base_url": ACTIVE,
    "recall.remote.key_variable": ACTIVE,
    "compaction.enabled": ACTIVE,
    "compaction.mode": ACTIVE,
    "compaction.reserve_tokens": ACTIVE,
    "compaction.reserve_tokens_floor": ACTIVE,
    "compaction.keep_recent_tokens": ACTIVE,
    "compaction.max_history_share": ACTIVE,
    "compaction.at_ratio": ACTIVE,
    "compaction.background": ACTIVE,
    "compaction.summary_tokens": ACTIVE,
    "compaction.audit": ACTIVE,
    "compaction.pin_ratio": ACTIVE,
    "compaction.deadline_seconds": ACTIVE,
    "compaction.breaker_failures": ACTIVE,
    "compaction.breaker_seconds": ACTIVE,
    "compaction.flush.enabled": ACTIVE,
    "compaction.flush.soft_threshold_tokens": ACTIVE,
    "compaction.flush.at_ratio": ACTIVE,
    "compaction.flush.prompt": ACTIVE,
    "compaction.flush.system_prompt": ACTIVE,
    "redaction.enabled": ACTIVE,
    "redaction.pii": ACTIVE,
    "ingest.enabled": ACTIVE,
    "index.max_segments": ACTIVE,
    "index.eviction_days": ACTIVE,
    "index.sources": ACTIVE,
    "index.extra_paths": ACTIVE,
    "index.update_interval": ACTIVE,
    "store.url": ACTIVE,
    "store.key": ACTIVE,
    "store.open_seconds": ACTIVE,
    "store.read_seconds": ACTIVE,
    "store.write_seconds": ACTIVE,
    "store.undurable_seconds": ACTIVE,
    "jobs.in_process": ACTIVE,
    "jobs.day_tokens": ACTIVE,
    "jobs.lease_seconds": ACTIVE,
    "jobs.max_attempts": ACTIVE,
    "ledger.enabled": ACTIVE,
    "ledger.retention_days": ACTIVE,
    "facts.enabled": ACTIVE,
    "facts.idle_seconds": ACTIVE,
    "facts.window_tokens": ACTIVE,
    "facts.digests": ACTIVE,
    "models.provider": ACTIVE,
    "models.base_url": ACTIVE,
    "models.key_variable": ACTIVE,
    "models.main": ACTIVE,
    "models.summary": ACTIVE,
    "models.flush": ACTIVE,
    "models.extraction": ACTIVE,
    "models.deadline_seconds": ACTIVE,
    "embedding_cache.enabled": ACTIVE,
    "embedding_cache.max_entries": ACTIVE,
    "workspace.max_chars": ACTIVE,
    "workspace.skip_bootstrap": ACTIVE,
    "session.reset.mode": ACTIVE,
    "session.reset.at_hour": ACTIVE,
    "session.reset.idle_minutes": ACTIVE,
}


def active_keys() -> tuple[str, ...]:
    """The keys that change what this version does."""
    return tuple(path for path, effect in EFFECTS.items() if effect.state == "active")


NONE_WORD = "none"
"""How a file or a variable says "no value": TOML has no null."""

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?\s*(?:ms|[smhd])\s*)+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhd])")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_TRUE_WORDS = frozenset({"true", "yes", "on", "1"})
_FALSE_WORDS = frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The bounds of a number, both included unless `above` says that the low one is not."""

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None

    def admits(self, number: float) -> bool:
        """Whether the number lies within the bounds."""
        return not (
            (self.at_least is not None and number < self.at_least)
            or (self.at_most is not None and number > self.at_most)
            or (self.above is not None and number <= self.above)
        )

    def __str__(self) -> str:
        words = []
        if self.above is not None:
            words.append(f"above {self.above:g}")
        if self.at_least is not None and self.at_most is not None:
            return f"from {self.at_least:g} to {self.at_most:g}"
        if self.at_least is not None:
            words.append(f"of at least {self.at_least:g}")
        if self.at_most is not None:
            words.append(f"up to {self.at_most:g}")
        return " and ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamedTo:
    """Former words for a choice's options: refused, with the word to write instead."""

    words: Mapping[str, str]


class InSeconds:
    """Marks a float whose name carries its unit, so that "2s" may be written for 2.0."""


class ValueShape(Protocol):
    """Reads one setting's value; `ValueError` says what was expected instead."""

    @property
    def expects(self) -> str:
        """What it takes, in words that complete "must be …"."""

    def read(self, value: Any) -> Any:
        """The canonical value of typed data (TOML, JSON, an argument)."""

    def read_text(self, text: str) -> Any:
        """The canonical value of an environment variable's text."""


def misfit(shape: ValueShape, value: Any) -> ValueError:
    """The error of a value that does not fit, with the value cut short."""
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return ValueError(f"must be {shape.expects}, not {shown}")


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false; text may also say yes, no, on, off, 1 or 0."""

    expects = "true or false"

    def read(self, value: Any) -> bool:
        """Only a real boolean, so that a quoted "false" is not taken for true."""
        if isinstance(value, bool):
            return value
        raise misfit(self, value)

    def read_text(self, text: str) -> bool:
        """The words of a shell."""
        word = text.strip().lower()
        if word in _TRUE_WORDS or word in _FALSE_WORDS:
            return word in _TRUE_WORDS
        raise misfit(self, text)


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number within a range; `whole` ones are read as integers."""

    within: Range
    whole: bool

    @property
    def expects(self) -> str:
        """The kind of number and its bounds."""
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} {self.within}".rstrip()

    def read(self, value: Any) -> float:
        """A number; JSON writes 4000 as 4e3 too, so a whole float counts as whole."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise misfit(self, value)
        if not math.isfinite(value) or not self.within.admits(value):
            raise misfit(self, value)
        if not self.whole:
            return float(value)
        if value != int(value):
            raise misfit(self, value)
        return int(value)

    def read_text(self, text: str) -> float:
        """Digits, with underscores if one likes."""
        try:
            number: float = int(text) if self.whole else float(text)
        except ValueError:
            raise misfit(self, text) from None
        return self.read(number)


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time: "5m", "1h30m", "250ms"; a bare number is seconds.

    Keys that carry their unit (`…_seconds`) hold a float, the others a `timedelta`.
    """

    within: Range
    as_seconds: bool

    @property
    def expects(self) -> str:
        """The spellings and the bounds."""
        return f'a duration such as "5m", "90s" or a number of seconds {self.within}'.rstrip()

    def read(self, value: Any) -> timedelta | float:
        """A duration's text, a number of seconds or a `timedelta`."""
        seconds = self._seconds(value)
        if seconds is None or not math.isfinite(seconds) or not self.within.admits(seconds):
            raise misfit(self, value)
        if self.as_seconds:
            return seconds
        try:
            return timedelta(seconds=seconds)
        except OverflowError:
            raise misfit(self, value) from None

    def read_text(self, text: str) -> timedelta | float:
        """The same spellings."""
        return self.read(text)

    @staticmethod
    def _seconds(value: Any) -> float | None:
        if isinstance(value, timedelta):
            return value.total_seconds()
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if not isinstance(value, str):
            return None
        text = value.strip().lower()
        if _NUMBER.fullmatch(text):
            return float(text)
        if not _DURATION.fullmatch(text):
            return None
        return sum(
            float(amount) * _UNIT_SECONDS[unit] for amount, unit in _DURATION_PART.findall(text)
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    options: tuple[str, ...]
    renamed: Mapping[str, str]

    @property
    def expects(self) -> str:
        """The words."""
        return "one of " + ", ".join(f'"{option}"' for option in self.options)

    def read(self, value: Any) -> str:
        """The option; a former name is refused with the one it has now."""
        if isinstance(value, str):
            if value in self.options:
                return value
            if value in self.renamed:
                raise ValueError(f'must be "{self.renamed[value]}": "{value}" is its former name')
        raise misfit(self, value)

    def read_text(self, text: str) -> str:
        """The same words."""
        return self.read(text.strip())


@dataclass(frozen=True, slots=True)
class TextValue:
    """A string with something in it; a path counts as its text."""

    expects = "a non-empty string"

    def read(self, value: Any) -> str:
        """The string as it is."""
        text = os.fspath(value) if isinstance(value, os.PathLike) else value
        if isinstance(text, str) and text.strip():
            return text
        raise misfit(self, value)

    def read_text(self, text: str) -> str:
        """The same."""
        return self.read(text)


@dataclass(frozen=True, slots=True)
class Several:
    """A list of one shape, repetitions left out."""

    item: ValueShape

    @property
    def expects(self) -> str:
        """What each item must be."""
        return f"a list, each item {self.item.expects}"

    def read(self, value: Any) -> tuple[Any, ...]:
        """A list or a tuple; a lone string would be taken apart letter by letter, so it is not."""
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise misfit(self, value)
        try:
            return tuple(dict.fromkeys(self.item.read(one) for one in value))
        except ValueError:
            raise misfit(self, value) from None

    def read_text(self, text: str) -> tuple[Any, ...]:
        """A JSON array, or items separated by commas; an empty variable is an empty list."""
        if text.lstrip().startswith("["):
            try:
                return self.read(json.loads(text))
            except json.JSONDecodeError:
                raise misfit(self, text) from None
        return self.read([item.strip() for item in text.split(",") if item.strip()])


@dataclass(frozen=True, slots=True)
class Optional:
    """A shape that may also be absent, said as null or as the word "none"."""

    inner: ValueShape

    @property
    def expects(self) -> str:
        """What the shape expects, or none."""
        return f'{self.inner.expects}, or "{NONE_WORD}"'

    def read(self, value: Any) -> Any:
        """The value, or none."""
        if value is None or (isinstance(value, str) and value.strip().lower() == NONE_WORD):
            return None
        try:
            return self.inner.read(value)
        except ValueError:
            raise misfit(self, value) from None

    def read_text(self, text: str) -> Any:
        """The value, or none."""
        if text.strip().lower() == NONE_WORD:
            return None
        try:
            return self.inner.read_text(text)
        except ValueError:
            raise misfit(self, text) from None


def shape_of(hint: Any, marks: tuple[Any, ...] = ()) -> ValueShape:
    """The shape that a field's type hint, with its annotations, describes."""
    if get_origin(hint) is Annotated:
        return shape_of(hint.__origin__, (*hint.__metadata__, *marks))
    options = get_args(hint)
    if get_origin(hint) in (UnionType, Union):
        (inner,) = (option for option in options if option is not type(None))
        return Optional(shape_of(inner, marks))
    if get_origin(hint) is Literal:
        renamed = next((mark.words for mark in marks if isinstance(mark, RenamedTo)), {})
        return Choice(options, renamed)
    if get_origin(hint) is tuple:
        return Several(shape_of(options[0], marks))
    return _plain_shape(hint, marks)


def _plain_shape(hint: Any, marks: tuple[Any, ...]) -> ValueShape:
    within = next((mark for mark in marks if isinstance(mark, Range)), Range(at_least=0))
    if hint is bool:
        return Flag()
    if hint is str:
        return TextValue()
    if hint is int:
        return Number(within, whole=True)
    if hint is timedelta or (hint is float and InSeconds in marks):
        return Duration(within, as_seconds=hint is float)
    if hint is float:
        return Number(within, whole=False)
    raise TypeError(f"no shape for {hint!r}")


@cache
def annotations_of(group: type) -> Mapping[str, Any]:
    """A group's type hints with their annotations."""
    return get_type_hints(group, include_extras=True)


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
