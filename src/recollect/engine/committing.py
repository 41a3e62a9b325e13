"""Commits a compaction: the cut, the session's state and the record of it, in one durable write.

The only step of a compaction that holds the session's lock. Always holds: the view gets smaller,
or nothing changes; a session that went on another way meanwhile is left as it is.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from recollect.compaction.replace_past import replace_past
from recollect.config.settings import Redaction as RedactionSettings
from recollect.engine.batching import masked_carried
from recollect.engine.keeping import SessionKeeper
from recollect.engine.session import Session
from recollect.engine.turn_path import TurnPath
from recollect.formats.compaction_record import write_record
from recollect.rules.redaction import redact
from recollect.turn.query import newest_exchange
from recollect.values.compaction import (
    Carried,
    CompactionRecord,
    CompactionResult,
    CutPlan,
    Finding,
    Receipt,
    Summarised,
)
from recollect.values.edit import Cut, Edit
from recollect.values.history import SessionState, newest_cut, requests_of
from recollect.values.reason import Cause, Reason

WORTHWHILE_RATIO = 0.98
"""Of what it was, what the view has to come down to, or the compaction was for nothing."""


LOST_RACES = frozenset({Cause.ANOTHER_WAY, Cause.ANOTHER_PROCESS, Cause.FORGOTTEN_MEANWHILE})
"""Nothing failed: it was too late, and can be tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """A summary with what had to be pinned, and the receipt of both."""

    text: str = field(repr=False)
    receipt: Receipt


async def commit(
    held: Session,
    path: TurnPath,
    plan: CutPlan,
    summary: Summarised,
    proved: Proved,
    *,
    nothing: CompactionResult,
    keeper: SessionKeeper | None,
    redaction: RedactionSettings,
    now: float,
    begun: float,
) -> CompactionResult:
    """The past replaced by the summary; `nothing` is what is said of it where that fails."""
    async with held.lock:
        # A turn that waits for this compaction has not been committed: its history is new.
        state = held.state
        if (state.path, state.edits) == (path.state.path, path.state.edits):
            state = path.aligned_state(state)
        base = _base(state, path)
        if base is None or plan.anchor not in state.path:
            return replace(nothing, reason=Reason(Cause.ANOTHER_WAY))
        number = state.compactions + 1
        before = newest_cut(base)
        earlier = () if before is None else before.covers
        made = Cut(
            anchor=plan.anchor,
            summary=proved.text,
            stage="compact",
            reason=Reason(Cause.CUT, number=number, cut=plan.reason),
            turn=state.turn + 1,
            number=number,
            before=0 if before is None else before.number,
            covers=tuple(dict.fromkeys((*earlier, *(one.id for one in plan.summarised)))),
            carried=summary.carried,
        )
        blocks = newest_exchange(path.entries)  # what was recalled for it stays
        edits = replace_past(base, made, path.entries, keep_blocks=blocks).edits
        view = path.applied(edits).view
        after = path.calibrated(path.fixed_tokens + view.tokens)
        if after > WORTHWHILE_RATIO * nothing.tokens_before:
            why = Reason(Cause.SUMMARY_AS_LONG)
            return replace(nothing, convergence="irreducible", reason=why)
        result = replace(
            nothing,
            convergence="reduced",
            reason=Reason(Cause.SUMMARISED, messages=len(plan.summarised)),
            number=number,
            summary=proved.text,
            first_kept=plan.anchor,
            compacted_messages=len(plan.summarised),
            tokens_after=after,
            splits_a_turn=plan.splits_a_turn,
            details=summary.carried.details(),
            receipt=proved.receipt,
            seconds=time.monotonic() - begun,
        )
        new = replace(
            state,
            turn=state.turn + 1,
            edits=edits,
            compactions=number,
            compaction_paused=False,
        )
        if keeper is not None:
            record = _record(held.id, result, made, redaction, now=now, turn=requests_of(state) + 1)
            kept = await keeper.keep_state(
                held.id, new, held.keeping, now=now, compactions=(record,)
            )
            if kept.where == "nowhere":
                return replace(nothing, reason=Reason(Cause.COULD_NOT_BE_KEPT, error=kept.said))
            written = kept.written
            if written is not None and written.session_stale:
                return replace(nothing, reason=Reason(Cause.ANOTHER_PROCESS))
            if written is not None and written.session_cleaned:
                return replace(nothing, reason=Reason(Cause.FORGOTTEN_MEANWHILE))
        held.state = new
        return result


def _base(state: SessionState, path: TurnPath) -> tuple[Edit, ...] | None:
    """The edits that the cut is added to; None where they rest on another cut than the plan.

    A turn that waits for this compaction has pruned already: then its edits count.
    """
    if state.edits == path.state.edits:
        return path.edits
    return state.edits if newest_cut(state.edits) == newest_cut(path.edits) else None


def _record(
    session: str,
    result: CompactionResult,
    made: Cut,
    redaction: RedactionSettings,
    *,
    now: float,
    turn: int,
) -> CompactionRecord:
    carried = made.carried or Carried()
    kept = _masked(result, carried, redaction) if redaction.enabled else result
    return CompactionRecord(
        session=session,
        number=result.number,
        at=now,
        body=write_record(kept, turn=turn, at=now),
        about=made.covers,
    )


def _masked(
    result: CompactionResult, carried: Carried, redaction: RedactionSettings
) -> CompactionResult:
    """As it may be stored."""

    def masked(text: str) -> str:
        return redact(text, pii=redaction.pii).text

    def told(one: Finding) -> Finding:
        probe = replace(one.probe, text=masked(one.probe.text), sentence=masked(one.probe.sentence))
        return replace(one, probe=probe)

    receipt = result.receipt
    if receipt is not None:
        receipt = replace(receipt, findings=tuple(told(one) for one in receipt.findings))
    return replace(
        result,
        reason=result.reason.masked(masked),
        notes=tuple(masked(note) for note in result.notes),
        summary=masked(result.summary),
        receipt=receipt,
        details=masked_carried(carried, masked).details(),
    )
