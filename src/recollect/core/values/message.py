"""Messages and their parts, the same for every wire format. An unchanged message is sent as its
`raw` JSON. Each part corresponds to one block on the wire. Reprs never show content."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NewType, TypeAlias

from recollect.core.values.reason import Reason

MessageId = NewType("MessageId", str)
"""A keyed hash of role and canonical content."""

EntryKey = NewType("EntryKey", str)
"""Key of a message at its place in a history: a hash that includes all messages before it."""

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
    """Id of the call, if this block is a call that the provider runs."""
    answers: CallId | None = None
    """Id of the provider-run call that this block answers or may answer."""
    certain: bool = True
    """False if the block's type is unknown. Such a block has no pairing rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A request of the model to run a tool."""

    id: CallId
    name: str
    arguments: str
    """Canonical JSON if the arguments are JSON on the wire, else the text itself."""
    variant: str = ""
    """The format's name for this kind of call, if it has several."""
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
    """Id of a call of another kind. The result may answer it if no call with `call_id` is open."""
    recalls: tuple[MessageId, ...] | None = None
    """Messages that the result quotes, if a memory tool of this engine made it. Such a result is
    not stored again and not read for facts. None for any other result."""

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
    """A defect that a provider refuses. If `part` is set, that part must be removed. Otherwise
    composing the message again fixes it."""

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
    """True if it replaces other messages, as a summary does."""
    flaws: tuple[Flaw, ...] = ()
    wire_id: str | None = None
    opens: tuple[CallId, ...] = ()
    """Provider-run calls in this message whose result is not in it."""
    joins: tuple[CallId, ...] = ()
    """Provider-run calls of other messages that this message answers, or whose code makes its
    calls."""


def text_of(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, Text))
