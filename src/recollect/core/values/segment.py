"""Segments of the archive, their passages, and vectors. A segment is a redacted message, stored
whole. Passages are spans of a segment's text. A segment's id is a hash of its session and position,
so that a message sent again is not stored twice."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NewType, TypeAlias

from recollect.core.values.message import EntryKey, MessageId, Role

SegmentId = NewType("SegmentId", str)

Source: TypeAlias = Literal["request", "reply", "import", "hook", "note", "file"]
"""Origin of a segment: "note" is written by hand, "file" is a followed memory file."""
Trust: TypeAlias = Literal["high", "medium", "low", "outside"]
"""Trust levels, by author: user or operator, model, tool, content from outside. Stores, JSON,
`--trust` and filters use the names of the levels."""
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
    """Id of the message, computed before redaction. A tombstone keeps this id."""
    role: Role
    text: str = field(repr=False)
    tokens: int
    said_at: float
    source: Source
    trust: Trust
    noise: str | None = None
    """Reason why the segment is not indexed; None if it is."""
    tool: str | None = None
    origin: str | None = None
    """Where an imported segment comes from: file and line, or the file's own id."""
    foreign: str | None = field(default=None, repr=False)
    """The imported line, if an export must return it byte for byte. For a note from a framework's
    store, this is the item as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPassage:
    """A span of a segment's text to index, with the words that `search` found in it."""

    start: int
    end: int
    words: tuple[str, ...] = field(repr=False)
    """Words, with repetitions. The store counts these words and must not tokenize text itself."""
    embedded: bool = True
    """False if the passage gets no vector: the middle of a long tool result, except error lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSegment:
    """A segment to be written, with its passages in order. A noise segment has no passages."""

    segment: Segment
    passages: tuple[NewPassage, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """A segment as stored."""

    segment: Segment
    sequence: int
    """Position of the segment in the order in which the space's segments arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """A message of a session, as `Engine.messages` returns it."""

    id: SegmentId
    """Id of the message, for `forget`."""
    session: str
    """Session of the message."""
    role: Role
    """Author: system, user, assistant or tool."""
    text: str = field(repr=False)
    """Text of the message, with secrets masked."""
    said_at: float
    """Time of the message, as a Unix timestamp."""
    tool: str | None
    """Name of the tool, for a tool's result."""
    place: int
    """Position in the order of arrival, after which `Engine.messages` can continue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """A passage's embedding: one little-endian float32 per dimension."""

    segment: SegmentId
    ordinal: int
    values: bytes = field(repr=False)
    span: tuple[int, int] | None = None
    """Span of the embedded text, if known. If the passage's span has changed, the vector is
    dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSet:
    """Vectors of one embedder. A space may contain vectors of several embedders."""

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


FLOAT_BYTES: Final = 4
"""Size of a 32-bit float, in which a `Vector` holds its values."""


def round_vector(values: bytes) -> bytes:
    """Round a vector to 16-bit floats, stored as 32-bit floats, unless a value does not fit.
    Cosines change by about 0.00002, and a store may store half as many bytes."""
    count = len(values) // FLOAT_BYTES
    try:
        halves = struct.pack(f"<{count}e", *struct.unpack(f"<{count}f", values))
    except OverflowError:
        return values
    return struct.pack(f"<{count}f", *struct.unpack(f"<{count}e", halves))


def vector_problem(vectors: Sequence[bytes], *, wanted: int, dimensions: int) -> str:
    """Return what is wrong with the vectors for `wanted` texts; empty if nothing is."""
    if len(vectors) != wanted:
        if wanted == 1:
            return f"{len(vectors)} vectors for one text"
        return f"{len(vectors)} vectors for {wanted} texts"
    numbers = struct.Struct(f"<{dimensions}f")
    for values in vectors:
        if len(values) % FLOAT_BYTES:
            return f"{len(values)} bytes instead of {numbers.size}"
        if len(values) != numbers.size:
            return f"{len(values) // FLOAT_BYTES} dimensions instead of {dimensions}"
        # the sum cannot overflow, and NaN stays NaN
        if not math.isfinite(sum(numbers.unpack(values))):
            return "a vector with values that are not numbers"
    return ""
