"""The stages of a turn in their order: read and align, apply earlier edits, free space, standing
block, recall, inject, send. Each stage takes a draft of the request, and returns a new one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from recollect.core.boundary import Boundary
from recollect.core.engine.batch_moment import Durability, Freed, change, free
from recollect.core.engine.session import Session, TurnResult, check_size
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

DORMANT_TURNS: Final = 50


async def prepare_turn(
    given: TurnInput,
    boundary: Boundary,
    *,
    recaller: Recaller | None,
    durability: Durability | None,
) -> TurnResult:
    draft = await begin(given, boundary)
    if draft is None:
        return TurnResult()
    if not draft.view.rows:
        boundary.note("check", "failed" if draft.entries else "skipped", Reason(Cause.SAYS_NOTHING))
        return TurnResult()
    asked = QueryResult(text="", reason=NOT_RUN)
    async with boundary.stage("query") as stage:
        with_noise = given.settings.recall.method == "openclaw"
        asked = await stage.call(query, draft.entries, with_noise=with_noise)
        stage.explain(asked.reason)
    freed = await _free_when_due(draft, asked, boundary, durability)
    if freed.compact_first:
        return TurnResult(draft=freed.draft, query=asked.text, compact_first=True)
    standing = freed.draft
    if freed.moment is not None or not given.state.requests or standing.outdates_standing_block():
        standing = await _with_standing_block(standing, recaller, boundary)
        freed = replace(freed, draft=standing)
    reads = RecallReads()
    recall = await _recall(standing, asked, freed.moment, recaller, boundary, reads)
    if recall is not None and not recall.found.empty:
        trimmed, quoted = standing.trims(), standing.quoted_names()
        freed = await _make_room(freed, asked, recall, boundary, durability)
        if freed.compact_first:
            return TurnResult(draft=freed.draft, query=asked.text, compact_first=True)
        final = freed.draft
        if (
            not quoted <= final.quoted_names()
        ):  # a block was removed, which may have quoted the answer
            if without_blocks(final.edits) != without_blocks(standing.edits):
                reads = RecallReads()  # do not reuse results of queries
            again = await _recall(final, asked, freed.moment, recaller, boundary, reads)
            if again is not None:
                recall = replace(again, found=recall.found) if again.found.empty else again
        if final.trims() != trimmed:
            final = await _with_standing_block(final, recaller, boundary)
        freed = replace(freed, draft=await _inject(final, recall, boundary))
    check_size(given, freed.draft.view.tokens, boundary, not_durable=bool(freed.not_durable))
    outgoing: Any = None
    async with boundary.stage("send") as stage:
        draft = freed.draft
        outgoing = await stage.call(join_request, given.request, draft.entries, draft.view.rows)
        stage.explain(Reason(Cause.SENT, messages=len(draft.view.rows)))
    return TurnResult(
        draft=None if outgoing is None else freed.draft,
        outgoing=outgoing,
        moment=freed.moment,
        query=asked.text,
        recalled=None if recall is None else recall.found,
        not_durable=bool(freed.not_durable),
        told_why_not_compact=freed.told_why_not_compact,
    )


async def begin(given: TurnInput, boundary: Boundary) -> Draft | None:
    """Return the history with its earlier edits applied; None if it cannot be read."""
    if not given.readable:
        return None
    done: ReadResult | None = None
    async with boundary.stage("read") as stage:
        done = await stage.call(
            read,
            given.request.messages,
            given.codec,
            given.secret,
            given.weigher,
            given.remembered,
            given.state.blocks,
            given.answers,
            given.seal,
        )
        stage.explain(done.reason)
    if done is None:
        return None
    alignment: Alignment | None = None
    async with boundary.stage("align") as stage:
        alignment = await stage.call(_align, given, done)
        stage.explain(alignment.reason)
    if alignment is None:
        return None
    entries = await boundary.call(_enter_all, done, alignment)
    draft = Draft(
        given=given,
        read=done,
        alignment=alignment,
        entries=entries,
        incoming_tokens=given.fixed_tokens + sum([entry.tokens for entry in entries]),
    )
    return await _apply_standing(draft, boundary)


def _enter_all(done: ReadResult, alignment: Alignment) -> tuple[Entry, ...]:
    fresh = zip(done.new_readings, alignment.keys[len(done.settled) :], strict=True)
    return done.settled + tuple([enter(reading, key) for reading, key in fresh])


def _align(given: TurnInput, done: ReadResult) -> Alignment:
    settled = len(done.settled)
    ids = given.state.ids[:settled] + tuple([reading.id for reading in done.new_readings])
    weights = [reading.tokens for reading in done.new_readings]
    request = given.request
    root = root_of_continued(request.continues_from) if request.continues else ROOT
    return align(given.state, ids, weights, settled=settled, root=root)


async def _apply_standing(draft: Draft, boundary: Boundary) -> Draft | None:
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
        elsewhere = set(state.ids) - {entry.id for entry in draft.entries}
        edits = tuple(
            edit
            for edit in edits
            if not isinstance(edit, Insert)
            or edit.stage != "stand"
            or elsewhere.isdisjoint(edit.quotes)
        )
    lifted: tuple[Edit, ...] = ()
    if _went_back(draft, edits):
        lifted = tuple(edit for edit in edits if edit.stage == "trim")
        edits = tuple(edit for edit in edits if edit.stage != "trim")
        boundary.note("align", "done", Reason(Cause.TRIMS_LIFTED))
    applied: Applied | None = None
    async with boundary.stage("pair") as stage:
        applied = await stage.call(_extend, draft, edits)
        stage.explain(*applied.reasons)
    if applied is None:
        return None
    dormant: tuple[tuple[Edit, int], ...] = ()
    if applied.ended_edits or lifted or state.dormant:
        gone = set(applied.ended_edits)
        edits = tuple([edit for edit in edits if edit not in gone])
        rest = [edit for edit in (*applied.ended_edits, *lifted) if edit.stage != "stand"]
        version = draft.given.version
        resting = [*state.dormant, *((edit, version) for edit in rest)]
        dormant = _still_waiting(resting, set(edits), version)
    return replace(draft, edits=edits, dormant=dormant, view=applied.view)


def _went_back(draft: Draft, edits: tuple[Edit, ...]) -> bool:
    """Return whether the client went back to before the trimmed messages, as chat clients can."""
    given = draft.given
    if given.calibrate(draft.incoming_tokens) <= given.limits.low_water_tokens:
        return any(edit.stage == "trim" for edit in edits)
    if not draft.changed_course():
        return False
    spoken = [
        entry.key
        for entry in draft.entries
        if entry.role == "assistant" or (entry.role == "user" and spoken_text(entry))
    ]
    recent = set(spoken[-given.settings.trim.protect_messages :])
    return any(edit.stage == "trim" and edit.anchor in recent for edit in edits)


def _extend(draft: Draft, edits: tuple[Edit, ...]) -> Applied:
    given = draft.given
    extended = None
    if not given.request.continues:
        extended = extend(
            given.remembered.last_view,
            draft.entries,
            edits,
            given.codec,
            given.weigher.message,
            thinking=given.request.thinking,
            marks=given.request.marks,
            composed=given.remembered.composed,
        )
    return extended or draft.apply_edits(edits)


def _still_waiting(
    resting: Sequence[tuple[Edit, int]], awake: set[Edit], turn: int
) -> tuple[tuple[Edit, int], ...]:
    since: dict[Edit, int] = {}
    for edit, first in resting:
        if edit not in awake and turn - first <= DORMANT_TURNS:
            since.setdefault(edit, first)
    return tuple(since.items())


async def _free_when_due(
    draft: Draft, asked: QueryResult, boundary: Boundary, durability: Durability | None
) -> Freed:
    given = draft.given
    moment = batch_moment(
        given.settings,
        given.limits,
        used_tokens=draft.used_tokens(),
        now=given.now,
        state=given.state,
        kept_an_hour=is_kept_an_hour(given.request),
    )
    if moment is None and draft.fills_up():
        due = Reason(Cause.COMPACTION_DUE, limit=given.limits.compact_tokens)
        moment = BatchMoment(kind="compaction", reason=due)
    if moment is None:
        return Freed(draft=draft)
    return await free(draft, moment, asked, boundary, durability)


async def _make_room(
    freed: Freed,
    asked: QueryResult,
    recall: RecallResult,
    boundary: Boundary,
    durability: Durability | None,
) -> Freed:
    """Free space for a recalled block that does not fit: remove older blocks, then edit more."""
    draft = freed.draft
    if draft.given.settings.recall.method == "openclaw":
        return freed
    # If the user asked nothing, do not break the provider's cache for a recalled block.
    if not recall.asks and freed.moment is None:
        return freed
    wanted = draft.full_block_tokens(recall)
    if draft.has_room(wanted):
        return freed
    reason = Reason(Cause.ROOM_WANTED, tokens=wanted, room=max(0, draft.room_tokens()))
    moment = BatchMoment(kind="room", reason=reason)
    made = await free(draft, moment, asked, boundary, durability, wanted_tokens=wanted)
    return replace(
        made,
        moment=made.moment or freed.moment,
        not_durable=made.not_durable | freed.not_durable,
        told_why_not_compact=freed.told_why_not_compact or made.told_why_not_compact,
    )


async def _with_standing_block(
    draft: Draft, recaller: Recaller | None, boundary: Boundary
) -> Draft:
    given = draft.given
    tokens = given.limits.standing_tokens
    if not tokens:
        return draft
    rest = tuple(e for e in draft.edits if not (isinstance(e, Insert) and e.stage == "stand"))
    if len(rest) < len(draft.edits):
        draft = await change(draft, rest, boundary)
    bare = draft
    tokens = min(tokens, given.limits.limit_tokens - bare.used_tokens() - MESSAGE_TOKENS)
    if tokens <= 0:
        return bare
    seen = {entry.id for entry in bare.visible()}
    left = [e for e in bare.entries if e.id not in seen and e.id not in given.forgotten]
    cut = newest_cut(bare.edits)
    facts: tuple[RecalledFact, ...] = ()
    if isinstance(recaller, StandingRecaller):
        seconds = given.settings.recall.deadline_seconds
        async with boundary.stage("stand", waits=True, seconds=seconds) as stage:
            facts = await recaller.standing(given.session)
            stage.explain(Reason(Cause.STANDING_FOUND, facts=len(facts)))
        facts = tuple(fact for fact in facts if seen.isdisjoint(fact.message_ids))
    made = StandResult(edit=None, reason=NOT_RUN)
    async with boundary.stage("stand") as stage:
        masks_text = given.settings.redaction.enabled and bool(left or facts)
        call = asyncio.to_thread if masks_text else stage.call
        made = await call(
            stand,
            left,
            facts,
            given.weigher,
            anchor=bare.entries[0].key,
            budget_tokens=given.estimate_within(tokens),
            turn=given.version,
            among_tools=uses_tools(bare.entries),
            summary="" if cut is None else cut.summary,
            mask=given.mask.text,
            statement_cache=given.remembered.statements,
        )
        stage.explain(made.reason)
    return bare if made.edit is None else await change(bare, (*rest, made.edit), boundary)


async def _recall(
    draft: Draft,
    asked: QueryResult,
    moment: BatchMoment | None,
    recaller: Recaller | None,
    boundary: Boundary,
    reads: RecallReads,
) -> RecallResult | None:
    given = draft.given
    if not given.settings.recall.enabled:
        boundary.note("recall", "skipped", Reason(Cause.RECALL_OFF))
        return None
    cause = None
    if recaller is None:
        cause = Cause.NO_RECALLER
    elif len(asked.text) < LEAST_QUERY_CHARS:
        cause = Cause.QUERY_TOO_SHORT
    elif _has_its_block(draft):
        cause = Cause.HAS_BLOCK
    elif moment is None and _was_asked(draft):
        cause = Cause.ASKED_BEFORE
    if recaller is None or cause is not None:
        boundary.note("recall", "nothing", Reason(cause or Cause.NO_RECALLER))
        return None
    request = await boundary.call(_recall_request, draft, asked, reads)
    recalled = Recalled()
    seconds = given.settings.recall.deadline_seconds
    async with boundary.stage("recall", waits=True, seconds=seconds) as stage:
        recalled = await recaller.recall(request)
        stage.explain(*_recall_reasons(recalled))
    return RecallResult(
        found=recalled, budget_tokens=request.budget_tokens, asks=request.asks != "other"
    )


def _recall_request(draft: Draft, asked: QueryResult, reads: RecallReads) -> RecallRequest:
    given = draft.given
    return ask(
        draft.visible(),
        asked,
        given.settings.recall,
        edits=draft.edits,
        among_tools=uses_tools(draft.entries),
        space=given.space,
        session=given.session,
        now=given.now,
        budget_tokens=given.block_tokens,
        count_tokens=given.weigher.text,
        reads=reads,
    )


def _recall_reasons(recalled: Recalled) -> tuple[Reason, ...]:
    gate, facts, passages = recalled.gate, len(recalled.facts), len(recalled.passages)
    if gate is None:
        reason = Reason(Cause.FOUND, facts=facts, passages=passages)
    elif gate.open:
        reason = Reason(Cause.FOUND_BY, facts=facts, passages=passages, gate=gate.reason)
    else:
        reason = Reason(Cause.NOT_RECALLED, gate=gate.reason)
    return (reason, *recalled.notes)


def _has_its_block(draft: Draft) -> bool:
    recent = newest_exchange(draft.entries)
    return any(block.anchor in recent for block in draft.blocks())


def _was_asked(draft: Draft) -> bool:
    last, recall = last_turn(draft.entries), draft.given.settings.recall
    if recall.every_turn or not recall.sticky:  # keep no block for later requests
        return False
    if last.role == "user" and spoken_text(last):
        return False
    reply = next((entry for entry in reversed(draft.entries) if entry.role == "assistant"), None)
    return reply is None or not any(
        identifiers_in(part.text) for part in reply.parts if isinstance(part, Text)
    )


async def _inject(draft: Draft, recall: RecallResult, boundary: Boundary) -> Draft:
    given = draft.given
    made = InjectResult(edit=None, fill="none", tokens=0, reason=NOT_RUN)
    async with boundary.stage("inject") as stage:
        made = await stage.call(
            inject,
            draft.entries,
            recall.found,
            given.weigher,
            placement=given.settings.recall.placement,
            budget_tokens=draft.block_budget(recall),
            turn=given.version,
            method=given.settings.recall.method,
        )
        stage.explain(made.reason)
    if made.edit is None:
        return draft
    kept = draft.edits
    if made.edit.placement == "head":  # at the start of the request, only the newest block remains
        kept = without_blocks(kept)
    return await change(draft, (*kept, made.edit), boundary)


NEW_BYTES: Final = 65_536
WHOLE_BYTES: Final = 1_500_000
STANDING_EDITS: Final = 32
"""Requests with at most this many edits are prepared in the event loop, which takes a few
milliseconds."""
_SAME_RATIO: Final = 0.9


def is_quick(handle: Session, request: bytes | Mapping[str, Any]) -> bool:
    """Return whether preparing the request is fast enough for the event loop."""
    if not isinstance(request, bytes) or len(handle.state.edits) > STANDING_EDITS:
        return False
    if len(request) <= NEW_BYTES:
        return True
    draft = handle.last_draft
    last = None if draft is None else draft.given.request.body
    if last is None or len(request) > WHOLE_BYTES or len(request) - len(last) > NEW_BYTES:
        return False
    return request.startswith(last[: int(len(last) * _SAME_RATIO)])


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
    request: Request | None = None
    fixed_tokens = 0
    async with boundary.stage("read") as stage:
        request = await stage.call(split_request, body, format_name, betas=betas, before=before)
        fixed_tokens = await stage.call(_fixed_tokens_of, request, weigher)
        stage.explain(
            Reason(Cause.REQUEST_READ, messages=len(request.messages), format=request.format)
        )
    return request, fixed_tokens


def _fixed_tokens_of(request: Request, weigher: Weigher) -> int:
    texts = [raw.decode("utf-8", "replace") for raw in (request.system, request.tools) if raw]
    return sum(text_tokens(weigher, text) for text in texts)


def repair_request(given: Mapping[str, Any], format_name: FormatName) -> Mapping[str, Any]:
    """Make a request valid for its provider, with the repairs of `Engine.prepare` and nothing else.
    Call it after adding messages to a prepared request: a model may use a call id twice. Messages
    that were already prepared do not change."""
    request, codec, weigher = split_request(given, format_name), CODECS[format_name], Weigher()
    entries, key = list[Entry](), ROOT
    for reading in read(request.messages, codec, b"", weigher, LastRequest()).new_readings:
        entries.append(enter(reading, key := chain(key, reading.id)))
    applied = apply(
        entries,
        (),
        codec,
        weigher.message,
        continues=request.continues,
        thinking=request.thinking,
        marks=request.marks,
    )
    repaired: Mapping[str, Any] = join_request(request, entries, applied.view.rows)
    return repaired


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
    learned = state.learned_window_tokens
    if request.model != state.learned_for_model:
        learned = None
    if learned is None and model is not None and request.model == model.name:
        learned = model.window_tokens
    if window_tokens is not None:
        settings = replace(settings, window_tokens=window_tokens)
    window = window_of(request.model, settings, learned_tokens=learned)
    limits = limits_of(window.tokens, settings, output_tokens=request.output_tokens)
    fixed = state.calibration.apply(fixed_tokens) if settings.tokens.calibrate else fixed_tokens
    if fixed >= limits.available_tokens and window.source != "provider":
        limits, room = limits_beside(
            fixed, window.tokens, settings, output_tokens=request.output_tokens
        )
        fills = Reason(Cause.PROMPT_FILLS, tokens=fixed, window=window.tokens, room=room)
        boundary.note("read", "done", fills)
    return limits, window.source
