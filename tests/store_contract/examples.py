"""Values to test and measure stores with: segments, vectors, pieces, whole batches.

Everything is made from numbers and texts by hashing, so the same call gives the same value in
any process: a crash test can tell from a number what must be there. Nothing here is random,
nothing is read from a file. Texts are of made-up words whose frequencies fall off like those of
a language, so that word statistics look like real ones.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import accumulate, pairwise, product
from typing import Any, Final

import numpy as np

from recollect.core.formats.stored_records import split_state
from recollect.core.rules.identity import ROOT, chain, identify, segment_id, space_secret
from recollect.core.search.tokenize import split_passages, tokenize
from recollect.core.values.batch import (
    Batch,
    LedgerPiece,
    NewJob,
    PieceHash,
    PieceKind,
    SessionWrite,
    TurnRecord,
)
from recollect.core.values.compaction import CompactionRecord
from recollect.core.values.edit import Edit
from recollect.core.values.fact import Fact, FactId, FactVector, FactVectorSet
from recollect.core.values.history import SessionState
from recollect.core.values.message import EntryKey, Message, MessageId, Role, Text
from recollect.core.values.recall import AskedVector
from recollect.core.values.segment import (
    NewPassage,
    NewSegment,
    Segment,
    SegmentId,
    Vector,
    VectorSet,
)

START: Final = 1_760_000_000.25
SOON: Final = START + 1_000
LATER: Final = START + 5_000
"""When the first example was said."""
SESSION: Final = "talk"
EMBEDDER: Final = "example-256"
DIMENSIONS: Final = 256

_SECRET: Final = space_secret("examples")
_VOCABULARY: Final = tuple(
    "".join(syllables)
    for syllables in product(
        ("ba", "ko", "ri", "tu", "me", "sha", "lo", "ni"), ("zar", "vik", "dol", "pem", "gus"),
        ("", "ta", "rol", "bin", "mex", "ou", "ki", "fran"), ("", "ka", "lu", "dro"),
    )
)  # fmt: skip
_WEIGHTS: Final = tuple(accumulate(1 / (rank + 8) for rank in range(len(_VOCABULARY))))


def text(number: int, *, words: int = 20) -> str:
    """The text with this number."""
    chosen = random.Random(number).choices(_VOCABULARY, cum_weights=_WEIGHTS, k=words)
    return f"n{number} {' '.join(chosen)}."


def message_id(said: str, *, role: Role = "user") -> MessageId:
    """The identity of a message of one text."""
    return identify(Message(role=role, parts=(Text(text=said),), raw=b""), _SECRET)


def passages(said: str) -> tuple[NewPassage, ...]:
    """A text's passages as they are indexed."""
    return tuple(
        NewPassage(start=cut.start, end=cut.end, words=tuple(tokenize(cut.text)))
        for cut in split_passages(said)
    )


def segment(
    said: str,
    *,
    session: str = SESSION,
    parent: EntryKey = ROOT,
    role: Role = "user",
    said_at: float = START,
    noise: str | None = None,
    **more: Any,
) -> NewSegment:
    """A message of this text behind `parent`; `more` are further fields of `Segment`."""
    identity = message_id(said, role=role)
    key = chain(parent, identity)
    kept = Segment(
        id=segment_id(session, key),
        session=session,
        key=key,
        message_id=identity,
        role=role,
        text=said,
        tokens=more.pop("tokens", len(said) // 4 + 1),
        said_at=said_at,
        source=more.pop("source", "request"),
        trust=more.pop("trust", "high" if role == "user" else "medium"),
        noise=noise,
        **more,
    )
    return NewSegment(segment=kept, passages=() if noise else passages(said))


def conversation(
    texts: Iterable[str],
    *,
    session: str = SESSION,
    parent: EntryKey = ROOT,
    said_at: float = START,
    **more: Any,
) -> tuple[NewSegment, ...]:
    """Messages of these texts, one behind the other and a second apart, by turns."""
    made: list[NewSegment] = []
    for place, said in enumerate(texts):
        role: Role = "assistant" if place % 2 else "user"
        made.append(
            segment(
                said, session=session, parent=parent, role=role, said_at=said_at + place, **more
            )
        )
        parent = made[-1].segment.key
    return tuple(made)


def segments(
    count: int, *, first: int = 0, session: str = SESSION, words: int = 20, **more: Any
) -> tuple[NewSegment, ...]:
    """A conversation of `count` numbered texts."""
    return conversation(
        (text(first + number, words=words) for number in range(count)), session=session, **more
    )


def worded(words: Sequence[str], *, number: int = 0, **more: Any) -> NewSegment:
    """A segment whose one passage holds exactly these words, whatever a tokenizer would say."""
    new = segment(f"words {number}: " + " ".join(words), **more)
    whole = NewPassage(start=0, end=len(new.segment.text), words=tuple(words))
    return replace(new, passages=(whole,))


def vector(seed: str, *, dimensions: int = DIMENSIONS) -> bytes:
    """A vector of about length one that belongs to `seed`; half of them hold numbers of 16 bits."""
    number = int.from_bytes(blake2b(seed.encode(), digest_size=8).digest(), "little")
    values = np.random.default_rng(number).standard_normal(dimensions)
    values /= np.linalg.norm(values)
    return values.astype("<f2" if number % 2 else "<f4").astype("<f4").tobytes()


def vectors(
    given: Iterable[NewSegment], *, embedder: str = EMBEDDER, dimensions: int = DIMENSIONS
) -> VectorSet:
    """A vector for every passage that is to have one, made from its text."""
    made = tuple(
        Vector(
            segment=new.segment.id,
            ordinal=ordinal,
            values=vector(
                embedder + new.segment.text[passage.start : passage.end], dimensions=dimensions
            ),
        )
        for new in given
        for ordinal, passage in enumerate(new.passages)
        if passage.embedded
    )
    return VectorSet(embedder=embedder, dimensions=dimensions, vectors=made)


def asked(
    seed: str, *, embedder: str = EMBEDDER, dimensions: int = DIMENSIONS, like: bytes | None = None
) -> AskedVector:
    """A query's vector: that of `seed`, or half of it and half of `like`."""
    values = np.frombuffer(vector(seed, dimensions=dimensions), "<f4")
    if like is not None:
        values = values + np.frombuffer(like, "<f4")
        values = values / np.linalg.norm(values)
    return AskedVector(embedder=embedder, values=values.astype("<f4").tobytes())


def piece(body: str, *, kind: PieceKind = "row", about: tuple[MessageId, ...] = ()) -> LedgerPiece:
    """A piece of the ledger with its hash."""
    raw = body.encode()
    named = blake2b(kind.encode() + b"\0" + raw, digest_size=16).hexdigest()
    return LedgerPiece(hash=PieceHash(named), kind=kind, body=raw, about=about)


def compaction(
    number: int,
    about: Iterable[MessageId] = (),
    *,
    session: str = SESSION,
    body: str | None = None,
    at: float = START,
) -> CompactionRecord:
    """The record of a session's compaction with this number, which stands for these messages."""
    told = f'{{"summary":"compaction {number} of {session!r}"}}' if body is None else body
    return CompactionRecord(
        session=session, number=number, at=at, body=told.encode(), about=tuple(about)
    )


def fact(name: str, *, sources: Iterable[SegmentId] = (), at: float = START, **more: Any) -> Fact:
    """A fact of this name."""
    content = more.pop("content", f"fact {name} holds")
    return Fact(
        id=FactId(name),
        type=more.pop("type", "decision"),
        content=content,
        at=at,
        sources=tuple(sources),
        words=tuple(tokenize(content)),
        **more,
    )


def fact_vectors(
    given: Iterable[Fact], *, embedder: str = EMBEDDER, dimensions: int = DIMENSIONS
) -> FactVectorSet:
    """A vector for each of these facts, made from its content."""
    made = tuple(
        FactVector(fact=fact.id, values=vector(embedder + fact.content, dimensions=dimensions))
        for fact in given
    )
    return FactVectorSet(embedder=embedder, dimensions=dimensions, vectors=made)


def session_write(
    given: Sequence[NewSegment],
    *,
    turn: int,
    session: str = SESSION,
    path_from: int = 0,
    edits: tuple[Edit, ...] = (),
    about: tuple[MessageId, ...] = (),
) -> SessionWrite:
    """A session whose path from `path_from` on is that of these segments."""
    return SessionWrite(
        session=session,
        turn=turn,
        state=split_state(SessionState(turn=turn, edits=edits)),
        about=about,
        path_from=path_from,
        path=tuple(new.segment.key for new in given),
        ids=tuple(new.segment.message_id for new in given),
    )


def full_batch(
    number: int, *, session: str = SESSION, count: int = 4, dimensions: int = DIMENSIONS
) -> Batch:
    """A batch with something of every kind, which shares nothing with other numbers."""
    new = segments(count, first=number * 1_000, session=session, said_at=START + number * 100)
    rows = tuple(
        piece(segment.segment.text, kind="row", about=(segment.segment.message_id,))
        for segment in new
    )
    system = piece(f"system {number}", kind="system")
    return Batch(
        at=START + number * 100 + count,
        segments=new,
        vectors=(vectors(new, dimensions=dimensions),),
        facts=(fact(f"fact-{number}", sources=[segment.segment.id for segment in new[:2]]),),
        jobs=(NewJob(kind="embed", key=f"batch-{number}", about=(new[0].segment.message_id,)),),
        session=session_write(new, turn=number + 1, session=session),
        pieces=(system, *rows),
        turns=(
            TurnRecord(
                session=session,
                number=number + 1,
                at=START + number * 100 + count,
                format="anthropic",
                model="example-model",
                system=system.hash,
                rows=tuple(row.hash for row in rows),
            ),
        ),
        compactions=(
            compaction(
                number + 1,
                [segment.segment.message_id for segment in new[:2]],
                session=session,
                at=START + number * 100 + count,
            ),
        ),
    )


def ids(given: Iterable[NewSegment]) -> tuple[SegmentId, ...]:
    """Their ids, in order."""
    return tuple(new.segment.id for new in given)


def rising(numbers: Sequence[float]) -> bool:
    """Each is greater than the one before it."""
    return all(earlier < later for earlier, later in pairwise(numbers))
