"""Measures one question set: writes its memories, asks, and holds the answers against gold.

Memories are opened one after the other. Baselines see the memory as the store keeps it, redacted
and without what is not indexed, in the same 4,000 tokens as recall: BM25 alone, vectors alone, and
OpenClaw's hybrid of 0.7 vector and 0.3 BM25 (its best BM25 hit counts 1; its decay and threshold
would only lower its figures). They never see how recall ranks.

Two stores rank alike if at every rank of the first fifty the scores are within 1e-4 of each other,
and the passages the same unless their scores are that near too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recollect.core.ports import Embedder
from recollect.core.search.bm25 import Bm25Index
from recollect.core.search.tokenize import tokenize
from recollect.core.values.recall import Hit
from recollect.core.values.segment import SegmentId
from recollect_bench.recall.ask import (
    Asker,
    Outcome,
    StrangerOutcome,
    ask_all,
    ask_strangers,
    strangers_of,
)
from recollect_bench.recall.judge import Judge, Verdict, pack_ranked, whole_message
from recollect_bench.recall.memory import StoredMemory, embed_memory, write_memory
from recollect_bench.recall.result import (
    Miss,
    SetResult,
    recall_figures,
    stranger_figures,
    verdict_figures,
)
from recollect_bench.recall.sets import Memory, Question, QuestionSet
from recollect_bench.recall.thresholds import thresholds_of
from recollect_bench.store_target import Target

# What recall is held against, on the same memory and in the same 4,000 tokens


Scores: TypeAlias = NDArray[np.float64]

OPENCLAW_VECTOR_WEIGHT: Final = 0.7
OPENCLAW_WORD_WEIGHT: Final = 0.3
BM25: Final = "bm25"
VECTORS: Final = "vectors"
OPENCLAW: Final = "openclaw"


class Baselines:
    """The rankings of one memory; vectors are those of the first embedder."""

    def __init__(self, stored: StoredMemory, judge: Judge) -> None:
        self._judge = judge
        self._messages = [message for message in stored.messages if message.passages]
        self._index = Bm25Index.build([tokenize(message.text) for message in self._messages])
        self._lines = [whole_message(message) for message in self._messages]
        self._matrix: NDArray[np.float32] | None = None

    async def embed(self, embedder: Embedder) -> None:
        """Make the vectors of whole messages."""
        values = await embedder.embed([message.text for message in self._messages])
        self._matrix = as_matrix(values)

    def verdicts(self, question: Question, vector: bytes | None) -> dict[str, Verdict]:
        """What each baseline finds of a question, by its name."""
        words = np.array(self._index.scores(tokenize(question.text)))
        verdicts = {BM25: self._verdict(question, words)}
        if vector is not None and self._matrix is not None:
            near = (self._matrix @ np.frombuffer(vector, "<f4")).astype(np.float64)
            best = float(words.max(initial=0.0))
            hybrid = OPENCLAW_VECTOR_WEIGHT * near + OPENCLAW_WORD_WEIGHT * words / (best or 1.0)
            verdicts[VECTORS] = self._verdict(question, near)
            verdicts[OPENCLAW] = self._verdict(question, hybrid)
        return verdicts

    def _verdict(self, question: Question, scores: Scores) -> Verdict:
        order = np.argsort(-scores, kind="stable")
        places = order.tolist()
        return self._judge.verdict(
            question,
            block=pack_ranked([self._lines[place] for place in places]),
            ranking=[self._messages[place].segment for place in places],
        )


def as_matrix(values: Sequence[bytes]) -> NDArray[np.float32]:
    """Vectors as rows."""
    return np.frombuffer(b"".join(values), "<f4").reshape(len(values), -1)


# Two stores must rank alike


RANKS: Final = 50
TOLERANCE: Final = 1e-4

PassageKey: TypeAlias = tuple[SegmentId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far two rankings of one question agree."""

    alike: bool
    worst: float
    """The largest difference between two scores at one rank, or of one passage."""


def compare(first: Sequence[Hit], second: Sequence[Hit]) -> Agreement:
    """Compare what two stores ranked for the same question."""
    ours, theirs = first[:RANKS], second[:RANKS]
    by_rank = [abs(a.score - b.score) for a, b in zip(ours, theirs, strict=False)]
    scores, others = _scores(first), _scores(second)
    of_passage = [abs(scores[key] - others[key]) for key in map(_key, ours) if key in others]
    near = all(difference <= TOLERANCE for difference in (*by_rank, *of_passage))
    alike = (
        len(ours) == len(theirs)
        and near
        and all(_same_place(a, b, scores, others) for a, b in zip(ours, theirs, strict=True))
    )
    return Agreement(alike=alike, worst=max((*by_rank, *of_passage), default=0.0))


def _same_place(
    ours: Hit, theirs: Hit, scores: Mapping[PassageKey, float], others: Mapping[PassageKey, float]
) -> bool:
    """The same passage, or two that each store scores the same."""
    if _key(ours) == _key(theirs):
        return True
    swapped = (_score(scores, theirs), _score(others, ours))
    return all(abs(score - ours.score) <= TOLERANCE for score in swapped)


def _score(scores: Mapping[PassageKey, float], hit: Hit) -> float:
    """What a ranking gives a passage; one that it left out scores at most what came last."""
    return scores.get(_key(hit), min(scores.values(), default=0.0))


def _key(hit: Hit) -> PassageKey:
    return hit.passage.segment, hit.passage.ordinal


def _scores(hits: Sequence[Hit]) -> dict[PassageKey, float]:
    return {_key(hit): hit.score for hit in hits}


class Progress(Protocol):
    """Tells those who watch how far it is."""

    def __call__(self, text: str, done: int = 0, total: int | None = None, /) -> None:
        """So much of what is said is done."""
        ...


@dataclass(slots=True, kw_only=True)
class _Gathered:
    """What was measured so far of a set."""

    outcomes: list[Outcome] = field(default_factory=list)
    strangers: list[StrangerOutcome] = field(default_factory=list)
    judged: dict[str, list[tuple[Question, Verdict]]] = field(default_factory=dict)
    misses: list[Miss] = field(default_factory=list)
    passages: int = 0
    unindexed_gold: int = 0


async def measure_set(
    whole: QuestionSet,
    *,
    asker: Asker,
    embedder: str,
    target: Target,
    misses: int,
    progress: Progress,
) -> SetResult:
    """The figures of a set."""
    gathered = _Gathered()
    for memory in whole.memories:
        async with filled(memory, whole, asker, target, progress) as stored:
            await _measure_memory(whole, stored, asker, gathered, progress)
    figures = {
        **recall_figures(gathered.outcomes),
        **stranger_figures(gathered.strangers),
        "questions": len(gathered.outcomes),
        "other_questions": len(gathered.strangers),
        "passages": gathered.passages,
    }
    notes = list(whole.notes)
    if gathered.unindexed_gold:
        notes.append(
            f"{whole.name}: {gathered.unindexed_gold} gold messages are noise by our rules, kept "
            "but not indexed"
        )
    return SetResult(
        name=whole.name,
        embedder=embedder,
        figures=figures,
        baselines={name: verdict_figures(judged) for name, judged in gathered.judged.items()},
        thresholds=thresholds_of(whole.name, embedder),
        notes=(*notes, *sorted(asker.notes)),
        misses=tuple(_spread(gathered.misses, misses)),
    )


@asynccontextmanager
async def filled(
    memory: Memory,
    whole: QuestionSet,
    asker: Asker,
    target: Target,
    progress: Progress,
    *,
    again: str = "",
) -> AsyncIterator[StoredMemory]:
    """A memory in a store of its own, with all its vectors; `again` names a second one of it."""
    where = f"{whole.name} {memory.name}"
    store = await target.open(f"{whole.name}-{memory.name}{again}")
    try:
        progress(f"{where}: writing", 0, len(memory.messages))
        stored = await write_memory(store, memory)
        for embedder in asker.embedders:

            def told(done: int, total: int) -> None:
                progress(f"{where}: embedding", done, total)

            await embed_memory(
                store, embedder, at=memory.ends_at, passages=stored.passages, told=told
            )
        await target.settle(store, size="bench")
        yield stored
    finally:
        await store.close()


async def _measure_memory(
    whole: QuestionSet,
    stored: StoredMemory,
    asker: Asker,
    gathered: _Gathered,
    progress: Progress,
) -> None:
    memory = stored.memory
    where = f"{whole.name} {memory.name}"
    judge = Judge(stored)
    done = 0

    def told() -> None:
        nonlocal done
        done += 1
        progress(f"{where}: asking", done, len(memory.questions))

    vectors = await asker.vectors(stored, memory.questions)
    outcomes = await ask_all(asker, stored, judge, vectors, told)
    progress(f"{where}: other chats' questions")
    gathered.strangers += await ask_strangers(asker, stored, strangers_of(whole, memory))
    progress(f"{where}: baselines")
    baselines = Baselines(stored, judge)
    if asker.embedders:
        await baselines.embed(asker.embedders[0])
    for question, asked in zip(memory.questions, vectors, strict=True):
        verdicts = baselines.verdicts(question, asked[0].values if asked else None)
        for name, verdict in verdicts.items():
            gathered.judged.setdefault(name, []).append((question, verdict))
    gathered.outcomes += outcomes
    gathered.passages += stored.passages
    gold = {place for question in memory.questions for place in question.gold}
    gathered.unindexed_gold += sum(not stored.messages[place].passages for place in gold)
    gathered.misses += [
        Miss.of(
            whole.name, outcome, [memory.messages[place].text for place in outcome.question.gold]
        )
        for outcome in outcomes
        if not outcome.verdict.all_in
    ]


def _spread(misses: Sequence[Miss], most: int) -> list[Miss]:
    """Some of them, from the whole set rather than from its first memory."""
    if most <= 0:
        return []
    step = max(1, len(misses) // most)
    return list(misses[::step][:most])


async def compare_stores(
    whole: QuestionSet, *, asker: Asker, targets: tuple[Target, Target], progress: Progress
) -> dict[str, float]:
    """Ask two stores the same and compare what they rank."""
    agreements: list[Agreement] = []
    for memory in whole.memories:
        first, second = targets
        async with (
            filled(memory, whole, asker, first, progress) as ours,
            filled(memory, whole, asker, second, progress) as theirs,
        ):
            vectors = await asker.vectors(ours, memory.questions)
            for done, question in enumerate(memory.questions):
                progress(f"{whole.name} {memory.name}: asking both", done, len(vectors))
                asked = vectors[done]
                recalled = await asker.ask(ours, question, asked, gated=False)
                other = await asker.ask(theirs, question, asked, gated=False)
                agreements.append(compare(recalled.hits, other.hits))
    return {
        "same_top_50": round(fmean(float(agreement.alike) for agreement in agreements), 4),
        "worst_score_difference": max(agreement.worst for agreement in agreements),
        "questions": len(agreements),
    }
