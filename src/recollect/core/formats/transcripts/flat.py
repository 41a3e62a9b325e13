"""The flat JSONL of OpenClaw's memory design: one role per line, tool calls without ids.

An assistant's text and the calls behind it are one message. A result without an id answers the
oldest open call of its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from recollect.core.formats.json_text import Fields, array_items, encode, text_of
from recollect.core.formats.transcripts.records import Record, instant_of, records, value_of
from recollect.core.values.transcript import (
    RecordedRequest,
    RecordedSession,
    ShownItems,
    TranscriptItem,
)

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
_CALL_ID_KEYS = ("tool_call_id", "toolCallId", "call_id", "callId", "tool_use_id")
_ARGUMENT_KEYS = ("params", "arguments", "input", "args")
_OUTPUT_KEYS = ("content", "result", "output")


@dataclass(slots=True)
class _OpenCalls:
    """The calls without an explicit id that have no result yet, in their order."""

    waiting: list[tuple[str, str | None]] = field(default_factory=list)
    from_before: int = 0
    """So many were made before the newest message: a newer call of their name replaces them."""

    def add(self, call_id: str, name: str | None) -> None:
        old = self.waiting[: self.from_before]
        kept = [call for call in old if call[1] != name]
        self.waiting[: self.from_before] = kept
        self.from_before = len(kept)
        self.waiting.append((call_id, name))

    def take(self, own_id: str | None, name: str | None) -> str | None:
        """The call that a result answers: by its id, else the oldest of its name."""
        by_id = [call for call in self.waiting if call[0] == own_id]
        by_name = [call for call in self.waiting if name is None or call[1] == name]
        for call in (*by_id, *by_name):
            self.from_before -= self.waiting.index(call) < self.from_before
            self.waiting.remove(call)
            return call[0]
        return None


@dataclass(slots=True, kw_only=True)
class _Turn:
    """An assistant message in the making: its text, then its calls."""

    record: Record
    fields: Fields
    calls: list[bytes] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Log:
    items: list[TranscriptItem] = field(default_factory=list)
    requests: list[RecordedRequest] = field(default_factory=list)
    context: ShownItems = field(default_factory=ShownItems)
    turn: _Turn | None = None
    calls: _OpenCalls = field(default_factory=_OpenCalls)

    def add(self, raw: bytes, record: Record) -> None:
        item = TranscriptItem(
            raw=raw,
            line=record.line,
            timestamp=instant_of(record.fields, "timestamp"),
            derived=raw != record.raw,
        )
        self.context = self.context.then(len(self.items))
        self.items.append(item)

    def end_turn(self) -> None:
        """Write the assistant message in the making: one call of the model."""
        turn, self.turn = self.turn, None
        if turn is None:
            return
        self.requests.append(RecordedRequest(shown=self.context, answered=(len(self.items),)))
        if not turn.calls:
            self.add(_spoken(turn.record), turn.record)
            return
        calls = [*(array_items(turn.fields.get("tool_calls")) or []), *turn.calls]
        message = b'{"role":"assistant","content":%s,"tool_calls":[%s]}'
        self.add(message % (turn.fields.get("content", b"null"), b",".join(calls)), turn.record)


def read_flat(data: bytes) -> RecordedSession:
    """Read a flat log."""
    passed_over: list[str] = []
    log = _Log()
    for record in records(data, passed_over=passed_over):
        role = text_of(record.fields, "role")
        kind = _KINDS.get(role or "")
        if kind is None:
            passed_over.append(f"line {record.line}: unknown role {role!r}")
        elif kind == "call":
            _take_call(record, log)
        else:
            log.end_turn()
            if kind == "result":
                _take_result(record, log)
                continue
            log.calls.from_before = len(log.calls.waiting)
            if kind == "assistant":
                log.turn = _Turn(record=record, fields=record.fields)
            else:
                log.add(_spoken(record), record)
    log.end_turn()
    return RecordedSession(
        kind="flat",
        format="openai-chat",
        items=tuple(log.items),
        requests=tuple(log.requests),
        passed_over=tuple(passed_over),
    )


def _take_call(record: Record, log: _Log) -> None:
    fields = record.fields
    explicit, name = _explicit_id(fields), text_of(fields, "name")
    call_id = explicit or text_of(fields, "id") or f"flat-call-{record.line}"
    if explicit is None:
        log.calls.add(call_id, name)
    given = next((fields[key] for key in _ARGUMENT_KEYS if key in fields), b"{}")
    function = {"name": name or "unknown", "arguments": _as_text(given)}
    if log.turn is None:
        log.turn = _Turn(record=record, fields={})
    log.turn.calls.append(encode({"id": call_id, "type": "function", "function": function}))


def _take_result(record: Record, log: _Log) -> None:
    fields = record.fields
    if "tool_call_id" in fields and text_of(fields, "role") == "tool":
        log.add(_spoken(record), record)
        return
    call_id = _explicit_id(fields) or log.calls.take(text_of(fields, "id"), text_of(fields, "name"))
    output = next((fields[key] for key in _OUTPUT_KEYS if key in fields), b'""')
    message = b'{"role":"tool","tool_call_id":%s,"content":%s}'
    named = encode(call_id or f"flat-result-{record.line}")
    log.add(message % (named, _as_content(output)), record)


def _spoken(record: Record) -> bytes:
    """The line as a chat message, without fields that a request must not hold."""
    chat = {key: raw for key, raw in record.fields.items() if key in _CHAT_KEYS}
    chat.setdefault("content", b"null" if "tool_calls" in chat else b'""')
    if chat == record.fields:
        return record.raw
    return b"{" + b",".join(encode(key) + b":" + raw for key, raw in chat.items()) + b"}"


def _explicit_id(fields: Fields) -> str | None:
    return next((found for key in _CALL_ID_KEYS if (found := text_of(fields, key))), None)


def _as_text(raw: bytes) -> str:
    value = value_of(raw) if raw.startswith(b'"') else None
    return value if isinstance(value, str) else raw.decode()


def _as_content(raw: bytes) -> bytes:
    """A result's output as a string, unless it is one or a list of text blocks already."""
    if raw.startswith(b'"'):
        return raw
    blocks = value_of(raw) if raw.startswith(b"[") else None
    if isinstance(blocks, list) and blocks:
        kinds = {block.get("type") if isinstance(block, dict) else None for block in blocks}
        if kinds == {"text"}:
            return raw
    return encode("" if raw == b"null" else raw.decode())
