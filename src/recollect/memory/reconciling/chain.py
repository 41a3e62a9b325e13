"""Puts a new version into the chain of what was said of one thing.

Owns which versions a new one closes, and what closes it. Always holds: of all versions of one
thing, each is closed by the earliest later one that may replace it, in whatever order they
arrived; at the same moment the later arrival comes later. Nothing is ever removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from recollect.memory.reconciling.guards import Named, may_replace
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
        sources=_once((*(one.segment for one in draft.evidence), *draft.lineage)),
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
        if held(old, new.at) and may_replace(old, by=new.trust)
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
        new = _inherit_end(new, versions, {one.id for one in closed})
    return (new, *closed)


def gain_source(fact: Fact, draft: FactDraft) -> tuple[Fact, ...]:
    """A known fact with the statement as one more source; nothing where it may not gain one.

    A fact's trust is that of its least trusted source, so that a less trusted one would lower it.
    A joint fact needs all its sources, and one that people wrote needs none: neither gains any.
    Of what is said again and again the first and the last times are kept.
    """
    added = [one for one in draft.evidence if one.segment not in fact.sources]
    if fact.joint or draft.joint or not fact.sources or not added or draft.trust != fact.trust:
        return ()
    sources = _once((*fact.sources, *(one.segment for one in added)))
    if len(sources) > FIRST_SOURCES + LAST_SOURCES:
        sources = (*sources[:FIRST_SOURCES], *sources[-LAST_SOURCES:])
    evidence = tuple(one for one in (*fact.evidence, *added) if one.segment in sources)
    return (replace(fact, sources=sources, evidence=evidence),)


def held(old: Fact, moment: float) -> bool:
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
