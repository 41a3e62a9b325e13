"""An entry whose content is forgotten: what is left of it, so that the file still holds together.

Owns which fields stay: ids, parents, times, roles, names of models and tools, the ids that pair
calls with results. Pure. Always holds: every text that somebody said is gone from what comes
back; a call and its result still belong together; blanking twice is blanking once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from recollect.session.undo import UNDOES

FORGOTTEN: Final = "[forgotten]"
"""Stands where something was said."""
WITHDRAWN: Final = (
    "The summary that stood here was withdrawn: something that it stood for was forgotten."
)

_ENTRY_FIELDS: Final = (
    "type",
    "id",
    "parentId",
    "timestamp",
    "customType",
    "display",
    "firstKeptEntryId",
    "firstKeptEntryIndex",
    "tokensBefore",
    "fromHook",
    "fromId",
    "targetId",
)
_MESSAGE_FIELDS: Final = (
    "role",
    "customType",
    "display",
    "api",
    "provider",
    "model",
    "usage",
    "stopReason",
    "toolCallId",
    "toolName",
    "isError",
    "exitCode",
    "cancelled",
    "truncated",
    "excludeFromContext",
    "fromId",
    "tokensBefore",
    "timestamp",
)
_DETAILS: Final = (UNDOES, "recollect")
"""Keys of a compaction's `details` that hold numbers and ids alone; the second is the agent's."""
_SETTINGS_OF_A_SESSION: Final = ("model_change", "thinking_level_change", "session")
_SPOKEN_FIELDS: Final = {"session_info": "name", "label": "label"}
_OPAQUE: Final = ("textSignature", "thinkingSignature", "thoughtSignature")
_UNSPOKEN: Final = frozenset({"type", "role", "timestamp", "usage", "stopReason", "version"})
_OWN_KINDS: Final = "recollect."  # custom entries of our agent: their keys are ours, not content
_SUMMARIES: Final = ("compaction", "branch_summary")


def blank_entry(value: Mapping[str, Any]) -> dict[str, Any]:
    """The entry without anything that was said; keys in the order they had."""
    kind = value.get("type")
    if kind in _SETTINGS_OF_A_SESSION:
        return dict(value)
    if kind in _SUMMARIES:
        return blank_summary(value, tail=[blank_message(one) for one in _messages(value)])
    left: dict[str, Any] = {}
    for key, held in value.items():
        if key in _ENTRY_FIELDS:
            left[key] = held
        elif key == "message" and isinstance(held, Mapping):
            left[key] = blank_message(held)
        elif key == "content":
            left[key] = _content(held)
        elif _SPOKEN_FIELDS.get(str(kind)) == key:
            left[key] = FORGOTTEN
    return left


def blank_summary(
    value: Mapping[str, Any], *, tail: list[Any] | None = None, withdraw: bool = True
) -> dict[str, Any]:
    """A compaction or a branch's summary, withdrawn or not, with `tail` for what it carries."""
    left: dict[str, Any] = {}
    for key, held in value.items():
        if key == "retainedTail":
            left[key] = held if tail is None else tail
        elif key in _ENTRY_FIELDS or not withdraw:
            left[key] = held
        elif key == "summary":
            left[key] = WITHDRAWN
        elif key == "details" and isinstance(held, Mapping):
            kept = {name: held[name] for name in _DETAILS if name in held}
            if kept:
                left[key] = kept
    return left


def blank_message(message: Any) -> Any:
    """A message of pi without what was said in it."""
    if not isinstance(message, Mapping):
        return FORGOTTEN
    left: dict[str, Any] = {}
    for key, held in message.items():
        if key in _MESSAGE_FIELDS:
            left[key] = held
        elif key == "content":
            left[key] = _content(held)
        elif key in ("command", "output", "summary"):
            left[key] = FORGOTTEN if key != "output" else ""
    return left


def said_in(value: Mapping[str, Any]) -> Iterator[str]:
    """Every string of an entry that somebody said, or that was made of it; no ids, no images."""
    if value.get("type") in _SETTINGS_OF_A_SESSION:
        return
    own = str(value.get("customType")).startswith(_OWN_KINDS)
    for key, held in value.items():
        if key in _ENTRY_FIELDS or key == "retainedTail":
            continue
        if key == "message":
            yield from said_in_message(held)
        elif key == "content":
            yield from _said_in_blocks(held)
        elif key == "details" and value.get("type") in _SUMMARIES and isinstance(held, Mapping):
            yield from _strings({name: held[name] for name in held if name not in _DETAILS})
        else:
            yield from _strings(held, keys=not own)


def said_in_message(message: Any) -> Iterator[str]:
    """The same of a message."""
    if not isinstance(message, Mapping):
        yield from _strings(message)
        return
    for key, held in message.items():
        if key == "content":
            yield from _said_in_blocks(held)
        elif key not in _MESSAGE_FIELDS:
            yield from _strings(held)


def named_in(value: Any) -> Iterator[str]:
    """Every string that blanking leaves: ids, names of models, tools and folders."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, held in value.items():
            opaque = key in _OPAQUE or (key == "data" and value.get("type") == "image")
            if key not in _UNSPOKEN and not opaque:
                yield from named_in(held)
    elif isinstance(value, list):
        for held in value:
            yield from named_in(held)


def _content(content: Any) -> Any:
    if not content:
        return content
    if not isinstance(content, list):
        return FORGOTTEN
    calls: list[dict[str, Any]] = [
        {"type": "toolCall", "id": block.get("id"), "name": block.get("name"), "arguments": {}}
        for block in content
        if isinstance(block, Mapping) and block.get("type") == "toolCall"
    ]
    # A reply that only called tools says nothing, so nothing stands for it.
    said = [{"type": "text", "text": FORGOTTEN}] if len(calls) < len(content) else []
    return [*said, *calls]


def _said_in_blocks(content: Any) -> Iterator[str]:
    if not isinstance(content, list):
        yield from _strings(content)
        return
    for block in content:
        if not isinstance(block, Mapping):
            yield from _strings(block)
            continue
        kind = block.get("type")
        unsaid = {"type", "id", "mimeType", *_OPAQUE, *(("data",) if kind == "image" else ())}
        for key, held in block.items():
            if key not in unsaid:
                yield from _strings(held)


def _strings(value: Any, *, keys: bool = True) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, held in value.items():
            if keys:
                yield str(key)
            yield from _strings(held, keys=keys)
    elif isinstance(value, list | tuple):
        for held in value:
            yield from _strings(held, keys=keys)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _messages(value: Mapping[str, Any]) -> list[Any]:
    found = value.get("retainedTail")
    return found if isinstance(found, list) else []
