"""One request to a model, split but not decoded, and what a provider says in reply."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

FormatName: TypeAlias = Literal["anthropic", "openai-chat", "openai-responses", "pi"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request body as spans: its messages one by one, everything else untouched.

    Either `body` is the HTTP body it was read from, or `origin` the caller's own mapping and
    `objects` its message objects. Both ways untouched messages go out as they came.
    """

    format: FormatName
    messages: tuple[bytes, ...] = dataclasses.field(repr=False)
    field: str
    """The key that holds the messages: `messages` or `input`."""
    system: bytes | None = dataclasses.field(default=None, repr=False)
    tools: bytes | None = dataclasses.field(default=None, repr=False)
    model: str | None = None
    output_tokens: int | None = None
    """Room that the request asks for its reply."""
    continues: bool = False
    """The provider holds earlier items itself, so a result may lack its call here."""
    continues_from: str = ""
    """What it goes on with: the id of a response or of a conversation."""
    thinking: bool = True
    """The request asks for thinking, or its format does not say."""
    body: bytes | None = dataclasses.field(default=None, repr=False)
    origin: Any = dataclasses.field(default=None, repr=False)
    objects: tuple[Any, ...] | None = dataclasses.field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a provider reported for one exchange; the input is whole, cached or not."""

    input_tokens: int
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
