"""Says why a sentence that sounds like a statement is none to be kept.

Owns OpenClaw's exclusions of single sentences: small talk, questions, speculation, hypotheticals,
stories, sarcasm, the words of others, temporary steps, one-off requests, secrets. Must never look
beyond the sentences it is given. What always holds: the answer is a reason, empty where there is
no doubt; the time is linear in the sentence, which its caller bounds.

Sentences come folded (`folded`): lower case, plain quotation marks, simplified characters.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias, get_args

from recollect.facts.stating.doubt_words import (
    CLAUSE_ENDS,
    EVERYDAY,
    FEELING,
    HYPOTHETICAL,
    LAUGHTER,
    OTHERS,
    PERSONAL_CHATTER,
    POLITE_ORDER,
    QUESTION,
    RETURN,
    SARCASM,
    SECRET,
    SPECULATION,
    SPECULATION_CHINESE,
    STORY,
    SUBORDINATE,
    TAG_QUESTION,
)
from recollect.facts.stating.moment_words import (
    ADVICE,
    ASKS_FOR_HELP,
    AT_ONCE,
    CONDITION,
    MAKE,
    MOMENTARY,
    NARRATION,
    ONE_OFF,
    PROPOSAL,
    STANDING,
    TELLING,
    TEMPORARY,
    YOURS,
)
from recollect.rules.secret_values import MASK_OPENING

Manner: TypeAlias = Literal[
    "remember", "decided", "laid_down", "value", "state", "defect", "structure", "built"
]
"""In which of its ways a statement was made explicit."""


_ALWAYS: Final = (
    (SARCASM, "sarcasm"),
    (STORY, "a story"),
    (OTHERS, "words of others"),
)
_IN_CLAUSE: Final = (
    (SPECULATION, "speculation"),
    (SPECULATION_CHINESE, "speculation"),
    (TEMPORARY, "a temporary step"),
)
_EVERY: Final = frozenset(get_args(Manner))
_BY_MANNER: Final = (
    (FEELING, "small talk", _EVERY),
    (HYPOTHETICAL, "a hypothetical", _EVERY - {"laid_down", "defect"}),
    (EVERYDAY, "small talk", frozenset({"state", "defect", "value", "built"})),
    (YOURS, "a step of the work", _EVERY - {"laid_down", "decided"}),
    (PROPOSAL, "speculation", _EVERY),
    (MOMENTARY, "of the moment", frozenset({"defect", "value", "state"})),
)


_FORBIDS: Final = re.compile(r"don't|dont|do not|别|不要|不能|不许|勿")


def doubt(sentence: str, manner: Manner, trigger: tuple[int, int], *, by_user: bool) -> str:
    """Why a folded sentence with this trigger is not kept; empty: nothing speaks against it."""
    if not by_user and (NARRATION.search(sentence) or ADVICE.search(sentence)):
        return "a step of the work"
    ordered = manner in ("remember", "laid_down")
    if MASK_OPENING.casefold() in sentence or SECRET.search(sentence):
        return "a secret"
    if PERSONAL_CHATTER.search(sentence):
        return "small talk"
    if _is_question(sentence, ordered=ordered):
        return "a question"
    if manner != "value" and LAUGHTER.search(sentence):
        return "sarcasm"
    for pattern, why in _ALWAYS:
        if pattern.search(sentence):
            return why
    if manner == "remember":
        return ""
    return _weighed(sentence, manner, trigger, by_user=by_user)


def _weighed(sentence: str, manner: Manner, trigger: tuple[int, int], *, by_user: bool) -> str:
    """What speaks against a sentence that nobody asked to remember."""
    # A rule is followed by its reason, and doubts in the reason do not weaken it.
    clause = _main(sentence, trigger) if manner in ("laid_down", "decided") else sentence
    before = sentence[: trigger[0]]
    if TELLING.search(before):
        return "words of others"
    if manner != "laid_down" and CONDITION.search(before):
        return "a hypothetical"
    for pattern, why in _IN_CLAUSE:
        if pattern.search(clause):
            return why
    for pattern, why, manners in _BY_MANNER:
        if manner in manners and pattern.search(sentence):
            return why
    if by_user and manner != "decided" and MAKE.search(sentence):
        return "" if STANDING.search(sentence) else "a one-off request"
    if manner == "laid_down" and ONE_OFF.search(clause):
        return "a one-off request"
    if manner == "laid_down" and _FORBIDS.search(sentence, *trigger):
        beside = sentence[: trigger[0]] + sentence[trigger[1] :]
        if AT_ONCE.search(beside) and not STANDING.search(sentence):
            return "a one-off request"
    return ""


def _is_question(sentence: str, *, ordered: bool) -> bool:
    if not QUESTION.search(sentence):
        return False
    if not ordered:
        return True
    return not (POLITE_ORDER.search(sentence) or TAG_QUESTION.search(sentence))


def _main(sentence: str, trigger: tuple[int, int]) -> str:
    """The sentence up to the end of the clause that its trigger stands in."""
    end = SUBORDINATE.search(sentence, trigger[1])
    start = 0
    for gap in CLAUSE_ENDS.finditer(sentence, 0, trigger[0]):
        start = gap.end()
    return sentence[start : end.start() if end else len(sentence)]


def tells_a_story(sentence: str) -> bool:
    """Whether what follows this folded sentence in its paragraph is told, not stated."""
    return STORY.search(sentence) is not None


def returns(sentence: str) -> bool:
    """Whether this folded sentence comes back from a story to what holds here."""
    return RETURN.search(sentence) is not None


def asks_for_help(sentence: str) -> bool:
    """Whether what this folded sentence's message tells of failures is what its author sees now."""
    return ASKS_FOR_HELP.search(sentence) is not None


def mocks(sentence: str) -> bool:
    """Whether this folded sentence shows that those beside it are not meant."""
    return SARCASM.search(sentence) is not None
