"""How a compaction of the engine's comes into the transcript, and how it goes: which ones, and from
which entry on.

Pure. Always holds: what the transcript keeps from an entry on is at least what the engine shows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from recollect.engine.session import Context
from recollect.formats.pi_session import PiShown
from recollect.formats.translate import WireHistory
from recollect.values.compaction import CompactionResult
from recollect.values.edit import Cut
from recollect.values.history import SessionState, newest_cut
from recollect.values.message import EntryKey
from recollect.values.reason import Cause, Reason


def unrecorded(context: Context, recorded: Collection[int]) -> tuple[CompactionResult, ...]:
    """What a prepared turn tells of compactions that the transcript does not know.

    The turn waited for one; or the process ended between the engine's commit and ours; or the
    user did not wait for one that was under way.
    """
    made = context.compaction
    cut = newest_cut(context.edits)
    if cut is None or cut.number in recorded:
        return (made,) if made is not None and not made.compacted else ()
    if made is not None and made.number == cut.number:
        return (made,)
    found = CompactionResult(
        convergence="reduced",
        reason=Reason(Cause.MADE_EARLIER),
        trigger="threshold",
        number=cut.number,
        summary=cut.summary,
        first_kept=cut.anchor,
        tokens_before=context.report.tokens_before,
        tokens_after=context.report.tokens_after,
    )
    return (found,)


def undone_elsewhere(number: int, state: SessionState) -> bool:
    """Whether the engine made this compaction and no longer shows it.

    `recollect undo` works on the store alone; or the process ended between the engine's commit
    and ours. A state that never heard of the compaction says nothing: its store may be away.
    """
    if not 0 < number <= state.compactions:
        return False
    cuts = [edit for edit in state.edits if isinstance(edit, Cut)]
    if any(cut.number == number for cut in cuts):
        return False
    # What lies behind the oldest cut stands with it, though its edit is no longer kept.
    return not cuts or number > cuts[0].before


def first_kept_entry(
    first_kept: EntryKey | None,
    path: Sequence[EntryKey],
    wire: WireHistory,
    shown: Sequence[PiShown],
    *,
    leading: int,
) -> str | None:
    """The entry of the first message that the engine keeps; None in an empty transcript.

    `path` are the engine's keys of the request, `leading` how many messages of it stand before
    the history.
    """
    if not shown:
        return None
    at = path.index(first_kept) - leading if first_kept in path else -1
    if not 0 <= at < len(wire.sources):
        return shown[0].entry_id  # not to be found: keeping too much loses nothing
    return _whole_turn(shown, wire.sources[at])


def _whole_turn(shown: Sequence[PiShown], position: int) -> str | None:
    """A result leads back to the reply that asked for it: nobody shows one without the other."""
    while position > 0 and shown[position].message.get("role") == "toolResult":
        position -= 1
    return shown[position].entry_id
