"""Finds the fact that a correction speaks about, where it does not name it in full.

People say "make that 9000", "9000, not 8000", "changed my mind, let's use Go": what is corrected is
plain from the conversation and not from the words. Must never choose between two facts that could
be meant, never look beyond the session (unless a person wrote it down outside of any, and names the
value that no longer holds), and never let a correction of less trust reach a fact of more. Always
holds: what it gives is one of the facts it was given, and says why; pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from recollect.facts.parts import parts_of
from recollect.facts.sameness import content_words, rank, values_of
from recollect.facts.subjects import Subject, name_clauses, name_subject
from recollect.facts.tokens import cut
from recollect.values.fact import Fact, FactDraft

_MOST: Final = 100
"""How many facts back a correction can reach: nobody corrects what was said before those."""
_RECENT: Final = 6
"""A reversal that names nothing is of what was said last, not of what was said at the start."""
_SOFT: Final = frozenset({"", "choice", "rule", "state", "name", "value"})
"""Attributes that a manner of speaking gives: they do not tell two statements apart."""
_CLAUSE: Final = re.compile(r"[,;:!]\s+|[，；。：！…]+|\.\s+|\s[—–-]+\s")
_DAY: Final = re.compile(
    r"\b(\d{1,2})(?:st|nd|rd|th)\b|(?<!\d)(\d{1,2})\s?[号號](?![线楼机])", re.IGNORECASE
)
_ABOUT_ITSELF: Final = frozenset(
    content_words(
        "actually sorry wait oops no not nah hmm meant mean wrong scratch forget make instead back "
        "correction update typo again looking thinking thought mind second better ok yeah old my "
        "bad plan change changed mistake misread mixed it's told thing number much few hold "
        "对，错，说错了，记错，写错，打错了，弄错了，纠正，改主意了，想了想，算了，不，不是，等等，才对"
    )
)
"""What a correction says of itself, and not of what it corrects."""
_CHOOSES: Final = re.compile(
    r"\b(?:go(?:ing)? with|use|using|prefer|switch\w*|mov(?:e|ing) to|back to|instead|decided|pick"
    r"|chose)\b|改用|换成|用回|换回|[用选换]",
    re.IGNORECASE,
)
_PURPOSE: Final = re.compile(
    r"\b(?:for|in|on|as|at|of|about)\s(?:the\s|our\s|my\s|a\s)?((?:[\w-]+\s?){1,3})", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What a correction speaks about."""

    fact: Fact = field(repr=False)
    reason: str


_Sign: TypeAlias = Callable[[FactDraft, Sequence[Fact]], list[Fact]]


def followed(draft: FactDraft, known: Sequence[Fact]) -> Followed | None:
    """The one fact that a statement said as a correction replaces; None where none or two can."""
    by_hand = draft.made_by == "user" and draft.session is None
    if not (draft.corrects or draft.replaces) or (draft.session is None and not by_hand):
        return None
    here = [fact for fact in known if by_hand or fact.session == draft.session]
    here = sorted(here, key=lambda fact: (-fact.at, -(fact.recorded_at or 0.0), fact.id))[:_MOST]
    values = values_of(draft.content)
    if values and any(
        values <= values_of(fact.content) and rank(fact.trust) >= rank(draft.trust) for fact in here
    ):
        return None  # it was corrected before, in other words: an echo corrects nothing
    pool = [fact for fact in here if _within_reach(draft, fact)]
    for find, reason in _BY_VALUE if by_hand else _SIGNS:
        facts = find(draft, pool)
        if len(facts) == 1:
            return Followed(fact=facts[0], reason=reason)
        if facts:
            return None
    return None


def _within_reach(draft: FactDraft, fact: Fact) -> bool:
    if rank(fact.trust) > rank(draft.trust):
        return False
    said = {(span.segment, span.start) for span in draft.evidence}
    return not any((span.segment, span.start) in said for span in fact.evidence)


def _by_old_value(draft: FactDraft, pool: Sequence[Fact]) -> list[Fact]:
    """ "9000, not 8000", "we switched from Jenkins": the facts that say what no longer holds."""
    replaced = {token.text for token in cut(draft.replaces)}
    return [
        fact
        for fact in pool
        if replaced
        and _agree(draft, fact)
        and _names(replaced, fact)
        and _same_purpose(draft, fact, besides=replaced)
    ]


def _names(replaced: set[str], fact: Fact) -> bool:
    """Whether a fact holds what is replaced as a value or a name: any other word is in many."""
    tokens = cut(fact.content)
    exact = {token.text for token in tokens if token.kind != "word" or token.written[:1].isupper()}
    exact |= {word for subject in _clauses(fact) for word in subject.value.split()}
    numbers = {match[0] for text in exact if (match := re.match(r"\d+", text))}
    return replaced <= exact | numbers


def _by_value_beside(draft: FactDraft, pool: Sequence[Fact]) -> list[Fact]:
    """ "512 is too small, make it 8192": two of a kind, and one of them was stated before."""
    values = _values_in(draft.content)
    facts = []
    for fact in pool:
        old = values & _values_in(fact.content)
        new = {value for value in values - old if value[0] in {kind for kind, _ in old}}
        if len(old) == 1 and len(new) == 1 and _agree(draft, fact) and _says_no_more(draft, fact):
            facts.append(fact)
    return facts


def _by_property(draft: FactDraft, pool: Sequence[Fact]) -> list[Fact]:
    """ "Sorry, the port is 9000": the one port that was stated; a named subject is exact."""
    ours = [
        subject for subject in _clauses(draft) if subject.attribute not in ("", "rule", "choice")
    ]
    return [
        fact
        for fact in pool
        if any(
            subject.attribute == other.attribute
            and subject.value != other.value
            and subject.subject in ("", other.subject)
            for subject in ours
            for other in _clauses(fact)
        )
    ]


def _by_kind(draft: FactDraft, pool: Sequence[Fact]) -> list[Fact]:
    """ "Make that 9000": the one value of its kind, where nothing else is said that the fact does
    not say."""
    kinds = {kind for kind, _ in _values_in(draft.content)}
    if draft.replaces or len(kinds) != 1 or any(subject.told for subject in _clauses(draft)):
        return []
    return [
        fact
        for fact in pool
        if kinds <= {kind for kind, _ in _values_in(fact.content)} and _says_no_more(draft, fact)
    ]


def _by_choice(draft: FactDraft, pool: Sequence[Fact]) -> list[Fact]:
    """ "Change of plan, we submit to the journal": the one decision that was taken of late."""
    if draft.type != "decision" or draft.replaces or not draft.corrects:
        return []
    decided = [fact for fact in pool if fact.trust == draft.trust and _is_choice(fact)]
    if len(decided) != 1 or decided[0] not in pool[:_RECENT] or not _agree(draft, decided[0]):
        return []
    return decided if _same_purpose(draft, decided[0]) else []


_BY_VALUE: Final[tuple[tuple[_Sign, str], ...]] = (
    (_by_old_value, "it names the value that it replaces"),
    (_by_value_beside, "it names the value that it replaces"),
)
_SIGNS: Final[tuple[tuple[_Sign, str], ...]] = (
    *_BY_VALUE,
    (_by_property, "a correction of the same property"),
    (_by_kind, "a correction, and the only such value of the session"),
    (_by_choice, "a reversal, and the only decision of the session"),
)


def _is_choice(fact: Fact) -> bool:
    return fact.type == "decision" or any(
        subject.told and subject.attribute == "choice" for subject in _clauses(fact)
    )


def _agree(draft: FactDraft, fact: Fact) -> bool:
    """Whether nothing in their names says that they are about two things.

    A word more or less may be what tells two things apart: the gateway, the legacy gateway.
    """
    ours = [
        subject for subject in _clauses(draft) if subject.told and subject.attribute not in _SOFT
    ]
    theirs = [
        subject for subject in _clauses(fact) if subject.told and subject.attribute not in _SOFT
    ]
    pairs = [(subject, other) for subject in ours for other in theirs]
    return not pairs or any(
        subject.attribute == other.attribute and subject.subject in ("", other.subject)
        for subject, other in pairs
    )


def _same_purpose(
    draft: FactDraft, fact: Fact, besides: set[str] | frozenset[str] = frozenset()
) -> bool:
    """Whether a choice says of nothing else what it is for, in or about."""
    text = ""
    for clause in _CLAUSE.split(draft.content):
        text = f"{text}, {clause}"
        if _CHOOSES.search(clause):
            break
    purposes = [match[1] for match in _PURPOSE.finditer(draft.content)]
    chooses = _CHOOSES.search(text)
    if chooses is not None and chooses[0].casefold() != "instead":
        purposes.append(_CLAUSE.split(text[: chooses.start()])[-1])
    words = {
        *content_words(fact.content),
        *(word for subject in _clauses(fact) for word in subject.subject.split()),
        *besides,
    }
    return all(_own_words(purpose) <= words for purpose in purposes)


def _says_no_more(draft: FactDraft, fact: Fact) -> bool:
    """Whether the clauses up to the first value say nothing that the fact does not say."""
    text = ""
    for clause in _CLAUSE.split(draft.content):
        text = f"{text}, {clause}"
        if _values_in(clause):
            break
    return _own_words(text) <= set(content_words(fact.content))


def _own_words(text: str) -> set[str]:
    """What a text is about, beside its values and its being a correction."""
    return set(content_words(_DAY.sub(" ", text))).difference(_ABOUT_ITSELF)


def _values_in(text: str) -> frozenset[tuple[str, str]]:
    """The values of a text, with their kinds; also a day that is told by its number alone."""
    found = values_of(text)
    days = {("date", day[1] or day[2]) for day in _DAY.finditer(text)}
    return (
        found
        if not days or any(kind == "date" for kind, _ in found)
        else values_of(_DAY.sub(" ", text)) | days
    )


def _clauses(statement: Fact | FactDraft) -> tuple[Subject, ...]:
    """What a statement is about, clause by clause; with several values, also part by part."""
    clauses = name_clauses(statement.content, statement.type)
    parts = parts_of(statement.content)
    if len(parts) < 2:
        return clauses
    return (*clauses, *(name_subject(part.text, statement.type) for part in parts))
