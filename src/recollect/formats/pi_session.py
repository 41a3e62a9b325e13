"""A pi session file as its entries, read line by line (docs/sessions.md).

Owns what a line is: the header, an entry, or something that is neither and is told. Pure: bytes
come in. Always holds: an entry keeps its line as it stood in the file; lines are split on `\\n`
alone, because U+2028 and its like are legal inside JSON strings; a bad line never raises.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from recollect.errors import FormatError
from recollect.formats.js_json import number_at, object_lines, text_at
from recollect.formats.json_spans import decode

PI_VERSION: Final = 3
"""`CURRENT_SESSION_VERSION` of pi 0.58 and its successor (docs/sources.md)."""
TORN_NOTE: Final = "the last line was cut off while it was written; it is left out"

_ID_CHARS: Final = 8
_ID_ATTEMPTS: Final = 100
_UNKNOWN_WITH_IDS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PiHeader:
    """The first line: what session this is."""

    line: bytes = field(repr=False)
    """As it stands in the file, without its line end."""
    value: dict[str, Any] = field(repr=False)

    @property
    def id(self) -> str:
        """The session's id."""
        return str(self.value["id"])

    @property
    def version(self) -> int:
        """Of the format; a header that names none is of version 1."""
        return int(number_at(self.value, "version") or 1)

    @property
    def cwd(self) -> str:
        """The folder that the session was started in."""
        return text_at(self.value, "cwd") or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PiEntry:
    """A line behind the header. Kinds that nobody knows yet are entries like any other."""

    number: int
    """Of the line, from 1."""
    line: bytes = field(repr=False)
    """As it stands in the file, without its line end."""
    value: dict[str, Any] = field(repr=False)

    @property
    def kind(self) -> str:
        """`message`, `compaction`, `custom` and so on; empty where the line names none."""
        return self.text("type") or ""

    @property
    def id(self) -> str | None:
        """Opaque, and one of a kind in its file; version 1 has none."""
        return self.text("id")

    @property
    def parent_id(self) -> str | None:
        """The entry before it on its branch; None for the first."""
        return self.text("parentId")

    @property
    def message(self) -> Mapping[str, Any] | None:
        """The message of a `message` entry."""
        found = self.value.get("message")
        return found if self.kind == "message" and isinstance(found, dict) else None

    @property
    def role(self) -> str | None:
        """The role of a `message` entry's message."""
        message = self.message
        role = message.get("role") if message is not None else None
        return role if isinstance(role, str) else None

    @property
    def first_kept_id(self) -> str | None:
        """From where on a `compaction` keeps what came before it."""
        return self.text("firstKeptEntryId")

    @property
    def retained_tail(self) -> tuple[Mapping[str, Any], ...] | None:
        """The messages that a `compaction` carries itself, in place of `first_kept_id`."""
        found = self.value.get("retainedTail")
        if self.kind != "compaction" or not isinstance(found, list):
            return None
        return tuple(message for message in found if isinstance(message, dict))

    @property
    def milliseconds(self) -> int:
        """Its time, as messages spell times; 0 where it has none."""
        return milliseconds_of(self.text("timestamp"))

    def text(self, key: str) -> str | None:
        """A field that is a string, else None."""
        found = self.value.get(key)
        return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PiSession:
    """A session file as far as it could be read."""

    header: PiHeader | None
    entries: tuple[PiEntry, ...]
    version: int
    torn_bytes: int = 0
    """Length of a last line that was cut off while it was written."""
    ends_open: bool = False
    """The last line is whole but for its line end."""
    notes: tuple[str, ...] = ()
    """What could not be read and how that was taken, one sentence each."""


def read_session(data: bytes) -> PiSession:
    """Read a session file, of any version, as it stands."""
    passed_over: list[str] = []
    lines = data.split(b"\n")
    torn = lines[-1] if lines[-1].strip() and not _is_object(lines[-1]) else b""
    if torn:
        lines.pop()
        passed_over.append(TORN_NOTE)
    found = list(object_lines(lines, passed_over))
    entries = [
        PiEntry(number=one.number, line=lines[one.number - 1], value=one.value) for one in found
    ]
    header = None
    if entries and entries[0].kind == "session" and entries[0].id is not None:
        header = PiHeader(line=entries[0].line, value=entries[0].value)
        entries = entries[1:]
    elif entries:
        passed_over.append("no session header: read as if its first line were missing")
    return PiSession(
        header=header,
        entries=tuple(entries),
        version=header.version if header else _version_without_header(entries),
        torn_bytes=len(torn),
        ends_open=not torn and bool(lines[-1].strip()),
        notes=tuple(passed_over),
    )


def path_to(entries: Sequence[PiEntry], leaf: str | None = None) -> tuple[PiEntry, ...]:
    """The entries from the root to the leaf; without one, to the last entry of the file.

    A leaf that is not in the file counts as none, as in pi. A ring of parents, which only a
    damaged file has, ends where it would bite its own tail.
    """
    by_id = {entry.id: entry for entry in entries if entry.id is not None}
    if not by_id:
        return tuple(entries)  # version 1: every line's parent is the line before
    last = next(entry for entry in reversed(entries) if entry.id is not None)
    at: PiEntry | None = by_id.get(leaf, last) if leaf is not None else last
    walked: list[PiEntry] = []
    seen: set[str | None] = set()
    while at is not None and at.id not in seen:
        walked.append(at)
        seen.add(at.id)
        at = by_id.get(at.parent_id) if at.parent_id is not None else None
    return tuple(reversed(walked))


def new_entry_id(taken: Collection[str]) -> str:
    """A new id as pi makes them: eight hex digits that no other entry has."""
    return _free_id(iter(lambda: uuid.uuid4().hex, None), taken)


def entry_id_from(seed: str, taken: Collection[str]) -> str:
    """The id that follows from the seed, so that migrating a file twice gives it once."""
    return _free_id(_digests(seed), taken)


def _free_id(drawn: Iterator[str], taken: Collection[str]) -> str:
    for _ in range(_ID_ATTEMPTS):
        short = next(drawn)[:_ID_CHARS]
        if short not in taken:
            return short
    return str(uuid.UUID(next(drawn)))


def _digests(seed: str) -> Iterator[str]:
    spelled = seed.encode("utf-8", "surrogatepass")
    attempt = 0
    while True:
        yield hashlib.blake2b(spelled, digest_size=16, salt=b"%d" % attempt).hexdigest()
        attempt += 1


def timestamp_at(seconds: float) -> str:
    """A time as JavaScript's `toISOString` spells it: UTC, in milliseconds."""
    at = datetime.fromtimestamp(round(seconds * 1000) / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def milliseconds_of(timestamp: str | None) -> int:
    """Milliseconds since the epoch; 0 for what is no time."""
    if timestamp is None:
        return 0
    try:
        at = datetime.fromisoformat(timestamp)
    except ValueError:
        return 0
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1000)


def _is_object(line: bytes) -> bool:
    """Whole, then: no beginning of an object is an object."""
    try:
        line.decode()
        return isinstance(decode(line), dict)
    except (UnicodeDecodeError, FormatError):
        return False


def _version_without_header(entries: Sequence[PiEntry]) -> int:
    if not entries:
        return PI_VERSION
    return _UNKNOWN_WITH_IDS if any(entry.id for entry in entries) else 1
