"""Runs the turns of a session one after the other: loads the session's state, prepares the request,
and starts to store the turn, which continues while the model answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from recollect.core.boundary import Boundary, attempted
from recollect.core.engine.background import use_reason
from recollect.core.engine.batch_moment import Durability
from recollect.core.engine.ledger import FinishedTurn
from recollect.core.engine.parts import EngineParts
from recollect.core.engine.prepare import (
    begin_draft,
    limits_for,
    prepare_turn,
    read_request,
)
from recollect.core.engine.session import (
    Context,
    Session,
    TurnResult,
    build_context,
    describe_compaction,
    load_state,
)
from recollect.core.formats.codec import codec_of
from recollect.core.rules.message_redaction import TextMask
from recollect.core.turn.align import LastRequest, remember
from recollect.core.turn.apply import LastView
from recollect.core.turn.draft import Draft, TurnInput
from recollect.core.values.compaction import CompactionResult
from recollect.core.values.history import SessionState
from recollect.core.values.model import FormatName, Request
from recollect.core.values.reason import PAUSING, Cause, Reason
from recollect.errors import StaleSession

MAX_QUICK_NEW_BYTES: Final = 65_536
"""A request with more new bytes is prepared in a thread: reading it takes several milliseconds."""
MAX_QUICK_BODY_BYTES: Final = 1_500_000
"""Comparing a longer request with the last one would itself hold up other sessions."""
MAX_QUICK_EDITS: Final = 32
"""Requests with at most this many edits are prepared in the event loop, which takes a few
milliseconds."""
_SAME_PREFIX_SHARE: Final = 0.9
"""The last request must begin the new one up to this share, because clients change its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A request as its client passed it, with the options of the call."""

    body: bytes | Mapping[str, Any] = field(repr=False)
    format_name: FormatName | None
    betas: Sequence[str] = ()
    window_tokens: int | None = None


class TurnRunner:
    """Runs the turns of one engine."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts

    async def run(
        self, session: Session, incoming: Incoming, compaction: CompactionResult | None = None
    ) -> Context | None:
        """Prepare a request, and start to store the turn. Return None if a compaction must come
        first: then call this again with its result."""
        parts = self._parts
        async with session.lock:
            boundary = parts.new_boundary(is_quick=_is_quick(session, incoming.body))
            self._follow_files(boundary)
            facts, model_uses = parts.notes.take()
            for line in facts:
                boundary.note("extract", "done", Reason(Cause.EXTRACTED, facts=line))
            if model_uses:
                boundary.note("jobs", "done", use_reason(model_uses))
            early_compaction, session.compacted_meanwhile = session.compacted_meanwhile, None
            if compaction is not None:
                boundary.note("compact", *describe_compaction(compaction))
            elif early_compaction is not None:
                outcome, result_reason = describe_compaction(early_compaction)
                boundary.note(
                    "compact", outcome, Reason(Cause.IN_BACKGROUND, compaction=result_reason)
                )
            state = await load_state(session, parts.reader, boundary)
            turn_input = await self._read_input(session, state, incoming, boundary)
            why_not = parts.compactor.why_not(state)
            if turn_input.request.continues and why_not is None:
                why_not = Reason(Cause.PROVIDER_HOLDS)
            may_compact = compaction is None and why_not is None
            turn_input = replace(turn_input, why_not_compact=why_not, may_compact=may_compact)
            durability = None
            if parts.keeper is not None:
                durability = Durability(keeper=parts.keeper, archive_state=session.archive_state)
            result = await prepare_turn(
                turn_input, boundary, recaller=parts.recaller, durability=durability
            )
            if result.compact_first:
                session.last_draft, session.compacted_meanwhile = result.draft, early_compaction
                parts.notes.put_back(facts, model_uses)
                return None
            self._note_pause(turn_input, result, boundary)
            context = build_context(
                turn_input, result, boundary, original_request=incoming.body, compaction=compaction
            )
            if session.state is not state:
                raise StaleSession(
                    f"session {session.id!r} changed while its request was prepared; prepare it "
                    "again"
                )
            session.state = context.state
            if result.draft is not None:
                self._commit(session, result.draft, context)
                # Let the task start: if the event loop closed first, the write would be lost.
                await asyncio.sleep(0)
            return context

    async def preview(self, session: Session, incoming: Incoming, *, recall: bool) -> Context:
        """Prepare a request, but store and compact nothing."""
        parts = self._parts
        async with session.lock:
            boundary = parts.new_boundary(is_quick=_is_quick(session, incoming.body))
            state = await load_state(session, parts.reader, boundary)
            turn_input = await self._read_input(session, state, incoming, boundary)
            turn_input = replace(
                turn_input, why_not_compact=Reason(Cause.PREVIEWED), may_compact=False
            )
            recaller = parts.recaller if recall else None
            result = await prepare_turn(turn_input, boundary, recaller=recaller, durability=None)
            return build_context(
                turn_input, result, boundary, original_request=incoming.body, compaction=None
            )

    async def begin_draft(self, session: Session, incoming: Incoming) -> Draft | None:
        """Return the history of a request with its earlier edits; None if it cannot be read."""
        async with session.lock:
            boundary = self._parts.new_boundary()
            state = await load_state(session, self._parts.reader, boundary)
            return await begin_draft(
                await self._read_input(session, state, incoming, boundary), boundary
            )

    async def _read_input(
        self, session: Session, state: SessionState, incoming: Incoming, boundary: Boundary
    ) -> TurnInput:
        parts = self._parts
        last_request = None if session.last_draft is None else session.last_draft.given.request
        readable_request, fixed_tokens = await read_request(
            incoming.body,
            incoming.format_name,
            boundary,
            betas=incoming.betas,
            weigher=parts.weigher,
            before=last_request,
        )
        request = readable_request or Request(
            format=incoming.format_name or "anthropic", messages=(), field=""
        )
        limits, window_source = limits_for(
            request,
            fixed_tokens,
            state,
            parts.settings,
            parts.model,
            boundary,
            window_tokens=incoming.window_tokens,
        )
        if session.last_request.rules != codec_of(request).rules or request.continues:
            session.last_request = LastRequest()
        if parts.reader is not None:
            await attempted(
                parts.tool_answers.find_marks(request, session.last_request, parts.reader.store)
            )
        return TurnInput(
            settings=parts.settings,
            space=parts.space,
            session=session.id,
            state=state,
            readable=readable_request is not None,
            request=request,
            fixed_tokens=fixed_tokens,
            limits=limits,
            window_source=window_source,
            weigher=parts.weigher,
            secret=parts.secret,
            now=parts.clock.now(),
            mask=TextMask(parts.settings.redaction, session.archive_state.secrets),
            forgotten=session.archive_state.forgotten_ids,
            answers=parts.tool_answers.marks,
            seal=parts.seal,
            remembered=session.last_request,
        )

    def _commit(self, session: Session, draft: Draft, context: Context) -> None:
        turn_input = draft.given
        session.last_draft = replace(draft, committed=True)
        session.last_request = remember(
            turn_input.remembered,
            turn_input.codec.rules,
            draft.entries,
            draft.read,
            LastView(entries=draft.entries, edits=draft.edits, view=draft.view),
        )
        session.sent_messages, session.has_learned = len(context.state.path), False
        if self._parts.keeper is not None:
            turn = FinishedTurn(
                request=turn_input.request,
                report=context.report,
                state=context.state,
                now=turn_input.now,
                as_it_came=context.request is turn_input.request.body,
            )
            self._parts.keeper.store_turn(turn, session.archive_state)

    def _note_pause(self, turn_input: TurnInput, result: TurnResult, boundary: Boundary) -> None:
        why_not, component = turn_input.why_not_compact, self._parts.compactor.component
        if why_not is None or why_not.cause not in PAUSING:
            return
        if not result.reported_why_not_compact:
            boundary.note("compact", "skipped", Reason(Cause.NO_COMPACTION, why=why_not))
        if not component.trouble(turn_input.session):
            component.fail(str(why_not), whose=turn_input.session)

    def _follow_files(self, boundary: Boundary) -> None:
        files = self._parts.files
        if files is not None:
            files.wake()
            if trouble := files.trouble():
                boundary.note("ingest", "skipped", trouble)


def _is_quick(handle: Session, request: bytes | Mapping[str, Any]) -> bool:
    """Return whether preparing the request is fast enough for the event loop."""
    if not isinstance(request, bytes) or len(handle.state.edits) > MAX_QUICK_EDITS:
        return False
    if len(request) <= MAX_QUICK_NEW_BYTES:
        return True
    draft = handle.last_draft
    last = None if draft is None else draft.given.request.body
    if (
        last is None
        or len(request) > MAX_QUICK_BODY_BYTES
        or len(request) - len(last) > MAX_QUICK_NEW_BYTES
    ):
        return False
    return request.startswith(last[: int(len(last) * _SAME_PREFIX_SHARE)])
