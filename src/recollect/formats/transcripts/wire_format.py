"""Which of the four wire formats a list of messages is in, by its content.

Owns the telltales of each format. The request's own keys are looked at first, then the
messages from the first on, until one is decisive. Plain text in both directions is legal in
several formats; it is read as OpenAI chat, which demands the least of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.formats.transcripts.records import (
    Fields,
    array_items,
    object_fields,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recollect.values.request import FormatName

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


def format_of(messages: Iterable[bytes], *, body: Fields | None = None) -> FormatName:
    """The format of these messages, helped by the request they stood in."""
    told = _format_of_body(body or {})
    if told is not None:
        return told
    for raw in messages:
        message = object_fields(raw)
        told = _format_of_message(message) if message is not None else None
        if told is not None:
            return told
    return "openai-chat"


def _format_of_body(body: Fields) -> FormatName | None:
    if "input" in body:
        return "openai-responses"
    if body.keys() & {"system", "anthropic_version", "stop_sequences", "context_management"}:
        return "anthropic"
    for raw in (array_items(body.get("tools")) or [])[:1]:
        tool = object_fields(raw) or {}
        if "input_schema" in tool:
            return "anthropic"
        if "function" in tool:
            return "openai-chat"
    return None


def _format_of_message(message: Fields) -> FormatName | None:
    role, kind = text_of(message, "role"), text_of(message, "type")
    if kind in RESPONSES_ITEM_TYPES and (kind != "message" or "model" not in message):
        return "openai-responses"  # an Anthropic response is of type message, too
    if role in _PI_ROLES or "stopReason" in message:
        return "pi"
    if role in {"tool", "function", "system", "developer"} or "tool_calls" in message:
        return "openai-chat"
    for raw in array_items(message.get("content")) or []:
        told = _format_of_block(object_fields(raw) or {})
        if told is not None:
            return told
    return None


def _format_of_block(block: Fields) -> FormatName | None:
    kind = text_of(block, "type")
    if kind == "image":
        return "anthropic" if "source" in block else "pi"
    if kind == "thinking":
        return "pi" if "thinkingSignature" in block else "anthropic"
    return _BLOCK_FORMATS.get(kind or "")
