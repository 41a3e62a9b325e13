"""Wire formats by name, and detection of a request's format. A new format is one file with a
`WireCodec`, one line in `WIRES`, and its name in `FormatName`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, Protocol, TypeAlias

from recollect.core.formats import anthropic, openai_chat, openai_responses, pi
from recollect.core.formats.anthropic import AnthropicCodec
from recollect.core.formats.blocks import SourcedMessage, WireMessage
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
"""Number of messages examined at each end to detect a request's format."""


class Codec(Protocol):
    """Reads the messages of a wire format, and writes those that Recollect changed or added."""

    @property
    def rules(self) -> WireRules:
        """The provider's rules for requests in this format."""

    def read(self, raw: bytes) -> Message:
        """Read one message, without raising on JSON that the codec does not understand."""

    def compose(self, slot: Slot) -> bytes:
        """Write one message of the request. The same slot always gives the same bytes."""

    def claims_body(self, body: Fields) -> bool:
        """Return whether only a request of this format can have these keys."""

    def claims_message(self, message: Fields) -> bool:
        """Return whether only a message of this format can have these keys."""

    def claims_block(self, block: Fields) -> bool:
        """Return whether only a content block of this format can have these keys."""

    def reply_messages(self, fields: Mapping[str, Any]) -> tuple[bytes, ...]:
        """Return a reply's messages, as a client would send them back in the next request."""


class Assembling(Protocol):
    """Assembles a reply from a stream's events."""

    def take(self, event: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        """Add an event of the stream."""

    @property
    def complete(self) -> bool:
        """True once the end of the reply was received. Later events do not change the reply."""

    def reply(self) -> Mapping[str, Any] | None:
        """Return the reply as if it had not been streamed; None if its end is missing."""

    def partial(self) -> Mapping[str, Any]:
        """Return the received part of the reply, in the form of a whole reply."""


class WireCodec(Codec, Protocol):
    """A provider's format: its streams, and pi's messages translated into it. The same pi messages
    always give the same wire messages. An additional message never changes earlier ones."""

    @property
    def api(self) -> str:
        """Name that pi uses for the format."""

    @property
    def provider(self) -> str:
        """Default provider of the format."""

    def assembling(self) -> Assembling:
        """Start assembling a streamed reply."""

    def is_event(self, event: Mapping[str, Any]) -> bool:
        """Return whether a stream event has this format."""

    def from_pi(self, history: Sequence[SourcedMessage]) -> list[WireMessage]:
        """Translate pi messages into wire messages."""

    def to_pi(self, reply: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Translate a reply's content into pi's blocks."""

    def as_reply(self, reply: Mapping[str, Any], sent: list[dict[str, Any]]) -> Mapping[str, Any]:
        """Return the reply with its messages replaced by `sent`."""


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
"""All formats, in the order of detection. If a request fits several, Anthropic's rules apply."""

_ANTHROPIC: Final = {
    (is_inside, is_signed): AnthropicCodec(
        replace(anthropic.RULES, system_inside=is_inside, thinking_signed=is_signed)
    )
    for is_inside in (False, True)
    for is_signed in (False, True)
}


def codec_of(request: Request) -> Codec:
    """Return the codec of a request's format, with the rules of its model and beta features."""
    if request.format != "anthropic":
        return CODECS[request.format]
    return _ANTHROPIC[request.system_inside, "claude" in (request.model or "").lower()]


def format_of(messages: Sequence[bytes], *, body: Fields | None = None) -> FormatName:
    """Detect the format of these messages, with the help of the request that contains them."""
    body = body or {}
    for name, codec in CODECS.items():
        if codec.claims_body(body):
            return name
    for raw in (*messages[:_LOOK_AT], *messages[_LOOK_AT:][-_LOOK_AT:]):
        message = object_fields(raw)
        format_name = None if message is None else _format_of_message(message)
        if format_name is not None:
            return format_name
    model = (text_of(body, "model") or "").rpartition("/")[2].lower()
    return "openai-chat" if model.startswith(_CHAT_MODELS) else "anthropic"


def is_message(raw: bytes) -> bool:
    """Return whether this may be a message: it has a known role, a type, or content."""
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
    """Describe a tool for a provider or an MCP client. `parameters` is a JSON Schema."""
    definition = {"name": name, "description": description}
    if format == "anthropic":
        return {**definition, "input_schema": dict(parameters)}
    if format == "mcp":
        return {**definition, "inputSchema": dict(parameters)}
    if format == "openai-chat":
        return {"type": "function", "function": {**definition, "parameters": dict(parameters)}}
    return {"type": "function", **definition, "parameters": dict(parameters), "strict": False}
