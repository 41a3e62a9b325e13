"""Readers of recorded sessions: bytes in, `RecordedSession` out.

Owns the choice of the reader, by content. Pure: opens no files. Bad lines never raise, they
are told in `passed_over`; what is of no known kind raises `UnknownFormat`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from recollect.core.formats.codec import format_of
from recollect.core.formats.json_text import Fields, array_items, encode, object_fields, text_of
from recollect.core.formats.openai_responses import RESPONSES_ITEM_TYPES
from recollect.core.formats.transcripts.claude_code import read_claude_code
from recollect.core.formats.transcripts.codex import LINE_TYPES as CODEX_LINE_TYPES
from recollect.core.formats.transcripts.codex import read_codex
from recollect.core.formats.transcripts.flat import CALL_ROLES, RESULT_ROLES, read_flat
from recollect.core.formats.transcripts.other_agents import is_aider, read_aider, read_opencode
from recollect.core.formats.transcripts.pi import ENTRY_TYPES as PI_ENTRY_TYPES
from recollect.core.formats.transcripts.pi import read_pi
from recollect.core.formats.transcripts.records import (
    PI_USAGE,
    ModelRuns,
    instant_of,
    is_utf8,
    is_written_by_model,
    records,
    unpacked,
    usage_of,
    value_of,
)
from recollect.core.values.transcript import (
    RecordedRequest,
    RecordedSession,
    ShownItems,
    TranscriptItem,
    TranscriptKind,
)
from recollect.errors import FormatError, UnknownFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from recollect.core.values.model import FormatName, Usage

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
    passed_over: tuple[str, ...] = ()


def detect_kind(data: bytes) -> TranscriptKind:
    """The kind of a recording."""
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


_LINE_READERS: dict[TranscriptKind, Callable[[bytes], RecordedSession]] = {
    "pi": read_pi,
    "claude-code": read_claude_code,
    "codex": read_codex,
    "flat": read_flat,
}


def read_transcript(data: bytes, *, name: str = "") -> RecordedSession:
    """Read a recording that holds one session; `name` is for error messages only."""
    sessions = read_transcripts(data, name=name)
    if len(sessions) != 1:
        raise FormatError(
            f"{name or 'the recording'} holds {len(sessions)} sessions; "
            "read them with read_transcripts and choose one"
        )
    return sessions[0]


def read_transcripts(data: bytes, *, name: str = "") -> tuple[RecordedSession, ...]:
    """Read a recording that may hold several sessions."""
    data = unpacked(data, name=name)
    finding = find_kind(data, name=name)
    if finding.parts is not None:
        sessions = [_read_part(finding.kind, part) for part in finding.parts]
        lines = (*finding.passed_over, *sessions[0].passed_over)
        return (replace(sessions[0], passed_over=lines), *sessions[1:])
    if finding.kind == "aider":
        return read_aider(data)
    if finding.kind == "messages":
        passed_over: list[str] = []
        messages = [(line.line, line.raw) for line in records(data, passed_over=passed_over)]
        return (read_messages(messages, passed_over=passed_over),)
    return (_LINE_READERS[finding.kind](data),)


def _read_part(kind: TranscriptKind, part: bytes) -> RecordedSession:
    if kind == "request":
        return read_request(part)
    if kind == "opencode":
        return read_opencode(part)
    return read_messages(list(enumerate(array_items(part) or [], 1)))


def read_messages(
    messages: Sequence[tuple[int, bytes]],
    *,
    kind: TranscriptKind = "messages",
    format: FormatName | None = None,  # noqa: A002 - as everywhere
    session_id: str | None = None,
    passed_over: Sequence[str] = (),
) -> RecordedSession:
    """Read a list of messages, each with its line or position."""
    lines = list(passed_over)
    items: list[TranscriptItem] = []
    messages_read: list[Fields] = []
    for number, raw in messages:
        message = object_fields(raw)
        if message is None or not message.keys() & {"role", "type"}:
            lines.append(f"item {number}: no message, neither role nor type: {raw[:40]!r}")
            continue
        usage = usage_of(message, keys=PI_USAGE) if "usage" in message else None
        items.append(
            TranscriptItem(
                raw=raw, line=number, timestamp=instant_of(message, "timestamp"), usage=usage
            )
        )
        messages_read.append(message)
    name = format or format_of([item.raw for item in items])
    return RecordedSession(
        kind=kind,
        format=name,
        items=tuple(items),
        requests=_calls(messages_read, [item.usage for item in items], name),
        session_id=session_id,
        passed_over=tuple(lines),
    )


def read_request(raw: bytes) -> RecordedSession:
    """Read one request body."""
    body = object_fields(raw) or {}
    spans = array_items(body.get("messages", body.get("input")))
    derived = spans is None
    if spans is None:  # `input` may be one plain string
        text = text_of(body, "input")
        spans = [encode({"role": "user", "content": text})] if text is not None else []
    name = format_of(spans, body=body)
    read = read_messages(list(enumerate(spans, 1)), kind="request", format=name)
    items = tuple(
        TranscriptItem(raw=item.raw, line=item.line, timestamp=item.timestamp, derived=derived)
        for item in read.items
    )
    shown = ShownItems()
    for at in range(len(items)):
        shown = shown.then(at)
    tools = body.get("tools")
    return RecordedSession(
        kind="request",
        format=name,
        items=items,
        requests=(*read.requests, RecordedRequest(shown=shown, answered=())),
        model=text_of(body, "model"),
        system=_system_text(body.get("system", body.get("instructions"))),
        tools=tools.decode() if tools is not None and array_items(tools) else None,
        passed_over=read.passed_over,
    )


def _calls(
    messages: Sequence[Fields], usages: Sequence[Usage | None], name: FormatName
) -> tuple[RecordedRequest, ...]:
    runs = ModelRuns()
    shown = ShownItems()
    for at, message in enumerate(messages):
        if not is_written_by_model(message):
            runs.close()
        else:
            runs.answer(at, shown=shown)
            if name != "openai-responses":  # there one answer is many items, here one message
                runs.close(usages[at])
        shown = shown.then(at)
    return runs.requests()


def _system_text(raw: bytes | None) -> str | None:
    value = value_of(raw)
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return None
    texts = [block.get("text") for block in value if isinstance(block, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))
