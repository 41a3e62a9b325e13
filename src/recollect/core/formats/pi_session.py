"""Reads, writes and migrates session files of pi, and builds the messages that pi would send to a
model. Lines are split only at `\n`, because U+2028 is allowed inside JSON strings. An invalid line
raises no error and is not repaired."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from recollect.core.formats.json_text import (
    decode,
    number_at,
    object_lines,
    seconds_of,
    stringify,
    text_at,
)
from recollect.core.formats.summaries import (
    PI_BRANCH_CLOSING,
    PI_BRANCH_OPENING,
    PI_CLOSING,
    PI_OPENING,
)
from recollect.errors import FormatError

PI_VERSION: Final = 3
"""`CURRENT_SESSION_VERSION` of pi 0.58 and its successor (docs/contributing/sources.md)."""
TORN_NOTE: Final = "the last line was cut off while it was written; it is left out"

_ID_CHARS: Final = 8
"""As long as pi's own entry ids."""
_FIRST_WITH_IDS: Final = 2
"""First version of pi's format in which entries have ids and parents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PiHeader:
    """The first line of a session file."""

    line: bytes = field(repr=False)
    value: dict[str, Any] = field(repr=False)

    @property
    def id(self) -> str:
        return str(self.value["id"])

    @property
    def version(self) -> int:
        """Version of the format; 1 if the header names none."""
        return int(number_at(self.value, "version") or 1)

    @property
    def cwd(self) -> str:
        return text_at(self.value, "cwd") or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PiEntry:
    """A line after the header, such as a message or a compaction."""

    number: int
    line: bytes = field(repr=False)
    value: dict[str, Any] = field(repr=False)

    @property
    def kind(self) -> str:
        """`message`, `compaction`, `custom` and so on; empty if the line names none."""
        return self.text("type") or ""

    @property
    def id(self) -> str | None:
        """Id of the entry, unique in its file; None in version 1."""
        return self.text("id")

    @property
    def parent_id(self) -> str | None:
        """Id of the previous entry on the branch; None for the first."""
        return self.text("parentId")

    @property
    def message(self) -> Mapping[str, Any] | None:
        value = self.value.get("message")
        return value if self.kind == "message" and isinstance(value, dict) else None

    @property
    def role(self) -> str | None:
        return text_at(self.message or {}, "role")

    @property
    def first_kept_id(self) -> str | None:
        """Id of the first earlier entry that a `compaction` does not summarize."""
        return self.text("firstKeptEntryId")

    @property
    def retained_tail(self) -> tuple[Mapping[str, Any], ...] | None:
        """Messages that a `compaction` without `first_kept_id` did not summarize and contains
        itself."""
        value = self.value.get("retainedTail")
        if self.kind != "compaction" or not isinstance(value, list):
            return None
        return tuple(message for message in value if isinstance(message, dict))

    @property
    def milliseconds(self) -> int:
        """Timestamp in milliseconds; 0 if there is none."""
        return round((seconds_of(self.text("timestamp") or "") or 0) * 1000)

    def text(self, key: str) -> str | None:
        return text_at(self.value, key)


@dataclass(frozen=True, slots=True, kw_only=True)
class PiSession:
    """The readable lines of a session file."""

    header: PiHeader | None
    entries: tuple[PiEntry, ...]
    version: int
    torn_bytes: int = 0
    """Length of the last line if a crash cut it off, else 0."""
    notes: tuple[str, ...] = ()


def read_session(data: bytes) -> PiSession:
    passed_over: list[str] = []
    lines = data.split(b"\n")
    torn_line = lines[-1] if lines[-1].strip() and not _is_object(lines[-1]) else b""
    if torn_line:
        lines.pop()
        passed_over.append(TORN_NOTE)
    found_lines = list(object_lines(lines, passed_over))
    entries = [
        PiEntry(number=line.number, line=lines[line.number - 1], value=line.value)
        for line in found_lines
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
        torn_bytes=len(torn_line),
        notes=tuple(passed_over),
    )


def path_to(entries: Sequence[PiEntry], leaf: str | None = None) -> tuple[PiEntry, ...]:
    """Return the entries from the root to the leaf, by default the last entry. A leaf that is not
    in the file is ignored, as in pi. If parents form a loop (a damaged file), the path ends at the
    first repetition."""
    by_id = {entry.id: entry for entry in entries if entry.id is not None}
    if not by_id:
        return tuple(entries)  # in version 1, every line's parent is the line before
    last = next(entry for entry in reversed(entries) if entry.id is not None)
    ancestor: PiEntry | None = by_id.get(leaf, last) if leaf is not None else last
    path: list[PiEntry] = []
    seen: set[str | None] = set()
    while ancestor is not None and ancestor.id not in seen:
        path.append(ancestor)
        seen.add(ancestor.id)
        ancestor = by_id.get(ancestor.parent_id) if ancestor.parent_id is not None else None
    return tuple(reversed(path))


def new_entry_id(taken_ids: Collection[str]) -> str:
    """Make an id like pi: eight hex digits that no other entry has."""
    while (short := uuid.uuid4().hex[:_ID_CHARS]) in taken_ids:
        pass
    return short


def timestamp_at(seconds: float) -> str:
    """Format a time like JavaScript's `toISOString`: UTC, in milliseconds."""
    utc_time = datetime.fromtimestamp(round(seconds * 1000) / 1000, UTC)
    return utc_time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _is_object(line: bytes) -> bool:
    try:
        line.decode()
        return isinstance(decode(line), dict)
    except (UnicodeDecodeError, FormatError):
        return False


def _version_without_header(entries: Sequence[PiEntry]) -> int:
    if not entries:
        return PI_VERSION
    return _FIRST_WITH_IDS if any(entry.id for entry in entries) else 1


_ARRAY_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_LARGEST_INDEX: Final = 2**32 - 2  # ECMA-262, array index: JavaScript puts these keys first


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """Fields that every entry has: id, parent and time."""

    id: str
    parent_id: str | None
    timestamp: str

    def fields(self) -> dict[str, Any]:
        return {"id": self.id, "parentId": self.parent_id, "timestamp": self.timestamp}


def entry_line(value: Mapping[str, Any]) -> bytes:
    try:
        return stringify(_order_keys(value)).encode()
    except RecursionError as error:
        raise FormatError("an entry is nested too deeply to be written as JSON") from error


def header_value(*, session_id: str, timestamp: str, cwd: str) -> dict[str, Any]:
    opening = {"type": "session", "version": PI_VERSION}
    return {**opening, "id": session_id, "timestamp": timestamp, "cwd": cwd}


def message_value(stamp: Stamp, message: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "message", **stamp.fields(), "message": message}


def compaction_value(
    stamp: Stamp,
    *,
    summary: str,
    first_kept_entry_id: str,
    tokens_before: int,
    tokens_after: int | None = None,
    details: Any = None,
    from_hook: bool | None = False,
    retained_tail: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    value = {
        "type": "compaction",
        **stamp.fields(),
        "summary": summary,
        "firstKeptEntryId": first_kept_entry_id,
        "tokensBefore": tokens_before,
        **({} if tokens_after is None else {"tokensAfter": tokens_after}),
    }
    return _with_optional(value, details=details, fromHook=from_hook, retainedTail=retained_tail)


def session_info_value(stamp: Stamp, *, name: str) -> dict[str, Any]:
    """Build the entry that gives the session a name."""
    return {"type": "session_info", **stamp.fields(), "name": name}


def custom_value(stamp: Stamp, *, custom_type: str, data: Any = None) -> dict[str, Any]:
    """Build an entry that stores an extension's state, which is never sent to the model."""
    return {
        **_with_optional({"type": "custom", "customType": custom_type}, data=data),
        **stamp.fields(),
    }


def _with_optional(value: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return value | {key: field for key, field in optional.items() if field is not None}


def _order_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        inner = {key: _order_keys(item) for key, item in value.items()}
        first = sorted((key for key in inner if _is_index(key)), key=int)
        return {key: inner[key] for key in first} | inner if first else inner
    if isinstance(value, list | tuple):
        return [_order_keys(item) for item in value]
    return value


def _is_index(key: str) -> bool:
    return _ARRAY_INDEX.fullmatch(key) is not None and int(key) <= _LARGEST_INDEX


def migrate(session: PiSession) -> PiSession:
    """Convert the session to version 3. The notes list the changes."""
    if session.version >= PI_VERSION:
        return session
    values = [dict(entry.value) for entry in session.entries]
    notes = [*session.notes, f"read as version {session.version}, migrated to {PI_VERSION}"]
    if session.version < _FIRST_WITH_IDS:
        _give_ids(values, session, notes)
    values = [_with_custom_role(value) for value in values]
    header = session.header
    if header is not None:
        value = {**header.value, "version": PI_VERSION}
        header = PiHeader(line=entry_line(value), value=value)
    entries = [
        replace(entry, value=value, line=entry_line(value))
        for entry, value in zip(session.entries, values, strict=True)
    ]
    return replace(
        session, header=header, entries=tuple(entries), version=PI_VERSION, notes=tuple(notes)
    )


def _give_ids(values: list[dict[str, Any]], session: PiSession, notes: list[str]) -> None:
    before_header = 1 if session.header is not None else 0  # the index counts the header line
    parent: str | None = None
    for position, value in enumerate(values):
        if value.get("type") == "session":  # a second header has no parent
            continue
        value["id"], value["parentId"] = f"{position:0{_ID_CHARS}x}", parent
        parent = value["id"]
        if value.get("type") != "compaction":
            continue
        index = value.get("firstKeptEntryIndex")
        if isinstance(index, bool) or not isinstance(index, int | float):
            continue
        target = _entry_at(index - before_header, values[:position])
        if target is None:
            line = session.entries[position].number
            notes.append(
                f"line {line}: the first entry that this compaction kept is not before it, so "
                "only its summary replaces the past"
            )
        else:
            value["firstKeptEntryId"] = target["id"]
        del value["firstKeptEntryIndex"]


def _entry_at(position: float, values: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    if position != int(position) or not 0 <= position < len(values):
        return None
    entry = values[int(position)]
    return entry if entry.get("type") != "session" else None


def _with_custom_role(value: dict[str, Any]) -> dict[str, Any]:
    message = value.get("message")
    if value.get("type") == "session":  # a second header, which pi also migrates
        return {**value, "version": PI_VERSION}
    if value.get("type") != "message" or not isinstance(message, dict):
        return value
    if message.get("role") != "hookMessage":
        return value
    return {**value, "message": {**message, "role": "custom"}}


PiMessage: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PiShown:
    """One message that the model sees, and the entry that contains it."""

    entry_id: str | None
    message: PiMessage = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PiContext:
    """The messages that the model sees at one entry of a session."""

    shown: tuple[PiShown, ...] = ()

    @property
    def messages(self) -> tuple[PiMessage, ...]:
        """Messages for the model, not yet in a provider's format."""
        return tuple(item.message for item in self.shown)


def build_context(entries: Sequence[PiEntry], leaf: str | None = None) -> PiContext:
    """Build the messages that pi sends: the last summary on the path, the messages that it does not
    cover, and everything after it."""
    path = path_to(entries, leaf)
    cut = max(
        (index for index, entry in enumerate(path) if entry.kind == "compaction"), default=None
    )
    if cut is None:
        return PiContext(shown=tuple(_show_entries(path)))
    summary = path[cut]
    shown = [PiShown(entry_id=summary.id, message=summary_message(summary))]
    tail = summary.retained_tail
    if tail is not None:
        shown += [PiShown(entry_id=summary.id, message=message) for message in tail]
    else:
        shown += _show_entries(path[find_first_kept(path, cut) : cut])
    shown += _show_entries(path[cut + 1 :])
    return PiContext(shown=tuple(shown))


def build_history(entries: Sequence[PiEntry]) -> PiContext:
    """Build the messages of the path to the last entry, as if there had been no compaction."""
    return PiContext(shown=tuple(_show_entries(path_to(entries))))


def find_first_kept(path: Sequence[PiEntry], cut: int) -> int:
    """Return the position of the first entry that the compaction at `cut` does not summarize. If
    that entry is missing, return `cut`, as pi does."""
    first = path[cut].first_kept_id
    for position in range(cut):
        if first is not None and path[position].id == first:
            return position
    return cut


def _show_entries(entries: Iterable[PiEntry]) -> Iterator[PiShown]:
    for entry in entries:
        message = message_of(entry)
        if message is not None:
            yield PiShown(entry_id=entry.id, message=message)


def summary_message(entry: PiEntry) -> PiMessage:
    """Build the message that contains the summary of a `compaction` entry."""
    return _as_user(entry, PI_OPENING + (entry.text("summary") or "") + PI_CLOSING)


def message_of(entry: PiEntry) -> PiMessage | None:
    """Return the message that an entry adds to the model's input; None if it adds none."""
    if entry.message is not None:
        return None if entry.message.get("excludeFromContext") is True else entry.message
    if entry.kind == "custom_message":
        content = entry.value.get("content")
        return _as_user(entry, content if isinstance(content, list) else str(content or ""))
    if entry.kind == "branch_summary" and entry.text("summary"):
        text = PI_BRANCH_OPENING + (entry.text("summary") or "") + PI_BRANCH_CLOSING
        return _as_user(entry, text)
    return None


def _as_user(entry: PiEntry, content: str | list[Any]) -> PiMessage:
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    return {"role": "user", "content": blocks, "timestamp": entry.milliseconds}
