"""What a recording is, by its content and never by its name.

Owns the telltales of every kind of recording. Looks at the first records of a JSONL file, or
at the whole of a JSON document; the kind most of them speak for is it. Raises only when
nothing speaks for any kind, and then says what it looked for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from recollect.errors import UnknownFormat
from recollect.formats.detect import RESPONSES_ITEM_TYPES
from recollect.formats.transcripts.codex import LINE_TYPES as CODEX_LINE_TYPES
from recollect.formats.transcripts.flat import CALL_ROLES, RESULT_ROLES
from recollect.formats.transcripts.pi import ENTRY_TYPES as PI_ENTRY_TYPES
from recollect.formats.transcripts.records import (
    Fields,
    array_items,
    is_utf8,
    object_fields,
    records,
    text_of,
    unpacked,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recollect.values.transcript import TranscriptKind

_SAMPLED_RECORDS = 200
_DOCUMENT_KINDS = frozenset({"request", "tau-bench", "messages"})
_WIRE_KEYS = frozenset({"tool_calls", "tool_call_id", "toolCallId", "stopReason"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The kind, and the recordings themselves where the file is not one JSONL recording."""

    kind: TranscriptKind
    parts: tuple[bytes, ...] | None = None
    """JSON of each request body, run or list of messages; None for JSONL of one recording."""
    passed_over: tuple[str, ...] = ()
    """What stood between the parts and is of another kind."""


def detect_kind(data: bytes) -> TranscriptKind:
    """What kind of recording these bytes are."""
    return find_kind(unpacked(data)).kind


def find_kind(data: bytes, *, name: str = "") -> Finding:
    """The kind of an unpacked recording, and how it is to be cut."""
    document = data.strip()
    if not document:
        raise UnknownFormat(f"{name or 'the recording'} is empty; there is nothing to read")
    first_line = document.split(b"\n", 1)[0].strip()
    finding = None
    if document.startswith(b"[") and is_utf8(document):
        finding = _kind_of_array(document)
    elif object_fields(first_line) is None and is_utf8(document):
        finding = _kind_of_object(document)  # a document printed over several lines
    finding = finding or _kind_of_lines(data)
    if finding is None:
        raise UnknownFormat(_nothing_found(first_line, name))
    return finding


def _kind_of_array(document: bytes) -> Finding | None:
    parts = array_items(document)
    kinds = [_kind_of_part(part) for part in parts or ()]
    kind = _commonest(kind for kind in kinds if kind in _DOCUMENT_KINDS)
    if parts is None or kind is None:
        return None
    if kind == "messages" and not parts[0].startswith(b"["):
        return Finding(kind=kind, parts=(document,))
    return Finding(
        kind=kind,
        parts=tuple(part for part, found in zip(parts, kinds, strict=True) if found == kind),
        passed_over=tuple(
            f"item {number}: not of the kind of the others ({kind})"
            for number, found in enumerate(kinds, 1)
            if found != kind
        ),
    )


def _kind_of_object(document: bytes) -> Finding | None:
    kind = _kind_of_part(document)
    return Finding(kind=kind, parts=(document,)) if kind in {"request", "tau-bench"} else None


def _kind_of_part(part: bytes) -> TranscriptKind | None:
    """What one element of a document is."""
    if part.startswith(b"["):
        inner = array_items(part) or []
        return "messages" if inner and _kind_of_part(inner[0]) == "messages" else None
    fields = object_fields(part)
    kind = _kind_of_record(fields) if fields is not None else None
    return "messages" if kind == "flat" else kind


def _kind_of_lines(data: bytes) -> Finding | None:
    sample = list(islice(records(data, passed_over=[]), _SAMPLED_RECORDS))
    kind = _commonest(_kind_of_record(record.fields) for record in sample)
    if kind is None:
        return None
    if kind in {"flat", "messages"}:
        return Finding(kind=_kind_of_dialogue(record.fields for record in sample))
    if kind not in _DOCUMENT_KINDS:
        return Finding(kind=kind)
    parts: list[bytes] = []
    passed_over: list[str] = []
    for record in records(data, passed_over=passed_over):
        if _kind_of_record(record.fields) == kind:
            parts.append(record.raw)
        else:
            passed_over.append(f"line {record.line}: not of the kind of the others ({kind})")
    return Finding(kind=kind, parts=tuple(parts), passed_over=tuple(passed_over))


def _commonest(kinds: Iterable[TranscriptKind | None]) -> TranscriptKind | None:
    counted = Counter(kind for kind in kinds if kind is not None)
    return counted.most_common(1)[0][0] if counted else None


def _kind_of_dialogue(lines: Iterable[Fields]) -> TranscriptKind:
    """Lines with a role: the flat log's, unless they are messages of a wire format."""
    is_wire = False
    for fields in lines:
        role = text_of(fields, "role")
        if role in CALL_ROLES or (role in RESULT_ROLES and not _WIRE_KEYS & fields.keys()):
            return "flat"
        is_wire = is_wire or _kind_of_record(fields) == "messages"
    return "messages" if is_wire else "flat"


def _kind_of_record(fields: Fields) -> TranscriptKind | None:
    kind, role = text_of(fields, "type"), text_of(fields, "role")
    found: TranscriptKind | None = None
    if "payload" in fields and (kind in CODEX_LINE_TYPES or "timestamp" in fields):
        found = "codex"
    elif kind is not None and fields.keys() & {"uuid", "leafUuid", "sessionId"}:
        found = "claude-code"
    elif kind in PI_ENTRY_TYPES and role is None and ("message" in fields or kind != "message"):
        found = "pi"
    elif "traj" in fields:
        found = "tau-bench"
    elif role is None and (_is_list(fields, "messages") or {"input", "model"} <= fields.keys()):
        found = "request"
    elif role is None and kind in RESPONSES_ITEM_TYPES:
        found = "messages"
    elif role is not None:
        is_wire = _is_list(fields, "content") or _WIRE_KEYS & fields.keys() or kind == "message"
        found = "messages" if is_wire else "flat"
    elif _is_list(fields, "input"):
        found = "request"
    return found


def _is_list(fields: Fields, key: str) -> bool:
    return fields.get(key, b"").startswith(b"[")


def _nothing_found(first_line: bytes, name: str) -> str:
    start = first_line[:60].decode(errors="replace")
    return (
        f"{name or 'the recording'} is of no kind that is known. Looked for: a pi or OpenClaw "
        "session (a line of type session), a Claude Code session (lines with uuid), a Codex "
        "rollout (lines with payload), a flat log or messages (lines with role), a request body "
        "(messages or input), a JSON array of messages or of tau-bench runs (traj). "
        f"It begins with {start!r}. Give the session file itself, unpacked, or a JSON array of "
        "the messages."
    )
