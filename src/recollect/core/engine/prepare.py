"""The stages of a turn in their order: read and align, apply earlier edits, free space, standing
block, recall, inject, send. Each stage takes a draft of the request, and returns a new one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from recollect.core.boundary import Boundary
from recollect.core.engine.batch_moment import (
    Durability,
    EditBatchResult,
    apply_edits,
    run_edit_batch,
)
from recollect.core.engine.session import TurnResult, report_if_over_limit
from recollect.core.formats.codec import CODECS
from recollect.core.formats.request import is_kept_an_hour, join_request, split_request
from recollect.core.ports import Model, Recaller, StandingRecaller
from recollect.core.rules.budget import (
    WindowLimits,
    batch_moment,
    limits_beside,
    limits_of,
    window_of,
)
from recollect.core.rules.identity import ROOT, chain, root_of_continued
from recollect.core.rules.tokens import MESSAGE_TOKENS, Weigher
from recollect.core.search.identifiers import identifiers_in
from recollect.core.turn.align import Alignment, LastRequest, ReadResult, align, enter, read
from recollect.core.turn.apply import Applied, apply, extend
from recollect.core.turn.draft import Draft, RecallResult, TurnInput, text_tokens, without_blocks
from recollect.core.turn.inject import InjectResult, inject
from recollect.core.turn.query import (
    LEAST_QUERY_CHARS,
    QueryResult,
    ask,
    last_turn,
    newest_exchange,
    query,
    spoken_text,
    uses_tools,
)
from recollect.core.turn.standing_block import StandResult, stand
from recollect.core.values.edit import Edit, Insert
from recollect.core.values.history import Entry, SessionState, newest_cut
from recollect.core.values.message import Text
from recollect.core.values.model import FormatName, Request
from recollect.core.values.reason import NOT_RUN, Cause, Reason
from recollect.core.values.recall import Recalled, RecalledFact, RecallReads, RecallRequest
from recollect.core.values.report import BatchMoment, WindowSource
from recollect.system.config import Settings

MAX_DORMANT_TURNS: Final = 50
"""Edits of an abandoned branch are kept for this many turns (decision 0001)."""


async def prepare_turn(
    turn_input: TurnInput,
    boundary: Boundary,
    *,
    recaller: Recaller | None,
    durability: Durability | None,
) -> TurnResult:
    draft = await begin_draft(turn_input, boundary)
    if draft is None:
        return TurnResult()
    if not draft.view.rows:
        boundary.note("check", "failed" if draft.entries else "skipped", Reason(Cause.SAYS_NOTHING))
        return TurnResult()
    query_result = QueryResult(text="", reason=NOT_RUN)
    async with boundary.stage("query") as stage:
        with_noise = turn_input.settings.recall.method == "openclaw"
        result = await stage.call(query, draft.entries, with_noise=with_noise)
        query_result = stage.explain(result, result.reason)
    batch_result = await _run_due_batch(draft, query_result, boundary, durability)
    if batch_result.compact_first:
        return TurnResult(draft=batch_result.draft, query=query_result.text, compact_first=True)
    standing_draft = batch_result.draft
    if (
        batch_result.moment is not None
        or not turn_input.state.requests
        or standing_draft.outdates_standing_block()
    ):
        standing_draft = await _renew_standing_block(standing_draft, recaller, boundary)
        batch_result = replace(batch_result, draft=standing_draft)
    reads = RecallReads()
    recall_result = await _recall_for_turn(
        standing_draft, query_result, batch_result.moment, recaller, boundary, reads
    )
    if recall_result is not None and not recall_result.found.empty:
        trims_before, quotes_before = standing_draft.trims(), standing_draft.names_in_blocks()
        batch_result = await _make_room_for_block(
            batch_result, query_result, recall_result, boundary, durability
        )
        if batch_result.compact_first:
            return TurnResult(draft=batch_result.draft, query=query_result.text, compact_first=True)
        final_draft = batch_result.draft
        if (
            not quotes_before <= final_draft.names_in_blocks()
        ):  # a block was removed, which may have quoted the answer
            if without_blocks(final_draft.edits) != without_blocks(standing_draft.edits):
                reads = RecallReads()  # do not reuse results of queries
            second_result = await _recall_for_turn(
                final_draft, query_result, batch_result.moment, recaller, boundary, reads
            )
            if second_result is not None:
                recall_result = (
                    replace(second_result, found=recall_result.found)
                    if second_result.found.empty
                    else second_result
                )
        if final_draft.trims() != trims_before:
            final_draft = await _renew_standing_block(final_draft, recaller, boundary)
        batch_result = replace(
            batch_result, draft=await _insert_block(final_draft, recall_result, boundary)
        )
    report_if_over_limit(
        turn_input,
        batch_result.draft.view.tokens,
        boundary,
        not_durable=bool(batch_result.not_durable_keys),
    )
    outgoing: Any = None
    async with boundary.stage("send") as stage:
        entries, rows = batch_result.draft.entries, batch_result.draft.view.rows
        joined_request = await stage.call(join_request, turn_input.request, entries, rows)
        outgoing = stage.explain(joined_request, Reason(Cause.SENT, messages=len(rows)))
    return TurnResult(
        draft=None if outgoing is None else batch_result.draft,
        outgoing=outgoing,
        moment=batch_result.moment,
        query=query_result.text,
        findings=None if recall_result is None else recall_result.found,
        not_durable=bool(batch_result.not_durable_keys),
        reported_why_not_compact=batch_result.reported_why_not_compact,
    )


async def begin_draft(turn_input: TurnInput, boundary: Boundary) -> Draft | None:
    """Return the history with its earlier edits applied; None if it cannot be read."""
    if not turn_input.readable:
        return None
    read_result: ReadResult | None = None
    async with boundary.stage("read") as stage:
        result = await stage.call(
            read,
            turn_input.request.messages,
            turn_input.codec,
            turn_input.secret,
            turn_input.weigher,
            turn_input.remembered,
            turn_input.state.blocks,
            turn_input.answers,
            turn_input.seal,
        )
        read_result = stage.explain(result, result.reason)
    if read_result is None:
        return None
    alignment: Alignment | None = None
    async with boundary.stage("align") as stage:
        new_alignment = await stage.call(_align_history, turn_input, read_result)
        alignment = stage.explain(new_alignment, new_alignment.reason)
    if alignment is None:
        return None
    entries = await boundary.call(_enter_readings, read_result, alignment)
    draft = Draft(
        given=turn_input,
        read=read_result,
        alignment=alignment,
        entries=entries,
        incoming_tokens=turn_input.fixed_tokens + sum([entry.tokens for entry in entries]),
    )
    return await _apply_earlier_edits(draft, boundary)


def _enter_readings(read_result: ReadResult, alignment: Alignment) -> tuple[Entry, ...]:
    readings_with_keys = zip(
        read_result.new_readings, alignment.keys[len(read_result.settled) :], strict=True
    )
    return read_result.settled + tuple([enter(reading, key) for reading, key in readings_with_keys])


def _align_history(turn_input: TurnInput, read_result: ReadResult) -> Alignment:
    known_count = len(read_result.settled)
    ids = turn_input.state.ids[:known_count] + tuple(
        [reading.id for reading in read_result.new_readings]
    )
    weights = [reading.tokens for reading in read_result.new_readings]
    request = turn_input.request
    root = root_of_continued(request.continues_from) if request.continues else ROOT
    return align(turn_input.state, ids, weights, settled=known_count, root=root)


async def _apply_earlier_edits(draft: Draft, boundary: Boundary) -> Draft | None:
    state, recall = draft.given.state, draft.given.settings.recall
    edits = state.edits
    if state.dormant:
        keys = set(draft.alignment.keys)
        edits += tuple(edit for edit, _ in state.dormant if edit.anchor in keys)
    if not recall.sticky:
        edits = without_blocks(edits)
    if not recall.standing_tokens:
        edits = tuple(edit for edit in edits if edit.stage != "stand")
    elif draft.changed_course():  # drop standing blocks of the other branch
        other_branch_ids = set(state.ids) - {entry.id for entry in draft.entries}
        edits = tuple(
            edit
            for edit in edits
            if not isinstance(edit, Insert)
            or edit.stage != "stand"
            or other_branch_ids.isdisjoint(edit.quotes)
        )
    lifted_trims: tuple[Edit, ...] = ()
    if _has_gone_back(draft, edits):
        lifted_trims = tuple(edit for edit in edits if edit.stage == "trim")
        edits = tuple(edit for edit in edits if edit.stage != "trim")
        boundary.note("align", "done", Reason(Cause.TRIMS_LIFTED))
    applied_edits: Applied | None = None
    async with boundary.stage("pair") as stage:
        result = await stage.call(_extend_last_view, draft, edits)
        applied_edits = stage.explain(result, *result.reasons)
    if applied_edits is None:
        return None
    dormant: tuple[tuple[Edit, int], ...] = ()
    if applied_edits.ended_edits or lifted_trims or state.dormant:
        ended_edits = set(applied_edits.ended_edits)
        edits = tuple([edit for edit in edits if edit not in ended_edits])
        inactive_edits = [
            edit for edit in (*applied_edits.ended_edits, *lifted_trims) if edit.stage != "stand"
        ]
        version = draft.given.version
        dormant_candidates = [*state.dormant, *((edit, version) for edit in inactive_edits)]
        dormant = _keep_recent_dormant(dormant_candidates, set(edits), version)
    return replace(draft, edits=edits, dormant=dormant, view=applied_edits.view)


def _has_gone_back(draft: Draft, edits: tuple[Edit, ...]) -> bool:
    """Return whether the client went back to before the trimmed messages, as chat clients can."""
    turn_input = draft.given
    if turn_input.calibrate(draft.incoming_tokens) <= turn_input.limits.low_water_tokens:
        return any(edit.stage == "trim" for edit in edits)
    if not draft.changed_course():
        return False
    spoken_keys = [
        entry.key
        for entry in draft.entries
        if entry.role == "assistant" or (entry.role == "user" and spoken_text(entry))
    ]
    recent_keys = set(spoken_keys[-turn_input.settings.trim.protect_messages :])
    return any(edit.stage == "trim" and edit.anchor in recent_keys for edit in edits)


def _extend_last_view(draft: Draft, edits: tuple[Edit, ...]) -> Applied:
    turn_input = draft.given
    applied_edits = None
    if not turn_input.request.continues:
        applied_edits = extend(
            turn_input.remembered.last_view,
            draft.entries,
            edits,
            turn_input.codec,
            turn_input.weigher.message,
            thinking=turn_input.request.thinking,
            marks=turn_input.request.marks,
            composed=turn_input.remembered.composed,
        )
    return applied_edits or draft.apply_edits(edits)


def _keep_recent_dormant(
    dormant_candidates: Sequence[tuple[Edit, int]], active_edits: set[Edit], turn: int
) -> tuple[tuple[Edit, int], ...]:
    dormant_since: dict[Edit, int] = {}
    for edit, version in dormant_candidates:
        if edit not in active_edits and turn - version <= MAX_DORMANT_TURNS:
            dormant_since.setdefault(edit, version)
    return tuple(dormant_since.items())


async def _run_due_batch(
    draft: Draft, query_result: QueryResult, boundary: Boundary, durability: Durability | None
) -> EditBatchResult:
    turn_input = draft.given
    moment = batch_moment(
        turn_input.settings,
        turn_input.limits,
        used_tokens=draft.used_tokens(),
        now=turn_input.now,
        state=turn_input.state,
        kept_an_hour=is_kept_an_hour(turn_input.request),
    )
    if moment is None and draft.fills_up():
        due_reason = Reason(Cause.COMPACTION_DUE, limit=turn_input.limits.compact_tokens)
        moment = BatchMoment(kind="compaction", reason=due_reason)
    if moment is None:
        return EditBatchResult(draft=draft)
    return await run_edit_batch(draft, moment, query_result, boundary, durability)


async def _make_room_for_block(
    batch_result: EditBatchResult,
    query_result: QueryResult,
    recall: RecallResult,
    boundary: Boundary,
    durability: Durability | None,
) -> EditBatchResult:
    """Free space for a recalled block that does not fit: remove older blocks, then edit more."""
    draft = batch_result.draft
    if draft.given.settings.recall.method == "openclaw":
        return batch_result
    # If the user asked nothing, do not break the provider's cache for a recalled block.
    if not recall.asks and batch_result.moment is None:
        return batch_result
    wanted_tokens = draft.full_block_tokens(recall)
    if draft.has_room(wanted_tokens):
        return batch_result
    reason = Reason(Cause.ROOM_WANTED, tokens=wanted_tokens, room=max(0, draft.room_tokens()))
    moment = BatchMoment(kind="room", reason=reason)
    second_batch = await run_edit_batch(
        draft, moment, query_result, boundary, durability, wanted_tokens=wanted_tokens
    )
    return replace(
        second_batch,
        moment=second_batch.moment or batch_result.moment,
        not_durable_keys=second_batch.not_durable_keys | batch_result.not_durable_keys,
        reported_why_not_compact=batch_result.reported_why_not_compact
        or second_batch.reported_why_not_compact,
    )


async def _renew_standing_block(
    draft: Draft, recaller: Recaller | None, boundary: Boundary
) -> Draft:
    turn_input = draft.given
    tokens = turn_input.limits.standing_tokens
    if not tokens:
        return draft
    other_edits = tuple(
        e for e in draft.edits if not (isinstance(e, Insert) and e.stage == "stand")
    )
    if len(other_edits) < len(draft.edits):
        draft = await apply_edits(draft, other_edits, boundary)
    room = turn_input.limits.limit_tokens - draft.used_tokens() - MESSAGE_TOKENS
    if room <= 0:
        return draft
    visible_ids = {entry.id for entry in draft.visible()}
    unquotable_ids = visible_ids | turn_input.forgotten
    left_out_entries = [entry for entry in draft.entries if entry.id not in unquotable_ids]
    cut = newest_cut(draft.edits)
    facts: tuple[RecalledFact, ...] = ()
    if isinstance(recaller, StandingRecaller):
        seconds = turn_input.settings.recall.deadline_seconds
        async with boundary.stage("stand", waits=True, seconds=seconds) as stage:
            stored_facts = await recaller.standing(turn_input.session)
            unseen_facts = tuple(
                fact for fact in stored_facts if visible_ids.isdisjoint(fact.message_ids)
            )
            reason = Reason(Cause.STANDING_FOUND, facts=len(stored_facts))
            facts = stage.explain(unseen_facts, reason)
    stand_result = StandResult(edit=None, reason=NOT_RUN)
    async with boundary.stage("stand") as stage:
        masks_text = turn_input.settings.redaction.enabled and bool(left_out_entries or facts)
        call = asyncio.to_thread if masks_text else stage.call
        result = await call(
            stand,
            left_out_entries,
            facts,
            turn_input.weigher,
            anchor=draft.entries[0].key,
            budget_tokens=turn_input.estimate_within(min(tokens, room)),
            turn=turn_input.version,
            among_tools=uses_tools(draft.entries),
            summary="" if cut is None else cut.summary,
            mask=turn_input.mask.text,
            statement_cache=turn_input.remembered.statements,
        )
        stand_result = stage.explain(result, result.reason)
    if stand_result.edit is None:
        return draft
    return await apply_edits(draft, (*other_edits, stand_result.edit), boundary)


async def _recall_for_turn(
    draft: Draft,
    query_result: QueryResult,
    moment: BatchMoment | None,
    recaller: Recaller | None,
    boundary: Boundary,
    reads: RecallReads,
) -> RecallResult | None:
    turn_input = draft.given
    if not turn_input.settings.recall.enabled:
        boundary.note("recall", "skipped", Reason(Cause.RECALL_OFF))
        return None
    cause = None
    if recaller is None:
        cause = Cause.NO_RECALLER
    elif len(query_result.text) < LEAST_QUERY_CHARS:
        cause = Cause.QUERY_TOO_SHORT
    elif _exchange_has_block(draft):
        cause = Cause.HAS_BLOCK
    elif moment is None and _was_searched_before(draft):
        cause = Cause.ASKED_BEFORE
    if recaller is None or cause is not None:
        boundary.note("recall", "nothing", Reason(cause or Cause.NO_RECALLER))
        return None
    request = await boundary.call(_recall_request, draft, query_result, reads)
    findings = Recalled()
    seconds = turn_input.settings.recall.deadline_seconds
    async with boundary.stage("recall", waits=True, seconds=seconds) as stage:
        result = await recaller.recall(request)
        findings = stage.explain(result, *_recall_reasons(result))
    return RecallResult(
        found=findings, budget_tokens=request.budget_tokens, asks=request.asks != "other"
    )


def _recall_request(draft: Draft, query_result: QueryResult, reads: RecallReads) -> RecallRequest:
    turn_input = draft.given
    return ask(
        draft.visible(),
        query_result,
        turn_input.settings.recall,
        edits=draft.edits,
        among_tools=uses_tools(draft.entries),
        space=turn_input.space,
        session=turn_input.session,
        now=turn_input.now,
        budget_tokens=turn_input.block_tokens,
        count_tokens=turn_input.weigher.text,
        reads=reads,
    )


def _recall_reasons(findings: Recalled) -> tuple[Reason, ...]:
    gate, facts, passages = findings.gate, len(findings.facts), len(findings.passages)
    if gate is None:
        reason = Reason(Cause.FOUND, facts=facts, passages=passages)
    elif gate.open:
        reason = Reason(Cause.FOUND_BY, facts=facts, passages=passages, gate=gate.reason)
    else:
        reason = Reason(Cause.NOT_RECALLED, gate=gate.reason)
    return (reason, *findings.notes)


def _exchange_has_block(draft: Draft) -> bool:
    recent = newest_exchange(draft.entries)
    return any(block.anchor in recent for block in draft.blocks())


def _was_searched_before(draft: Draft) -> bool:
    last, recall = last_turn(draft.entries), draft.given.settings.recall
    if recall.every_turn or not recall.sticky:  # keep no block for later requests
        return False
    if last.role == "user" and spoken_text(last):
        return False
    reply = next((entry for entry in reversed(draft.entries) if entry.role == "assistant"), None)
    return reply is None or not any(
        identifiers_in(part.text) for part in reply.parts if isinstance(part, Text)
    )


async def _insert_block(draft: Draft, recall_result: RecallResult, boundary: Boundary) -> Draft:
    turn_input = draft.given
    inject_result = InjectResult(edit=None, fill="none", tokens=0, reason=NOT_RUN)
    async with boundary.stage("inject") as stage:
        result = await stage.call(
            inject,
            draft.entries,
            recall_result.found,
            turn_input.weigher,
            placement=turn_input.settings.recall.placement,
            budget_tokens=draft.block_budget(recall_result),
            turn=turn_input.version,
            method=turn_input.settings.recall.method,
        )
        inject_result = stage.explain(result, result.reason)
    if inject_result.edit is None:
        return draft
    other_edits = draft.edits
    if inject_result.edit.placement == "head":  # only the newest block remains there
        other_edits = without_blocks(other_edits)
    return await apply_edits(draft, (*other_edits, inject_result.edit), boundary)


async def read_request(
    body: bytes | Mapping[str, Any],
    format_name: FormatName | None,
    boundary: Boundary,
    *,
    betas: Sequence[str],
    weigher: Weigher,
    before: Request | None = None,
) -> tuple[Request | None, int]:
    """Return the request (None if unreadable), and the tokens of its system prompt and tools."""
    async with boundary.stage("read") as stage:
        request = await stage.call(split_request, body, format_name, betas=betas, before=before)
        fixed_tokens = await stage.call(_count_fixed_tokens, request, weigher)
        reason = Reason(Cause.REQUEST_READ, messages=len(request.messages), format=request.format)
        return stage.explain((request, fixed_tokens), reason)
    return None, 0


def _count_fixed_tokens(request: Request, weigher: Weigher) -> int:
    texts = [raw.decode("utf-8", "replace") for raw in (request.system, request.tools) if raw]
    return sum(text_tokens(weigher, text) for text in texts)


def repair_request(wire_request: Mapping[str, Any], format_name: FormatName) -> Mapping[str, Any]:
    """Make a request valid for its provider, with the repairs of `Engine.prepare` and nothing else.
    Call it after adding messages to a prepared request: a model may use a call id twice. Messages
    that were already prepared do not change."""
    request, codec = split_request(wire_request, format_name), CODECS[format_name]
    weigher = Weigher()
    entries, key = list[Entry](), ROOT
    for reading in read(request.messages, codec, b"", weigher, LastRequest()).new_readings:
        entries.append(enter(reading, key := chain(key, reading.id)))
    applied_edits = apply(
        entries,
        (),
        codec,
        weigher.message,
        continues=request.continues,
        thinking=request.thinking,
        marks=request.marks,
    )
    repaired_request: Mapping[str, Any] = join_request(request, entries, applied_edits.view.rows)
    return repaired_request


def limits_for(
    request: Request,
    fixed_tokens: int,
    state: SessionState,
    settings: Settings,
    model: Model | None,
    boundary: Boundary,
    *,
    window_tokens: int | None,
) -> tuple[WindowLimits, WindowSource]:
    """Return the limits of a request, and the source of its window size."""
    learned_tokens = state.learned_window_tokens
    if request.model != state.learned_for_model:
        learned_tokens = None
    if learned_tokens is None and model is not None and request.model == model.name:
        learned_tokens = model.window_tokens
    if window_tokens is not None:
        settings = replace(settings, window_tokens=window_tokens)
    window = window_of(request.model, settings, learned_tokens=learned_tokens)
    limits = limits_of(window.tokens, settings, output_tokens=request.output_tokens)
    calibrated_tokens = (
        state.calibration.apply(fixed_tokens) if settings.tokens.calibrate else fixed_tokens
    )
    if calibrated_tokens >= limits.available_tokens and window.source != "provider":
        limits, room = limits_beside(
            calibrated_tokens, window.tokens, settings, output_tokens=request.output_tokens
        )
        reason = Reason(
            Cause.PROMPT_FILLS, tokens=calibrated_tokens, window=window.tokens, room=room
        )
        boundary.note("read", "done", reason)
    return limits, window.source
