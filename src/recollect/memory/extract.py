"""Extract: the facts that a session states, by rules and, where there is one, by a model.

Owns what may become a fact. Rules come first; a model's drafts are added where they pass `support`
and do not say again what a rule found. Must never take a fact from a recalled block, a summary, a
note, noise or thinking (`readable`), nor let one rest on what was read before alone. What always
holds: every draft names the span it rests on; its trust is that of the least trusted whose words
it repeats; what tools brought in gives statements of how things are, and never a preference, a
decision or an order. What is refused is told without its words. A ModelError is the caller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from recollect.memory.explicit import explicit
from recollect.memory.reading.admit import Admitted, admit
from recollect.memory.reading.answer import Claims, read_claims
from recollect.memory.reading.draft_claim import draft_claim
from recollect.memory.reading.prompt import (
    MOST_FACTS,
    extraction_prompt,
    fitting_tokens,
    lines_of,
)
from recollect.memory.reading.readable import readable, why_unread
from recollect.memory.reading.windows import WINDOW_TOKENS, Stretch, windows
from recollect.ports import Model
from recollect.rules.tokens import count_text
from recollect.values.fact import Evidence, FactDraft, RefusedDraft
from recollect.values.model import Answer, Prompt
from recollect.values.segment import Segment

OVERLAP_TOKENS: Final = 300
"""What stands before a window: about the last two or three messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """What was found in a stretch, and what was not taken for a fact."""

    drafts: tuple[FactDraft, ...]
    refused: tuple[RefusedDraft, ...]
    spent_tokens: int
    asked: bool
    """Whether a model was asked."""
    reason: str


@dataclass(slots=True, kw_only=True)
class _Found:
    """What was found so far."""

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
    model: Model | None,
    max_output_tokens: int,
    now: float,
    window_tokens: int = WINDOW_TOKENS,
) -> Extracted:
    """The facts that `new` states; `before` is there for understanding.

    However much `new` is, all of it is read: the model is asked once a window of at most
    `window_tokens`, less where its own window is smaller (`fitting_tokens`). Times of what is
    said after `now` are `now`, so that a clock that ran ahead decides nothing.
    """
    around = (*before, *new)
    found = _Found()
    # a page of large outputs takes seconds to read: nobody else may wait for it
    await asyncio.to_thread(_by_rules, new, around, found)
    by_rules = len(found.drafts)
    stretches: tuple[Stretch, ...] = ()
    if model is not None:
        tokens = fitting_tokens(window_tokens, model.window_tokens, max_output_tokens)
        stretches = _stretches(new, before, tokens)
        for stretch in stretches:
            await _by_model(stretch, around, found, model, max_output_tokens)
    return Extracted(
        drafts=tuple(_not_ahead(draft, now) for draft in found.drafts),
        refused=tuple(found.refused),
        spent_tokens=found.spent_tokens,
        asked=bool(stretches),
        reason=_reason(found, by_rules, new, model),
    )


def _by_rules(new: Sequence[Segment], around: Sequence[Segment], found: _Found) -> None:
    for segment in new:
        _read_by_rules(segment, around, found)


def _read_by_rules(segment: Segment, around: Sequence[Segment], found: _Found) -> None:
    if why_unread(segment) is not None or segment.role == "tool":
        return
    result = explicit(segment)
    found.refused.extend(result.refused)
    text = readable(segment)
    for draft in result.drafts:
        spans = [text[one.start : one.end] for one in draft.evidence]
        if not all(span.strip() for span in spans):
            found.refused.append(
                RefusedDraft(reason="it rests on what may not be read", segment=segment.id)
            )
            continue
        found.take(admit(draft, spans, around))


async def _by_model(
    stretch: Stretch,
    around: Sequence[Segment],
    found: _Found,
    model: Model,
    max_output_tokens: int,
) -> None:
    prompt = extraction_prompt(stretch, max_output_tokens=max_output_tokens)
    answer = await model.ask(prompt)
    found.spent_tokens += _spent(prompt, answer)
    await asyncio.to_thread(_take_claims, read_claims(answer, MOST_FACTS), stretch, around, found)


def _take_claims(read: Claims, stretch: Stretch, around: Sequence[Segment], found: _Found) -> None:
    if read.trouble:
        found.troubles.append(read.trouble)
    found.refused.extend(RefusedDraft(reason="malformed") for _ in range(read.malformed))
    for claim in read.claims:
        made = draft_claim(claim, stretch)
        if made.draft is None:
            found.refused.append(RefusedDraft(reason=made.reason, segment=made.segment))
        elif _known(made.draft, found.drafts):
            segment = made.draft.evidence[0].segment
            found.refused.append(RefusedDraft(reason="it was found already", segment=segment))
        else:
            found.take(admit(made.draft, made.spans, around))


def _known(draft: FactDraft, drafts: Sequence[FactDraft]) -> bool:
    """Whether a draft before it rests on the same words, or says the same of the same message."""
    said = draft.content.casefold()
    for one in drafts:
        overlapping = any(_overlap(a, b) for a in one.evidence for b in draft.evidence)
        if overlapping and (one.made_by == "rules" or one.content.casefold() == said):
            return True
    return False


def _overlap(one: Evidence, other: Evidence) -> bool:
    return one.segment == other.segment and one.start < other.end and other.start < one.end


def _stretches(
    new: Sequence[Segment], before: Sequence[Segment], tokens: int
) -> tuple[Stretch, ...]:
    cut = windows(new, tokens=tokens, overlap_tokens=OVERLAP_TOKENS, before=before)
    # where no sentence could support anything there is nothing to ask
    return tuple(one for one in cut if any(line.number for line in lines_of(one)))


def _spent(prompt: Prompt, answer: Answer) -> int:
    if answer.usage is not None:
        return answer.usage.input_tokens + answer.usage.output_tokens
    return sum(map(count_text, (prompt.system, prompt.text, answer.text)))


def _not_ahead(draft: FactDraft, now: float) -> FactDraft:
    return draft if draft.at <= now else replace(draft, at=now)


def _reason(found: _Found, by_rules: int, new: Sequence[Segment], model: Model | None) -> str:
    if not any(readable(segment).strip() for segment in new):
        return "nothing that is read for facts"
    said = f"{by_rules} by rules"
    said += ", no model" if model is None else f", {len(found.drafts) - by_rules} by the model"
    said += f", {len(found.refused)} refused"
    return "; ".join([said, *dict.fromkeys(found.troubles)])
