"""Replies of a model, written once for every wire: the steps of a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from recollect.values.model import StopReason, Usage

WireName: TypeAlias = Literal["anthropic", "openai-chat", "openai-responses"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """A tool that the model asks for."""

    id: str
    name: str
    input: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Says:
    """One reply of the model."""

    text: str = field(default="", repr=False)
    thinking: str = field(default="", repr=False)
    calls: Sequence[ScriptedCall] = ()
    stop: StopReason | None = None
    """None: by what is said."""
    usage: Usage | None = field(default_factory=lambda: Usage(input_tokens=100, output_tokens=10))
    stretch_chars: int = 4
    """So many characters in each event of a stream."""
    piece_bytes: int | None = None
    """The stream goes out in pieces of so many bytes, through the middle of characters."""
    delay_seconds: float = 0.0
    """Before the first byte."""
    cut_after_events: int | None = None
    """The connection breaks after so many events."""
    hang_after_events: int | None = None
    """Nothing more comes after so many events; 0: not even a status."""
    fail_after_events: int | None = None
    """The wire's own overloaded error takes the place of what would follow."""

    @property
    def said_stop(self) -> StopReason:
        """Why it stopped."""
        return self.stop or ("tool-calls" if self.calls else "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fails:
    """An error response."""

    status: int
    body: Any = field(default=None, repr=False)
    """An object is sent as JSON, text and bytes as they are; None: the wire's own error object."""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0
