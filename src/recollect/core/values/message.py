"""Messages and their parts, the same for every wire format. An unchanged message is sent as its
received bytes. Each part corresponds to one block on the wire. Reprs never show content."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NewType, TypeAlias

from recollect.core.values.reason import Reason

MessageId = NewType("MessageId", str)
"""A keyed hash of role and canonical content."""

EntryKey = NewType("EntryKey", str)
"""Key of a message at its position in a history: a hash that includes all messages before it."""

CallId = NewType("CallId", str)

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Ending: TypeAlias = Literal["complete", "aborted", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Plain text of any role."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """Reasoning of the model; `sealed` is its signature or encrypted form, if any."""

    text: str
    sealed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image, inline (base64) or by URL."""

    media_type: str | None
    data: str | None
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A block that Recollect passes on without interpreting it: documents, tools run by the
    provider, audio."""

    kind: str
    payload: str
    """Canonical JSON of the block without cache marks."""
    opens: CallId | None = None
    """Id of the call, if this block is a call of a tool that the provider runs."""
    answers: CallId | None = None
    """Id of a call of a provider-run tool whose result this block is or may be."""
    certain: bool = True
    """False if the block's type is unknown, so that no rule requires a call or a result for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A request of the model to run a tool."""

    id: CallId
    name: str
    arguments: str
    """Canonical JSON if the arguments are JSON on the wire, else the text itself."""
    variant: str = ""
    """The format's name for this kind of call, if it has several kinds."""
    caller: CallId | None = None
    """Provider-run call whose code made this call; None if the model made it directly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """A tool's answer."""

    call_id: CallId
    content: tuple[Text | Image | Other, ...]
    name: str | None = None
    is_error: bool = False
    alternative: CallId | None = None
    """Id of another kind of call, which the result answers if no call with `call_id` waits."""
    recalls: tuple[MessageId, ...] | None = None
    """Messages that the result quotes, if a memory tool of Recollect made it; None for any other
    result. An answer of a memory tool is not stored again, and no facts are extracted from it."""

    @property
    def text(self) -> str:
        """Texts of the content, joined by newlines."""
        if len(self.content) == 1 and isinstance(self.content[0], Text):
            return self.content[0].text
        return "\n".join(part.text for part in self.content if isinstance(part, Text))

    @property
    def has_images(self) -> bool:
        return any(isinstance(part, Image) for part in self.content)


Part: TypeAlias = Text | Thinking | Image | ToolCall | ToolResult | Other


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """A defect that a provider refuses. Remove `part` if it is set; in other cases, writing the
    message again fixes the defect."""

    part: int | None
    reason: Reason


UNREADABLE_KINDS = frozenset({"text", "input_text", "output_text", "value", "block"})
"""Kinds of `Other` for parts that no provider accepts: without text, without type, no object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a request or transcript, read from its wire format."""

    role: Role
    parts: tuple[Part, ...] = field(repr=False)
    raw: bytes = field(repr=False)
    ending: Ending = "complete"
    summary: bool = False
    """True if this message is a summary that replaces other messages."""
    flaws: tuple[Flaw, ...] = ()
    wire_id: str | None = None
    opens: tuple[CallId, ...] = ()
    """Provider-run calls in this message whose result is not in it."""
    marks: tuple[int, ...] = ()
    """For each cache mark in this message, the part that contains it."""
    joins: tuple[CallId, ...] = ()
    """Provider-run calls of other messages that this one answers, or whose code makes its calls."""


def text_of(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, Text))
