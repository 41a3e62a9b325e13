"""Measures one question set: writes its memories, asks, and holds the answers against gold.

Owns the order of the work on a memory. Memories are opened one after the other and closed when
they are done. Always holds: baselines see the memory as the store keeps it, redacted and without
what is not indexed, exactly as recall does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol

from recollect_bench.recall.ask import (
    Asker,
    Outcome,
    StrangerOutcome,
    ask_all,
    ask_strangers,
    strangers_of,
)
from recollect_bench.recall.baselines import Baselines
from recollect_bench.recall.compare import Agreement, compare
from recollect_bench.recall.figures import recall_figures, stranger_figures, verdict_figures
from recollect_bench.recall.floors import floors_of
from recollect_bench.recall.judge import Judge, Verdict
from recollect_bench.recall.memory import StoredMemory, embed_memory, write_memory
from recollect_bench.recall.result import Miss, SetResult
from recollect_bench.recall.sets import Memory, Question, QuestionSet
from recollect_bench.store_target import Target


class Progress(Protocol):
    """Tells those who watch how far it is."""

    def __call__(self, said: str, done: int = 0, total: int | None = None, /) -> None:
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
        floors=floors_of(whole.name, embedder),
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
        found = baselines.verdicts(question, asked[0].values if asked else None)
        for name, verdict in found.items():
            gathered.judged.setdefault(name, []).append((question, verdict))
    gathered.outcomes += outcomes
    gathered.passages += stored.passages
    gold = {place for question in memory.questions for place in question.gold}
    gathered.unindexed_gold += sum(not stored.messages[place].passages for place in gold)
    gathered.misses += [
        Miss.of(whole.name, one, [memory.messages[place].text for place in one.question.gold])
        for one in outcomes
        if not one.verdict.all_in
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
                one = await asker.ask(ours, question, asked, gated=False)
                other = await asker.ask(theirs, question, asked, gated=False)
                agreements.append(compare(one.hits, other.hits))
    return {
        "same_top_50": round(fmean(float(one.alike) for one in agreements), 4),
        "worst_score_difference": max(one.worst for one in agreements),
        "questions": len(agreements),
    }
