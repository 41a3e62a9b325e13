"""Readers of recorded sessions: bytes in, `RecordedSession` out.

Owns the choice of the reader, by content. Pure: opens no files. Bad lines never raise, they
are told in `passed_over`; what is of no known kind raises `UnknownFormat`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from recollect.core.formats.json_text import Fields, array_items, object_fields, text_of
from recollect.core.formats.openai_responses import RESPONSES_ITEM_TYPES
from recollect.core.formats.transcripts.aider import is_aider, read_aider
from recollect.core.formats.transcripts.claude_code import read_claude_code
from recollect.core.formats.transcripts.codex import LINE_TYPES as CODEX_LINE_TYPES
from recollect.core.formats.transcripts.codex import read_codex
from recollect.core.formats.transcripts.flat import CALL_ROLES, RESULT_ROLES, read_flat
from recollect.core.formats.transcripts.opencode import read_opencode
from recollect.core.formats.transcripts.pi import ENTRY_TYPES as PI_ENTRY_TYPES
from recollect.core.formats.transcripts.pi import read_pi
from recollect.core.formats.transcripts.plain import read_messages, read_request
from recollect.core.formats.transcripts.records import Progress, is_utf8, records, unpacked
from recollect.errors import FormatError, UnknownFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from recollect.core.values.transcript import RecordedSession, TranscriptKind

__all__ = ["detect_kind", "read_transcript", "read_transcripts"]


# What a recording is, by its content and never by its name


_SAMPLED_RECORDS = 200
_DOCUMENT_KINDS = frozenset({"request", "messages", "opencode"})
_WIRE_KEYS = frozenset({"tool_calls", "tool_call_id", "toolCallId", "stopReason"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedRecording:
    """The kind, and the recordings themselves where the file is not one JSONL recording."""

    kind: TranscriptKind
    parts: tuple[bytes, ...] | None = None
    """JSON of each request body, run or list of messages; None for JSONL of one recording."""
    passed_over: tuple[str, ...] = ()
    """What stood between the parts and is of another kind."""


def detect_kind(data: bytes) -> TranscriptKind:
    """What kind of recording these bytes are."""
    return find_kind(unpacked(data)).kind


def find_kind(data: bytes, *, name: str = "") -> DetectedRecording:
    """The kind of an unpacked recording, and how it is to be cut."""
    document = data.strip()
    if not document:
        raise UnknownFormat(f"{name or 'the recording'} is empty; there is nothing to read")
    first_line = document.split(b"\n", 1)[0].strip()
    finding = None
    if is_aider(data):
        finding = DetectedRecording(kind="aider")
    elif document.startswith(b"[") and is_utf8(document):
        finding = _kind_of_array(document)
    elif object_fields(first_line) is None and is_utf8(document):
        finding = _kind_of_object(document)  # a document printed over several lines
    finding = finding or _kind_of_lines(data)
    if finding is None:
        raise UnknownFormat(_nothing_found(first_line, name))
    return finding


def _kind_of_array(document: bytes) -> DetectedRecording | None:
    parts = array_items(document)
    kinds = [_kind_of_part(part) for part in parts or ()]
    kind = _commonest(kind for kind in kinds if kind in _DOCUMENT_KINDS)
    if parts is None or kind is None:
        return None
    if kind == "messages" and not parts[0].startswith(b"["):
        return DetectedRecording(kind=kind, parts=(document,))
    return DetectedRecording(
        kind=kind,
        parts=tuple(part for part, found in zip(parts, kinds, strict=True) if found == kind),
        passed_over=tuple(
            f"item {number}: not of the kind of the others ({kind})"
            for number, found in enumerate(kinds, 1)
            if found != kind
        ),
    )


def _kind_of_object(document: bytes) -> DetectedRecording | None:
    kind = _kind_of_part(document)
    return (
        DetectedRecording(kind=kind, parts=(document,)) if kind in {"request", "opencode"} else None
    )


def _kind_of_part(part: bytes) -> TranscriptKind | None:
    if part.startswith(b"["):
        inner = array_items(part) or []
        return "messages" if inner and _kind_of_part(inner[0]) == "messages" else None
    fields = object_fields(part)
    kind = _kind_of_record(fields) if fields is not None else None
    return "messages" if kind == "flat" else kind


def _kind_of_lines(data: bytes) -> DetectedRecording | None:
    sample = list(islice(records(data, passed_over=[]), _SAMPLED_RECORDS))
    kind = _commonest(_kind_of_record(record.fields) for record in sample)
    if kind is None:
        return None
    if kind in {"flat", "messages"}:
        return DetectedRecording(kind=_kind_of_dialogue(record.fields for record in sample))
    if kind not in _DOCUMENT_KINDS:
        return DetectedRecording(kind=kind)
    parts: list[bytes] = []
    passed_over: list[str] = []
    for record in records(data, passed_over=passed_over):
        if _kind_of_record(record.fields) == kind:
            parts.append(record.raw)
        else:
            passed_over.append(f"line {record.line}: not of the kind of the others ({kind})")
    return DetectedRecording(kind=kind, parts=tuple(parts), passed_over=tuple(passed_over))


def _commonest(kinds: Iterable[TranscriptKind | None]) -> TranscriptKind | None:
    counted = Counter(kind for kind in kinds if kind is not None)
    return counted.most_common(1)[0][0] if counted else None


def _kind_of_dialogue(lines: Iterable[Fields]) -> TranscriptKind:
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
    elif "info" in fields and _is_list(fields, "messages"):
        found = "opencode"
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
        "(messages or input), a session that opencode exported (info and messages), aider's "
        "histories, a JSON array of messages or of such arrays. "
        f"It begins with {start!r}. Give the session file itself, unpacked, or a JSON array of "
        "the messages."
    )


_LINE_READERS: dict[TranscriptKind, Callable[..., RecordedSession]] = {
    "pi": read_pi,
    "claude-code": read_claude_code,
    "codex": read_codex,
    "flat": read_flat,
}


def read_transcript(
    data: bytes, *, name: str = "", progress: Progress | None = None
) -> RecordedSession:
    """Read a recording that holds one session.

    `name` is for error messages only. `progress(done_bytes, total_bytes)` is called now and
    then, with unpacked bytes.
    """
    sessions = read_transcripts(data, name=name, progress=progress)
    if len(sessions) != 1:
        raise FormatError(
            f"{name or 'the recording'} holds {len(sessions)} sessions; "
            "read them with read_transcripts and choose one"
        )
    return sessions[0]


def read_transcripts(
    data: bytes, *, name: str = "", progress: Progress | None = None
) -> tuple[RecordedSession, ...]:
    """Read a recording that may hold several sessions."""
    data = unpacked(data, name=name)
    finding = find_kind(data, name=name)
    if finding.parts is not None:
        return _read_parts(finding, finding.parts, progress)
    if finding.kind == "aider":
        return read_aider(data, progress=progress)
    if finding.kind == "messages":
        return (_read_message_lines(data, progress),)
    return (_LINE_READERS[finding.kind](data, progress=progress),)


def _read_parts(
    finding: DetectedRecording, parts: tuple[bytes, ...], progress: Progress | None
) -> tuple[RecordedSession, ...]:
    total = sum(map(len, parts))
    done = 0
    sessions: list[RecordedSession] = []
    for part in parts:
        if finding.kind == "request":
            sessions.append(read_request(part))
        elif finding.kind == "opencode":
            sessions.append(read_opencode(part))
        else:
            sessions.append(read_messages(list(enumerate(array_items(part) or [], 1))))
        done += len(part)
        if progress is not None:
            progress(done, total)
    if finding.passed_over:  # told once, with the first session of the file
        lines = (*finding.passed_over, *sessions[0].passed_over)
        sessions[0] = replace(sessions[0], passed_over=lines)
    return tuple(sessions)


def _read_message_lines(data: bytes, progress: Progress | None) -> RecordedSession:
    passed_over: list[str] = []
    lines = records(data, passed_over=passed_over, progress=progress)
    messages = [(line.line, line.raw) for line in lines]
    return read_messages(messages, passed_over=passed_over)
