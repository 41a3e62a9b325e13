"""The flat JSONL of OpenClaw's memory design: one role a line, tool calls and results without ids.

Owns the making of OpenAI chat messages from such lines: ids are made from line numbers and
paired by `pairing_by_name`; what an assistant said and the calls right behind it are one
message, because one call of the model wrote them. A line that is a chat message already keeps
its bytes; timestamps and other keys a request may not hold are left out of the others.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from recollect.core.formats.json_text import Fields, array_items, encode, object_fields, text_of
from recollect.core.formats.transcripts.records import (
    Progress,
    Record,
    instant_of,
    records,
    value_of,
)
from recollect.core.values.transcript import (
    RecordedRequest,
    RecordedSession,
    ShownItems,
    TranscriptItem,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


# Which call a tool result answers, where the log has no ids: by order and name


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """What one line of the log means for pairing."""

    kind: Literal["spoken", "call", "result"]
    name: str | None = None
    id: str | None = None
    """The id the log itself gives, if it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenCall:
    event: int
    stretch: int
    """How many messages were spoken before it."""
    batch: int
    """How often calls had followed results before it."""


def answered_calls(events: Sequence[LogEvent]) -> dict[int, int]:
    """For each result that has one, the position of its call, by the result's position."""
    lossy = _lossy_names(events)
    claimed = {event.id for event in events if event.kind == "result" and event.id is not None}
    open_calls: dict[str | None, deque[_OpenCall]] = {}
    by_id: dict[str, int] = {}
    answered: dict[int, int] = {}
    taken: set[int] = set()
    stretch = batch = 0
    for at, event in enumerate(events):
        if event.kind == "spoken":
            stretch += 1
        elif event.kind == "call" and event.id in claimed:
            by_id[event.id or ""] = at
        elif event.kind == "call":
            if at and events[at - 1].kind == "result":
                batch += 1
            waiting = open_calls.setdefault(event.name, deque())
            while waiting and (
                waiting[0].stretch != stretch
                or (waiting[0].batch != batch and (stretch, event.name) in lossy)
            ):
                waiting.popleft()
            waiting.append(_OpenCall(event=at, stretch=stretch, batch=batch))
        else:
            call = (
                by_id.pop(event.id, None)
                if event.id is not None
                else _oldest_open(event.name, open_calls, taken)
            )
            if call is not None:
                taken.add(call)
                answered[at] = call
    return answered


def _oldest_open(
    name: str | None, open_calls: dict[str | None, deque[_OpenCall]], taken: set[int]
) -> int | None:
    queues = [open_calls[name]] if name in open_calls else []
    if name is None:
        queues = list(open_calls.values())
    heads = []
    for waiting in queues:
        while waiting and waiting[0].event in taken:
            waiting.popleft()
        if waiting:
            heads.append(waiting[0].event)
    return min(heads, default=None)


def _lossy_names(events: Sequence[LogEvent]) -> set[tuple[int, str | None]]:
    due: Counter[tuple[int, str | None]] = Counter()
    stretch = 0
    for event in events:
        if event.kind == "spoken":
            stretch += 1
        else:
            due[stretch, event.name] += 1 if event.kind == "call" else -1
    return {key for key, count in due.items() if count > 0}


CALL_ROLES = frozenset(
    {"tool_call", "toolCall", "tool_use", "toolUse", "function_call", "functionCall"}
)
RESULT_ROLES = frozenset({"tool_result", "toolResult", "tool", "function"})
_KINDS: dict[str, Literal["assistant", "other", "call", "result"]] = {
    "assistant": "assistant",
    **dict.fromkeys(("user", "system", "developer"), "other"),
    **dict.fromkeys(CALL_ROLES, "call"),
    **dict.fromkeys(RESULT_ROLES, "result"),
}
_CHAT_KEYS = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio", "function_call"}
)
_CALL_ID_KEYS = frozenset({"tool_call_id", "toolCallId", "call_id", "callId", "tool_use_id"})
_ARGUMENT_KEYS = ("params", "arguments", "input", "args")
_OUTPUT_KEYS = ("content", "result", "output")


@dataclass(slots=True, kw_only=True)
class _LogLine:
    kind: Literal["assistant", "other", "call", "result"]
    record: Record


@dataclass(slots=True, kw_only=True)
class _Turn:
    record: Record
    fields: Fields
    """Of the line it spoke in; empty when it only called."""
    calls: list[bytes] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Log:
    items: list[TranscriptItem] = field(default_factory=list)
    requests: list[RecordedRequest] = field(default_factory=list)
    context: ShownItems = field(default_factory=ShownItems)
    turn: _Turn | None = None

    def add(self, raw: bytes, record: Record) -> None:
        item = TranscriptItem(
            raw=raw,
            line=record.line,
            timestamp=instant_of(record.fields, "timestamp"),
            derived=raw != record.raw,
        )
        self.context = self.context.then(len(self.items))
        self.items.append(item)


def read_flat(data: bytes, *, progress: Progress | None = None) -> RecordedSession:
    """Read a flat log."""
    passed_over: list[str] = []
    lines: list[_LogLine] = []
    for record in records(data, passed_over=passed_over, progress=progress):
        role = text_of(record.fields, "role")
        kind = _KINDS.get(role or "")
        if kind is None:
            passed_over.append(f"line {record.line}: unknown role {role!r}")
        else:
            lines.append(_LogLine(kind=kind, record=record))
    answers = _answers(lines)
    log = _Log()
    for line in lines:
        _take(line, answers.get(line.record.line), log)
    _end_turn(log)
    return RecordedSession(
        kind="flat",
        format="openai-chat",
        items=tuple(log.items),
        requests=tuple(log.requests),
        passed_over=tuple(passed_over),
    )


def _answers(lines: list[_LogLine]) -> dict[int, str]:
    named = {_call_id(line.record) for line in lines if line.kind == "call"}
    events: list[LogEvent] = []
    ids: list[str] = []
    numbers: list[int] = []
    for line in lines:
        for event, call_id in _events(line, named):
            events.append(event)
            ids.append(call_id)
            numbers.append(line.record.line)
    return {numbers[at]: ids[call] for at, call in answered_calls(events).items()}


def _events(line: _LogLine, named: set[str]) -> Iterator[tuple[LogEvent, str]]:
    fields = line.record.fields
    if line.kind == "call":
        call_id = _call_id(line.record)
        yield LogEvent(kind="call", name=text_of(fields, "name"), id=call_id), call_id
    elif line.kind == "result":
        given = _answered_id(fields)
        own = text_of(fields, "id")  # the call's, or only the line's
        given = own if given is None and own in named else given
        yield LogEvent(kind="result", name=text_of(fields, "name"), id=given), ""
    else:
        yield LogEvent(kind="spoken"), ""
        for raw in array_items(fields.get("tool_calls")) or []:
            call = object_fields(raw) or {}
            function = object_fields(call.get("function", b"")) or {}
            call_id = text_of(call, "id") or ""
            yield LogEvent(kind="call", name=text_of(function, "name"), id=call_id), call_id


def _take(line: _LogLine, answers: str | None, log: _Log) -> None:
    record = line.record
    if line.kind == "call":
        if log.turn is None:
            log.turn = _Turn(record=record, fields={})
        log.turn.calls.append(_wire_call(record))
        return
    _end_turn(log)
    if line.kind == "assistant":
        log.turn = _Turn(record=record, fields=record.fields)
    elif line.kind == "result":
        _take_result(record, answers, log)
    else:
        log.add(_spoken(record), record)


def _take_result(record: Record, answers: str | None, log: _Log) -> None:
    fields = record.fields
    if "tool_call_id" in fields and text_of(fields, "role") == "tool":
        log.add(_spoken(record), record)
        return
    call_id = answers or _answered_id(fields) or f"flat-result-{record.line}"
    output = next((fields[key] for key in _OUTPUT_KEYS if key in fields), b'""')
    message = b'{"role":"tool","tool_call_id":%s,"content":%s}'
    log.add(message % (encode(call_id), _as_content(output)), record)


def _end_turn(log: _Log) -> None:
    turn, log.turn = log.turn, None
    if turn is None:
        return
    log.requests.append(RecordedRequest(shown=log.context, answered=(len(log.items),)))
    if not turn.calls:
        log.add(_spoken(turn.record), turn.record)
        return
    calls = [*(array_items(turn.fields.get("tool_calls")) or []), *turn.calls]
    message = b'{"role":"assistant","content":%s,"tool_calls":[%s]}'
    log.add(message % (turn.fields.get("content", b"null"), b",".join(calls)), turn.record)


def _spoken(record: Record) -> bytes:
    chat = {key: raw for key, raw in record.fields.items() if key in _CHAT_KEYS}
    chat.setdefault("content", b"null" if "tool_calls" in chat else b'""')
    if chat == record.fields:
        return record.raw
    return b"{" + b",".join(encode(key) + b":" + raw for key, raw in chat.items()) + b"}"


def _wire_call(record: Record) -> bytes:
    fields = record.fields
    given = next((fields[key] for key in _ARGUMENT_KEYS if key in fields), b"{}")
    function = {"name": text_of(fields, "name") or "unknown", "arguments": _as_text(given)}
    return encode({"id": _call_id(record), "type": "function", "function": function})


def _call_id(record: Record) -> str:
    given = _answered_id(record.fields) or text_of(record.fields, "id")
    return given or f"flat-call-{record.line}"


def _answered_id(fields: Fields) -> str | None:
    if _CALL_ID_KEYS.isdisjoint(fields):
        return None
    return next(
        (found for key in fields if key in _CALL_ID_KEYS and (found := text_of(fields, key))), None
    )


def _as_text(raw: bytes) -> str:
    value = value_of(raw) if raw.startswith(b'"') else None
    return value if isinstance(value, str) else raw.decode()


def _as_content(raw: bytes) -> bytes:
    if raw.startswith(b'"'):
        return raw
    blocks = value_of(raw) if raw.startswith(b"[") else None
    if isinstance(blocks, list) and blocks:
        kinds = {block.get("type") if isinstance(block, dict) else None for block in blocks}
        if kinds == {"text"}:
            return raw
    return encode("" if raw == b"null" else raw.decode())
