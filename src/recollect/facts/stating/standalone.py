"""Tells whether a statement can be understood without the conversation that it was said in.

Owns what has to be refused after the rules have found a statement: what points at something said
elsewhere, a piece of a sentence, a line of a listing, what the next minutes end, what one customer
says at a counter, what an assistant only says again. Must never change a draft. What always holds:
half a sentence by which a user corrects something passes, because reconciling finds what it is
about; every refusal has a reason without words of the draft; pure, linear in the texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from recollect.facts.stating.counter import at_a_counter, of_a_case
from recollect.facts.stating.folded import folded
from recollect.facts.stating.passing import passing
from recollect.facts.stating.pointing import pointing
from recollect.facts.stating.whole import cut, listed
from recollect.rules.text import statement_spans
from recollect.values.fact import FactDraft
from recollect.values.segment import Segment

MOST_BEFORE: Final = 8
"""How many segments before a statement are looked at: an answer follows within a few."""
MOST_OPENING: Final = 4
"""A counter shows in its first messages: the operator's page, and what the clerk asks for."""
AGAIN_SEGMENTS: Final = 3
"""How far back a user's words are for an assistant to say again: the last message or two."""
AGAIN_SHARE: Final = 0.8
"""Of its words; the rest are those that make "I want" of "you want"."""
_MOST_READ_CHARS: Final = 4_000

_WORD: Final = re.compile(r"[a-z\d][\w./:@#-]*[\w]|[a-z\d]|[\u3400-\u9fff]")
_SMALL: Final = re.compile(
    r"an?|and|are|as|at|be|been|by|for|from|has|have|i|in|is|its?|let|ll|m|ve|re|s|t|my|now|of"
    r"|on|or"
    r"|our|so|that|the|this|to|was|we|were|will|with|you|your|not|but|understood|noted|got|okay"
    r"|ok"
    r"|yes|right|sure|great|thanks|[我你们的了是在也就会都好嗯把]"
)
"""Words that say nothing by themselves, and those that an answer begins with."""
_ASKS: Final = re.compile(r"[?？]\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standalone:
    """Whether a statement stands alone, and why not."""

    stands: bool
    reason: str = ""


def standalone(draft: FactDraft, segment: Segment, before: Sequence[Segment]) -> Standalone:
    """Look at a draft that rules found in `segment`; `before` are the session's segments up to it,
    in order."""
    low = folded(draft.content)
    by_user = segment.role == "user"
    amends = by_user and (draft.corrects or bool(draft.replaces))
    why = listed(draft, segment) or cut(draft, segment, low)
    if not why and not amends:
        why = pointing(low, by_user=by_user)
    why = why or passing(low, draft.type, by_user=by_user)
    if not why and of_a_case(low) and at_a_counter(_opening(before)):
        why = "the case of somebody who is not named"
    if not why and not by_user and _said_again(low, before):
        why = "it says again what the user said"
    return Standalone(stands=not why, reason=why)


def _opening(before: Sequence[Segment]) -> Sequence[Segment]:
    if len(before) <= MOST_OPENING + MOST_BEFORE:
        return before
    return (*before[:MOST_OPENING], *before[-MOST_BEFORE:])


def _said_again(low: str, before: Sequence[Segment]) -> bool:
    """Whether a user's statement just before holds its words; an answer to a question adds one."""
    own = _words(low)
    if not own:
        return False
    for segment in before[-AGAIN_SEGMENTS:]:
        if segment.role != "user":
            continue
        text = segment.text[:_MOST_READ_CHARS]
        said: set[str] = set()
        for start, end in statement_spans(text, 0, len(text)):
            if not _ASKS.search(text[start:end]):
                said |= _words(folded(text[start:end]))
        if len(own & said) >= AGAIN_SHARE * len(own):
            return True
    return False


def _words(low: str) -> set[str]:
    return {word for word in _WORD.findall(low) if not _SMALL.fullmatch(word)}
