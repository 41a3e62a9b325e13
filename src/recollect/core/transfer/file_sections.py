"""Reads the sections of a memory file, gives them ids, compares them with the store, and writes
them. A section's id is made from its text, headings and repetition number, but not from its line,
so it does not change if the section moves. Secrets are masked in the whole file before it is split.
Sections have the role and trust of the assistant, because their author is unknown. Reading runs in
a thread, follows no link to other files, and never returns half-written files. Text is split at
headings, a long section at paragraphs, else at lines. Each section begins with the headings above
it."""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import accumulate, groupby, pairwise
from pathlib import Path

from recollect.core.ports import Archive, read_pages
from recollect.core.rules.identity import identify, segment_id
from recollect.core.rules.redaction import RedactedSpan, redact
from recollect.core.rules.tokens import Weigher
from recollect.core.transfer.file_walk import FoundFile
from recollect.core.turn.ingest import index, ingest
from recollect.core.values.history import Entry
from recollect.core.values.message import EntryKey, Message, MessageId, Text
from recollect.core.values.recall import FILE_SESSIONS
from recollect.core.values.segment import NewSegment, Segment, SegmentId
from recollect.system.config.settings import Redaction
from recollect.system.durable import open_plain

SECTION_CHARS = 4_000
"""Not measured; a section is recalled in passages, and this bounds what one change of a line
rewrites."""
HEADING_CHARS = 200
"""Not measured; a longer heading is text, and stays in the section."""

_MIN_BODY_CHARS = 1_000
"""Not measured; long headings must not leave sections without text."""
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSection:
    """A piece of a file that is stored as one segment: its headings on one line, then its body."""

    headings: tuple[str, ...] = field(repr=False)
    text: str = field(repr=False)
    first_line: int
    """Line number, from 1, of the section's heading or else of its first text."""
    last_line: int


def read_sections(text: str) -> tuple[FileSection, ...]:
    return tuple(MarkdownLines(text).sections())


class MarkdownLines:
    """The lines of a Markdown text, and its headings outside of fenced code."""

    def __init__(self, text: str) -> None:
        self.lines: list[str] = [line.removesuffix("\r") for line in text.split("\n")]
        self.sizes: list[int] = [0, *accumulate(len(line) + 1 for line in self.lines)]
        self.fenced: set[int] = set()
        self.headings: dict[int, tuple[int, str]] = dict(self._find_headings())
        """Level and title of each heading, by its line from 0."""

    def sections(self) -> Iterator[FileSection]:
        """Yield the text before the first heading, then the text under each heading."""
        marks = [*sorted(self.headings), len(self.lines)]
        yield from self._section((), 0, 0, marks[0])
        above: list[tuple[int, str]] = []
        for heading_line, next_line in pairwise(marks):
            level, title = self.headings[heading_line]
            above = [*(heading for heading in above if heading[0] < level), (level, title)]
            path = tuple(text[:HEADING_CHARS] for _, text in above if text)
            next_level, _ = self.headings.get(next_line, (0, ""))
            body_line = heading_line if len(title) > HEADING_CHARS else heading_line + 1
            yield from self._section(
                path, heading_line, body_line, next_line, alone=next_level <= level
            )

    def _section(
        self,
        path: tuple[str, ...],
        heading_line: int,
        body_line: int,
        end_line: int,
        *,
        alone: bool = False,
    ) -> Iterator[FileSection]:
        crumbs = " › ".join(path)
        most_chars = max(SECTION_CHARS - len(crumbs), _MIN_BODY_CHARS)
        first: int | None = heading_line
        for start, last, words in self._pieces(body_line, end_line, most_chars):
            yield FileSection(
                headings=path,
                text=f"{crumbs}\n\n{words}" if crumbs else words,
                first_line=(start if first is None or not path else first) + 1,
                last_line=last + 1,
            )
            first = None
        if first is not None and alone and crumbs:
            yield FileSection(
                headings=path, text=crumbs, first_line=heading_line + 1, last_line=body_line
            )

    def _pieces(self, body: int, end: int, most_chars: int) -> Iterator[tuple[int, int, str]]:
        begun: tuple[int, int] | None = None
        for first, last in self._units(body, end, most_chars):
            if begun is not None and self._size(begun[0], last) <= most_chars:
                begun = (begun[0], last)
                continue
            if begun is not None:
                yield from self._split_line(*begun, most_chars)
            begun = (first, last)
        if begun is not None:
            yield from self._split_line(*begun, most_chars)

    def _units(self, body: int, end: int, most_chars: int) -> Iterator[tuple[int, int]]:
        for first, last in self._blocks(body, end):
            if self._size(first, last) <= most_chars:
                yield first, last
            else:
                yield from (
                    (line, line) for line in range(first, last + 1) if self.lines[line].strip()
                )

    def _blocks(self, body: int, end: int) -> Iterator[tuple[int, int]]:
        for has_text, run in groupby(
            range(body, end),
            lambda line_index: line_index in self.fenced or bool(self.lines[line_index].strip()),
        ):
            if has_text:
                lines = list(run)
                yield lines[0], lines[-1]

    def _size(self, first: int, last: int) -> int:
        return self.sizes[last + 1] - self.sizes[first] - 1

    def _split_line(self, first: int, last: int, most_chars: int) -> Iterator[tuple[int, int, str]]:
        if first < last or len(self.lines[first]) <= most_chars:
            yield first, last, "\n".join(self.lines[first : last + 1])
            return
        line = self.lines[first]
        offset = 0
        while offset < len(line):
            stop = offset + most_chars
            space = line.rfind(" ", offset + most_chars // 2, stop) if stop < len(line) else -1
            stop = space if space > 0 else stop
            if words := line[offset:stop].strip():
                yield first, last, words
            offset = stop

    def _find_headings(self) -> Iterator[tuple[int, tuple[int, str]]]:
        """Yield the line of each heading, its level and its title."""
        fence = ""
        for line_index, line in enumerate(self.lines):
            if fence:
                self.fenced.add(line_index)
                bare_line = line.strip()
                closes = bare_line.startswith(fence) and not bare_line.strip(fence[0])
                if closes and not line.startswith("    "):
                    fence = ""
            elif fence_match := _FENCE.match(line):
                fence = fence_match[1]
            elif atx := _ATX.fullmatch(line):
                yield line_index, (len(atx[1]), (atx[2] or "").strip())


SESSION_PREFIX = FILE_SESSIONS
MOST_SECTIONS = 5_000
"""Limit of sections, because a file with only headings would become one segment per line."""

_OUTSIDE = "0" * 8
_OWNER_BYTES = 4
"""Four bytes tell the few workspaces of a space apart, and leave 12 of a key's 16 for the
section."""
_KEY_BYTES = 12
"""With the owner's bytes, as long as the key of any other segment."""
_DATE = re.compile(r"(?<!\d)(\d{4})[-_](\d{2})[-_](\d{2})(?!\d)")
_NOON_HOUR = 12
"""At noon in UTC, the date is the same almost everywhere."""
_BLANK_LINES = re.compile(r"\n{3,}")  # left over if a secret of several lines was masked

# Other kinds of noise exist only in chats: in a file, such text is content.
_WORDLESS = (None, "empty", "no words", "short")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSection:
    """A section with its ids and its origin."""

    id: SegmentId
    line: int
    origin: str
    """File and line of the section."""
    masked: int
    """Number of masked secrets."""
    entry: Entry = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """The sections of a file."""

    sections: tuple[ReadSection, ...]
    left_out: int = 0
    """Number of sections over the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A file that was not read, and why."""

    reason: str
    refused: bool = False
    """True if only a changed file can be read, False if a later attempt may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRules:
    """Settings and keys for storing sections."""

    secret: bytes = field(repr=False)
    """Key with which the space's message ids are hashed."""
    redaction: Redaction
    weigher: Weigher
    embedders: tuple[str, ...] = ()
    """Embedders that compute vectors of new passages."""


def read_file(file: FoundFile, *, owner: str, rules: FileRules) -> ReadFile | Unread:
    """Read a file. `owner` comes from `owner_of`."""
    data = _read(file)
    if isinstance(data, Unread):
        return data
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return Unread(reason="it is not UTF-8", refused=True)
    redaction = rules.redaction
    masked = redact(text, pii=redaction.pii).spans if redaction.enabled else ()
    sections = read_sections(_replace_spans(text, masked))
    return ReadFile(
        sections=tuple(
            _name_sections(sections[:MOST_SECTIONS], text, masked, file.label, owner, rules)
        ),
        left_out=max(0, len(sections) - MOST_SECTIONS),
    )


def session_of(label: str) -> str:
    return f"{SESSION_PREFIX}{label}"


def owner_of(workspace: Path, *, outside: bool) -> str:
    """Return the prefix of a file's section keys: a hash of its workspace, or a constant for files
    outside. Two workspaces in one space thus never remove each other's sections."""
    if outside:
        return _OUTSIDE
    path_bytes = os.fsencode(workspace)
    return blake2b(path_bytes, digest_size=_OWNER_BYTES, person=b"recollect-work").hexdigest()


def time_of(file: FoundFile, *, now: float) -> float:
    """Return the time for a file's sections: the date in its name, else its modification time."""
    for match in _DATE.finditer(file.path.stem):
        try:
            day = datetime(int(match[1]), int(match[2]), int(match[3]), _NOON_HOUR, tzinfo=UTC)
        except ValueError:
            continue
        return day.timestamp()  # at noon in UTC, the date is the same almost everywhere
    return min(file.mtime_ns / 1e9, now)


def _read(found_file: FoundFile) -> bytes | Unread:
    try:
        with os.fdopen(open_plain(found_file.path), "rb") as file:
            before = os.fstat(file.fileno())
            data = file.read(found_file.size + 1)
            after = os.fstat(file.fileno())
    except OSError as error:
        return Unread(reason=f"it cannot be read: {error.strerror or type(error).__name__}")
    expected_signature = (found_file.device, found_file.inode, found_file.size, found_file.mtime_ns)
    if (
        any(_signature(stat) != expected_signature for stat in (before, after))
        or len(data) != found_file.size
    ):
        return Unread(reason="it was changed while it was read; the next scan reads it again")
    return data


def _signature(stat: os.stat_result) -> tuple[int, int, int, int]:
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _replace_spans(text: str, spans: Sequence[RedactedSpan]) -> str:
    pieces: list[str] = []
    offset = 0
    for span in spans:
        lines = text.count("\n", span.start, span.end)
        pieces += (text[offset : span.start], span.replacement, "\n" * lines)
        offset = span.end
    return "".join([*pieces, text[offset:]])


def _name_sections(
    sections: Sequence[FileSection],
    text: str,
    masked_spans: Sequence[RedactedSpan],
    label: str,
    owner: str,
    rules: FileRules,
) -> Iterator[ReadSection]:
    """Give ids to the sections. Equal sections are numbered. A message id is made from the unmasked
    `text`, so that a tombstone applies even if masks change."""
    lines = text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    masked_lines = [bisect_right(starts, span.start) for span in masked_spans]
    like: Counter[EntryKey] = Counter()
    for section in sections:
        first, last = section.first_line, section.last_line
        identity = identify(_message("\n".join(lines[first - 1 : last])), rules.secret)
        key = _key(owner, identity, section.headings, 0)
        like[key] += 1
        key = _key(owner, identity, section.headings, like[key])
        masks = bisect_right(masked_lines, last) - bisect_left(masked_lines, first)
        message = _message(_BLANK_LINES.sub("\n\n", section.text) if masks else section.text)
        yield ReadSection(
            id=segment_id(session_of(label), key),
            line=first,
            origin=f"{label}:{first}",
            masked=masks,
            entry=Entry(
                key=key,
                id=identity,
                message=message,
                tokens=rules.weigher.message(message.parts),
                role=message.role,
                raw=b"",
            ),
        )


def _message(text: str) -> Message:
    return Message(role="assistant", parts=(Text(text=text),), raw=b"")


def _key(owner: str, identity: MessageId, headings: Sequence[str], occurrence: int) -> EntryKey:
    text = "\0".join((identity, str(occurrence), *headings))
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES)
    return EntryKey(f"{owner}{digest.hexdigest()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """The differences between a file and its stored sections."""

    unchanged: int = 0
    new_sections: tuple[ReadSection, ...] = ()
    moved_sections: tuple[ReadSection, ...] = ()
    gone_ids: tuple[SegmentId, ...] = ()
    forgotten_sections: tuple[ReadSection, ...] = ()

    @property
    def is_none(self) -> bool:
        return not (self.new_sections or self.moved_sections or self.gone_ids)


async def read_stored_sections(
    archive: Archive, session: str, owner: str
) -> Mapping[SegmentId, Segment]:
    return {
        s.segment.id: s.segment
        async for page in read_pages(archive, session=session)
        for s in page
        if s.segment.source == "file" and s.segment.key.startswith(owner)
    }


async def compare(
    archive: Archive, read: ReadFile, segments: Mapping[SegmentId, Segment]
) -> FileChange:
    ids = {s.id for s in read.sections}
    present = [s for s in read.sections if s.id in segments]
    missing = [s for s in read.sections if s.id not in segments]
    moved_sections = [s for s in present if segments[s.id].origin != s.origin]
    marks = await archive.tombstoned(
        [MessageId(mark) for s in missing for mark in (s.id, s.entry.id)]
    )
    forgotten_sections = [s for s in missing if not marks.isdisjoint((s.id, s.entry.id))]
    return FileChange(
        unchanged=len(present) - len(moved_sections),
        new_sections=tuple(s for s in missing if marks.isdisjoint((s.id, s.entry.id))),
        moved_sections=tuple(moved_sections),
        gone_ids=tuple(id_ for id_ in segments if id_ not in ids),
        forgotten_sections=tuple(forgotten_sections),
    )


def make_segments(
    file: FoundFile,
    change: FileChange,
    segments: Mapping[SegmentId, Segment],
    *,
    redaction: Redaction,
    now: float,
) -> list[NewSegment]:
    """Return the segments to write for a change, in the order of the file. A section that moved is
    written again with its first time."""
    sections = sorted((*change.new_sections, *change.moved_sections), key=lambda s: s.line)
    said_at = dict.fromkeys((s.entry.key for s in sections), time_of(file, now=now))
    said_at.update((s.entry.key, segments[s.id].said_at) for s in change.moved_sections)
    ingest_result = ingest(
        [s.entry for s in sections],
        session=session_of(file.label),
        source="file",
        said_at=said_at,
        redaction=redaction,
        now=now,
        origins={s.entry.key: s.origin for s in sections},
    )
    return [_index_as_content(s) for s in ingest_result.segments]


def _index_as_content(new_segment: NewSegment) -> NewSegment:
    if new_segment.segment.noise in _WORDLESS:
        return new_segment
    segment = replace(new_segment.segment, noise=None)
    return NewSegment(segment=segment, passages=index(segment))
