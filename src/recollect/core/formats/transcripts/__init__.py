"""Readers of recorded sessions. The content decides the format, not the file's name. An invalid
line never raises: it is listed in `passed_over`. An unknown format raises `UnknownFormat`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from recollect.core.formats.codec import KNOWN_ROLES, format_of
from recollect.core.formats.json_text import Fields, array_items, encode, object_fields, text_of
from recollect.core.formats.openai_responses import RESPONSES_ITEM_TYPES
from recollect.core.formats.pi_session import (
    PiEntry,
    message_of,
    migrate,
    read_session,
    summary_message,
)
from recollect.core.formats.transcripts.claude_code import read_claude_code
from recollect.core.formats.transcripts.codex import LINE_TYPES as CODEX_LINE_TYPES
from recollect.core.formats.transcripts.codex import read_codex
from recollect.core.formats.transcripts.records import (
    ModelRuns,
    ancestors,
    instant_of,
    is_utf8,
    is_written_by_model,
    no_parent,
    note_if_long,
    parents_first,
    records,
    unpack,
    usage_of,
    value_of,
    without_long_lines,
)
from recollect.core.values.model import FormatName, Usage
from recollect.core.values.transcript import (
    RecordedRequest,
    RecordedSession,
    ShownItems,
    TranscriptItem,
    TranscriptKind,
)
from recollect.errors import FormatError, UnknownFormat

__all__ = ["detect_kind", "read_transcript", "read_transcripts"]

PI_ENTRY_TYPES = frozenset(
    {"session", "message", "thinking_level_change", "model_change", "compaction", "branch_summary"}
    | {"label", "session_info", "custom", "custom_message"}
)
_SAMPLED_RECORDS = 200
"""Not measured; bounds the time to detect the format of a long recording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedRecording:
    """The format of a recording, and its JSON documents unless it is one JSONL file."""

    kind: TranscriptKind
    parts: tuple[bytes, ...] | None = None
    passed_over: tuple[str, ...] = ()


def detect_kind(data: bytes) -> TranscriptKind:
    return _detect(unpack(data)).kind


def _detect(data: bytes, *, name: str = "") -> DetectedRecording:
    document = data.strip()
    if not document:
        raise UnknownFormat(f"{name or 'the recording'} is empty; there is nothing to read")
    first_line = document.split(b"\n", 1)[0].strip()
    recording = None
    if document.startswith(b"[") and is_utf8(document):
        recording = _detect_array(document)
    elif object_fields(first_line) is None and is_utf8(document):
        # The JSON may be printed over several lines.
        part_kind = _kind_of_part(document)
        recording = (
            DetectedRecording(kind=part_kind, parts=(document,)) if part_kind == "request" else None
        )
    recording = recording or _detect_lines(data)
    if recording is None:
        raise UnknownFormat(_nothing_found(first_line, name))
    return recording


def _detect_array(document: bytes) -> DetectedRecording | None:
    parts = array_items(document)
    kinds = [_kind_of_part(part) for part in parts or ()]
    kind = _find_commonest(kind for kind in kinds if kind in ("request", "messages"))
    if parts is None or kind is None:
        return None
    if kind == "messages" and not parts[0].startswith(b"["):
        return DetectedRecording(kind=kind, parts=(document,))
    return DetectedRecording(
        kind=kind,
        parts=tuple(
            part for part, part_kind in zip(parts, kinds, strict=True) if part_kind == kind
        ),
        passed_over=tuple(
            f"item {number}: not of the kind of the others ({kind})"
            for number, part_kind in enumerate(kinds, 1)
            if part_kind != kind
        ),
    )


def _kind_of_part(part: bytes) -> TranscriptKind | None:
    if part.startswith(b"["):
        inner = array_items(part) or []
        return "messages" if inner and _kind_of_part(inner[0]) == "messages" else None
    fields = object_fields(part)
    return _kind_of_record(fields) if fields is not None else None


def _detect_lines(data: bytes) -> DetectedRecording | None:
    sample = islice(records(data, passed_over=[]), _SAMPLED_RECORDS)
    kind = _find_commonest(_kind_of_record(record.fields) for record in sample)
    if kind != "request":
        return None if kind is None else DetectedRecording(kind=kind)
    parts: list[bytes] = []
    passed_over: list[str] = []
    for record in records(data, passed_over=passed_over):
        if _kind_of_record(record.fields) == kind:
            parts.append(record.raw)
        else:
            passed_over.append(f"line {record.line}: not of the kind of the others ({kind})")
    return DetectedRecording(kind=kind, parts=tuple(parts), passed_over=tuple(passed_over))


def _find_commonest(kinds: Iterable[TranscriptKind | None]) -> TranscriptKind | None:
    counts = Counter(kind for kind in kinds if kind is not None)
    return counts.most_common(1)[0][0] if counts else None


def _kind_of_record(fields: Fields) -> TranscriptKind | None:
    kind, role = text_of(fields, "type"), text_of(fields, "role")
    record_kind: TranscriptKind | None = None
    if "payload" in fields and (kind in CODEX_LINE_TYPES or "timestamp" in fields):
        record_kind = "codex"
    elif kind is not None and fields.keys() & {"uuid", "leafUuid", "sessionId"}:
        record_kind = "claude-code"
    elif kind in PI_ENTRY_TYPES and role is None and ("message" in fields or kind != "message"):
        record_kind = "pi"
    elif role is not None or kind in RESPONSES_ITEM_TYPES:
        record_kind = "messages"
    elif fields.get("messages", fields.get("input", b"")).startswith(b"[") or (
        {"input", "model"} <= fields.keys()
    ):
        record_kind = "request"
    return record_kind


def _nothing_found(first_line: bytes, name: str) -> str:
    start = first_line[:60].decode(errors="replace")
    return (
        f"{name or 'the recording'} has no known format. Looked for: a pi or OpenClaw session "
        "(a line of type session), a Claude Code session (lines with uuid), a Codex rollout "
        "(lines with payload), messages (lines with role), a request body (messages or input), "
        f"a JSON array of messages or of such arrays. It begins with {start!r}. Pass the "
        "session file itself, unpacked, or a JSON array of the messages."
    )


def read_transcript(data: bytes, *, name: str = "") -> RecordedSession:
    """Read a recording of one session. `name` is only used in error messages."""
    sessions = read_transcripts(data, name=name)
    if len(sessions) != 1:
        raise FormatError(
            f"{name or 'the recording'} contains {len(sessions)} sessions; read them with "
            "read_transcripts and choose one"
        )
    return sessions[0]


def read_transcripts(data: bytes, *, name: str = "") -> tuple[RecordedSession, ...]:
    """Read a recording of one or more sessions."""
    data, too_long = unpack(data, name=name), list[str]()
    if not data.lstrip().startswith(b"["):  # the items of an array are checked one by one
        data = without_long_lines(data, too_long)
    if too_long and not data.strip():
        raise FormatError(f"{name or 'the recording'} has no line to read: {too_long[0]}")
    first, *other_sessions = _read_sessions(data, name)
    return (replace(first, passed_over=(*too_long, *first.passed_over)), *other_sessions)


def _read_sessions(data: bytes, name: str) -> tuple[RecordedSession, ...]:
    recording = _detect(data, name=name)
    if recording.parts is not None:
        sessions = [_read_part(recording.kind, part) for part in recording.parts]
        lines = (*recording.passed_over, *sessions[0].passed_over)
        return (replace(sessions[0], passed_over=lines), *sessions[1:])
    if recording.kind == "messages":
        passed_over: list[str] = []
        messages = [(line.line, line.raw) for line in records(data, passed_over=passed_over)]
        return (_read_messages(messages, passed_over=passed_over),)
    return (_LINE_READERS[recording.kind](data),)


def _read_part(kind: TranscriptKind, part: bytes) -> RecordedSession:
    if kind == "request":
        return _read_request(part)
    return _read_messages(list(enumerate(array_items(part) or [], 1)))


def _read_messages(
    messages: Sequence[tuple[int, bytes]],
    *,
    kind: TranscriptKind = "messages",
    format: FormatName | None = None,  # noqa: A002 - as everywhere
    passed_over: Sequence[str] = (),
) -> RecordedSession:
    lines = list(passed_over)
    items: list[TranscriptItem] = []
    messages_read: list[Fields] = []
    open_calls: dict[str, list[str]] = {}
    for number, line in messages:
        if note_if_long("item", number, line, lines):
            continue
        message = object_fields(line)
        raw = line if message is None else _flat_tool_line(message, number, open_calls) or line
        message = message if raw is line else object_fields(raw)
        if message is None or not message.keys() & {"role", "type"}:
            lines.append(f"item {number}: no message, neither role nor type: {raw[:40]!r}")
            continue
        if "role" in message and text_of(message, "role") not in KNOWN_ROLES:
            # no codec knows this role: the message would be read as a user's
            lines.append(f"item {number}: unknown role {message['role'][:40]!r}")
            continue
        usage = usage_of(message) if "usage" in message else None
        items.append(
            TranscriptItem(
                raw=raw,
                line=number,
                timestamp=instant_of(message, "timestamp"),
                usage=usage,
                derived=raw is not line,
            )
        )
        messages_read.append(message)
    name = format or format_of([item.raw for item in items])
    return RecordedSession(
        kind=kind,
        format=name,
        items=tuple(items),
        requests=_find_calls(messages_read, [item.usage for item in items], name),
        passed_over=tuple(lines),
    )


def _flat_tool_line(fields: Fields, number: int, open_calls: dict[str, list[str]]) -> bytes | None:
    """Convert a `tool_call` or `tool_result` line of OpenClaw's flat log to a chat message. A
    result answers the oldest open call of its tool, because the lines have no ids."""
    role, name = text_of(fields, "role"), text_of(fields, "name") or "tool"
    time_field = {"timestamp": text_of(fields, "timestamp")}
    if role == "tool_call":
        arguments = fields.get("params", b"{}").decode("utf-8", "replace")
        open_calls.setdefault(name, []).append(id_ := f"call-{number}")
        call = {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
        return encode({"role": "assistant", "content": None, "tool_calls": [call], **time_field})
    if role == "tool_result":
        ids = open_calls.get(name) or [f"call-{number}"]
        text = text_of(fields, "content")
        content = fields.get("content", b"").decode("utf-8", "replace") if text is None else text
        return encode(
            {"role": "tool", "tool_call_id": ids.pop(0), "content": content, **time_field}
        )
    return None


def _read_request(raw: bytes) -> RecordedSession:
    body = object_fields(raw) or {}
    spans = array_items(body.get("messages", body.get("input")))
    derived = spans is None
    if spans is None:  # `input` may be a string
        text = text_of(body, "input")
        spans = [encode({"role": "user", "content": text})] if text is not None else []
    name = format_of(spans, body=body)
    read = _read_messages(list(enumerate(spans, 1)), kind="request", format=name)
    items = tuple(
        TranscriptItem(raw=item.raw, line=item.line, timestamp=item.timestamp, derived=derived)
        for item in read.items
    )
    shown_items = ShownItems()
    for index in range(len(items)):
        shown_items = shown_items.then(index)
    tools = body.get("tools")
    return RecordedSession(
        kind="request",
        format=name,
        items=items,
        requests=(*read.requests, RecordedRequest(shown=shown_items, answered=())),
        model=text_of(body, "model"),
        system=_system_text(body.get("system", body.get("instructions"))),
        tools=tools.decode() if tools is not None and array_items(tools) else None,
        passed_over=read.passed_over,
    )


def _find_calls(
    messages: Sequence[Fields], usages: Sequence[Usage | None], name: FormatName
) -> tuple[RecordedRequest, ...]:
    runs = ModelRuns()
    shown_items = ShownItems()
    for index, message in enumerate(messages):
        if not is_written_by_model(message):
            runs.close()
        else:
            runs.answer(index, shown_items=shown_items)
            if name != "openai-responses":
                runs.close(usages[index])
        shown_items = shown_items.then(index)
    return runs.requests()


def _system_text(raw: bytes | None) -> str | None:
    value = value_of(raw)
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return None
    texts = [block.get("text") for block in value if isinstance(block, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _read_pi(data: bytes) -> RecordedSession:
    file = read_session(data)
    entries = migrate(file).entries
    notes = list(file.notes)
    items: list[TranscriptItem] = []
    own_items = [
        _take_entry(*entry_pair, items, notes)
        for entry_pair in zip(file.entries, entries, strict=True)
    ]
    parents = _pi_parents(entries, notes)
    return RecordedSession(
        kind="pi",
        format="pi",
        items=tuple(items),
        requests=_pi_requests(entries, own_items, parents, items, notes),
        session_id=file.header.id if file.header else None,
        version=str(file.version),
        model=_pi_model(entries, parents),
        compactions=sum(entry.kind == "compaction" for entry in entries),
        passed_over=tuple(notes),
    )


def _take_entry(
    old_entry: PiEntry, entry: PiEntry, items: list[TranscriptItem], notes: list[str]
) -> tuple[int, ...]:
    fields = object_fields(old_entry.line) or {}
    if entry.kind == "message":
        if entry.role is None:
            notes.append(f"line {entry.number}: a message entry without a message")
            return ()
        derived = entry.message != old_entry.message  # migrating pi's session changed its role
        source = (object_fields(entry.line) or {}) if derived else fields
        raws = [source["message"]]
    elif entry.kind == "compaction":
        derived = True
        raws = [encode(summary_message(entry)), *(array_items(fields.get("retainedTail")) or ())]
    else:
        if entry.kind not in PI_ENTRY_TYPES:
            notes.append(f"line {entry.number}: an entry of unknown type {entry.kind!r}")
        message, derived = message_of(entry), True
        raws = [] if message is None else [encode(message)]
    first = len(items)
    for index, raw in enumerate(raws):
        items.append(
            TranscriptItem(
                raw=raw,
                line=entry.number,
                timestamp=entry.milliseconds / 1000 or None,
                entry_id=old_entry.id,
                usage=usage_of(object_fields(raw) or {}) if entry.role == "assistant" else None,
                derived=derived and index == 0,
            )
        )
    return tuple(range(first, len(items)))


def _pi_parents(entries: Sequence[PiEntry], notes: list[str]) -> list[int | None]:
    by_id = {entry.id: index for index, entry in enumerate(entries) if entry.id}
    notes += [
        no_parent(entry.number, entry.parent_id)
        for entry in entries
        if entry.parent_id and entry.parent_id not in by_id
    ]
    return [by_id.get(entry.parent_id) if entry.parent_id else None for entry in entries]


def _pi_requests(
    entries: Sequence[PiEntry],
    own_items: Sequence[tuple[int, ...]],
    parents: list[int | None],
    items: Sequence[TranscriptItem],
    notes: list[str],
) -> tuple[RecordedRequest, ...]:
    contexts = [ShownItems()] * len(entries)
    requests: dict[int, RecordedRequest] = {}
    for position, parent in parents_first(parents):
        entry = entries[position]
        shown_items = before = contexts[parent] if parent is not None else ShownItems()
        added = own_items[position] if entry.kind == "compaction" or message_of(entry) else ()
        if entry.kind == "compaction":
            shown_items = ShownItems()
            if entry.retained_tail is None:
                added += _find_kept(position, entries, own_items, parents, notes)
        for item in added:
            shown_items = shown_items.then(item)
        contexts[position] = shown_items
        if entry.role == "assistant" and own_items[position]:
            (answer,) = own_items[position]
            requests[position] = RecordedRequest(
                shown=before, answered=(answer,), usage=items[answer].usage
            )
    return tuple(requests[position] for position in sorted(requests))


def _find_kept(
    position: int,
    entries: Sequence[PiEntry],
    own_items: Sequence[tuple[int, ...]],
    parents: list[int | None],
    notes: list[str],
) -> tuple[int, ...]:
    kept_items: list[int] = []
    for ancestor in ancestors(parents[position], parents):
        entry = entries[ancestor]
        if entry.kind != "compaction" and message_of(entry):
            kept_items += own_items[ancestor]
        if entry.id is not None and entry.id == entries[position].first_kept_id:
            return tuple(kept_items[::-1])
    notes.append(
        f"line {entries[position].number}: the first entry that this compaction kept is not "
        "before it, so only its summary is shown"
    )
    return ()


def _pi_model(entries: Sequence[PiEntry], parents: list[int | None]) -> str | None:
    for position in ancestors(len(entries) - 1 if entries else None, parents):
        entry = entries[position]
        model = entry.message.get("model") if entry.message else entry.text("modelId")
        if isinstance(model, str) and model:
            return model
    return None


_LINE_READERS: dict[TranscriptKind, Callable[[bytes], RecordedSession]] = {
    "pi": _read_pi,
    "claude-code": read_claude_code,
    "codex": read_codex,
}
