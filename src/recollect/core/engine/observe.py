"""Learns from a reply: its token usage, an overflow error, and its messages. Any field of a reply
may be missing or malformed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from recollect.core.boundary import Boundary
from recollect.core.compaction.cut import TriggerResult, trigger
from recollect.core.engine.archive import Location
from recollect.core.engine.loading import note_trouble
from recollect.core.engine.parts import EngineParts
from recollect.core.engine.session import (
    MarkReply,
    Observation,
    Session,
    StoredReply,
    can_be_reply,
    load_state,
    reply_pieces,
)
from recollect.core.formats.codec import CODECS
from recollect.core.formats.replies import (
    StreamedReply,
    read_cleared_tokens,
    read_error,
    read_reply,
    read_usage,
)
from recollect.core.ports import RecognizeOverflow
from recollect.core.rules.budget import OUTPUT_SHARE
from recollect.core.rules.identity import ROOT, chain
from recollect.core.rules.tokens import Weigher
from recollect.core.turn.align import enter, reading_of
from recollect.core.values.history import Entry, SessionState, newest_cut, requests_of
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.model import LimitDoubt, Overflow, Usage
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.report import StageLine
from recollect.system.config import FALLBACK_WINDOW_TOKENS

SHRINK_RATIO = 0.9
"""An error without a limit teaches a window of this share of the refused request. Not measured; a
second refusal shrinks it again."""
MIN_WINDOW_TOKENS = 1_024
"""A smaller window is not plausible, because it could not hold a question and its answer."""
_COUNT_RATIO = 2.0
"""Our count and the provider's differ by less than this factor, also before the first calibration
(docs/contributing/benchmarks.md, `bench tokens`)."""


class Observer:
    """Learns from the replies to one engine's requests."""

    def __init__(
        self,
        parts: EngineParts,
        *,
        in_background: bool,
        recognize_overflow: RecognizeOverflow | None,
    ) -> None:
        self._parts = parts
        self._in_background = in_background
        self._recognize_overflow = recognize_overflow

    async def observe(
        self,
        session: Session,
        reply: Any,
        boundary: Boundary,
        *,
        wait: bool = True,
        mark: MarkReply | None = None,
    ) -> Observation:
        """Learn from a reply and store it. The caller holds the session's lock."""
        received_reply = reply
        if isinstance(reply, list | tuple):
            events, reply = reply, StreamedReply()
            async with boundary.stage("read") as stage:
                streamed_reply = await stage.call(StreamedReply, events)
                reply = stage.explain(streamed_reply, Reason(Cause.USAGE_READ))
        state = session.state
        if state.sent_at is None:  # another process prepared the request that this reply answers
            state = await load_state(session, self._parts.reader, boundary)
        if not state.turn:
            boundary.note("read", "failed", Reason(Cause.NEVER_PREPARED))
        usage: Usage | None = None
        overflow: Overflow | None = None
        async with boundary.stage("read") as stage:
            outcome = await stage.call(read_outcome, reply, self._recognize_overflow)
            usage, overflow = stage.explain(outcome, Reason(Cause.USAGE_READ))
        if overflow is None and not can_be_reply(received_reply):
            kind = type(received_reply).__name__
            boundary.note("read", "failed", Reason(Cause.NOT_A_REPLY, kind=kind))
        doubt = None
        if overflow is not None:
            session.archive_state.refused_at = time.monotonic()
            sent = () if session.last_draft is None else session.last_draft.given.request.messages
            doubt = doubt_limit(state, overflow, sent)
            state = state if doubt is not None else after_overflow(state, overflow)
        if usage and state.sent_estimate_tokens and self._parts.settings.tokens.calibrate:
            whole_reply = reply.reply() if isinstance(reply, StreamedReply) else reply
            calibration = state.calibration.learn(
                estimated_tokens=state.sent_estimate_tokens,
                reported_tokens=usage.input_tokens + read_cleared_tokens(whole_reply),
            )
            state = replace(state, calibration=calibration)
        if usage is not None:
            session.archive_state.usage = usage
            ttl = self._parts.settings.pruning.ttl
            pause = state.pause_seconds
            has_continued = pause is not None and pause < ttl
            state = replace(
                state, cache=state.cache.learn(usage, pause_seconds=pause, went_on=has_continued)
            )
        session.state = state
        entries, location = await self._store_reply(session, reply, boundary, wait=wait, mark=mark)
        due = self._choose_due(session, usage, sum(entry.tokens for entry in entries))
        self._note_background(session, boundary)
        causes = {line.cause for line in boundary.failures}
        no_reply = not causes.isdisjoint((Cause.NOT_A_REPLY, Cause.NEVER_PREPARED))
        return Observation(
            usage=usage,
            calibration_ratio=state.calibration.ratio,
            learned_window_tokens=state.learned_window_tokens,
            doubted_limit=doubt,
            failures=boundary.failures,
            due=due.due,
            due_reason=due.reason,
            flush_first=due.flush_first,
            archived=None if no_reply else location,
            being_stored=bool(entries) and self._parts.keeper is not None and not wait,
            broken_off=isinstance(reply, StreamedReply) and reply.broken_off,
        )

    async def _store_reply(
        self,
        session: Session,
        reply: Any,
        boundary: Boundary,
        *,
        wait: bool,
        mark: MarkReply | None,
    ) -> tuple[tuple[Entry, ...], Location | None]:
        entries: tuple[Entry, ...] = ()
        async with boundary.stage("read") as stage:
            new_entries = await stage.call(
                _session_reply, session, reply, self._parts.secret, self._parts.weigher
            )
            entries = stage.explain(
                new_entries, Reason(Cause.REPLY_READ, messages=len(new_entries))
            )
        marks: Sequence[str] = ()
        broken_off = isinstance(reply, StreamedReply) and reply.broken_off
        if mark is not None and entries and not broken_off:
            marks = mark([entry.message for entry in entries])
        keeper, settings = self._parts.keeper, self._parts.settings
        if keeper is None:
            return entries, None
        if entries:
            stored_reply = StoredReply(session=session.id, turn=requests_of(session.state))
            session.state = with_reply(session.state, entries, session.sent_messages)
            keeper.store_reply(
                session.id,
                entries,
                session.archive_state,
                now=self._parts.clock.now(),
                pieces=reply_pieces(marks, stored_reply),
            )
        if not wait:
            await asyncio.sleep(0)  # start the write before returning
            return entries, None
        seconds = settings.turn.deadline_seconds
        is_done = await keeper.wait(session.archive_state, seconds)
        boundary.add(session.archive_state.report_lines)
        if not is_done:
            boundary.note("ingest", "late", Reason(Cause.WRITE_GOES_ON, seconds=seconds))
        return entries, session.archive_state.location if is_done else "nowhere"

    def _choose_due(
        self, session: Session, usage: Usage | None, reply_tokens: int
    ) -> TriggerResult:
        draft, state = session.last_draft, session.state
        if draft is None:
            return TriggerResult(due="nothing", reason=Reason(Cause.NOTHING_PREPARED))
        never_reason = self._parts.compactor.why_never
        if never_reason is not None:
            return TriggerResult(due="nothing", reason=never_reason)
        used_tokens = None
        if newest_cut(state.edits) != newest_cut(draft.edits):
            pass  # the usage describes a request before the compaction
        elif usage is not None:
            used_tokens = usage.input_tokens + usage.output_tokens
        elif state.sent_estimate_tokens:
            used_tokens = draft.given.calibrate(state.sent_estimate_tokens + reply_tokens)
        settings = self._parts.settings.compaction
        due = trigger(
            used_tokens=used_tokens,
            limits=draft.given.limits,
            settings=settings,
            compactions=state.compactions,
            flushed_in=state.flushed_in,
            why_paused=self._parts.compactor.why_not(state),
        )
        if self._in_background and due.due != "nothing":
            self._parts.compactor.start_early(session, draft, due)
        return due

    def _note_background(self, session: Session, boundary: Boundary) -> None:
        if self._parts.keeper is not None:
            note_trouble(self._parts.keeper.archive, boundary)
        failure_reason, session.compaction_failure = session.compaction_failure, None
        if failure_reason is not None:
            boundary.note("compact", "failed", failure_reason)
        if self._parts.jobs is not None and (text := self._parts.jobs.trouble()):
            boundary.note("jobs", "failed", Reason(Cause.ERROR, error=text))


def late_reply(
    state: SessionState, reply: Any, failures: tuple[StageLine, ...] = ()
) -> Observation:
    """Return the usage in a reply to a request that is not the session's last one."""
    read = StreamedReply(reply).reply() if isinstance(reply, list | tuple) else reply
    return Observation(
        usage=read_usage(read),
        calibration_ratio=state.calibration.ratio,
        learned_window_tokens=state.learned_window_tokens,
        failures=failures,
    )


def read_outcome(
    reply: Any, recognize_overflow: RecognizeOverflow | None
) -> tuple[Usage | None, Overflow | None]:
    """Return the usage in a reply, or the overflow that an error reports."""
    if isinstance(reply, Overflow):
        return None, reply
    is_streamed = isinstance(reply, StreamedReply)
    usage = read_usage(reply.reply() if is_streamed else reply)
    if usage is not None or recognize_overflow is None:
        return usage, None
    reply_error = read_error(reply.error if is_streamed else reply)
    if reply_error is None:
        return None, None
    return None, recognize_overflow(
        status=reply_error.status, message=reply_error.message, body=reply_error.body
    )


def reply_entries(
    reply: Any, format_name: str | None, path: tuple[EntryKey, ...], secret: bytes, weigher: Weigher
) -> tuple[Entry, ...]:
    """Return the messages of a reply, with the keys they get when the client resends them."""
    sent = next((name for name in CODECS if name == format_name), None)
    if sent is None:
        return ()  # no request was prepared before
    parent = path[-1] if path else ROOT
    codec = CODECS[sent]
    entries: list[Entry] = []
    broken_off = isinstance(reply, StreamedReply) and reply.broken_off
    messages = read_reply(sent, reply.reply() if isinstance(reply, StreamedReply) else reply)
    for index, raw in enumerate(messages, start=1):
        message = codec.read(raw)
        if broken_off and index == len(messages):
            message = replace(message, ending="aborted")
        reading = reading_of(message, codec, secret, weigher)
        parent = chain(parent, reading.id)
        entries.append(enter(reading, parent))
    return tuple(entries)


def _session_reply(
    session: Session, reply: Any, secret: bytes, weigher: Weigher
) -> tuple[Entry, ...]:
    """Return the messages of a reply to the session's last request."""
    state, sent = session.state, session.sent_messages
    # Another process prepared the request, so it may have stored the reply too.
    if session.last_draft is None:
        repeated_entries = reply_entries(reply, state.sent_format, (), secret, weigher)
        sent -= count_repeated(state.ids[:sent], repeated_entries)
        session.sent_messages = sent
    return reply_entries(reply, state.sent_format, state.path[:sent], secret, weigher)


def count_repeated(ids: Sequence[MessageId], reply: Sequence[Entry]) -> int:
    """Count the messages at the end of the path that repeat this reply."""
    count = len(reply)
    is_same = count and tuple(ids[-count:]) == tuple(entry.id for entry in reply)
    return count if is_same else 0


def with_reply(state: SessionState, reply: tuple[Entry, ...], sent: int) -> SessionState:
    """Return the state with this reply after its request. A second reply to the same request
    replaces the first."""
    return replace(
        state,
        path=state.path[:sent] + tuple(entry.key for entry in reply),
        ids=state.ids[:sent] + tuple(entry.id for entry in reply),
    )


def after_overflow(state: SessionState, overflow: Overflow) -> SessionState:
    """Return the state after a provider refused a request as too large. If the error names no
    limit, assume a window smaller than the request."""
    limit = overflow.limit_tokens
    if limit is None:
        limit = int(_count_sent_tokens(state) * SHRINK_RATIO)
    elif (overflow.output_tokens or 0) > limit // OUTPUT_SHARE:
        limit -= overflow.output_tokens or 0
    if limit < MIN_WINDOW_TOKENS:
        return state
    return replace(state, learned_window_tokens=limit, learned_for_model=state.sent_model)


def doubt_limit(
    state: SessionState, overflow: Overflow, sent_messages: Iterable[bytes]
) -> LimitDoubt | None:
    """Return why the limit in an overflow error may not be the model's window; None if it is."""
    limit = overflow.limit_tokens
    if limit is None:
        return None
    if limit < MIN_WINDOW_TOKENS:
        return LimitDoubt.BELOW_FLOOR
    counted_tokens = _count_sent_tokens(state)
    largest = max(counted_tokens * _COUNT_RATIO, overflow.requested_tokens or 0)
    if limit > max(largest, FALLBACK_WINDOW_TOKENS):
        return LimitDoubt.WIDER
    requested_tokens = overflow.requested_tokens or 0
    is_of_ours = counted_tokens / _COUNT_RATIO <= requested_tokens <= counted_tokens * _COUNT_RATIO
    words = overflow.limit_words.lower().encode()
    if words and not is_of_ours and any(words in raw.lower() for raw in sent_messages):
        return LimitDoubt.ECHOED
    return None


def _count_sent_tokens(state: SessionState) -> int:
    return state.calibration.apply(state.sent_estimate_tokens) if state.sent_estimate_tokens else 0
