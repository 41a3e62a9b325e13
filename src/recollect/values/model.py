"""What is asked of a language model, and what comes back: the same for every provider.

Prompts are for work of our own (summaries, extraction): text in, text out. A conversation's own
request goes out in its wire format; what streams back are `ReplyEvent`s, the last of them the
whole reply in that format. Reprs never show what was said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from recollect.values.overflow import Overflow
from recollect.values.request import Usage

StopReason: TypeAlias = Literal["stop", "length", "tool-calls", "refusal", "other"]
Purpose: TypeAlias = Literal["summary", "extraction", "reconcile", "digest"]
"""What a prompt is for: a summary of what was cut, reading for facts, deciding, a digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One question of our own to a model."""

    text: str = field(repr=False)
    system: str = field(default="", repr=False)
    max_output_tokens: int = 1024
    schema: Mapping[str, Any] | None = field(default=None, repr=False)
    """A JSON schema that the answer has to fit, where the provider can hold it to one."""
    purpose: Purpose = "summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model answered to a prompt."""

    text: str = field(repr=False)
    stop: StopReason = "stop"
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUse:
    """What calls of one purpose took: as the provider says, else as we count."""

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
    """A further stretch of the reply's words."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    """A further stretch of the reply's reasoning."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted:
    """The model began to ask for a tool."""

    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyDone:
    """The whole reply; always the last event of a stream that did not fail."""

    reply: Mapping[str, Any] = field(repr=False)
    """As the provider would have answered without streaming: what `observe` takes."""
    stop: StopReason
    usage: Usage | None = None
    overflow: Overflow | None = None
    """The window was exceeded without an error: cut off at once, or more read than fits."""


ReplyEvent: TypeAlias = TextDelta | ThinkingDelta | CallStarted | ReplyDone
