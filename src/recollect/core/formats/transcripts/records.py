"""Reads the JSON lines of a recording; shared by the readers of all formats. Lines are split only
at `\n`, because U+2028 is allowed inside JSON strings. An invalid line is skipped and reported with
its number. Field values stay the file's own bytes."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from io import BufferedIOBase, BytesIO
from typing import TYPE_CHECKING, Any, Final

from recollect.core.formats.json_text import Fields, decode, object_fields, seconds_of, text_of
from recollect.core.formats.replies import read_usage
from recollect.core.values.transcript import RecordedRequest, ShownItems, TranscriptItem
from recollect.errors import FormatError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recollect.core.values.model import Usage


_GZIP_MAGIC = b"\x1f\x8b"  # RFC 1952, 2.3.1
_ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"  # RFC 8878, 3.1.1
_UTF8_MARK = b"\xef\xbb\xbf"
_MILLISECONDS_FROM = 1e11
"""A larger timestamp is in milliseconds: in seconds, it would be after the year 5138."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of a recording: a JSON object with undecoded values."""

    line: int
    fields: Fields
    raw: bytes


MAX_LINE_BYTES: Final = 32 << 20
"""No provider accepted a larger request when this was set, so no agent sent a longer message."""
MAX_NOTES: Final = 1_000
"""Number of skipped lines that are listed. A file may have millions of lines."""
_MAX_UNPACKED_BYTES: Final = 1 << 30
"""Bounds memory: a recording is read as a whole."""
_FREE_BYTES: Final = 32 << 20
"""As `MAX_LINE_BYTES`, so that one longest line may be packed at any ratio."""
_MAX_RATIO: Final = 100
"""A recording may unpack to 32 MB, and beyond that to 100 times its size. Not measured on
recordings. 32 MB of the shortest lines take about half a minute to read."""


def unpack(data: bytes, *, name: str = "") -> bytes:
    """Decompress gzip or Zstandard up to a limit, and drop a byte order mark."""
    subject = name or "the recording"
    if data.startswith(_ZSTANDARD_MAGIC):
        try:
            if sys.version_info >= (3, 14):
                from compression import zstd
            else:
                from backports import zstd
        except ImportError:
            raise MissingExtra(feature="reading Zstandard", extra="hooks") from None
        try:
            data = _read_unpacked(zstd.ZstdFile(BytesIO(data)), len(data), subject)
        except (zstd.ZstdError, EOFError) as error:
            raise FormatError(f"{subject} is a damaged Zstandard file: {error}") from error
    if data.startswith(_GZIP_MAGIC):
        try:
            data = _read_unpacked(gzip.GzipFile(fileobj=BytesIO(data)), len(data), subject)
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(f"{subject} is a damaged gzip file: {error}") from error
    return data.removeprefix(_UTF8_MARK)


def _read_unpacked(file: BufferedIOBase, packed_bytes: int, subject: str) -> bytes:
    limit = min(_MAX_UNPACKED_BYTES, max(_FREE_BYTES, _MAX_RATIO * packed_bytes))
    with file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise FormatError(
            f"{subject} unpacks to more than {limit:,} bytes: unpack it yourself, check that it is "
            "a transcript, and pass the unpacked file"
        )
    return data


def without_long_lines(data: bytes, passed_over: list[str]) -> bytes:
    """Empty the lines that are too long, and report them."""
    if len(data) <= MAX_LINE_BYTES:
        return data
    kept, kept_end, offset = list[bytes](), 0, 0
    for number, line in enumerate(BytesIO(data), 1):
        if note_if_long("line", number, line, passed_over):
            kept += [data[kept_end:offset], b"\n"]
            kept_end = offset + len(line)
        offset += len(line)
    return b"".join([*kept, data[kept_end:]]) if kept else data


def note_if_long(unit: str, number: int, raw: bytes, passed_over: list[str]) -> bool:
    if len(raw) <= MAX_LINE_BYTES:
        return False
    limit = f"{MAX_LINE_BYTES:,} bytes are read"
    _note(passed_over, f"{unit} {number}: {len(raw):,} bytes long, but only up to {limit}")
    return True


def _note(passed_over: list[str], text: str) -> None:
    if len(passed_over) < MAX_NOTES:
        passed_over.append(text)
    elif len(passed_over) == MAX_NOTES:
        passed_over.append(f"{text}; later lines are skipped without a note")


def records(data: bytes, *, passed_over: list[str], before: int = 0) -> Iterator[Record]:
    """Yield the JSON objects of a JSONL recording. Invalid lines are reported in `passed_over`.
    `before` is the number of earlier lines."""
    for number, raw in enumerate(BytesIO(data), before + 1):
        line = raw.strip()
        if not line:
            continue
        # msgspec does not validate strings that it skips, so check for invalid UTF-8 here
        fields = object_fields(line) if is_utf8(line) else None
        if fields is None:
            if len(passed_over) <= MAX_NOTES:
                _note(passed_over, f"line {number}: {_complaint(line)}")
            continue
        yield Record(line=number, fields=fields, raw=line)


def is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_set(fields: Fields, key: str) -> bool:
    return fields.get(key) == b"true"


def value_of(raw: bytes | None) -> Any:
    """Decode a value; None if it is missing or invalid."""
    if raw is None:
        return None
    try:
        return decode(raw)
    except (FormatError, RecursionError):
        return None


def mapping_of(raw: bytes | None) -> dict[str, Any]:
    value = value_of(raw) if raw is not None and raw.startswith(b"{") else None
    return value if isinstance(value, dict) else {}


def usage_of(message: Fields) -> Usage | None:
    """Return the usage of an assistant message; None if it has none, or only zeros (if aborted)."""
    return read_usage({"usage": mapping_of(message.get("usage"))})


def no_parent(line: int, parent: str) -> str:
    return f"line {line}: its parent {parent!r} is not in the file, so nothing before it is shown"


def instant_of(fields: Fields, key: str) -> float | None:
    """Return a point in time as seconds since 1970, from ISO text, seconds or milliseconds."""
    raw = fields.get(key)
    if raw is None:
        return None
    value = value_of(raw)
    if isinstance(value, str):
        return seconds_of(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value / 1000 if value > _MILLISECONDS_FROM else float(value)


def _complaint(line: bytes) -> str:
    try:
        value = json.loads(line)
    except RecursionError:
        return "nested too deeply to be read"
    except UnicodeDecodeError:
        return "not UTF-8 text"
    except ValueError as error:
        return f"not JSON ({error})"
    return f"not a JSON object but {type(value).__name__}"


def parents_first(parents: Sequence[int | None]) -> Iterator[tuple[int, int | None]]:
    """Yield every position with its parent, in file order, but parents before their children."""
    done_flags = bytearray(len(parents))
    for position in range(len(parents)):
        branch: list[int] = []
        walking: set[int] = set()
        ancestor: int | None = position
        while ancestor is not None and not done_flags[ancestor] and ancestor not in walking:
            branch.append(ancestor)
            walking.add(ancestor)
            ancestor = parents[ancestor]
        for entry in reversed(branch):
            parent = parents[entry]
            done_flags[entry] = 1
            yield entry, parent if parent is not None and done_flags[parent] else None


def ancestors(position: int | None, parents: Sequence[int | None]) -> Iterator[int]:
    """Yield the position itself, its parent, and so on up to the root."""
    seen: set[int] = set()
    while position is not None and position not in seen:
        seen.add(position)
        yield position
        position = parents[position]


_CHECKPOINTS = frozenset(
    {"compaction", "compaction_summary", "context_compaction", "item_reference"}
)


def is_written_by_model(item: Fields) -> bool:
    """Return whether the model wrote an item, rather than a tool, a user or the client."""
    role = text_of(item, "role")
    if role is not None:
        return role == "assistant"
    kind = text_of(item, "type") or ""
    return bool(kind) and not kind.endswith("_output") and kind not in _CHECKPOINTS


@dataclass(slots=True, kw_only=True)
class ModelRuns:
    """Calls of the model in a list of OpenAI Responses items. The last call may be unfinished."""

    _requests: list[RecordedRequest] = field(default_factory=list)
    _shown_items: ShownItems = field(default_factory=ShownItems)
    _answered: list[int] = field(default_factory=list)

    def answer(self, item: int, *, shown_items: ShownItems) -> None:
        """Add an item that the model wrote. `shown_items` is the call's input, if the item begins a
        call."""
        if not self._answered:
            self._shown_items = shown_items
        self._answered.append(item)

    def close(self, usage: Usage | None = None) -> None:
        """End the current call. If no call is open, `usage` belongs to the last call if it has
        none."""
        if self._answered:
            self._requests.append(
                RecordedRequest(
                    shown=self._shown_items, answered=tuple(self._answered), usage=usage
                )
            )
            self._answered = []
        elif usage is not None and self._requests and self._requests[-1].usage is None:
            self._requests[-1] = replace(self._requests[-1], usage=usage)

    def so_far(self) -> ModelRuns:
        """Return a copy with the calls so far. Closing the copy does not change the original."""
        return ModelRuns(
            _requests=list(self._requests),
            _shown_items=self._shown_items,
            _answered=list(self._answered),
        )

    def requests(self) -> tuple[RecordedRequest, ...]:
        self.close()
        return tuple(self._requests)

    def with_usage(self, items: Iterable[TranscriptItem]) -> tuple[TranscriptItem, ...]:
        """Attach each call's usage to its last item."""
        usages = {request.answered[-1]: request.usage for request in self.requests()}
        return tuple(
            replace(item, usage=usages[index]) if usages.get(index) is not None else item
            for index, item in enumerate(items)
        )
