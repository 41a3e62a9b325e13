"""One request to a model, the requirements of its format, and the provider's reply. A request is
split but not decoded. An `Overflow` holds only numbers that the provider named."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, TypeAlias

FormatName: TypeAlias = Literal["anthropic", "openai-chat", "openai-responses", "pi"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request body as spans: its messages one by one, everything else untouched. Either `body` is
    the HTTP body, or `origin` the caller's mapping and `objects` its message objects. Untouched
    messages are sent as they were received."""

    format: FormatName
    messages: tuple[bytes, ...] = dataclasses.field(repr=False)
    field: str
    system: bytes | None = dataclasses.field(default=None, repr=False)
    tools: bytes | None = dataclasses.field(default=None, repr=False)
    model: str | None = None
    output_tokens: int | None = None
    continues: bool = False
    """The provider holds earlier items itself, so a result may lack its call here."""
    continues_from: str = ""
    thinking: bool = True
    system_inside: bool = False
    """A beta feature allows system messages between the turns."""
    body: bytes | None = dataclasses.field(default=None, repr=False)
    origin: Any = dataclasses.field(default=None, repr=False)
    objects: tuple[Any, ...] | None = dataclasses.field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """A provider's report on one exchange; the input includes cached tokens."""

    input_tokens: int
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reports_cache: bool = dataclasses.field(default=False, compare=False)
    """True if the provider reports on its cache at all."""


def add_usage(one: Usage, other: Usage) -> Usage:
    return Usage(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cache_read_tokens=one.cache_read_tokens + other.cache_read_tokens,
        cache_write_tokens=one.cache_write_tokens + other.cache_write_tokens,
        reports_cache=one.reports_cache or other.reports_cache,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRules:
    """The shape that a provider accepts; each codec names its sources."""

    format: FormatName
    alternates: bool
    """User and assistant take turns, and a user begins."""
    results_share_a_message: bool
    """Results are the first parts of the user message after the calls, not messages."""
    results_adjacent: bool
    """Results come right after the message that called."""
    refuses_blank_text: bool
    thinking_leads: bool = False
    """A reasoning item must be followed by the item that it led to."""
    ids_unique: bool = False
    """A call id appears once per request and holds plain characters only."""
    provider_calls_answered: bool = False
    """A provider-run call needs its result, unless it is still running."""
    system_inside: bool = False
    """System messages may come between the turns, empty ones too."""
    stand_in_variants: frozenset[str] | None = None
    """Kinds of call a text result can answer; None for all."""


class LimitDoubt(Enum):
    """Reasons not to take the limit in an error for the model's window."""

    BELOW_FLOOR = "smaller than the window of any model that is served"
    WIDER = "larger than the request that was refused"
    ECHOED = "the words that name it stand in the request itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """A request was too large, by an error message or by a reply's usage."""

    pattern_name: str
    provider: str | None = None
    """Provider whose wording it is, not necessarily the one asked; None if several share it."""
    limit_tokens: int | None = None
    """The window or input limit that was exceeded."""
    requested_tokens: int | None = None
    output_tokens: int | None = None
    """Part of `requested_tokens` reserved for the reply: asking for less may help."""
    limit_words: str = field(default="", repr=False, compare=False)


StopReason: TypeAlias = Literal["stop", "length", "tool-calls", "refusal", "other"]
Purpose: TypeAlias = Literal["summary", "extraction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A question to a model, for a summary or for extraction (`purpose`)."""

    text: str = field(repr=False)
    system: str = field(default="", repr=False)
    max_output_tokens: int = 1024
    schema: Mapping[str, Any] | None = field(default=None, repr=False)
    purpose: Purpose = "summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A model's answer to a prompt."""

    text: str = field(repr=False)
    stop: StopReason = "stop"
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUse:
    """Usage of calls for one purpose: as reported, else as estimated."""

    purpose: Purpose
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: ModelUse) -> ModelUse:
        return ModelUse(
            purpose=self.purpose,
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """More text of the reply."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    """More reasoning of the reply."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted:
    """The model began to call a tool."""

    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyDone:
    """The whole reply; always the last event of a stream that did not fail."""

    reply: Mapping[str, Any] = field(repr=False)
    """The reply as if it had not been streamed: the input of `observe`."""
    stop: StopReason
    usage: Usage | None = None
    overflow: Overflow | None = None
    """The window was exceeded without an error: cut off at once, or more read than fits."""


ReplyEvent: TypeAlias = TextDelta | ThinkingDelta | CallStarted | ReplyDone
