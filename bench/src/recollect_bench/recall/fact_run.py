"""Measures what facts and digests bring to recall: the same questions with and without them.

Every memory is asked before anything was extracted, then read by rules and asked again, then, in a
store of its own, read by rules and a model and asked again. Blocks with and without facts have the
same budget and are written by the same stage.

A fact in the block stands for the messages it rests on. A digest that names many would win by that
alone, so beside it stands the share of the answer's own rare words that passages and facts say.
A fact the block has no space for never counts, nor a word of the block's frame (`[task_state]`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from recollect.formats.recalled_block import fact_line
from recollect.ports import Model
from recollect.rules.tokens import Weigher
from recollect.search.tokenize import tokenize
from recollect.turn.inject import inject
from recollect.values.fact import Fact, FactId
from recollect.values.history import Entry
from recollect.values.recall import Recalled, RecalledFact
from recollect_bench.recall.ask import Asker
from recollect_bench.recall.fact_sources import FactsBy, Part, ReadFacts, read_for_facts
from recollect_bench.recall.judge import BUDGET_TOKENS, Judge, openclaw_tokens
from recollect_bench.recall.memory import StoredMemory, entries_of
from recollect_bench.recall.result import SetResult, by_part
from recollect_bench.recall.run import Progress, filled
from recollect_bench.recall.sets import Question, QuestionSet, Said
from recollect_bench.store_target import Target

# What facts add to a block


_WEIGHER: Final = Weigher(count=openclaw_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactVerdict:
    """What a block with facts holds of a question's gold and of its answer."""

    by_passages: bool
    """Of every gold message a passage is in the block."""
    with_facts: bool
    """Of every gold message a passage is in the block, or a fact that rests on it."""
    answer_words: float | None
    """The share of the answer's rare words that it says, by their worth; None: it has none."""
    facts: int
    digests: int
    fact_tokens: int


def judge_block(
    judge: Judge,
    question: Question,
    recalled: Recalled,
    *,
    asking: Entry,
    known: Mapping[FactId, Fact],
) -> FactVerdict:
    """What a turn would be given of this, and what that holds."""
    done = inject(
        (asking,),
        recalled,
        _WEIGHER,
        placement="before-newest-user",
        budget_tokens=BUDGET_TOKENS,
        turn=1,
    )
    names = frozenset(() if done.edit is None else done.edit.recalled)
    passages = [passage for passage in recalled.passages if passage.name in names]
    facts = [recalled_fact for recalled_fact in recalled.facts if recalled_fact.name in names]
    shown = {judge.place(passage) for passage in passages}
    stood_for = shown | {place for recalled in facts for place in _places(recalled, judge, known)}
    return FactVerdict(
        by_passages=shown.issuperset(question.gold),
        with_facts=stood_for.issuperset(question.gold),
        answer_words=_held_share(
            judge.answer_words(question),
            [*(recalled.text for recalled in facts), *(passage.text for passage in passages)],
        ),
        facts=len(facts),
        digests=sum(recalled.type == "digest" for recalled in facts),
        fact_tokens=sum(openclaw_tokens(fact_line(recalled) + "\n") for recalled in facts),
    )


def _places(recalled: RecalledFact, judge: Judge, known: Mapping[FactId, Fact]) -> list[int]:
    fact = None if recalled.id is None else known.get(recalled.id)
    return [] if fact is None else [judge.place_of(source) for source in fact.sources]


def _held_share(worths: Mapping[str, float], texts: Sequence[str]) -> float | None:
    total = sum(worths.values())
    if not total:
        return None
    held = {word for text in texts for word in tokenize(text)}
    return sum(worth for word, worth in worths.items() if word in held) / total


NOTES: Final = (
    "none, rules, model: who read the memory for facts; each has the same block of 4,000 tokens",
    "all_4k: of all gold messages a passage is in the block; with_facts_all_4k: a passage is, or a",
    "  fact or digest that names the message as its source; a digest names many, so believe:",
    "answer_words_4k: the share of the answer's rare words (in at most 5% of the passages, not in",
    "  the question) that its passages and facts say, by their worth; headings and marks of the",
    "  block do not count, nor questions whose answer has no such word",
    "_gated: the same as a turn has it: behind the gate, without echoes and tail",
    "gained, lost: questions whose gold is complete only with facts, and only without any",
    "better, worse: questions whose answer_words_4k rose or fell by a tenth or more",
)
_TOLD: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question, asked outright and behind the gate."""

    question: Question
    outright: FactVerdict
    behind: FactVerdict


@dataclass(slots=True, kw_only=True)
class _Variant:
    """What one way of reading came to, over all memories so far."""

    asked: list[Asked] = field(default_factory=list)
    read: list[ReadFacts] = field(default_factory=list)


async def measure_facts(
    part: Part,
    *,
    asker: Asker,
    embedder: str,
    target: Target,
    by: FactsBy,
    model: Model | None,
    progress: Progress,
) -> SetResult:
    """The figures of a set, without facts and with those that are extracted from it."""
    whole = part.whole
    variants: dict[FactsBy, _Variant] = {"none": _Variant(), "rules": _Variant()}
    for memory in whole.memories:
        async with filled(memory, whole, asker, target, progress) as stored:
            await _ask(stored, asker, variants["none"], {}, progress, "asking without facts")
            places = part.read.get(memory.name)
            read = await _read(stored, asker, places, None, progress, "by rules")
            variants["rules"].read.append(read)
            await _ask(stored, asker, variants["rules"], read.facts, progress, "asking, rules")
        if by == "model":
            held = variants.setdefault("model", _Variant())
            async with filled(memory, whole, asker, target, progress, again="-model") as stored:
                read = await _read(stored, asker, places, model, progress, "by model")
                held.read.append(read)
                await _ask(stored, asker, held, read.facts, progress, "asking, model")
    figures: dict[str, float] = {}
    for name, variant in variants.items():
        figures |= {f"{name}.{figure}": value for figure, value in _figures(variant).items()}
        if name != "none":
            beside = _beside(variants["none"].asked, variant.asked)
            figures |= {f"{name}.{figure}": value for figure, value in beside.items()}
    figures |= _counts(whole, variants["none"].asked)
    if part.read:
        figures["messages_chosen"] = sum(map(len, part.read.values()))
    return SetResult(
        name=whole.name,
        embedder=embedder,
        figures=figures,
        notes=(*whole.notes, *sorted(asker.notes)),
    )


async def _read(
    stored: StoredMemory,
    asker: Asker,
    places: frozenset[int] | None,
    model: Model | None,
    progress: Progress,
    how: str,
) -> ReadFacts:
    where = stored.memory.name

    def told(done: int) -> None:
        progress(f"{where}: reading {how}, {done} jobs done")

    return await read_for_facts(
        stored, places=places, embedders=asker.embedders, model=model, told=told
    )


async def _ask(
    stored: StoredMemory,
    asker: Asker,
    variant: _Variant,
    known: Mapping[FactId, Fact],
    progress: Progress,
    how: str,
) -> None:
    judge = Judge(stored)
    questions = stored.memory.questions
    for done, question in enumerate(questions):
        progress(f"{stored.memory.name}: {how}", done, len(questions))
        asking = _entry(question, stored)
        verdicts: list[FactVerdict] = []
        for gated in (False, True):
            (vectors,) = await asker.vectors(stored, [question], gated=gated)
            recalled = await asker.ask(stored, question, vectors, gated=gated)
            verdicts.append(judge_block(judge, question, recalled, asking=asking, known=known))
        outright, behind = verdicts
        variant.asked.append(Asked(question=question, outright=outright, behind=behind))


def _entry(question: Question, stored: StoredMemory) -> Entry:
    """The question as the message that a block would stand before."""
    message = Said(text=question.text, role="user", session="asking", said_at=stored.memory.ends_at)
    return entries_of([message], space=stored.store.space)[0]


def _figures(variant: _Variant) -> dict[str, float]:
    outright = [(question.question, question.outright) for question in variant.asked]
    behind = [(question.question, question.behind) for question in variant.asked]
    figures = _shares(outright, "", facts=bool(variant.read))
    figures |= _shares(behind, "_gated", facts=bool(variant.read))
    if variant.read:
        figures |= by_part("facts_shown", [(asked, verdict.facts) for asked, verdict in outright])
        figures |= {
            "digests_shown": _mean([verdict.digests for _, verdict in outright]),
            "fact_tokens": _mean([verdict.fact_tokens for _, verdict in outright]),
            "facts": sum(len(reading.facts) - reading.digests for reading in variant.read),
            "digests": sum(reading.digests for reading in variant.read),
            "superseded": sum(reading.superseded for reading in variant.read),
            "messages_read": sum(reading.messages_read for reading in variant.read),
            "dead_jobs": sum(reading.dead_jobs for reading in variant.read),
            "reading_seconds": round(sum(reading.seconds for reading in variant.read), 1),
        }
    return figures


def _shares(
    judged: Sequence[tuple[Question, FactVerdict]], end: str, *, facts: bool
) -> dict[str, float]:
    """The measures of one kind of asking; without facts there is nothing with them."""
    by_passages = [(asked, float(verdict.by_passages)) for asked, verdict in judged]
    with_facts = [(asked, float(verdict.with_facts)) for asked, verdict in judged] if facts else []
    words = [
        (asked, verdict.answer_words)
        for asked, verdict in judged
        if verdict.answer_words is not None
    ]
    return {
        **by_part(f"all_4k{end}", by_passages),
        **by_part(f"with_facts_all_4k{end}", with_facts),
        **by_part(f"answer_words_4k{end}", words),
    }


def _beside(without: Sequence[Asked], with_facts: Sequence[Asked]) -> dict[str, float]:
    """How often facts changed something, for the better and for the worse."""
    found: list[tuple[Question, int]] = []
    words: list[tuple[Question, float]] = []
    for question, other in zip(without, with_facts, strict=True):
        asked, before, after = question.question, question.outright, other.outright
        found.append((asked, after.with_facts - before.by_passages))
        if before.answer_words is not None and after.answer_words is not None:
            words.append((asked, after.answer_words - before.answer_words))
    return {
        **by_part("gained", [(asked, float(change > 0)) for asked, change in found]),
        **by_part("lost", [(asked, float(change < 0)) for asked, change in found]),
        **by_part("better", [(asked, float(change >= _TOLD)) for asked, change in words]),
        **by_part("worse", [(asked, float(change <= -_TOLD)) for asked, change in words]),
    }


def _counts(whole: QuestionSet, asked: Sequence[Asked]) -> dict[str, float]:
    """How many were asked, and of how many the answer has rare words."""
    counts: dict[str, float] = {
        "memories": len(whole.memories),
        "messages": sum(len(memory.messages) for memory in whole.memories),
    }
    worded = [question.question for question in asked if question.outright.answer_words is not None]
    for name, questions in (
        ("questions", [question.question for question in asked]),
        ("worded", worded),
    ):
        counts[name] = len(questions)
        for category in sorted({question.question.category for question in asked}):
            counts[f"{name}.{category}"] = sum(
                question.category == category for question in questions
            )
    return counts


def _mean(values: Sequence[float]) -> float:
    return round(fmean(values), 4) if values else 0.0
