"""Request bodies and bare lists of messages.

Owns the reading of what is already in a wire format: every message keeps its bytes, and each
message the model wrote was one call, shown all that stood before it. A request body is itself
one more call, whose answer is not in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.core.formats.codec import format_of
from recollect.core.formats.json_text import Fields, array_items, encode, object_fields, text_of
from recollect.core.formats.transcripts.records import (
    PI_USAGE,
    ModelRuns,
    instant_of,
    is_written_by_model,
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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recollect.core.values.model import FormatName, Usage


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
