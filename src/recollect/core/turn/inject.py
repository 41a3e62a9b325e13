"""Inserts one recalled block within its budget: everything, fewer messages, facts only, or nothing.
Recalled text cannot end its block early, and is marked as reference material (docs/design.md)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from math import floor
from typing import Final, Literal, TypeAlias, TypeVar

from recollect.core.formats.recalled_block import (
    SAID_BY,
    defuse_tags,
    fact_line,
    passage_line,
    recalled_items,
    write_block,
    write_openclaw_block,
)
from recollect.core.rules.calls import calls_at_work
from recollect.core.rules.text import one_line, sentence_spans
from recollect.core.rules.tokens import Weigher
from recollect.core.search.facts import FACTS_SHARE
from recollect.core.search.names import speaker_of
from recollect.core.turn.query import last_turn, spoken_text
from recollect.core.values.edit import Insert, Placement
from recollect.core.values.history import Entry
from recollect.core.values.message import Other
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import Candidate, Hit, Recalled, RecalledFact, RecalledPassage
from recollect.core.values.segment import Segment
from recollect.system.config.settings import Citations, RecallMethod
from recollect.system.config.settings import Placement as PlacementSetting

_Found = TypeVar("_Found", RecalledFact, RecalledPassage)
Fill: TypeAlias = Literal["everything", "fewer details", "facts only", "none"]
_FACT_MARKS: Final = re.compile(r"- \[[^\]\n]*\] (?:\([^)\n]*\) )?")
_SPEAKER: Final = re.compile(r"[^:\n]{1,80}: ")
_HIT_SHARE: Final = 0.5
"""A passage with less than this share of the best score only counts as a neighbor of a hit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectResult:
    """The block as an edit if there is one, its size, and the reason."""

    edit: Insert | None
    fill: Fill
    tokens: int
    reason: Reason


def inject(
    entries: Sequence[Entry],
    recalled: Recalled,
    weigher: Weigher,
    *,
    placement: PlacementSetting,
    budget_tokens: int,
    turn: int,
    method: RecallMethod = "recollect",
) -> InjectResult:
    """Write recalled content into a block of at most `budget_tokens`, and insert it."""
    if recalled.empty:
        return _insert_nothing(Reason(Cause.NOTHING_RECALLED))
    if not entries:
        return _insert_nothing(Reason(Cause.NO_MESSAGE))
    last = last_turn(entries)
    if last.role == "assistant":
        return _insert_nothing(Reason(Cause.ASSISTANT_LAST))
    if calls_at_work(entries) or all(isinstance(part, Other) for part in last.parts):
        return _insert_nothing(Reason(Cause.PROVIDER_WAITS))
    pack_block = _pack_openclaw_block if method == "openclaw" else _pack_block
    text, fill, facts, details = pack_block(recalled, weigher, budget_tokens)
    if not text:
        return _insert_nothing(Reason(Cause.FACTS_DO_NOT_FIT, tokens=budget_tokens))
    tokens = weigher.text(text)
    cause = Cause.RECALLED_BLOCK if fill == "everything" else Cause.RECALLED_PART
    reason = Reason(cause, tokens=tokens, fill=fill)
    side: Placement = "before" if last.role == "user" and spoken_text(last) else "after"
    message_ids = [passage.message_id for passage in details]
    message_ids += [message_id for fact in facts for message_id in fact.message_ids]
    names = [*(passage.name for passage in details), *(fact.name for fact in facts)]
    edit = Insert(
        anchor=last.key,
        placement="head" if placement == "after-system" else side,
        text=text,
        stage="inject",
        reason=reason,
        turn=turn,
        quotes=tuple(dict.fromkeys(id_ for id_ in message_ids if id_ is not None)),
        recalled=tuple(dict.fromkeys(name for name in names if name is not None)),
    )
    return InjectResult(edit=edit, fill=fill, tokens=tokens, reason=reason)


def quote(
    segment: Segment, candidate: Candidate, score: float, citations: Citations, replaced_by: str
) -> RecalledPassage:
    day, minute = day_and_minute(segment.said_at)
    text = segment.text[candidate.start : candidate.end]
    return RecalledPassage(
        text=text,
        role=segment.role,
        said_at=f"{day} {minute}".strip(),
        score=score,
        speaker=_speaker(segment, candidate, cited=citations != "off"),
        source=_source(segment, citations),
        message_id=segment.message_id,
        segment=segment.id,
        session=segment.session,
        ordinal=None if text == segment.text.strip() else candidate.ordinal,
        sitting=f"{segment.session}\n{day}",
        order=(segment.said_at, candidate.sequence, candidate.start),
        replaced_by=replaced_by,
    )


def day_and_minute(epoch_seconds: float) -> tuple[str, str]:
    """Format the day and minute of a time, also of an imported time that no calendar has."""
    try:
        said_at = datetime.fromtimestamp(epoch_seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return "time unknown", ""
    day, _, minute = said_at.isoformat(" ", "minutes").removesuffix("+00:00").partition(" ")
    return day, minute


def _speaker(segment: Segment, candidate: Candidate, *, cited: bool) -> str:
    if segment.source == "file":
        return "" if cited else "memory file"
    if segment.tool is not None:
        return f"call of {segment.tool}" if segment.role == "assistant" else f"{segment.tool} said"
    if segment.role == "tool":  # a document, a search result or a result of the provider's tool
        return SAID_BY[segment.trust]
    if segment.role == "user" and segment.trust == "medium":  # the agent wrote it at a compaction
        return "assistant's summary"
    name = speaker_of(segment.text) if segment.role == "user" else ""
    if not name:
        return segment.role
    return "" if candidate.ordinal == 0 else name


def _source(segment: Segment, citations: Citations) -> str:
    if citations == "off":
        return ""
    if segment.source == "file":
        return segment.origin or ""
    return segment.id[:8] if citations == "on" else ""


def find_repeated_items(text: str, known_items: Collection[str]) -> tuple[str, ...]:
    """Return the passages and facts in the text's blocks whose sentences are all in `known`."""
    known_lines = {line for item in known_items for line in _without_marks(item)}
    return tuple(
        item
        for item in recalled_items(text)
        if any(
            line in known_lines or all(line[a:b] in known_lines for a, b in sentence_spans(line))
            for line in _without_marks(item)
        )
    )


def has_hit(text: str, hits: Sequence[Hit]) -> bool:
    """Return whether a block contains a fact or one of the best `hits`, and not only messages next
    to a hit. If `hits` is empty, return True."""
    word_points = [
        sum(p.points for p in hit.parts if p.name in ("words", "vector")) for hit in hits
    ]
    least = _HIT_SHARE * max(word_points, default=0.0)
    hit_lines = [
        one_line(defuse_tags(hit.text))
        for hit, worth in zip(hits, word_points, strict=True)
        if worth >= least
    ]
    return not hits or any(
        _FACT_MARKS.match(item) or any(hit_line in one_line(item) for hit_line in hit_lines)
        for item in recalled_items(text)
    )


def _without_marks(item: str) -> tuple[str, str]:
    marks = _FACT_MARKS.match(item) or _SPEAKER.match(item)
    return one_line(item), one_line(item[marks.end() :] if marks else item)


def _insert_nothing(reason: Reason) -> InjectResult:
    return InjectResult(edit=None, fill="none", tokens=0, reason=reason)


def _pack_block(
    recalled: Recalled, weigher: Weigher, budget_tokens: int
) -> tuple[str, Fill, Sequence[RecalledFact], Sequence[RecalledPassage]]:
    facts = _best_first(recalled.facts)
    costs = [weigher.text(fact_line(fact)) + 1 for fact in facts]
    facts_budget = budget_tokens * FACTS_SHARE if recalled.passages else budget_tokens
    facts = _until_full(facts, costs, facts_budget, min_count=0)
    passages = _best_first(recalled.passages)
    count = len(passages)
    while count:
        text = write_block(facts, passages[:count])
        excess = weigher.text(text) - budget_tokens
        if excess <= 0:
            is_whole = count == len(passages) and len(facts) == len(recalled.facts)
            fill: Fill = "everything" if is_whole else "fewer details"
            return text, fill, facts, passages[:count]
        # remove passages from the end until the rest may fit, at least one
        while count and excess > 0:
            count -= 1
            excess -= weigher.text(passage_line(passages[count])) + 1
    while facts:
        text = write_block(facts, [])
        if weigher.text(text) <= budget_tokens:
            return text, "facts only", facts, ()
        facts = facts[:-1]
    return "", "none", (), ()


def pack_openclaw(
    facts: Sequence[RecalledFact],
    passages: Sequence[RecalledPassage],
    count: Callable[[str], int],
    budget_tokens: int,
) -> tuple[list[RecalledFact], list[RecalledPassage]]:
    """Choose OpenClaw's content: facts up to 30% of the limit, then as many messages as fit."""
    facts_budget = floor(budget_tokens * FACTS_SHARE)
    kept_facts = _until_full(
        facts, [count(f"- [{fact.type}] {fact.text}") for fact in facts], facts_budget
    )
    ordered_passages = _best_first(passages)
    details = _until_full(
        ordered_passages,
        [count(passage.text) for passage in ordered_passages],
        budget_tokens - facts_budget,
    )
    while details and count(write_openclaw_block(kept_facts, details)) > budget_tokens:
        details.pop()
    if not details and count(write_openclaw_block(kept_facts, ())) > budget_tokens:
        return [], []
    return kept_facts, details


def _until_full(
    findings: Sequence[_Found], costs: Sequence[int], budget_tokens: float, *, min_count: int = 1
) -> list[_Found]:
    count = bisect_right(list(accumulate(costs)), budget_tokens)
    return list(findings[: max(min_count, count)])


def _pack_openclaw_block(
    recalled: Recalled, weigher: Weigher, budget_tokens: int
) -> tuple[str, Fill, Sequence[RecalledFact], Sequence[RecalledPassage]]:
    facts, details = pack_openclaw(recalled.facts, recalled.passages, weigher.text, budget_tokens)
    if not facts and not details:
        return "", "none", (), ()
    is_whole = len(facts) == len(recalled.facts) and len(details) == len(recalled.passages)
    fill: Fill = "everything" if is_whole else "fewer details" if details else "facts only"
    return write_openclaw_block(facts, details), fill, facts, details


def _best_first(findings: Sequence[_Found]) -> list[_Found]:
    return sorted(findings, key=lambda item: -item.score)
