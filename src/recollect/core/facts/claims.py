"""Makes a draft of what a model claimed, where the words it names are there and support it.

Owns where a claim rests. A model's line numbers are a hint: its quotation decides, and where that
stands in several messages and not in the named one, the least trusted of them is meant. Where its
words take the question before the answer, code finds the question. Must never let a claim rest on
what was read before alone. What always holds: the spans of a draft are whole sentences of what is
readable. Pure.

A small model copies well and restates badly: it translates, or writes a heading. Where everything
exact in its statement stands in the words it copied, those words are the statement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from recollect.core.facts.history import name_property
from recollect.core.facts.reading import Line, Piece, ReadingWindow
from recollect.core.facts.support import (
    BEFORE_CHARS,
    Support,
    anchored,
    content_words,
    find_quote,
    sentence_before,
    sentences,
    sentences_around,
    states_nothing,
    supported,
)
from recollect.core.rules.text import statement_spans
from recollect.core.rules.trust import TRUST_ORDER, is_below, lowest
from recollect.core.values.fact import EXTRACTED_TYPES, EvidenceSpan, FactDraft, FactType
from recollect.core.values.model import Answer
from recollect.core.values.segment import SegmentId

_TEXTS: Final = ("quote", "type", "content", "subject", "attribute")
_MOST_OBJECTS: Final = 64
_ANSWER: Final = re.compile(r'\{\s*"facts"\s*:')


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement as the model made it, not checked yet."""

    line: int
    quote: str = field(repr=False)
    type: FactType
    content: str = field(repr=False)
    subject: str = field(repr=False)
    attribute: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What could be read of an answer, and what is wrong with the rest."""

    claims: tuple[Claim, ...]
    malformed: int
    """Objects that are not of the shape that was asked for."""
    trouble: str = ""
    """Why there may be less than the model meant to say; empty where nothing is wrong."""
    unreadable: bool = False
    """Nothing of the answer could be read, not even that there are no facts."""


def read_claims(answer: Answer, most: int) -> Claims:
    """The statements of an answer, at most so many."""
    whole, listed = _listing(answer.text)
    objects = list(_objects_in(answer.text)) if listed is None else listed
    claims = [_claim(mapping) for mapping in objects]
    trouble = ""
    if answer.stop == "refusal":
        trouble = "the model refused"
    elif answer.stop == "length":
        trouble = "the model's answer was cut off"
    elif not whole:
        trouble = "the model's answer was not the JSON that was asked for"
    read = [claim for claim in claims if claim is not None]
    return Claims(
        claims=tuple(read[:most]),
        malformed=len(claims) - len(read),
        trouble=trouble,
        unreadable=listed is None and not read and answer.stop != "refusal",
    )


def _listing(text: str) -> tuple[bool, list[Mapping[str, Any]] | None]:
    """Whether an answer is the JSON that was asked for, and its facts if it lists them at all."""
    try:
        facts = _facts_of(json.loads(text))
    except (ValueError, RecursionError):
        start = _ANSWER.search(text)
    else:
        return facts is not None, facts
    if start is None:
        return False, None
    try:  # between other words, or in a code block
        return False, _facts_of(json.JSONDecoder().raw_decode(text, start.start())[0])
    except (ValueError, RecursionError):
        return False, None


def _facts_of(value: object) -> list[Mapping[str, Any]] | None:
    facts = value.get("facts") if isinstance(value, dict) else value
    if not isinstance(facts, list):
        return None
    return [fact for fact in facts if isinstance(fact, dict)]


def _objects_in(text: str) -> Iterator[Mapping[str, Any]]:
    """The whole objects in a text that is not JSON, or not to its end."""
    decoder = json.JSONDecoder()
    at = max(text.find("["), 0)
    for _ in range(_MOST_OBJECTS):
        at = text.find("{", at)
        if at < 0:
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        if isinstance(value, dict):
            yield value


def _claim(given: Mapping[str, Any]) -> Claim | None:
    line = given.get("line")
    texts = {name: given.get(name, "") for name in _TEXTS}
    if not isinstance(line, int):
        return None
    if not all(isinstance(text, str) for text in texts.values()):
        return None
    if texts["type"] not in EXTRACTED_TYPES or not texts["quote"] or not texts["content"]:
        return None
    return Claim(
        line=line,
        quote=texts["quote"],
        type=cast(FactType, texts["type"]),
        content=" ".join(texts["content"].split()),
        subject=" ".join(texts["subject"].split()),
        attribute=" ".join(texts["attribute"].split()),
    )


_CONTENT_CHARS: Final = 240
"""Longer quotations are no short statements."""
_ASKED_CHARS: Final = 2_000
"""So much of the end of what was said before may ask what is answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftedClaim:
    """A draft and the words it rests on, or why there is none."""

    draft: FactDraft | None
    spans: tuple[str, ...] = field(default=(), repr=False)
    reason: str = ""
    segment: SegmentId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _SentenceSpan:
    """Whole sentences of a piece."""

    piece: Piece
    start: int
    end: int
    text: str = field(repr=False)

    @property
    def evidence(self) -> EvidenceSpan:
        return EvidenceSpan(segment=self.piece.segment.id, start=self.start, end=self.end)


def draft_claim(claim: Claim, stretch: ReadingWindow, lines: Sequence[Line]) -> DraftedClaim:
    """The draft of a claim about this stretch; `lines` are what `lines_of` gives for it."""
    ground = _quoted(claim, stretch, lines)
    if ground is None:
        return DraftedClaim(draft=None, reason="its quotation stands in no line")
    segment = ground.piece.segment
    if ground.piece not in stretch.new:
        return DraftedClaim(draft=None, reason="it rests on earlier lines", segment=segment.id)
    if why := _nothing(ground):
        return DraftedClaim(draft=None, reason=why, segment=segment.id)
    grounds: tuple[_SentenceSpan, ...] = (ground,)
    context = sentence_before(ground.piece.text, ground.start)
    support = supported(claim.content, [ground.text], context=context)
    asked = None if support.ok else _asked(claim, stretch, ground)
    if asked is not None:
        joint = supported(claim.content, [asked.text, ground.text])
        if joint.ok:
            grounds, support = (asked, ground), joint
    content = claim.content
    if not support.ok:
        content, support = _in_its_own_words(claim, ground, support)
    if not support.ok:
        return DraftedClaim(draft=None, reason=support.reason, segment=segment.id)
    draft = _draft(claim, content, grounds)
    return DraftedClaim(draft=draft, spans=tuple(context.text for context in grounds))


def _nothing(ground: _SentenceSpan) -> str:
    """Why none of the sentences states anything; empty where one does."""
    if is_below(ground.piece.segment.trust, "medium"):
        return ""  # held to more, by `admit`
    reasons = [states_nothing(sentence) for sentence in sentences(ground.text)]
    return reasons[0] if reasons and all(reasons) else ""


def _quoted(claim: Claim, stretch: ReadingWindow, lines: Sequence[Line]) -> _SentenceSpan | None:
    named = [line.piece for line in lines if line.number == claim.line != 0]
    others = sorted(
        (*stretch.new, *stretch.before), key=lambda piece: -TRUST_ORDER.index(piece.segment.trust)
    )
    for piece in (*named, *others):
        text = piece.text
        start, end = find_quote(claim.quote, text, piece.start, piece.end)
        if start < end:
            first, last = sentences_around(
                text, start, end, first=piece.start - BEFORE_CHARS, last=piece.end + BEFORE_CHARS
            )
            return _SentenceSpan(piece=piece, start=first, end=last, text=text[first:last])
    return None


def _asked(claim: Claim, stretch: ReadingWindow, answer: _SentenceSpan) -> _SentenceSpan | None:
    """Of what was said just before, the sentence that has most of the statement's words: "which
    port?" "8443" say together what neither says."""
    pieces = [*stretch.before, *stretch.new]
    spoken = [
        piece for piece in pieces[: pieces.index(answer.piece)] if piece.segment.role != "tool"
    ]
    if not spoken:
        return None
    piece = spoken[-1]
    text = piece.text
    wanted = content_words(claim.content)
    best = max(
        statement_spans(text, max(piece.start, piece.end - _ASKED_CHARS), piece.end),
        key=lambda span: (len(wanted & content_words(text[span[0] : span[1]])), -span[0]),
        default=None,
    )
    if best is None or not wanted & content_words(text[best[0] : best[1]]):
        return None
    return _SentenceSpan(piece=piece, start=best[0], end=best[1], text=text[best[0] : best[1]])


def _in_its_own_words(claim: Claim, ground: _SentenceSpan, support: Support) -> tuple[str, Support]:
    """The quotation as the statement, where the model restated it with everything exact kept."""
    quote = " ".join(claim.quote.split()).strip(" \"“”'`")
    if len(quote) > _CONTENT_CHARS or not anchored(claim.content, quote):
        return claim.content, support
    own = supported(quote, [ground.text])
    return (quote, own) if own.ok else (claim.content, support)


def _draft(claim: Claim, content: str, grounds: Sequence[_SentenceSpan]) -> FactDraft:
    segments = [context.piece.segment for context in grounds]
    named = name_property(content)
    subject = claim.subject.casefold() if _names_it(claim.subject, content) else ""
    attribute = claim.attribute.casefold() if subject else ""
    context = " ".join(" ".join(ground.text for ground in grounds).split())
    if context.casefold().strip(" .。") == content.casefold().strip(" .。"):
        context = ""
    return FactDraft(
        type=claim.type,
        content=content,
        context=context,
        at=max(segment.said_at for segment in segments),
        evidence=tuple(context.evidence for context in grounds),
        trust=lowest(segment.trust for segment in segments),
        made_by="model",
        session=segments[-1].session,
        subject=named.subject or subject,
        attribute=named.attribute if named.subject else attribute,
    )


def _names_it(subject: str, content: str) -> bool:
    """Whether the statement itself speaks of what the model says that it is about."""
    words = content_words(subject)
    return bool(words) and words <= content_words(content)
