"""Scores what was extracted from the cases: how much was found, and how much of it is junk.

Owns when a draft is a listed fact: when its content, or the sentence it rests on, holds every key
of it. It must never look at how a draft was made. Always holds: a draft that says a listed fact
again is neither found twice nor junk; what was replaced later counts like what still holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from recollect.values.fact import FactDraft
from recollect.values.segment import SegmentId
from recollect_bench.facts.cases import Case, CaseFact


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """A required explicit fact that no draft of its case says."""

    case: str
    fact: CaseFact


@dataclass(frozen=True, slots=True, kw_only=True)
class False_:  # noqa: N801
    """A draft that says no listed fact of its case."""

    case: str
    draft: FactDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Counts of some of the cases."""

    wanted: int = 0
    found: int = 0
    drafts: int = 0
    matched: int = 0
    typed: int = 0

    @property
    def found_share(self) -> float:
        """Share of the required explicit facts that were found; 1 where there are none."""
        return self.found / self.wanted if self.wanted else 1.0

    @property
    def precision(self) -> float:
        """Share of the drafts that say a listed fact; 1 where there are none."""
        return self.matched / self.drafts if self.drafts else 1.0

    @property
    def type_accuracy(self) -> float:
        """Share of the matched drafts that have the type of a fact they say."""
        return self.typed / self.matched if self.matched else 1.0

    def plus(self, other: Tally) -> Tally:
        """Both together."""
        return Tally(
            wanted=self.wanted + other.wanted,
            found=self.found + other.found,
            drafts=self.drafts + other.drafts,
            matched=self.matched + other.matched,
            typed=self.typed + other.typed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How an extractor did on some cases."""

    total: Tally
    by_language: Mapping[str, Tally]
    by_kind: Mapping[str, Tally]
    missed: tuple[Missed, ...] = field(repr=False)
    false: tuple[False_, ...] = field(repr=False)


def score(cases: Sequence[Case], extracted: Mapping[str, Sequence[FactDraft]]) -> Score:
    """Hold the drafts of each case, by its id, against its listed facts."""
    total = Tally()
    by_language: dict[str, Tally] = {}
    by_kind: dict[str, Tally] = {}
    missed: list[Missed] = []
    false: list[False_] = []
    for case in cases:
        tally = _scored(case, extracted.get(case.id, ()), missed, false)
        total = total.plus(tally)
        by_language[case.language] = by_language.get(case.language, Tally()).plus(tally)
        by_kind[case.kind] = by_kind.get(case.kind, Tally()).plus(tally)
    return Score(
        total=total,
        by_language=dict(sorted(by_language.items())),
        by_kind=dict(sorted(by_kind.items())),
        missed=tuple(missed),
        false=tuple(false),
    )


def _scored(
    case: Case, drafts: Sequence[FactDraft], missed: list[Missed], false: list[False_]
) -> Tally:
    wanted = [fact for fact in case.facts if fact.explicit and fact.required]
    told = [_told(case, draft) for draft in drafts]
    lost = [fact for fact in wanted if not any(_says(words, fact) for words in told)]
    matched = typed = 0
    for draft, words in zip(drafts, told, strict=True):
        facts = [fact for fact in case.facts if _says(words, fact)]
        if not facts:
            false.append(False_(case=case.id, draft=draft))
            continue
        matched += 1
        typed += any(fact.type == draft.type for fact in facts)
    missed.extend(Missed(case=case.id, fact=fact) for fact in lost)
    return Tally(
        wanted=len(wanted),
        found=len(wanted) - len(lost),
        drafts=len(drafts),
        matched=matched,
        typed=typed,
    )


def _told(case: Case, draft: FactDraft) -> tuple[str, ...]:
    """What a draft says: its content, and the sentences that it rests on."""
    texts = {SegmentId(f"{case.id}:{at}"): message.text for at, message in enumerate(case.messages)}
    spans = (texts.get(span.segment, "")[span.start : span.end] for span in draft.evidence)
    return tuple(_plain(text) for text in (draft.content, *spans))


def _says(told: Iterable[str], fact: CaseFact) -> bool:
    keys = [_plain(key) for key in fact.keys]
    return any(all(key in words for key in keys) for words in told)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
