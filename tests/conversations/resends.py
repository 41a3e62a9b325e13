"""The same request again, rewritten the way clients rewrite it without changing what it says.

Always: the body given stays as it was; what comes back shares nothing with it.
"""

import copy
import json
import random
from typing import Any

_MARK = {"type": "ephemeral"}
_MARKED_FORMATS = ("anthropic", "openai-chat")
_MARKABLE = ("text", "image", "image_url", "tool_use", "tool_result")
_MOST_MARKS = 4  # Anthropic's limit on cache_control blocks in one request
_FIELD = {"openai-responses": "input"}


def _messages(format_name: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    found = body.get(_FIELD.get(format_name, "messages"))
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _content_blocks(format_name: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        block
        for message in _messages(format_name, body)
        if isinstance(message.get("content"), list)
        for block in message["content"]
        if isinstance(block, dict)
    ]


def move_cache_marks(format_name: str, body: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Take every cache mark off the messages and put up to four elsewhere."""
    again = copy.deepcopy(body)
    if format_name not in _MARKED_FORMATS:
        return again
    blocks = _content_blocks(format_name, again)
    for block in blocks:
        block.pop("cache_control", None)
    outside = json.dumps({**again, "messages": []}).count('"cache_control"')
    markable = [
        block
        for block in blocks
        if block.get("type") in _MARKABLE and str(block.get("text", "x")).strip()
    ]
    count = min(len(markable), rng.randint(0, max(0, _MOST_MARKS - outside)))
    for block in rng.sample(markable, count):
        block["cache_control"] = dict(_MARK)
    return again


def strings_to_blocks(format_name: str, body: dict[str, Any]) -> dict[str, Any]:
    """Turn every string content, those of tool results too, into a list of one text block."""
    again = copy.deepcopy(body)
    if format_name == "openai-responses" and isinstance(again.get("input"), str):
        again["input"] = [{"role": "user", "content": again["input"]}]
    for message in _messages(format_name, again):
        content = message.get("content")
        if isinstance(content, str) and content:
            message["content"] = [{"type": _text_type(format_name, message), "text": content}]
    for block in _content_blocks(format_name, again):
        content = block.get("content")
        if block.get("type") == "tool_result" and isinstance(content, str) and content.strip():
            block["content"] = [{"type": "text", "text": content}]
    return again


def blocks_to_strings(format_name: str, body: dict[str, Any]) -> dict[str, Any]:
    """Turn every content of one plain text block into a string."""
    again = copy.deepcopy(body)
    for message in _messages(format_name, again):
        content = message.get("content")
        if message.get("role") not in ("user", "assistant", "system", "developer"):
            continue
        if format_name == "pi" and message["role"] == "assistant":
            continue  # pi's answers are always lists
        if isinstance(content, list) and len(content) == 1 and _is_plain_text(content[0]):
            message["content"] = content[0]["text"]
    return again


def _is_plain_text(block: Any) -> bool:
    return (
        isinstance(block, dict)
        and set(block) == {"type", "text"}
        and block["type"] in ("text", "input_text", "output_text")
        and bool(block["text"])
    )


def _text_type(format_name: str, message: dict[str, Any]) -> str:
    if format_name != "openai-responses":
        return "text"
    return "output_text" if message.get("role") == "assistant" else "input_text"


def reorder_keys(body: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The same JSON with the keys of every object in another order."""

    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            keys = list(value)
            rng.shuffle(keys)
            return {key: shuffled(value[key]) for key in keys}
        if isinstance(value, list):
            return [shuffled(item) for item in value]
        return value

    made = shuffled(body)
    assert isinstance(made, dict)
    return made


def resend(format_name: str, body: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Some of these rewritings, in an order a client could apply them."""
    again = copy.deepcopy(body)
    if rng.random() < 0.5:
        rewrite = rng.choice((strings_to_blocks, blocks_to_strings))
        again = rewrite(format_name, again)
    if rng.random() < 0.7:
        again = move_cache_marks(format_name, again, rng)
    if rng.random() < 0.3:
        again = reorder_keys(again, rng)
    return again


def encoded(body: dict[str, Any], style: int = 0) -> bytes:
    """The body as JSON bytes the way some client writes it: 0 compact, others spaced or escaped."""
    if style % 3 == 1:
        return json.dumps(body, ensure_ascii=True).encode()
    if style % 3 == 2:
        return json.dumps(body, ensure_ascii=False, indent=1).encode()
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
