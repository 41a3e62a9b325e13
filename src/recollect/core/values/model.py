"""One request to a model, the requirements of its format, and the provider's reply. A request is
split into messages without decoding them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, TypeAlias

FormatName: TypeAlias = Literal["anthropic", "openai-chat", "openai-responses", "pi"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request, split into its messages and the rest. `body` is the HTTP body. If `body` is None,
    `origin` is the caller's mapping and `objects` are its message objects. Unchanged messages are
    sent as they were received."""

    format: FormatName
    messages: tuple[bytes, ...] = dataclasses.field(repr=False)
    field: str
    system: bytes | None = dataclasses.field(default=None, repr=False)
    tools: bytes | None = dataclasses.field(default=None, repr=False)
    model: str | None = None
    output_tokens: int | None = None
    continues: bool = False
    """True if the provider stores earlier items itself, so a result may appear without its call."""
    continues_from: str = ""
    thinking: bool = True
    marks: int = 0
    """Number of cache marks outside of the messages."""
    system_inside: bool = False
    """True if a beta feature allows system messages between other messages."""
    body: bytes | None = dataclasses.field(default=None, repr=False)
    origin: Any = dataclasses.field(default=None, repr=False)
    objects: tuple[Any, ...] | None = dataclasses.field(default=None, repr=False)
    copies: tuple[Any, ...] = dataclasses.field(default=(), repr=False)
    """Copies of `objects`, to find out which of them the next request repeats unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """A provider's token counts for one exchange. Input tokens include cached ones."""

    input_tokens: int
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reports_cache: bool = dataclasses.field(default=False, compare=False)
    """True if the provider reports cache use."""


def add_usage(first: Usage, second: Usage) -> Usage:
    return Usage(
        input_tokens=first.input_tokens + second.input_tokens,
        output_tokens=first.output_tokens + second.output_tokens,
        cache_read_tokens=first.cache_read_tokens + second.cache_read_tokens,
        cache_write_tokens=first.cache_write_tokens + second.cache_write_tokens,
        reports_cache=first.reports_cache or second.reports_cache,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRules:
    """The rules that a provider sets for requests. Each codec names the source of its rules."""

    format: FormatName
    alternates: bool = False
    """User and assistant messages must alternate, and the first must be the user's."""
    results_share_a_message: bool = False
    """Results must come first in the user message after the calls, not in separate messages."""
    results_adjacent: bool = True
    """Results must come directly after the message with the calls."""
    refuses_blank_text: bool = False
    thinking_leads: bool = False
    """A reasoning item must be followed by the item that it produced."""
    ids_unique: bool = False
    """A call id must be unique in a request."""
    ids_plain: bool = False
    """A call id must contain plain characters only."""
    most_marks: int | None = None
    """Maximum number of cache marks in a request; None for no limit."""
    thinking_signed: bool = False
    """Thinking must have the signature with which the provider sent it."""
    provider_calls_answered: bool = False
    """A provider-run call must have its result, unless it is still running."""
    system_inside: bool = False
    """System messages may come between other messages, and may be empty."""
    stand_in_variants: frozenset[str] | None = None
    """Kinds of calls for which a plain text is a valid result; None for all."""


class LimitDoubt(Enum):
    """Reasons why the limit in an error may not be the model's window."""

    BELOW_FLOOR = "smaller than the window of any model that is served"
    WIDER = "larger than the request that was refused"
    ECHOED = "the words that name it appear in the request itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """A request that was too large, according to an error message or to a reply's usage."""

    pattern_name: str
    limit_tokens: int | None = None
    """The window or input limit that was exceeded."""
    requested_tokens: int | None = None
    output_tokens: int | None = None
    """Tokens reserved for the reply, part of `requested_tokens`. A smaller reserve may fit."""
    limit_words: str = field(default="", repr=False, compare=False)


StopReason: TypeAlias = Literal["stop", "length", "tool-calls", "refusal", "other"]
Purpose: TypeAlias = Literal["summary", "extraction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A question to a model, for a summary or for extraction (`purpose`)."""

    text: str = field(repr=False)
    """Text of the user message."""
    system: str = field(default="", repr=False)
    """System prompt; empty if there is none."""
    max_output_tokens: int = 1024
    """Maximum length of the answer."""
    schema: Mapping[str, Any] | None = field(default=None, repr=False)
    """JSON schema that the answer must follow; None for plain text."""
    purpose: Purpose = "summary"
    """What the answer is for: "summary" or "extraction"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A model's answer to a prompt."""

    text: str = field(repr=False)
    """The model's text."""
    stop: StopReason = "stop"
    """Why the model stopped: "stop", "length", "tool-calls", "refusal" or "other"."""
    usage: Usage | None = None
    """Tokens of the call, as reported; None if they are not reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUse:
    """Token usage of model calls for one purpose, as reported by the provider, else estimated."""

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
    """The next piece of the reply's text."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    """The next piece of the reply's reasoning."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted:
    """The model began to write a tool call."""

    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyDone:
    """The whole reply, as the last event of every stream that did not fail."""

    reply: Mapping[str, Any] = field(repr=False)
    """The reply as one object, as if it had not been streamed. Pass this object to `observe`."""
    stop: StopReason
    usage: Usage | None = None
    overflow: Overflow | None = None
    """Set if the window was exceeded without an error: the reply was cut off at once, or the
    provider counts more input tokens than the window."""


ReplyEvent: TypeAlias = TextDelta | ThinkingDelta | CallStarted | ReplyDone
