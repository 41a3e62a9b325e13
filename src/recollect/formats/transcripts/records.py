"""A recording's bytes as JSON records, and the few field readings all readers share.

Owns unpacking, the split into lines and the tale of what could not be read. Lines are split
on `\\n` alone: U+2028 and its like are legal inside JSON strings. Never raises on a bad line:
it is left out and told, with its number. Field values stay the file's own bytes.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from recollect.errors import FormatError
from recollect.formats.json_spans import array_spans, decode, object_spans

Fields: TypeAlias = Mapping[str, bytes]
Progress: TypeAlias = Callable[[int, int], None]

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_GZIP_MAGIC = b"\x1f\x8b"  # RFC 1952, 2.3.1
_ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"  # RFC 8878, 3.1.1
_UTF8_MARK = b"\xef\xbb\xbf"
_PROGRESS_STEP_BYTES = 1 << 20
_MILLISECONDS_FROM = 1e11
"""A timestamp above this is in milliseconds: in seconds it would be the year 5138."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of a recording: a JSON object, its values not yet decoded."""

    line: int
    fields: Fields
    raw: bytes


def unpacked(data: bytes, *, name: str = "") -> bytes:
    """The recording itself: gzip undone and a byte order mark dropped, where there is one."""
    subject = name or "the recording"
    if data.startswith(_ZSTANDARD_MAGIC):
        raise FormatError(
            f"{subject} is compressed with Zstandard, which is not supported; "
            "unpack it with `zstd -d` and give the .jsonl file"
        )
    if data.startswith(_GZIP_MAGIC):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(f"{subject} is a damaged gzip file: {error}") from error
    return data.removeprefix(_UTF8_MARK)


def records(
    data: bytes, *, passed_over: list[str], progress: Progress | None = None
) -> Iterator[Record]:
    """The JSON objects of a JSONL recording, in order; bad lines are told in `passed_over`."""
    told = 0
    for number, start, end in _lines(data):
        if progress is not None and start - told >= _PROGRESS_STEP_BYTES:
            told = start
            progress(start, len(data))
        line = data[start:end].strip()
        if not line:
            continue
        # msgspec does not look into the strings it passes by, so bad UTF-8 must be found here
        fields = object_fields(line) if is_utf8(line) else None
        if fields is None:
            passed_over.append(f"line {number}: {_complaint(line)}")
            continue
        yield Record(line=number, fields=fields, raw=line)
    if progress is not None:
        progress(len(data), len(data))


def object_fields(raw: bytes) -> dict[str, bytes] | None:
    """The values of a JSON object by key, or None where it is not one."""
    if not raw.startswith(b"{"):
        return None
    try:
        return {key: bytes(span) for key, span in _OBJECT.decode(raw).items()}
    except (ValueError, RecursionError):
        return object_spans(raw) if _is_whole(raw) else None


def array_items(raw: bytes | None) -> list[bytes] | None:
    """The items of a JSON array, or None where it is not one."""
    if raw is None or not raw.startswith(b"["):
        return None
    try:
        return [bytes(span) for span in _ARRAY.decode(raw)]
    except (ValueError, RecursionError):
        return array_spans(raw) if _is_whole(raw) else None


def is_utf8(data: bytes) -> bool:
    """Whether these bytes are text at all."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def text_of(fields: Fields, key: str) -> str | None:
    """A field that is a string, else None."""
    raw = fields.get(key)
    if raw is None or raw[:1] != b'"':
        return None
    if b"\\" not in raw:  # nearly all short strings: no JSON reader needed
        return raw[1:-1].decode(errors="replace")
    value = value_of(raw)
    return value if isinstance(value, str) else None


def is_set(fields: Fields, key: str) -> bool:
    """Whether a field is true."""
    return fields.get(key) == b"true"


def value_of(raw: bytes | None) -> Any:
    """A decoded value; None where there is none."""
    if raw is None:
        return None
    try:
        return decode(raw)
    except (FormatError, RecursionError):
        return None


def mapping_of(raw: bytes | None) -> dict[str, Any]:
    """A decoded object; empty where it is none."""
    value = value_of(raw) if raw is not None and raw.startswith(b"{") else None
    return value if isinstance(value, dict) else {}


def tokens_of(usage: Mapping[str, Any], key: str) -> int:
    """A reported number of tokens; nonsense counts as none."""
    value = usage.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 < value < float("inf") else 0


def instant_of(fields: Fields, key: str) -> float | None:
    """A point in time as seconds since 1970: from ISO text, seconds or milliseconds."""
    raw = fields.get(key)
    if raw is None:
        return None
    value = value_of(raw)
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value / 1000 if value > _MILLISECONDS_FROM else float(value)


def _is_whole(raw: bytes) -> bool:
    """Whether the standard library reads it as one value: what msgspec refuses may be fine."""
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


def _lines(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of every line."""
    number, start = 0, 0
    while start < len(data):
        number += 1
        end = data.find(b"\n", start)
        if end < 0:
            end = len(data)
        yield number, start, end
        start = end + 1


def _complaint(line: bytes) -> str:
    """Why a line is no record."""
    try:
        value = json.loads(line)
    except RecursionError:
        return "nested too deeply to be read"
    except UnicodeDecodeError:
        return "not UTF-8 text"
    except ValueError as error:
        return f"not JSON ({error})"
    return f"not a JSON object but {type(value).__name__}"
