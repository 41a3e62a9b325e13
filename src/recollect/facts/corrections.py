"""Finds the fact that a correction speaks about, where it does not name it in full.

People say "make that 9000", "no, RabbitMQ it is", "the cap is 2, the other number was for mail":
what is corrected is plain from the conversation and not from the words. Owns what such words can
be about. Must never choose between two facts that could be meant, never look beyond the session
unless the subject is named, and never let a correction of less trust reach a fact of more. Always
holds: what it gives is one of the facts it was given, and says why; pure.

Signs, the surest first: the old value is named; the same property of a subject that holds the
other's; a value of the same kind, and nothing else said that the fact does not say; one choice
where only one was made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from recollect.facts.name_subject import name_clauses
from recollect.facts.sameness import content_words, rank, values_of
from recollect.facts.subjects.choices import ALONE
from recollect.facts.subjects.kinds import KINDS, kinds_in
from recollect.facts.subjects.subject import Subject
from recollect.facts.subjects.values import cut
from recollect.values.fact import Fact, FactDraft, FactType

CLAUSE: Final = re.compile(r"[,;:!]\s+|[，；。：！…]+|\.\s+|\s[—–-]+\s")
_DAY: Final = re.compile(
    r"\b(\d{1,2})(?:st|nd|rd|th)\b|(?<!\d)(\d{1,2})\s?[号號](?![线楼机])", re.IGNORECASE
)
_SHORTENED: Final = re.compile(r"\b\w+['’](?:s|re|ve|ll|d|m)\b")
_NOTICE: Final = re.compile(r"\b(?:correction|update|news)(?: from \w+)?\b", re.IGNORECASE)
_AGREED: Final = re.compile(
    r"\b(?:agreed|decided|settled|chose|chosen|going with|let['’]s)\b|决定|定了|说好", re.IGNORECASE
)
_CHOOSES: Final = re.compile(
    r"\b(?:go(?:ing)? with|use|using|prefers?|likes?|switch\w*|mov(?:e|ing) to|back to|it is"
    r"|instead|decided|take|pick|choos\w+|chose)\b|改用|换成|换到|用回|换回|改回|[用选走换]",
    re.IGNORECASE,
)
_BEHIND: Final = frozenset({"instead", "it is"})
"""What stands behind the thing that is chosen."""
_PURPOSE: Final = re.compile(
    r"\b(?:for|in|on|as|at|of|about)\s(?:the\s|our\s|my\s|a\s)?((?:[\w-]+\s?){1,3})", re.IGNORECASE
)
_DROPPED: Final = re.compile(
    r"\b(?:forget|scratch|scrap|drop|ditch|never ?mind|skip)\s(?:about\s)?(?:the|that|this|our)?\s?"
    r"((?!(?:that|it|this|what)\b)\w[\w -]{0,40})",
    re.IGNORECASE,
)
_ROUTE: Final = re.compile(
    r"\b(?:route|idea|plan|option|approach|way|version|thing)s?\b", re.IGNORECASE
)
"""A way that is not gone: the words before it describe what was decided, and need not be its."""
_CUES: Final = frozenset(
    content_words(
        "actually sorry wait oops no not nah hmm meant mean wrong scratch forget make instead back "
        "correction typo again looking thinking thought mind better ok okay yeah other old my bad "
        "plan change mistake misread mixed wrote told gave got should thing number second hold "
        "对，错，说错，记错，写错，搞错，打错，弄错，看错，手滑，口误，纠正，改主意，想想，想，啊，诶，哎，"
        "不，不是，而是，换回，用回，改回，等等，等下，刚刚，才对，我"
    )
)
"""What a correction says of itself, and not of what it corrects."""


def own_words(text: str) -> set[str]:
    """What a text is about, beside its values and its being a correction."""
    plain = _NOTICE.sub(" ", _SHORTENED.sub(" ", _DAY.sub(" ", text)))
    return set(content_words(plain)).difference(_CUES)


def values_in(text: str) -> frozenset[tuple[str, str]]:
    """The values of a text, with their kinds; also a day that is told by its number alone."""
    found = values_of(text)
    if any(kind == "date" for kind, _ in found):
        return found
    days = {("date", day[1] or day[2]) for day in _DAY.finditer(text)}
    return values_of(_DAY.sub(" ", text)) | days if days else found


def up_to_value(content: str) -> str:
    """The clauses up to the first that has a value: what comes behind it is why."""
    said = ""
    for clause in CLAUSE.split(content):
        said = f"{said}, {clause}"
        if values_in(clause):
            break
    return said


def purposes(content: str) -> list[str]:
    """What a choice says that it is for, about, or in the place of, up to what is chosen."""
    said = ""
    for clause in CLAUSE.split(content):
        said = f"{said}, {clause}"
        if _CHOOSES.search(clause):
            break
    found = [one[1] for one in _PURPOSE.finditer(said)]
    found += [one[1] for one in _DROPPED.finditer(said) if not _ROUTE.search(one[1])]
    chooses = _CHOOSES.search(said)
    if chooses is not None and chooses[0].casefold() not in _BEHIND:
        found.append(CLAUSE.split(said[: chooses.start()])[-1])
    return found


def agreed(content: str) -> bool:
    """Whether it tells a decision, whatever else it states."""
    return _AGREED.search(content) is not None


_SOFT: Final = frozenset({"", "choice", "rule", "state", "name", "value"})
"""Attributes that a manner of speaking gives: they do not tell two statements apart."""
_MOST: Final = 100
"""How many facts back a correction can reach: nobody corrects what was said before those."""
_RECENT: Final = 6
"""A reversal that names nothing is of what was said last, not of what was said at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What a correction speaks about."""

    fact: Fact = field(repr=False)
    reason: str


_Sign: TypeAlias = Callable[[FactDraft, Sequence[Fact]], list[Fact]]


def followed(draft: FactDraft, known: Sequence[Fact]) -> Followed | None:
    """The one fact that a statement said as a correction replaces; None where none or two can."""
    if not (draft.corrects or draft.replaces) or draft.session is None:
        return None
    here = [fact for fact in known if fact.session == draft.session]
    here = sorted(here, key=lambda fact: (-fact.at, -(fact.recorded_at or 0.0), fact.id))[:_MOST]
    if any(_says_it_already(draft, fact) for fact in here):
        return None
    pool = [fact for fact in here if _within_reach(draft, fact)]
    for find, reason in _SIGNS:
        found = _meant(draft, find(draft, pool))
        if len(found) == 1:
            return Followed(fact=found[0], reason=reason)
        if found:
            return None
    return None


def _within_reach(draft: FactDraft, fact: Fact) -> bool:
    if rank(fact.trust) > rank(draft.trust):
        return False
    said = {(one.segment, one.start) for one in draft.evidence}
    return not any((one.segment, one.start) in said for one in fact.evidence)


def _says_it_already(draft: FactDraft, fact: Fact) -> bool:
    """Whether the correction was made before, in other words: an echo corrects nothing."""
    ours, theirs = _slots(draft), _slots(fact)
    return bool(ours) and ours <= theirs and rank(fact.trust) >= rank(draft.trust)


def _slots(statement: Fact | FactDraft) -> frozenset[tuple[str, str]]:
    """What a statement could be corrected in: its values, and names of things of a kind."""
    return values_of(statement.content) | kinds_in(statement.content)


def _meant(draft: FactDraft, found: list[Fact]) -> list[Fact]:
    """Of several that could be meant: the one decision, or what others only echoed."""
    if len(found) > 1 and draft.type == "decision":
        decided = [fact for fact in found if fact.type == "decision"]
        found = decided if len(decided) == 1 else found
    most = max((rank(fact.trust) for fact in found), default=0)
    trusted = [fact for fact in found if rank(fact.trust) == most]
    if len(trusted) == 1 and all(_slots(trusted[0]) & _slots(fact) for fact in found):
        return trusted
    return found


def _by_old_value(draft: FactDraft, pool: Sequence[Fact]) -> list[Fact]:
    """ "9000, not 8000", "Kafka, RabbitMQ is out": what it says no longer holds."""
    replaced = _words_of(draft.replaces)
    return [
        fact
        for fact in pool
        if replaced
        and _holds_all(replaced, _words_of(fact.content))
        and _names_something(replaced, fact)
        and _agree(draft, fact)
    ]


def _by_value_beside(draft: FactDraft, pool: Sequence[Fact]) -> list[Fact]:
    """ "512 is too small, make it 8192": two of a kind, and one of them was stated before."""
    values = [
        (clause, value) for clause in CLAUSE.split(draft.content) for value in values_in(clause)
    ]
    found = []
    for fact in pool:
        known, words = values_in(fact.content), set(content_words(fact.content))
        old = {value for _, value in values if value in known}
        new = [
            own_words(clause) <= words
            for clause, value in values
            if value not in known and value[0] in {kind for kind, _ in old}
        ]
        if len(old) == 1 and new == [True] and _agree(draft, fact):
            found.append(fact)
    return found


def _names_something(replaced: frozenset[str], fact: Fact) -> bool:
    """Whether what is replaced is a value or a name in the fact: any other word is in many."""
    valued = {word for one in _clauses(fact) for word in one.value.split()}
    return any(
        token.text in replaced
        and (
            token.text in KINDS
            or token.text in valued
            or (token.start > 0 and token.written[:1].isupper())
        )
        for token in cut(fact.content)
    ) or any(word[:1].isdigit() for word in replaced)


def _holds_all(replaced: frozenset[str], words: frozenset[str]) -> bool:
    """ "Not 2" replaces 2 o'clock, too: what is corrected is said without its unit."""
    return all(
        one in words or (one.isdigit() and any(re.match(rf"{one}(?!\d)", word) for word in words))
        for one in replaced
    )


def _by_property(draft: FactDraft, pool: Sequence[Fact]) -> list[Fact]:
    """ "The cap is 2 per user": the limit of something that has users in its name."""
    ours = [one for one in _clauses(draft) if one.attribute not in {"", "rule", "choice"}]
    found = [
        fact
        for fact in pool
        if any(
            one.attribute == other.attribute
            and one.value != other.value
            and _may_be_of(one, other, fact)
            for one in ours
            for other in _clauses(fact)
        )
    ]
    same = [
        fact
        for fact in found
        if {one.subject for one in ours if one.subject} & {one.subject for one in _clauses(fact)}
    ]
    return same or found


def _may_be_of(one: Subject, other: Subject, fact: Fact) -> bool:
    """Whether two clauses can be of one thing; one without a subject is of the whole fact."""
    if other.subject:
        return _hold(one.subject, other.subject)
    return set(one.subject.split()) <= _words_of(fact.content)


def _by_kind(draft: FactDraft, pool: Sequence[Fact]) -> list[Fact]:
    """ "Make that 9000, it was the old one": the one number that was stated."""
    if draft.replaces or any(one.told for one in _clauses(draft)):
        return []
    said = up_to_value(draft.content)
    kinds = {kind for kind, _ in values_in(said)}
    words = own_words(said)
    if len(kinds) != 1:
        return []
    return [
        fact
        for fact in pool
        if kinds <= {kind for kind, _ in values_in(fact.content)}
        and words <= set(content_words(fact.content))
    ]


def _by_kind_of_thing(draft: FactDraft, pool: Sequence[Fact]) -> list[Fact]:
    """ "Let's use MySQL instead": the one database that was chosen."""
    ours = kinds_in(draft.content)
    kinds = {kind for kind, _ in ours}
    return [
        fact
        for fact in pool
        if len(kinds) == 1
        and kinds == {kind for kind, _ in kinds_in(fact.content)}
        and not ours & kinds_in(fact.content)
        and _of_the_same(draft, fact)
    ]


def _by_choice(draft: FactDraft, pool: Sequence[Fact]) -> list[Fact]:
    """ "Change of plan, we submit to the journal": the one decision that was taken."""
    if draft.type != "decision" or draft.replaces or not draft.corrects:
        return []
    decided = [fact for fact in pool if fact.trust == draft.trust and _is_choice(fact)]
    if len(decided) != 1 or decided[0] not in pool[:_RECENT]:
        return []
    ours = {kind for kind, _ in kinds_in(draft.content)}
    theirs = {kind for kind, _ in kinds_in(decided[0].content)}
    if (ours and theirs and not ours & theirs) or not _of_the_same(draft, decided[0]):
        return []
    return decided


def _is_choice(fact: Fact) -> bool:
    if fact.type == "decision" or agreed(fact.content):
        return True
    return any(one.told and one.attribute == "choice" for one in _clauses(fact))


def _of_the_same(draft: FactDraft, fact: Fact) -> bool:
    """Whether a choice says of nothing else what it is for."""
    if not _agree(draft, fact):
        return False
    wanted = [
        one.subject
        for one in _clauses(draft)
        if one.told and one.attribute != "rule" and one.subject not in ALONE
    ]
    wanted += purposes(draft.content)
    words = set(content_words(fact.content)) | _words_of(fact.content)
    words |= {word for one in _clauses(fact) for word in one.subject.split()}
    words |= {word for kind, _ in kinds_in(fact.content) for word in kind.split()}
    return all(own_words(purpose) <= words for purpose in wanted)


_SIGNS: Final[tuple[tuple[_Sign, str], ...]] = (
    (_by_old_value, "it names the value that it replaces"),
    (_by_value_beside, "it names the value that it replaces"),
    (_by_property, "a correction of the same property"),
    (_by_kind, "a correction, and the only such value of the session"),
    (_by_kind_of_thing, "a correction, and the only such choice of the session"),
    (_by_choice, "a reversal, and the only decision of the session"),
)


def _agree(draft: FactDraft, fact: Fact) -> bool:
    """Whether nothing in their names says that they are about two things."""
    ours = [one for one in _clauses(draft) if one.told and one.attribute not in _SOFT]
    theirs = [one for one in _clauses(fact) if one.told and one.attribute not in _SOFT]
    if not ours or not theirs:
        return True
    return any(
        one.attribute == other.attribute and _hold(one.subject, other.subject)
        for one in ours
        for other in theirs
    )


def _hold(one: str, other: str) -> bool:
    """Whether a correction's subject is the other's, or leaves it open.

    A word more or less may be what tells two things apart: the gateway, the legacy gateway.
    """
    return not one or one == other


def _words_of(text: str) -> frozenset[str]:
    return frozenset(token.text for token in cut(text))


def _clauses(statement: Fact | FactDraft) -> tuple[Subject, ...]:
    return _named(statement.content, statement.type)


@lru_cache(maxsize=4096)  # the facts of a session are looked at again for each of its corrections
def _named(content: str, type: FactType) -> tuple[Subject, ...]:  # noqa: A002
    return name_clauses(content, type)
