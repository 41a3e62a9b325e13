"""OpenClaw's `segments.jsonl`: one archived message a line, both ways.

Owns the fields and their spelling. A segment that was imported is written as the line it came
as; one of our own as `JSON.stringify` would write it. Pure: reads lines, opens nothing. Times
are milliseconds in the file and seconds in our values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from recollect.errors import FormatError
from recollect.formats.js_json import number_at, object_lines, stringify, text_at
from recollect.formats.json_spans import decode
from recollect.values.message import Role
from recollect.values.segment import Segment

FIELDS: Final = frozenset(
    {"id", "sessionId", "sessionKey", "timestamp", "role", "content", "tokens", "metadata"}
)
"""What the layout knows; whatever else stands in a line is carried, not read."""
_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "toolResult": "tool",
    "tool_result": "tool",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLine:
    """One line, read."""

    number: int
    line: str = field(repr=False)
    """As it stands in the file, with its line end."""
    value: dict[str, Any] = field(repr=False)
    id: str
    session: str
    role: Role
    content: str = field(repr=False)
    said_at: float | None
    tokens: int | None
    topics: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()


def read_segment_lines(lines: Iterable[bytes], passed_over: list[str]) -> Iterator[SegmentLine]:
    """Read lines one by one; what is none is told in `passed_over`."""
    for found in object_lines(lines, passed_over):
        value = found.value
        named = {key: text_at(value, key) for key in ("id", "sessionId", "content")}
        role = _ROLES.get(text_at(value, "role") or "")
        missing = [key for key, text in named.items() if text is None]
        if missing or role is None:
            what = f"no text in {' and '.join(missing)}" if missing else "a role that is not known"
            passed_over.append(f"line {found.number}: {what}")
            continue
        metadata = value.get("metadata")
        tokens, said_at = number_at(value, "tokens"), number_at(value, "timestamp")
        yield SegmentLine(
            number=found.number,
            line=found.line,
            value=value,
            id=named["id"] or "",
            session=named["sessionId"] or "",
            role=role,
            content=named["content"] or "",
            said_at=None if said_at is None else said_at / 1000,
            tokens=None if tokens is None or not 0 <= tokens < 2**53 else int(tokens),
            topics=_texts(metadata, "topics"),
            entities=_texts(metadata, "entities"),
        )


def write_segment_line(segment: Segment) -> str:
    """A segment as its line; one of our own ends with a newline."""
    if segment.foreign is not None:
        return segment.foreign
    own = {
        "id": segment.id,
        "sessionId": segment.session,
        "timestamp": round(segment.said_at * 1000),
        "role": segment.role,
        "content": segment.text,
        "tokens": segment.tokens,
        "metadata": {"topics": segment.topics, "entities": segment.entities},
    }
    return stringify(own) + "\n"


def exported_id(segment: Segment) -> str:
    """The id that names a segment in an export: its file's own, or ours."""
    if segment.foreign is not None:
        try:
            value = decode(segment.foreign.removeprefix("\ufeff").encode())
        except FormatError:  # a line somebody else wrote there; ours were read before
            value = None
        if isinstance(value, dict) and isinstance(value.get("id"), str):
            return str(value["id"])
    return segment.id


def _texts(metadata: Any, key: str) -> tuple[str, ...]:
    found = metadata.get(key) if isinstance(metadata, dict) else None
    if not isinstance(found, list):
        return ()
    return tuple(item for item in found if isinstance(item, str))
