"""A recording's bytes as JSON records, and what the readers share: fields, lineage, model calls.

Lines are split on `\\n` alone: U+2028 and its like are legal inside JSON strings. Never raises on
a bad line: it is left out and reported with its number. Field values stay the file's own bytes.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from recollect.core.formats.json_text import Fields, decode, object_fields, text_of
from recollect.core.values.model import Usage
from recollect.core.values.transcript import RecordedRequest, ShownItems, TranscriptItem
from recollect.errors import FormatError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recollect.core.values.model import Usage


UsageKeys: TypeAlias = tuple[str, str, str, str]
"""What a client calls input that was not cached, output, input read from and written to a cache."""
PI_USAGE: UsageKeys = ("input", "output", "cacheRead", "cacheWrite")

_GZIP_MAGIC = b"\x1f\x8b"  # RFC 1952, 2.3.1
_ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"  # RFC 8878, 3.1.1
_UTF8_MARK = b"\xef\xbb\xbf"
_MILLISECONDS_FROM = 1e11
"""A timestamp above this is in milliseconds: in seconds it would be the year 5138."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of a recording: a JSON object, its values not yet decoded."""

    line: int
    fields: Fields
    raw: bytes


def unpacked(data: bytes, *, name: str = "") -> bytes:
    """The recording itself: gzip or Zstandard undone and a byte order mark dropped, where there is
    one."""
    subject = name or "the recording"
    if data.startswith(_ZSTANDARD_MAGIC):
        try:
            from backports import zstd
        except ImportError:
            raise MissingExtra(feature="reading Zstandard", extra="hooks") from None
        try:
            data = zstd.decompress(data)
        except zstd.ZstdError as error:
            raise FormatError(f"{subject} is a damaged Zstandard file: {error}") from error
    if data.startswith(_GZIP_MAGIC):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(f"{subject} is a damaged gzip file: {error}") from error
    return data.removeprefix(_UTF8_MARK)


def records(data: bytes, *, passed_over: list[str], before: int = 0) -> Iterator[Record]:
    """The JSON objects of a JSONL recording, in order; bad lines are reported in `passed_over`.
    `before` is the number of earlier lines."""
    for number, raw in enumerate(data.split(b"\n"), before + 1):
        line = raw.strip()
        if not line:
            continue
        # msgspec does not look into the strings it passes by, so bad UTF-8 must be found here
        fields = object_fields(line) if is_utf8(line) else None
        if fields is None:
            passed_over.append(f"line {number}: {_complaint(line)}")
            continue
        yield Record(line=number, fields=fields, raw=line)


def is_utf8(data: bytes) -> bool:
    """Whether these bytes are text at all."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


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


def usage_of(message: Fields, *, keys: UsageKeys) -> Usage | None:
    """The usage of an assistant message, the input counted whole; None if it reports none: an
    aborted call has zeros only."""
    usage = mapping_of(message.get("usage"))
    fresh, output, read, written = (tokens_of(usage, key) for key in keys)
    whole = fresh + read + written
    if not whole and not output:
        return None
    return Usage(
        input_tokens=whole, output_tokens=output, cache_read_tokens=read, cache_write_tokens=written
    )


def no_parent(line: int, parent: str) -> str:
    """The report on an entry whose parent is missing."""
    return f"line {line}: its parent {parent!r} is not in the file, so nothing before it is shown"


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


# Entries that name their parent: the order in which histories can be built from them


def parents_first(parents: Sequence[int | None]) -> Iterator[tuple[int, int | None]]:
    """Every position with its parent, in file order save that parents go before children."""
    done = bytearray(len(parents))
    for position in range(len(parents)):
        branch: list[int] = []
        walking: set[int] = set()
        at: int | None = position
        while at is not None and not done[at] and at not in walking:
            branch.append(at)
            walking.add(at)
            at = parents[at]
        for entry in reversed(branch):
            parent = parents[entry]
            done[entry] = 1
            yield entry, parent if parent is not None and done[parent] else None


def ancestors(position: int | None, parents: Sequence[int | None]) -> Iterator[int]:
    """The position itself, its parent, and so on up to the root."""
    seen: set[int] = set()
    while position is not None and position not in seen:
        seen.add(position)
        yield position
        position = parents[position]


# Calls of the model in a list of OpenAI Responses items: runs of what the model wrote


_CHECKPOINTS = frozenset(
    {"compaction", "compaction_summary", "context_compaction", "item_reference"}
)


def is_written_by_model(item: Fields) -> bool:
    """Whether an item came from the model, rather than from a tool, a user or the client."""
    role = text_of(item, "role")
    if role is not None:
        return role == "assistant"
    kind = text_of(item, "type") or ""
    return bool(kind) and not kind.endswith("_output") and kind not in _CHECKPOINTS


@dataclass(slots=True, kw_only=True)
class ModelRuns:
    """The calls found so far, the last of them perhaps still open."""

    _found: list[RecordedRequest] = field(default_factory=list)
    _shown: ShownItems = field(default_factory=ShownItems)
    _answered: list[int] = field(default_factory=list)

    def answer(self, item: int, *, shown: ShownItems) -> None:
        """The model wrote this item; `shown` counts if it is the first of its call."""
        if not self._answered:
            self._shown = shown
        self._answered.append(item)

    def close(self, usage: Usage | None = None) -> None:
        """The call is over. Usage that arrives after it belongs to the last one without any."""
        if self._answered:
            self._found.append(
                RecordedRequest(shown=self._shown, answered=tuple(self._answered), usage=usage)
            )
            self._answered = []
        elif usage is not None and self._found and self._found[-1].usage is None:
            self._found[-1] = replace(self._found[-1], usage=usage)

    def so_far(self) -> ModelRuns:
        """A copy that can be closed while this one continues."""
        return ModelRuns(
            _found=list(self._found), _shown=self._shown, _answered=list(self._answered)
        )

    def requests(self) -> tuple[RecordedRequest, ...]:
        """Every call, in order."""
        self.close()
        return tuple(self._found)

    def with_usage(self, items: Iterable[TranscriptItem]) -> tuple[TranscriptItem, ...]:
        """The items, the last of each call carrying what the call used."""
        usages = {request.answered[-1]: request.usage for request in self.requests()}
        return tuple(
            replace(item, usage=usages[at]) if usages.get(at) is not None else item
            for at, item in enumerate(items)
        )
