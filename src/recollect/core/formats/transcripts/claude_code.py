"""Reader of Claude Code's session files (docs/contributing/sources.md). Unknown lines are skipped,
because the format is undocumented. The lines of one response form one assistant message, and the
results of its calls form one user message. The branch to the newest line is found by `parentUuid`,
never by `logicalParentUuid`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from recollect.core.formats.json_text import Fields, array_items, object_fields, text_of
from recollect.core.formats.transcripts.host_compactions import (
    Attached,
    claude_compaction,
    read_attached,
    text_of_message,
)
from recollect.core.formats.transcripts.records import (
    Record,
    ancestors,
    instant_of,
    is_set,
    mapping_of,
    no_parent,
    parents_first,
    records,
    usage_of,
)
from recollect.core.values.model import Usage
from recollect.core.values.transcript import (
    HostCompaction,
    RecordedRequest,
    RecordedSession,
    ShownItems,
    TranscriptItem,
)

_REQUEST_KEYS = frozenset({"role", "content"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedBlock:
    """One content block: its bytes, its type and the tool call it names."""

    raw: bytes
    type: str | None
    call_id: str | None = None


@dataclass(slots=True, kw_only=True)
class LoggedMessage:
    """One message. Claude Code writes a message as several lines; each adds content blocks."""

    role: str
    original: bytes
    keys: frozenset[str]
    content: bytes
    line: int
    uuid: str
    timestamp: float | None = None
    usage: Usage | None = None
    model: str | None = None
    is_call: bool = False
    """False if the client itself wrote the message, although its role is the model's."""
    blocks: list[LoggedBlock] = field(default_factory=list)
    additions: int = 0
    answered: set[str] = field(default_factory=set)

    def add(self, blocks: list[LoggedBlock]) -> list[str]:
        """Add the blocks of a line. Return the ids of the tool calls in the line."""
        self.additions += 1
        known_ids = {block.call_id for block in self.blocks if block.type == "tool_use"}
        new_blocks = [b for b in blocks if b.type != "tool_use" or b.call_id not in known_ids]
        self.blocks += new_blocks
        return [b.call_id for b in new_blocks if b.type == "tool_use" and b.call_id is not None]

    def raw(self) -> bytes:
        if self.additions > 1:
            sorted_blocks = sorted(self.blocks, key=lambda block: block.type != "tool_result")
            content = b"[" + b",".join(block.raw for block in sorted_blocks) + b"]"
        elif self.keys == _REQUEST_KEYS:
            return self.original
        else:
            content = self.content
        return b'{"role":"%s","content":%s}' % (self.role.encode(), content)


def _content_blocks(content: bytes) -> list[LoggedBlock]:
    if content.startswith(b'"'):
        return [LoggedBlock(raw=b'{"type":"text","text":%s}' % content, type="text")]
    blocks = []
    for raw in array_items(content) or []:
        fields = object_fields(raw) or {}
        kind = text_of(fields, "type")
        key = "id" if kind == "tool_use" else "tool_use_id"
        blocks.append(LoggedBlock(raw=raw, type=kind, call_id=text_of(fields, key)))
    return blocks


_KEPT_FIELDS = frozenset(
    {"type", "subtype", "uuid", "parentUuid", "timestamp", "sessionId", "version", "message"}
    | {"isSidechain", "isMeta", "isApiErrorMessage", "isCompactSummary", "compactMetadata"}
)
"""Fields of a line that are read; `toolUseResult`, for example, repeats a tool's output."""
_SYNTHETIC_MODEL = "<synthetic>"


@dataclass(slots=True, kw_only=True)
class _SessionLine:
    record: Record
    uuid: str
    message: int | None = None


@dataclass(slots=True, kw_only=True)
class _ClaudeSession:
    lines: list[_SessionLine] = field(default_factory=list)
    messages: list[LoggedMessage] = field(default_factory=list)
    responses: dict[str, int] = field(default_factory=dict)
    callers: dict[str, int] = field(default_factory=dict)
    results: dict[int, int] = field(default_factory=dict)
    attached: list[Attached] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)


def read_claude_code(data: bytes) -> RecordedSession:
    reader = ClaudeCodeReader()
    reader.feed(data)
    return reader.session()


class ClaudeCodeReader:
    """Reads a session file while Claude Code appends to it, whole lines at a time."""

    def __init__(self) -> None:
        self._session = _ClaudeSession()
        self._seen: set[str] = set()
        self._lines = 0
        self._taken = 0
        self._has_main = False
        """True if a line belongs to a main conversation. In the file of a subagent, which has only
        sidechain lines, these are the conversation."""

    def feed(self, data: bytes) -> None:
        session, had_main = self._session, self._has_main
        passed_over = session.passed_over
        for record in records(data, passed_over=passed_over, before=self._lines):
            fields = {key: raw for key, raw in record.fields.items() if key in _KEPT_FIELDS}
            queued_prompt = _read_queued_prompt(record.fields)
            if queued_prompt is not None:
                fields |= {"type": b'"user"', "message": queued_prompt}
            uuid = text_of(fields, "uuid")
            if uuid is None:
                if _speaks(fields):
                    passed_over.append(f"line {record.line}: a message without a uuid")
            elif uuid in self._seen:
                passed_over.append(f"line {record.line}: repeats an earlier uuid")
            else:
                self._seen.add(uuid)
                attached = read_attached(record.line, record.fields)
                if attached is not None:
                    session.attached.append(attached)
                kept_record = Record(line=record.line, fields=fields, raw=b"")
                session.lines.append(_SessionLine(record=kept_record, uuid=uuid))
                if not self._has_main and _speaks(fields):
                    self._has_main = not is_set(fields, "isSidechain")
        self._lines += data.count(b"\n")
        # The messages read so far belonged to a subagent.
        if self._has_main and not had_main and self._taken:
            for line in session.lines:
                line.message = None
            self._session = _ClaudeSession(
                lines=session.lines, attached=session.attached, passed_over=passed_over
            )
            self._taken = 0

    def session(self) -> RecordedSession:
        session = self._session
        for line in session.lines[self._taken :]:
            if not (self._has_main and is_set(line.record.fields, "isSidechain")):
                _take(line, session)
        self._taken = len(session.lines)
        parents, orphans = _parents(session)
        contexts = _contexts(session, parents)
        requests = tuple(
            RecordedRequest(
                shown=shown_items, answered=(position,), usage=session.messages[position].usage
            )
            for position, shown_items in sorted(contexts.shown_to.items())
            if session.messages[position].is_call
        )
        first = session.lines[0].record.fields if session.lines else {}
        boundaries = sum(_is_boundary(line.record.fields) for line in session.lines)
        summaries = sum(is_set(line.record.fields, "isCompactSummary") for line in session.lines)
        return RecordedSession(
            kind="claude-code",
            format="anthropic",
            items=tuple(_item(message) for message in session.messages),
            requests=requests,
            session_id=text_of(first, "sessionId"),
            version=text_of(first, "version"),
            model=next((m.model for m in reversed(session.messages) if m.model), None),
            compactions=max(boundaries, summaries),
            host_compactions=tuple(_compactions(session, parents)),
            added_texts=tuple(part.text for part in session.attached if part.by_recollect),
            current=contexts.newest,
            passed_over=(*session.passed_over, *orphans),
        )


def _speaks(fields: Fields) -> bool:
    return text_of(fields, "type") in {"user", "assistant"} and "message" in fields


def _read_queued_prompt(fields: Fields) -> bytes | None:
    """Read a prompt typed while the agent worked. Claude Code logs such prompts as attachments."""
    attachment = object_fields(fields.get("attachment", b"")) or {}
    if text_of(attachment, "type") != "queued_command" or "prompt" not in attachment:
        return None
    if text_of(attachment, "commandMode") != "prompt":  # a notification, which no user typed
        return None
    # requests have no key "queued", so the item counts as derived
    return b'{"role":"user","content":%s,"queued":true}' % attachment["prompt"]


def _is_boundary(fields: Fields) -> bool:
    return text_of(fields, "subtype") == "compact_boundary"


def _take(line: _SessionLine, session: _ClaudeSession) -> None:
    fields = line.record.fields
    # An error that the client wrote as the model is never sent to the model.
    if not _speaks(fields) or is_set(fields, "isMeta") or is_set(fields, "isApiErrorMessage"):
        return
    message = object_fields(fields["message"])
    if message is None or "content" not in message:
        session.passed_over.append(f"line {line.record.line}: a message without content")
    elif text_of(fields, "type") == "assistant":
        _take_response(line, message, session)
    else:
        _take_user(line, message, session)


def _take_response(line: _SessionLine, message: Fields, session: _ClaudeSession) -> None:
    response = text_of(message, "id") or line.uuid
    position = session.responses.get(response)
    if position is None:
        position = session.responses[response] = _open("assistant", line, message, session)
    line.message = position
    logged_message = session.messages[position]
    logged_message.usage = usage_of(message) or logged_message.usage
    model = text_of(message, "model")
    logged_message.model = None if model == _SYNTHETIC_MODEL else model
    logged_message.is_call = model != _SYNTHETIC_MODEL
    for call in logged_message.add(_content_blocks(message["content"])):
        session.callers[call] = position


def _take_user(line: _SessionLine, message: Fields, session: _ClaudeSession) -> None:
    blocks = _content_blocks(message["content"])
    answers = [b.call_id for b in blocks if b.type == "tool_result" and b.call_id is not None]
    caller = session.callers.get(answers[0]) if answers else None
    position = session.results.get(caller) if caller is not None else None
    if position is None or session.messages[position].answered & set(answers):
        position = _open("user", line, message, session)
        if caller is not None:
            session.results.setdefault(caller, position)
    line.message = position
    session.messages[position].add(blocks)
    session.messages[position].answered.update(answers)


def _open(role: str, line: _SessionLine, message: Fields, session: _ClaudeSession) -> int:
    session.messages.append(
        LoggedMessage(
            role=role,
            original=line.record.fields["message"],
            keys=frozenset(message),
            content=message["content"],
            line=line.record.line,
            timestamp=instant_of(line.record.fields, "timestamp"),
            uuid=line.uuid,
        )
    )
    return len(session.messages) - 1


def _item(message: LoggedMessage) -> TranscriptItem:
    raw = message.raw()
    return TranscriptItem(
        raw=raw,
        line=message.line,
        timestamp=message.timestamp,
        entry_id=message.uuid,
        usage=message.usage,
        derived=raw is not message.original,
    )


def _parents(session: _ClaudeSession) -> tuple[list[int | None], list[str]]:
    orphans: list[str] = []
    positions = {line.uuid: position for position, line in enumerate(session.lines)}
    parents: list[int | None] = []
    for line in session.lines:
        fields = line.record.fields
        parent_uuid = None if _is_boundary(fields) else text_of(fields, "parentUuid")
        parent = positions.get(parent_uuid) if parent_uuid else None
        if parent_uuid and parent is None and line.message is not None:
            orphans.append(no_parent(line.record.line, parent_uuid))
        parents.append(parent)
    return parents, orphans


@dataclass(slots=True)
class _Contexts:
    shown_to: dict[int, ShownItems] = field(default_factory=dict)
    newest: ShownItems = field(default_factory=ShownItems)


def _contexts(session: _ClaudeSession, parents: list[int | None]) -> _Contexts:
    contexts = [ShownItems()] * len(session.lines)
    result = _Contexts()
    preserved_items = _find_preserved(session, parents)
    for position, parent in parents_first(parents):
        line = session.lines[position]
        context = contexts[parent] if parent is not None else ShownItems()
        message = line.message
        if message is not None and session.messages[message].role == "assistant":
            context = result.shown_to.setdefault(message, context).then(message)
        elif message is not None and message not in context:
            # Of the results of parallel calls, only one is on the path to the next response. Its
            # first line adds the message with all results.
            context = context.then(message)
        for item in preserved_items.get(line.uuid, ()):
            context = context.then(item)
        contexts[position] = context
    for position in range(len(session.lines) - 1, -1, -1):
        line = session.lines[position]
        if line.message is not None or _is_boundary(line.record.fields):
            result.newest = contexts[position]
            break
    return result


def _compactions(session: _ClaudeSession, parents: list[int | None]) -> Iterator[HostCompaction]:
    boundaries = [
        place for place, line in enumerate(session.lines) if _is_boundary(line.record.fields)
    ]
    preserved_items = _find_preserved(session, parents) if boundaries else {}
    for number, place in enumerate(boundaries, start=1):
        later_lines = session.lines[place + 1 : (*boundaries, None)[number]]
        first = session.lines[place].record.line
        last = next((line.record.line for line in later_lines if _is_response(line)), None)
        summary = next((line for line in later_lines if _is_host_summary(line)), None)
        message = {} if summary is None else object_fields(summary.record.fields["message"])
        yield claude_compaction(
            number,
            first,
            session.lines[place].record.fields,
            text_of_message(message or {}),
            kept_items=frozenset(preserved_items.get(summary.uuid, ()) if summary else ()),
            attached=[
                part
                for part in session.attached
                if part.line > first and (last is None or part.line < last)
            ],
            is_answered=last is not None or number < len(boundaries),
        )


def _is_response(line: _SessionLine) -> bool:
    return text_of(line.record.fields, "type") == "assistant"


def _is_host_summary(line: _SessionLine) -> bool:
    return is_set(line.record.fields, "isCompactSummary") and "message" in line.record.fields


def _find_preserved(session: _ClaudeSession, parents: list[int | None]) -> dict[str, list[int]]:
    positions = {line.uuid: position for position, line in enumerate(session.lines)}
    items_by_anchor: dict[str, list[int]] = {}
    for line in session.lines:
        if not _is_boundary(line.record.fields):
            continue
        segment = mapping_of(line.record.fields.get("compactMetadata")).get("preservedSegment")
        if not isinstance(segment, dict):
            continue
        head, tail = (positions.get(str(segment.get(key))) for key in ("headUuid", "tailUuid"))
        kept_items: list[int] = []
        for position in ancestors(tail, parents):
            message = session.lines[position].message
            if message is not None and message not in kept_items[-2:]:
                kept_items.append(message)
            if position == head:
                items_by_anchor[str(segment.get("anchorUuid"))] = kept_items[::-1]
                break
    return items_by_anchor
