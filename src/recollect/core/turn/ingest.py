"""Turns new messages into segments, passages and jobs, without writing them to a store. Secrets are
redacted, and recalled blocks are omitted."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from recollect.core.rules.identity import segment_id
from recollect.core.rules.message_redaction import TextMask
from recollect.core.rules.noise import (
    NoiseReason,
    answers_nothing,
    attachments_in,
    is_noise,
    reminder_spans,
    strip_channel_prefix,
)
from recollect.core.rules.redaction import JudgedTexts
from recollect.core.rules.secret_values import MASK_OPENING
from recollect.core.rules.text import (
    ERROR_MARK,
    SegmentText,
    clean_text,
    segment_text,
    thinking_spans,
    without_spans,
    without_thinking,
)
from recollect.core.rules.trust import find_fetch_calls, is_brought_in, trust_of
from recollect.core.search.dates import days_meant
from recollect.core.search.names import speaker_of, speaker_words
from recollect.core.search.statements import STANDING_WORD, is_standing
from recollect.core.search.tokenize import Passage, split_passages, tokenize
from recollect.core.values.batch import EMBED_JOB, NewJob
from recollect.core.values.history import Entry
from recollect.core.values.message import (
    CallId,
    EntryKey,
    Message,
    Other,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from recollect.core.values.recall import is_memory_tool
from recollect.core.values.segment import NewPassage, NewSegment, Segment, Source
from recollect.system.config.settings import Redaction as RedactionSettings

HEAD_PASSAGES = 2  # not measured; output names its subject at its ends
TAIL_PASSAGES = 2  # see HEAD_PASSAGES
CHUNK_MESSAGES = 200  # not measured; bounds one write
CHUNK_BYTES = 400_000
"""Messages and bytes per write of a long history. Stored messages can be left out of requests
before all are written. After an interruption, at most so many are written again."""
LONG_BYTES = 64_000
"""A longer message is masked and written alone, so that no other message waits for it. Masking this
much takes about a tenth of a second."""
MOST_ERROR_PASSAGES = 8  # not measured; bounds the vectors of a log
MAX_INDEXED_CHARS: Final = 2_000_000
"""Number of characters of a message in which a search finds words: half of them at its start, half
at its end. All text is stored. Indexing takes 1 to 3 seconds per million characters, and most
models' windows are smaller."""

_ERROR = re.compile(
    r"(?i:\b(?:error|exception|traceback|fatal|panic|failed|failure|fails|denied|refused"
    r"|not found|no such file|cannot|undefined|unhandled|segfault|abort(?:ed)?|timed out"
    r"|exit (?:code|status):? [1-9])\b)|\b[A-Z]\w{0,60}(?:Error|Exception)\b"
    r"|错误|失败|异常|报错|超时|拒绝|找不到"
)
# In the JSON of a call, a newline is a backslash and a letter, which would become part of a word.
_ESCAPE = re.compile(r'\\[\\nrtbf"/]')


VECTOR_PLACE: Final = " vectors.bin:"
"""Precedes the place of an imported vector in the origin of its segment."""


def index(segment: Segment) -> tuple[NewPassage, ...]:
    """Return the passages of a segment. If a noise message has an imported vector, that needs a
    passage, in which no search finds a word."""
    if VECTOR_PLACE not in (segment.origin or ""):
        return () if segment.noise is not None else _index(segment)
    is_noisy = segment.role == "system" or is_noise(segment.text) is not None
    passages = () if is_noisy else _index(segment)
    whole_passage = NewPassage(start=0, end=len(segment.text), words=(), embedded=False)
    return passages or (whole_passage,)


def _index(segment: Segment) -> tuple[NewPassage, ...]:
    text = segment.text
    half = MAX_INDEXED_CHARS // 2
    passages = [
        passage
        for passage in _passages(segment)
        if passage.start < half or passage.end > len(text) - half
    ]
    is_call = segment.role == "assistant" and segment.tool is not None
    readable = _ESCAPE.sub(_unescape, text) if is_call and "\\" in text else text
    embedded_flags = _choose_embedded(segment, passages)
    marks = _marks(segment, passages)
    dated = segment.tool is None
    return tuple(
        [
            NewPassage(
                start=passage.start,
                end=passage.end,
                words=(
                    *tokenize(readable[passage.start : passage.end]),
                    *marks,
                    *(days_meant(passage.text, segment.said_at) if dated else ()),
                ),
                embedded=is_embedded,
            )
            for passage, is_embedded in zip(passages, embedded_flags, strict=True)
        ]
    )


def _marks(segment: Segment, passages: list[Passage]) -> tuple[str, ...]:
    if segment.role != "user" or segment.tool is not None or not passages:
        return ()
    text = passages[0].text
    name = speaker_of(text)
    standing = (STANDING_WORD,) if len(passages) == 1 and is_standing(text) else ()
    return (*speaker_words(name), *standing) if name else standing


def _passages(segment: Segment) -> Iterator[Passage]:
    text = segment.text
    offset = 0
    if segment.role == "user" and segment.tool is None:
        offset = len(text) - len(strip_channel_prefix(text))
    hidden_spans = thinking_spans(text) if segment.role == "assistant" else reminder_spans(text)
    for start, end in hidden_spans:
        if start >= offset:
            yield from _between(text, offset, start)
            offset = end
    yield from _between(text, offset, len(text))


def _between(text: str, start: int, end: int) -> Iterator[Passage]:
    for passage in split_passages(text[start:end]):
        yield Passage(start=start + passage.start, end=start + passage.end, text=passage.text)


def _unescape(escape: re.Match[str]) -> str:
    return escape[0] if escape[0] == "\\\\" else "  "


def _choose_embedded(segment: Segment, passages: list[Passage]) -> list[bool]:
    is_result = segment.tool is not None and segment.role != "assistant"
    count = len(passages)
    if not is_result or count <= HEAD_PASSAGES + TAIL_PASSAGES:
        return [True] * count
    inner = range(HEAD_PASSAGES, count - TAIL_PASSAGES)
    errors = (index for index in inner if _ERROR.search(passages[index].text))
    chosen = set(range(count)).difference(inner).union(islice(errors, MOST_ERROR_PASSAGES))
    return [index in chosen for index in range(count)]


_OWN_NOTE = "[recollect]"
CHARS_PER_TOKEN = 4
"""Not measured; divides a message's tokens among its segments."""
_MOST_TOOL_CHARS = 128  # providers allow 64 or 128


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """The segments, passages and jobs to write to the store."""

    segments: tuple[NewSegment, ...] = field(repr=False)
    jobs: tuple[NewJob, ...]
    redacted: int
    skipped: tuple[EntryKey, ...] = ()


def ingest(
    entries: Sequence[Entry],
    *,
    session: str,
    source: Source,
    said_at: Mapping[EntryKey, float] | float,
    redaction: RedactionSettings,
    now: float,
    embedders: Sequence[str] = (),
    indexed: bool = True,
    origins: Mapping[EntryKey, str] | None = None,
    tool_names: Mapping[CallId, str] | None = None,
    fetched_ids: Collection[CallId] = (),
    secrets: dict[str, None] | None = None,
    judged: JudgedTexts | None = None,
) -> IngestResult:
    """Return what to write for these messages of a session."""
    names = {**(tool_names or {}), **tools_by_call(entries)}
    fetch_calls = find_fetch_calls(part for entry in entries for part in entry.parts)
    outside = fetch_calls | frozenset(fetched_ids)
    segments: list[NewSegment] = []
    skipped_keys: list[EntryKey] = []
    mask = TextMask(redaction, {} if secrets is None else secrets, judged=judged)
    for entry in entries:
        said = said_at if isinstance(said_at, float | int) else said_at.get(entry.key, now)
        origin = None if origins is None else origins.get(entry.key)
        left = entry.tokens
        for key, message in _segment_messages(entry):
            text_parts = segment_text(message, names)
            if text_parts.only_recalled:
                skipped_keys.append(key)
                continue
            text_parts = _mask_text(message, text_parts, names, mask)
            text_tokens = len(text_parts.text) // CHARS_PER_TOKEN
            tokens = left if key == entry.key else min(left, text_tokens)
            left -= tokens
            segment = Segment(
                id=segment_id(session, key),
                session=session,
                key=key,
                message_id=entry.id,
                role=text_parts.role,
                text=text_parts.text,
                tokens=tokens,
                said_at=float(said),
                source=source,
                trust=trust_of(message, names, outside),
                noise=_noise(message, text_parts),
                tool=text_parts.tool,
                origin=origin,
            )
            passages = index(segment) if indexed else ()
            segments.append(NewSegment(segment=segment, passages=passages))
    wants_vectors = any(passage.embedded for new in segments for passage in new.passages)
    return IngestResult(
        segments=tuple(segments),
        jobs=tuple(
            NewJob(kind=EMBED_JOB, key=name, run_at=now)
            for name in (embedders if wants_vectors else ())
        ),
        redacted=mask.masked,
        skipped=tuple(skipped_keys),
    )


def split_message(message: Message) -> tuple[Message, ...]:
    """Return documents, search results and results of the provider's tools in a message, each as a
    tool's message, and then the words of the author, if any."""
    own_parts: list[Part] = []
    attached_parts: list[Part] = []
    parts = () if message.summary else message.parts
    inside = iter(attachments_in([part.text for part in parts if isinstance(part, Text)]))
    for part in parts:
        spans = next(inside) if isinstance(part, Text) else []
        if is_brought_in(part):
            attached_parts.append(part)
        elif isinstance(part, Text) and message.role == "user":
            texts = [json.dumps(part.text[start:end]) for start, end in spans]
            attached_parts += [Other(kind="file", payload=text) for text in texts]
            own_parts.append(Text(text=without_spans(part.text, spans)) if spans else part)
        else:
            own_parts.append(part)
    if not attached_parts:
        return (message,)
    has_words = any(not isinstance(part, Text) or part.text.strip() for part in own_parts)
    last = [replace(message, parts=tuple(own_parts))] if has_words else []
    return (*(replace(message, role="tool", parts=(part,)) for part in attached_parts), *last)


def _segment_messages(entry: Entry) -> list[tuple[EntryKey, Message]]:
    messages = split_message(entry.message)
    if len(messages) != len(entry.segment_keys):  # a note is one segment
        messages = (entry.message,)
    return list(zip(entry.segment_keys, messages, strict=True))


def tools_by_call(entries: Sequence[Entry]) -> dict[CallId, str]:
    return {
        part.id: part.name
        for entry in entries
        for part in entry.parts
        if isinstance(part, ToolCall)
    }


def _mask_text(
    message: Message, text_parts: SegmentText, names: Mapping[CallId, str], mask: TextMask
) -> SegmentText:
    if not _is_plain(message.parts):
        before = text_parts.text.count(MASK_OPENING)
        parts_mask = TextMask(mask.settings, mask.secrets, judged=mask.judged)
        text_parts = segment_text(parts_mask.message(message), names)
        mask.masked += max(0, text_parts.text.count(MASK_OPENING) - before)
    text = mask.text(clean_text(text_parts.text))
    tool = text_parts.tool
    if tool is not None:
        tool = mask.text(clean_text(tool))[:_MOST_TOOL_CHARS]
    return replace(text_parts, text=text, tool=tool)


def _is_plain(parts: Sequence[Part]) -> bool:
    if len(parts) != 1:
        return False
    (part,) = parts
    if isinstance(part, ToolResult):
        return not part.is_error and len(part.content) == 1 and isinstance(part.content[0], Text)
    return isinstance(part, Text)


def _noise(message: Message, text_parts: SegmentText) -> str | None:
    text = without_thinking(text_parts.text) if message.role == "assistant" else text_parts.text
    if not text_parts.says_something:
        return "no words" if text_parts.text.strip() else "empty"
    if message.role == "system":
        return "system"
    if text.removeprefix(ERROR_MARK).startswith(_OWN_NOTE):
        return "own note"
    if text_parts.tool is not None:
        return "memory call" if _only_asks_memory(message) else None
    reason = is_noise(text)
    if reason is None and message.role == "assistant" and answers_nothing(text):
        reason = NoiseReason.NO_ANSWER
    return None if reason is None else reason.value


def _only_asks_memory(message: Message) -> bool:
    """Return whether a message contains only memory calls. It would match its own query best."""
    spoken_parts = [
        part
        for part in message.parts
        if not isinstance(part, Thinking) and not (isinstance(part, Text) and not part.text.strip())
    ]
    return bool(spoken_parts) and all(
        isinstance(part, ToolCall) and is_memory_tool(part.name) for part in spoken_parts
    )


def earlier_calls(
    new_entries: Sequence[Entry], history: Sequence[Entry]
) -> tuple[Mapping[CallId, str], frozenset[CallId]]:
    """For results in `fresh` whose calls are in `history`, return the tools' names by call, and the
    calls that fetched outside content."""
    wanted_ids = {call_id for entry in new_entries for call_id in entry.results}
    calling = [entry for entry in history if entry.calls and not wanted_ids.isdisjoint(entry.calls)]
    names: dict[CallId, str] = {}
    for entry in reversed(calling):
        for part in entry.parts:
            if isinstance(part, ToolCall) and part.id in wanted_ids:
                names.setdefault(part.id, part.name)
    return names, find_fetch_calls(part for entry in calling for part in entry.parts)


def write_ranges(sizes_bytes: Sequence[int]) -> list[slice]:
    """Split messages of these sizes into those that are written at once. Each long one is alone."""
    ranges: list[slice] = []
    start, total_bytes = 0, 0
    for index, size in enumerate(sizes_bytes):
        total_bytes += max(size, CHUNK_BYTES // CHUNK_MESSAGES)
        if index > start and (size > LONG_BYTES or total_bytes > CHUNK_BYTES):
            ranges.append(slice(start, index))
            start, total_bytes = index, size
        if size > LONG_BYTES:
            total_bytes = CHUNK_BYTES
    return [*ranges, slice(start, len(sizes_bytes))]
