"""pi messages as Anthropic Messages.

Results of one reply's calls share one user message, as the API wants them. Thinking goes back
with its signature, or not at all; a reply that is thinking alone is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.formats.blocks import (
    Sourced,
    WireMessage,
    blocks_of,
    call_id,
    images_of,
    text_in,
)

ID_CHARACTERS = "A-Za-z0-9_-"
LONGEST_ID = 64
"""What the API accepts as a call's id: `^[a-zA-Z0-9_-]+$`; the length as pi holds it."""


def anthropic_messages(history: Sequence[Sourced]) -> list[WireMessage]:
    """Items of `messages`."""
    written: list[WireMessage] = []
    answering = False
    for at, message, own in history:
        role = message["role"]
        if role == "toolResult":
            block = _result(message)
            if answering:
                written[-1].body["content"].append(block)
            else:
                written.append(WireMessage(body={"role": "user", "content": [block]}, source=at))
            answering = True
            continue
        content = _assistant(message, own) if role == "assistant" else _user(message)
        if content:
            body = {"role": role, "content": content}
            written.append(WireMessage(body=body, source=at))
            answering = False
    return written


def _user(message: Mapping[str, Any]) -> str | list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return _shown(blocks_of(message))


def _shown(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    for block in blocks:
        if text := text_in(block):
            shown.append({"type": "text", "text": text})
        for media_type, data in images_of([block]):
            source = {"type": "base64", "media_type": media_type, "data": data}
            shown.append({"type": "image", "source": source})
    return shown


def _assistant(message: Mapping[str, Any], own: bool) -> list[dict[str, Any]]:  # noqa: FBT001
    blocks: list[dict[str, Any]] = []
    for block in blocks_of(message):
        kind = block.get("type")
        if kind == "toolCall":
            given = block.get("arguments")
            blocks.append(
                {
                    "type": "tool_use",
                    "id": _id(block.get("id")),
                    "name": str(block.get("name") or ""),
                    "input": given if isinstance(given, Mapping) else {},
                }
            )
        elif kind == "thinking":
            blocks.extend(_thinking(block) if own else ())
        elif text := text_in(block):
            blocks.append({"type": "text", "text": text})
    said = any(not block["type"].endswith("thinking") for block in blocks)
    return blocks if said else []  # some hosts of the API refuse thinking alone


def _thinking(block: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Signed thinking; what broke off before its signature came is refused by the API."""
    signature = block.get("thinkingSignature")
    if not isinstance(signature, str) or not signature:
        return []
    if block.get("redacted") is True:
        return [{"type": "redacted_thinking", "data": signature}]
    said = block.get("thinking")
    thought = said if isinstance(said, str) else ""
    return [{"type": "thinking", "thinking": thought, "signature": signature}]


def _result(message: Mapping[str, Any]) -> dict[str, Any]:
    blocks = blocks_of(message)
    shown = _shown(blocks)
    only_text = len(shown) == 1 and shown[0]["type"] == "text"
    result: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": _id(message.get("toolCallId")),
        "content": shown[0]["text"] if only_text else shown,
    }
    if message.get("isError") is True:
        result["is_error"] = True
    return result


def _id(spelled: Any) -> str:
    return call_id(spelled, allowed=ID_CHARACTERS, longest=LONGEST_ID)
