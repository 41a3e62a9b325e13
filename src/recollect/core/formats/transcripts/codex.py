"""Reader of Codex rollouts (docs/contributing/sources.md). Items keep the file's order and bytes. A
`compacted` line replaces all earlier history. A rollback removes the turns that it undoes. A call
of the model ends at a tool's output, a message to the model, or a token count."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from recollect.core.formats.json_text import Fields, array_items, encode, object_fields, text_of
from recollect.core.formats.replies import token_count
from recollect.core.formats.transcripts.host_compactions import codex_compaction, returned_texts
from recollect.core.formats.transcripts.records import (
    ModelRuns,
    Record,
    instant_of,
    is_written_by_model,
    mapping_of,
    records,
    value_of,
)
from recollect.core.values.model import Usage
from recollect.core.values.transcript import (
    HostCompaction,
    RecordedSession,
    ShownItems,
    TranscriptItem,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

LINE_TYPES = frozenset(
    {"session_meta", "response_item", "compacted", "turn_context", "event_msg"}
    | {"world_state", "token_usage_record"}
)
_NEVER_SENT = frozenset({"ghost_snapshot"})  # undo points that only the client uses
_KEPT_USER_BYTES = 80_000
"""If a compaction has no replacement history, Codex sends the newest user messages, up to 20k
tokens of 4 bytes."""


@dataclass(slots=True, kw_only=True)
class _Rollout:
    meta: Fields | None = None
    items: list[TranscriptItem] = field(default_factory=list)
    runs: ModelRuns = field(default_factory=ModelRuns)
    context: ShownItems = field(default_factory=ShownItems)
    users: set[int] = field(default_factory=set)
    before_user: ShownItems = field(default_factory=ShownItems)
    turns: list[ShownItems] = field(default_factory=list)
    spent_tokens: int | None = None
    model: str | None = None
    window_tokens: int | None = None
    compactions: list[HostCompaction] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)

    def add(self, raw: bytes, record: Record, *, derived: bool = False) -> int:
        self.items.append(
            TranscriptItem(
                raw=raw,
                line=record.line,
                timestamp=instant_of(record.fields, "timestamp"),
                derived=derived,
            )
        )
        self.context = self.context.then(len(self.items) - 1)
        return len(self.items) - 1


def read_codex(data: bytes) -> RecordedSession:
    reader = CodexReader()
    reader.feed(data)
    return reader.session()


class CodexReader:
    """Reads a rollout while Codex appends to it, whole lines at a time."""

    def __init__(self) -> None:
        self._rollout = _Rollout()
        self._lines = 0

    def feed(self, data: bytes) -> None:
        rollout = self._rollout
        for record in records(data, passed_over=rollout.passed_over, before=self._lines):
            _take(record, rollout)
        self._lines += data.count(b"\n")

    def session(self) -> RecordedSession:
        rollout = self._rollout
        meta, runs = rollout.meta or {}, rollout.runs.so_far()
        instructions = mapping_of(meta.get("base_instructions")).get("text")
        tools = meta.get("dynamic_tools")
        return RecordedSession(
            kind="codex",
            format="openai-responses",
            items=runs.with_usage(rollout.items),
            requests=runs.requests(),
            session_id=text_of(meta, "id"),
            version=text_of(meta, "cli_version"),
            model=rollout.model,
            window_tokens=rollout.window_tokens,
            system=instructions if isinstance(instructions, str) else text_of(meta, "instructions"),
            tools=tools.decode() if tools is not None and array_items(tools) else None,
            compactions=len(rollout.compactions),
            host_compactions=tuple(rollout.compactions),
            current=rollout.context,
            passed_over=tuple(rollout.passed_over),
        )


def _take(record: Record, rollout: _Rollout) -> None:
    kind = text_of(record.fields, "type")
    raw = record.fields.get("payload", b"")
    payload = object_fields(raw)
    if payload is None:
        rollout.passed_over.append(f"line {record.line}: a line without a payload")
    elif kind == "response_item":
        _take_item(raw, payload, record, rollout)
    elif kind == "event_msg":
        _take_event(payload, rollout)
    elif kind == "compacted":
        _take_compaction(payload, record, rollout)
    elif kind == "turn_context":
        rollout.model = text_of(payload, "model") or rollout.model
    elif kind == "session_meta" and rollout.meta is None:
        # Only the first metadata line counts: a forked session repeats its parent's metadata.
        rollout.meta = payload


def _take_item(raw: bytes, payload: Fields, record: Record, rollout: _Rollout) -> None:
    if text_of(payload, "type") in _NEVER_SENT:
        return
    before = rollout.context
    item = rollout.add(raw, record)
    by_model = is_written_by_model(payload)
    if rollout.compactions and not rollout.compactions[-1].is_answered:
        compaction = rollout.compactions[-1]
        texts = (compaction.returned_text, *returned_texts(raw, payload))
        rollout.compactions[-1] = replace(
            compaction, returned_text="\n".join(filter(None, texts)), is_answered=by_model
        )
    if by_model:
        rollout.runs.answer(item, shown_items=before)
        return
    rollout.runs.close()
    if text_of(payload, "role") is not None:
        rollout.users.add(item)
        rollout.before_user = before


def _take_event(payload: Fields, rollout: _Rollout) -> None:
    kind = text_of(payload, "type")
    if kind == "token_count":
        _take_token_count(mapping_of(payload.get("info")), rollout)
    elif kind == "task_started":
        _learn_window(value_of(payload.get("model_context_window")), rollout)
    elif kind == "user_message":
        rollout.turns.append(rollout.before_user)
    elif kind == "thread_rolled_back":
        undone = value_of(payload.get("num_turns"))
        if isinstance(undone, int) and undone > 0 and rollout.turns:
            rollout.runs.close()
            rollout.context = rollout.turns[max(0, len(rollout.turns) - undone)]
            del rollout.turns[-undone:]


def _learn_window(window: Any, rollout: _Rollout) -> None:
    if isinstance(window, int) and window > 0:
        rollout.window_tokens = window


def _take_token_count(info: Mapping[str, Any], rollout: _Rollout) -> None:
    _learn_window(info.get("model_context_window"), rollout)
    last, total = info.get("last_token_usage"), info.get("total_token_usage")
    if not isinstance(last, dict) or not isinstance(total, dict):
        return
    spent_tokens = token_count(total, "total_tokens")
    input_tokens = token_count(last, "input_tokens")
    if spent_tokens == rollout.spent_tokens or not input_tokens:
        return
    rollout.spent_tokens = spent_tokens
    rollout.runs.close(
        Usage(
            input_tokens=input_tokens,
            output_tokens=token_count(last, "output_tokens"),
            cache_read_tokens=token_count(last, "cached_input_tokens"),
        )
    )


def _take_compaction(payload: Fields, record: Record, rollout: _Rollout) -> None:
    rollout.runs.close()
    rollout.turns = []
    before = rollout.context
    rollout.context = ShownItems()
    history = array_items(payload.get("replacement_history"))
    replacement = None if history is None else [object_fields(raw) or {} for raw in history]
    number = len(rollout.compactions) + 1
    compaction = codex_compaction(number, record.line, record.fields, payload, replacement)
    rollout.compactions.append(compaction)
    if history is not None:
        for raw in history:
            item = rollout.add(raw, record)
            if text_of(object_fields(raw) or {}, "role") not in {None, "assistant"}:
                rollout.users.add(item)
        return
    kept_items = _find_kept_users(before, rollout)
    rollout.compactions[-1] = replace(compaction, kept_items=frozenset(kept_items))
    for item in kept_items:
        rollout.context = rollout.context.then(item)
    summary = [{"type": "input_text", "text": text_of(payload, "message") or ""}]
    message = {"type": "message", "role": "user", "content": summary}
    rollout.add(encode(message), record, derived=True)


def _find_kept_users(before: ShownItems, rollout: _Rollout) -> list[int]:
    room_bytes = _KEPT_USER_BYTES
    kept_items: list[int] = []
    for item in reversed(tuple(before)):
        if item in rollout.users:
            room_bytes -= len(rollout.items[item].raw)
            if room_bytes < 0:
                break
            kept_items.append(item)
    return kept_items[::-1]
