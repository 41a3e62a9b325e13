"""Asks the recall stage every question of a memory, and those of other chats behind the gate.

Owns what a question is given to the stage as: nothing is in view, the whole space is searched,
4,000 tokens may be used. It must never rank, score or pack. Always holds: the sample of other
chats' questions is the same in every run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

from recollect.core.engine.recaller import QuestionVectors
from recollect.core.ports import Archive, Embedder
from recollect.core.values.recall import AskedVector, Hit, Recalled, RecalledPassage, RecallRequest
from recollect.core.values.segment import SegmentId
from recollect.system.config.settings import Recall as RecallSettings
from recollect_bench.recall.judge import BUDGET_TOKENS, Judge, Verdict, openclaw_tokens
from recollect_bench.recall.memory import StoredMemory
from recollect_bench.recall.sets import Memory, Question, QuestionSet, Split

T = TypeVar("T")

EMBED_SECONDS: Final = 30.0
STRANGERS_ASKED: Final = 600
"""How many questions of other chats are asked in all, as evenly as it goes."""
SHOWN_INSTEAD: Final = 5
_AT_ONCE: Final = 2
"""Questions in flight: one waits for the store while the other is scored."""
_ASKING_SESSION: Final = "asking"


class RecallStage(Protocol):
    """`recollect.core.turn.recall.recall`, or what stands for it in a test."""

    def __call__(
        self,
        request: RecallRequest,
        *,
        archive: Archive,
        vectors: Sequence[AskedVector],
        settings: RecallSettings,
    ) -> Awaitable[Recalled]:
        """What bears on the request."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one question."""

    memory: str
    question: Question
    verdict: Verdict
    """Of what recall finds where it is asked outright."""
    behind: Verdict
    """Of what a turn gets: the gate may stay shut, and behind it the tail is cut."""
    lost: bool
    """The gate kept it from memory."""
    instead: tuple[str, ...] = field(default=(), repr=False)
    """Of a missed question: the best passages of the block that are not gold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrangerOutcome:
    """Whether a question of another chat recalled something."""

    split: Split
    recalled: bool


@dataclass(slots=True, kw_only=True)
class Asker:
    """The stage with what every question is asked with."""

    stage: RecallStage
    embedders: Sequence[Embedder]
    settings: RecallSettings = field(default_factory=RecallSettings)
    asking: QuestionVectors | None = None
    notes: set[str] = field(default_factory=set)
    """What the stage said was not as it should be."""

    async def vectors(
        self, stored: StoredMemory, questions: Sequence[Question], *, gated: bool = False
    ) -> list[tuple[AskedVector, ...]]:
        """The vectors of each question, one an embedder; behind the gate the newest words ask."""
        return [
            await self.vectors_of(self._request(stored, question, gated=gated), stored.store)
            for question in questions
        ]

    async def vectors_of(self, request: RecallRequest, archive: Archive) -> tuple[AskedVector, ...]:
        """The vectors of a request's question, as the engine makes them."""
        if self.asking is None:
            self.asking = QuestionVectors(self.embedders, seconds=EMBED_SECONDS)
            await self.asking.load()
        vectors, notes = await self.asking.embedded(await self.asking.phrased(request, archive))
        self.notes.update(map(str, notes))
        return vectors

    async def ask(
        self,
        stored: StoredMemory,
        question: Question,
        vectors: Sequence[AskedVector],
        *,
        gated: bool,
    ) -> Recalled:
        """What the stage recalls for a question."""
        recalled = await self.stage(
            self._request(stored, question, gated=gated),
            archive=stored.store,
            vectors=vectors,
            settings=self.settings,
        )
        self.notes.update(map(str, recalled.notes))
        return recalled

    def _request(self, stored: StoredMemory, question: Question, *, gated: bool) -> RecallRequest:
        return RecallRequest(
            space=stored.store.space,
            session=_ASKING_SESSION,
            query=question.text,
            newest=question.newest,
            scope="space",
            now=stored.memory.ends_at if question.now is None else question.now,
            budget_tokens=BUDGET_TOKENS,
            count_tokens=openclaw_tokens,
            gated=gated,
        )


async def ask_all(
    asker: Asker,
    stored: StoredMemory,
    judge: Judge,
    vectors: Sequence[tuple[AskedVector, ...]],
    told: Callable[[], None],
) -> list[Outcome]:
    """Ask every question of a memory, without the gate and behind it."""

    async def one(question: Question, asked: tuple[AskedVector, ...]) -> Outcome:
        open_ = await asker.ask(stored, question, asked, gated=False)
        if question.newest not in ("", question.text):
            (asked,) = await asker.vectors(stored, [question], gated=True)
        behind = await asker.ask(stored, question, asked, gated=True)
        block = open_.passages
        verdict = judge.verdict(question, block=block, ranking=ranking_of(open_.hits))
        told()
        return Outcome(
            memory=stored.memory.name,
            question=question,
            verdict=verdict,
            behind=judge.verdict(question, block=behind.passages, ranking=ranking_of(behind.hits)),
            lost=behind.empty,
            instead=() if verdict.all_in else _instead(question, block, judge),
        )

    pairs = zip(stored.memory.questions, vectors, strict=True)
    return await _few_at_once([partial(one, *pair) for pair in pairs])


async def ask_strangers(
    asker: Asker, stored: StoredMemory, strangers: Sequence[Question]
) -> list[StrangerOutcome]:
    """Ask questions that this memory holds nothing on, behind the gate."""
    vectors = await asker.vectors(stored, strangers, gated=True)
    own = {question.split for question in stored.memory.questions}

    async def one(question: Question, asked: tuple[AskedVector, ...]) -> StrangerOutcome:
        recalled = await asker.ask(stored, question, asked, gated=True)
        split = next(iter(own)) if len(own) == 1 else question.split
        return StrangerOutcome(split=split, recalled=not recalled.empty)

    pairs = zip(strangers, vectors, strict=True)
    return await _few_at_once([partial(one, *pair) for pair in pairs])


def strangers_of(whole: QuestionSet, memory: Memory) -> list[Question]:
    """The questions of other chats that this memory is asked; none where it has no other chat.

    One whose evidence was said here too, word for word, is no stranger. They are asked just
    after the last message: when their own chat was is no concern of this one.
    """
    pool = list(whole.strangers)
    if not pool and not whole.same_events:
        held = {message.text for message in memory.messages}
        pool = [
            asked
            for other in whole.memories
            if other is not memory
            for asked in other.questions
            if not any(other.messages[place].text in held for place in asked.gold)
        ]
    dice = random.Random(f"strangers:{whole.name}:{memory.name}")
    most = max(1, STRANGERS_ASKED // len(whole.memories))
    chosen = dice.sample(pool, min(most, len(pool)))
    return [
        Question(
            text=question.text,
            newest=question.newest,
            gold=(),
            category="stranger",
            split=question.split,
        )
        for question in chosen
    ]


def ranking_of(hits: Sequence[Hit]) -> list[SegmentId]:
    """Whose passages were ranked, best first."""
    return [hit.passage.segment for hit in hits]


def _instead(question: Question, block: Sequence[RecalledPassage], judge: Judge) -> tuple[str, ...]:
    gold = set(question.gold)
    others = [passage.text for passage in block if judge.place(passage) not in gold]
    return tuple(others[:SHOWN_INSTEAD])


async def _few_at_once(work: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """The results in order, a few in flight at a time."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def bounded(one: Callable[[], Awaitable[T]]) -> T:
        async with free:
            return await one()

    return list(await asyncio.gather(*[bounded(one) for one in work]))
