"""An entry as it may reach the disk: its secrets masked, what holds it together left alone.

Owns which fields are never masked: ids that pair calls with results and entries with parents,
names of models and tools, providers' signatures and images. Pure. Always holds: an entry without
a secret comes back as it is; a signature never stands beside a text that it did not sign.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from recollect.config.settings import Redaction
from recollect.formats.json_spans import decode
from recollect.formats.pi_entries import entry_line
from recollect.rules.json_redaction import redact_json

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
_OF_BLOCKS: Final = (
    "type",
    "id",
    "name",
    "mimeType",
    "textSignature",
    "thinkingSignature",
    "thoughtSignature",
)


def redact_entry(value: dict[str, Any], settings: Redaction) -> dict[str, Any]:
    """The entry with its secrets masked; the same object where there are none."""
    if not settings.enabled:
        return value
    masked, exact = redact_json(entry_line(value), pii=settings.pii)
    if exact:
        return value
    entry: dict[str, Any] = decode(masked)
    _restore(entry, value, _OF_ENTRIES)
    if value.get("type") == "message":
        _restore_message(entry.get("message"), value.get("message"))
    for changed, original in _pairs(entry.get("retainedTail"), value.get("retainedTail")):
        _restore_message(changed, original)
    return entry


def _restore_message(changed: Any, original: Any) -> None:
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


def _restore(changed: dict[str, Any], original: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        if key in original:
            changed[key] = original[key]


def _pairs(changed: Any, original: Any) -> list[tuple[Any, Any]]:
    if not isinstance(changed, list) or not isinstance(original, list | tuple):
        return []
    return list(zip(changed, original, strict=True))
