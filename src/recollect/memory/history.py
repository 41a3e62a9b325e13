"""What held at a moment, and what one fact was before: questions to facts and their history.

Must never hide a gap: where a version was forgotten, the chain goes on behind it and says so.
Always holds: pure; the answers do not depend on the order of the facts given. Facts from the
seeds' files name what superseded them but not when; they held until that was said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from recollect.memory.name_subject import name_subject
from recollect.values.fact import Fact, FactDraft, FactId, FactType


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version in a chain."""

    fact: Fact = field(repr=False)
    until: float | None
    """Until when it held; None while it holds, and where nobody knows."""
    followed_by_gap: bool = False
    """What replaced it was forgotten or is not here: the next version is not its follower."""


def as_of(facts: Sequence[Fact], moment: float) -> tuple[Fact, ...]:
    """The facts that held at a moment, oldest first; give superseded ones too."""
    known = {fact.id: fact for fact in facts}
    holding = (fact for fact in known.values() if _held_at(fact, moment, known))
    return tuple(sorted(holding, key=_order))


def chain(facts: Sequence[Fact], id: FactId) -> tuple[Fact, ...]:  # noqa: A002
    """All versions of what a fact states, oldest first; empty where the fact is not here."""
    return tuple(version.fact for version in versions(facts, id))


def versions(facts: Sequence[Fact], id: FactId) -> tuple[Version, ...]:  # noqa: A002
    """The chain with each version's end, and where a version between two is missing."""
    known = {fact.id: fact for fact in facts}
    if id not in known:
        return ()
    found = sorted((known[one] for one in _linked(known, id)), key=_order)
    return tuple(
        Version(
            fact=fact,
            until=_end_of(fact, known),
            followed_by_gap=fact.superseded_by is not None and fact.superseded_by not in known,
        )
        for fact in found
    )


def history_of(draft: FactDraft, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """What a statement may follow: the versions that it joins, current and closed.

    That is what `reconcile` needs as history. Facts that carry no name are named here. A
    correction may leave out what it corrects, and then follows something of its own session, so
    it gets all of that.
    """
    about = name_subject(draft.content, draft.type)
    corrects = draft.session is not None and (draft.corrects or bool(draft.replaces))
    return tuple(
        fact
        for fact in facts
        if (corrects and fact.session == draft.session)
        or (about.told and _name(fact) == (about.subject, about.attribute))
    )


def _name(fact: Fact) -> tuple[str, str]:
    if fact.subject and fact.attribute:
        return (fact.subject, fact.attribute)
    return _named(fact.content, fact.type)


@lru_cache(maxsize=8192)  # facts without a name are read again for every statement that comes
def _named(content: str, type: FactType) -> tuple[str, str]:  # noqa: A002
    found = name_subject(content, type)
    return (found.subject, found.attribute)


def _order(fact: Fact) -> tuple[float, bool, float, str]:
    return (fact.at, fact.superseded_by is None, fact.recorded_at or 0.0, fact.id)


def _held_at(fact: Fact, moment: float, known: Mapping[FactId, Fact]) -> bool:
    if fact.at > moment:
        return False
    end = _end_of(fact, known)
    if end is None:
        return fact.superseded_by is None
    return moment < end


def _end_of(fact: Fact, known: Mapping[FactId, Fact]) -> float | None:
    if fact.valid_to is not None or fact.superseded_by is None:
        return fact.valid_to
    follower = known.get(fact.superseded_by)
    return None if follower is None else max(follower.at, fact.at)


def _linked(known: Mapping[FactId, Fact], id: FactId) -> set[FactId]:  # noqa: A002
    """Whatever replaces or is replaced, in both directions; across a gap by the same name."""
    found: set[FactId] = set()
    waiting = [id]
    before: dict[FactId, list[FactId]] = {}
    same: dict[tuple[str, str], list[FactId]] = {}
    for fact in known.values():
        if fact.superseded_by is not None:
            before.setdefault(fact.superseded_by, []).append(fact.id)
        if fact.subject and fact.attribute:
            same.setdefault((fact.subject, fact.attribute), []).append(fact.id)
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found.add(one)
        fact = known[one]
        if fact.superseded_by is not None:
            here = fact.superseded_by in known
            waiting.extend([fact.superseded_by] if here else before[fact.superseded_by])
        waiting.extend(before.get(one, ()))
        waiting.extend(same.get((fact.subject, fact.attribute), ()))
    return found
