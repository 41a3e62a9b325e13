"""The archive's segments, the passages they are found by, and vectors.

A segment is a redacted message, stored whole; passages are spans of its text. Its id names session
and place, so the same message is always the same segment.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NewType, TypeAlias

from recollect.core.values.message import EntryKey, MessageId, Role

SegmentId = NewType("SegmentId", str)

Source: TypeAlias = Literal["request", "reply", "import", "hook", "note", "file"]
"""How a segment came: in a request, as a reply, from a transcript, by a hook, written by hand,
from a memory file that is followed."""
Trust: TypeAlias = Literal["high", "medium", "low", "outside"]
"""What may be made of it: the user's and operator's words, the model's, a tool's output, what a
tool fetched from outside. Spelled so in stores, in JSON, by `--trust` and in filters."""
SPEAKERS: Final[Mapping[Trust, str]] = {
    "high": "you",
    "medium": "the assistant",
    "low": "a tool",
    "outside": "fetched",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A message kept in the archive."""

    id: SegmentId
    session: str
    key: EntryKey
    message_id: MessageId
    """Its identity before redaction; tombstones are kept by it."""
    role: Role
    text: str = field(repr=False)
    tokens: int
    said_at: float
    source: Source
    trust: Trust
    noise: str | None = None
    """Why it is kept but not indexed; None when it is indexed."""
    tool: str | None = None
    origin: str | None = None
    """Its place in the imported file: file and line, or the file's own id."""
    foreign: str | None = field(default=None, repr=False)
    """The line it was imported as, where an export has to give it back byte for byte; of a note
    that stands for an item of a framework's store, that item as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPassage:
    """A span of a segment's text that is indexed, with its words as `search` counts them."""

    start: int
    end: int
    words: tuple[str, ...] = field(repr=False)
    """Repeats included; the store counts them and must never tokenize by itself."""
    embedded: bool = True
    """Whether it is to have a vector: head, tail and error lines of a long tool result are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSegment:
    """A segment to be written, with its passages in order; none when it is noise."""

    segment: Segment
    passages: tuple[NewPassage, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """A segment as the store has it."""

    segment: Segment
    sequence: int
    """Its place in the order of arrival within the space; neighbours are neighbours in it."""


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
    """Its place in the order of arrival: `Engine.messages(after=…)` continues behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """A passage's embedding: little-endian float32, as many as the embedder has dimensions."""

    segment: SegmentId
    ordinal: int
    values: bytes = field(repr=False)
    span: tuple[int, int] | None = None
    """Start and end of the text it was made of, where that is known: a store keeps it only for
    a passage of this span, which may have been indexed anew meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSet:
    """Vectors of one embedder; a space may hold sets of several."""

    embedder: str
    dimensions: int
    vectors: tuple[Vector, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageText:
    """A passage with its text, for those who embed it."""

    segment: SegmentId
    ordinal: int
    text: str = field(repr=False)
    start: int = 0
    end: int = 0


_FLOAT_BYTES: Final = 4


def rounded_vector(values: bytes) -> bytes:
    """The vector in numbers of 16 bits, spelled in 32; as it is where one does not fit them. That
    changes a cosine by some 0.00002, and a store may keep it in half the room."""
    count = len(values) // _FLOAT_BYTES
    try:
        halves = struct.pack(f"<{count}e", *struct.unpack(f"<{count}f", values))
    except OverflowError:
        return values
    return struct.pack(f"<{count}f", *struct.unpack(f"<{count}e", halves))


def vector_problem(vectors: Sequence[bytes], *, wanted: int, dimensions: int) -> str:
    """The defect of the vectors for this many texts; empty if there is none."""
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
        # 32-bit numbers cannot add up to more than 64 bits hold, and what is none stays none
        if not math.isfinite(sum(numbers.unpack(values))):
            return "a vector with numbers that are none"
    return ""
