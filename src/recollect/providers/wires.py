"""What a whole reply says, wire by wire, and where each wire is asked.

How a reply is put together from a stream is in `formats.stream_events`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from recollect.formats.anthropic import AnthropicAssembling
from recollect.formats.openai_chat import ChatAssembling, chat_text, chat_thinking
from recollect.formats.openai_responses import (
    RESPONSES_CALLS,
    ResponsesAssembling,
    responses_call_id,
)
from recollect.providers.streaming import ParsedReply, ReplyWire
from recollect.values.model import StopReason

_ANTHROPIC_STOPS: Final[Mapping[str, StopReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool-calls",
    "refusal": "refusal",
}
_CHAT_STOPS: Final[Mapping[str, StopReason]] = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "content_filter": "refusal",
    "refusal": "refusal",
}
_INCOMPLETE: Final[Mapping[str, StopReason]] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "content_filter": "refusal",
}


def hear_anthropic(reply: Mapping[str, Any]) -> ParsedReply | None:
    """What a message says; None where it is none."""
    content = reply.get("content")
    if reply.get("role") != "assistant" or not isinstance(content, list):
        return None
    blocks = [_mapping(block) for block in content]
    said = reply.get("stop_reason")
    return ParsedReply(
        text="".join(str(block.get("text", "")) for block in blocks if _is(block, "text")),
        thinking="".join(
            str(block.get("thinking", "")) for block in blocks if _is(block, "thinking")
        ),
        calls=tuple(
            (str(block.get("id", "")), str(block.get("name", "")))
            for block in blocks
            if _is(block, "tool_use")
        ),
        stop=_ANTHROPIC_STOPS.get(str(said), "other"),
        said_stop=said if isinstance(said, str) else None,
    )


ANTHROPIC_WIRE: Final = ReplyWire(
    path="/messages",
    assemble=AnthropicAssembling,
    hear=hear_anthropic,
    error_events=frozenset({"error"}),
)


def hear_chat(reply: Mapping[str, Any]) -> ParsedReply | None:
    """What a completion's first choice says; None where it is no completion."""
    choices = reply.get("choices")
    choice = _mapping(choices[0]) if isinstance(choices, list) and choices else {}
    message = _mapping(choice.get("message"))
    if not message:
        return None
    calls = message.get("tool_calls")
    named = [_mapping(call) for call in calls] if isinstance(calls, list) else []
    refusal = message.get("refusal")
    said = choice.get("finish_reason")
    stop = _CHAT_STOPS.get(str(said), "other")
    if refusal:
        stop = "refusal"
    elif named and stop == "stop":
        stop = "tool-calls"  # with a forced tool, and from servers that know one reason only
    return ParsedReply(
        text=chat_text(message.get("content")) or (refusal if isinstance(refusal, str) else ""),
        thinking=chat_thinking(message),
        calls=tuple(
            (str(call.get("id", "")), str(_mapping(call.get("function")).get("name", "")))
            for call in named
        ),
        stop=stop,
        said_stop=said if isinstance(said, str) else None,
    )


CHAT_WIRE: Final = ReplyWire(
    path="/chat/completions",
    assemble=ChatAssembling,
    hear=hear_chat,
    error_events=frozenset({"error"}),
)


def hear_responses(reply: Mapping[str, Any]) -> ParsedReply | None:
    """What a response says; None where it is none."""
    output = reply.get("output")
    if not isinstance(output, list):
        return None
    items = [_mapping(item) for item in output]
    parts = [part for item in items if item.get("type") == "message" for part in _list(item)]
    refusals = [str(part.get("refusal", "")) for part in parts if part.get("type") == "refusal"]
    text = "".join(str(part.get("text", "")) for part in parts if part.get("type") == "output_text")
    calls = tuple(
        (responses_call_id(item), str(item.get("name", "")))
        for item in items
        if item.get("type") in RESPONSES_CALLS
    )
    reason = _mapping(reply.get("incomplete_details")).get("reason")
    status = reply.get("status")
    return ParsedReply(
        text=text or "".join(refusals),
        thinking=_thinking(items),
        calls=calls,
        stop=_stop(status, reason, refused=bool(refusals), called=bool(calls)),
        said_stop=str(reason or status) if reason or status else None,
    )


RESPONSES_WIRE: Final = ReplyWire(
    path="/responses",
    assemble=ResponsesAssembling,
    hear=hear_responses,
    error_events=frozenset({"error", "response.failed", "response.cancelled"}),
)


def _stop(status: Any, reason: Any, *, refused: bool, called: bool) -> StopReason:
    if status == "incomplete":
        return _INCOMPLETE.get(str(reason), "other")
    if status not in ("completed", None):
        return "other"
    if refused:
        return "refusal"
    return "tool-calls" if called else "stop"


def _thinking(items: list[Mapping[str, Any]]) -> str:
    """What is shown of the reasoning: its text where there is one, else its summary."""
    said = []
    for item in items:
        if item.get("type") == "reasoning":
            parts = _list(item) or _list(item, "summary")
            said += [str(part.get("text", "")) for part in parts]
    return "".join(said)


def _list(item: Mapping[str, Any], name: str = "content") -> list[Mapping[str, Any]]:
    parts = item.get(name)
    return [_mapping(part) for part in parts] if isinstance(parts, list) else []


def _is(block: Mapping[str, Any], kind: str) -> bool:
    return block.get("type") == kind


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
