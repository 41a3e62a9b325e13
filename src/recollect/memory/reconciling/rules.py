"""Decides by rules how a statement follows what is known.

Owns the decision where there is no model, and where code can tell by itself. Must never decide by
shared words alone, unless all words are the same. Always holds: it names a fact only of those it
was given, said no later than the statement, and says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from recollect.memory.reconciling.following import followed
from recollect.memory.reconciling.guards import (
    Named,
    Operation,
    content_words,
    meets,
    named,
    near,
    rank,
    same_words,
    values_of,
)
from recollect.memory.subjects.values import cut
from recollect.values.fact import Fact, FactDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a statement follows what is known, before any guard."""

    operation: Operation
    fact: Fact | None = field(default=None, repr=False)
    """Which fact it follows or repeats; None where it follows none."""
    certain: bool = False
    """Code can tell: nobody else is asked."""
    reason: str


def decide(draft: FactDraft, about: Named, known: Sequence[Fact]) -> Verdict:
    """What the rules say of a statement, given the facts that held when it was said."""
    for fact in known:
        if same_words(draft.content, fact.content):
            if rank(fact.trust) >= rank(draft.trust):
                return Verdict(operation="none", fact=fact, certain=True, reason="said before")
            reason = "said before by a less trusted source"
            return Verdict(operation="update", fact=fact, certain=True, reason=reason)
    names = [(fact, named(fact)) for fact in known]
    same = [(fact, name) for fact, name in names if meets(draft, about, fact, name)]
    certain = [(fact, name) for fact, name in same if about.certain and name.certain]
    if certain:
        return _of_same(draft, about, certain)
    likely = [(fact, name) for fact, name in same if near(draft.content, fact.content)]
    if len(likely) == 1 and not values_of(draft.content) <= values_of(likely[0][0].content):
        reason = "the same subject and attribute by name, and enough of the same words"
        return Verdict(operation="supersede", fact=likely[0][0], reason=reason)
    return _replacing(draft, about, names) or _correcting(draft, known) or _nothing_known()


def _nothing_known() -> Verdict:
    return Verdict(operation="add", reason="nothing known has this subject and attribute")


def _of_same(draft: FactDraft, about: Named, same: Sequence[tuple[Fact, Named]]) -> Verdict:
    """Among facts of the same name: the same value, the same in more detail, or another one."""
    for fact, name in same:
        ours, theirs = set(about.value.split()), set(name.value.split())
        if not ours <= theirs and not (theirs and theirs < ours):
            continue
        if rank(fact.trust) > rank(draft.trust):
            return Verdict(
                operation="none", fact=fact, certain=True, reason="known, better trusted"
            )
        if rank(fact.trust) < rank(draft.trust):
            reason = "known from a less trusted source"
            return Verdict(operation="update", fact=fact, certain=True, reason=reason)
        if theirs < ours or _more_detailed(draft.content, fact.content):
            reason = "the same value in more detail"
            return Verdict(operation="update", fact=fact, certain=True, reason=reason)
        return Verdict(operation="none", fact=fact, certain=True, reason="the same value is known")
    reason = "another value of the same subject and attribute"
    return Verdict(operation="supersede", fact=same[0][0], certain=True, reason=reason)


def _more_detailed(new: str, old: str) -> bool:
    ours, theirs = set(content_words(new)), set(content_words(old))
    return theirs < ours and len(ours) >= len(theirs) + 2


def _replacing(
    draft: FactDraft, about: Named, names: Sequence[tuple[Fact, Named]]
) -> Verdict | None:
    """ "9000, not 8000": the one fact that says 8000 of something this can be about."""
    replaced = {token.text for token in cut(draft.replaces)}
    if not replaced:
        return None
    found = [
        fact
        for fact, name in names
        if _compatible(draft, about, fact, name)
        and replaced <= (set(name.value.split()) or {token.text for token in cut(fact.content)})
    ]
    if len(found) != 1:
        return None
    reason = "it names the value that it replaces"
    return Verdict(operation="supersede", fact=found[0], certain=True, reason=reason)


def _compatible(draft: FactDraft, about: Named, fact: Fact, name: Named) -> bool:
    if about.attribute and name.attribute and about.attribute != name.attribute:
        return False
    if not about.subject:
        return draft.session is not None and fact.session == draft.session
    ours, theirs = set(about.subject.split()), set(name.subject.split())
    if not theirs:
        return near(draft.content, fact.content)
    return ours <= theirs or theirs <= ours


def _correcting(draft: FactDraft, known: Sequence[Fact]) -> Verdict | None:
    """ "Sorry, it is 9000": what the session makes plain."""
    found = followed(draft, known)
    if found is None:
        return None
    return Verdict(operation="supersede", fact=found.fact, certain=True, reason=found.reason)
