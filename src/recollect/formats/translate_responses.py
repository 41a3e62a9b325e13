"""pi messages as items of OpenAI's Responses.

Reasoning goes back sealed, to the model that made it, and only then do the items it led to
carry their ids: the API refuses an item whose reasoning it cannot find.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.errors import FormatError
from recollect.formats.blocks import (
    ITEM_SEPARATOR,
    Sourced,
    WireMessage,
    blocks_of,
    call_id,
    data_address,
    images_of,
    text_in,
)
from recollect.formats.json_text import decode, encode

ID_CHARACTERS = "A-Za-z0-9_-"
LONGEST_ID = 64
"""OpenAI's limit on `call_id` and on ids of items."""
_REASONING_KEYS = ("id", "type", "summary", "encrypted_content", "content")
"""What of a reasoning item is sent back; its status is not an input."""


def responses_items(history: Sequence[Sourced]) -> list[WireMessage]:
    """Items of `input`."""
    items: list[WireMessage] = []
    for at, message, own in history:
        role = message["role"]
        if role == "assistant":
            written = _assistant(message, own)
        elif role == "toolResult":
            written = [_result(message)]
        else:
            content = _shown(blocks_of(message))
            written = [{"type": "message", "role": "user", "content": content}] if content else []
        items.extend(WireMessage(body=item, source=at) for item in written)
    return items


def _shown(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    for block in blocks:
        if text := text_in(block):
            shown.append({"type": "input_text", "text": text})
        for image in images_of([block]):
            address = data_address(image)
            shown.append({"type": "input_image", "detail": "auto", "image_url": address})
    return shown


def _assistant(message: Mapping[str, Any], own: bool) -> list[dict[str, Any]]:  # noqa: FBT001
    blocks = blocks_of(message)
    sealed = {id(block): item for block in blocks if own and (item := _reasoning(block))}
    keeps_ids = bool(sealed)
    items: list[dict[str, Any]] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "thinking":
            items.extend([sealed[id(block)]] if id(block) in sealed else [])
        elif kind == "toolCall":
            items.append(_call(block, keeps_ids=keeps_ids))
        elif text := text_in(block):
            items.append(_said(block, text, keeps_ids=keeps_ids))
    said = any(item["type"] != "reasoning" for item in items)
    return items if said else []  # the API wants an item behind its reasoning


def _reasoning(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """The item that pi keeps whole in the signature; None where it is not sealed."""
    signature = block.get("thinkingSignature")
    if block.get("type") != "thinking" or not isinstance(signature, str):
        return None
    try:
        item = decode(signature.encode("utf-8", "surrogatepass"))
    except FormatError:
        return None
    if not isinstance(item, dict) or not item.get("encrypted_content"):
        return None
    return {name: item[name] for name in _REASONING_KEYS if item.get(name) is not None}


def _said(block: Mapping[str, Any], text: str, *, keeps_ids: bool) -> dict[str, Any]:
    item: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    name = block.get("textSignature")
    if keeps_ids and isinstance(name, str) and 0 < len(name) <= LONGEST_ID:
        item["id"] = name
        item["status"] = "completed"
    return item


def _call(block: Mapping[str, Any], *, keeps_ids: bool) -> dict[str, Any]:
    given = block.get("arguments")
    item: dict[str, Any] = {
        "type": "function_call",
        "call_id": _id(block.get("id")),
        "name": str(block.get("name") or ""),
        "arguments": encode(given if isinstance(given, Mapping) else {}).decode(),
    }
    name = str(block.get("id") or "").partition(ITEM_SEPARATOR)[2]
    if keeps_ids and 0 < len(name) <= LONGEST_ID:
        item["id"] = name
    return item


def _result(message: Mapping[str, Any]) -> dict[str, Any]:
    shown = _shown(blocks_of(message))
    only_text = len(shown) == 1 and shown[0]["type"] == "input_text"
    output: Any = shown[0]["text"] if only_text else shown or ""
    return {
        "type": "function_call_output",
        "call_id": _id(message.get("toolCallId")),
        "output": output,
    }


def _id(spelled: Any) -> str:
    return call_id(spelled, allowed=ID_CHARACTERS, longest=LONGEST_ID)
