"""The wire formats by name, and the detection of a request's format.

A new format is one file with a class like `WireCodec`, one line in `WIRES`, and its name in
`FormatName`. If a request fits several formats, Anthropic's strictest rules apply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

from recollect.core.formats import anthropic, openai_chat, openai_responses, pi
from recollect.core.formats.anthropic import AnthropicCodec, SystemInsideCodec
from recollect.core.formats.blocks import Sourced, WireMessage
from recollect.core.formats.json_text import Fields, array_items, object_fields, text_of
from recollect.core.formats.openai_chat import OpenAIChatCodec
from recollect.core.formats.openai_responses import OpenAIResponsesCodec
from recollect.core.formats.pi import PiCodec
from recollect.core.values.history import Slot
from recollect.core.values.message import Message
from recollect.core.values.model import FormatName, ReplyEvent, Request, WireRules

_CHAT_MODELS = ("gpt", "o1", "o3", "o4", "gemini", "deepseek", "mistral", "qwen", "llama", "grok")
KNOWN_ROLES = anthropic.ROLES | openai_chat.ROLES | openai_responses.ROLES | pi.ROLES
_NO_CONTENT = (b"", b"null", b'""', b"[]", b"{}")
_LOOK_AT = 24
"""How many messages are looked at from each end; formats do not change in between."""


class Codec(Protocol):
    """Reads one message of a format, and writes rows that are not as they came."""

    @property
    def rules(self) -> WireRules:
        """The demands of the format."""

    def read(self, raw: bytes) -> Message:
        """Read one message; lenient, never raises on JSON it does not understand."""

    def compose(self, slot: Slot) -> bytes:
        """Write one row; deterministic: the same slot gives the same bytes."""

    def claims_body(self, body: Fields) -> bool:
        """Whether a request of these keys can only be of this format."""

    def claims_message(self, message: Fields) -> bool:
        """Whether a message of these keys can only be of this format."""

    def claims_block(self, block: Fields) -> bool:
        """Whether a content block of these keys can only be of this format."""

    def reply_messages(self, fields: Mapping[str, Any]) -> tuple[bytes, ...]:
        """The messages that a reply adds to the history, as a client would send them back."""


class Assembling(Protocol):
    """A reply that is put together from a stream's events."""

    def take(self, event: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        """Add an event."""

    @property
    def complete(self) -> bool:
        """The reply's own end was seen: nothing that may follow changes it."""

    def reply(self) -> Mapping[str, Any] | None:
        """The reply as it would have come without streaming; None where its end is missing."""

    def partial(self) -> Mapping[str, Any]:
        """The reply so far, in the same form."""


class WireCodec(Codec, Protocol):
    """A provider's format: also its streams, and pi's messages in it. The same pi
    messages give the same wire messages, and a further one never changes earlier ones."""

    @property
    def api(self) -> str:
        """pi's word for the wire."""

    @property
    def provider(self) -> str:
        """The default provider of the wire."""

    def assembling(self) -> Assembling:
        """Begin to put a streamed reply together."""

    def is_event(self, event: Mapping[str, Any]) -> bool:
        """Whether an event of a stream is one of this wire's."""

    def from_pi(self, history: Sequence[Sourced]) -> list[WireMessage]:
        """pi messages as the wire has them."""

    def to_pi(self, reply: Mapping[str, Any]) -> list[dict[str, Any]]:
        """A reply's content as pi's blocks."""

    def as_reply(self, reply: Mapping[str, Any], sent: list[dict[str, Any]]) -> Mapping[str, Any]:
        """The reply with these wire messages in place of its own."""


WIRES: Final[Mapping[FormatName, WireCodec]] = {
    "openai-responses": OpenAIResponsesCodec(),
    "anthropic": AnthropicCodec(),
    "openai-chat": OpenAIChatCodec(),
}
CODECS: Final[Mapping[FormatName, Codec]] = {
    "openai-responses": WIRES["openai-responses"],
    "pi": PiCodec(),
    **WIRES,
}
"""Every format, in the order in which they are asked whether a request is theirs."""

_SYSTEM_INSIDE: Final = SystemInsideCodec()


def codec_of(request: Request) -> Codec:
    """The codec of a request's format, with the rules of what its beta features allow."""
    if request.format == "anthropic" and request.system_inside:
        return _SYSTEM_INSIDE
    return CODECS[request.format]


def format_of(messages: Sequence[bytes], *, body: Fields | None = None) -> FormatName:
    """The format of these messages, helped by their request."""
    body = body or {}
    for name, codec in CODECS.items():
        if codec.claims_body(body):
            return name
    for raw in (*messages[:_LOOK_AT], *messages[_LOOK_AT:][-_LOOK_AT:]):
        message = object_fields(raw)
        found = None if message is None else _format_of_message(message)
        if found is not None:
            return found
    model = (text_of(body, "model") or "").rpartition("/")[2].lower()
    return "openai-chat" if model.startswith(_CHAT_MODELS) else "anthropic"


def is_message(raw: bytes) -> bool:
    """Whether this can be a message of any format: it has a role that one knows, a type, or
    content. Unknown roles with content are read as the user's."""
    message = object_fields(raw)
    if message is None:
        return False
    if text_of(message, "role") in KNOWN_ROLES or text_of(message, "type"):
        return True
    content = message.get("content")
    return content is not None and content.strip() not in _NO_CONTENT


def _format_of_message(message: Fields) -> FormatName | None:
    for name, codec in CODECS.items():
        if codec.claims_message(message):
            return name
    for raw in array_items(message.get("content")) or ():
        block = object_fields(raw) or {}
        for name, codec in CODECS.items():
            if codec.claims_block(block):
                return name
    return None


DefinitionFormat: TypeAlias = FormatName | Literal["mcp"]


def tool_definition(
    format: DefinitionFormat,  # noqa: A002
    name: str,
    description: str,
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    """A tool as a provider, or an MCP client, wants it described; `parameters` is the JSON Schema
    of its arguments."""
    described = {"name": name, "description": description}
    if format == "anthropic":
        return {**described, "input_schema": dict(parameters)}
    if format == "mcp":
        return {**described, "inputSchema": dict(parameters)}
    if format == "openai-chat":
        return {"type": "function", "function": {**described, "parameters": dict(parameters)}}
    return {"type": "function", **described, "parameters": dict(parameters), "strict": False}
