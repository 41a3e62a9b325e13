"""Extract: the facts that a session states, as a model reads them and code checks them.

A model's claim becomes a fact only if its quotation stands in a message and `support` finds the
statement there. The quotation decides, not the line number; if it stands in several messages and
not in the named one, the least trusted of them counts. No fact rests only on what was read before,
nor on a recalled block, a summary, a note, noise or thinking. A draft names the whole sentences it
rests on, and its trust is that of the least trusted whose words it repeats. Refusals are reported
without their words.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from recollect.core.facts.history import name_property
from recollect.core.facts.provenance import Proposed, admit
from recollect.core.facts.reading import (
    MOST_FACTS,
    WINDOW_TOKENS,
    Page,
    Piece,
    extraction_prompt,
    fitting_tokens,
    read_page,
)
from recollect.core.facts.support import (
    BEFORE_CHARS,
    anchored,
    content_words,
    find_quote,
    sentence_before,
    sentences,
    sentences_around,
    states_nothing,
    unsupported,
)
from recollect.core.ports import Model
from recollect.core.rules.text import statement_spans
from recollect.core.rules.trust import TRUST_ORDER, is_below, lowest
from recollect.core.values.fact import EXTRACTED_TYPES, EvidenceSpan, FactDraft, FactType
from recollect.core.values.model import Answer
from recollect.core.values.segment import Segment
from recollect.errors import ModelError

_TEXTS: Final = ("quote", "type", "content", "subject", "attribute")
_MOST_OBJECTS: Final = 64
_CONTENT_CHARS: Final = 240
"""Longer quotations are no short statements."""
_ASKED_CHARS: Final = 2_000
"""So much of the end of what was said before may ask what is answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """What was found in the first messages of a stretch, and what was not taken for a fact."""

    drafts: tuple[FactDraft, ...] = ()
    refused: tuple[str, ...] = ()
    """Why, without the words."""
    read: int = 0
    """How many of the messages were read; the others did not fit."""
    asked: bool = False
    trouble: str = ""
    """What is wrong with the model's answer, and what it did not read."""


async def extract(
    new: Sequence[Segment],
    before: Sequence[Segment],
    *,
    model: Model,
    max_output_tokens: int,
    now: float,
    window_tokens: int = WINDOW_TOKENS,
    earlier_low: Sequence[Segment] = (),
    unseen_low: bool = False,
) -> Extracted:
    """The facts that `new` states, as many of it as fit into one call; `before` gives the context.

    ModelError if the model fails, or nothing of its answer can be read. Times after `now` become
    `now`, so that a clock that ran ahead decides nothing. `earlier_low` are segments in front of
    `before` that only show whose words are repeated; with `unseen_low`, tools may have spoken even
    further back.
    """
    tokens = fitting_tokens(window_tokens, model.window_tokens, max_output_tokens)
    # a page of large outputs takes seconds to read: no other request may wait for it
    page = await asyncio.to_thread(read_page, new, tokens=tokens, before=before)
    if not any(line.number for line in page.lines):
        return Extracted(read=page.read)
    answer = await model.ask(extraction_prompt(page, max_output_tokens=max_output_tokens))
    claims, malformed = _read_claims(answer)
    if not claims and not malformed and "[" not in answer.text and answer.stop != "refusal":
        raise ModelError(_trouble(answer, page) or "the model's answer was not JSON")
    known = {segment.id: segment for segment in (*earlier_low, *before, *new)}
    around = tuple(known.values())
    drafts, refused = await asyncio.to_thread(
        _admitted, claims, page, around, unseen_low=unseen_low
    )
    return Extracted(
        drafts=tuple(draft if draft.at <= now else replace(draft, at=now) for draft in drafts),
        refused=(*["malformed"] * malformed, *refused),
        read=page.read,
        asked=True,
        trouble=_trouble(answer, page),
    )


def _trouble(answer: Answer, page: Page) -> str:
    troubles = {
        "the model refused": answer.stop == "refusal",
        "the model's answer was cut off": answer.stop == "length",
        "a message is larger than the window, and was not read to its end": page.cut_off,
    }
    return "; ".join(text for text, holds in troubles.items() if holds)


def _admitted(
    claims: Sequence[_Claim], page: Page, around: Sequence[Segment], *, unseen_low: bool
) -> tuple[list[FactDraft], list[str]]:
    drafts: list[FactDraft] = []
    refused: list[str] = []
    proposed: list[Proposed] = []
    for claim in claims:
        made = _draft_claim(claim, page)
        if isinstance(made, str):
            refused.append(made)
        else:
            proposed.append(made)
    for judged in admit(proposed, around, unseen_low=unseen_low):
        if isinstance(judged, str):
            refused.append(judged)
        elif any(_is_same(judged, draft) for draft in drafts):
            refused.append("it was found already")
        else:
            drafts.append(judged)
    return drafts, refused


def _is_same(draft: FactDraft, other: FactDraft) -> bool:
    return draft.content.casefold() == other.content.casefold() and any(
        one.segment == two.segment and one.start < two.end and two.start < one.end
        for one in draft.evidence
        for two in other.evidence
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    line: int
    quote: str = field(repr=False)
    type: FactType
    content: str = field(repr=False)
    subject: str = field(repr=False)
    attribute: str = field(repr=False)


def _read_claims(answer: Answer) -> tuple[list[_Claim], int]:
    claims = [_claim(value) for value in _objects_in(answer.text)]
    read = [claim for claim in claims if claim is not None]
    return read[:MOST_FACTS], len(claims) - len(read)


def _objects_in(text: str) -> Iterator[Mapping[str, Any]]:
    """The whole objects of a list, also in a code block, between other words, or cut off."""
    decoder = json.JSONDecoder()
    at = text.find("[")
    for _ in range(_MOST_OBJECTS):
        at = text.find("{", at) if at >= 0 else -1
        if at < 0:
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        yield value


def _claim(given: Mapping[str, Any]) -> _Claim | None:
    line = given.get("line")
    texts = {name: given.get(name, "") for name in _TEXTS}
    if not isinstance(line, int) or not all(isinstance(text, str) for text in texts.values()):
        return None
    if texts["type"] not in EXTRACTED_TYPES or not texts["quote"] or not texts["content"]:
        return None
    return _Claim(
        line=line,
        quote=texts["quote"],
        type=cast(FactType, texts["type"]),
        content=" ".join(texts["content"].split()),
        subject=" ".join(texts["subject"].split()),
        attribute=" ".join(texts["attribute"].split()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    piece: Piece
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.piece.text[self.start : self.end]

    @property
    def evidence(self) -> EvidenceSpan:
        return EvidenceSpan(segment=self.piece.segment.id, start=self.start, end=self.end)


def _draft_claim(claim: _Claim, page: Page) -> Proposed | str:
    """The draft of a claim with the words it rests on, or why there is none."""
    ground = _quoted(claim, page)
    if ground is None:
        return "its quotation stands in no line"
    if ground.piece not in page.new:
        return "it rests on earlier lines"
    if why := _states_nothing(ground):
        return why
    grounds: tuple[_Ground, ...] = (ground,)
    content = claim.content
    before = sentence_before(ground.piece.text, ground.start)
    why = unsupported(content, [ground.text], context=before)
    if why and (asked := _asked(claim, page, ground)) is not None:
        joint = unsupported(content, [asked.text, ground.text])
        if not joint:
            grounds, why = (asked, ground), ""
    if why:
        # A small model copies well and restates badly: if everything exact in its statement stands
        # in the words it copied, those words are the statement.
        quote = " ".join(claim.quote.split()).strip(" \"“”'`")
        if len(quote) > _CONTENT_CHARS or not anchored(content, quote):
            return why
        if unsupported(quote, [ground.text]):
            return why
        content = quote
    return Proposed(draft=_draft(claim, content, grounds), spans=tuple(one.text for one in grounds))


def _states_nothing(ground: _Ground) -> str:
    if is_below(ground.piece.segment.trust, "medium"):
        return ""  # held to more, by `admit`
    reasons = [states_nothing(sentence) for sentence in sentences(ground.text)]
    return reasons[0] if reasons and all(reasons) else ""


def _quoted(claim: _Claim, page: Page) -> _Ground | None:
    named = [line.piece for line in page.lines if line.number == claim.line != 0]
    others = sorted(
        (*page.new, *page.before), key=lambda piece: -TRUST_ORDER.index(piece.segment.trust)
    )
    for piece in (*named, *others):
        start, end = find_quote(claim.quote, piece.text, piece.end)
        if start < end:
            last = piece.end + BEFORE_CHARS
            first, last = sentences_around(piece.text, start, end, last=last)
            return _Ground(piece=piece, start=first, end=last)
    return None


def _asked(claim: _Claim, page: Page, answer: _Ground) -> _Ground | None:
    """Of the message just before, the sentence that has most of the statement's words: "which
    port?" "8443" say together what neither says."""
    pieces = [*page.before, *page.new]
    spoken = [
        piece for piece in pieces[: pieces.index(answer.piece)] if piece.segment.role != "tool"
    ]
    if not spoken:
        return None
    piece, wanted = spoken[-1], content_words(claim.content)
    shared = {
        span: len(wanted & content_words(piece.text[span[0] : span[1]]))
        for span in statement_spans(piece.text, max(0, piece.end - _ASKED_CHARS), piece.end)
    }
    best = max(shared, key=lambda span: (shared[span], -span[0]), default=None)
    if best is None or not shared[best]:
        return None
    return _Ground(piece=piece, start=best[0], end=best[1])


def _draft(claim: _Claim, content: str, grounds: Sequence[_Ground]) -> FactDraft:
    segments = [ground.piece.segment for ground in grounds]
    named = name_property(content)
    words = content_words(claim.subject)
    # the statement itself has to speak of what the model says that it is about
    subject = claim.subject.casefold() if words and words <= content_words(content) else ""
    context = " ".join(" ".join(ground.text for ground in grounds).split())
    if context.casefold().strip(" .。") == content.casefold().strip(" .。"):
        context = ""
    return FactDraft(
        type=claim.type,
        content=content,
        context=context,
        at=max(segment.said_at for segment in segments),
        evidence=tuple(ground.evidence for ground in grounds),
        trust=lowest(segment.trust for segment in segments),
        made_by="model",
        session=segments[-1].session,
        subject=named.subject or subject,
        attribute=named.attribute if named.subject else claim.attribute.casefold() * bool(subject),
    )
