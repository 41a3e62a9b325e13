"""A provider's reply as the pi assistant message that a transcript keeps.

Pure. Always holds: sent back through `to_wire` to the model that gave it, the message has the
identity of the reply. Costs are zero: what a model charges is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from recollect.errors import FormatError
from recollect.formats.js_json import stringify
from recollect.formats.json_spans import decode
from recollect.formats.translate import APIS, Speaker, to_wire
from recollect.formats.translate_chat import REASONING_FIELD
from recollect.formats.translate_parts import ITEM_SEPARATOR
from recollect.values.model import StopReason
from recollect.values.request import Usage

_STOPS: Mapping[StopReason, str] = {
    "stop": "stop",
    "length": "length",
    "tool-calls": "toolUse",
    "refusal": "error",
    "other": "stop",
}
REFUSED = "The model refused to answer."


def to_pi(
    reply: Mapping[str, Any],
    speaker: Speaker,
    *,
    stop: StopReason,
    usage: Usage | None,
    timestamp: int,
) -> dict[str, Any]:
    """The assistant message of a whole reply; `timestamp` in milliseconds."""
    content = _READERS[speaker.format](reply)
    for at, block in enumerate(content):
        if block["type"] == "toolCall" and not block["id"]:  # some servers name no calls
            block["id"] = f"call_{timestamp}_{at}"
    reason = _STOPS[stop]
    calls = any(block["type"] == "toolCall" for block in content)
    if calls and reason not in ("error", "length"):  # one that was cut off is not to be run
        reason = "toolUse"
    return assistant_message(
        content,
        speaker,
        stop_reason=reason,
        usage=usage,
        timestamp=timestamp,
        error=REFUSED if reason == "error" else None,
    )


def as_resent(
    reply: Mapping[str, Any],
    speaker: Speaker,
    *,
    stop: StopReason,
    message: Mapping[str, Any] | None = None,
) -> Mapping[str, Any]:
    """The reply as the next request holds it, in the shape of a reply, with its usage.

    What the engine keeps of a reply has to be what is sent back: ids are respelled, arguments that
    are no JSON become none, reasoning that its provider did not seal goes, and so does all of a
    refusal. `message` is what `to_pi` made of it: only that one knows the ids that it gave to
    calls without any.
    """
    if message is None:
        message = to_pi(reply, speaker, stop=stop, usage=None, timestamp=0)
    sent = list(to_wire([message], speaker).messages)
    if not sent:
        return {"usage": reply.get("usage")}
    if speaker.format == "openai-responses":
        return {**reply, "output": sent}
    if speaker.format == "openai-chat":
        return {**reply, "choices": [{"message": sent[0]}]}
    return {**reply, **sent[0]}


def broken_off(
    text: str,
    speaker: Speaker,
    *,
    reason: Literal["aborted", "error"],
    timestamp: int,
    error: str | None = None,
    usage: Usage | None = None,
) -> dict[str, Any]:
    """What had come of a reply when it was aborted or failed; never sent to a model again."""
    content = [{"type": "text", "text": text}] if text else []
    return assistant_message(
        content, speaker, stop_reason=reason, usage=usage, timestamp=timestamp, error=error
    )


def assistant_message(
    content: Sequence[Mapping[str, Any]],
    speaker: Speaker,
    *,
    stop_reason: str,
    usage: Usage | None,
    timestamp: int,
    error: str | None = None,
) -> dict[str, Any]:
    """An assistant message with its keys in pi's order."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": [dict(block) for block in content],
        "api": APIS.get(speaker.format, speaker.format),
        "provider": speaker.provider_name,
        "model": speaker.model,
        "usage": pi_usage(usage),
        "stopReason": stop_reason,
        "timestamp": timestamp,
    }
    if error is not None:
        message["errorMessage"] = error
    return message


def pi_usage(usage: Usage | None) -> dict[str, Any]:
    """Usage as pi counts it: cached input apart from the rest."""
    used = usage or Usage(input_tokens=0)
    cached = used.cache_read_tokens + used.cache_write_tokens
    return {
        "input": max(0, used.input_tokens - cached),
        "output": used.output_tokens,
        "cacheRead": used.cache_read_tokens,
        "cacheWrite": used.cache_write_tokens,
        "totalTokens": used.input_tokens + used.output_tokens,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0},
    }


def _from_anthropic(reply: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = reply.get("content")
    if isinstance(content, str):
        return [_text(content)] if content else []
    blocks: list[dict[str, Any]] = []
    for block in _mappings(content):
        kind = block.get("type")
        if kind == "text" and block.get("text"):
            blocks.append(_text(str(block["text"])))
        elif kind == "thinking":
            blocks.append(
                {
                    "type": "thinking",
                    "thinking": str(block.get("thinking") or ""),
                    "thinkingSignature": str(block.get("signature") or ""),
                }
            )
        elif kind == "redacted_thinking":
            data = str(block.get("data") or "")
            blocks.append(
                {"type": "thinking", "thinking": "", "thinkingSignature": data, "redacted": True}
            )
        elif kind == "tool_use":
            blocks.append(_call(block.get("id"), block.get("name"), block.get("input")))
    return blocks


def _from_chat(reply: Mapping[str, Any]) -> list[dict[str, Any]]:
    message: Mapping[str, Any] = {}
    for choice in _mappings(reply.get("choices"))[:1]:
        said = choice.get("message")
        message = said if isinstance(said, Mapping) else {}
    blocks: list[dict[str, Any]] = []
    thought = message.get(REASONING_FIELD)
    if isinstance(thought, str) and thought:
        blocks.append(
            {"type": "thinking", "thinking": thought, "thinkingSignature": REASONING_FIELD}
        )
    content = message.get("content")
    if isinstance(content, str) and content:
        blocks.append(_text(content))
    texts = [part.get("text") for part in _mappings(content)]
    blocks.extend(_text(text) for text in texts if isinstance(text, str) and text)
    for call in _mappings(message.get("tool_calls")):
        function = call.get("function")
        fields = function if isinstance(function, Mapping) else {}
        blocks.append(_call(call.get("id"), fields.get("name"), fields.get("arguments")))
    return blocks


def _from_responses(reply: Mapping[str, Any]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for item in _mappings(reply.get("output")):
        kind = item.get("type")
        if kind == "reasoning":
            texts = [str(part.get("text") or "") for part in _mappings(item.get("summary"))]
            blocks.append(
                {
                    "type": "thinking",
                    "thinking": "\n\n".join(texts),
                    "thinkingSignature": stringify(dict(item)),
                }
            )
        elif kind == "message":
            parts = _mappings(item.get("content"))
            said = "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)
            named = {"textSignature": str(item["id"])} if item.get("id") else {}
            if said:
                blocks.append({**_text(said), **named})
        elif kind == "function_call":
            name = item.get("id")
            spelled = str(item.get("call_id") or "")
            joined = f"{spelled}{ITEM_SEPARATOR}{name}" if name else spelled
            blocks.append(_call(joined, item.get("name"), item.get("arguments")))
    return blocks


_READERS = {
    "anthropic": _from_anthropic,
    "openai-chat": _from_chat,
    "openai-responses": _from_responses,
}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _call(name_of_call: Any, tool: Any, given: Any) -> dict[str, Any]:
    """A call; arguments that are no JSON object become none, and the tool says what it misses."""
    if isinstance(given, str):
        try:
            given = decode(given.encode("utf-8", "surrogatepass")) if given.strip() else {}
        except FormatError:
            given = {}
    return {
        "type": "toolCall",
        "id": str(name_of_call or ""),
        "name": str(tool or ""),
        "arguments": dict(given) if isinstance(given, Mapping) else {},
    }


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return []
    return [one for one in value if isinstance(one, Mapping)]
