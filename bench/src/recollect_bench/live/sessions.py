"""Conversations as they are fed to the whole product, and what is asked of them on branches.

Owns the values that every set of the bench is made of. Must never know the engine: a set is
written before anybody looks at what is found of it. Always holds: messages are of the chat wire
format, an exchange begins with what the user says, and what a question needs was said before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

WireMessage: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Something that has to stand in the request for a question to be answered."""

    texts: tuple[str, ...] = field(repr=False)
    """Every one of them, as it was said, case and white space aside."""
    any_of: tuple[str, ...] = field(default=(), repr=False)
    """Where given, one of these is enough, and `texts` is the strict reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One user turn: what the user says, what the model does and replies, tool results between."""

    messages: tuple[WireMessage, ...] = field(repr=False)
    at: float
    """When the user says it."""
    ordinary: bool = False
    """It needs nothing that was said before: a block that it gets was asked for by nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveQuestion:
    """Something asked on a branch of the conversation, which goes on as if nobody had asked."""

    name: str
    kind: str
    ask: str = field(repr=False)
    needs: tuple[Need, ...] = ()
    """None where nothing that was said answers it."""
    lead: tuple[WireMessage, ...] = field(default=(), repr=False)
    """An exchange just before it, which it leans on."""
    waits: float = 0.0
    """Seconds between that exchange and the question."""
    at: float | None = None
    """When it is asked; None: just after what it follows."""
    ordinary: bool = False
    """It needs nothing from memory at all, as small talk does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSession:
    """A conversation, and the questions asked on branches after so many of its exchanges."""

    name: str
    exchanges: tuple[Exchange, ...] = field(repr=False)
    questions: tuple[tuple[int, LiveQuestion], ...] = field(repr=False)
    system: str = ""
    tools: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)


def user(text: str) -> WireMessage:
    """What the user says."""
    return {"role": "user", "content": text}


def assistant(text: str) -> WireMessage:
    """What the model replies."""
    return {"role": "assistant", "content": text}


def spoken(messages: Sequence[WireMessage]) -> str:
    """All text of these messages."""
    texts: list[str] = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            texts.append(content)
        elif content:
            texts += [part.get("text", "") for part in content]
        texts += [call["function"]["arguments"] for call in message.get("tool_calls") or ()]
    return "\n".join(texts)
