"""Messages and their parts, the same for every wire format.

A `Message` carries `raw`, the JSON it came as; an untouched message is sent as these bytes. Parts
and wire blocks correspond one to one. Reprs never show content.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NewType, TypeAlias

from recollect.core.values.reason import Reason

MessageId = NewType("MessageId", str)
"""A keyed hash of role and canonical content: what a message is."""

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
    """An image, inline (base64) or by address."""

    media_type: str | None
    data: str | None
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A block we carry but do not interpret: documents, provider-run tools, audio."""

    kind: str
    payload: str
    """Canonical JSON of the block without cache marks."""
    opens: CallId | None = None
    """It is a call, under this id, of a tool that the provider runs itself."""
    answers: CallId | None = None
    """It is the result of such a call, or may be one."""
    certain: bool = True
    """Whether its type is known; unknown types have no duties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """The model asks for a tool to be run."""

    id: CallId
    name: str
    arguments: str
    """Canonical JSON if the wire holds JSON, else the text itself."""
    variant: str = ""
    """The wire's own word for this kind of call, where the format has several."""
    caller: CallId | None = None
    """The provider-run call whose code made it; None where the model called by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """A tool's answer."""

    call_id: CallId
    content: tuple[Text | Image | Other, ...]
    name: str | None = None
    is_error: bool = False
    alternative: CallId | None = None
    """The id of another kind of call that it may answer, where no call of `call_id` waits."""
    recalls: tuple[MessageId, ...] | None = None
    """A memory tool of this engine answered it: the messages that it quotes, as far as they are
    known. It is not kept again, nor read for facts. None: any other result."""

    @property
    def text(self) -> str:
        """The textual content, joined by newlines."""
        if len(self.content) == 1 and isinstance(self.content[0], Text):
            return self.content[0].text
        return "\n".join(part.text for part in self.content if isinstance(part, Text))

    @property
    def has_images(self) -> bool:
        """Whether any of the content is an image."""
        return any(isinstance(part, Image) for part in self.content)


Part: TypeAlias = Text | Thinking | Image | ToolCall | ToolResult | Other


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """A defect that a provider refuses, as its codec saw it. With a part, the part must go; without
    one, composing the message again repairs it."""

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
    """It replaces messages that are gone (a compaction's summary)."""
    pinned: bool = False
    flaws: tuple[Flaw, ...] = ()
    wire_id: str | None = None
    opens: tuple[CallId, ...] = ()
    """Provider-run calls that it leaves without their result."""
    joins: tuple[CallId, ...] = ()
    """Provider-run calls of other messages that it answers, or whose code it calls for."""


def text_of(message: Message) -> str:
    """The message's own words: text parts only, joined by newlines."""
    return "\n".join(part.text for part in message.parts if isinstance(part, Text))
