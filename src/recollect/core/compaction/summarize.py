"""Summarises what a cut takes out of the view.

Owns the order: piece by piece, the pieces together, the turn that the cut splits, what code
carries, then the audit with one more try. Every failure costs one call: pieces of half the size,
twice at most, then the simpler prompt; the fourth failure ends it. Must never put a stock text in
the place of a summary: where the model fails, the result is NoSummary and the history stays.
Always holds: `Spent.max_calls` is known before the first call and never exceeded; the same values
give the same prompts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from recollect.core.compaction.ask import (
    Ask,
    CountTokens,
    Kind,
    Rejected,
    SummaryAsker,
    audit_prompt,
    initial_prompt,
    merge_prompt,
    simple_prompt,
    turn_prompt,
    update_prompt,
)
from recollect.core.compaction.carry import append_carried, carry, strip_carried
from recollect.core.compaction.chunks import (
    SUMMARY_TOKENS,
    PieceWriter,
    ReadPiece,
    Sizes,
    fit_tokens,
    share,
)
from recollect.core.compaction.receipt import AuditResult, audit
from recollect.core.formats.summaries import part_pinned
from recollect.core.rules.tokens import count_text
from recollect.core.values.compaction import Carried, CutPlan, NoSummary, Summarized
from recollect.core.values.history import Entry
from recollect.core.values.model import Prompt, WireRules
from recollect.core.values.reason import Cause, Number, Reason
from recollect.system.config.settings import Compaction

SIMPLE_AFTER = 3
"""Failures after which only the simplest prompt is tried: whole, half, quarter."""
MOST_FAILURES = 4
MERGED_AT_ONCE = 4
"""A summary is at most a tenth of the window, so four of them and the answer always fit."""
MERGED_AFTER_FAILURE = 2

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
class StretchSummary:
    """The summary of a stretch, and the last question that led to it."""

    text: str = field(repr=False)
    prompt: Prompt | None = field(default=None, repr=False)
    """None where nothing had to be asked."""
    material: str = field(default="", repr=False)
    previous: str = field(default="", repr=False)
    pieces: int = 0
    oversized: tuple[Entry, ...] = field(default=(), repr=False)


@dataclass(slots=True)
class Stages:
    """The stretches of one compaction, and what their failures taught so far."""

    sizes: Sizes
    asker: SummaryAsker
    failures: int = 0
    merged_at_once: int = MERGED_AT_ONCE
    notes: list[Reason] = field(default_factory=list)

    @property
    def simple(self) -> bool:
        """Only the simplest prompt is left to try."""
        return self.failures >= SIMPLE_AFTER

    async def summary_of(
        self, entries: Sequence[Entry], previous: str, kind: Kind = "history"
    ) -> StretchSummary | Rejected:
        """One summary of `entries` and of the summary before them."""
        previous = fit_tokens(previous, self.sizes.previous_tokens, self.sizes.count_tokens)
        waiting = list(self.sizes.pieces(entries, kind))
        partials: list[StretchSummary] = []
        oversized: list[Entry] = []
        while waiting:
            before = "" if partials else previous
            done = await self._read(waiting[0], before, kind)
            if isinstance(done, Rejected):
                if self._gives_up(done):
                    return done
                waiting = self._smaller(waiting, kind, done)
                continue
            partials.append(done)
            oversized += waiting.pop(0).oversized
        if not partials:
            return StretchSummary(text=previous)
        merged = await self._merged(partials, kind)
        if isinstance(merged, Rejected):
            return merged
        return replace(merged, pieces=len(partials), oversized=tuple(oversized))

    async def _read(self, piece: ReadPiece, previous: str, kind: Kind) -> StretchSummary | Rejected:
        wanted = self.sizes.wanted(kind)
        if self.simple:
            prompt = simple_prompt(piece.text, previous, wanted)
        elif kind == "turn":
            prompt = turn_prompt(piece.text, wanted, previous)
        elif previous:
            prompt = update_prompt(piece.text, previous, wanted)
        else:
            prompt = initial_prompt(piece.text, wanted)
        return await self._asked(prompt, piece.text, previous)

    async def _merged(
        self, partials: Sequence[StretchSummary], kind: Kind
    ) -> StretchSummary | Rejected:
        waiting = list(partials)
        while len(waiting) > 1:
            level: list[StretchSummary] = []
            while waiting:
                some = waiting[: self.merged_at_once]
                done = some[0] if len(some) == 1 else await self._merge(some, kind)
                if isinstance(done, StretchSummary):
                    level.append(done)
                    del waiting[: len(some)]
                elif self._gives_up(done):
                    return done
                else:
                    self.merged_at_once = MERGED_AFTER_FAILURE
            waiting = level
        return waiting[0]

    async def _merge(self, some: Sequence[StretchSummary], kind: Kind) -> StretchSummary | Rejected:
        wanted, count = self.sizes.wanted(kind), self.sizes.count_tokens
        fitted = [fit_tokens(summary.text, wanted.summary_tokens, count) for summary in some]
        material = "\n\n".join(fitted)
        prompt = (
            simple_prompt(material, "", wanted)
            if self.simple
            else merge_prompt(fitted, wanted, kind)
        )
        return await self._asked(prompt, material, "")

    async def _asked(
        self, prompt: Prompt, material: str, previous: str
    ) -> StretchSummary | Rejected:
        done = await self.asker.put(prompt, material, previous)
        if isinstance(done, Rejected):
            return done
        if done.cut_off:
            self.note(Cause.SUMMARY_CUT_OFF)
        return StretchSummary(text=done.text, prompt=prompt, material=material, previous=previous)

    def _gives_up(self, failed: Rejected) -> bool:
        self.failures += 1
        if failed.terminal or self.failures >= MOST_FAILURES:
            return True
        before = self.sizes
        self.sizes = before.after_failure(failed.limit_tokens)
        if self.sizes.window_tokens < before.window_tokens:
            self.note(Cause.SUMMARY_WINDOW, tokens=self.sizes.window_tokens)
        if self.simple:
            self.note(Cause.SIMPLER_PROMPT, why=failed.reason)
        return False

    def _smaller(
        self, waiting: Sequence[ReadPiece], kind: Kind, failed: Rejected
    ) -> list[ReadPiece]:
        rest = [entry for piece in waiting for entry in piece.entries]
        pieces = list(self.sizes.pieces(rest, kind))
        if pieces[0].text != waiting[0].text:
            self.note(Cause.SMALLER_CHUNKS, why=failed.reason)
        elif not self.simple:
            self.failures = SIMPLE_AFTER
            self.note(Cause.SIMPLER_PROMPT, why=failed.reason)
        return pieces

    def note(self, cause: Cause, **numbers: Number) -> None:
        """Say once what had to be done differently."""
        reason = Reason(cause, **numbers)
        if reason not in self.notes:
            self.notes.append(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    history: StretchSummary
    turn: StretchSummary | None = None
    oversized: tuple[Entry, ...] = field(default=(), repr=False)
    pieces: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
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
        audit_result = audit(text, self.plan.summarized)
        return (
            audit_result if draft.history.prompt is not None else replace(audit_result, sections=())
        )


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
) -> Summarized | NoSummary:
    """The summary of what `plan` cuts, going on from the summary before.

    `window_tokens` is the window of the model that summarises; `most_summary_tokens` what the
    session has room for, where its own window is smaller; `lines_tokens` what the lines behind it
    may take on top. `instructions` are what the user gave
    to `/compact`: they say what matters and never become a task. `rules_text` are the
    workspace's rules: appended as they are, never shown to the model.
    """
    sizes = Sizes(
        scribe=PieceWriter(rules, count_tokens),
        count_tokens=count_tokens,
        window_tokens=window_tokens,
        most_summary_tokens=min(SUMMARY_TOKENS, most_summary_tokens or window_tokens),
        one_pass=settings.mode == "default",
        focus=instructions,
    )
    thinned = sizes.scribe.thin(plan.summarized, sizes.readable_tokens)
    stretches = _stretches(plan, sizes, settings)
    asker = SummaryAsker(
        ask,
        count_tokens=count_tokens,
        max_calls=_max_calls(stretches, sizes, settings),
        now=now,
        deadline=now() + settings.deadline_seconds,
        focus=instructions,
    )
    stages = Stages(sizes=sizes, asker=asker)
    if thinned:
        stages.note(Cause.HISTORY_THINNED, messages=thinned)
    history, turn = _parted(strip_carried(previous_summary), plan)
    draft = await _drafted(stages, stretches, plan, history, turn)
    if isinstance(draft, Rejected):
        return NoSummary(reason=draft.reason, spent=asker.spent)
    carried = await asyncio.to_thread(carry, plan.summarized, previous_carried, kept=plan.kept)
    frame = _Frame(
        plan=plan,
        carried=carried,
        rules_text=rules_text,
        sizes=stages.sizes,
        lines_tokens=lines_tokens,
    )
    text = frame.text(draft)
    if settings.audit:
        text = await _improved(text, draft, frame, stages, previous_summary)
    return Summarized(
        text=text,
        carried=carried,
        spent=asker.spent,
        chunks=draft.pieces,
        notes=tuple(map(str, stages.notes)),
        oversized=len(draft.oversized),
    )


def _stretches(plan: CutPlan, sizes: Sizes, settings: Compaction) -> tuple[_Stretch, ...]:
    apart, main = share(
        [piece.entries for piece in sizes.pieces(plan.history, "history")],
        window_tokens=sizes.window_tokens,
        max_history_share=settings.max_history_share,
        weigh=sizes.scribe.tokens,
    )
    stretches: list[_Stretch] = [
        (tuple(entry for entries in chunks for entry in entries), "history")
        for chunks in (apart, main)
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
    return "\n\n".join(text for text in (history, pinned) if text), turn


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
    history = StretchSummary(text=previous)
    turn: StretchSummary | None = None
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
        text = stages.sizes.scribe.text(plan.turn_prefix)
        turn = StretchSummary(text="\n\n".join(other for other in (turn_before, text) if other))
    if not history.text and (turn is None or not turn.text):
        return Rejected(reason=Reason(Cause.NOTHING_TO_SUMMARISE), terminal=True)
    return _Draft(history=history, turn=turn, oversized=tuple(oversized), pieces=pieces)


async def _improved(
    text: str, draft: _Draft, frame: _Frame, stages: Stages, previous_summary: str
) -> str:
    audit_result = frame.audited(text, draft)
    if audit_result.passed:
        return text
    again = _second(draft, audit_result)
    if _asked_in_vain(audit_result, previous_summary):
        stages.note(Cause.SECOND_SPARED)
    elif again.prompt is not None and not stages.simple:
        prompt = audit_prompt(again.prompt, audit_result.missing())
        done = await stages.asker.put(prompt, again.material, again.previous)
        if isinstance(done, Rejected):
            stages.note(Cause.SECOND_FAILED, why=done.reason)
        else:
            second = replace(again, text=done.text)
            of_turn = again is draft.turn
            better = replace(draft, turn=second) if of_turn else replace(draft, history=second)
            other = frame.text(better)
            left = frame.audited(other, better)
            if left.faults < audit_result.faults:
                text, audit_result = other, left
    if not audit_result.passed:
        stages.note(Cause.SUMMARY_LACKS, missing=audit_result.said)
    return text


def _asked_in_vain(audit_result: AuditResult, previous_summary: str) -> bool:
    """Whether nothing is missing but headings that the summary before lacks, too.

    That one was asked for twice because of them: a model that does not write them would be paid
    twice at every compaction.
    """
    if not previous_summary or audit_result.identifiers or audit_result.ask:
        return False
    return set(audit_result.sections) <= set(audit(previous_summary, ()).sections)


def _second(draft: _Draft, audit_result: AuditResult) -> StretchSummary:
    if draft.turn is not None and draft.turn.prompt is not None and audit_result.ask:
        return draft.history if audit_result.sections else draft.turn
    return draft.history


def _large_notes(entries: Sequence[Entry], scribe: PieceWriter) -> str:
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
