"""What held at a moment, and what one fact was before: questions to facts and their history.

Must never hide a gap: where a version was forgotten, the chain goes on behind it and says so.
Always holds: pure; the answers do not depend on the order of the facts given. Facts from
OpenClaw's files name what superseded them but not when; they held until that was said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from typing import Final, TypeAlias

from recollect.facts.sameness import Named, may_replace
from recollect.facts.subjects import name_subject
from recollect.search.tokenize import tokenize
from recollect.values.fact import Change, Fact, FactDraft, FactId, fact_id
from recollect.values.segment import SegmentId

FIRST_SOURCES: Final = 4
LAST_SOURCES: Final = 12
"""How many of the messages that say the same a fact names: enough to show where it came from and
that it still holds, and an end for what a program says every minute."""


def new_fact(draft: FactDraft, about: Named, *, now: float) -> Fact:
    """The fact that a statement becomes, following nothing yet."""
    return Fact(
        id=fact_id(draft.evidence, draft.content),
        type=draft.type,
        content=draft.content,
        context=draft.context,
        at=draft.at,
        sources=_once((*(span.segment for span in draft.evidence), *draft.lineage)),
        trust=draft.trust,
        words=tuple(tokenize(draft.content)),
        recorded_at=now,
        subject=about.subject,
        attribute=about.attribute,
        evidence=draft.evidence,
        made_by=draft.made_by,
        session=draft.session,
        joint=draft.joint,
    )


def place(new: Fact, versions: Sequence[Fact], *, change: Change) -> tuple[Fact, ...]:
    """The new fact in its place among the versions, then the versions that it closes."""
    closed = tuple(
        replace(old, valid_to=new.at, superseded_by=new.id)
        for old in versions
        if held_at(old, new.at) and may_replace(old, by=new.trust)
    )
    later = sorted(
        (old for old in versions if old.at > new.at and may_replace(new, by=old.trust)),
        key=lambda old: old.at,
    )
    if closed:
        new = replace(new, change=change)
    if later:
        new = replace(new, valid_to=later[0].at, superseded_by=later[0].id)
    else:
        new = _inherit_end(new, versions, {fact.id for fact in closed})
    return (new, *closed)


def remaining_fact(old: Fact, content: str, *, at: float, now: float) -> Fact:
    """What still holds of a fact of several values when one of them was replaced at this time.

    It was said by whoever said the whole, in the same messages; whatever ended that ends it, too.
    """
    named = name_subject(content, old.type)
    return replace(
        old,
        id=fact_id(old.evidence, content if old.evidence else f"{old.id}\0{content}"),
        content=content,
        at=at,
        recorded_at=now,
        words=tuple(tokenize(content)),
        subject=named.subject,
        attribute=named.attribute,
        foreign=None,
        change=None,
    )


def gain_source(fact: Fact, draft: FactDraft) -> tuple[Fact, ...]:
    """A known fact with the statement as one more source; nothing where it may not gain one.

    A fact's trust is that of its least trusted source, so that a less trusted one would lower it.
    A joint fact needs all its sources, and one that people wrote needs none: neither gains any.
    Of what is said again and again the first and the last times are kept.
    """
    added = [span for span in draft.evidence if span.segment not in fact.sources]
    if fact.joint or draft.joint or not fact.sources or not added or draft.trust != fact.trust:
        return ()
    sources = _once((*fact.sources, *(span.segment for span in added)))
    if len(sources) > FIRST_SOURCES + LAST_SOURCES:
        sources = (*sources[:FIRST_SOURCES], *sources[-LAST_SOURCES:])
    evidence = tuple(span for span in (*fact.evidence, *added) if span.segment in sources)
    return (replace(fact, sources=sources, evidence=evidence),)


def held_at(old: Fact, moment: float) -> bool:
    """Whether a fact held at this time; one that ended nobody knows when did not."""
    if old.at > moment:
        return False
    if old.valid_to is not None:
        return old.valid_to > moment
    return old.superseded_by is None


def _inherit_end(new: Fact, versions: Sequence[Fact], closed: Collection[FactId]) -> Fact:
    """Between a version and one that is not here to be seen: what ended the first ends this."""
    seen = {old.id for old in versions}
    ends = [old for old in versions if old.id in closed]
    if not ends or any(
        old.valid_to is None or old.superseded_by is None or old.superseded_by in seen
        for old in ends
    ):
        return new
    last = max(ends, key=lambda old: old.valid_to or 0.0)
    return replace(new, valid_to=last.valid_to, superseded_by=last.superseded_by)


def _once(ids: Iterable[SegmentId]) -> tuple[SegmentId, ...]:
    return tuple(dict.fromkeys(ids))


MOST_CORRECTABLE: Final = 100
"""So many facts of a session, the last ones, can a correction be about that does not name what it
corrects (`reconciling.following`); what shares words with it is found by them."""
_NAMED_WHEN_MADE: Final = frozenset({"rules", "model"})
"""What is made by these and has no name is what code cannot name (`reconciling.chain`)."""

_Name: TypeAlias = tuple[str, str]


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
    holding = (fact for fact in known.values() if _holds_at(fact, moment, known))
    return tuple(sorted(holding, key=_order))


def chain(facts: Sequence[Fact], id: FactId) -> tuple[Fact, ...]:  # noqa: A002
    """All versions of what a fact states, oldest first; empty where the fact is not here."""
    return tuple(version.fact for version in versions(facts, id))


def versions(facts: Sequence[Fact], id: FactId) -> tuple[Version, ...]:  # noqa: A002
    """The chain with each version's end, and where a version between two is missing."""
    known = {fact.id: fact for fact in facts}
    if id not in known:
        return ()
    found_facts = sorted((known[fact_id] for fact_id in _linked(known, id)), key=_order)
    return tuple(
        Version(
            fact=fact,
            until=_end_of(fact, known),
            followed_by_gap=fact.superseded_by is not None and fact.superseded_by not in known,
        )
        for fact in found_facts
    )


class Versions:
    """Every version of every fact in reach, to be asked what a statement may follow.

    Facts of files that carry no name are named once, when they come in: that takes time where they
    are many, so build it in a thread and keep it for a job. Digests are no versions of anything.
    """

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self._facts: dict[FactId, Fact] = {}
        self._places: dict[FactId, int] = {}
        self._names: dict[FactId, _Name] = {}
        self._by_name: dict[_Name, dict[FactId, None]] = {}
        self._by_session: dict[str, dict[FactId, None]] = {}
        self.add(facts)

    def add(self, facts: Iterable[Fact]) -> None:
        """Take in facts; one that is known already stands for its older self."""
        for fact in facts:
            if fact.type == "digest":
                continue
            old = self._facts.get(fact.id)
            if old is None or _statement(old) != _statement(fact):
                self._names[fact.id] = self._renamed(fact)
            if old is not None and old.session is not None and old.session != fact.session:
                del self._by_session[old.session][fact.id]
            if fact.session is not None:
                self._by_session.setdefault(fact.session, {})[fact.id] = None
            self._places.setdefault(fact.id, len(self._places))
            self._facts[fact.id] = fact

    def of(self, draft: FactDraft) -> tuple[Fact, ...]:
        """What a statement may follow: the versions that it joins, current and closed.

        That is what `reconcile` needs as history. A correction may leave out what it corrects,
        and then follows something that was said of late in its own session: it gets that too.
        """
        about = name_subject(draft.content, draft.type)
        names = {(about.subject, about.attribute)} if about.told else set[_Name]()
        fact_ids: set[FactId] = set()
        if draft.session is not None and (draft.corrects or draft.replaces):
            fact_ids.update(self._correctable(draft.session, draft.at))
            names.update(self._names[id_] for id_ in fact_ids)
        for name in names:
            if all(name):
                fact_ids.update(self._by_name.get(name, ()))
        return tuple(self._facts[id_] for id_ in sorted(fact_ids, key=self._places.__getitem__))

    def _correctable(self, session: str, moment: float) -> list[FactId]:
        here = (self._facts[id_] for id_ in self._by_session.get(session, ()))
        then = (fact for fact in here if held_at(fact, moment))
        return [fact.id for fact in nlargest(MOST_CORRECTABLE, then, key=_order)]

    def _renamed(self, fact: Fact) -> _Name:
        if (old := self._names.get(fact.id)) is not None:
            del self._by_name[old][fact.id]
        name = _name(fact)
        self._by_name.setdefault(name, {})[fact.id] = None
        return name


def history_of(draft: FactDraft, facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """What one statement may follow; for more than one, keep the `Versions`."""
    return Versions(facts).of(draft)


def _name(fact: Fact) -> _Name:
    if (fact.subject and fact.attribute) or fact.made_by in _NAMED_WHEN_MADE:
        return (fact.subject, fact.attribute)
    subject = name_subject(fact.content, fact.type)
    return (subject.subject, subject.attribute)


def _statement(fact: Fact) -> tuple[str, ...]:
    return (fact.subject, fact.attribute, fact.content, fact.type)


def _order(fact: Fact) -> tuple[float, bool, float, str]:
    return (fact.at, fact.superseded_by is None, fact.recorded_at or 0.0, fact.id)


def _holds_at(fact: Fact, moment: float, known: Mapping[FactId, Fact]) -> bool:
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
    fact_ids: set[FactId] = set()
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
        if one in fact_ids:
            continue
        fact_ids.add(one)
        fact = known[one]
        if fact.superseded_by is not None:
            here = fact.superseded_by in known
            waiting.extend([fact.superseded_by] if here else before[fact.superseded_by])
        waiting.extend(before.get(one, ()))
        waiting.extend(same.get((fact.subject, fact.attribute), ()))
    return fact_ids
