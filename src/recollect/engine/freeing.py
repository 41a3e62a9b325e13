"""What only a batch moment may do to a view: blocks go, results are pruned, messages trimmed.

Also says when none of that is enough and a compaction has to come first. Works on a turn as it
stands and replaces values in it; the boundary sees to it that a step that fails changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from recollect.engine.turn_path import TurnPath, is_block, without_blocks
from recollect.rules.budget import WORTHWHILE_SHARE
from recollect.turn.prune import PruneResult, prune
from recollect.turn.query import QueryResult, last_exchange
from recollect.turn.trim import TrimResult, trim
from recollect.values.edit import Edit, Shorten
from recollect.values.message import ToolResult
from recollect.values.reason import NOT_RUN, Cause, Reason
from recollect.values.report import BatchMoment

PRUNED_ENOUGH_RATIO = 0.8
"""Of the limit, what pruning alone has to come down to; else there is a compaction, or a trim."""
FULL_MOMENTS = ("over-limit", "room", "compaction")
"""The view is full: what pruning leaves has to be well below its limit."""
TRIM_ROUNDS = 3
"""Trims are repeated when the notes they leave took up what they freed."""


async def free(path: TurnPath, moment: BatchMoment, asked: QueryResult) -> None:
    """What only a batch moment may do: blocks go first, then prune, then compact or trim.

    A result that alone fills the window is shortened before anything else is cut for it. A
    ratio is a moment only if pruning is worth it; then what it frees comes first.
    """
    if moment.kind == "ratio" and not await _prune(path, moment):
        path.moment = None
        return
    if any(map(is_block, path.edits)):
        await path.change(_without_old_blocks(path, moment))
    if moment.kind == "room" and path.has_room():
        return
    compacts = path.may_compact and moment.kind in FULL_MOMENTS
    if moment.kind != "ratio" and not compacts:
        # Where the past can become a summary, its results are worth more whole: measured,
        # pruning first costs as much and keeps less (docs/figures_cost.md).
        await _prune(path, moment)
    if path.used_tokens() > path.limits.limit_tokens and _holds_oversized_result(path):
        await _prune(path, moment, everything=True)
    trims_first = path.settings.turn.trim_first
    if not trims_first and _stays_full(path, moment):
        path.wants_compaction = True
        return
    if path.used_tokens() > _enough_tokens(path, moment):
        if path.why_not_compact is not None:
            path.boundary.note(
                "compact", "skipped", Reason(Cause.NO_COMPACTION, why=path.why_not_compact)
            )
        await _trim(path, asked, _low_tokens(path, moment))
    if trims_first and path.fills_up():
        path.wants_compaction = True
        return
    if path.used_tokens() > path.limits.limit_tokens:
        await _prune(path, moment)  # what counts as recent has changed
    if path.used_tokens() > path.limits.available_tokens:
        await _prune(path, moment, everything=True)


def _without_old_blocks(path: TurnPath, moment: BatchMoment) -> tuple[Edit, ...]:
    """The edits without recalled blocks; after a pause the newest exchange keeps its own, which
    the next question may lean on."""
    if moment.kind != "cache-expired":
        return without_blocks(path.edits)
    recent = last_exchange(path.entries)
    return tuple(edit for edit in path.edits if not is_block(edit) or edit.anchor in recent)


def _enough_tokens(path: TurnPath, moment: BatchMoment) -> int:
    """What pruning has to come down to, or messages are trimmed too.

    A view that was over its limit and stays just below it is over it again in a turn or two, and
    each time the provider's cache is broken for a few results more.
    """
    limit = path.limits.limit_tokens
    if moment.kind == "room":
        return limit - path.wanted_tokens()
    if moment.kind != "over-limit" or path.settings.turn.trim_first:
        return limit
    return int(PRUNED_ENOUGH_RATIO * limit)


def _low_tokens(path: TurnPath, moment: BatchMoment) -> int:
    """What a trim goes down to: for a block's sake no further than it takes, and a little."""
    low = path.limits.low_water_tokens
    if moment.kind != "room":
        return low
    return max(
        low, path.limits.limit_tokens - path.wanted_tokens() - path.limits.window_tokens // 20
    )


def _stays_full(path: TurnPath, moment: BatchMoment) -> bool:
    """Whether pruning was not enough: a view that is full again in a few turns would break
    the provider's cache each time."""
    if moment.kind not in FULL_MOMENTS:
        return path.fills_up()
    enough = PRUNED_ENOUGH_RATIO * path.limits.compact_tokens
    return path.may_compact and path.used_tokens() > enough


def _holds_oversized_result(path: TurnPath) -> bool:
    """Whether one tool result takes half of what a request may hold."""
    most = path.estimated(path.limits.available_tokens // 2)
    rows = [row for row in path.view.rows if row.tokens > most]
    return any(isinstance(part, ToolResult) for row in rows for part in row.parts)


async def _prune(path: TurnPath, moment: BatchMoment, *, everything: bool = False) -> bool:
    """Whether anything was pruned."""
    used = path.used_tokens()
    target = path.limits.limit_tokens if everything else path.limits.low_water_tokens
    repairs = path.view.repairs
    hidden = {(one.anchor, one.part) for one in repairs if one.kind == "left-out"}
    made = await path.boundary.run(
        "prune",
        lambda: prune(
            path.visible(),
            path.edits,
            path.settings.pruning,
            path.weigher,
            moment=moment,
            used_tokens=path.estimated(used),
            window_tokens=path.estimated(path.limits.window_tokens),
            target_tokens=path.estimated(target),
            turn=path.number,
            everything=everything,
            hidden=hidden,
            mask=path.mask.text,
        ),
        unchanged=PruneResult(edits=(), freed_tokens=0, reason=NOT_RUN),
        reason=lambda result: result.reason,
        in_thread=True,  # long results are masked whole, and read for their telling lines
    )
    if path.held:
        made = replace(made, edits=tuple(e for e in made.edits if e.anchor not in path.held))
    if not made.edits:
        return False
    too_little = made.freed_tokens < path.estimated(path.limits.window_tokens // WORTHWHILE_SHARE)
    if moment.kind == "ratio" and too_little and not path.settings.turn.trim_first:
        path.boundary.note("prune", "skipped", Reason(Cause.FREES_TOO_LITTLE))
        return False
    replaced = {(edit.anchor, edit.part) for edit in made.edits}
    kept = tuple(
        edit
        for edit in path.edits
        if not (isinstance(edit, Shorten) and (edit.anchor, edit.part) in replaced)
    )
    await path.change(kept + made.edits)
    return True


async def _trim(path: TurnPath, asked: QueryResult, low_tokens: int) -> None:
    settings = path.settings
    if settings.turn.trim_first and len(asked.text) < settings.trim.min_query_chars:
        path.boundary.note("trim", "skipped", Reason(Cause.QUERY_TOO_SHORT_TO_TRIM))
        return
    for _ in range(TRIM_ROUNDS):
        excess = path.estimated(path.used_tokens() - low_tokens)
        made = await path.boundary.run(
            "trim",
            lambda: trim(
                path.not_left_out(),
                path.edits,
                path.codec.rules,
                settings.trim,
                path.weigher,
                query=asked.text,
                excess_tokens=excess,  # noqa: B023
                turn=path.number,
                by_exchange=not settings.turn.trim_first,
                hidden=path.hidden(),
                pinned=path.held,
            ),
            unchanged=TrimResult(edits=(), freed_tokens=0, reason=NOT_RUN),
            reason=lambda result: result.reason,
        )
        if not made.edits:
            return
        await path.change(path.edits + made.edits)
        if path.used_tokens() <= max(low_tokens, path.limits.limit_tokens):
            return
