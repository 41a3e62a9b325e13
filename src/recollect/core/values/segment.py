"""Segments of the archive, their passages, and vectors. A segment is a redacted message, stored
whole; passages are spans of its text. Its id names session and place, so the same message is always
the same segment."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NewType, TypeAlias

from recollect.core.values.message import EntryKey, MessageId, Role

SegmentId = NewType("SegmentId", str)

Source: TypeAlias = Literal["request", "reply", "import", "hook", "note", "file"]
"""Origin of a segment. A "note" is written by hand, a "file" is a followed memory file."""
Trust: TypeAlias = Literal["high", "medium", "low", "outside"]
"""Trust levels: words of the user or operator, of the model, a tool's output, content fetched from
outside. Spelled so in stores, in JSON, by `--trust` and in filters."""
SPEAKERS: Final[Mapping[Trust, str]] = {
    "high": "you",
    "medium": "the assistant",
    "low": "a tool",
    "outside": "fetched",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A message in the archive."""

    id: SegmentId
    session: str
    key: EntryKey
    message_id: MessageId
    """Identity before redaction; tombstones use it."""
    role: Role
    text: str = field(repr=False)
    tokens: int
    said_at: float
    source: Source
    trust: Trust
    noise: str | None = None
    """Reason why it is not indexed; None if it is."""
    tool: str | None = None
    origin: str | None = None
    """Place in the imported file: file and line, or the file's own id."""
    foreign: str | None = field(default=None, repr=False)
    """Imported line, if an export has to return it byte for byte; for a note from a framework's
    store, the item as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPassage:
    """An indexed span of a segment's text, with its words as `search` counts them."""

    start: int
    end: int
    words: tuple[str, ...] = field(repr=False)
    """Repeats included; the store counts them and must never tokenize by itself."""
    embedded: bool = True
    """False for the middle of a long tool result, except error lines: it gets no vector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSegment:
    """A segment to be written, with its passages in order; none if it is noise."""

    segment: Segment
    passages: tuple[NewPassage, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """A segment as the store has it."""

    segment: Segment
    sequence: int
    """Place in the order of arrival within the space, which defines neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """A message of a session, as a program lists it."""

    id: SegmentId
    session: str
    role: Role
    text: str = field(repr=False)
    said_at: float
    tool: str | None
    place: int
    """Place in the order of arrival: `Engine.messages(after=…)` continues after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """A passage's embedding: little-endian float32, one per dimension."""

    segment: SegmentId
    ordinal: int
    values: bytes = field(repr=False)
    span: tuple[int, int] | None = None
    """Span of the embedded text, if known: a store drops the vector if the passage has another
    span, because it was indexed again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSet:
    """Vectors of one embedder; a space may hold sets of several."""

    embedder: str
    dimensions: int
    vectors: tuple[Vector, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageText:
    """A passage with its text, to be embedded."""

    segment: SegmentId
    ordinal: int
    text: str = field(repr=False)
    start: int = 0
    end: int = 0


_FLOAT_BYTES: Final = 4


def round_vector(values: bytes) -> bytes:
    """Round the vector to 16-bit floats, spelled in 32; unchanged if a value does not fit. A cosine
    changes by about 0.00002, and a store may use half the space."""
    count = len(values) // _FLOAT_BYTES
    try:
        halves = struct.pack(f"<{count}e", *struct.unpack(f"<{count}f", values))
    except OverflowError:
        return values
    return struct.pack(f"<{count}f", *struct.unpack(f"<{count}e", halves))


def vector_problem(vectors: Sequence[bytes], *, wanted: int, dimensions: int) -> str:
    """Return the defect of the vectors for this many texts; empty if there is none."""
    if len(vectors) != wanted:
        if wanted == 1:
            return f"{len(vectors)} vectors for one text"
        return f"another number of vectors than it got texts, {len(vectors)} for {wanted}"
    numbers = struct.Struct(f"<{dimensions}f")
    for values in vectors:
        if len(values) % _FLOAT_BYTES:
            return f"{len(values)} bytes instead of {numbers.size}"
        if len(values) != numbers.size:
            return f"{len(values) // _FLOAT_BYTES} dimensions instead of {dimensions}"
        # a sum of 32-bit floats fits 64 bits, and NaN stays NaN
        if not math.isfinite(sum(numbers.unpack(values))):
            return "a vector with numbers that are none"
    return ""
