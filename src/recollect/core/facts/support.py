"""Decides whether the words that a statement rests on say what it says.

Owns the check that stands between a model's draft and a fact. Everything exact in the statement
(numbers, paths, identifiers, versions, names) must stand in the words it rests on; enough of its
other words must; what they deny it may not affirm, nor the other way round; a question, a
conjecture, a secret or a mask supports nothing. Must never quote what it refuses. Pure, no model.

It knows words, not meaning: a statement of the same words in another sense passes, one in other
words altogether does not. That is the side to be wrong on: what was said stays in the archive.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from unicodedata import normalize

from recollect.core.rules.redaction import redact
from recollect.core.rules.secret_values import MASK_OPENING
from recollect.core.rules.text import statement_spans
from recollect.core.search.identifiers import shapes_in
from recollect.core.search.names import names_in
from recollect.core.search.question import substance
from recollect.core.search.tokenize import STOP_WORDS, is_unspaced_pair, tokenize

LEAST_WORD_CHARS: Final = 4
"""A shorter quotation stands in too many places."""
BEFORE_CHARS: Final = 600
"""As far back a sentence is looked for: twice as much as is kept of one."""
_BLOCK_CHARS: Final = 1_000
_SAME: Final = str.maketrans("“”„‘’，；：！？（）", '"""\'\',;:!?()', " \t\r\n\u00a0\u3000\u200b*`")
"""Signs that are the same in a quotation, and those that are passed over."""
_CUT_SHORT: Final = " .…\"'“”‘’`*"


def find_quote(quote: str, text: str, end: int) -> tuple[int, int]:
    """Where a quotation stands in the text before `end`; (0, 0) if it does not."""
    wanted = _plain(quote.strip(_CUT_SHORT))
    if len(wanted) + 2 * sum(not sign.isascii() for sign in wanted) < LEAST_WORD_CHARS:
        return (0, 0)
    at = _plain(text[:end]).find(wanted)
    if at < 0:
        return (0, 0)
    return (_place(text, end, at), _place(text, end, at + len(wanted) - 1) + 1)


def _plain(text: str) -> str:
    return text.translate(_SAME).casefold()


def _place(text: str, end: int, at: int) -> int:
    """Where the sign stands in a text that is number `at` of it when it is plain."""
    for block in range(0, end, _BLOCK_CHARS):
        size = len(_plain(text[block : min(block + _BLOCK_CHARS, end)]))
        if at >= size:
            at -= size
            continue
        for place in range(block, end):
            at -= len(_plain(text[place]))
            if at < 0:
                return place
    return end


def sentences_around(text: str, start: int, end: int, *, last: int) -> tuple[int, int]:
    """The span of the sentences that this span reaches into, looked for up to `last`."""
    reached = [
        (begin, stop)
        for begin, stop in statement_spans(text, 0, min(last, len(text)))
        if begin < end and start < stop
    ]
    return (reached[0][0], reached[-1][1]) if reached else (start, end)


def sentence_before(text: str, start: int) -> str:
    """The sentence in front of the one that begins here; empty where there is none, and the end
    of a very long one."""
    spans = list(statement_spans(text, max(start - BEFORE_CHARS, 0), start))
    return text[spans[-1][0] : spans[-1][1]] if spans else ""


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order, none blank."""
    return [text[start:end] for start, end in statement_spans(text, 0, len(text))]


WORDS_SHARE: Final = 0.6
"""Of a statement's content words, so many have to stand where it rests: as for receipts, the least
at which a statement with another verb or object is not taken for it (test_support.py)."""
MOST_CHARS: Final = 400
_LEAST_WORDS: Final = 2
_HEADING_WORDS: Final = 5
"""A line of fewer words, none of them one that joins words, is a heading."""
_DENIED_SHARE: Final = 0.5
_SPOKEN_OF_SHARE: Final = 0.34
"""Of a clause's words, so many stand in another text where that speaks of the same."""

_NUMBERS: Final = re.compile(r"\d+(?:[.:,_/-]\d+)*")
_TERMS: Final = re.compile(r"`([^`\n]{2,80})`")
_DENIES: Final = re.compile(
    r"\b(?:not|never|no|none|nor|neither|cannot|without|\w+n['’]t|dont|doesnt|isnt|cant|wont"
    r"|no\ longer|instead\ of|rather\ than|avoid(?:s|ing)?|stop(?:s|ped)?\ using|forget"
    r"|drop(?:ped)?|away\ from)\b"
    r"|(?<![差要毫])不(?![过過错錯同仅僅但管论論断斷久])|没(?!问题)|沒(?!問題)"
    r"|(?<![特级級类類分区區个個差性])[别別](?![的人处處名])|勿|未(?![来來])|无(?![论])|無(?![論])|禁止|非(?!常)",
    re.IGNORECASE | re.VERBOSE,
)
_PLAINLY_DENIES: Final = re.compile(
    r"\b(?:not|never|no|none|cannot|without|\w+n['’]t|no\ longer|lacks?|missing|fail(?:s|ed|ing)?"
    r"|broken|unset|unsupported|blocked|disabled|expired|forbid(?:s|den)?|avoid|unable|absent|un\w{4,}"
    r"|stop(?:ped)?|drop(?:ped)?|remov(?:e|ed|es)|instead|rather|over|away)\b"
    r"|不|没|沒|别|別|勿|未|无|無|禁|非|失败|失敗|取消|下线|停",
    re.IGNORECASE | re.VERBOSE,
)
_CLAUSE_ENDS: Final = re.compile(
    r"[,;:.!?](?=\s|$)|[()，。；：、！？（）—–]|\s-\s|\b(?:but|and|because|so|since|while|instead|just)\b|而是|但是?|改用|而"
    r"|(?<=\w)\s+(?=not\s+(?:\d|the\b|on\b|in\b|at\b|[A-Z]))"
)
_CONJECTURES: Final = re.compile(
    r"\b(?:maybe|perhaps|possibly|probably|presumably|supposedly|might|what\ if|should\ (?:we|i)"
    r"|(?:we|i|you|one)\ could|could\ (?:we|be)|wonder(?:ing)?|not\ (?:quite\ )?sure|unsure"
    r"|no\ idea|thinking\ (?:about|of)|tempted|considering|hypothetically|i\ guess|imagine|suppose"
    r"|in\ theory|in\ my\ (?:last|old|previous)\ job|some\ ?day|would\ be\ (?:nice|cool|great))\b"
    r"|也许|也許|或许|或許|可能|大概|说不定|說不定|要不要|要不(?!然)|是不是|会不会|會不會|估计|估計"
    r"|[在还還也]考[虑慮]|考[虑慮](?:用|换|換|要不要|是否)|假如|假设|假設|万一|不确定|不確定|好像|似乎|不如",
    re.IGNORECASE | re.VERBOSE,
)
_QUESTION_ENDS: Final = ("?", "？", "吗", "嗎", "呢")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clause:
    words: frozenset[str] = field(repr=False)
    denies: bool


def unsupported(content: str, spans: Sequence[str], *, context: str = "") -> str:
    """Why these spans do not say what `content` says, without its words; empty if they do.

    A span is at least a sentence, so that no "not" is cut off. `context` are further words of the
    same speaker that may lend names and words to it ("it listens on 8443"), but no numbers.
    """
    if found := _of_shape(content, spans) or _exact(content, spans, context):
        return found
    if not _worded(content, spans, context):
        return "too few of its words stand where it rests"
    if not _agrees_in_denial(content, " ".join(spans)):
        return "what it rests on says the opposite"
    return ""


def anchored(content: str, quote: str) -> bool:
    """Whether a statement in other words is about a quotation: what is exact in it stands there.

    It takes a sentence of which something is exact: a heading is about anything.
    """
    text = _folded(quote)
    exact = [
        *_NUMBERS.findall(_folded(content)),
        *map(_folded, shapes_in(content)),
        *map(_folded, _TERMS.findall(content)),
    ]
    names = [max(name, key=len) for name in names_in(content)]
    if (not exact and not names) or len(content_words(content)) <= _LEAST_WORDS:
        return False
    return all(value in text for value in exact) and {*tokenize(quote), *tokenize(text)}.issuperset(
        names
    )


def _of_shape(content: str, spans: Sequence[str]) -> str:
    if not any(span.strip() for span in spans):
        return "it rests on nothing"
    if len(content) > MOST_CHARS:
        return "it is too long for one statement"
    if len(content_words(content)) < _LEAST_WORDS or _is_heading(content):
        return "it says too little"
    if MASK_OPENING in content or any(MASK_OPENING in span for span in spans):
        return "it is about a secret"
    if redact(content).spans:
        return "it holds a secret"
    if _asks(content):
        return "it is a question"
    if all(all(map(_asks, sentences(span))) for span in spans if span.strip()):
        return "it rests on a question"
    if any(_CONJECTURES.search(span) for span in spans):
        return "it rests on a conjecture"
    return ""


def _is_heading(content: str) -> bool:
    words = content.casefold().split()
    return content.isascii() and len(words) < _HEADING_WORDS and STOP_WORDS.isdisjoint(words)


def states_nothing(sentence: str) -> str:
    """Why a sentence supports nothing by itself, and need not be asked about; empty: it may."""
    if len(content_words(sentence)) < _LEAST_WORDS:
        return "it says too little"
    if _asks(sentence):
        return "it rests on a question"
    return "it rests on a conjecture" if _CONJECTURES.search(sentence) else ""


def _asks(sentence: str) -> bool:
    return sentence.rstrip(" \"'”’)）*_~。.").endswith(_QUESTION_ENDS)


def _exact(content: str, spans: Sequence[str], context: str) -> str:
    text = _folded("\n".join(spans))
    around = f"{text}\n{_folded(context)}"
    numbers = set(_NUMBERS.findall(text))
    loose = {piece for number in numbers for piece in re.split(r"[.:,_/-]", number)}
    for number in _NUMBERS.findall(_folded(content)):
        if number not in numbers and number not in loose:
            return "a number in it was not said there"
    for shape in shapes_in(content):
        if _folded(shape) not in around:
            return "an identifier in it was not said there"
    words = {*tokenize(around), *tokenize("\n".join((*spans, context)))}
    for name in names_in(content):
        if max(name, key=len) not in words:
            return "a name in it was not said there"
    return ""


def _worded(content: str, spans: Sequence[str], context: str) -> bool:
    wanted = content_words(content)
    held = content_words("\n".join(spans))
    lent = content_words(context)
    shared = len(wanted & held) + len((wanted - held) & lent)
    # what it rests on itself has to carry it, or any sentence would support its neighbour
    return shared >= WORDS_SHARE * len(wanted) and len(wanted & held) * 2 >= shared


def content_words(text: str) -> frozenset[str]:
    """The words that a text is about: stems, and pairs where words are not spaced."""
    words = tokenize(text)
    return frozenset(
        word
        for word in substance(text, tuple(words))
        if len(word) > 1 or word.isascii() or not _is_unspaced(word)
    )


def _is_unspaced(sign: str) -> bool:
    return is_unspaced_pair(sign * 2)


def _agrees_in_denial(content: str, text: str) -> bool:
    """Neither denies what the other affirms."""
    if _DENIES.search(content) and not (_DENIES.search(text) or _PLAINLY_DENIES.search(text)):
        return False
    stated, rested_on = _clauses(content), _clauses(text)
    return not (_contradicts(stated, rested_on) or _contradicts(rested_on, stated))


def _contradicts(denying: Sequence[_Clause], affirming: Sequence[_Clause]) -> bool:
    denied = frozenset[str]().union(*(clause.words for clause in affirming if clause.denies))
    affirmed = frozenset[str]().union(*(other.words for other in affirming if not other.denies))
    for clause in denying:
        if not clause.denies:
            continue
        spoken_of = clause.words & (denied | affirmed)
        if len(spoken_of) < _SPOKEN_OF_SHARE * len(clause.words):
            continue
        if len(spoken_of & (affirmed - denied)) > _DENIED_SHARE * len(spoken_of):
            return True
    return False


def _clauses(text: str) -> list[_Clause]:
    """The clauses of a text: a "not" reaches to both ends of its own, "X is not used" as well as
    "do not use X"."""
    pieces = [piece for piece in _CLAUSE_ENDS.split(text) if piece and piece.strip()]
    return [
        _Clause(
            words=content_words(_DENIES.sub(" ", piece)), denies=_DENIES.search(piece) is not None
        )
        for piece in pieces
    ]


def _folded(text: str) -> str:
    return " ".join(normalize("NFKC", text).casefold().replace("`", "").split())
