"""Messages and their parts, the same for every wire format. An untouched message is sent as its
`raw` JSON. Parts and wire blocks correspond one to one. Reprs never show content."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NewType, TypeAlias

from recollect.core.values.reason import Reason

MessageId = NewType("MessageId", str)
"""A keyed hash of role and canonical content."""

EntryKey = NewType("EntryKey", str)
"""A message at its place in a history: a hash chained over the identities before it."""

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
    """A block that is carried but not interpreted: documents, provider-run tools, audio."""

    kind: str
    payload: str
    """Canonical JSON of the block without cache marks."""
    opens: CallId | None = None
    """Id of the provider-run call that it is."""
    answers: CallId | None = None
    """Id of the provider-run call that it answers or may answer."""
    certain: bool = True
    """False if its type is unknown, and so has no pairing rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A request of the model to run a tool."""

    id: CallId
    name: str
    arguments: str
    """Canonical JSON if the wire holds JSON, else the text itself."""
    variant: str = ""
    """The format's name for this kind of call, if it has several."""
    caller: CallId | None = None
    """Provider-run call whose code made it; None if the model called directly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """A tool's answer."""

    call_id: CallId
    content: tuple[Text | Image | Other, ...]
    name: str | None = None
    is_error: bool = False
    alternative: CallId | None = None
    """Id of another kind of call that it may answer if no call of `call_id` waits."""
    recalls: tuple[MessageId, ...] | None = None
    """Messages that it quotes, if a memory tool of this engine answered it. Such a result is not
    stored again nor read for facts. None for any other result."""

    @property
    def text(self) -> str:
        """Text of the content, joined by newlines."""
        if len(self.content) == 1 and isinstance(self.content[0], Text):
            return self.content[0].text
        return "\n".join(part.text for part in self.content if isinstance(part, Text))

    @property
    def has_images(self) -> bool:
        return any(isinstance(part, Image) for part in self.content)


Part: TypeAlias = Text | Thinking | Image | ToolCall | ToolResult | Other


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """A defect that a provider refuses. With a part, the part must go; without one, composing the
    message again repairs it."""

    part: int | None
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One item of a request or transcript, as read from its wire form."""

    role: Role
    parts: tuple[Part, ...] = field(repr=False)
    raw: bytes = field(repr=False)
    ending: Ending = "complete"
    summary: bool = False
    """It replaces other messages (a compaction's summary)."""
    pinned: bool = False
    flaws: tuple[Flaw, ...] = ()
    wire_id: str | None = None
    opens: tuple[CallId, ...] = ()
    """Provider-run calls that it leaves without their result."""
    joins: tuple[CallId, ...] = ()
    """Provider-run calls of other messages that it answers, or whose code it calls for."""


def text_of(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, Text))
