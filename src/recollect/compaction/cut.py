"""Where the past ends: the first message that a compaction keeps, and what the summary must cover.

Walks back from the newest message over what the view shows until enough is kept, and cuts at the
next place that parts no call from its results and no reasoning from its item. Pure; spends
nothing and changes nothing.
Always holds: the summarised range begins where the last one ended, so that over any number of
compactions every message is either kept or in exactly one summarised range (notes/formats.md F 1),
those included that the view leaves out; system messages stay shown and are in neither.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from recollect.compaction.shown import shown_tokens
from recollect.compaction.ties import ties
from recollect.rules.tokens import Weigher
from recollect.values.compaction import CutPlan, NoCut
from recollect.values.edit import Edit
from recollect.values.history import Entry, behind_cut, newest_cut
from recollect.values.message import Text, ToolResult
from recollect.values.model import WireRules
from recollect.values.reason import Cause, Reason

SLACK = 1.5
"""So many times what may be kept is kept where that saves a turn or an exchange from being split.
With keep_recent at most 40% of the room (rules.budget) the view still shrinks by a third."""
LEAST_FREED_TOKENS = 200
"""A summary's own sections weigh about as much: a cut that frees no more is not worth a call."""


@dataclass(frozen=True, slots=True)
class _Ground:
    """The part of the history that a cut may divide, by place in the whole of it."""

    entries: Sequence[Entry]
    """Without what the standing summary stands for. A client may have changed messages before
    the last cut, or put some in: those are ground, too."""
    first_point: int
    """No cut lies at or before the last one."""
    kept: list[int]
    """What the view shows from each place on, in tokens."""
    continued: bool
    """A summary stands before it."""


def cut(
    entries: Sequence[Entry],
    edits: Sequence[Edit],
    rules: WireRules,
    *,
    keep_tokens: int,
    least_freed_tokens: int = LEAST_FREED_TOKENS,
    weigher: Weigher | None = None,
) -> CutPlan | NoCut:
    """Plan a cut of the whole history `entries` that keeps about `keep_tokens` of the view.

    Where the plan's result is still too large, or there is no cut because all of it may be kept,
    ask again with less to keep: with 0 only the newest exchange stays, and no smaller view can
    be had by cutting. Recalled blocks are not counted: a compaction ends them.
    """
    ground = _ground(entries, edits, weigher or Weigher())
    newest = len(ground.entries) - 1
    place = next((at for at in range(newest, -1, -1) if ground.kept[at] >= keep_tokens), None)
    if place is None:
        return NoCut(reason=Reason(Cause.ALL_FITS, tokens=keep_tokens))
    points = _points(ground, rules)
    if not points:
        return NoCut(reason=Reason(Cause.ONE_EXCHANGE))
    worth = [at for at in points if _freed(ground, at) > least_freed_tokens]
    if not worth:
        freed = _freed(ground, points[-1])
        return NoCut(reason=Reason(Cause.EXCHANGE_TOO_LARGE, tokens=freed))
    return _planned(ground, _chosen(ground, worth, place, keep_tokens), keep_tokens)


def _ground(entries: Sequence[Entry], edits: Sequence[Edit], weigher: Weigher) -> _Ground:
    hidden = behind_cut(entries, edits)
    entries = [entry for entry in entries if entry.key not in hidden]
    cut = newest_cut(edits)
    anchors = (at for at, entry in enumerate(entries) if cut and entry.key == cut.anchor)
    anchor = next(anchors, None)
    shown = shown_tokens(entries, edits, weigher)
    kept = [0] * (len(entries) + 1)
    for at in range(len(entries) - 1, -1, -1):
        weight = 0 if entries[at].role == "system" else shown[at]
        kept[at] = kept[at + 1] + weight
    return _Ground(
        entries=entries, kept=kept, first_point=(anchor or 0) + 1, continued=anchor is not None
    )


def _freed(ground: _Ground, at: int) -> int:
    """What a cut before this place takes out of the view."""
    return ground.kept[0] - ground.kept[at]


def _points(ground: _Ground, rules: WireRules) -> list[int]:
    """Places before which the history may be cut, in order."""
    size = len(ground.entries)
    inside = [0] * (size + 1)
    for first, last in ties(ground.entries, rules):
        inside[first + 1] += 1
        inside[last + 1] -= 1
    points: list[int] = []
    within = inside[0] if size else 0
    for at in range(1, size):
        within += inside[at]
        allowed = at >= ground.first_point and _may_begin(ground.entries[at])
        if within == 0 and ground.kept[at] > 0 and allowed:
            points.append(at)
    return points


def _may_begin(entry: Entry) -> bool:
    """Whether a kept past may begin here: not with a result, nor with somebody's summary."""
    return entry.role in ("user", "assistant") and not entry.results and not entry.message.summary


def _chosen(ground: _Ground, points: list[int], place: int, keep_tokens: int) -> int:
    """The point at or behind `place`, or an earlier one where that spares a split."""
    most = int(keep_tokens * SLACK)
    behind = bisect_right(points, place - 1)
    earlier = points[behind - 1] if behind else None
    if behind == len(points):
        chosen = points[-1]
    else:
        chosen = points[behind]
        keeps_little = ground.kept[chosen] * 2 < keep_tokens
        if keeps_little and earlier is not None and ground.kept[earlier] <= most:
            chosen = earlier
    newest_turn = _turn_start(ground, len(ground.entries))
    if newest_turn is not None and chosen > newest_turn:
        before_turn = bisect_right(points, newest_turn)
        if before_turn and ground.kept[points[before_turn - 1]] <= most:
            chosen = points[before_turn - 1]
    return chosen


def _planned(ground: _Ground, at: int, keep_tokens: int) -> CutPlan:
    entries = ground.entries
    split, continues = at, False
    if not _starts_a_turn(entries[at]):
        turn = _turn_start(ground, at)
        if turn is not None:
            split = turn
        elif ground.continued:
            split, continues = 0, True  # the last cut lay within this very turn
    history = _spoken(entries[:split])
    turn_prefix = _spoken(entries[split:at])
    return CutPlan(
        anchor=entries[at].key,
        history=history,
        turn_prefix=turn_prefix,
        continues_turn=continues,
        kept=tuple(entries[at:]),
        kept_tokens=ground.kept[at],
        summarised_tokens=sum(entry.tokens for entry in history + turn_prefix),
        reason=Reason(
            Cause.CUT_WITHIN if turn_prefix else Cause.CUT_BETWEEN,
            messages=len(history) + len(turn_prefix),
            tokens=ground.kept[at],
            wanted=keep_tokens,
        ),
    )


def _spoken(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    return tuple(entry for entry in entries if entry.role != "system")


def _turn_start(ground: _Ground, before: int) -> int | None:
    """Where the turn begins that goes on up to this place; None where a summary covers it."""
    for at in range(before - 1, -1, -1):
        if _starts_a_turn(ground.entries[at]):
            while at > 0 and _starts_a_turn(ground.entries[at - 1]):
                at -= 1  # a client may send one request of the user's as several messages
            return at
    return None


def _starts_a_turn(entry: Entry) -> bool:
    """Whether the user says something here, not only a tool or we."""
    if entry.role != "user" or entry.message.summary:
        return False
    unfit = {flaw.part for flaw in entry.message.flaws}
    return any(
        not isinstance(part, ToolResult)
        and at not in unfit
        and not (isinstance(part, Text) and not part.text.strip())
        for at, part in enumerate(entry.parts)
    )
