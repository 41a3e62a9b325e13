"""What the lines of a report say about stages whose results do not say it themselves."""

from __future__ import annotations

from recollect.engine.archive import Kept
from recollect.turn.align import Alignment
from recollect.turn.apply import Applied
from recollect.values.compaction import CompactionResult
from recollect.values.reason import Cause, Reason
from recollect.values.recall import Recalled
from recollect.values.report import Outcome


def alignment_reason(found: Alignment) -> Reason:
    """How the history relates to the known one."""
    if not found.rejoined:
        return Reason(Cause.ALIGNED, course=found.course, shared=found.shared)
    return Reason(Cause.REJOINED, course=found.course, shared=found.shared, rejoined=found.rejoined)


def view_reasons(applied: Applied) -> tuple[Reason, ...]:
    """What the standing edits and the provider's rules made of it."""
    reasons = [Reason(Cause.VIEW_MADE, rows=len(applied.view.rows))]
    if applied.view.repairs:
        reasons.append(Reason(Cause.REPAIRED, repairs=len(applied.view.repairs)))
    if applied.gone:
        reasons.append(Reason(Cause.EDITS_REST, edits=len(applied.gone)))
    return tuple(reasons)


def durability_reason(kept: Kept) -> Reason:
    """Where what may leave the view is durable."""
    if kept.said:
        return Reason(Cause.DURABLE_BUT, where=kept.where, detail=kept.said)
    return Reason(Cause.DURABLE, where=kept.where)


def recall_reasons(found: Recalled) -> tuple[Reason, ...]:
    """What memory found, or why it was not asked further; and what was not as it should be."""
    gate, facts, passages = found.gate, len(found.facts), len(found.passages)
    if gate is None:
        reason = Reason(Cause.FOUND, facts=facts, passages=passages)
    elif gate.open:
        reason = Reason(Cause.FOUND_BY, facts=facts, passages=passages, gate=gate.reason)
    else:
        reason = Reason(Cause.NOT_RECALLED, gate=gate.reason)
    return (reason, *found.notes)


def compaction_line(done: CompactionResult) -> tuple[Outcome, Reason]:
    """How a compaction ended, for the line of the turn that waited for it."""
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
