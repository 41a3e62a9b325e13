"""Entries of a pi session as they are written: which keys, in which order, in which spelling.

Owns the key order of every kind (pi's own, docs/sources.md) and the line. Pure. Always holds: a
line is what `JSON.stringify` makes of the same value, so that a JavaScript program that rewrites
the file changes nothing; a key without a value is left out, never null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from recollect.errors import FormatError
from recollect.formats.js_json import stringify
from recollect.formats.pi_session import PI_VERSION

_ARRAY_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_LARGEST_INDEX: Final = 2**32 - 2  # ECMA-262, array index: JavaScript puts such keys first


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What all entries begin or end with."""

    id: str
    parent_id: str | None
    timestamp: str

    def fields(self) -> dict[str, Any]:
        """In pi's order."""
        return {"id": self.id, "parentId": self.parent_id, "timestamp": self.timestamp}


def entry_line(value: Mapping[str, Any]) -> bytes:
    """The entry as its line of the file, without the line end."""
    try:
        return stringify(_ordered(value)).encode()
    except RecursionError as error:
        raise FormatError("an entry is nested too deeply to be written as JSON") from error


def header_value(
    *, session_id: str, timestamp: str, cwd: str, parent_session: str | None = None
) -> dict[str, Any]:
    """The first line of a file."""
    value = {
        "type": "session",
        "version": PI_VERSION,
        "id": session_id,
        "timestamp": timestamp,
        "cwd": cwd,
    }
    return _with(value, parentSession=parent_session)


def message_value(stamp: Stamp, message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of the conversation, as pi spells messages."""
    return {"type": "message", **stamp.fields(), "message": message}


def thinking_level_value(stamp: Stamp, level: str) -> dict[str, Any]:
    """The thinking level from here on."""
    return {"type": "thinking_level_change", **stamp.fields(), "thinkingLevel": level}


def model_change_value(stamp: Stamp, *, provider: str, model_id: str) -> dict[str, Any]:
    """The model from here on."""
    return {"type": "model_change", **stamp.fields(), "provider": provider, "modelId": model_id}


def compaction_value(
    stamp: Stamp,
    *,
    summary: str,
    first_kept_entry_id: str,
    tokens_before: int,
    details: Any = None,
    from_hook: bool | None = False,
    retained_tail: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """A compaction: the summary, and from where on the past is kept."""
    value = {
        "type": "compaction",
        **stamp.fields(),
        "summary": summary,
        "firstKeptEntryId": first_kept_entry_id,
        "tokensBefore": tokens_before,
    }
    return _with(value, details=details, fromHook=from_hook, retainedTail=retained_tail)


def branch_summary_value(
    stamp: Stamp,
    *,
    from_id: str | None,
    summary: str,
    details: Any = None,
    from_hook: bool | None = None,
) -> dict[str, Any]:
    """What happened on a branch that the conversation came back from."""
    value = {
        "type": "branch_summary",
        **stamp.fields(),
        "fromId": from_id if from_id is not None else "root",
        "summary": summary,
    }
    return _with(value, details=details, fromHook=from_hook)


def label_value(stamp: Stamp, *, target_id: str, label: str | None) -> dict[str, Any]:
    """A name for an entry; none takes it away."""
    return _with({"type": "label", **stamp.fields(), "targetId": target_id}, label=label)


def session_info_value(stamp: Stamp, *, name: str) -> dict[str, Any]:
    """A name for the session."""
    return {"type": "session_info", **stamp.fields(), "name": name}


def custom_value(stamp: Stamp, *, custom_type: str, data: Any = None) -> dict[str, Any]:
    """State of an extension; the model never sees it."""
    return {**_with({"type": "custom", "customType": custom_type}, data=data), **stamp.fields()}


def custom_message_value(
    stamp: Stamp,
    *,
    custom_type: str,
    content: str | Sequence[Mapping[str, Any]],
    display: bool,
    details: Any = None,
) -> dict[str, Any]:
    """A message of an extension, which the model reads as the user's."""
    value = {
        "type": "custom_message",
        "customType": custom_type,
        "content": content,
        "display": display,
    }
    return {**_with(value, details=details), **stamp.fields()}


def _with(value: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return value | {key: given for key, given in optional.items() if given is not None}


def _ordered(value: Any) -> Any:
    """The value with its keys in the order that JavaScript's objects have."""
    if isinstance(value, Mapping):
        inner = {key: _ordered(item) for key, item in value.items()}
        first = sorted((key for key in inner if _is_index(key)), key=int)
        return {key: inner[key] for key in first} | inner if first else inner
    if isinstance(value, list | tuple):
        return [_ordered(item) for item in value]
    return value


def _is_index(key: str) -> bool:
    return _ARRAY_INDEX.fullmatch(key) is not None and int(key) <= _LARGEST_INDEX
