"""Scores a memory in which cases were buried: what is still found, and what is still current.

Owns how stored facts are held against the labels of their cases. Must never count a fact for a case
that it does not rest on. Always holds: the same scorer judges here and without noise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from recollect.values.fact import EvidenceSpan, Fact, FactDraft
from recollect.values.segment import SegmentId
from recollect_bench.facts.baselines import Drafts
from recollect_bench.facts.cases import Case, CaseFact
from recollect_bench.facts.junk import junk_in, rests_on
from recollect_bench.facts.score import Tally, score
from recollect_bench.facts.through_store import Kept


def buried_figures(
    cases: Sequence[Case], kept: Kept, *, noise: int, plain: Tally
) -> dict[str, float]:
    """What a memory came to, beside what the same cases came to without noise."""
    drafts = drafts_of(kept)
    total = score(cases, drafts).total
    junk = junk_in(kept)
    seconds = kept.ingest_seconds + kept.extract_seconds
    return {
        "found": round(total.found_share, 4),
        "found_difference_points": round(100 * (total.found_share - plain.found_share), 2),
        "precision": round(total.precision, 4),
        "noise_messages": float(noise),
        "noise_share": round(junk.facts / noise, 5),
        "noise_named_share": round(junk.messages / noise, 5),
        "facts": float(len(kept.facts)),
        "facts_from_noise": float(junk.facts),
        "facts_twice": float(junk.twice),
        "facts_from_recalled": float(junk.recalled),
        **{f"facts_from_noise.{_flat(name)}": float(n) for name, n in junk.by_family.items()},
        **_currency(cases, kept),
        "seconds": round(seconds, 2),
        "messages_per_second": round(kept.messages / seconds, 1),
    }


def _flat(family: str) -> str:
    return family.replace(" ", "_")


def drafts_of(kept: Kept) -> Drafts:
    """The stored facts by the case whose messages they rest on, as its scorer reads them."""
    by_case: dict[str, list[FactDraft]] = defaultdict(list)
    for fact in kept.facts:
        for case in dict.fromkeys(kept.placed[id_].case for id_ in rests_on(fact)):
            if case is not None:
                by_case[case].append(_draft(fact, case, kept))
    return by_case


def _draft(fact: Fact, case: str, kept: Kept) -> FactDraft:
    evidence = [
        EvidenceSpan(segment=SegmentId(f"{case}:{message.index}"), start=span.start, end=span.end)
        for span in fact.evidence
        if (message := kept.placed[span.segment]).case == case
    ]
    return FactDraft(
        type=fact.type,
        content=fact.content,
        at=fact.at,
        evidence=tuple(evidence),
        trust=fact.trust,
        made_by=fact.made_by,
    )


def _currency(cases: Sequence[Case], kept: Kept) -> dict[str, float]:
    """Of the found facts, how many that still hold are current, and how many others are closed."""
    every = drafts_of(kept)
    current = drafts_of(
        replace(kept, facts=tuple(fact for fact in kept.facts if fact.held_at(float("inf"))))
    )
    holds = closed = held_right = closed_right = 0
    for case in cases:
        for fact in case.facts:
            if fact.current and _said(case, fact, every.get(case.id, ())):
                holds += 1
                held_right += _said(case, fact, current.get(case.id, ()))
            elif not fact.current and _said_there(case, fact, every.get(case.id, ())):
                closed += 1
                closed_right += not _said_there(case, fact, current.get(case.id, ()))
    replaced, wrongly = _replaced(cases, kept)
    return {
        "current_kept": round(held_right / holds, 4) if holds else 1.0,
        "outdated_closed": round(closed_right / closed, 4) if closed else 1.0,
        "outdated_found": float(closed),
        "facts_replaced": float(replaced),
        "facts_replaced_wrongly": float(wrongly),
    }


def _replaced(cases: Sequence[Case], kept: Kept) -> tuple[int, int]:
    """How many facts of cases something else took the place of, and of how many nothing should.

    Wrongly: of what it says where it was said, all still holds by the labels. What is only told
    in more detail is not replaced; what no label lists counts as wrong, because nobody can tell.
    """
    by_id = {case.id: case for case in cases}
    followers = {fact.id: fact for fact in kept.facts}
    replaced = wrongly = 0
    for fact in kept.facts:
        follower = None if fact.superseded_by is None else followers.get(fact.superseded_by)
        if fact.superseded_by is None or (follower is not None and follower.change == "update"):
            continue
        for id_, drafts in drafts_of(replace(kept, facts=(fact,))).items():
            case = by_id[id_]
            facts = [fact for fact in case.facts if _said_there(case, fact, drafts)]
            replaced += 1
            wrongly += all(fact.current for fact in facts)
    return replaced, wrongly


def _said(case: Case, fact: CaseFact, drafts: Sequence[FactDraft]) -> bool:
    alone = replace(case, facts=(replace(fact, explicit=True, required=True),))
    return score([alone], {case.id: drafts}).total.found == 1


def _said_there(case: Case, fact: CaseFact, drafts: Sequence[FactDraft]) -> bool:
    """Whether a draft says it that rests on the message which states it."""
    segment = SegmentId(f"{case.id}:{fact.by}")
    there = [draft for draft in drafts if any(span.segment == segment for span in draft.evidence)]
    return _said(case, fact, there)
