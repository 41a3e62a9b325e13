"""The codec of each wire format, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from recollect.errors import FormatError
from recollect.formats.anthropic import AnthropicCodec
from recollect.formats.json_text import array_spans, decode, object_spans
from recollect.formats.openai_chat import OpenAIChatCodec
from recollect.formats.openai_responses import OpenAIResponsesCodec
from recollect.formats.pi import PiCodec
from recollect.values.history import Slot
from recollect.values.message import Message
from recollect.values.model import FormatName, WireRules

if TYPE_CHECKING:
    from collections.abc import Sequence


class Codec(Protocol):
    """Reads one message of a wire format, and writes rows that are not as they came."""

    @property
    def rules(self) -> WireRules:
        """What the format demands."""
        ...

    def read(self, raw: bytes) -> Message:
        """Read one message; lenient, never raises on JSON it does not understand."""
        ...

    def compose(self, slot: Slot) -> bytes:
        """Write one row; deterministic: the same slot gives the same bytes."""
        ...


CODECS: dict[FormatName, Codec] = {
    "anthropic": AnthropicCodec(),
    "openai-chat": OpenAIChatCodec(),
    "openai-responses": OpenAIResponsesCodec(),
    "pi": PiCodec(),
}


# Which of the four wire formats a list of messages is in, by its content


Fields: TypeAlias = Mapping[str, bytes]

RESPONSES_ITEM_TYPES = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "local_shell_call",
        "local_shell_call_output",
        "web_search_call",
        "file_search_call",
        "computer_call",
        "computer_call_output",
        "image_generation_call",
        "code_interpreter_call",
        "mcp_call",
        "mcp_list_tools",
        "item_reference",
        "compaction",
    }
)
_CHAT_MODELS = ("gpt", "o1", "o3", "o4", "gemini", "deepseek", "mistral", "qwen", "llama", "grok")
_LOOK_AT = 24
"""How many messages are looked at from each end; formats do not change in between."""
_PI_ROLES = frozenset(
    {"toolResult", "bashExecution", "custom", "hookMessage", "branchSummary", "compactionSummary"}
)
_BLOCK_FORMATS: dict[str, FormatName] = {
    "tool_use": "anthropic",
    "tool_result": "anthropic",
    "redacted_thinking": "anthropic",
    "server_tool_use": "anthropic",
    "document": "anthropic",
    "image_url": "openai-chat",
    "input_audio": "openai-chat",
    "refusal": "openai-chat",
    "input_text": "openai-responses",
    "output_text": "openai-responses",
    "input_image": "openai-responses",
    "toolCall": "pi",
}


def format_of(messages: Sequence[bytes], *, body: Fields | None = None) -> FormatName:
    """The format of these messages, helped by the request they stood in."""
    told = _format_of_body(body or {})
    if told is not None:
        return told
    for raw in (*messages[:_LOOK_AT], *messages[_LOOK_AT:][-_LOOK_AT:]):
        message = _object(raw)
        told = _format_of_message(message) if message is not None else None
        if told is not None:
            return told
    model = (_text(body or {}, "model") or "").rpartition("/")[2].lower()
    return "openai-chat" if model.startswith(_CHAT_MODELS) else "anthropic"


def _format_of_body(body: Fields) -> FormatName | None:
    if "input" in body and "messages" not in body:
        return "openai-responses"
    if "systemPrompt" in body:
        return "pi"
    if body.keys() & {"system", "anthropic_version", "stop_sequences", "context_management"}:
        return "anthropic"
    for raw in _array(body.get("tools"))[:1]:
        tool = _object(raw) or {}
        if "input_schema" in tool:
            return "anthropic"
        if "function" in tool:
            return "openai-chat"
    return None


def _format_of_message(message: Fields) -> FormatName | None:
    role, kind = _text(message, "role"), _text(message, "type")
    if kind in RESPONSES_ITEM_TYPES and (kind != "message" or "model" not in message):
        return "openai-responses"  # an Anthropic response is of type message, too
    if role in _PI_ROLES or "stopReason" in message:
        return "pi"
    if role in {"tool", "function", "system", "developer"} or "tool_calls" in message:
        return "openai-chat"
    for raw in _array(message.get("content")):
        told = _format_of_block(_object(raw) or {})
        if told is not None:
            return told
    return None


def _format_of_block(block: Fields) -> FormatName | None:
    kind = _text(block, "type")
    if kind == "image":
        return "anthropic" if "source" in block else "pi"
    if kind == "thinking":
        return "pi" if "thinkingSignature" in block else "anthropic"
    return _BLOCK_FORMATS.get(kind or "")


def _object(raw: bytes) -> Fields | None:
    try:
        return object_spans(raw)
    except FormatError:
        return None


def _array(raw: bytes | None) -> list[bytes]:
    try:
        return array_spans(raw) if raw and raw.lstrip()[:1] == b"[" else []
    except FormatError:
        return []


def _text(fields: Fields, key: str) -> str | None:
    raw = fields.get(key)
    value = decode(raw) if raw and raw.lstrip()[:1] == b'"' else None
    return value if isinstance(value, str) else None
