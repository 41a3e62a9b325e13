"""An entry as it may reach the disk: its secrets masked, what holds it together left alone.

Owns which fields are never masked: ids that pair calls with results and entries with parents,
names of models and tools, providers' signatures and images. Pure. Always holds: an entry without
a secret comes back as it is; a signature never stands beside a text that it did not sign; one that
can be read (OpenAI's Responses: a whole item of reasoning) is masked like all that was said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from recollect.config.settings import Redaction
from recollect.errors import FormatError
from recollect.formats.json_spans import decode, encode
from recollect.formats.pi_entries import entry_line
from recollect.memory.masking.masks import Masks

_OF_ENTRIES: Final = (
    "type",
    "id",
    "parentId",
    "timestamp",
    "customType",
    "firstKeptEntryId",
    "fromId",
    "targetId",
    "provider",
    "modelId",
    "thinkingLevel",
)
_OF_MESSAGES: Final = (
    "role",
    "toolCallId",
    "toolName",
    "api",
    "provider",
    "model",
    "responseId",
    "stopReason",
    "usage",
    "timestamp",
)
_SIGNATURES: Final = ("textSignature", "thinkingSignature", "thoughtSignature")
_OF_BLOCKS: Final = ("type", "id", "name", "mimeType", *_SIGNATURES)
_SEALED: Final = ("type", "id", "encrypted_content")
"""What of a signature that is JSON nobody but its provider can read."""


def redact_entry(value: dict[str, Any], settings: Redaction) -> dict[str, Any]:
    """The entry with its secrets masked; the same object where there are none."""
    return mask_entry(value, Masks(pii=settings.pii)) if settings.enabled else value


def mask_entry(value: dict[str, Any], masks: Masks) -> dict[str, Any]:
    """The entry as these masks leave it; the same object where they find nothing."""
    line = entry_line(value)
    masked = masks.json(line).body
    if masked == line and not _says_something(value, masks):
        return value
    entry: dict[str, Any] = decode(masked)
    _restore(entry, value, _OF_ENTRIES)
    if value.get("type") == "message":
        _restore_message(entry.get("message"), value.get("message"), masks)
    for changed, original in _pairs(entry.get("retainedTail"), value.get("retainedTail")):
        _restore_message(changed, original, masks)
    return value if entry == value else entry


def _restore_message(changed: Any, original: Any, masks: Masks) -> None:
    if not isinstance(changed, dict) or not isinstance(original, Mapping):
        return
    _restore(changed, original, _OF_MESSAGES)
    for block, was in _pairs(changed.get("content"), original.get("content")):
        if not isinstance(block, dict) or not isinstance(was, Mapping):
            continue
        _restore(block, was, _OF_BLOCKS)
        if was.get("type") == "image":
            _restore(block, was, ("data",))
        if block.get("thinking") != was.get("thinking"):
            block.pop("thinkingSignature", None)  # the provider would refuse the pair
        for name in _telling(was, masks):
            block.pop(name, None)  # masked, it would be no signature


def _says_something(entry: Mapping[str, Any], masks: Masks) -> bool:
    """A signature of the entry tells a secret, which its quoting may have hidden."""
    tail = entry.get("retainedTail")
    messages = [entry.get("message"), *(tail if isinstance(tail, list | tuple) else ())]
    contents = [one.get("content") for one in messages if isinstance(one, Mapping)]
    return any(
        isinstance(block, Mapping) and _telling(block, masks)
        for content in contents
        if isinstance(content, list | tuple)
        for block in content
    )


def _telling(block: Mapping[str, Any], masks: Masks) -> list[str]:
    """The names of its signatures that are JSON and hold a secret."""
    return [name for name in _SIGNATURES if _tells(block.get(name), masks)]


def _tells(signature: Any, masks: Masks) -> bool:
    if not isinstance(signature, str) or not signature.lstrip().startswith(("{", "[")):
        return False
    try:
        said = decode(signature.encode("utf-8", "surrogatepass"))
    except FormatError:
        return False
    if isinstance(said, dict):
        said = {name: held for name, held in said.items() if name not in _SEALED}
    return bool(masks.json(encode(said)).kinds)


def _restore(changed: dict[str, Any], original: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        if key in original:
            changed[key] = original[key]


def _pairs(changed: Any, original: Any) -> list[tuple[Any, Any]]:
    if not isinstance(changed, list) or not isinstance(original, list | tuple):
        return []
    return list(zip(changed, original, strict=True))
