"""Summarises what a cut takes out of the view.

Owns the order of it: the stages, the turn that the cut splits, what code carries, then the audit
with one more try. Must never put a stock text in the place of a summary: where the model fails,
the result is NoSummary and the history stays. What always holds: `Spent.max_calls` is known before
the first call and never exceeded; only a ModelError is caught, in `asker`; the same values give the
same prompts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from recollect.compaction.accept import Rejected
from recollect.compaction.append_carried import append_carried, strip_carried
from recollect.compaction.asker import Ask, Asker, CountTokens
from recollect.compaction.audit import AuditResult, audit
from recollect.compaction.carry import carry
from recollect.compaction.pieces import Scribe
from recollect.compaction.prompts import Kind, audit_prompt
from recollect.compaction.share import share
from recollect.compaction.sizes import Sizes
from recollect.compaction.stages import MOST_FAILURES, Staged, Stages
from recollect.config.settings import Compaction
from recollect.formats.summaries import part_pinned
from recollect.rules.tokens import count_text
from recollect.values.compaction import Carried, CutPlan, NoSummary, Summarised
from recollect.values.history import Entry
from recollect.values.model import WireRules
from recollect.values.reason import Cause, Reason

NO_HISTORY = "No prior history."
TURN_JOINT = "\n\n---\n\n**Turn Context (split turn):**\n\n"
"""Both pi's, where a cut splits a turn."""
_TURN_HEADING = TURN_JOINT.strip("-\n")
VERBATIM_TURN_TOKENS = 120
"""A turn's beginning of so little is shorter than a summary of it: it stays as it is."""
MOST_LARGE_NOTES = 8
MOST_CALLS = 64
"""Ours: twice what the largest history takes where nothing fails."""
LARGE_HEADING = "## Too large to be read whole"

_Stretch = tuple[tuple[Entry, ...], Kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """The parts of a summary as the model made them."""

    history: Staged
    turn: Staged | None = None
    oversized: tuple[Entry, ...] = field(default=(), repr=False)
    pieces: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """What stands around the model's words in every draft, and what they are held to."""

    plan: CutPlan
    carried: Carried
    rules_text: str = field(repr=False)
    sizes: Sizes
    lines_tokens: int

    def text(self, draft: _Draft) -> str:
        """The whole summary, with the lines behind it that it does not tell."""
        body = draft.history.text
        if notes := _large_notes(draft.oversized, self.sizes.scribe):
            body = f"{body}\n\n{notes}" if body else notes
        if draft.turn is not None:
            body = f"{body or NO_HISTORY}{TURN_JOINT}{draft.turn.text}"
        return append_carried(
            body,
            self.carried,
            self.rules_text,
            most_tokens=self.sizes.summary_tokens,
            lines_tokens=self.lines_tokens,
            count_tokens=self.sizes.count_tokens,
        )

    def audited(self, text: str, draft: _Draft) -> AuditResult:
        """What the summary lacks; its sections only where they were asked for."""
        found = audit(text, self.plan.summarised)
        return found if draft.history.prompt is not None else replace(found, sections=())


async def summarize(
    plan: CutPlan,
    *,
    ask: Ask,
    window_tokens: int,
    settings: Compaction,
    rules: WireRules,
    previous_summary: str = "",
    previous_carried: Carried | None = None,
    count_tokens: CountTokens = count_text,
    instructions: str = "",
    rules_text: str = "",
    most_summary_tokens: int | None = None,
    lines_tokens: int = 0,
    now: Callable[[], float] = time.monotonic,
) -> Summarised | NoSummary:
    """The summary of what `plan` cuts, going on from the summary before.

    `window_tokens` is the window of the model that summarises; `most_summary_tokens` what the
    session has room for, where its own window is smaller; `lines_tokens` what the lines behind it
    may take on top. `instructions` are what the user gave
    to `/compact`: they say what matters and never become a task. `rules_text` are the
    workspace's rules: appended as they are, never shown to the model.
    """
    sizes = Sizes(
        scribe=Scribe(rules, count_tokens),
        count_tokens=count_tokens,
        window_tokens=window_tokens,
        most_summary_tokens=min(settings.summary_tokens, most_summary_tokens or window_tokens),
        one_pass=settings.mode == "default",
        focus=instructions,
    )
    thinned = sizes.scribe.thin(plan.summarised, sizes.readable_tokens)
    stretches = _stretches(plan, sizes, settings)
    stages = _ready(sizes, stretches, settings, ask, now)
    if thinned:
        stages.note(f"there was more than can be read: {thinned} messages by beginning and end")
    history, turn = _parted(strip_carried(previous_summary), plan)
    draft = await _drafted(stages, stretches, plan, history, turn)
    if isinstance(draft, Rejected):
        return NoSummary(reason=draft.reason, spent=stages.asker.spent)
    carried = await asyncio.to_thread(carry, plan.summarised, previous_carried, kept=plan.kept)
    frame = _Frame(
        plan=plan,
        carried=carried,
        rules_text=rules_text,
        sizes=stages.sizes,
        lines_tokens=lines_tokens,
    )
    return await _completed(draft, frame, stages, audited=settings.audit)


def _ready(
    sizes: Sizes,
    stretches: Sequence[_Stretch],
    settings: Compaction,
    ask: Ask,
    now: Callable[[], float],
) -> Stages:
    """Set the calls aside that all of it may take, before the first one."""
    asker = Asker(
        ask,
        count_tokens=sizes.count_tokens,
        max_calls=_max_calls(stretches, sizes, settings),
        now=now,
        deadline=now() + settings.deadline_seconds,
        focus=sizes.focus,
    )
    return Stages(sizes=sizes, asker=asker)


async def _completed(draft: _Draft, frame: _Frame, stages: Stages, *, audited: bool) -> Summarised:
    text = frame.text(draft)
    if audited:
        text = await _improved(text, draft, frame, stages)
    return Summarised(
        text=text,
        carried=frame.carried,
        spent=stages.asker.spent,
        chunks=draft.pieces,
        notes=tuple(stages.notes),
        oversized=len(draft.oversized),
    )


def _stretches(plan: CutPlan, sizes: Sizes, settings: Compaction) -> tuple[_Stretch, ...]:
    """What is summarised by itself: oldest chunks over the share, the rest, the split turn."""
    parted = share(
        [piece.entries for piece in sizes.pieces(plan.history, "history")],
        window_tokens=sizes.window_tokens,
        max_history_share=settings.max_history_share,
        weigh=sizes.scribe.tokens,
    )
    stretches: list[_Stretch] = [
        (tuple(entry for one in chunks for entry in one), "history")
        for chunks in (parted.apart, parted.main)
        if chunks
    ]
    if plan.turn_prefix and not _stays_verbatim(plan.turn_prefix, sizes):
        stretches.append((plan.turn_prefix, "turn"))
    return tuple(stretches)


def _parted(previous: str, plan: CutPlan) -> tuple[str, str]:
    """The summary before, and the notes of the turn that it split, where this cut splits it again.

    Those notes go on by themselves: left in the summary, they would pile up with each cut, and be
    summarised once more with the history when the turn has ended.
    """
    if not plan.continues_turn or _TURN_HEADING not in previous:
        return previous, ""
    body, pinned = part_pinned(previous)
    history, _, turn = body.partition(_TURN_HEADING)
    history = history.rstrip("-\n ")
    history = "" if history == NO_HISTORY else history
    turn = turn.replace(_TURN_HEADING, "").strip("-\n ")
    return "\n\n".join(one for one in (history, pinned) if one), turn


def _stays_verbatim(entries: Sequence[Entry], sizes: Sizes) -> bool:
    read = sizes.count_tokens(sizes.scribe.text(entries))
    return read <= min(VERBATIM_TURN_TOKENS, sizes.summary_tokens // 4)


def _max_calls(stretches: Sequence[_Stretch], sizes: Sizes, settings: Compaction) -> int:
    """The most that this can cost (docs/compaction.md, "What it costs").

    A stretch of n pieces takes n calls and at most n − 1 to merge them; all failures together one
    call less than are allowed, because the last one ends it; one more for a model that was away,
    and one for the audit. Never over MOST_CALLS.
    """
    counts = [sizes.most_pieces(entries, kind) for entries, kind in stretches]
    work = sum(2 * count - 1 for count in counts if count)
    spare = MOST_FAILURES - 1 + 1 + (1 if settings.audit else 0)
    return min(MOST_CALLS, work + spare) if work else 0


async def _drafted(
    stages: Stages, stretches: Sequence[_Stretch], plan: CutPlan, previous: str, turn_before: str
) -> _Draft | Rejected:
    """All stretches, oldest first; each history enters the next as what came before."""
    history = Staged(text=previous)
    turn: Staged | None = None
    oversized: list[Entry] = []
    pieces = 0
    for entries, kind in stretches:
        before = history.text if kind == "history" else turn_before
        done = await stages.summary_of(entries, before, kind)
        if isinstance(done, Rejected):
            return done
        oversized += done.oversized
        pieces += done.pieces
        if kind == "history":
            history = done
        else:
            turn = done
    if turn is None and plan.turn_prefix:
        said = stages.sizes.scribe.text(plan.turn_prefix)
        turn = Staged(text="\n\n".join(one for one in (turn_before, said) if one))
    if not history.text and (turn is None or not turn.text):
        return Rejected(reason=Reason(Cause.NOTHING_TO_SUMMARISE), terminal=True)
    return _Draft(history=history, turn=turn, oversized=tuple(oversized), pieces=pieces)


async def _improved(text: str, draft: _Draft, frame: _Frame, stages: Stages) -> str:
    """The summary, or a second version of it where that lacks less."""
    found = frame.audited(text, draft)
    if found.passed:
        return text
    again = _second(draft, found)
    if again.prompt is not None and not stages.simple:
        prompt = audit_prompt(again.prompt, found.missing())
        done = await stages.asker.put(prompt, again.material, again.previous)
        if isinstance(done, Rejected):
            stages.note(f"the second version of the summary failed: {done.reason}")
        else:
            second = replace(again, text=done.text)
            of_turn = again is draft.turn
            better = replace(draft, turn=second) if of_turn else replace(draft, history=second)
            other = frame.text(better)
            left = frame.audited(other, better)
            if left.faults < found.faults:
                text, found = other, left
    if not found.passed:
        stages.note(f"the summary lacks: {found.said}")
    return text


def _second(draft: _Draft, found: AuditResult) -> Staged:
    """The part to ask for again: the split turn's where only its ask is missing."""
    if draft.turn is not None and draft.turn.prompt is not None and found.ask:
        return draft.history if found.sections else draft.turn
    return draft.history


def _large_notes(entries: Sequence[Entry], scribe: Scribe) -> str:
    """One line for each message that was too large to be read whole."""
    if not entries:
        return ""
    lines = [
        f"[Large {entry.role} message (~{max(1, scribe.tokens(entry) // 1000)}K tokens): only its "
        "beginning and end were read]"
        for entry in entries[:MOST_LARGE_NOTES]
    ]
    if len(entries) > MOST_LARGE_NOTES:
        lines.append(f"[{len(entries) - MOST_LARGE_NOTES} more large messages]")
    return "\n".join([LARGE_HEADING, *lines])
