"""What the lines of a report say about stages whose results do not say it themselves."""

from __future__ import annotations

from recollect.engine.archive import Kept
from recollect.turn.align import Alignment
from recollect.turn.apply import Applied
from recollect.values.compaction import CompactionResult
from recollect.values.recalled import Recalled
from recollect.values.report import Outcome


def said_of_alignment(alignment: Alignment | None) -> str:
    """How the history relates to the known one."""
    if alignment is None:
        return ""
    rejoined = f", {alignment.rejoined} recognised further on" if alignment.rejoined else ""
    return f"{alignment.course}: {alignment.shared} messages as before{rejoined}"


def said_of_application(applied: Applied | None) -> str:
    """What the standing edits and the provider's rules made of it."""
    if applied is None:
        return ""
    said = f"{len(applied.view.rows)} rows"
    if applied.view.repairs:
        said += f", {len(applied.view.repairs)} repairs"
    if applied.gone:
        said += f", {len(applied.gone)} edits rest: their messages are not in this history"
    return said


def said_of_keeping(kept: Kept | None) -> str:
    """Where what may leave the view is durable."""
    if kept is None:
        return ""
    return f"durable in the {kept.where}" + (f": {kept.said}" if kept.said else "")


def said_of_recall(found: Recalled) -> str:
    """What memory found, or why it was not asked further; and what was not as it should be."""
    gate = found.gate
    if gate is not None and not gate.open:
        said = f"nothing recalled: {gate.reason}"
    else:
        said = f"{len(found.facts)} facts and {len(found.passages)} passages"
        if gate is not None:
            said += f" ({gate.reason})"
    return "; ".join((said, *found.notes))


def said_of_compaction(done: CompactionResult) -> tuple[Outcome, str]:
    """How a compaction ended, for the line of the turn that waited for it."""
    if done.compacted:
        return "done", (
            f"{done.reason}: {done.tokens_before:,} to {done.tokens_after:,} tokens "
            f"in {done.seconds:.1f} s"
        )
    if done.convergence == "failed":
        return "failed", done.reason
    return "nothing", f"irreducible: {done.reason}"
