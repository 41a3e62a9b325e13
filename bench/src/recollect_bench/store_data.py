"""What the store bench writes and asks for: generated, and the same in every run.

Owns the shape of the data: words drawn by a Zipf-like law as real passages show it, messages of
one to a few passages, unit vectors in clusters, queries made of words that stand in a passage.
It must never tokenize or embed: what that costs is not the store's. Always holds: a segment of
some number is the same whatever was generated before it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from recollect.core.search.tokenize import WHOLE_MAX_CHARS
from recollect.core.values.batch import Batch, NewJob, SessionWrite
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.recall import AskedVector, CandidateQuery
from recollect.core.values.segment import (
    NewPassage,
    NewSegment,
    Segment,
    SegmentId,
    Vector,
    VectorSet,
)

EMBEDDER: Final = "bench-384"
DIMENSIONS: Final = 384
VOCABULARY: Final = 30_000
# The most common word stands in a third of the passages, the hundredth in a tenth of them, as in
# the pi and Codex transcripts with their stop words left out.
ZIPF_SHIFT: Final = 40
WORDS_PER_PASSAGE: Final = (64, 176)
SMALL_WORDS_PER_PASSAGE: Final = (10, 24)
"""For the spaces beside the one that is measured: their size must not matter, their number may."""
PASSAGES_PER_SEGMENT: Final = (1, 1, 1, 1, 1, 1, 2, 2, 3, 5)
SEGMENTS_PER_SESSION: Final = 400
STARTED_AT: Final = 1_750_000_000.0
CLUSTERS: Final = 64
CLUSTER_SPREAD: Final = 1.0
_ROLES: Final = ("user", "assistant", "tool")
_TRUSTS: Final = {"user": "high", "assistant": "medium", "tool": "low"}
_STATE: Final = b'{"edits":[' + b'{"kind":"shortened","anchor":"00000000"},' * 12 + b"null]}"


def hexadecimal(*named: object) -> str:
    """32 digits that stand for what was named."""
    return hashlib.blake2b(repr(named).encode(), digest_size=16).hexdigest()


def _spelled(rank: int) -> str:
    """A word of three to seven letters, the frequent ones short; all distinct."""
    letters, rest = "", rank
    for alphabet in ("bcdfglmnprst", "aeiou", "bdgklmnprst", "aeiou", "cfhklnrtvz"):
        letters += alphabet[rest % len(alphabet)]
        rest //= len(alphabet)
        if not rest and len(letters) >= 3:
            break
    return letters + (str(rest) if rest else "")


def vocabulary() -> list[str]:
    """The words by rank."""
    words = list(dict.fromkeys(_spelled(rank) for rank in range(2 * VOCABULARY)))
    return words[:VOCABULARY]


class Corpus:
    """Segments of one space, made on demand."""

    def __init__(
        self, *, seed: int = 1, words_per_passage: tuple[int, int] = WORDS_PER_PASSAGE
    ) -> None:
        self._seed = seed
        self._words = vocabulary()
        self._words_per_passage = words_per_passage
        weights = 1.0 / (np.arange(VOCABULARY) + ZIPF_SHIFT)
        self._chances = np.cumsum(weights / weights.sum())
        centres = np.random.default_rng(7).standard_normal((CLUSTERS, DIMENSIONS))
        self._centres = centres / np.linalg.norm(centres, axis=1, keepdims=True)

    def segments(self, *, first: int = 0) -> Iterator[NewSegment]:
        """Segments without end, from the numbered one on."""
        number = first
        while True:
            yield self.segment(number)
            number += 1

    def until(self, passages: int, *, first: int = 0) -> list[NewSegment]:
        """As many segments as hold at least so many passages."""
        segments: list[NewSegment] = []
        for segment in self.segments(first=first):
            if passages <= 0:
                break
            segments.append(segment)
            passages -= len(segment.passages)
        return segments

    def segment(self, number: int) -> NewSegment:
        """One message of one to a few passages."""
        rng = np.random.default_rng((self._seed, number))
        spans: list[NewPassage] = []
        texts: list[str] = []
        start = 0
        for _ in range(PASSAGES_PER_SEGMENT[int(rng.integers(len(PASSAGES_PER_SEGMENT)))]):
            drawn = rng.random(int(rng.integers(*self._words_per_passage)))
            words = tuple(self._words[rank] for rank in np.searchsorted(self._chances, drawn))
            text = " ".join(words)[:WHOLE_MAX_CHARS]
            spans.append(NewPassage(start=start, end=start + len(text), words=words))
            texts.append(text)
            start += len(text) + 1
        return NewSegment(segment=self._said(number, "\n".join(texts)), passages=tuple(spans))

    def _said(self, number: int, text: str) -> Segment:
        role = _ROLES[number % len(_ROLES)]
        return Segment(
            id=SegmentId(hexadecimal(self._seed, number, "segment")),
            session=f"session-{number // SEGMENTS_PER_SESSION}",
            key=EntryKey(hexadecimal(self._seed, number, "key")),
            message_id=MessageId(hexadecimal(self._seed, number, "message")),
            role=role,  # type: ignore[arg-type]
            text=text,
            tokens=len(text) // 4,
            said_at=STARTED_AT + 30.0 * number,
            source="request" if role != "assistant" else "reply",
            trust=_TRUSTS[role],  # type: ignore[arg-type]
            tool="read" if role == "tool" else None,
        )

    def vectors(self, segments: Sequence[NewSegment]) -> tuple[Vector, ...]:
        """A vector for every passage of these segments."""
        named = [(new.segment.id, at) for new in segments for at in range(len(new.passages))]
        drawn = int(segments[0].segment.id[:12], 16) if segments else 0
        rows = self._near_centres(np.random.default_rng((self._seed, drawn)), len(named))
        return tuple(
            Vector(segment=segment, ordinal=ordinal, values=row.tobytes())
            for (segment, ordinal), row in zip(named, rows, strict=True)
        )

    def _near_centres(self, rng: np.random.Generator, count: int) -> NDArray[np.float32]:
        noise = rng.standard_normal((count, DIMENSIONS)) * (CLUSTER_SPREAD / DIMENSIONS**0.5)
        rows = self._centres[rng.integers(CLUSTERS, size=count)] + noise
        unit: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(
            "<f4"
        )
        return unit

    def queries(self, segments: Sequence[NewSegment], count: int) -> list[CandidateQuery]:
        """Hybrid queries of 3 to 12 words that stand in one passage, and a vector near some."""
        rng = np.random.default_rng((self._seed, 99))
        vectors = self._near_centres(rng, count)
        made: list[CandidateQuery] = []
        for row in vectors:
            passages = segments[int(rng.integers(len(segments)))].passages
            words = list(dict.fromkeys(passages[int(rng.integers(len(passages)))].words))
            rng.shuffle(words)
            asked = AskedVector(embedder=EMBEDDER, values=row.tobytes())
            made.append(
                CandidateQuery(words=tuple(words[: int(rng.integers(3, 13))]), vectors=(asked,))
            )
        return made


class Turns:
    """Makes durable batches as a turn or an import writes them, one after the other.

    Each holds segments, the job to embed them, and what the session is to be remembered as.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._path_lengths: Counter[str] = Counter()

    def batches(self, segments: Iterable[NewSegment], sizes: Iterator[int]) -> list[Batch]:
        """Batches of these sizes."""
        made: list[Batch] = []
        waiting = iter(segments)
        while group := tuple(islice(waiting, next(sizes))):
            made.append(self._batch(group))
        return made

    def _batch(self, group: tuple[NewSegment, ...]) -> Batch:
        self._turn += 1
        segments = [new.segment for new in group]
        name = segments[-1].session
        own = [segment for segment in segments if segment.session == name]
        session = SessionWrite(
            session=name,
            turn=self._turn,
            state=_STATE,
            path_from=self._path_lengths[name],
            path=tuple(segment.key for segment in own),
            ids=tuple(segment.message_id for segment in own),
        )
        self._path_lengths[name] += len(own)
        ids = ",".join(f'"{segment.id}"' for segment in segments)
        job = NewJob(
            kind="embed",
            key=segments[0].id,
            payload=f'{{"segments":[{ids}]}}'.encode(),
            run_at=segments[-1].said_at,
        )
        return Batch(at=segments[-1].said_at, segments=group, jobs=(job,), session=session)


def vector_batches(corpus: Corpus, segments: Sequence[NewSegment], *, size: int) -> list[Batch]:
    """Batches of vectors, as the embedding job writes them."""
    made: list[Batch] = []
    for first in range(0, len(segments), size):
        group = segments[first : first + size]
        vectors = VectorSet(embedder=EMBEDDER, dimensions=DIMENSIONS, vectors=corpus.vectors(group))
        made.append(Batch(at=group[-1].segment.said_at, vectors=(vectors,)))
    return made
