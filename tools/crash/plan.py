"""What the writers write: batches made from a name and a number, so that the parent knows
every one of them without being told.

Always holds: the same writer and number give the same batch, byte for byte; every kind of
record that a batch can hold is in it, so a half written batch shows in some of them.
"""

from __future__ import annotations

import json
import struct
from hashlib import blake2b

from recollect.core.rules.identity import segment_id
from recollect.core.values.batch import (
    Batch,
    LedgerPiece,
    NewJob,
    PieceHash,
    SessionWrite,
    TurnRecord,
)
from recollect.core.values.fact import Fact, FactId
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.segment import (
    NewPassage,
    NewSegment,
    Segment,
    SegmentId,
    Vector,
    VectorSet,
)

EMBEDDER = "crash-64"
DIMENSIONS = 64
JOB_KIND = "crash"
SESSION_BATCHES = 40
"""Batches a session; then the writer begins another one."""
CYCLE = 5
"""Batches hold 1, 2, 3, 4, 5 messages and then 1 again."""
LONG_EVERY = 9
"""Every so many batches one long message, so that some writes take long."""
PASSAGE_CHARS = 1200
STARTED_AT = 1_700_000_000.0
WORDS = (
    "river", "copper", "lantern", "orchard", "signal", "marble", "harbour", "thicket", "velvet",
    "compass", "granite", "meadow", "candle", "anchor", "willow", "ember", "glacier", "saddle",
    "beacon", "timber",
)  # fmt: skip


def size_of(number: int) -> int:
    """How many messages batch `number` holds."""
    return 1 + number % CYCLE


def session_of(writer: str, number: int) -> str:
    """The session that batch `number` belongs to."""
    return f"{writer}-{number // SESSION_BATCHES}"


def place_of(number: int) -> int:
    """How many messages the session holds before batch `number`."""
    first = number - number % SESSION_BATCHES
    return sum(size_of(earlier) for earlier in range(first, number))


def key_of(writer: str, number: int, index: int) -> EntryKey:
    """The entry key of one planned message."""
    return EntryKey(_digest("key", writer, number, index))


def planned_ids(writer: str, number: int) -> tuple[SegmentId, ...]:
    """The segments of batch `number`, in the order they are written in."""
    session = session_of(writer, number)
    return tuple(
        segment_id(session, key_of(writer, number, index)) for index in range(size_of(number))
    )


def fact_id(writer: str, number: int) -> FactId:
    """The fact of batch `number`."""
    return FactId(_digest("fact", writer, number, 0))


def job_key(writer: str, number: int) -> str:
    """The job of batch `number`."""
    return f"{writer}/{number}"


def planned_batch(writer: str, number: int) -> Batch:
    """Batch `number` of a writer."""
    at = STARTED_AT + number
    session = session_of(writer, number)
    segments = tuple(
        _segment(writer, number, index, session, at) for index in range(size_of(number))
    )
    pieces = tuple(_piece(new.segment) for new in segments)
    keys = tuple(new.segment.key for new in segments)
    place = place_of(number)
    return Batch(
        at=at,
        segments=segments,
        vectors=(_vectors(segments),),
        facts=(_fact(writer, number, segments[0].segment, at),),
        jobs=(_job(writer, number, at),),
        session=SessionWrite(
            session=session,
            turn=number + 1,
            state=json.dumps({"turn": number + 1}).encode(),
            path_from=place,
            path=keys,
            ids=tuple(new.segment.message_id for new in segments),
        ),
        pieces=pieces,
        turns=(
            TurnRecord(
                session=session,
                number=number + 1,
                at=at,
                format="anthropic",
                kept_rows=place,
                rows=tuple(piece.hash for piece in pieces),
            ),
        ),
    )


def passages_of(text: str) -> tuple[NewPassage, ...]:
    """A text cut into passages of equal length."""
    return tuple(
        NewPassage(
            start=start,
            end=min(start + PASSAGE_CHARS, len(text)),
            words=tuple(text[start : start + PASSAGE_CHARS].split()),
        )
        for start in range(0, len(text), PASSAGE_CHARS)
    )


def _segment(writer: str, number: int, index: int, session: str, at: float) -> NewSegment:
    key = key_of(writer, number, index)
    long = index == 0 and number % LONG_EVERY == 0
    text = _text(f"{writer}/{number}/{index}", 2400 if long else 24)
    segment = Segment(
        id=segment_id(session, key),
        session=session,
        key=key,
        message_id=MessageId(_digest("message", writer, number, index)),
        role="assistant" if index % 2 else "user",
        text=text,
        tokens=max(1, len(text) // 4),
        said_at=at + index / 10,
        source="request",
        trust="medium" if index % 2 else "high",
    )
    return NewSegment(segment=segment, passages=passages_of(text))


def _text(name: str, length_words: int) -> str:
    """Words that differ from message to message, with its name in front."""
    start = int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "big")
    chosen = (WORDS[(start + step * step) % len(WORDS)] for step in range(length_words))
    return f"{name} {' '.join(chosen)}"


def _vectors(segments: tuple[NewSegment, ...]) -> VectorSet:
    return VectorSet(
        embedder=EMBEDDER,
        dimensions=DIMENSIONS,
        vectors=tuple(
            Vector(segment=new.segment.id, ordinal=ordinal, values=_unit(new.segment.id, ordinal))
            for new in segments
            for ordinal in range(len(new.passages))
        ),
    )


def _unit(name: str, ordinal: int) -> bytes:
    """A vector of length one: 64 times plus or minus an eighth."""
    bits = int.from_bytes(blake2b(f"{name}/{ordinal}".encode(), digest_size=8).digest(), "big")
    signs = (0.125 if bits >> place & 1 else -0.125 for place in range(DIMENSIONS))
    return struct.pack(f"<{DIMENSIONS}f", *signs)


def _fact(writer: str, number: int, source: Segment, at: float) -> Fact:
    content = f"fact {number} of {writer}"
    return Fact(
        id=fact_id(writer, number),
        type="decision",
        content=content,
        at=at,
        sources=(source.id,),
        words=tuple(content.split()),
    )


def _job(writer: str, number: int, at: float) -> NewJob:
    payload = json.dumps({"batch": number}).encode()
    return NewJob(kind=JOB_KIND, key=job_key(writer, number), payload=payload, run_at=at)


def _piece(segment: Segment) -> LedgerPiece:
    body = json.dumps({"role": segment.role, "content": segment.text}).encode()
    hashed = blake2b(b"row\0" + body, digest_size=16).hexdigest()
    return LedgerPiece(hash=PieceHash(hashed), kind="row", body=body, about=(segment.message_id,))


def _digest(*named: str | int) -> str:
    joined = "\0".join(str(part) for part in named)
    return blake2b(joined.encode(), digest_size=16).hexdigest()
