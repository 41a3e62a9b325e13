"""The steps of a compaction that store nothing: plan, masked input, checks of the summary, cut.
Also calls hooks, with OpenClaw's events. If a hook raises, hangs or returns an invalid answer, the
report mentions it, and nothing else happens."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

from recollect.core.boundary import Failure, attempted
from recollect.core.compaction.carry import strip_carried, without_bare_names
from recollect.core.compaction.chunks import SUMMARY_SHARE, SUMMARY_TOKENS
from recollect.core.compaction.cut import cut
from recollect.core.compaction.lines import lines_tokens
from recollect.core.compaction.probe import probe
from recollect.core.compaction.receipt import receipt
from recollect.core.engine.ledger import mask_carried
from recollect.core.formats.json_text import decode_outer
from recollect.core.ports import Recaller
from recollect.core.rules.message_redaction import TextMask, redact_entries
from recollect.core.rules.redaction import redact
from recollect.core.turn.draft import Draft
from recollect.core.values.compaction import (
    Carried,
    CompactionResult,
    CutPlan,
    NoCut,
    ProbeFinding,
    Receipt,
    Summarized,
)
from recollect.core.values.edit import Cut, Edit
from recollect.core.values.history import SessionId, SessionState, SpaceId, newest_cut
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import RecallRequest
from recollect.system.config import Settings
from recollect.system.config.settings import Redaction as RedactionSettings

HookName: TypeAlias = Literal[
    "before_compaction", "after_compaction", "session_before_compact", "flush_due"
]
Hook: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
HOOK_SECONDS = 10.0
"""A hook that only listens delays a compaction by at most this long. Not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookAnswers:
    """The answers of hooks, and a note on each hook that failed."""

    answers: tuple[Any, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()

    @property
    def is_cancelled(self) -> bool:
        return any(
            isinstance(answer, Mapping) and answer.get("cancel") is True for answer in self.answers
        )


class Hooks:
    """The hooks of one engine."""

    def __init__(self) -> None:
        self._listening: dict[HookName, list[Hook]] = {}

    def on(self, name: HookName, hook: Hook) -> Callable[[], None]:
        """Add a hook. Call the returned function to remove the hook."""
        if name not in get_args(HookName):
            raise ValueError(f"{name!r} is not a hook: use one of {', '.join(get_args(HookName))}")
        if not callable(hook):
            raise TypeError(f"a hook must be a function, not a {type(hook).__name__}")
        listening = self._listening.setdefault(name, [])
        listening.append(hook)

        def stop() -> None:
            if hook in listening:
                listening.remove(hook)

        return stop

    def listens(self, name: HookName) -> bool:
        return bool(self._listening.get(name))

    async def fire(
        self,
        name: HookName,
        event: Mapping[str, Any],
        context: Mapping[str, Any],
        *,
        seconds: float = HOOK_SECONDS,
    ) -> HookAnswers:
        """Call all hooks in parallel, and wait at most `seconds` for each."""
        answers = await asyncio.gather(
            *[
                attempted(_call_hook(hook, event, context, seconds))
                for hook in self._listening.get(name, ())
            ],
            return_exceptions=True,  # one hook that is cancelled does not cancel the others
        )
        error_types = [
            answer.error if isinstance(answer, Failure) else type(answer)
            for answer in answers
            if isinstance(answer, Failure | BaseException)
        ]
        return HookAnswers(
            answers=tuple(
                answer for answer in answers if not isinstance(answer, Failure | BaseException)
            ),
            notes=tuple(f"a {name} hook failed: {error.__name__}" for error in error_types),
        )


async def _call_hook(
    hook: Hook, event: Mapping[str, Any], context: Mapping[str, Any], seconds: float
) -> Any:
    async with asyncio.timeout(seconds):
        if inspect.iscoroutinefunction(hook):
            return await hook(event, context)
        answer = await asyncio.to_thread(hook, event, context)  # may block
        return await answer if inspect.isawaitable(answer) else answer


def hook_preparation(
    plan: CutPlan,
    carried_details: Carried,
    *,
    tokens_before: int,
    previous_summary: str,
    reserve_tokens: int,
) -> dict[str, Any]:
    """Build the argument of the hook `session_before_compact`, as in OpenClaw."""
    record: dict[str, Any] = {
        "messagesToSummarize": [decode_outer(entry.raw) for entry in plan.history],
        "turnPrefixMessages": [decode_outer(entry.raw) for entry in plan.turn_prefix],
        "firstKeptEntryId": plan.anchor,
        "cutEntryIds": [entry.key for entry in plan.summarized],
        "keptEntryIds": [entry.key for entry in plan.kept],
        "tokensBefore": tokens_before,
        "fileOps": {
            "read": list(carried_details.read_files),
            "edited": list(carried_details.modified_files),
        },
        "settings": {"reserveTokens": reserve_tokens},
        "isSplitTurn": plan.splits_a_turn,
    }
    if previous_summary:
        record["previousSummary"] = previous_summary
    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSummary:
    """A summary by a hook instead of the model."""

    text: str = field(repr=False)
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)
    first_kept: str | None = None


def find_hook_summary(answers: HookAnswers) -> HookSummary | None:
    """Return the first summary that a hook returned; an empty one is ignored."""
    for answer in answers.answers:
        compaction = answer.get("compaction") if isinstance(answer, Mapping) else None
        summary = compaction.get("summary") if isinstance(compaction, Mapping) else None
        if isinstance(compaction, Mapping) and isinstance(summary, str) and summary.strip():
            details, first_kept = compaction.get("details"), compaction.get("firstKeptEntryId")
            return HookSummary(
                text=summary,
                details=_as_json(details) if isinstance(details, Mapping) else {},
                first_kept=first_kept if isinstance(first_kept, str) and first_kept else None,
            )
    return None


def _as_json(details: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return dict(json.loads(json.dumps({str(key): value for key, value in details.items()})))
    except (TypeError, ValueError, RecursionError):
        return {}


KEEP_SHARES = (1.0, 0.5, 0.25, 0.0)
"""Shares of the usual size of the newest part that is not cut, tried until the request fits."""
FITS_RATIO = 0.9
"""The request after a cut must leave space for the next messages. Not measured."""
LINES_PART = 8
"""Divisor of the summarized tokens: the quoted lines after the summary take at most the result.
With more lines, a small cut would free nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryInput:
    """Masked messages and texts, which are summarized."""

    plan: CutPlan
    previous: str = field(default="", repr=False)
    carried_details: Carried | None = None
    instructions: str = field(default="", repr=False)


def plan_cut(draft: Draft, settings: Settings) -> CutPlan | NoCut:
    """Return the first plan after which the request fits, else the one that cuts most."""
    turn_input, limits = draft.given, draft.given.limits
    allowed_tokens = FITS_RATIO * min(limits.compact_tokens, limits.limit_tokens)
    pins = int(limits.window_tokens * settings.compaction.pin_ratio)
    added_tokens = summary_tokens(draft) + lines_tokens(limits.window_tokens) + pins
    best: CutPlan | NoCut = NoCut(reason=Reason(Cause.NOTHING_BEFORE))
    for share in KEEP_SHARES:
        plan = cut(
            draft.entries,
            draft.edits,
            turn_input.codec.rules,
            keep_tokens=turn_input.estimate(int(limits.keep_recent_tokens * share)),
            weigher=turn_input.weigher,
        )
        if isinstance(plan, NoCut):
            best = plan if isinstance(best, NoCut) else best
            continue
        best = plan
        if (
            turn_input.calibrate(turn_input.fixed_tokens + plan.kept_tokens) + added_tokens
            <= allowed_tokens
        ):
            break
    return best


def summary_tokens(draft: Draft) -> int:
    """Return the token limit of the model's summary, without lines and quotes that code adds."""
    return min(SUMMARY_TOKENS, draft.given.limits.window_tokens // SUMMARY_SHARE)


def lines_room(draft: Draft, plan: CutPlan) -> int:
    """Return the token limit of the quoted lines after the summary."""
    window = draft.given.estimate(draft.given.limits.window_tokens)
    return min(lines_tokens(window), sum([e.tokens for e in plan.summarized]) // LINES_PART)


def without_forgotten(plan: CutPlan, forgotten: set[MessageId]) -> CutPlan | NoCut:
    """Return the plan without forgotten messages: they are not summarized, and still sent."""
    history = tuple(entry for entry in plan.history if entry.id not in forgotten)
    prefix = tuple(entry for entry in plan.turn_prefix if entry.id not in forgotten)
    if not history and not prefix:
        return NoCut(reason=Reason(Cause.ALL_FORGOTTEN))
    return replace(plan, history=history, turn_prefix=prefix)


def mask_input(plan: CutPlan, before: Cut | None, mask: TextMask) -> SummaryInput:
    """Mask secrets in all input of a compaction. A summary may lack the labels by which secrets are
    recognized."""
    masked_entries = redact_entries(plan.summarized, mask)
    split = len(plan.history)
    plan = replace(plan, history=masked_entries[:split], turn_prefix=masked_entries[split:])
    if before is None:
        return SummaryInput(plan=plan)
    carried_details = before.carried and mask_carried(before.carried, mask.text)
    return SummaryInput(
        plan=plan, previous=mask.text(before.summary), carried_details=carried_details
    )


def base_edits(state: SessionState, draft: Draft) -> tuple[Edit, ...] | None:
    """Return the edits to add the cut to; None if another cut was made since the plan."""
    if state.edits == draft.given.state.edits:
        return draft.edits
    return state.edits if newest_cut(state.edits) == newest_cut(draft.edits) else None


def new_cut(
    state: SessionState,
    base: tuple[Edit, ...],
    plan: CutPlan,
    summary: str,
    carried_details: Carried,
) -> Cut:
    number, before = state.compactions + 1, newest_cut(base)
    earlier = () if before is None else before.covers
    return Cut(
        anchor=plan.anchor,
        summary=summary,
        stage="compact",
        reason=Reason(Cause.CUT, number=number, cut=plan.reason),
        turn=state.turn + 1,
        number=number,
        before=0 if before is None else before.number,
        covers=tuple(dict.fromkeys((*earlier, *(entry.id for entry in plan.summarized)))),
        carried=carried_details,
    )


def mask_result(result: CompactionResult, redaction: RedactionSettings) -> CompactionResult:
    def mask_text(text: str) -> str:
        return redact(text, pii=redaction.pii).text

    def mask_finding(finding: ProbeFinding) -> ProbeFinding:
        probe = finding.probe
        probe = replace(probe, text=mask_text(probe.text), sentence=mask_text(probe.sentence))
        return replace(finding, probe=probe)

    receipt = result.receipt
    if receipt is not None:
        receipt = replace(receipt, findings=tuple(map(mask_finding, receipt.findings)))
    return replace(
        result,
        reason=result.reason.mask_texts(mask_text),
        notes=tuple(map(mask_text, result.notes)),
        summary=mask_text(result.summary),
        receipt=receipt,
        details=mask_json(dict(result.details), mask_text),
    )


def mask_json(value: Any, mask: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, list):
        return [mask_json(item, mask) for item in value]
    if isinstance(value, dict):
        return {mask(key): mask_json(item, mask) for key, item in value.items()}
    return value


def recall_by_text(
    recaller: Recaller | None,
    *,
    space: SpaceId,
    session: SessionId,
    shown_keys: frozenset[EntryKey],
    now: float,
    budget_tokens: int,
    count_tokens: Callable[[str], int],
) -> Callable[[str], Awaitable[str]]:
    """Return the search with which a receipt checks whether a session's memory finds a detail. The
    search ignores the messages that requests still contain (`shown`)."""

    async def recall(query: str) -> str:
        if recaller is None:
            return ""
        findings = await recaller.recall(
            RecallRequest(
                space=space,
                session=session,
                query=query,
                newest=query,
                shown=shown_keys,
                scope="session",
                now=now,
                budget_tokens=budget_tokens,
                count_tokens=count_tokens,
                gated=False,
                most_hits=0,
            )
        )
        return "\n".join(passage.text for passage in findings.passages)

    return recall


async def prove_summary(
    draft: Draft,
    summary_input: SummaryInput,
    summary: Summarized,
    mask: TextMask,
    *,
    recaller: Recaller | None,
    pin_ratio: float,
) -> tuple[str, Receipt]:
    """Return the summary, with quotes of lost names and values added, and its receipt. If memory
    cannot be searched, names and values count as not checked, and the receipt reports that."""
    turn_input, limits = draft.given, draft.given.limits
    recall = recall_by_text(
        recaller,
        space=turn_input.space,
        session=turn_input.session,
        shown_keys=frozenset(entry.key for entry in summary_input.plan.kept),
        now=turn_input.now,
        budget_tokens=turn_input.estimate(limits.hard_cap_tokens),
        count_tokens=turn_input.weigher.text,
    )
    # Code writes its sections again, so only the model's text and pinned quotes are compared.
    previous = strip_carried(summary_input.previous)
    sample = await asyncio.to_thread(
        probe, summary_input.plan.summarized, previous_summary=previous
    )
    receipt_result = await receipt(
        sample.probes,
        without_bare_names(summary.text),
        details=sample.details,
        recall=recall,
        pin_tokens=turn_input.estimate(int(limits.window_tokens * pin_ratio)),
        count_tokens=turn_input.weigher.text,
    )
    text = (
        f"{summary.text}\n\n{receipt_result.pinned_text}"
        if receipt_result.pinned_text
        else summary.text
    )
    return mask.text(text), receipt_result.receipt
