"""Summarizes the messages that a cut removes: each piece, then all pieces together, and the
beginning of a split turn. A failed call is repeated with smaller pieces, then with a simpler
prompt. The fourth failure ends the compaction. A failed summary is never replaced by a fixed
text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from recollect.core.compaction.ask import (
    Accepted,
    Ask,
    CountTokens,
    Kind,
    Rejected,
    accept,
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
from recollect.core.compaction.probe import lacks_probe
from recollect.core.compaction.receipt import AuditResult, audit
from recollect.core.formats.summaries import part_pinned
from recollect.core.rules.tokens import count_text
from recollect.core.values.compaction import Carried, CutPlan, NoSummary, Spent, Summarized
from recollect.core.values.history import Entry
from recollect.core.values.model import Answer, Overflow, Prompt, WireRules
from recollect.core.values.reason import Cause, Number, Reason
from recollect.errors import ModelError, ModelOverflow, ModelRefused, ModelUnavailable
from recollect.system.config.settings import Compaction

SIMPLE_AFTER = 3
"""Not measured; a model that failed so often gets a prompt without headings."""
MAX_FAILURES = 4
"""Not measured; bounds the calls that a failing compaction costs."""
MERGED_AT_ONCE = 4
"""Not measured; so many summaries fit a call next to the answer."""
MERGED_AFTER_FAILURE = 2
"""The smallest merge that makes progress."""
NO_HISTORY = "No prior history."
TURN_JOINT = "\n\n---\n\n**Turn Context (split turn):**\n\n"
_TURN_HEADING = TURN_JOINT.strip("-\n")
VERBATIM_TURN_TOKENS = 120
"""Not measured; notes on so short a text would be as long as the text."""
MAX_LARGE_NOTES = 8
"""Not measured; bounds the list of messages that were too large."""
MAX_CALLS = 64
"""Not measured; about twice the 33 calls that `MOST_READ_PIECES` make."""
LARGE_HEADING = "## Too large to be read whole"
_Stretch = tuple[tuple[Entry, ...], Kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Summary:
    text: str = field(repr=False)
    prompt: Prompt | None = field(default=None, repr=False)
    material: str = field(default="", repr=False)
    previous: str = field(default="", repr=False)
    entries: tuple[Entry, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    history: _Summary
    turn: _Summary | None = None


class Summarizer:
    """Writes the summary of one compaction."""

    def __init__(
        self,
        ask: Ask,
        settings: Compaction,
        rules: WireRules,
        *,
        window_tokens: int,
        count_tokens: CountTokens = count_text,
        most_summary_tokens: int | None = None,
        lines_tokens: int = 0,
        instructions: str = "",
        rules_text: str = "",
        mask: Callable[[str], str] = str,
    ) -> None:
        """`window_tokens` is the window of the summarizing model. `most_summary_tokens` limits the
        summary, `instructions` set its focus, and `rules_text` is appended unchanged."""
        self._ask, self._settings, self._count = ask, settings, count_tokens
        self._lines_tokens, self._focus, self._rules_text = lines_tokens, instructions, rules_text
        self._mask = mask
        self._deadline = time.monotonic() + settings.deadline_seconds
        self._sizes = Sizes(
            scribe=PieceWriter(rules, count_tokens),
            count_tokens=count_tokens,
            window_tokens=window_tokens,
            most_summary_tokens=min(SUMMARY_TOKENS, most_summary_tokens or window_tokens),
            one_pass=settings.mode == "default",
            focus=instructions,
        )
        self.costs: Spent = Spent(max_calls=MAX_CALLS)
        self._spare = 1
        self._failures = 0
        self._merged_at_once = MERGED_AT_ONCE
        self._notes: list[Reason] = []
        self._pieces = 0
        self._oversized: list[Entry] = []

    async def summarize(
        self, plan: CutPlan, previous_summary: str = "", previous_carried: Carried | None = None
    ) -> Summarized | NoSummary:
        """Summarize the messages that `plan` cuts, and continue the previous summary."""
        thinned_count = self._sizes.scribe.shorten_largest(
            plan.summarized, self._sizes.readable_tokens
        )
        stretches = self._stretches(plan)
        self.costs = Spent(max_calls=self._max_calls(stretches))
        if thinned_count:
            self._note(Cause.HISTORY_THINNED, messages=thinned_count)
        draft = await self._draft(stretches, plan, strip_carried(previous_summary))
        if isinstance(draft, Rejected):
            return NoSummary(reason=draft.reason, spent=self.costs)
        details = await asyncio.to_thread(
            carry, plan.summarized, previous_carried, kept_entries=plan.kept
        )
        text = self._write_text(draft, details)
        if self._settings.audit:
            text = await self._improve(text, draft, plan, details, previous_summary)
        return Summarized(
            text=text,
            carried=details,
            spent=self.costs,
            chunks=self._pieces,
            notes=tuple(map(str, self._notes)),
            oversized=len(self._oversized),
        )

    def _stretches(self, plan: CutPlan) -> tuple[_Stretch, ...]:
        sizes = self._sizes
        early_chunks, main_chunks = share(
            [piece.entries for piece in sizes.pieces(plan.history, "history")],
            window_tokens=sizes.window_tokens,
            max_history_share=self._settings.max_history_share,
            weigh=sizes.scribe.tokens,
        )
        stretches: list[_Stretch] = [
            (tuple(entry for entries in chunks for entry in entries), "history")
            for chunks in (early_chunks, main_chunks)
            if chunks
        ]
        read = self._count(sizes.scribe.text(plan.turn_prefix))
        if read > min(VERBATIM_TURN_TOKENS, sizes.summary_tokens // 4):
            stretches.append((plan.turn_prefix, "turn"))
        return tuple(stretches)

    def _max_calls(self, stretches: Sequence[_Stretch]) -> int:
        counts = [self._sizes.count_max_pieces(entries, kind) for entries, kind in stretches]
        work = sum(2 * count - 1 for count in counts if count)
        spare = MAX_FAILURES - 1 + 1 + (1 if self._settings.audit else 0)
        return min(MAX_CALLS, work + spare) if work else 0

    async def _draft(
        self, stretches: Sequence[_Stretch], plan: CutPlan, before: str
    ) -> _Draft | Rejected:
        previous, turn_before = _part(before, plan)
        summaries = {"history": _Summary(text=previous)}
        for entries, kind in stretches:
            earlier = summaries["history"].text if kind == "history" else turn_before
            summary = await self._summary_of(entries, earlier, kind)
            if isinstance(summary, Rejected):
                return summary
            summaries[kind] = summary
        history, turn = summaries["history"], summaries.get("turn")
        if turn is None and plan.turn_prefix:
            text = self._sizes.scribe.text(plan.turn_prefix)
            turn = _Summary(text="\n\n".join(filter(None, (turn_before, text))))
        if not history.text and (turn is None or not turn.text):
            return Rejected(reason=Reason(Cause.NOTHING_TO_SUMMARIZE), terminal=True)
        return _Draft(history=history, turn=turn)

    async def _summary_of(
        self, entries: Sequence[Entry], previous: str, kind: Kind
    ) -> _Summary | Rejected:
        previous = fit_tokens(previous, self._sizes.previous_tokens, self._count)
        waiting = list(self._sizes.pieces(entries, kind))
        partials: list[_Summary] = []
        while waiting:
            summary = await self._read(waiting[0], "" if partials else previous, kind)
            if isinstance(summary, Rejected):
                if self._gives_up(summary):
                    return summary
                waiting = self._split_smaller(waiting, kind, summary)
                continue
            partials.append(summary)
            self._oversized += waiting.pop(0).oversized
        self._pieces += len(partials)
        return await self._merge_all(partials, kind) if partials else _Summary(text=previous)

    async def _read(self, piece: ReadPiece, previous: str, kind: Kind) -> _Summary | Rejected:
        terms = self._sizes.make_terms(kind)
        if self._is_simple:
            prompt = simple_prompt(piece.text, previous, terms)
        elif kind == "turn":
            prompt = turn_prompt(piece.text, terms, previous)
        elif previous:
            prompt = update_prompt(piece.text, previous, terms)
        else:
            prompt = initial_prompt(piece.text, terms)
        return await self._ask_for_summary(prompt, piece.text, previous, piece.entries)

    async def _merge_all(self, partials: Sequence[_Summary], kind: Kind) -> _Summary | Rejected:
        waiting = list(partials)
        while len(waiting) > 1:
            level: list[_Summary] = []
            while waiting:
                group = waiting[: self._merged_at_once]
                summary = group[0] if len(group) == 1 else await self._merge(group, kind)
                if isinstance(summary, _Summary):
                    level.append(summary)
                    del waiting[: len(group)]
                elif self._gives_up(summary):
                    return summary
                else:
                    self._merged_at_once = MERGED_AFTER_FAILURE
            waiting = level
        return waiting[0]

    async def _merge(self, group: Sequence[_Summary], kind: Kind) -> _Summary | Rejected:
        terms = self._sizes.make_terms(kind)
        texts = [fit_tokens(summary.text, terms.summary_tokens, self._count) for summary in group]
        material = "\n\n".join(texts)
        if self._is_simple:
            return await self._ask_for_summary(simple_prompt(material, "", terms), material, "")
        return await self._ask_for_summary(merge_prompt(texts, terms, kind), material, "")

    async def _ask_for_summary(
        self, prompt: Prompt, material: str, previous: str, entries: tuple[Entry, ...] = ()
    ) -> _Summary | Rejected:
        answer = await self._answer(prompt, material, previous, entries)
        if isinstance(answer, Rejected):
            return answer
        if answer.cut_off:
            self._note(Cause.SUMMARY_CUT_OFF)
        return _Summary(
            text=answer.text, prompt=prompt, material=material, previous=previous, entries=entries
        )

    async def _answer(
        self, prompt: Prompt, material: str, previous: str, entries: tuple[Entry, ...]
    ) -> Accepted | Rejected:
        while True:
            if self.costs.calls >= self.costs.max_calls:
                return Rejected(reason=Reason(Cause.CALLS_USED_UP), terminal=True)
            if time.monotonic() >= self._deadline:
                return Rejected(reason=Reason(Cause.SUMMARY_LATE), terminal=True)
            self.costs = replace(self.costs, calls=self.costs.calls + 1)
            try:
                async with asyncio.timeout(self._deadline - time.monotonic()):
                    answer = await self._ask(prompt)
            except TimeoutError:
                return Rejected(reason=Reason(Cause.SUMMARY_LATE), terminal=True)
            except ModelUnavailable as error:
                if self._spare:
                    self._spare -= 1
                    continue
                return Rejected(reason=Reason(Cause.MODEL_AWAY, error=str(error)), terminal=True)
            except ModelRefused as error:
                return Rejected(reason=Reason(Cause.MODEL_REFUSED, error=str(error)), terminal=True)
            except ModelOverflow as error:
                overflow = error.overflow
                limit = overflow.limit_tokens if isinstance(overflow, Overflow) else None
                return Rejected(reason=Reason(Cause.MODEL_OVERFLOW), limit_tokens=limit)
            except ModelError as error:
                return Rejected(reason=Reason(Cause.MODEL_WRONG, error=str(error)))
            self._account(prompt, answer)
            verdict = accept(
                replace(answer, text=self._mask(answer.text)),
                material,
                count_tokens=self._count,
                previous=previous,
                focus=self._focus,
            )
            repeats = isinstance(verdict, Accepted) and verdict.repeats_previous
            if repeats and await asyncio.to_thread(lacks_probe, previous, entries):
                return Rejected(reason=Reason(Cause.ANSWER_UNCHANGED))
            return verdict

    def _account(self, prompt: Prompt, answer: Answer) -> None:
        if answer.usage is not None:
            input_tokens, output_tokens = answer.usage.input_tokens, answer.usage.output_tokens
        else:
            input_tokens = self._count(prompt.system) + self._count(prompt.text)
            output_tokens = self._count(answer.text)
        self.costs = replace(
            self.costs,
            input_tokens=self.costs.input_tokens + input_tokens,
            output_tokens=self.costs.output_tokens + output_tokens,
        )

    @property
    def _is_simple(self) -> bool:
        return self._failures >= SIMPLE_AFTER

    def _gives_up(self, rejection: Rejected) -> bool:
        self._failures += 1
        if rejection.terminal or self._failures >= MAX_FAILURES:
            return True
        before = self._sizes
        self._sizes = before.after_failure(rejection.limit_tokens)
        if self._sizes.window_tokens < before.window_tokens:
            self._note(Cause.SUMMARY_WINDOW, tokens=self._sizes.window_tokens)
        if self._is_simple:
            self._note(Cause.SIMPLER_PROMPT, why=rejection.reason)
        return False

    def _split_smaller(
        self, waiting: Sequence[ReadPiece], kind: Kind, rejection: Rejected
    ) -> list[ReadPiece]:
        entries = [entry for piece in waiting for entry in piece.entries]
        pieces = list(self._sizes.pieces(entries, kind))
        if pieces[0].text != waiting[0].text:
            self._note(Cause.SMALLER_CHUNKS, why=rejection.reason)
        elif not self._is_simple:
            self._failures = SIMPLE_AFTER
            self._note(Cause.SIMPLER_PROMPT, why=rejection.reason)
        return pieces

    def _note(self, cause: Cause, **numbers: Number) -> None:
        reason = Reason(cause, **numbers)
        if reason not in self._notes:
            self._notes.append(reason)

    def _write_text(self, draft: _Draft, details: Carried) -> str:
        body = draft.history.text
        if notes := _large_notes(self._oversized, self._sizes.scribe):
            body = f"{body}\n\n{notes}" if body else notes
        if draft.turn is not None:
            body = f"{body or NO_HISTORY}{TURN_JOINT}{draft.turn.text}"
        return append_carried(
            body,
            details,
            self._rules_text,
            most_tokens=self._sizes.summary_tokens,
            lines_tokens=self._lines_tokens,
            count_tokens=self._count,
        )

    async def _improve(
        self, text: str, draft: _Draft, plan: CutPlan, details: Carried, previous_summary: str
    ) -> str:
        lacks = _audit(text, draft, plan)
        if lacks.passed:
            return text
        weak_part = _second(draft, lacks)
        if _asked_in_vain(lacks, previous_summary):
            self._note(Cause.SECOND_SPARED)
        elif weak_part.prompt is not None and not self._is_simple:
            prompt = audit_prompt(weak_part.prompt, lacks.missing())
            answer = await self._answer(
                prompt, weak_part.material, weak_part.previous, weak_part.entries
            )
            if isinstance(answer, Rejected):
                self._note(Cause.SECOND_FAILED, why=answer.reason)
            else:
                second = replace(weak_part, text=answer.text)
                of_turn = weak_part is draft.turn
                better = replace(draft, turn=second) if of_turn else replace(draft, history=second)
                new_text = self._write_text(better, details)
                new_lacks = _audit(new_text, better, plan)
                if new_lacks.faults < lacks.faults:
                    text, lacks = new_text, new_lacks
        if not lacks.passed:
            self._note(Cause.SUMMARY_LACKS, missing=lacks.said)
        return text


def _part(previous: str, plan: CutPlan) -> tuple[str, str]:
    """Separate the previous summary from its notes on the turn that this cut splits again."""
    if not plan.continues_turn or _TURN_HEADING not in previous:
        return previous, ""
    body, quotes = part_pinned(previous)
    history, _, turn = body.partition(_TURN_HEADING)
    history = history.rstrip("-\n ")
    history = "" if history == NO_HISTORY else history
    turn = turn.replace(_TURN_HEADING, "").strip("-\n ")
    return "\n\n".join(text for text in (history, quotes) if text), turn


def _audit(text: str, draft: _Draft, plan: CutPlan) -> AuditResult:
    result = audit(text, plan.summarized)
    return result if draft.history.prompt is not None else replace(result, sections=())


def _asked_in_vain(lacks: AuditResult, previous_summary: str) -> bool:
    """Return whether the summary lacks only headings that the previous one lacks too, so that
    asking again does not help."""
    if not previous_summary or lacks.identifiers or lacks.ask:
        return False
    return set(lacks.sections) <= set(audit(previous_summary, ()).sections)


def _second(draft: _Draft, lacks: AuditResult) -> _Summary:
    if draft.turn is not None and draft.turn.prompt is not None and lacks.ask:
        return draft.history if lacks.sections else draft.turn
    return draft.history


def _large_notes(entries: Sequence[Entry], scribe: PieceWriter) -> str:
    if not entries:
        return ""
    lines = [
        f"[Large {entry.role} message (~{max(1, scribe.tokens(entry) // 1000)}K tokens): only its "
        "beginning and end were read]"
        for entry in entries[:MAX_LARGE_NOTES]
    ]
    if len(entries) > MAX_LARGE_NOTES:
        lines.append(f"[{len(entries) - MAX_LARGE_NOTES} more large messages]")
    return "\n".join([LARGE_HEADING, *lines])
