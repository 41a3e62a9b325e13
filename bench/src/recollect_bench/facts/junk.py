"""What noise left in a memory: facts that rest on it, facts that stand twice, memory's own words.

Owns the counts. Must never look at a fact's words but to compare them with another's. Always holds:
a fact that rests on a case's message as well is no junk; a superseded one is junk as a current one.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from recollect.facts.subjects import name_subject
from recollect.values.fact import Fact
from recollect.values.segment import SegmentId
from recollect_bench.facts.noise import is_recalled
from recollect_bench.facts.through_store import Kept

_ENDS = " .!。！,，;；"


@dataclass(frozen=True, slots=True, kw_only=True)
class Junk:
    """Counts of one memory."""

    facts: int
    """Rest on noise alone."""
    messages: int
    """Messages of noise that a fact rests on, also where the fact was known before."""
    twice: int
    """Current facts beyond the first in their reach that say the same."""
    recalled: int
    """Rest on a message that carried a recalled block."""
    by_family: dict[str, int]
    """Facts by the family of the first message they rest on."""


def junk_in(kept: Kept) -> Junk:
    """What noise left in this memory."""
    families = {id_: placed.family for id_, placed in kept.placed.items()}
    junk = junk_facts(kept)
    resting = {id_ for fact in kept.facts for id_ in rests_on(fact) if families[id_]}
    firsts = Counter(family for family, _ in junk)
    return Junk(
        facts=len(junk),
        messages=len(resting),
        twice=said_twice(kept.facts, by_session=kept.scope != "space"),
        recalled=sum(
            any(is_recalled(families[id_] or "") for id_ in rests_on(fact)) for fact in kept.facts
        ),
        by_family=dict(sorted(firsts.items())),
    )


def junk_facts(kept: Kept) -> list[tuple[str, Fact]]:
    """The facts that rest on noise alone, each with the family of the first message it rests on."""
    found: list[tuple[str, Fact]] = []
    for fact in kept.facts:
        families = [kept.placed[id_].family for id_ in rests_on(fact)]
        if families[0] is not None and all(families):
            found.append((families[0], fact))
    return found


def rests_on(fact: Fact) -> tuple[SegmentId, ...]:
    """The segments a fact names, those of its spans first; never none."""
    named = dict.fromkeys([*(span.segment for span in fact.evidence), *fact.sources])
    assert named, "an extracted fact names what it rests on"
    return tuple(named)


def said_twice(facts: Iterable[Fact], *, by_session: bool = False) -> int:
    """How many current facts say what another in their reach says already.

    In the same words, or the same value of the same attribute of the same subject. `by_session`:
    those of another session are out of reach.
    """
    seen: set[tuple[str | None, ...]] = set()
    twice = 0
    for fact in facts:
        if not fact.current:
            continue
        reach = fact.session if by_session else None
        keys: set[tuple[str | None, ...]] = {(reach, _folded(fact.content))}
        value = name_subject(fact.content, fact.type).value
        if fact.subject and fact.attribute and value:
            keys.add((reach, fact.subject, fact.attribute, value))
        twice += bool(keys & seen)
        seen |= keys
    return twice


def _folded(content: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", content).casefold().split()).strip(_ENDS)
