"""Requests as spans: splitting a body into its messages, and joining it again.

A body is never decoded as a whole. What nobody touched is the very bytes, or the very
objects, that came in; an untouched request is returned as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from recollect.errors import FormatError
from recollect.formats.detect import format_of
from recollect.formats.json_spans import (
    array_spans,
    decode,
    encode,
    object_spans,
    value_positions,
)
from recollect.values.history import Entry, Row
from recollect.values.request import FormatName, Request

OUTPUT_KEYS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
SYSTEM_KEYS = ("system", "instructions", "systemPrompt")
CONTINUING_KEYS = ("previous_response_id", "conversation")
LOOKED_AT = (*SYSTEM_KEYS, *CONTINUING_KEYS, *OUTPUT_KEYS, "tools", "model", "thinking")
"""What is looked at of a request besides its messages."""


_ABSENT = msgspec.Raw()


class _Body(msgspec.Struct):
    """What is looked at of a body; one pass over the bytes finds all of it."""

    messages: list[msgspec.Raw] | None = None
    input: msgspec.Raw = _ABSENT
    system: msgspec.Raw = _ABSENT
    instructions: msgspec.Raw = _ABSENT
    systemPrompt: msgspec.Raw = _ABSENT  # noqa: N815 - a key of the wire
    tools: msgspec.Raw = _ABSENT
    model: msgspec.Raw = _ABSENT
    previous_response_id: msgspec.Raw = _ABSENT
    conversation: msgspec.Raw = _ABSENT
    thinking: msgspec.Raw = _ABSENT
    max_tokens: msgspec.Raw = _ABSENT
    max_completion_tokens: msgspec.Raw = _ABSENT
    max_output_tokens: msgspec.Raw = _ABSENT


_BODY = msgspec.json.Decoder(_Body)


def split_request(
    given: bytes | Mapping[str, Any], format_name: FormatName | None = None
) -> Request:
    """Split an HTTP body, or the mapping a client library is called with."""
    if isinstance(given, bytes):
        return _split_body(given, format_name)
    return _split_mapping(given, format_name)


def join_request(request: Request, entries: Sequence[Entry], rows: Sequence[Row]) -> Any:
    """The request with `rows` as its messages: bytes if it came as bytes, else a dict."""
    if _unchanged(entries, rows):
        return request.body if request.body is not None else request.origin
    if request.body is None:
        return _join_mapping(request, entries, rows)
    array = b"[" + b",".join([row.raw for row in rows]) + b"]"
    spans = object_spans(request.body)
    positions = value_positions(request.body, spans)
    if positions is None:
        fields = {**spans, request.field: array}
        return b"{" + b",".join([encode(k) + b":" + v for k, v in fields.items()]) + b"}"
    start, end = positions[request.field]
    return request.body[:start] + array + request.body[end:]


MESSAGES_GO_HERE, SYSTEM_GOES_HERE, TOOLS_GO_HERE = b"\0m", b"\0s", b"\0t"
"""Marks of a frame; no JSON text holds a NUL."""


def frame_of(request: Request) -> bytes:
    """The request without its messages, system prompt and tools: marks stand where they were."""
    if request.body is None:
        spans = {key: encode(value) for key, value in request.origin.items()}
        return _framed(request, spans)
    spans = object_spans(request.body)
    positions = value_positions(request.body, spans)
    if positions is None:
        return _framed(request, spans)
    frame, done = b"", 0
    for mark, key in sorted(_marked(request, spans), key=lambda held: positions[held[1]]):
        start, end = positions[key]
        frame += request.body[done:start] + mark
        done = end
    return frame + request.body[done:]


def fill_frame(
    frame: bytes, rows: Sequence[bytes], *, system: bytes | None, tools: bytes | None
) -> bytes:
    """The request again: the frame with these messages, system prompt and tools."""
    filled = frame.replace(MESSAGES_GO_HERE, b"[" + b",".join(rows) + b"]", 1)
    filled = filled.replace(SYSTEM_GOES_HERE, system or b"null", 1)
    return filled.replace(TOOLS_GO_HERE, tools or b"null", 1)


def _framed(request: Request, spans: Mapping[str, bytes]) -> bytes:
    marks = {key: mark for mark, key in _marked(request, spans)}
    fields = [encode(key) + b":" + marks.get(key, value) for key, value in spans.items()]
    return b"{" + b",".join(fields) + b"}"


def _marked(request: Request, spans: Mapping[str, bytes]) -> list[tuple[bytes, str]]:
    marked = [(MESSAGES_GO_HERE, request.field)]
    if request.system is not None:
        marked.append((SYSTEM_GOES_HERE, next(key for key in SYSTEM_KEYS if key in spans)))
    if request.tools is not None:
        marked.append((TOOLS_GO_HERE, "tools"))
    return marked


def _unchanged(entries: Sequence[Entry], rows: Sequence[Row]) -> bool:
    if len(entries) != len(rows):
        return False
    return all(entry is row for entry, row in zip(entries, rows, strict=True))


def _split_body(body: bytes, format_name: FormatName | None) -> Request:
    try:
        found = _BODY.decode(body)
        spans = {
            name: span
            for name in (*LOOKED_AT, "input")
            if (span := bytes(getattr(found, name))) and span != b"null"
        }
        messages = None if found.messages is None else [bytes(raw) for raw in found.messages]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        spans = object_spans(body)
        messages = array_spans(spans["messages"]) if "messages" in spans else None
    field = "messages"
    if messages is None:
        if "input" not in spans:
            raise FormatError("a request needs `messages` or `input`; this body has neither")
        field = "input"
        messages = _input_items(spans["input"])
    made = _request(format_name, field, messages, spans)
    return replace(made, body=body)


def _split_mapping(given: Mapping[str, Any], format_name: FormatName | None) -> Request:
    field = "messages" if given.get("messages") is not None else "input"
    held = given.get(field)
    if held is None:
        raise FormatError("a request needs `messages` or `input`; this mapping has neither")
    bare_text = isinstance(held, str)
    if not bare_text and not isinstance(held, list | tuple):
        raise FormatError(f"`{field}` must be a list of messages, not {type(held).__name__}")
    objects: list[Any] = [{"role": "user", "content": held}] if bare_text else list(held)
    messages = [encode(item) for item in objects]
    seen = {key: encode(given[key]) for key in LOOKED_AT if given.get(key) is not None}
    made = _request(format_name, field, messages, seen)
    return replace(made, origin=given, objects=tuple(objects))


def _request(
    format_name: FormatName | None,
    field: str,
    messages: list[bytes],
    spans: Mapping[str, bytes],
) -> Request:
    name = format_name or format_of(messages, body={**spans, field: b""})
    return Request(
        format=name,
        messages=tuple(messages),
        field=field,
        system=next((spans[key] for key in SYSTEM_KEYS if key in spans), None),
        tools=spans.get("tools"),
        model=_text_or_none(spans.get("model")),
        output_tokens=_output_tokens(spans),
        continues=any(key in spans for key in CONTINUING_KEYS)
        or (field == "input" and any(b'"item_reference"' in raw for raw in messages)),
        thinking=_thinks(name, spans.get("thinking")),
    )


def _input_items(raw: bytes) -> list[bytes]:
    if raw[:1] == b"[":
        return array_spans(raw)
    if raw[:1] == b'"':
        return [b'{"role":"user","content":' + raw + b"}"]
    raise FormatError("`input` must be a string or an array of items")


def _thinks(format_name: FormatName, raw: bytes | None) -> bool:
    """Anthropic's requests think only when they say so; other formats do not ask here."""
    if format_name != "anthropic":
        return True
    asked = decode(raw) if raw else None
    return isinstance(asked, dict) and asked.get("type") != "disabled"


def _output_tokens(spans: Mapping[str, bytes]) -> int | None:
    asked = [decode(spans[key]) for key in OUTPUT_KEYS if key in spans]
    counts = [value for value in asked if isinstance(value, int) and value > 0]
    return max(counts, default=None)


def _text_or_none(raw: bytes | None) -> str | None:
    value = decode(raw) if raw else None
    return value if isinstance(value, str) else None


def _join_mapping(
    request: Request, entries: Sequence[Entry], rows: Sequence[Row]
) -> dict[str, Any]:
    objects = request.objects
    assert objects is not None
    place = {id(entry): at for at, entry in enumerate(entries)}
    held = [objects[place[id(row)]] if id(row) in place else decode(row.raw) for row in rows]
    return {**request.origin, request.field: held}
