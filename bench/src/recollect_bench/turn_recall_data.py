"""A memory for the bench of recall, and the turns that ask it: generated, the same in every run.

Owns what is stored and asked. Messages come from the store bench's corpus, with the ids that a
turn names them by and the words that a question meets; each embedder has vectors near the centre
of what is talked about. A question takes its words from one passage and its vectors from that
passage's topic, so that memory holds something on it and the gate opens. It must never time
anything. Always holds: a question's view is of a session of the memory, and does not show the
passage that the question is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from recollect.core.ports import Store
from recollect.core.rules.identity import segment_id
from recollect.core.rules.tokens import Weigher
from recollect.core.search.tokenize import tokenize
from recollect.core.values.batch import Batch
from recollect.core.values.history import SessionId
from recollect.core.values.message import EntryKey
from recollect.core.values.recall import AskedVector, EmbedderKind, RecallRequest, Scale
from recollect.core.values.segment import NewSegment, Vector, VectorSet
from recollect_bench.store_data import SEGMENTS_PER_SESSION, STARTED_AT, Corpus

TOPICS: Final = 64
MESSAGES_PER_TOPIC: Final = 12
"""For so many messages the talk stays with one topic."""
SHOWN_MESSAGES: Final = 100
GATED_TOKENS: Final = 2_000
ASKED_TOKENS: Final = 4_000
BATCH_SEGMENTS: Final = 400
_QUESTION_NOISE: Final = 0.5
_PASSAGE_NOISE: Final = 1.0
_UNRELATED: Final = Scale(mean=0.0, spread=0.1)
_DATED_EVERY: Final = 5
"""So often a question names a time, which adds evidence to weigh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeVectors:
    """An embedder's vectors, drawn near the centres of topics."""

    name: str
    kind: EmbedderKind
    dimensions: int
    seed: int

    def near(self, topics: NDArray[np.int64], *, noise: float, drawn: int) -> NDArray[np.float32]:
        """A vector of length one near the centre of each topic."""
        centres = _unit(np.random.default_rng(self.seed).standard_normal((TOPICS, self.dimensions)))
        rng = np.random.default_rng((self.seed, drawn))
        spread = rng.standard_normal((len(topics), self.dimensions)) / self.dimensions**0.5
        unit: NDArray[np.float32] = _unit(centres[topics] + noise * spread).astype("<f4")
        return unit


EMBEDDERS: Final = (
    MadeVectors(name="bench-onnx-384", kind="onnx", dimensions=384, seed=11),
    MadeVectors(name="bench-static-256", kind="static", dimensions=256, seed=12),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A turn's request with the vectors of its question."""

    request: RecallRequest = field(repr=False)
    vectors: tuple[AskedVector, ...] = field(repr=False)


class Talk:
    """The messages of a memory, by their number; each is made when it is asked for."""

    def __init__(self, *, seed: int = 3) -> None:
        self._corpus = Corpus(seed=seed)
        self._count_tokens = Weigher().text

    def message(self, number: int) -> NewSegment:
        """A message as `turn/ingest` would write it."""
        made = self._corpus.segment(number)
        segment = made.segment
        passages = tuple(
            replace(passage, words=tuple(tokenize(segment.text[passage.start : passage.end])))
            for passage in made.passages
        )
        named = replace(segment, id=segment_id(segment.session, segment.key))
        return NewSegment(segment=named, passages=passages)

    def batches(self, passages: int) -> Iterator[tuple[int, Batch]]:
        """Batches that hold so many passages with their vectors, each with its last number."""
        number = 0
        while passages > 0:
            first = number
            group: list[NewSegment] = []
            while len(group) < BATCH_SEGMENTS and passages > 0:
                group.append(self.message(number))
                passages -= len(group[-1].passages)
                number += 1
            at = group[-1].segment.said_at
            yield number, Batch(at=at, segments=tuple(group), vectors=_vectors(group, first))

    def asked(self, messages: int, count: int, *, gated: bool) -> list[Asked]:
        """Questions to a memory of so many messages: of turns, or asked outright."""
        rng = np.random.default_rng((messages, count, gated))
        about = rng.integers(max(1, messages - SEGMENTS_PER_SESSION), size=count)
        topics = np.array([topic_of(int(number)) for number in about], dtype=np.int64)
        rows = [
            each.near(topics, noise=_QUESTION_NOISE, drawn=1_000_000_000 + gated)
            for each in EMBEDDERS
        ]
        return [
            Asked(
                request=self._request(
                    self._question(rng, at, int(number)), at, messages, gated=gated
                ),
                vectors=tuple(
                    AskedVector(
                        embedder=each.name, values=row[at].tobytes(), kind=each.kind,
                        scale=_UNRELATED,
                    )
                    for each, row in zip(EMBEDDERS, rows, strict=True)
                ),
            )
            for at, number in enumerate(about)
        ]  # fmt: skip

    def _question(self, rng: np.random.Generator, at: int, number: int) -> str:
        """A sentence with some words of one passage."""
        new = self.message(number)
        span = new.passages[int(rng.integers(len(new.passages)))]
        words = list(dict.fromkeys(new.segment.text[span.start : span.end].split()[:-1]))
        rng.shuffle(words)
        when = " last week" if at % _DATED_EVERY == 0 else ""
        return f"what did we say{when} about {' '.join(words[: int(rng.integers(4, 11))])}?"

    def _request(self, text: str, at: int, messages: int, *, gated: bool) -> RecallRequest:
        outright = RecallRequest(
            space=SPACE,
            session=SessionId("asking"),
            query=text,
            now=STARTED_AT + 30.0 * messages,
            budget_tokens=ASKED_TOKENS,
            count_tokens=self._count_tokens,
            gated=False,
        )
        if not gated:
            return outright
        # of the newest session, some further back each time: as a session's turns go on
        last = messages - 1 - 3 * at % (SEGMENTS_PER_SESSION - SHOWN_MESSAGES)
        shown = [self.message(one).segment for one in range(max(0, last - SHOWN_MESSAGES), last)]
        session = shown[-1].session
        shown = [segment for segment in shown if segment.session == session]
        return replace(
            outright,
            session=SessionId(session),
            newest=text,
            recent=(shown[-1].text,),
            shown=frozenset(segment.key for segment in shown),
            asking=EntryKey(f"{at:032x}"),
            view=tuple(segment.text for segment in shown[:-1]),
            budget_tokens=GATED_TOKENS,
            gated=True,
        )


SPACE: Final = "measured"


async def fill(
    store: Store, talk: Talk, passages: int, progress: Callable[[str], None] = lambda _: None
) -> int:
    """Write a memory of so many passages; how many messages it has."""
    messages = 0
    for messages, batch in talk.batches(passages):
        await store.write(batch)
        progress(f"writing {passages:,} passages: {messages:,} messages")
    return messages


def topic_of(number: int) -> int:
    """What a message is about."""
    return number // MESSAGES_PER_TOPIC * 2_654_435_761 % (1 << 32) % TOPICS


def _vectors(group: list[NewSegment], first: int) -> tuple[VectorSet, ...]:
    named = [
        (new.segment.id, ordinal, topic_of(first + at))
        for at, new in enumerate(group)
        for ordinal in range(len(new.passages))
    ]
    topics = np.array([topic for _, _, topic in named], dtype=np.int64)
    return tuple(
        VectorSet(
            embedder=each.name,
            dimensions=each.dimensions,
            vectors=tuple(
                Vector(segment=segment, ordinal=ordinal, values=row.tobytes())
                for (segment, ordinal, _), row in zip(
                    named, each.near(topics, noise=_PASSAGE_NOISE, drawn=first), strict=True
                )
            ),
        )
        for each in EMBEDDERS
    )


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    unit: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit
