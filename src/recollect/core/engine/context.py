"""The result of a turn: the request to send, its report, and the session's next state."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from recollect.core.boundary import Boundary
from recollect.core.engine.session import Context
from recollect.core.rules.identity import block_mark
from recollect.core.turn.draft import Draft, TurnInput
from recollect.core.values.compaction import CompactionResult
from recollect.core.values.edit import Insert, edits_only_in
from recollect.core.values.history import SessionState, View
from recollect.core.values.message import ToolResult
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import Recalled, passage_name
from recollect.core.values.report import BatchMoment, Outcome, Report

CHARS_A_TOKEN: Final = 4
"""A rough size for what could not be read."""
MOST_BLOCKS: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """What the stages of a turn did."""

    draft: Draft | None = None
    outgoing: Any = field(default=None, repr=False)
    moment: BatchMoment | None = None
    query: str = field(default="", repr=False)
    recalled: Recalled | None = field(default=None, repr=False)
    not_durable: bool = False
    """Messages had to stay in the view because nothing could keep them."""
    compact_first: bool = False
    told_why_not_compact: bool = False


def check_size(
    given: TurnInput, view_tokens: int, boundary: Boundary, *, not_durable: bool
) -> None:
    """Note that the request is over its limit although everything was done."""
    over = given.calibrated(given.fixed_tokens + view_tokens) - given.limits.available_tokens
    if over > 0:
        cause = Cause.STILL_OVER_NOT_DURABLE if not_durable else Cause.STILL_OVER
        boundary.note("check", "failed", Reason(cause, tokens=over))


def context_of(
    given: TurnInput,
    done: TurnResult,
    boundary: Boundary,
    *,
    as_it_came: Any,
    compaction: CompactionResult | None,
) -> Context:
    """What the stages did, as what the caller gets; `as_it_came` is sent where nothing could
    be shaped."""
    draft = done.draft
    if draft is None:
        size_chars = len(as_it_came) if isinstance(as_it_came, bytes) else None
        if size_chars is None:
            size_chars = sum(len(raw) for raw in given.request.messages)
        view = View(rows=(), tokens=size_chars // CHARS_A_TOKEN)
        check_size(given, view.tokens, boundary, not_durable=done.not_durable)
        state = replace(given.state, turn=given.version, requests=given.number)
        edits, incoming = given.state.edits, given.fixed_tokens + view.tokens
    else:
        view, state = draft.view, _next_state(draft)
        edits, incoming = draft.edits, draft.incoming_tokens
    shown = frozenset(name for edit in edits if isinstance(edit, Insert) for name in edit.recalled)
    report = Report(
        session=given.session,
        turn=given.number,
        format=given.request.format,
        model=given.request.model,
        window_tokens=given.limits.window_tokens,
        window_source=given.window_source,
        reserve_tokens=given.limits.reserve_tokens,
        limit_tokens=given.limits.available_tokens,
        fixed_tokens=given.fixed_tokens,
        tokens_before=given.calibrated(incoming),
        tokens_after=given.calibrated(given.fixed_tokens + view.tokens),
        calibration_ratio=given.state.calibration.ratio,
        moment=None if draft is None else done.moment,
        query=done.query,
        lines=tuple(boundary.lines),
        new_edits=edits_only_in(edits, given.state.edits),
        ended_edits=edits_only_in(given.state.edits, edits),
        entries=() if draft is None else draft.entries,
        view=view,
        edits=edits,
        recalled=tuple(
            (passage.segment, passage.score)
            for passage in (() if done.recalled is None else done.recalled.passages)
            if passage.segment and passage.name in shown
        ),
    )
    return Context(
        request=as_it_came if draft is None else done.outgoing,
        report=report,
        state=state,
        recalled=done.recalled and _with_shown(done.recalled, shown),
        compaction=compaction,
    )


def _with_shown(recalled: Recalled, shown: frozenset[str]) -> Recalled:
    hits = []
    for hit in recalled.hits:
        segment, ordinal = hit.passage.segment, hit.passage.ordinal
        names = {passage_name(segment, ordinal), passage_name(segment, None)}
        if hit.text:
            hits.append(replace(hit, shown=not shown.isdisjoint(names)))
    return replace(recalled, hits=tuple(hits)) if recalled.hits else recalled


def _next_state(draft: Draft) -> SessionState:
    given = draft.given
    return replace(
        draft.aligned_state(given.state),
        turn=given.version,
        requests=given.number,
        edits=draft.edits,
        sent_at=given.now,
        pause_seconds=_pause_seconds(draft),
        sent_estimate_tokens=given.fixed_tokens + draft.view.tokens,
        sent_model=given.request.model,
        sent_format=given.request.format,
        blocks=_marked_blocks(draft),
    )


def _pause_seconds(draft: Draft) -> float | None:
    """Since the last request; None where nothing of it can be in the provider's cache."""
    given = draft.given
    before, edits = given.state.sent_at, draft.edits
    same = all(isinstance(e, Insert) for e in edits_only_in(edits, given.state.edits))
    gone = edits_only_in(given.state.edits, edits)
    return given.now - before if before is not None and same and not gone else None


def _marked_blocks(draft: Draft) -> tuple[str, ...]:
    known, before = draft.given.state.blocks, draft.given.state.edits
    new = [e.text for e in edits_only_in(draft.edits, before) if isinstance(e, Insert)]
    parts = [part for reading in draft.read.fresh for part in reading.message.parts]
    results = [part for part in parts if isinstance(part, ToolResult)]
    new += [part.text for part in results if part.recalls is not None]
    marks = (block_mark(text, draft.given.secret) for text in new)
    return (*known, *(mark for mark in marks if mark not in known))[-MOST_BLOCKS:]


def compaction_line(done: CompactionResult) -> tuple[Outcome, Reason]:
    """How a compaction ended, for the report of a turn."""
    if done.compacted:
        return "done", Reason(
            Cause.COMPACTED,
            why=done.reason,
            before=done.tokens_before,
            after=done.tokens_after,
            seconds=done.seconds,
        )
    if done.convergence == "failed":
        return "failed", Reason(Cause.NOT_COMPACTED, why=done.reason)
    return "nothing", Reason(Cause.IRREDUCIBLE, why=done.reason)
