"""JSON as bytes: splits it into values without decoding them, and writes it compactly or as
JavaScript does. If msgspec refuses JSON that JavaScript writes (a lone surrogate, NaN), the
standard library reads it. Spans are exact slices of the input. Invalid lines of JSONL are reported
to the caller, and raise no error."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.encoder import encode_basestring
from typing import Any, Final, TypeAlias

import msgspec

from recollect.errors import FormatError

_RAW_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RAW_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_ANY = msgspec.json.Decoder()
_REFUSED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of msgspec after which the standard library is tried."""
_WHITESPACE = b" \t\n\r"

Fields: TypeAlias = Mapping[str, bytes]
"""Values of a JSON object by key, not decoded."""
_STANDARD = json.JSONDecoder()
_STRING_OR_BRACKET: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|([{\[])|([}\]])', re.DOTALL)
_STEPS: Final = {None: 0, 1: 1, 2: -1}
"""Levels that each group of the pattern adds."""
_MAX_NESTING: Final = 100
"""Deeper JSON is not decoded, because recursive functions fail on it. Of Python's 1,000 frames, a
turn uses about 100, and `without_cache_marks` two per level."""
_OUTER_LEVELS: Final = 8
"""Number of levels that are decoded of deeper JSON. Wire formats define at most seven."""


def decode(raw: bytes) -> Any:
    try:
        return _ANY.decode(raw)
    except _REFUSED:
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"not JSON: {error}") from error


def decode_outer(raw: bytes, levels: int = _OUTER_LEVELS) -> Any:
    """Decode JSON. If it nests too deeply, decode only the outer levels, and keep deeper values as
    `msgspec.Raw`, which `encode` and `canonical` write as they are."""
    try:
        value = decode(raw)
        if not _is_deep(value):
            return value
    except FormatError:
        if raw.lstrip()[:1] not in (b"{", b"["):
            raise
    if not levels:
        return msgspec.Raw(raw)
    if raw.lstrip()[:1] == b"[":
        return [decode_outer(item, levels - 1) for item in array_spans(raw)]
    return {key: decode_outer(item, levels - 1) for key, item in object_spans(raw).items()}


def _is_deep(value: Any) -> bool:
    values = [value]
    for _ in range(_MAX_NESTING):
        nested = [inner for inner in values if type(inner) in (dict, list)]
        if not nested:
            return False
        values = [
            item for inner in nested for item in (inner.values() if type(inner) is dict else inner)
        ]
    return True


def encode(value: Any) -> bytes:
    """Encode a value as compact JSON in UTF-8. Characters that UTF-8 cannot encode are escaped."""
    try:
        return _COMPACT.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError):
        return _standard(value, sort_keys=False).encode("ascii")


def canonical(value: Any) -> str:
    """Write a JSON value in canonical form: compact, with sorted keys."""
    try:
        return _CANONICAL.encode(value).decode()
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError):
        return _standard(value, sort_keys=True)


def _standard(value: Any, *, sort_keys: bool) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), sort_keys=sort_keys, default=_to_fields)
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"this cannot be sent as JSON: {error}") from error


def _to_fields(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        # pydantic's warnings quote message content
        return dump(mode="json", exclude_unset=True, warnings=False)
    fields = getattr(value, "__dict__", None)
    if isinstance(fields, dict):
        return {name: field for name, field in fields.items() if not name.startswith("_")}
    raise FormatError(f"a {type(value).__name__} cannot be sent as JSON")


def plain_mapping(value: Any) -> Mapping[str, Any]:
    """Return a reply or a part of one as a mapping, also if it is bytes or an object of a client
    library. Anything else gives an empty mapping."""
    if value is None or isinstance(value, Mapping):
        return value or {}
    try:
        is_bytes = isinstance(value, bytes | bytearray | memoryview)
        fields = decode(bytes(value)) if is_bytes else _to_fields(value)
    except FormatError:
        return {}
    return fields if isinstance(fields, Mapping) else {}


_COMPACT = msgspec.json.Encoder(enc_hook=_to_fields)
_CANONICAL = msgspec.json.Encoder(order="deterministic", enc_hook=_to_fields)


def object_spans(raw: bytes) -> dict[str, bytes]:
    try:
        return {key: bytes(value) for key, value in _RAW_OBJECT.decode(raw).items()}
    except _REFUSED:
        return dict(_scan(raw, opening="{"))


def array_spans(raw: bytes) -> list[bytes]:
    try:
        return [bytes(item) for item in _RAW_ARRAY.decode(raw)]
    except _REFUSED:
        return [span for _, span in _scan(raw, opening="[")]


def object_fields(raw: bytes) -> dict[str, bytes] | None:
    """Return the values of a JSON object by key; None if it is not an object."""
    try:
        return object_spans(raw) if raw.lstrip()[:1] == b"{" else None
    except FormatError:
        return None


def array_items(raw: bytes | None) -> list[bytes] | None:
    """Return the items of a JSON array; None if it is not one."""
    try:
        return array_spans(raw) if raw is not None and raw.lstrip()[:1] == b"[" else None
    except FormatError:
        return None


def text_of(fields: Fields, key: str) -> str | None:
    raw = fields.get(key)
    if raw is None or raw[:1] != b'"':
        return None
    if b"\\" not in raw:  # without an escape, no JSON decoder is needed
        return raw[1:-1].decode(errors="replace")
    try:
        value = decode(raw)
    except FormatError:
        return None
    return value if isinstance(value, str) else None


def value_positions(body: bytes, spans: dict[str, bytes]) -> dict[str, tuple[int, int]] | None:
    """Return start and end of each value of `spans` in `body`; None if a key differs."""
    positions: dict[str, tuple[int, int]] = {}
    offset = _skip(body, 0) + 1
    for key, span in spans.items():
        offset = _skip(body, offset)
        if body[offset : offset + 1] == b",":
            offset = _skip(body, offset + 1)
        closing = body.find(b'"', offset + 1)
        if body[offset : offset + 1] != b'"' or body[offset + 1 : closing] != key.encode(
            "utf-8", "surrogatepass"
        ):
            return None  # a key is escaped or repeated
        offset = _skip(body, closing + 1)
        if body[offset : offset + 1] != b":":
            return None
        offset = _skip(body, offset + 1)
        if body[offset : offset + len(span)] != span:
            return None
        positions[key] = (offset, offset + len(span))
        offset += len(span)
    return positions


def _skip(body: bytes, offset: int) -> int:
    end = len(body)
    while offset < end and body[offset] in _WHITESPACE:
        offset += 1
    return offset


def _scan(raw: bytes, *, opening: str) -> list[tuple[str, bytes]]:
    """Split JSON in Python: slower than msgspec, but it reads everything that JavaScript writes."""
    try:
        return _scan_text(raw.decode(), opening)
    except ValueError as error:
        raise FormatError(f"not JSON: {error}") from error


def _scan_text(text: str, opening: str) -> list[tuple[str, bytes]]:
    items: list[tuple[str, bytes]] = []
    offset = _skip_text(text, 0)
    if text[offset : offset + 1] != opening:
        raise ValueError(f"expected {opening!r}")
    closing = "}" if opening == "{" else "]"
    offset = _skip_text(text, offset + 1)
    while text[offset : offset + 1] != closing:
        key = ""
        if opening == "{":
            if text[offset : offset + 1] != '"':
                raise ValueError(f"expected a key at character {offset}")
            key, offset = scanstring(text, offset + 1, False)
            offset = _skip_text(text, offset)
            if text[offset : offset + 1] != ":":
                raise ValueError(f"expected ':' at character {offset}")
            offset = _skip_text(text, offset + 1)
        end = _find_value_end(text, offset)
        items.append((key, text[offset:end].encode()))
        offset = _skip_text(text, end)
        if text[offset : offset + 1] == ",":
            offset = _skip_text(text, offset + 1)
            if text[offset : offset + 1] == closing:
                raise ValueError(f"a comma before the end at character {offset}")
        elif text[offset : offset + 1] != closing:
            raise ValueError(f"expected ',' or {closing!r} at character {offset}")
    if _skip_text(text, offset + 1) != len(text):
        raise ValueError(f"something follows the end at character {offset}")
    return items


def _find_value_end(text: str, offset: int) -> int:
    try:
        return _STANDARD.raw_decode(text, offset)[1]
    except RecursionError:  # it nests deeper than any decoder reads
        depth = 0
        for token in _STRING_OR_BRACKET.finditer(text, offset):
            depth += _STEPS[token.lastindex]
            if not depth:
                return token.end()
        raise ValueError(f"no end of the value at character {offset}") from None


def _skip_text(text: str, offset: int) -> int:
    while offset < len(text) and text[offset] in " \t\n\r":
        offset += 1
    return offset


_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SAFE_INTEGER: Final = 2**53
"""Above it, a double cannot hold every integer (ECMA-262, Number.MAX_SAFE_INTEGER)."""
_PLAIN_UP_TO: Final = 21  # ECMA-262, Number::toString: decimal notation up to 21 digits...
_PLAIN_FROM: Final = -6  # ...and down to six zeros after the point
_BYTE_ORDER_MARK: Final = "\ufeff"


def stringify(value: Any) -> str:
    """Write the value as `JSON.stringify` does."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, dict):
        return "{" + ",".join([f"{_string(k)}:{stringify(v)}" for k, v in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join([stringify(item) for item in value]) + "]"
    raise FormatError(f"a {type(value).__name__} has no JSON spelling")


def _string(text: str) -> str:
    json_string: str = encode_basestring(text)
    if json_string.isascii():
        return json_string
    return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", json_string)


def _number(value: float) -> str:
    if isinstance(value, int) and abs(value) < _SAFE_INTEGER:
        return str(value)
    try:
        double = float(value)
    except OverflowError:
        return "null"
    if not math.isfinite(double):
        return "null"
    if double == 0:
        return "0"
    sign = "-" if double < 0 else ""
    return sign + _decimal(Decimal(repr(abs(double))))


def _decimal(number: Decimal) -> str:
    """Write the shortest digits that identify a double, in the notation of ECMA-262."""
    _, places, exponent = number.as_tuple()
    assert isinstance(exponent, int), "neither infinite nor NaN"
    all_digits = "".join(map(str, places))
    point = len(all_digits) + exponent  # number of digits before the point
    digits = all_digits.rstrip("0")
    if 0 < point <= _PLAIN_UP_TO:
        integer = digits[:point].ljust(point, "0")
        return f"{integer}.{digits[point:]}" if len(digits) > point else integer
    if _PLAIN_FROM < point <= 0:
        return "0." + "0" * -point + digits
    power = point - 1
    mantissa = digits if len(digits) == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{mantissa}e{'+' if power > 0 else '-'}{abs(power)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectLine:
    """A line that contains a JSON object."""

    number: int
    line: str = field(repr=False)
    """The line, including its newline if there is one."""
    value: dict[str, Any] = field(repr=False)


def object_lines(lines: Iterable[bytes], passed_over: list[str]) -> Iterator[ObjectLine]:
    """Read the objects of a JSONL file, given line by line with newlines."""
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        try:
            line = raw.decode()
            value = decode(line.removeprefix(_BYTE_ORDER_MARK).encode())
        except UnicodeDecodeError:
            passed_over.append(f"line {number}: not UTF-8 text")
            continue
        except FormatError:
            passed_over.append(f"line {number}: not JSON, or cut off")
            continue
        if not isinstance(value, dict):
            passed_over.append(f"line {number}: not a JSON object but {type(value).__name__}")
            continue
        yield ObjectLine(number=number, line=line, value=value)


def text_at(value: Mapping[str, Any], key: str) -> str | None:
    found_value = value.get(key)
    return found_value if isinstance(found_value, str) else None


def number_at(value: dict[str, Any], key: str) -> float | None:
    found_value = value.get(key)
    if isinstance(found_value, bool) or not isinstance(found_value, int | float):
        return None
    try:
        number = float(found_value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def instant(seconds: float | None) -> str | None:
    """Format a point in time as ISO 8601 in UTC; None if the calendar has no such time."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


def seconds_of(text: str) -> float | None:
    """Read a point in time in ISO 8601, in UTC unless it names a zone; None for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def when(seconds: float | None) -> str:
    """Format a point in time for people: UTC, to the minute."""
    text = instant(seconds)
    return "—" if text is None else text[:16].replace("T", " ")


def strings_of(
    value: Any, keys: Collection[str] | None = None, *, depth: int = 32
) -> Iterator[str]:
    """Return every string of a JSON value in order; inside objects, only of these keys."""
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, list):
        for inner in value:
            yield from strings_of(inner, keys, depth=depth - 1)
    elif depth and isinstance(value, dict):
        for key in value if keys is None else keys:
            if key in value:
                yield from strings_of(value[key], keys, depth=depth - 1)
