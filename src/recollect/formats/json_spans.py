"""Cutting JSON into byte spans without decoding it, and writing JSON any provider reads.

msgspec finds the spans in one pass; where it refuses what JavaScript writes (a lone surrogate,
NaN), the standard library finds them more slowly. Spans are always exact slices of the input.
"""

from __future__ import annotations

import json
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

import msgspec

from recollect.errors import FormatError

_RAW_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RAW_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_ANY = msgspec.json.Decoder()
_REFUSED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for input the standard library may still read."""
_WHITESPACE = b" \t\n\r"
_STANDARD = json.JSONDecoder()


def decode(raw: bytes) -> Any:
    """Decode one JSON value, lone surrogates and NaN included."""
    try:
        return _ANY.decode(raw)
    except _REFUSED:
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"not JSON: {error}") from error


def encode(value: Any) -> bytes:
    """Compact JSON in UTF-8; what UTF-8 cannot carry is escaped."""
    try:
        return _COMPACT.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError):
        return _standard(value, sort_keys=False).encode("ascii")


def canonical(value: Any) -> str:
    """The one spelling of a JSON value: compact, keys sorted."""
    try:
        return _CANONICAL.encode(value).decode()
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError):
        return _standard(value, sort_keys=True)


def _standard(value: Any, *, sort_keys: bool) -> str:
    """What msgspec refuses, by the standard library; what that refuses is no JSON."""
    try:
        return json.dumps(value, separators=(",", ":"), sort_keys=sort_keys, default=plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"this cannot be sent as JSON: {error}") from error


def plain(value: Any) -> Any:
    """A client library's object as plain data, as that library would send it."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        # A warning of pydantic's would show a stretch of what was said.
        return dump(mode="json", exclude_unset=True, warnings=False)
    fields = getattr(value, "__dict__", None)
    if isinstance(fields, dict):
        return {name: field for name, field in fields.items() if not name.startswith("_")}
    raise FormatError(f"a {type(value).__name__} cannot be sent as JSON")


_COMPACT = msgspec.json.Encoder(enc_hook=plain)
_CANONICAL = msgspec.json.Encoder(order="deterministic", enc_hook=plain)


def object_spans(raw: bytes) -> dict[str, bytes]:
    """The values of a JSON object as bytes, by key."""
    try:
        return {key: bytes(value) for key, value in _RAW_OBJECT.decode(raw).items()}
    except _REFUSED:
        return {key: span for key, _, span in _scan(raw, opening="{")}


def array_spans(raw: bytes) -> list[bytes]:
    """The items of a JSON array as bytes."""
    try:
        return [bytes(item) for item in _RAW_ARRAY.decode(raw)]
    except _REFUSED:
        return [span for _, _, span in _scan(raw, opening="[")]


def value_positions(body: bytes, spans: dict[str, bytes]) -> dict[str, tuple[int, int]] | None:
    """Where each value of `spans` stands in `body`; None where the keys do not line up."""
    positions: dict[str, tuple[int, int]] = {}
    at = _skip(body, 0) + 1
    for key, span in spans.items():
        at = _skip(body, at)
        if body[at : at + 1] == b",":
            at = _skip(body, at + 1)
        closing = body.find(b'"', at + 1)
        if body[at : at + 1] != b'"' or body[at + 1 : closing] != key.encode(
            "utf-8", "surrogatepass"
        ):
            return None  # an escaped or repeated key: the caller rebuilds the object instead
        at = _skip(body, closing + 1)
        if body[at : at + 1] != b":":
            return None
        at = _skip(body, at + 1)
        if body[at : at + len(span)] != span:
            return None
        positions[key] = (at, at + len(span))
        at += len(span)
    return positions


def _skip(body: bytes, at: int) -> int:
    end = len(body)
    while at < end and body[at] in _WHITESPACE:
        at += 1
    return at


def _scan(raw: bytes, *, opening: str) -> list[tuple[str, Any, bytes]]:
    """Spans by the standard library: slower, but it reads what JavaScript writes."""
    try:
        return _scan_text(raw.decode(), opening)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}") from error


def _scan_text(text: str, opening: str) -> list[tuple[str, Any, bytes]]:
    found: list[tuple[str, Any, bytes]] = []
    at = _skip_text(text, 0)
    if text[at : at + 1] != opening:
        raise ValueError(f"expected {opening!r}")
    closing = "}" if opening == "{" else "]"
    at = _skip_text(text, at + 1)
    while text[at : at + 1] != closing:
        key = ""
        if opening == "{":
            if text[at : at + 1] != '"':
                raise ValueError(f"expected a key at character {at}")
            key, at = scanstring(text, at + 1, False)
            at = _skip_text(text, at)
            if text[at : at + 1] != ":":
                raise ValueError(f"expected ':' at character {at}")
            at = _skip_text(text, at + 1)
        value, end = _STANDARD.raw_decode(text, at)
        found.append((key, value, text[at:end].encode()))
        at = _skip_text(text, end)
        if text[at : at + 1] == ",":
            at = _skip_text(text, at + 1)
            if text[at : at + 1] == closing:
                raise ValueError(f"a comma before the end at character {at}")
        elif text[at : at + 1] != closing:
            raise ValueError(f"expected ',' or {closing!r} at character {at}")
    if _skip_text(text, at + 1) != len(text):
        raise ValueError(f"something follows the end at character {at}")
    return found


def _skip_text(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\n\r":
        at += 1
    return at
