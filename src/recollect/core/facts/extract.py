"""Extract: the facts that a session states, as a model reads them and code checks them.

Owns what may become a fact: a model's claim that passes `support`. Must never take a fact from a
recalled block, a summary, a note, noise or thinking (`readable`), nor let one rest on what was read
before alone. What always holds: every draft names the span it rests on; its trust is that of the
least trusted whose words it repeats; what tools brought in gives statements of how things are, and
never a preference, a decision or an order. What is refused is reported without its words. A
ModelError before the first readable answer is the caller's; after it, what was found is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from recollect.core.facts.claims import Claims, draft_claim, read_claims
from recollect.core.facts.provenance import Admitted, Proposed, admit
from recollect.core.facts.reading import (
    MOST_FACTS,
    WINDOW_TOKENS,
    Line,
    ReadingWindow,
    extraction_prompt,
    fitting_tokens,
    lines_of,
    readable,
    windows,
)
from recollect.core.ports import Model
from recollect.core.rules.tokens import spent_tokens
from recollect.core.values.fact import EvidenceSpan, FactDraft, RefusedDraft
from recollect.core.values.model import Answer, Prompt
from recollect.core.values.segment import Segment, SegmentId
from recollect.errors import ModelError

OVERLAP_TOKENS: Final = 300
"""What stands before a window: about the last two or three messages."""
MOST_CALLS: Final = 8
"""How often a model is asked for one page at the most: some 19,000 tokens of `WINDOW_TOKENS`, more
than anybody says in one message. What is larger was pasted, and is not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """What was found in a stretch, and what was not taken for a fact."""

    drafts: tuple[FactDraft, ...]
    refused: tuple[RefusedDraft, ...]
    spent_tokens: int
    asked: bool
    """Whether a model was asked."""
    reason: str
    trouble: str = ""
    """What went wrong with the model, and what it did not read; part of the reason."""
    left_out: str = ""
    """What the model did not read, and why; part of the reason. Empty where it read all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """What is read, and what whose words it repeats is looked up in."""

    new: Sequence[Segment]
    before: Sequence[Segment]
    around: Sequence[Segment]
    unseen_low: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """A stretch, the lines that it is shown as, and the words that a model is asked in."""

    stretch: ReadingWindow
    lines: tuple[Line, ...]
    prompt: Prompt


@dataclass(slots=True, kw_only=True)
class _DraftCollector:
    """The drafts and refusals of one extraction so far."""

    texts: dict[SegmentId, str] = field(default_factory=dict, repr=False)
    """What is readable of each new segment."""
    drafts: list[FactDraft] = field(default_factory=list, repr=False)
    refused: list[RefusedDraft] = field(default_factory=list)
    spent_tokens: int = 0
    troubles: list[str] = field(default_factory=list)

    def take(self, admitted: Admitted) -> None:
        if admitted.draft is not None:
            self.drafts.append(admitted.draft)
        else:
            self.refused.append(RefusedDraft(reason=admitted.reason, segment=admitted.segment))


async def extract(
    new: Sequence[Segment],
    before: Sequence[Segment],
    *,
    model: Model,
    max_output_tokens: int,
    now: float,
    window_tokens: int = WINDOW_TOKENS,
    max_calls: int = MOST_CALLS,
    earlier_low: Sequence[Segment] = (),
    unseen_low: bool = False,
) -> Extracted:
    """The facts that `new` states; `before` is there for understanding.

    The model is asked once per window of at most `window_tokens`, less if its own window is smaller
    (`fitting_tokens`), and `max_calls` times at the most. ModelError if nothing of its first answer
    can be read. If it fails after that, what was found is kept and `left_out` reports it. Times
    after `now` become `now`, so that a clock that ran ahead decides nothing.

    `earlier_low` are segments in front of `before`, in order, that only show whose words are
    repeated. `unseen_low` says that tools may have spoken even further back.
    """
    known = {segment.id: segment for segment in (*earlier_low, *before, *new)}
    page = _Page(new=new, before=before, around=tuple(known.values()), unseen_low=unseen_low)
    collector = _DraftCollector()
    tokens = fitting_tokens(window_tokens, model.window_tokens, max_output_tokens)
    # a page of large outputs takes seconds to read: no other request may wait for it
    cut = await asyncio.to_thread(
        _windows, page, collector, tokens, max_output_tokens, max(max_calls, 0)
    )
    left_out = await _by_model(cut, page, collector, model)
    trouble = "; ".join(filter(None, [*dict.fromkeys(collector.troubles), left_out]))
    return Extracted(
        drafts=tuple(_not_ahead(draft, now) for draft in collector.drafts),
        refused=tuple(collector.refused),
        spent_tokens=collector.spent_tokens,
        asked=bool(cut.windows),
        reason=_reason(collector, trouble),
        trouble=trouble,
        left_out=left_out,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """The windows that a model is asked about, and how many there are."""

    windows: tuple[_Window, ...]
    of: int


def _windows(
    page: _Page, collector: _DraftCollector, tokens: int, max_output_tokens: int, max_calls: int
) -> _Cut:
    """If no sentence of a window could support anything there is nothing to ask."""
    collector.texts.update((segment.id, readable(segment)) for segment in page.new)
    stretches = windows(
        page.new,
        tokens=tokens,
        overlap_tokens=OVERLAP_TOKENS,
        before=page.before,
        texts=collector.texts,
    )
    cut: list[_Window] = []
    for at, stretch in enumerate(stretches):
        if len(cut) == max_calls:
            return _Cut(windows=tuple(cut), of=len(cut) + len(stretches) - at)
        lines = lines_of(stretch)
        if any(line.number for line in lines):
            prompt = extraction_prompt(stretch, lines, max_output_tokens=max_output_tokens)
            cut.append(_Window(stretch=stretch, lines=lines, prompt=prompt))
    return _Cut(windows=tuple(cut), of=len(cut))


async def _by_model(cut: _Cut, page: _Page, collector: _DraftCollector, model: Model) -> str:
    """Ask about each window; what was left out, and why."""
    for at, window in enumerate(cut.windows):
        try:
            answer = await model.ask(window.prompt)
        except ModelError as error:
            if not at:
                raise
            return f"{_left_out(at, cut.of)}, then it failed ({str(error) or type(error).__name__})"
        claims = read_claims(answer, MOST_FACTS)
        if claims.unreadable and not at:
            raise ModelError(claims.trouble)
        await asyncio.to_thread(_take_answer, answer, claims, window, page, collector)
    if len(cut.windows) < cut.of:
        return f"{_left_out(len(cut.windows), cut.of)}: it is asked no more often for one page"
    return ""


def _left_out(read: int, of: int) -> str:
    return f"the model read {read} of {of} windows"


def _take_answer(
    answer: Answer, read: Claims, window: _Window, page: _Page, collector: _DraftCollector
) -> None:
    collector.spent_tokens += spent_tokens(window.prompt, answer)
    if read.trouble:
        collector.troubles.append(read.trouble)
    collector.refused.extend(RefusedDraft(reason="malformed") for _ in range(read.malformed))
    proposed: list[Proposed] = []
    for claim in read.claims:
        made = draft_claim(claim, window.stretch, window.lines)
        if made.draft is None:
            collector.refused.append(RefusedDraft(reason=made.reason, segment=made.segment))
        else:
            proposed.append(Proposed(draft=made.draft, spans=made.spans))
    judged = admit(proposed, page.around, unseen_low=page.unseen_low)
    for proposal, admitted in zip(proposed, judged, strict=True):
        if _known(proposal.draft, collector.drafts):
            segment = proposal.draft.evidence[0].segment
            collector.refused.append(RefusedDraft(reason="it was found already", segment=segment))
        else:
            collector.take(admitted)


def _known(draft: FactDraft, drafts: Sequence[FactDraft]) -> bool:
    """Whether a draft before it says the same of the same message."""
    text = draft.content.casefold()
    for fact_draft in drafts:
        overlapping = any(_overlap(a, b) for a in fact_draft.evidence for b in draft.evidence)
        if overlapping and fact_draft.content.casefold() == text:
            return True
    return False


def _overlap(span: EvidenceSpan, other: EvidenceSpan) -> bool:
    return span.segment == other.segment and span.start < other.end and other.start < span.end


def _not_ahead(draft: FactDraft, now: float) -> FactDraft:
    return draft if draft.at <= now else replace(draft, at=now)


def _reason(collector: _DraftCollector, trouble: str) -> str:
    if not any(text and not text.isspace() for text in collector.texts.values()):
        return "nothing that is read for facts"
    counts = f"{len(collector.drafts)} found, {len(collector.refused)} refused"
    return "; ".join(filter(None, [counts, trouble]))
