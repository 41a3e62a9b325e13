"""Tells a piece of a sentence, and a line of a listing, from a statement.

Owns what a whole statement looks like: its brackets and quotation marks close, it does not end in
a word that wants another, nothing of its clause is left behind in the message. Must never judge
what is said. What always holds: pure, linear in the sentence and the line it stands on.
"""

from __future__ import annotations

import re
from typing import Final

from recollect.values.fact import FactDraft
from recollect.values.segment import Segment

_LISTING: Final = re.compile(
    r"\s*(?:[+-]\s*\d{1,5}\s|\d{2,5}\s*[-+]\s|\d{1,5}\s*[|│→]|\d{1,5}\t|@@\s|[│|]\s"
    r"|E\s+\S*(?:Error|Exception)\b|\w+ = <|\S*[/\\]\S+:\d+: in )"
)
_WANTS_MORE: Final = re.compile(
    r"(?:\b(?:to|the|an?|of|and|or|with|for|from|by|into|onto|than|as|at|its|their|our|your|my"
    r"|which"
    r"|whose|because|while|it is|that is|this is|there is|is|are|was|were|be|will|would|should"
    r"|must"
    r"|the first|the same|the last|the next|but|if|when|between|via|per|serves|uses|gets)|和|与"
    r"|或|把|被|从|向"
    r"|将|跟|但|而|因为|所以)\s*[.…]*$"
)
# "what it's for", "the one we have": a question word or a clause before lets these end a sentence
_MAY_END: Final = re.compile(
    r"\b(?:what|where|who|how|which|like|want|need|allowed|supposed|used|asked|told|try|going"
    r"|log(?:ged)?"
    r"|sign(?:ed)?|switch(?:ed)?|turned|it|that|this|they|we|you|i|he|she|one|as|all|should|must"
    r"|did"
    r"|does|do|is|are)\b[^,;]{0,30}\s(?:to|for|from|by|with|at|of|is|are|was|were|be|has|have"
    r"|not|so|only|will|would|should|must)\s*[.…]*$"
)
_NEW_START: Final = re.compile(r"[.!?\"]\s+(?:\w+ )?\w+$")
_INITIAL: Final = re.compile(
    r"\b(?!(?:Plan|Option|Drive|Team|Variant|Type|Class|Phase|Block|Room|Gate|Unit|Vitamin|Terminal"
    r"|Building|Version)\b)[A-Z][a-z]+ [A-Z]\.$"
)
"""The initial of a name, taken for the end of a sentence."""
_QUESTION: Final = re.compile(r"[?？][\s\"')]*$")
_PAIRS: Final = (
    ("(", ")"),
    ("[", "]"),
    ("{", "}"),
    ("（", "）"),
    ("“", "”"),
    ("「", "」"),
    ("《", "》"),
)
_SMILEY: Final = re.compile(r"[:;=8]['-]?[()\[\]{}]|[()\[\]{}]['-]?[:;=]")
_ENUMERATED: Final = re.compile(r"(?:^|[\s,;，；(])[\w]{1,3}[)）]\s")
_BREAK: Final = re.compile(r"\s*(?:[,;:.!?)，。；：！？、—–\"'”…*_`]|-\s|[^\w\s]|$)")
_JOINT: Final = re.compile(
    r"\s*(?:and|or|but|so|while|whereas|because|since|as|if|when|until|unless|which|who|where"
    r"|that"
    r"|after|before|for|to|in order|with|without|thanks?|thank|thx|please|pls|ok|okay|btw|cheers"
    r"|got it|alright|\(|[\u3400-\u9fff])"
)
_LONG_SPAN: Final = 200
_MARK: Final = re.compile(r"^\s*(?:[-*+•#]+\s+|\d{1,3}[.)、]\s*)")
_MANNERS: Final = re.compile(
    r"\b(?:that|so|and|but|please|also|then|just|remember|note|ok|okay|now)[\s,:]*$", re.IGNORECASE
)
_STOP: Final = re.compile(r"[^\w\s\])`]\s*$")
_FULL_STOP: Final = re.compile(r"[.!?;:—–。！？；：]\W*$")
_LOWER: Final = re.compile(r"[ \t]*[a-z`(]\S*")
_ENDED: Final = re.compile(r"[.!?:;。！？：；…]\W*$")
_LINE_END: Final = re.compile(r"[ \t]*\r?\n")
_LEAST_WRAPPED: Final = 60
_MOST_WRAPPED: Final = 130
"""Between these lie the widths that terminals and editors break lines at."""
_RAGGED: Final = 14
_LEAST_FILLED: Final = 3
_AROUND_CHARS: Final = 2_000
_MOST_LINE_CHARS: Final = 300
_DETERMINED: Final = re.compile(r"(?:the|this|that|these|those|all|any|some|my|our|your|an?)\s")
_STATES: Final = re.compile(
    r"\b(?:be|been|am|are|was|were|have|had|do|did|can|can't|cannot|could|may|might|must|shall"
    r"|should"
    r"|will|won't|would|never|always|go|went|gone|get|got|keep|kept|make|made|run|ran|use|live"
    r"|take"
    r"|took|need|want|like|hate|set|sit|sat|send|sent|read|write|wrote|written|call|come|came"
    r"|stay"
    r"|stand|start|stop|show|hold|held|put|let|break|broke|fall|fell|talk|speak|spoke|land|leave"
    r"|left|drop|fail|crash|wait|point|return|load|store|serve|mean|cost|\w{2,}ed|built|bought"
    r"|found"
    r"|lost|done|due|paid|chose|chosen|seen|saw|known|cut|shut|split|hit|became|become)\b"
    r"|n't\b|'s\b|'re\b|\b(?!(?:as|this|its|us|plus)\b)\w+s\s+\S|[\u3400-\u9fff:=→]"
)
"""What may be a verb: the irregular ones, and any word with the ending of one before another."""
_CODE: Final = re.compile(r"`[^`]*`")
_PARENTHESIS: Final = re.compile(r"\([^()]*\)?")


def listed(draft: FactDraft, segment: Segment) -> str:
    """Why the line that a draft stands on is one of a listing; empty where it is not."""
    start = draft.evidence[-1].start
    line = segment.text.rfind("\n", 0, start) + 1
    end = segment.text.find("\n", start)
    text = segment.text[line : end if end >= 0 else len(segment.text)][:_MOST_LINE_CHARS]
    return "a line of a listing" if _LISTING.match(text) else ""


def cut(draft: FactDraft, segment: Segment, low: str) -> str:
    """Why a draft is no whole statement; empty where it is one. `low` is its folded content."""
    if _QUESTION.search(low):
        return "a question"
    if not _closes(draft.content):
        return "its brackets or quotation marks do not close"
    if _WANTS_MORE.search(low) and (_NEW_START.search(low) or not _MAY_END.search(low)):
        return "it ends in the middle"
    if _INITIAL.search(draft.content):
        return "it ends in the middle"
    if _DETERMINED.match(low) and not _STATES.search(_PARENTHESIS.sub(" ", low)):
        return "it names something and states nothing of it"
    return _left_behind(draft, segment)


def _closes(text: str) -> bool:
    if text.count("`") % 2:
        return False
    bare = _ENUMERATED.sub(" ", _SMILEY.sub(" ", _CODE.sub(" ", text)))
    if bare.count('"') % 2:
        return False
    return all(bare.count(opening) == bare.count(closing) for opening, closing in _PAIRS)


def _left_behind(draft: FactDraft, segment: Segment) -> str:
    """Whether the message goes on where the content ends, or began before it."""
    by_user = segment.role == "user"
    span = draft.evidence[-1]
    said = " ".join(segment.text[span.start : span.end].split())
    at = said.find(draft.content)
    if at < 0 or len(draft.evidence) > 1:
        return ""
    rest = said[at + len(draft.content) :]
    if not (_BREAK.match(rest) or _JOINT.match(rest.lower())):
        return "it ends in the middle"
    if rest.strip() and len(said) > _LONG_SPAN and not _BREAK.match(rest):
        return "it ends in the middle"
    ahead = _MARK.sub("", said[:at])
    if len(said) > _LONG_SPAN and ahead and not _MANNERS.search(ahead):
        ended = _STOP.search(ahead) if by_user else _FULL_STOP.search(ahead)
        if ended is None:
            return "it begins in the middle"
    if not rest.strip() and _wrapped(segment.text, span.end, said):
        return "it ends in the middle"
    return ""


def _wrapped(text: str, end: int, said: str) -> bool:
    """Whether a line was broken for its length in the middle of the sentence: the next word would
    have made it longer than the longest, and others are about as long."""
    if _ENDED.search(said):
        return False
    following = _LINE_END.match(text, end)
    word = _LOWER.match(text, following.end()) if following is not None else None
    if word is None:
        return False
    lengths = [
        len(line.rstrip())
        for line in text[max(0, end - _AROUND_CHARS) : end + _AROUND_CHARS].split("\n")
    ]
    longest = max(lengths)
    line = len(text[text.rfind("\n", 0, end) + 1 : end].rstrip())
    filled = sum(length > longest - _RAGGED for length in lengths)
    return (
        _LEAST_WRAPPED <= longest <= _MOST_WRAPPED
        and filled >= _LEAST_FILLED
        and line + len(word[0].strip()) >= longest - 2
    )
