"""What every direction of the translation needs: pi's blocks read, call ids respelled.

Pure, lenient: a block that is not understood is left out, never an exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeAlias

ITEM_SEPARATOR = "|"
"""pi joins the two ids of a Responses call by it: `call_id|item_id`."""
_HASH_CHARS = 8

Sourced: TypeAlias = tuple[int, Mapping[str, Any], bool]
"""A pi message with its position, and whether the model that is asked has made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireMessage:
    """One message of a request, and the pi message that it begins with."""

    body: dict[str, Any] = field(repr=False)
    source: int


def blocks_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The content as blocks; a string is one text block."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, Iterable):
        return []
    return [block for block in content if isinstance(block, Mapping)]


def text_in(block: Mapping[str, Any]) -> str:
    """The text of a text block; empty for any other."""
    text = block.get("text") if block.get("type") == "text" else None
    return text if isinstance(text, str) else ""


def texts_of(blocks: Iterable[Mapping[str, Any]]) -> list[str]:
    """The texts that say something, in order."""
    return [text for block in blocks if (text := text_in(block))]


def images_of(blocks: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Media type and base64 data of the images, in order."""
    return [
        (str(block.get("mimeType") or "image/png"), block["data"])
        for block in blocks
        if block.get("type") == "image" and isinstance(block.get("data"), str)
    ]


def data_address(image: tuple[str, str]) -> str:
    """An image as the `data:` address that OpenAI's wires take."""
    return f"data:{image[0]};base64,{image[1]}"


def call_id(spelled: Any, *, allowed: str, longest: int) -> str:
    """A call's id as a provider takes it; an id that already fits stays.

    Another spelling always carries a hash of the whole id: two ids never become one.
    """
    whole = str(spelled or "")
    name = whole.partition(ITEM_SEPARATOR)[0]
    if 0 < len(name) <= longest and re.fullmatch(f"[{allowed}]+", name):
        return name
    digest = blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=_HASH_CHARS // 2)
    kept = re.sub(f"[^{allowed}]", "_", name)[: longest - _HASH_CHARS - 1]
    return f"{kept}_{digest.hexdigest()}"
