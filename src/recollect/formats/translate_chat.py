"""pi messages as OpenAI Chat Completions.

Strings wherever strings do: servers that only resemble the API take nothing else. A tool's
message holds text alone, so images of results follow in a user message behind all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.formats.blocks import (
    Sourced,
    WireMessage,
    blocks_of,
    call_id,
    data_address,
    images_of,
    text_in,
    texts_of,
)
from recollect.formats.json_text import encode

ID_CHARACTERS = r"!-{}~"
"""Any printable character but the one by which pi joins two ids."""
LONGEST_ID = 40
"""OpenAI's limit on `tool_call_id`."""
REASONING_FIELD = "reasoning_content"
NO_TEXT = "(no text)"
WITH_IMAGES = "(an image follows)"


def chat_messages(history: Sequence[Sourced]) -> list[WireMessage]:
    """Items of `messages`, without the system prompt."""
    written: list[WireMessage] = []
    images: list[tuple[int, tuple[str, str]]] = []
    for at, message, own in history:
        role = message["role"]
        if role != "toolResult" and images:
            written.append(_images_behind(images))
            images = []
        if role == "toolResult":
            written.append(WireMessage(body=_result(message), source=at))
            images.extend((at, image) for image in images_of(blocks_of(message)))
            continue
        body = _assistant(message, own) if role == "assistant" else _user(message)
        if body is not None:
            written.append(WireMessage(body=body, source=at))
    if images:
        written.append(_images_behind(images))
    return written


def _images_behind(images: Sequence[tuple[int, tuple[str, str]]]) -> WireMessage:
    content = [_image(image) for _, image in images]
    return WireMessage(body={"role": "user", "content": content}, source=images[0][0])


def _image(image: tuple[str, str]) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_address(image)}}


def _user(message: Mapping[str, Any]) -> dict[str, Any] | None:
    blocks = blocks_of(message)
    if not images_of(blocks):
        said = texts_of(blocks)
        return {"role": "user", "content": "\n".join(said)} if said else None
    content: list[dict[str, Any]] = []
    for block in blocks:
        if text := text_in(block):
            content.append({"type": "text", "text": text})
        content.extend(_image(image) for image in images_of([block]))
    return {"role": "user", "content": content}


def _assistant(message: Mapping[str, Any], own: bool) -> dict[str, Any] | None:  # noqa: FBT001
    blocks = blocks_of(message)
    said = "\n".join(texts_of(blocks))
    body: dict[str, Any] = {"role": "assistant", "content": said or None}
    thoughts = [
        str(block.get("thinking") or "")
        for block in blocks
        if block.get("type") == "thinking" and block.get("thinkingSignature") == REASONING_FIELD
    ]
    if own and any(thoughts):
        body[REASONING_FIELD] = "\n".join(thoughts)
    calls = [_call(block) for block in blocks if block.get("type") == "toolCall"]
    if calls:
        body["tool_calls"] = calls
    return body if said or calls else None


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    given = block.get("arguments")
    arguments = encode(given if isinstance(given, Mapping) else {}).decode()
    return {
        "id": _id(block.get("id")),
        "type": "function",
        "function": {"name": str(block.get("name") or ""), "arguments": arguments},
    }


def _result(message: Mapping[str, Any]) -> dict[str, Any]:
    blocks = blocks_of(message)
    nothing = WITH_IMAGES if images_of(blocks) else NO_TEXT
    return {
        "role": "tool",
        "tool_call_id": _id(message.get("toolCallId")),
        "content": "\n".join(texts_of(blocks)) or nothing,
    }


def _id(spelled: Any) -> str:
    return call_id(spelled, allowed=ID_CHARACTERS, longest=LONGEST_ID)
