"""Finds the statements of a message that say plainly what is to be kept, without a model.

Owns the order of the rules: which words were said, which sentence states something, whether
anything speaks against it, what of it is kept. Must never take the words of a tool, of a recalled
block, of code or of a quotation, and never invent one. What always holds: a draft is marked
`made_by="rules"`, its content is words of the span that its evidence names, its trust is the
segment's; pure; the time is linear in the text and bounded by what a person says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from recollect.facts.name_subject import name_subject
from recollect.facts.stating.chinese import chinese
from recollect.facts.stating.content import MOST_CHARS_BEFORE, content
from recollect.facts.stating.doubt import asks_for_help, doubt, mocks, returns, tells_a_story
from recollect.facts.stating.english import english
from recollect.facts.stating.folded import BLANK, folded_lines, has_chinese
from recollect.facts.stating.rule import MOST_SENTENCE_CHARS, Stated
from recollect.facts.stating.spoken import spoken
from recollect.rules.redaction import redact
from recollect.rules.text import statement_spans
from recollect.values.fact import EvidenceSpan, FactDraft, RefusedDraft

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recollect.values.segment import Segment


MOST_SENTENCES: Final = 400
"""As many as are read of one message: about what its spoken words can hold."""
MOST_DRAFTS: Final = 40
"""More statements than a message makes: what has more is a document."""

MOST_TOLD_CHARS: Final = 1_200
"""A longer answer of a model explains: of it only counts what it says that it did itself."""

_OWN_WORDS: Final = re.compile(
    r"\b(?:i|i'm|i've|we|we're|we've|our|my|us|me|remember|from now on|let's)\b"
    r"|我|咱|记住|记一下|以后"
)
_OWN_DOING: Final = re.compile(r"\b(?:i|i've|we've)\b|我|已")
_TITLE: Final = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St)\.$")
_HEADING_MANNERS: Final = frozenset({"remember", "decided", "laid_down", "state"})
_LISTED: Final = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)、])\s*\S")
_COLON: Final = re.compile(r"[:：]\s*\**\s*$")
_LETTERS: Final = re.compile(r"[a-z]")
_WORD: Final = re.compile(r"[a-z\d][\w'./:@-]*|[\u3400-\u9fff]")
_LEAST_WORDS: Final = 3
_LEAST_CORRECTING: Final = 2
"""A correction may say no more than that it is one, and the new value."""
_MARKS: Final = " \t\r\n.,;:!?\"'"
_APART: Final = re.compile(r"[,，、；;]\s*(?:and\s+|而)?|\s+(?:and|while|whereas)\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explicit:
    """The statements found in one segment, and why others were not taken."""

    drafts: tuple[FactDraft, ...] = ()
    refused: tuple[RefusedDraft, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sentence:
    start: int
    end: int
    line: int
    said: str = field(repr=False)
    low: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """What a message is as a whole."""

    by_user: bool
    beside_paste: bool
    """A comment on what was brought along."""
    asks_for_help: bool
    explains: bool
    """A long answer of a model."""


def explicit(segment: Segment) -> Explicit:
    """What a segment states plainly."""
    words = spoken(segment)
    reasons = list(words.refused)
    drafts: dict[str, FactDraft] = {}
    sentences = list(islice(_sentences(segment.text, words.lines), MOST_SENTENCES))
    message = _message(sentences, by_user=segment.role == "user", beside_paste=words.beside_paste)
    for sentence, stated in _undoubted(sentences, reasons, message):
        for draft in _drafts(segment, sentence, stated, reasons):
            drafts.setdefault(" ".join(draft.content.casefold().split()), draft)
        if len(drafts) >= MOST_DRAFTS:
            reasons.append("too many statements for a message")
            break
    refused = tuple(RefusedDraft(reason=why, segment=segment.id) for why in reasons)
    return Explicit(drafts=tuple(drafts.values())[:MOST_DRAFTS], refused=refused)


def _sentences(text: str, lines: tuple[tuple[int, int], ...]) -> Iterator[_Sentence]:
    low = folded_lines(text[first:last] for first, last in lines)
    for number, (first, last) in enumerate(lines):
        for start, end in _whole(text, statement_spans(text, first, last)):
            said, heard = text[start:end], low[number][start - first : end - first]
            if not said.strip(_MARKS) or not heard.strip(_MARKS + BLANK):
                continue
            short = end - start <= MOST_SENTENCE_CHARS
            yield _Sentence(
                start=start, end=end, line=number, said=said, low=heard if short else ""
            )


def _whole(text: str, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The spans, put together where only the dot of a title parts them: "Ms. Petrova"."""
    open_span: tuple[int, int] | None = None
    for start, end in spans:
        span = (start if open_span is None else open_span[0], end)
        if _TITLE.search(text, max(span[0], end - 6), end):
            open_span = span
            continue
        open_span = None
        yield span
    if open_span is not None:
        yield open_span


def _message(sentences: list[_Sentence], *, by_user: bool, beside_paste: bool) -> _Message:
    return _Message(
        by_user=by_user,
        beside_paste=by_user and beside_paste,
        asks_for_help=by_user and any(asks_for_help(one.low) for one in sentences),
        explains=not by_user and sum(len(one.low) for one in sentences) > MOST_TOLD_CHARS,
    )


def _undoubted(
    sentences: list[_Sentence], reasons: list[str], message: _Message
) -> Iterator[tuple[_Sentence, Stated]]:
    """The sentences that state something which nothing speaks against."""
    mocked = [mocks(sentence.low) for sentence in sentences]
    told_on = -1
    heading: Stated | None = None
    for at, sentence in enumerate(sentences):
        if not sentence.low:
            reasons.append("too long for a statement")
            continue
        if told_on == sentence.line and returns(sentence.low):
            told_on = -1
        if not _LISTED.match(sentence.said):
            heading = None
        stated, why = _stated(sentence.low, heading, by_user=message.by_user)
        if tells_a_story(sentence.low):
            told_on = sentence.line
        if stated is not None:
            if told_on == sentence.line:
                why = "a story"
            elif any(mocked[max(0, at - 1) : at + 2]):
                why = "sarcasm"
            else:
                why = _out_of_place(sentence.low, stated, message)
        if why:
            reasons.append(why)
        elif stated is not None:
            if _COLON.search(sentence.low) and stated.manner in _HEADING_MANNERS:
                heading = stated
            else:
                yield sentence, stated


def _out_of_place(low: str, stated: Stated, message: _Message) -> str:
    """Why what a sentence states is not to be kept in a message of this kind."""
    if message.asks_for_help and stated.manner == "defect":
        return "a failure that is being looked at"
    if message.explains and not _OWN_DOING.search(low):
        return "an explanation"
    if message.beside_paste and not _OWN_WORDS.search(low):
        return "beside pasted text"
    return ""


def _stated(low: str, heading: Stated | None, *, by_user: bool) -> tuple[Stated | None, str]:
    """What a sentence states, or why that is not to be kept."""
    # The surest way to read it decides: what is doubtful so is no plainer read another way.
    stated = next(_found(low, by_user=by_user), None)
    if stated is None and heading is not None and by_user:
        stated = Stated(manner=heading.manner, type=heading.type, trigger=(0, 0))
    if stated is None:
        return None, ""
    why = doubt(low, stated.manner, stated.trigger, by_user=by_user)
    return (None, why) if why else (_typed(low, stated), "")


def _found(low: str, *, by_user: bool) -> Iterator[Stated]:
    if has_chinese(low):
        yield from chinese(low, by_user=by_user)
    if _LETTERS.search(low):
        yield from english(low, by_user=by_user)


def _typed(low: str, stated: Stated) -> Stated:
    """What was asked to be remembered is of the type that its words are of."""
    if stated.manner != "remember":
        return stated
    rest = " " * stated.trigger[1] + low[stated.trigger[1] :]
    for other in _found(rest, by_user=True):
        if other.manner != "remember":
            return Stated(manner="remember", type=other.type, trigger=stated.trigger)
    if not any(character.isdigit() for character in rest):
        return Stated(manner="remember", type="preference", trigger=stated.trigger)
    return stated


def _drafts(
    segment: Segment, sentence: _Sentence, stated: Stated, reasons: list[str]
) -> Iterator[FactDraft]:
    if redact(sentence.said).spans:
        reasons.append("a secret")
        return
    evidence = EvidenceSpan(segment=segment.id, start=sentence.start, end=sentence.end)
    before = segment.text[max(0, sentence.start - MOST_CHARS_BEFORE) : sentence.start]
    for said, trigger in _apart(sentence, stated, by_user=segment.role == "user"):
        kept = content(said, trigger, before=before)
        least = _LEAST_CORRECTING if kept.corrects else _LEAST_WORDS
        if len(_WORD.findall(kept.text.lower())) < least:
            reasons.append("too short to stand alone")
            continue
        named = name_subject(kept.text, stated.type)
        yield FactDraft(
            type=stated.type,
            content=kept.text,
            at=segment.said_at,
            evidence=(evidence,),
            trust=segment.trust,
            made_by="rules",
            session=segment.session,
            subject=named.subject,
            attribute=named.attribute,
            replaces=kept.replaces,
            corrects=kept.corrects,
        )


def _apart(
    sentence: _Sentence, stated: Stated, *, by_user: bool
) -> list[tuple[str, tuple[int, int]]]:
    """The statements of a sentence that lists values, each by itself; else the whole of it."""
    whole = [(sentence.said, stated.trigger)]
    if stated.manner != "value":
        return whole
    parts: list[tuple[str, tuple[int, int]]] = []
    at = 0
    gaps = [gap.span() for gap in _APART.finditer(sentence.low)]
    for end, following in [*gaps, (len(sentence.low), len(sentence.low))]:
        low = sentence.low[at:end]
        value = next((one for one in _found(low, by_user=by_user) if one.manner == "value"), None)
        if value is None:
            return whole
        parts.append((sentence.said[at:end], value.trigger))
        at = following
    return parts if len(parts) > 1 else whole
