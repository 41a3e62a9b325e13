"""Decides what facts add to a block: whose gold they stand for, and whether the answer is there.

Owns two measures. A fact in the block stands for the messages it rests on; a digest that names many
of them would win by that alone, so beside it stands the share of the answer's own rare words that
passages and facts say. Must never count a fact that the block has no room for, nor a word of the
block's frame: `[task_state]` has no part in an answer. Always holds: blocks with and without facts
have the same budget and are written by the same stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from recollect.formats.recalled_block import fact_line
from recollect.rules.tokens import Weigher
from recollect.search.tokenize import tokenize
from recollect.turn.inject import inject
from recollect.values.fact import Fact, FactId
from recollect.values.history import Entry
from recollect.values.recall import Recalled, RecalledFact
from recollect_bench.recall.judge import BUDGET_TOKENS, Judge, openclaw_tokens
from recollect_bench.recall.sets import Question

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
    passages = [one for one in recalled.passages if one.name in names]
    facts = [one for one in recalled.facts if one.name in names]
    shown = {judge.place(one) for one in passages}
    stood_for = shown | {place for one in facts for place in _places(one, judge, known)}
    return FactVerdict(
        by_passages=shown.issuperset(question.gold),
        with_facts=stood_for.issuperset(question.gold),
        answer_words=_held_share(
            judge.answer_words(question),
            [*(one.text for one in facts), *(one.text for one in passages)],
        ),
        facts=len(facts),
        digests=sum(one.type == "digest" for one in facts),
        fact_tokens=sum(openclaw_tokens(fact_line(one) + "\n") for one in facts),
    )


def _places(one: RecalledFact, judge: Judge, known: Mapping[FactId, Fact]) -> list[int]:
    fact = None if one.id is None else known.get(one.id)
    return [] if fact is None else [judge.place_of(source) for source in fact.sources]


def _held_share(worths: Mapping[str, float], texts: Sequence[str]) -> float | None:
    total = sum(worths.values())
    if not total:
        return None
    held = {word for text in texts for word in tokenize(text)}
    return sum(worth for word, worth in worths.items() if word in held) / total
