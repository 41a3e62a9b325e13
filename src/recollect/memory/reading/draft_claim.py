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

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from recollect.memory.name_subject import name_subject
from recollect.memory.reading.answer import Claim
from recollect.memory.reading.prompt import Line
from recollect.memory.reading.quotes import (
    BEFORE_CHARS,
    find_quote,
    sentence_before,
    sentences,
    sentences_around,
)
from recollect.memory.reading.support import (
    Support,
    anchored,
    content_words,
    states_nothing,
    supported,
)
from recollect.memory.reading.windows import Piece, Stretch
from recollect.rules.text import statement_spans
from recollect.rules.trust import TRUST_ORDER, is_below, lowest
from recollect.values.fact import EvidenceSpan, FactDraft
from recollect.values.segment import SegmentId

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
class _Ground:
    """Whole sentences of a piece."""

    piece: Piece
    start: int
    end: int
    text: str = field(repr=False)

    @property
    def evidence(self) -> EvidenceSpan:
        return EvidenceSpan(segment=self.piece.segment.id, start=self.start, end=self.end)


def draft_claim(claim: Claim, stretch: Stretch, lines: Sequence[Line]) -> DraftedClaim:
    """The draft of a claim about this stretch; `lines` are what `lines_of` gives for it."""
    ground = _quoted(claim, stretch, lines)
    if ground is None:
        return DraftedClaim(draft=None, reason="its quotation stands in no line")
    segment = ground.piece.segment
    if ground.piece not in stretch.new:
        return DraftedClaim(draft=None, reason="it rests on earlier lines", segment=segment.id)
    if why := _nothing(ground):
        return DraftedClaim(draft=None, reason=why, segment=segment.id)
    grounds: tuple[_Ground, ...] = (ground,)
    context = sentence_before(ground.piece.text, ground.start)
    found = supported(claim.content, [ground.text], context=context)
    asked = None if found.ok else _asked(claim, stretch, ground)
    if asked is not None:
        joint = supported(claim.content, [asked.text, ground.text])
        if joint.ok:
            grounds, found = (asked, ground), joint
    content = claim.content
    if not found.ok:
        content, found = _in_its_own_words(claim, ground, found)
    if not found.ok:
        return DraftedClaim(draft=None, reason=found.reason, segment=segment.id)
    draft = _draft(claim, content, grounds)
    return DraftedClaim(draft=draft, spans=tuple(one.text for one in grounds))


def _nothing(ground: _Ground) -> str:
    """Why none of the sentences states anything; empty where one does."""
    if is_below(ground.piece.segment.trust, "medium"):
        return ""  # held to more, by `admit`
    reasons = [states_nothing(one) for one in sentences(ground.text)]
    return reasons[0] if reasons and all(reasons) else ""


def _quoted(claim: Claim, stretch: Stretch, lines: Sequence[Line]) -> _Ground | None:
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
            return _Ground(piece=piece, start=first, end=last, text=text[first:last])
    return None


def _asked(claim: Claim, stretch: Stretch, answer: _Ground) -> _Ground | None:
    """Of what was said just before, the sentence that has most of the statement's words: "which
    port?" "8443" say together what neither says."""
    pieces = [*stretch.before, *stretch.new]
    spoken = [one for one in pieces[: pieces.index(answer.piece)] if one.segment.role != "tool"]
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
    return _Ground(piece=piece, start=best[0], end=best[1], text=text[best[0] : best[1]])


def _in_its_own_words(claim: Claim, ground: _Ground, found: Support) -> tuple[str, Support]:
    """The quotation as the statement, where the model restated it with everything exact kept."""
    quote = " ".join(claim.quote.split()).strip(" \"“”'`")
    if len(quote) > _CONTENT_CHARS or not anchored(claim.content, quote):
        return claim.content, found
    own = supported(quote, [ground.text])
    return (quote, own) if own.ok else (claim.content, found)


def _draft(claim: Claim, content: str, grounds: Sequence[_Ground]) -> FactDraft:
    segments = [one.piece.segment for one in grounds]
    named = name_subject(content, claim.type)
    told = content_words(content)
    subject = claim.subject.casefold() if content_words(claim.subject) <= told else ""
    attribute = claim.attribute.casefold() if subject else ""
    context = " ".join(" ".join(one.text for one in grounds).split())
    if context.casefold().strip(" .。") == content.casefold().strip(" .。"):
        context = ""
    return FactDraft(
        type=claim.type,
        content=content,
        context=context,
        at=max(segment.said_at for segment in segments),
        evidence=tuple(one.evidence for one in grounds),
        trust=lowest(segment.trust for segment in segments),
        made_by="model",
        session=segments[-1].session,
        subject=named.subject or subject,
        attribute=named.attribute if named.subject else attribute,
    )
