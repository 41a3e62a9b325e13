"""Splits a request body into its messages, and joins it again. A body is never decoded as a whole.
Unchanged parts are sent as the bytes or objects that were received."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from typing import Any

import msgspec

from recollect.core.formats.anthropic import SYSTEM_INSIDE_BETAS
from recollect.core.formats.codec import format_of
from recollect.core.formats.json_text import (
    array_spans,
    decode,
    encode,
    object_spans,
    value_positions,
)
from recollect.core.values.history import Entry, Row
from recollect.core.values.model import FormatName, Request
from recollect.errors import FormatError

OUTPUT_KEYS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
SYSTEM_KEYS = ("system", "instructions", "systemPrompt")
CONTINUING_KEYS = ("previous_response_id", "conversation")
MARK = "cache_control"
LOOKED_AT = (*SYSTEM_KEYS, *CONTINUING_KEYS, *OUTPUT_KEYS, "tools", "model", "thinking", MARK)
"""Keys of the body, besides the messages, whose values Recollect reads."""


_ABSENT = msgspec.Raw()
_BODY: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
    msgspec.defstruct(
        "_Body",
        [
            ("messages", list[msgspec.Raw] | None, None),
            *((name, msgspec.Raw, _ABSENT) for name in (*LOOKED_AT, "input")),
        ],
    )
)
"""Finds the fields of a body in one pass over its bytes."""


def split_request(
    payload: bytes | Mapping[str, Any],
    format_name: FormatName | None = None,
    *,
    betas: Iterable[str] = (),
    before: Request | None = None,
) -> Request:
    """Split an HTTP body, or the arguments of a client library's call. `betas` are the beta
    features named in the headers. Messages that the previous request `before` has at the same
    position are not encoded again."""
    if isinstance(payload, bytes):
        request = _split_body(payload, format_name)
    else:
        request = _split_mapping(payload, format_name, before)
        betas = (*betas, *(payload.get("betas") or ()))
    is_inside = any(str(name).startswith(SYSTEM_INSIDE_BETAS) for name in betas)
    return replace(request, system_inside=True) if is_inside else request


_HOUR_MARK = re.compile(rb'"cache_control"\s*:\s*\{[^{}]*"ttl"\s*:\s*"1h"')
_MARKED_MESSAGES = 8
"""Number of newest messages that may have a cache mark."""


def is_kept_an_hour(request: Request) -> bool:
    """Return whether the request asks the provider to cache it for an hour instead of minutes."""
    spans = (request.system, request.tools, *request.messages[-_MARKED_MESSAGES:])
    return any(span is not None and _HOUR_MARK.search(span) for span in spans)


def join_request(request: Request, entries: Sequence[Entry], rows: Sequence[Row]) -> Any:
    """Put these messages into the request. Return bytes if the request was bytes, else a dict."""
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


_MARK = "\0recollect:"
"""Prefix of placeholders, which are JSON strings, so that a frame is valid JSON."""


def frame_of(request: Request, *, as_it_came: bool) -> bytes:
    """Return the request with placeholders for its messages, system prompt and tools. `as_it_came`
    is true if the request was sent unchanged: the frame then keeps the white space between the
    messages."""
    spans = (
        object_spans(request.body)
        if request.body is not None
        else {
            key: b"" if key == request.field else encode(value)
            for key, value in request.origin.items()
        }
    )
    marks = _marks(request, spans)
    positions = None if request.body is None else value_positions(request.body, spans)
    if request.body is None or positions is None:
        fields = [encode(key) + b":" + marks.get(key, value) for key, value in spans.items()]
        return b"{" + b",".join(fields) + b"}"
    if as_it_came:
        start, end = positions[request.field]
        array = request.body[start:end]
        marks[request.field] = (
            encode(f"{_MARK}messages::{_AS_TEXT.decode()}:")
            if array[:1] == b'"'
            else _messages_mark(*_gaps(array, request.messages))
        )
    frame, offset = b"", 0
    for key in sorted(marks, key=lambda key: positions[key]):
        start, end = positions[key]
        frame += request.body[offset:start] + marks[key]
        offset = end
    return frame + request.body[offset:]


def fill_frame(
    frame: bytes, rows: Sequence[bytes], *, system: bytes | None, tools: bytes | None
) -> bytes:
    """Rebuild the request from its frame, messages, system prompt and tools."""
    match = _MESSAGES_MARK.search(frame)
    if match is None:
        raise FormatError("not a frame: it has no place for messages")
    opening, closing = (bytes.fromhex(match[1].decode()), bytes.fromhex(match[3].decode()))
    array = b"[" + opening + _join_rows(rows, match[2]) + closing + b"]"
    if match[2] == _AS_TEXT:
        array = rows[0].removeprefix(_TEXT_BEFORE).removesuffix(b"}")
    body = frame[: match.start()] + b"\0" + frame[match.end() :]
    body = body.replace(_mark("system"), system or b"null", 1)
    body = body.replace(_mark("tools"), tools or b"null", 1)
    return body.replace(b"\0", array, 1)


def _mark(name: str) -> bytes:
    return encode(_MARK + name)


def _messages_mark(opening: bytes, between: Sequence[bytes], closing: bytes) -> bytes:
    gaps = ",".join(gap.hex() for gap in between)
    return encode(f"{_MARK}messages:{opening.hex()}:{gaps}:{closing.hex()}")


_MESSAGES_MARK = re.compile(rb'"\\u0000recollect:messages:([0-9a-f]*):([0-9a-f,x]*):([0-9a-f]*)"')
_AS_TEXT = b"x"
"""Placeholder value if the messages were one text instead of an array."""
_TEXT_BEFORE = b'{"role":"user","content":'


def _join_rows(rows: Sequence[bytes], between: bytes) -> bytes:
    gaps = (
        [] if between == _AS_TEXT else [bytes.fromhex(raw.decode()) for raw in between.split(b",")]
    )
    if len(gaps) == 1:
        return gaps[0].join(rows)
    return b"".join(chain.from_iterable(zip_longest(rows, gaps, fillvalue=b"")))


def _marks(request: Request, spans: Mapping[str, bytes]) -> dict[str, bytes]:
    marks = {request.field: _messages_mark(b"", (b",",), b"")}
    if request.system is not None:
        system_keys = (key for key in SYSTEM_KEYS if spans.get(key, b"null") != b"null")
        marks[next(system_keys)] = _mark("system")
    if request.tools is not None:
        marks["tools"] = _mark("tools")
    return marks


def _gaps(array: bytes, messages: Sequence[bytes]) -> tuple[bytes, tuple[bytes, ...], bytes]:
    """Return the bytes before, between and after an array's messages; one gap if all are equal."""
    offset, gaps = 1, []
    for message in messages:
        start = array.find(message, offset)
        if start < 0:
            return b"", (b",",), b""
        gaps.append(array[offset:start])
        offset = start + len(message)
    between = tuple(gaps[1:])
    if len(set(between)) < 2:
        between = between[:1] or (b",",)
    return (gaps[0] if gaps else b""), between, array[offset:-1]


def _unchanged(entries: Sequence[Entry], rows: Sequence[Row]) -> bool:
    if len(entries) != len(rows):
        return False
    return all(entry is row for entry, row in zip(entries, rows, strict=True))


def _split_body(body: bytes, format_name: FormatName | None) -> Request:
    try:
        found_body = _BODY.decode(body)
        spans = {
            name: span
            for name in (*LOOKED_AT, "input")
            if (span := bytes(getattr(found_body, name))) and span != b"null"
        }
        messages = (
            None if found_body.messages is None else [bytes(raw) for raw in found_body.messages]
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        spans = object_spans(body)
        messages = array_spans(spans["messages"]) if "messages" in spans else None
    field = "messages"
    if messages is None:
        if "input" not in spans:
            raise FormatError("a request needs `messages` or `input`; this body has neither")
        field = "input"
        messages = _input_items(spans["input"])
    return replace(_request(format_name, field, _check_messages(messages, field), spans), body=body)


def _check_messages(messages: list[bytes], field: str) -> list[bytes]:
    for index, raw in enumerate(messages):
        if raw[:1] != b"{":
            raise FormatError(
                f"`{field}[{index}]` must be a message, not a JSON "
                f"{_KINDS.get(raw[:1], 'number')}: the request is sent unchanged"
            )
    return messages


_KINDS = {b'"': "string", b"[": "array", b"t": "boolean", b"f": "boolean", b"n": "null"}


def _split_mapping(
    payload: Mapping[str, Any], format_name: FormatName | None, before: Request | None
) -> Request:
    field = "messages" if payload.get("messages") is not None else "input"
    value = payload.get(field)
    if value is None:
        raise FormatError("a request needs `messages` or `input`; this mapping has neither")
    bare_text = field == "input" and isinstance(value, str)
    if not bare_text and not isinstance(value, list | tuple):
        raise FormatError(f"`{field}` must be a list of messages, not {type(value).__name__}")
    objects: list[Any] = [{"role": "user", "content": value}] if bare_text else list(value)
    messages, copies = list[bytes](), list[Any]()
    if before is not None and before.field == field:
        for item, copy, raw in zip(objects, before.copies, before.messages, strict=False):
            is_same = item == copy
            messages.append(raw if is_same else encode(item))
            copies.append(copy if is_same else _copy(item))
    new_objects = objects[len(messages) :]
    messages = _check_messages([*messages, *map(encode, new_objects)], field)
    copies += map(_copy, new_objects)
    spans = {key: encode(payload[key]) for key in LOOKED_AT if payload.get(key) is not None}
    request = _request(format_name, field, messages, spans)
    return replace(request, origin=payload, objects=tuple(objects), copies=tuple(copies))


class _Number:
    """A number that equals only numbers of its type: 1, 1.0 and True are encoded differently."""

    __slots__ = ("_value",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: float) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self._value) and other == self._value


_COPIED_LEVELS = 32
"""Not measured; bounds the recursion. A deeper value is encoded again in each request."""


def _copy(value: Any, levels: int = _COPIED_LEVELS) -> Any:
    """Copy a JSON value, because the client may change it before the next request. Objects of
    client libraries and deeply nested values become NaN, so that they never equal anything."""
    if value is None or type(value) is str:
        return value
    if type(value) in (int, float, bool):
        return _Number(value)
    if levels and type(value) is dict:
        return {key: _copy(item, levels - 1) for key, item in value.items()}
    if levels and type(value) is list:
        return [_copy(item, levels - 1) for item in value]
    return math.nan


def _request(
    format_name: FormatName | None, field: str, messages: list[bytes], spans: Mapping[str, bytes]
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
        continues_from=next(
            (spans[key].decode("utf-8", "replace") for key in CONTINUING_KEYS if key in spans), ""
        ),
        thinking=_thinks(name, spans.get("thinking")),
        marks=(MARK in spans)
        + sum(spans.get(key, b"").count(b'"cache_control"') for key in ("system", "tools")),
    )


def _input_items(raw: bytes) -> list[bytes]:
    if raw[:1] == b"[":
        return array_spans(raw)
    if raw[:1] == b'"':
        return [b'{"role":"user","content":' + raw + b"}"]
    raise FormatError("`input` must be a string or an array of items")


def _thinks(format_name: FormatName, raw: bytes | None) -> bool:
    """Return whether thinking is enabled, which only Anthropic's format turns off by default."""
    if format_name != "anthropic":
        return True
    thinking = decode(raw) if raw else None
    return isinstance(thinking, dict) and thinking.get("type") != "disabled"


def _output_tokens(spans: Mapping[str, bytes]) -> int | None:
    values = [decode(spans[key]) for key in OUTPUT_KEYS if key in spans]
    return max([value for value in values if isinstance(value, int) and value > 0], default=None)


def _text_or_none(raw: bytes | None) -> str | None:
    value = decode(raw) if raw else None
    return value if isinstance(value, str) else None


def _join_mapping(
    request: Request, entries: Sequence[Entry], rows: Sequence[Row]
) -> dict[str, Any]:
    objects = request.objects
    assert objects is not None
    sent_as = dict(zip(map(id, entries), objects, strict=True))
    messages = [sent_as[id(row)] if id(row) in sent_as else decode(row.raw) for row in rows]
    return {**request.origin, request.field: messages}
