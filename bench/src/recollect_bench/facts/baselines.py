"""Extracts each case on its own, without a store: by the rules, and by the naive baseline.

Owns how a case is handed to an extractor. Must never show an extractor the labels. What is
measured is `facts.extract` as the engine calls it, with no model. The naive baseline takes every
sentence with a word from a short list, as a first version of such a memory does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from recollect.engine.facts.extraction import ANSWER_TOKENS
from recollect.facts.extract import Extracted, extract
from recollect.ports import Model
from recollect.rules.text import sentence_spans
from recollect.values.fact import FactDraft
from recollect.values.segment import Segment
from recollect_bench.facts.cases import Case, segments_of
from recollect_bench.facts.score import Score, Tally, score

# The naive baseline


_KEYWORDS: Final = re.compile(
    r"\b(?:remember|note|decided|decision|go with|going with|switch|agreed|always|never|must|don't"
    r"|prefer|like|hate|port|path|version|config|host|url|limit|done|blocked|implemented|crash\w*"
    r"|fails?|broken|uses?|through)\b"
    r"|记住|记一下|注意|决定|改用|采用|就用|定下来|不要|别|必须|务必|一律|以后|喜欢|习惯|端口|路径|版本|配置"
    r"|已完成|还没|阻塞|崩溃|失败",
    re.IGNORECASE,
)


def keyword_sentences(text: str) -> list[str]:
    """The sentences that it would keep."""
    return [
        text[start:end] for start, end in sentence_spans(text) if _KEYWORDS.search(text, start, end)
    ]


Drafts: TypeAlias = Mapping[str, Sequence[FactDraft]]
"""By the id of their case."""
_NOW: Final = 1e10
_SAME_KIND: Final = {"dates-and-versions": "dates-versions"}


async def extracted(case: Case, model: Model | None = None) -> Extracted:
    """What is found in a case."""
    return await extract(
        segments_of(case), (), model=model, max_output_tokens=ANSWER_TOKENS, now=_NOW
    )


async def by_rules(cases: Iterable[Case]) -> Drafts:
    """What the rules find in each case."""
    return {case.id: (await extracted(case)).drafts for case in cases}


def by_keywords(cases: Iterable[Case]) -> Drafts:
    """What the naive baseline finds in each case."""
    return {
        case.id: [
            _sentence(segment, sentence)
            for segment in segments_of(case)
            for sentence in keyword_sentences(segment.text)
        ]
        for case in cases
    }


def _sentence(segment: Segment, sentence: str) -> FactDraft:
    return FactDraft(
        type="decision",
        content=sentence,
        at=segment.said_at,
        evidence=(),
        trust=segment.trust,
        made_by="rules",
    )


def by_words_alone(drafts: Drafts) -> Drafts:
    """The drafts without what they rest on, so that only their own words count."""
    return {
        case: [replace(draft, evidence=()) for draft in fact_drafts]
        for case, fact_drafts in drafts.items()
    }


def figures_of(scored: Score, *, parts: bool = True) -> dict[str, float]:
    """A score as flat figures; `parts`: by language and kind, too."""
    total = scored.total
    figures = {
        "found": total.found_share,
        "precision": total.precision,
        "type_accuracy": total.type_accuracy,
        "wanted": float(total.wanted),
        "drafts": float(total.drafts),
    }
    if parts:
        for name, tally in [*scored.by_language.items(), *_kinds(scored).items()]:
            if tally.wanted:
                figures[f"found.{name}"] = tally.found_share
            if tally.drafts:
                figures[f"precision.{name}"] = tally.precision
    return {name: round(value, 4) for name, value in figures.items()}


def _kinds(scored: Score) -> dict[str, Tally]:
    """By kind, each under one spelling: the cases have several authors."""
    kinds: dict[str, Tally] = {}
    for kind, tally in scored.by_kind.items():
        dashed = kind.replace(" ", "-")
        name = _SAME_KIND.get(dashed, dashed)
        kinds[name] = kinds.get(name, Tally()).plus(tally)
    return dict(sorted(kinds.items()))


def inferred_too(case: Case) -> Case:
    """The case with what has to be inferred asked for like what is stated plainly."""
    return replace(case, facts=tuple(replace(fact, explicit=True) for fact in case.facts))


def stricter_figures(cases: Sequence[Case], drafts: Drafts) -> dict[str, float]:
    """The same where inferred facts are asked for, too, and where only a draft's words count."""
    total = score(cases, by_words_alone(drafts)).total
    wider = score([inferred_too(case) for case in cases], drafts).total
    return {
        "found_inferred_too": round(wider.found_share, 4),
        "found_strict": round(total.found_share, 4),
        "precision_strict": round(total.precision, 4),
    }
