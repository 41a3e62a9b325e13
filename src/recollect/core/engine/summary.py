"""A summary for a compaction, by a hook that supplies one, else by the model; and its proof.

Owns who is asked and what they are told; `compaction.summarize` owns how. What was known is then
held against the summary and against memory, which is asked as a turn would ask it, but without
the gate. Always holds: a call of the model is on the bill before it is made, also where nobody
waits for its end; what memory cannot be asked counts as not found, and the receipt says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from recollect.core.compaction.carry import append_carried, carry, strip_carried, without_bare_names
from recollect.core.compaction.chunks import SUMMARY_SHARE, SUMMARY_TOKENS
from recollect.core.compaction.lines import lines_tokens
from recollect.core.compaction.probe import probe
from recollect.core.compaction.receipt import receipt
from recollect.core.compaction.summarize import MOST_CALLS, summarize
from recollect.core.engine.hooks import (
    AbortSignal,
    Hooks,
    SuppliedCompaction,
    cancelled,
    preparation,
    supplied_compaction,
)
from recollect.core.ports import Model, Recaller
from recollect.core.rules.message_redaction import TextMask
from recollect.core.turn.draft import Draft
from recollect.core.values.compaction import CutPlan, NoSummary, Receipt, Spent, Summarized
from recollect.core.values.edit import Carried, Cut
from recollect.core.values.model import Answer, Prompt
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import RecallRequest
from recollect.system.config.settings import Compaction as CompactionSettings

LINES_PART = 8
"""The lines behind a summary take at most this part of what they stand for: else a small cut
would free nothing."""
HOOK_SHARE = 0.5
"""Of the time that a compaction has, what a hook may take that could supply the summary."""


@dataclass(slots=True)
class Bill:
    """What one compaction has asked of the model so far."""

    spent: Spent = field(default_factory=lambda: Spent(max_calls=MOST_CALLS))

    def add(self) -> None:
        """One more call."""
        self.spent = replace(self.spent, calls=self.spent.calls + 1)


class Summarizer:
    """Makes the summaries of one engine."""

    def __init__(
        self,
        settings: CompactionSettings,
        *,
        model: Model | None,
        hooks: Hooks,
        critical_rules: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._model = model
        self._hooks = hooks
        self._critical_rules = critical_rules

    @property
    def why_not(self) -> Reason | None:
        """Why nobody can be asked; None where somebody can."""
        if self._model is None and not self._hooks.listens("session_before_compact"):
            return Reason(Cause.NO_MODEL)
        return None

    def summary_tokens(self, draft: Draft) -> int:
        """The longest summary, without the lines and pins that code adds."""
        return min(SUMMARY_TOKENS, draft.given.limits.window_tokens // SUMMARY_SHARE)

    async def summarize(
        self,
        draft: Draft,
        plan: CutPlan,
        before: Cut | None,
        mask: TextMask,
        *,
        instructions: str,
        supplied: SuppliedCompaction | None,
        begun: float,
        bill: Bill,
    ) -> Summarized | NoSummary:
        """The summary of what the plan cuts, with the lines that it does not tell behind it.

        The plan and the cut `before` it are masked by `mask`, and so is all that others say here;
        what a hook `supplied` takes the place of the model's.
        """
        previous = "" if before is None else before.summary
        earlier = None if before is None else before.carried
        rules_text = mask.text(await asyncio.to_thread(self._critical_rules))
        if supplied is not None:
            return await self._completed(draft, plan, mask, supplied, rules_text, earlier)
        return await self._by_model(
            draft,
            plan,
            mask,
            mask.text(instructions),
            rules_text,
            previous,
            earlier,
            begun=begun,
            bill=bill,
        )

    async def _by_model(
        self,
        draft: Draft,
        plan: CutPlan,
        mask: TextMask,
        instructions: str,
        rules_text: str,
        previous: str,
        earlier: Carried | None,
        *,
        begun: float,
        bill: Bill,
    ) -> Summarized | NoSummary:
        model, settings = self._model, self._settings
        if model is None:
            why = Reason(Cause.NO_SUPPLIER)
            return NoSummary(reason=why, spent=Spent())

        async def ask(prompt: Prompt) -> Answer:
            bill.add()
            answer = await model.ask(prompt)
            return replace(answer, text=mask.text(answer.text))

        left = max(1.0, settings.deadline_seconds - (time.monotonic() - begun))
        return await summarize(
            plan,
            ask=ask,
            window_tokens=model.window_tokens or draft.given.limits.window_tokens,
            settings=replace(settings, deadline_seconds=min(settings.deadline_seconds, left)),
            previous_summary=previous,
            previous_carried=earlier,
            rules=draft.given.codec.rules,
            count_tokens=draft.given.weigher.text,
            most_summary_tokens=draft.given.estimated(self.summary_tokens(draft)),
            lines_tokens=_lines_tokens(draft, plan),
            instructions=instructions,
            rules_text=rules_text,
        )

    async def _completed(
        self,
        draft: Draft,
        plan: CutPlan,
        mask: TextMask,
        supplied: SuppliedCompaction,
        rules_text: str,
        earlier: Carried | None,
    ) -> Summarized:
        """A summary that somebody else wrote, with what code carries; files that they name take
        the place of those that code found."""
        carried = await asyncio.to_thread(carry, plan.summarized, earlier, kept=plan.kept)
        read, modified = supplied.files("readFiles"), supplied.files("modifiedFiles")
        if read is not None:
            carried = replace(carried, read_files=tuple(map(mask.text, read)))
        if modified is not None:
            carried = replace(carried, modified_files=tuple(map(mask.text, modified)))
        text = append_carried(
            mask.text(supplied.summary),
            carried,
            rules_text,
            most_tokens=draft.given.estimated(self.summary_tokens(draft)),
            lines_tokens=_lines_tokens(draft, plan),
            count_tokens=draft.given.weigher.text,
        )
        details = masked_json(dict(supplied.details), mask.text)
        return Summarized(text=text, carried=carried, spent=Spent(), details=details)

    async def supplied(
        self,
        draft: Draft,
        plan: CutPlan,
        before: Cut | None,
        mask: TextMask,
        *,
        instructions: str,
        whose: dict[str, str | None],
    ) -> tuple[SuppliedCompaction | NoSummary | None, tuple[str, ...]]:
        """What a hook supplies, if any does, or that one said no; and notes."""
        instructions = mask.text(instructions)
        previous = "" if before is None else before.summary
        earlier = None if before is None else before.carried
        if not self._hooks.listens("session_before_compact"):
            return None, ()
        record = preparation(
            plan,
            await asyncio.to_thread(carry, plan.summarized, earlier),
            tokens_before=draft.used_tokens(),
            previous_summary=previous,
            reserve_tokens=draft.given.limits.reserve_tokens,
        )
        answered = await self._hooks.fire(
            "session_before_compact",
            {
                "preparation": record,
                "customInstructions": instructions or None,
                "signal": AbortSignal(),
            },
            whose,
            seconds=self._settings.deadline_seconds * HOOK_SHARE,
        )
        if cancelled(answered.answers):
            why = Reason(Cause.HOOK_SAID_NO)
            return NoSummary(reason=why, spent=Spent()), answered.notes
        return supplied_compaction(answered.answers), answered.notes


def masked_json(value: Any, mask: Callable[[str], str]) -> Any:
    """JSON with its texts masked."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, list):
        return [masked_json(item, mask) for item in value]
    if isinstance(value, dict):
        return {mask(key): masked_json(item, mask) for key, item in value.items()}
    return value


def _lines_tokens(draft: Draft, plan: CutPlan) -> int:
    cut = sum([entry.tokens for entry in plan.summarized])
    window = draft.given.estimated(draft.given.limits.window_tokens)
    return min(lines_tokens(window), cut // LINES_PART)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """A summary with what had to be pinned, and the receipt of both."""

    text: str = field(repr=False)
    receipt: Receipt


async def prove(
    draft: Draft,
    plan: CutPlan,
    before: Cut | None,
    summary: Summarized,
    mask: TextMask,
    *,
    recaller: Recaller | None,
    space: str,
    session: str,
    pin_ratio: float,
    now: float,
) -> Proved:
    """The summary with what would have been lost, and its receipt; `before` is the cut that the
    plan goes on from."""
    kept = frozenset(entry.key for entry in plan.kept)
    limits = draft.given.limits

    async def recall(query: str) -> str:
        if recaller is None:
            return ""
        recalled = await recaller.recall(
            RecallRequest(
                space=space,
                session=session,
                query=query,
                newest=query,
                shown=kept,
                scope="session",
                now=now,
                budget_tokens=draft.given.estimated(limits.hard_cap_tokens),
                count_tokens=draft.given.weigher.text,
                gated=False,
                most_hits=0,
            )
        )
        return "\n".join(passage.text for passage in recalled.passages)

    # What code carries is made anew, so only what the model wrote, and what was pinned, is probed.
    previous = "" if before is None else strip_carried(before.summary)
    probes = await asyncio.to_thread(probe, plan.summarized, previous_summary=previous)
    made = await receipt(
        probes,
        without_bare_names(summary.text),
        recall=recall,
        pin_tokens=draft.given.estimated(int(limits.window_tokens * pin_ratio)),
        count_tokens=draft.given.weigher.text,
    )
    text = f"{summary.text}\n\n{made.pinned}" if made.pinned else summary.text
    return Proved(text=mask.text(text), receipt=made.receipt)
