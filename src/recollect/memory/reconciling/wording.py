"""What the words of a correction are about, beside their being a correction.

Owns the words by which a correction speaks of itself, of a purpose, and of what it drops. Must
never decide what is corrected (`following`). Always holds: pure; patterns are bounded, so the time
is linear in the statement.
"""

from __future__ import annotations

import re
from typing import Final

from recollect.memory.reconciling.guards import content_words, values_of

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
