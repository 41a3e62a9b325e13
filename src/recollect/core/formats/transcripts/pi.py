"""pi and OpenClaw session files, versions 1 to 3 (docs/sources.md).

Owns how a session's entries become what the model was shown: the walk from an entry to the
root, the last compaction on it, what of the other entries the model sees. Never repairs what
the session holds: aborted turns and calls without result are shown as pi's rebuild has them.
A message entry's item is the file's own bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from recollect.core.formats.json_text import Fields, array_items, encode, object_fields, text_of
from recollect.core.formats.summaries import (
    PI_BRANCH_CLOSING,
    PI_BRANCH_OPENING,
    PI_CLOSING,
    PI_OPENING,
)
from recollect.core.formats.transcripts.records import (
    PI_USAGE,
    Progress,
    Record,
    ancestors,
    instant_of,
    is_set,
    no_parent,
    parents_first,
    records,
    usage_of,
    value_of,
)
from recollect.core.values.model import Usage
from recollect.core.values.transcript import (
    RecordedRequest,
    RecordedSession,
    ShownItems,
    TranscriptItem,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

ENTRY_TYPES = frozenset(
    {
        "session",
        "message",
        "thinking_level_change",
        "model_change",
        "compaction",
        "branch_summary",
        "label",
        "session_info",
        "custom",
        "custom_message",
    }
)
ROLES = frozenset(
    {"system", "user", "assistant", "toolResult", "bashExecution", "custom", "hookMessage"}
    | {"branchSummary", "compactionSummary"}
)
BLOCK_TYPES = frozenset({"text", "thinking", "image", "toolCall"})


@dataclass(slots=True, kw_only=True)
class _Entry:
    line: int
    kind: str
    id: str | None
    parent_id: str | None
    item: int | None = None
    is_shown: bool = True
    is_answer: bool = False
    model: str | None = None
    first_kept: str | int | None = None
    retained: list[int] | None = None


@dataclass(slots=True, kw_only=True)
class _PiFile:
    header: Fields | None = None
    entries: list[_Entry] = field(default_factory=list)
    numbered: list[int | None] = field(default_factory=list)
    """Entry positions by line as version 1 counts them, the header included."""
    items: list[TranscriptItem] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)

    def add_item(
        self, raw: bytes, record: Record, *, derived: bool = False, usage: Usage | None = None
    ) -> int:
        self.items.append(
            TranscriptItem(
                raw=raw,
                line=record.line,
                timestamp=instant_of(record.fields, "timestamp"),
                entry_id=text_of(record.fields, "id"),
                usage=usage,
                derived=derived,
            )
        )
        return len(self.items) - 1


def read_pi(data: bytes, *, progress: Progress | None = None) -> RecordedSession:
    """Read a session file, every branch of it."""
    session = _PiFile()
    for record in records(data, passed_over=session.passed_over, progress=progress):
        _take(record, session)
    if session.header is None:
        session.passed_over.append("no session header: read as if its first line were missing")
    parents = _parents(session)
    requests = _requests(session, parents)
    header = session.header or {}
    return RecordedSession(
        kind="pi",
        format="pi",
        items=tuple(session.items),
        requests=requests,
        session_id=text_of(header, "id"),
        version=str(value_of(header.get("version")) or 1),
        model=_model(session, parents),
        compactions=sum(entry.kind == "compaction" for entry in session.entries),
        passed_over=tuple(session.passed_over),
    )


def _take(record: Record, session: _PiFile) -> None:
    kind = text_of(record.fields, "type")
    if kind == "session":
        session.numbered.append(None)
        if session.header is None:
            session.header = record.fields
        return
    entry = _Entry(
        line=record.line,
        kind=kind or "",
        id=text_of(record.fields, "id"),
        parent_id=text_of(record.fields, "parentId"),
    )
    session.numbered.append(len(session.entries))
    session.entries.append(entry)
    if kind == "message":
        _take_message(record, entry, session)
    elif kind == "compaction":
        _take_compaction(record, entry, session)
    elif kind == "branch_summary":
        text = PI_BRANCH_OPENING + (text_of(record.fields, "summary") or "") + PI_BRANCH_CLOSING
        entry.item = _add_as_user(record, [{"type": "text", "text": text}], session)
    elif kind == "custom_message":
        content = value_of(record.fields.get("content"))
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        entry.item = _add_as_user(record, blocks, session)
    elif kind == "model_change":
        entry.model = text_of(record.fields, "modelId")
    elif kind not in ENTRY_TYPES:
        session.passed_over.append(f"line {record.line}: an entry of unknown type {kind!r}")


def _take_message(record: Record, entry: _Entry, session: _PiFile) -> None:
    raw = record.fields.get("message", b"")
    message = object_fields(raw)
    role = text_of(message, "role") if message is not None else None
    if message is None or role is None:
        session.passed_over.append(f"line {record.line}: a message entry without a message")
        return
    usage = usage_of(message, keys=PI_USAGE) if role == "assistant" else None
    if role == "hookMessage":  # what version 3 calls custom
        raw = _with_role(message, "custom")
    entry.item = session.add_item(raw, record, derived=role == "hookMessage", usage=usage)
    entry.is_shown = not is_set(message, "excludeFromContext")
    entry.is_answer = role == "assistant"
    if entry.is_answer:
        entry.model = text_of(message, "model")


def _take_compaction(record: Record, entry: _Entry, session: _PiFile) -> None:
    text = PI_OPENING + (text_of(record.fields, "summary") or "") + PI_CLOSING
    entry.item = _add_as_user(record, [{"type": "text", "text": text}], session)
    kept = value_of(record.fields.get("firstKeptEntryId"))
    if not isinstance(kept, str):
        kept = value_of(record.fields.get("firstKeptEntryIndex"))
    entry.first_kept = kept if isinstance(kept, str | int) else None
    tail = array_items(record.fields.get("retainedTail"))
    if tail is not None:
        entry.retained = [session.add_item(raw, record) for raw in tail]


def _add_as_user(record: Record, content: list[Any], session: _PiFile) -> int:
    at = instant_of(record.fields, "timestamp")
    message = {"role": "user", "content": content, "timestamp": round((at or 0) * 1000)}
    return session.add_item(encode(message), record, derived=True)


def _with_role(message: Mapping[str, bytes], role: str) -> bytes:
    renamed = {**message, "role": encode(role)}
    return b"{" + b",".join(encode(key) + b":" + raw for key, raw in renamed.items()) + b"}"


def _parents(session: _PiFile) -> list[int | None]:
    entries = session.entries
    if not any(entry.id for entry in entries):
        return [position - 1 if position else None for position in range(len(entries))]
    by_id = {entry.id: position for position, entry in enumerate(entries) if entry.id}
    parents: list[int | None] = []
    for entry in entries:
        parent = by_id.get(entry.parent_id) if entry.parent_id else None
        if entry.parent_id and parent is None:
            session.passed_over.append(no_parent(entry.line, entry.parent_id))
        parents.append(parent)
    return parents


def _requests(session: _PiFile, parents: list[int | None]) -> tuple[RecordedRequest, ...]:
    contexts = [ShownItems()] * len(session.entries)
    requests: dict[int, RecordedRequest] = {}
    for position, parent in parents_first(parents):
        entry = session.entries[position]
        before = contexts[parent] if parent is not None else ShownItems()
        if entry.item is None or not entry.is_shown:
            contexts[position] = before
        elif entry.kind == "compaction":
            contexts[position] = _after_compaction(position, session, parents)
        else:
            contexts[position] = before.then(entry.item)
        if entry.is_answer and entry.item is not None:
            requests[position] = RecordedRequest(
                shown=before, answered=(entry.item,), usage=session.items[entry.item].usage
            )
    return tuple(requests[position] for position in sorted(requests))


def _after_compaction(position: int, session: _PiFile, parents: list[int | None]) -> ShownItems:
    entry = session.entries[position]
    assert entry.item is not None
    shown = ShownItems().then(entry.item)
    kept = entry.retained
    if kept is None:
        kept = _kept_before(position, session, parents)
    for item in kept:
        shown = shown.then(item)
    return shown


def _kept_before(position: int, session: _PiFile, parents: list[int | None]) -> list[int]:
    compaction = session.entries[position]
    first = compaction.first_kept
    if isinstance(first, int):
        numbered = session.numbered
        target = numbered[first] if 0 <= first < len(numbered) else None
    else:
        target = None
    kept: list[int] = []
    for at in ancestors(parents[position], parents):
        entry = session.entries[at]
        if entry.kind != "compaction" and entry.item is not None and entry.is_shown:
            kept.append(entry.item)
        if at == target or (entry.id is not None and entry.id == first):
            return kept[::-1]
    session.passed_over.append(
        f"line {compaction.line}: the first entry this compaction kept is not before it, "
        "so only its summary stands for the past"
    )
    return []


def _model(session: _PiFile, parents: list[int | None]) -> str | None:
    last = len(session.entries) - 1
    for at in ancestors(last if last >= 0 else None, parents):
        model = session.entries[at].model
        if model:
            return model
    return text_of(session.header or {}, "modelId")
